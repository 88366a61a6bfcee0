//! Bodies that are none: a clear answer, counted, and the next request is served.

use wattlane::server::Limits;

use crate::support::{BOTH, Http, start};

fn nested(open: &str, close: &str, depth: usize) -> String {
    open.repeat(depth) + "1" + &close.repeat(depth)
}

/// Bodies and, for those that are errors, a word of the answer.
fn bodies() -> Vec<(&'static str, Vec<u8>)> {
    let deep = nested("[", "]", 100_000);
    vec![
        ("empty", vec![]),
        ("truncated", br#"{"Pod":{},"NodeNames":["ok"#.to_vec()),
        ("two documents", br#"{"Pod":{},"NodeNames":[]}{}"#.to_vec()),
        (
            "invalid UTF-8 in a name",
            b"{\"Pod\":{},\"NodeNames\":[\"ok\xff\"]}".to_vec(),
        ),
        ("invalid UTF-8 in a key", b"{\"\xff\":{},\"Pod\":{}}".to_vec()),
        ("half a surrogate", br#"{"Pod":{},"NodeNames":["\ud800"]}"#.to_vec()),
        ("a control character", b"{\"Pod\":{},\"NodeNames\":[\"a\nb\"]}".to_vec()),
        ("nothing but brackets", deep.clone().into_bytes()),
        (
            "deep names",
            format!(r#"{{"Pod":{{}},"NodeNames":{deep}}}"#).into_bytes(),
        ),
        (
            "deep nodes",
            format!(r#"{{"Pod":{{}},"Nodes":{{"items":{deep}}}}}"#).into_bytes(),
        ),
        ("deep unclosed", "{\"Pod\":".repeat(100_000).into_bytes()),
        (
            "a name that is a number",
            br#"{"Pod":{},"NodeNames":[1e999999]}"#.to_vec(),
        ),
        (
            "a huge number",
            format!(r#"{{"Pod":{{}},"NodeNames":{}}}"#, "9".repeat(100_000)).into_bytes(),
        ),
        ("a list", b"[]".to_vec()),
        ("null", b"null".to_vec()),
        (
            "a node without a name",
            br#"{"Pod":{},"Nodes":{"items":[{"metadata":{}}]}}"#.to_vec(),
        ),
        ("no pod", br#"{"NodeNames":["ok"]}"#.to_vec()),
    ]
}

#[tokio::test]
async fn garbage_is_answered_counted_and_forgotten() {
    // Nothing here is to be refused for its size.
    let limits = Limits {
        bind_bytes: 8 << 20,
        admission_tree_bytes: usize::MAX / 2,
        admission_buffered_bytes: usize::MAX / 2,
        ..Limits::default()
    };
    let server = start(limits).await;
    for (what, body) in bodies() {
        for http in BOTH {
            for (path, verb) in [
                ("/extender/filter", "filter"),
                ("/extender/prioritize", "prioritize"),
                ("/extender/bind", "bind"),
                ("/admission/mutate", "mutate"),
            ] {
                let before = server.requests(verb, "bad_request");
                let answer = server.peer().post(http, path, body.clone()).await;
                let words = answer.text();
                // A bind's words go into the pod's event, so they come in the protocol.
                let expected = if verb == "bind" { 200 } else { 400 };
                assert_eq!(answer.status.as_u16(), expected, "{what} to {path}: {words}");
                let named = ["ExtenderArgs", "ExtenderBindingArgs", "AdmissionReview"]
                    .iter()
                    .any(|n| words.contains(n));
                assert!(named && words.len() < 500, "{what} to {path}: {words}");
                assert_eq!(server.requests(verb, "bad_request"), before + 1.0, "{what} to {path}");
            }
            let answer = server
                .peer()
                .post(http, "/extender/filter", r#"{"Pod":{},"NodeNames":["ok"]}"#)
                .await;
            assert_eq!(answer.status, 200, "after {what}");
        }
    }
}

/// What is only skipped or handed on as text has no depth that could hurt.
#[tokio::test]
async fn what_is_not_looked_at_may_be_anything_that_is_json() {
    let server = start(Limits::default()).await;
    let deep = nested("{\"a\":", "}", 100_000);
    for body in [
        format!(r#"{{"later":{deep},"Pod":{{}},"NodeNames":["ok"]}}"#),
        format!(r#"{{"Pod":{deep},"NodeNames":["ok"]}}"#),
        format!(r#"{{"Pod":{{"n":{}}},"NodeNames":["ok"]}}"#, "9".repeat(100_000)),
        r#"{"Pod":{"n":1e999999},"NodeNames":["ok"],"Pod":{"a":1,"a":2}}"#.into(),
    ] {
        let answer = server.peer().post(Http::One, "/extender/filter", body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}
