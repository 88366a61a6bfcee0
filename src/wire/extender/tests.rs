use serde_json::{Value, json};

use std::sync::Arc;

use super::*;

fn parse(body: &str) -> Result<ExtenderArgs<'_>, WireError> {
    ExtenderArgs::parse(body.as_bytes())
}

fn names<'a>(args: &'a ExtenderArgs<'_>) -> Vec<&'a str> {
    args.names.iter().collect()
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("UTF-8")
}

fn verdicts(all: impl IntoIterator<Item = Option<Arc<str>>>) -> Verdicts {
    all.into_iter().collect()
}

#[test]
fn go_and_lower_case_spellings_read_the_same() {
    for body in [
        r#"{"Pod":{"a":1},"Nodes":null,"NodeNames":["n1","n2"]}"#,
        r#"{"pod":{"a":1},"nodenames":["n1","n2"],"later":{"x":[1,null]}}"#,
        r#"{"nodeNames":["n1","n2"],"nodes":null,"POD":{"a":1}}"#,
        r#"{"NodeNames":["zz"],"NodeNames":["n1","n2"],"Pod":{"a":1}}"#,
        r#"{"NodeNames":["\u006e1","n2"],"Pod":{"a":1}}"#,
    ] {
        let args = parse(body).expect(body);
        assert_eq!(
            (args.pod.get(), names(&args)),
            (r#"{"a":1}"#, vec!["n1", "n2"]),
            "{body}"
        );
    }
}

/// What looks like the names and is not, in a pod or in one that is not whole.
#[test]
fn names_are_those_of_the_arguments() {
    let inner = r#"{"Pod":{"x":{"a":1,"Nodes":null,"NodeNames":["n1"]}},"Nodes":null,"NodeNames":["n2"]}"#;
    assert_eq!(names(&parse(inner).expect("parses")), ["n2"]);
    let inner = r#"{"Pod":{"x":"\",\"Nodes\":null,\"NodeNames\":[\"n1\"]}"},"Nodes":null,"NodeNames":["n2"]}"#;
    assert_eq!(names(&parse(inner).expect("parses")), ["n2"]);
    for broken in [
        r#"{"Pod":{"a":1,"Nodes":null,"NodeNames":["n1"]}"#,
        r#"{"Pod":{"a":"x,"Nodes":null,"NodeNames":["n1"]}"#,
        r#"{"Pod":null,"Nodes":null,"NodeNames":["n1"]}"#,
        r#"{"Pod":{},"Nodes":null,"NodeNames":["n1"]]}"#,
        r#"{"Pod":{},"Nodes":null,"NodeNames":["n1",]}"#,
        "{\"Pod\":{},\"Nodes\":null,\"NodeNames\":[\"n\n1\"]}",
    ] {
        assert!(parse(broken).is_err(), "{broken}");
    }
}

#[test]
fn whole_nodes_come_back_as_they_were_sent() {
    let body = r#"{"Pod":{},"NodeNames":null,"Nodes":{"metadata":{},"items":[
        {"metadata":{"name":"a","labels":{"x":"1"}},"spec":{"odd": 1e400}},{"metadata":{"name":"b"}}]}}"#;
    let args = parse(body).expect("parses");
    assert_eq!(names(&args), ["a", "b"]);
    let answer = text(filter_result(&args, &verdicts([None, Some("full".into())])));
    assert_eq!(
        answer,
        concat!(
            r#"{"Nodes":{"metadata":{},"items":[{"metadata":{"name":"a","labels":{"x":"1"}},"spec":{"odd": 1e400}}]},"#,
            r#""NodeNames":null,"FailedNodes":{},"FailedAndUnresolvableNodes":{"b":"full"},"Error":""}"#
        )
    );
}

#[test]
fn both_lists_are_answered_with_both() {
    let body =
        r#"{"Pod":{},"NodeNames":["b","a"],"Nodes":{"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}}"#;
    let args = parse(body).expect("parses");
    let answer: Value =
        serde_json::from_slice(&filter_result(&args, &verdicts([None, Some("no".into())]))).expect("JSON");
    assert_eq!(answer["NodeNames"], json!(["b"]));
    assert_eq!(answer["Nodes"]["items"], json!([{"metadata": {"name": "b"}}]));
}

#[test]
fn no_list_at_all_is_answered_with_an_empty_one() {
    let args = parse(r#"{"Pod":{}}"#).expect("parses");
    assert_eq!(
        text(filter_result(&args, &Verdicts::default())),
        r#"{"Nodes":null,"NodeNames":[],"FailedNodes":{},"FailedAndUnresolvableNodes":{},"Error":""}"#
    );
    assert_eq!(text(prioritize_result(&args, &[])), "[]");
}

#[test]
fn names_and_reasons_are_escaped() {
    let args = parse(r#"{"Pod":{},"NodeNames":["q\"\\\u0007","ü","plain"]}"#).expect("parses");
    let why: Arc<str> = "say \"no\"\n".into();
    let answer = filter_result(&args, &verdicts([Some(why.clone()), Some(why), None]));
    let read: Value = serde_json::from_slice(&answer).expect("JSON");
    assert_eq!(
        read["FailedAndUnresolvableNodes"],
        json!({"q\"\\\u{7}": "say \"no\"\n", "ü": "say \"no\"\n"})
    );
    assert_eq!(
        text(prioritize_result(&args, &[1, 10])),
        r#"[{"Host":"q\"\\\u0007","Score":1},{"Host":"ü","Score":10},{"Host":"plain","Score":0}]"#
    );
}

#[test]
fn many_different_reasons_each_reach_their_node() {
    let count = 40;
    let body = json!({"Pod": {}, "NodeNames": (0..count).map(|i| format!("n{i}")).collect::<Vec<_>>()}).to_string();
    let args = parse(&body).expect("parses");
    let texts: Vec<Arc<str>> = (0..13).map(|i| format!("reason {i}").into()).collect();
    let verdicts: Verdicts = (0..count).map(|i| Some(texts[i * 7 % 13].clone())).collect();
    let read: Value = serde_json::from_slice(&filter_result(&args, &verdicts)).expect("JSON");
    for i in 0..count {
        assert_eq!(read["FailedAndUnresolvableNodes"][format!("n{i}")], *texts[i * 7 % 13]);
    }
}

#[test]
fn a_node_without_a_verdict_does_not_pass() {
    let args = parse(r#"{"Pod":{},"NodeNames":["a","b"]}"#).expect("parses");
    let read: Value = serde_json::from_slice(&filter_result(&args, &verdicts([None]))).expect("JSON");
    assert_eq!(read["NodeNames"], json!(["a"]));
    assert!(read["FailedAndUnresolvableNodes"]["b"].is_string());
    // Nor one that nobody asked about.
    let read: Value =
        serde_json::from_slice(&filter_result(&args, &verdicts([None, None, None, Some("x".into())]))).expect("JSON");
    assert_eq!(
        (&read["NodeNames"], &read["FailedAndUnresolvableNodes"]),
        (&json!(["a", "b"]), &json!({}))
    );
}

#[test]
fn what_is_no_extender_args_is_refused_with_words() {
    for (body, word) in [
        ("", "EOF"),
        ("[]", "an object"),
        (r#"{"Pod":{"a":1},"NodeNames":["n1""#, "EOF"),
        (r#"{"NodeNames":["n1"]}"#, "no Pod"),
        (r#"{"Pod":{},"NodeNames":[1]}"#, "a string"),
        (r#"{"Pod":{},"NodeNames":"n1"}"#, "a sequence"),
        (r#"{"Pod":{},"Nodes":{"items":[{"metadata":{}}]}}"#, "name"),
        (r#"{"Pod":{},"NodeNames":[]} x"#, "trailing"),
    ] {
        let error = parse(body).expect_err(body);
        assert!(error.0.contains(word), "{body}: {error}");
    }
    assert!(ExtenderArgs::parse(b"{\"Pod\":{},\"NodeNames\":[\"\xff\"]}").is_err());
}

#[test]
fn deep_nesting_of_what_we_skip_is_harmless() {
    let body = format!(r#"{{"x":{}{},"Pod":{{}}}}"#, "[".repeat(200_000), "]".repeat(200_000));
    assert!(parse(&body).is_ok());
}

#[test]
fn bind_arguments_in_any_case_and_all_of_them() {
    let args = BindArgs::parse(br#"{"PodName":"p","podNamespace":"ns","PodUID":"u","node":"n1","x":null}"#);
    assert_eq!(
        args,
        Ok(BindArgs {
            name: "p".into(),
            namespace: "ns".into(),
            uid: "u".into(),
            node: "n1".into()
        })
    );
    let error =
        BindArgs::parse(br#"{"PodName":"p","PodNamespace":"ns","PodUID":null,"Node":"n1"}"#).expect_err("no UID");
    assert!(error.0.contains("PodUID"), "{error}");
    assert_eq!(text(bind_result(None)), r#"{"Error":""}"#);
    assert_eq!(text(bind_result(Some("a \"b\""))), r#"{"Error":"a \"b\""}"#);
}

proptest::proptest! {
    /// However the list is written: plain, with escapes, with space, with what is no name in it.
    #[test]
    fn names_read_the_same_plain_or_not(
        all in proptest::collection::vec(r#"[a-c,"\\\[\]é\n]{0,4}"#, 0..5),
        space in proptest::sample::select(vec!["", " ", "\n"]),
        odd in proptest::sample::select(vec!["", "", "7", "null", "[]", "{}"]),
    ) {
        let written: Vec<String> = all.iter().map(|n| Value::from(n.as_str()).to_string()).collect();
        let mut list = written.join(&format!(",{space}"));
        if !odd.is_empty() {
            list = format!("{odd},{list}");
        }
        let list = format!("{space}{list}");
        let strings = |names: NodeNames<'_>| names.iter().map(str::to_owned).collect::<Vec<_>>();
        let plain = NodeNames::plain(&list).map(strings);
        let usual = serde_json::from_str::<Vec<String>>(&format!("[{list}]")).ok();
        if plain.is_some() {
            proptest::prop_assert_eq!(&plain, &usual);
        }
        let body = format!(r#"{{"Pod":{{}},"Nodes":null,"NodeNames":[{list}]}}"#);
        proptest::prop_assert_eq!(parse(&body).ok().map(|args| strings(args.names)), usual);
        let escaped = list.contains('\\');
        proptest::prop_assert_eq!(plain.is_some(), space.is_empty() && odd.is_empty() && !all.is_empty() && !escaped);
    }
}
