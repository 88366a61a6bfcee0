//! What each verb writes, byte for byte, whatever the spelling of the request and the version of HTTP.

use http::{Method, StatusCode};
use serde_json::{Value, json};
use wattlane::server::Limits;

use crate::support::{BOTH, Http, start, whole};

const FILTER: &str = "/extender/filter";

#[tokio::test]
async fn filter_by_names_writes_go_fields_exactly() {
    let server = start(Limits::default()).await;
    let golden = concat!(
        r#"{"Nodes":null,"NodeNames":["ok-1","ok-2"],"FailedNodes":{},"#,
        r#""FailedAndUnresolvableNodes":{"n-1":"n-1: no \"free\" card"},"Error":""}"#
    );
    for body in [
        r#"{"Pod":{},"Nodes":null,"NodeNames":["ok-1","n-1","ok-2"]}"#,
        r#"{"pod":{},"nodes":null,"nodenames":["ok-1","n-1","ok-2"]}"#,
        r#"{"nodeNames":["ok-1","n-1","ok-2"],"later":[1,{}],"pod":{}}"#,
        // An escape in a name is the caller's spelling, not another name.
        r#"{"Pod":{},"NodeNames":["ok\u002d1","n-1","ok-2"]}"#,
        // Twice: the last counts, as in Go.
        r#"{"Pod":{},"NodeNames":["other"],"NodeNames":["ok-1","n-1","ok-2"]}"#,
    ] {
        for http in BOTH {
            let answer = server.peer().post(http, FILTER, body).await;
            assert_eq!(
                (answer.status, answer.text()),
                (StatusCode::OK, golden),
                "{http:?} {body}"
            );
            assert_eq!(answer.headers["content-type"], "application/json");
        }
    }
    assert_eq!(server.requests("filter", "ok"), 10.0);
}

#[tokio::test]
async fn filter_with_whole_nodes_sends_whole_nodes_back() {
    let server = start(Limits::default()).await;
    let one = r#"{"metadata":{"name":"ok-1","labels":{"a": "b"}},"spec":{"later":1.50}}"#;
    let two = r#"{"metadata":{"name":"n-2"}}"#;
    let golden = format!(
        concat!(
            r#"{{"Nodes":{{"metadata":{{}},"items":[{one}]}},"NodeNames":null,"FailedNodes":{{}},"#,
            r#""FailedAndUnresolvableNodes":{{"n-2":"n-2: no \"free\" card"}},"Error":""}}"#
        ),
        one = one
    );
    for body in [
        format!(r#"{{"Pod":{{}},"Nodes":{{"metadata":{{}},"items":[{one},{two}]}},"NodeNames":null}}"#),
        format!(r#"{{"pod":{{}},"nodes":{{"items":[{one},{two}]}}}}"#),
        // A caller's empty list is no question about no nodes.
        format!(r#"{{"Pod":{{}},"NodeNames":[],"Nodes":{{"items":[{one},{two}]}}}}"#),
    ] {
        let answer = server.peer().post(Http::One, FILTER, body).await;
        assert_eq!(answer.text(), golden);
    }
    let body = format!(r#"{{"Pod":{{}},"Nodes":{{"items":[{two},{one}]}}}}"#);
    let answer = server.peer().post(Http::Two, "/extender/prioritize", body).await;
    assert_eq!(
        answer.text(),
        r#"[{"Host":"n-2","Score":10},{"Host":"ok-1","Score":9}]"#
    );
}

#[tokio::test]
async fn no_node_left_is_an_answer_and_is_counted_apart() {
    let server = start(Limits::default()).await;
    let answer = server
        .peer()
        .post(Http::One, FILTER, r#"{"Pod":{},"NodeNames":["n-1"]}"#)
        .await;
    let read: Value = serde_json::from_str(answer.text()).expect("JSON");
    assert_eq!(read["NodeNames"], json!([]));
    assert_eq!(server.requests("filter", "refused"), 1.0);
    // Asked about none, none is left: nothing was refused.
    for body in [
        r#"{"Pod":{},"NodeNames":[]}"#,
        r#"{"Pod":{},"Nodes":null,"NodeNames":null}"#,
    ] {
        let answer = server.peer().post(Http::Two, FILTER, body).await;
        let read: Value = serde_json::from_str(answer.text()).expect("JSON");
        assert_eq!(
            (answer.status, &read["NodeNames"], &read["Error"]),
            (StatusCode::OK, &json!([]), &json!(""))
        );
    }
    assert_eq!(server.requests("filter", "ok"), 2.0);
}

#[tokio::test]
async fn prioritize_and_bind_write_go_fields_exactly() {
    let server = start(Limits::default()).await;
    let peer = server.peer();
    for http in BOTH {
        let answer = peer
            .post(http, "/extender/prioritize", r#"{"pod":{},"nodeNames":["a","b"]}"#)
            .await;
        assert_eq!(answer.text(), r#"[{"Host":"a","Score":10},{"Host":"b","Score":9}]"#);
        for (body, golden) in [
            (
                r#"{"PodName":"p","PodNamespace":"ns","PodUID":"u","Node":"ok"}"#,
                r#"{"Error":""}"#,
            ),
            (
                r#"{"podName":"p","podNamespace":"ns","podUID":"u","node":"ok"}"#,
                r#"{"Error":""}"#,
            ),
            (
                r#"{"podname":"p","podnamespace":"ns","poduid":"u","node":"refuse"}"#,
                r#"{"Error":"ns/p (u) not on refuse"}"#,
            ),
            (
                r#"{"PodName":"p","PodNamespace":"ns","PodUID":"u","Node":"broken"}"#,
                r#"{"Error":"ns/p (u) not on broken"}"#,
            ),
            (
                r#"{"PodName":"p","PodNamespace":"ns","Node":"ok"}"#,
                r#"{"Error":"ExtenderBindingArgs: PodUID is missing or empty"}"#,
            ),
        ] {
            let answer = peer.post(http, "/extender/bind", body).await;
            assert_eq!((answer.status, answer.text()), (StatusCode::OK, golden), "{body}");
        }
    }
    for (outcome, count) in [("ok", 4.0), ("refused", 2.0), ("error", 2.0), ("bad_request", 2.0)] {
        assert_eq!(server.requests("bind", outcome), count, "{outcome}");
    }
}

fn review(name: &str, operation: &str) -> String {
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
        "uid": "u-1", "operation": operation, "namespace": "ns", "name": name,
        "resource": {"group": "", "version": "v1", "resource": "pods"}, "object": {"kind": "Pod"}}})
    .to_string()
}

#[tokio::test]
async fn mutate_writes_the_review_exactly() {
    let server = start(Limits::default()).await;
    let head = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"u-1","#;
    for (name, operation, tail) in [
        (
            "p",
            "CREATE",
            concat!(
                r#""allowed":true,"patchType":"JSONPatch","patch":"#,
                r#""W3sib3AiOiJhZGQiLCJwYXRoIjoiL3NwZWMvc2NoZWR1bGVyTmFtZSIsInZhbHVlIjoid2F0dGxhbmUifV0="}}"#
            ),
        ),
        (
            "deny",
            "CREATE",
            r#""allowed":false,"status":{"code":422,"message":"no such class"}}}"#,
        ),
        ("p", "UPDATE", r#""allowed":true}}"#),
    ] {
        for http in BOTH {
            let answer = server
                .peer()
                .post(http, "/admission/mutate?timeout=5s", review(name, operation))
                .await;
            assert_eq!(
                (answer.status, answer.text()),
                (StatusCode::OK, format!("{head}{tail}").as_str())
            );
        }
    }
    for outcome in ["patched", "denied", "skipped"] {
        assert_eq!(
            server.value(&format!(r#"wattlane_admissions_total{{outcome="{outcome}"}}"#)),
            2.0
        );
    }
    assert_eq!(server.requests("mutate", "refused"), 2.0);
    assert_eq!(
        server.value(r#"wattlane_admission_skips_total{reason="not_create"}"#),
        2.0
    );
}

/// Whoever asked would be gone: with failurePolicy Ignore the pod would pass untreated.
#[tokio::test]
async fn a_review_is_answered_before_its_caller_has_gone() {
    let server = start(Limits::default()).await;
    let answer = server
        .peer()
        .post(
            Http::One,
            "/admission/mutate?timeout=50ms",
            review("please-hold", "CREATE"),
        )
        .await;
    let answer: Value = serde_json::from_str(answer.text()).expect("a review");
    let response = &answer["response"];
    assert_eq!((&response["uid"], &response["allowed"]), (&json!("u-1"), &json!(false)));
    assert_eq!(response["status"]["code"], 504);
    assert!(
        response["status"]["message"]
            .as_str()
            .is_some_and(|m| m.contains("try again"))
    );
}

#[tokio::test]
async fn what_is_not_served_is_said() {
    let server = start(Limits::default()).await;
    for http in BOTH {
        let mut conn = server.peer().connect(http).await.expect("connects");
        for (method, path, status, word) in [
            (Method::GET, FILTER, 405, "POST"),
            (Method::PUT, "/admission/mutate", 405, "POST"),
            (Method::POST, "/extender/preempt", 501, "preemptVerb"),
            (Method::POST, "/extender/filter/", 404, "/extender/filter"),
            (Method::GET, "/admission", 404, "/admission/mutate"),
        ] {
            // The body is not read, and does not disturb what comes next on the connection.
            let answer = conn.send(method, path, whole("{}")).await.expect("answers");
            assert_eq!(answer.status.as_u16(), status, "{path}");
            assert!(answer.text().contains(word), "{path}: {}", answer.text());
            assert_eq!(answer.headers.contains_key("allow"), status == 405);
        }
        let answer = conn
            .post(FILTER, r#"{"Pod":{},"NodeNames":["ok"]}"#)
            .await
            .expect("answers");
        assert_eq!(answer.status, StatusCode::OK);
    }
    assert_eq!(server.requests("other", "not_found"), 4.0);
    assert_eq!(server.requests("preempt", "not_built"), 2.0);
}

#[tokio::test]
async fn no_answer_is_no_200() {
    let server = start(Limits::default()).await;
    for (word, status, outcome) in [("please-wait", 503, "not_ready"), ("please-err", 500, "error")] {
        let answer = server
            .peer()
            .post(Http::One, FILTER, crate::support::args(word, &["ok"]))
            .await;
        assert_eq!(answer.status.as_u16(), status);
        assert_eq!(answer.headers["content-type"], "text/plain; charset=utf-8");
        assert!(answer.text().trim() != "" && answer.text().ends_with('\n'));
        assert_eq!(server.requests("filter", outcome), 1.0);
    }
}
