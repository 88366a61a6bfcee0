//! What one caller can take of the server, and that it costs nobody else anything.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http::Method;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use wattlane::server::Limits;

use crate::support::{BOTH, Body, Http, Running, args, eventually, no_hang, start, whole};

const FILTER: &str = "/extender/filter";
/// Short enough to be waited for.
const SOON: Duration = Duration::from_millis(100);

/// Chunks without a length told before, and then, if it is to stall, nothing.
pub(crate) fn chunks(chunk: usize, count: usize, stall: bool) -> Body {
    let sent = futures::stream::repeat_with(move || Ok(Frame::data(Bytes::from(vec![b' '; chunk])))).take(count);
    let rest = futures::stream::unfold((), move |()| async move {
        if stall {
            std::future::pending::<()>().await;
        }
        None
    });
    BodyExt::boxed(StreamBody::new(sent.chain(rest)))
}

async fn works(server: &Running) {
    for http in BOTH {
        let answer = server.peer().post(http, FILTER, args("p", &["ok"])).await;
        assert_eq!(answer.status, 200);
    }
}

#[tokio::test]
async fn a_body_over_the_limit_is_413() {
    let limits = Limits {
        extender_bytes: 1000,
        bind_bytes: 100,
        ..Limits::default()
    };
    let server = start(limits).await;
    for http in BOTH {
        // Told before, and found out on the way; one byte less is read.
        for body in [whole(vec![b' '; 1001]), chunks(100, 11, false)] {
            let mut conn = server.peer().connect(http).await.expect("connects");
            let answer = conn.send(Method::POST, FILTER, body).await.expect("answers");
            assert_eq!(answer.status, 413, "{http:?}");
            assert!(answer.text().contains("1000 bytes"), "{}", answer.text());
        }
        let answer = server.peer().post(http, FILTER, vec![b' '; 1000]).await;
        assert_eq!(answer.status, 400, "within the limit it is read, and is no JSON");
        assert_eq!(
            server.peer().post(http, "/extender/bind", vec![b' '; 101]).await.status,
            413
        );
    }
    assert_eq!(server.requests("filter", "too_large"), 4.0);
    assert_eq!(server.requests("bind", "too_large"), 2.0);
    works(&server).await;
}

/// The caller is still sending when it is told: the words must reach it all the same.
#[tokio::test]
async fn a_body_far_over_the_limit_is_told_so_too() {
    let limits = Limits {
        extender_bytes: 1000,
        ..Limits::default()
    };
    let server = start(limits).await;
    for http in BOTH {
        for _ in 0..5 {
            for body in [whole(vec![b' '; 8 << 20]), chunks(64 << 10, 128, false)] {
                let mut conn = server.peer().connect(http).await.expect("connects");
                let answer = conn.send(Method::POST, FILTER, body).await.expect("answers");
                assert_eq!(answer.status, 413, "{http:?}");
            }
        }
    }
    works(&server).await;
}

#[tokio::test]
async fn bodies_together_have_a_limit_too() {
    let limits = Limits {
        buffered_bytes: 1000,
        ..Limits::default()
    };
    let server = start(limits).await;
    let answer = server.peer().post(Http::One, FILTER, vec![b' '; 1001]).await;
    assert_eq!(answer.status, 503);
    assert_eq!(server.requests("filter", "shed"), 1.0);
    // What it held is given back.
    works(&server).await;
}

#[tokio::test]
async fn a_body_that_does_not_come_is_408() {
    let limits = Limits {
        body: SOON,
        ..Limits::default()
    };
    let server = start(limits).await;
    for http in BOTH {
        let mut conn = server.peer().connect(http).await.expect("connects");
        let answer = conn
            .send(Method::POST, FILTER, chunks(1, 1, true))
            .await
            .expect("answers");
        assert_eq!(answer.status, 408, "{http:?}");
    }
    assert_eq!(server.requests("filter", "timeout"), 2.0);
    works(&server).await;
}

#[tokio::test]
async fn a_handshake_or_a_first_request_that_does_not_come_ends_the_connection() {
    let limits = Limits {
        handshake: SOON,
        first_request: SOON,
        ..Limits::default()
    };
    let server = start(limits).await;
    let mut byte = [0; 1];
    let mut silent = TcpStream::connect(server.address).await.expect("connects");
    assert_eq!(no_hang(silent.read(&mut byte)).await.unwrap_or(0), 0);
    assert_eq!(server.value("wattlane_tls_handshake_failures_total"), 1.0);
    // Plain HTTP on the TLS port fails at once.
    let mut plain = TcpStream::connect(server.address).await.expect("connects");
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("writes");
    no_hang(plain.read_to_end(&mut vec![])).await.ok();
    assert_eq!(server.value("wattlane_tls_handshake_failures_total"), 2.0);
    for http in BOTH {
        let mut mute = server.peer().tls(http).await.expect("shakes hands");
        no_hang(mute.read_to_end(&mut vec![])).await.ok();
    }
    // Half a head is no request.
    let mut half = server.peer().tls(Http::One).await.expect("shakes hands");
    half.write_all(b"POST /extender/filter HTTP/1.1\r\nhost: a\r\n")
        .await
        .expect("writes");
    no_hang(half.read_to_end(&mut vec![])).await.ok();
    eventually("all connections end", || server.value("wattlane_connections") == 0.0).await;
    works(&server).await;
}

#[tokio::test]
async fn a_head_too_big_is_refused() {
    let limits = Limits {
        head_bytes: 8 << 10,
        ..Limits::default()
    };
    let server = start(limits).await;
    let mut stream = server.peer().tls(Http::One).await.expect("shakes hands");
    let head = format!(
        "POST {FILTER} HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n",
        "y".repeat(20 << 10)
    );
    stream.write_all(head.as_bytes()).await.expect("writes");
    let mut answer = vec![];
    no_hang(stream.read_to_end(&mut answer)).await.ok();
    assert!(
        answer.starts_with(b"HTTP/1.1 431"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    works(&server).await;
}

#[tokio::test]
async fn more_requests_than_may_be_in_flight_are_503_and_other_verbs_go_on() {
    let limits = Limits {
        extender_requests: 2,
        ..Limits::default()
    };
    let server = start(limits).await;
    let mut held = vec![];
    for http in BOTH {
        let peer = server.peer();
        held.push(tokio::spawn(async move {
            peer.post(http, FILTER, args("please-hold", &["ok"])).await
        }));
        no_hang(server.fake.wait_entered()).await;
    }
    for path in [FILTER, "/extender/prioritize"] {
        let answer = server.peer().post(Http::One, path, args("p", &["ok"])).await;
        assert_eq!(answer.status, 503);
        assert!(answer.text().contains("try again"));
    }
    let bind = r#"{"PodName":"p","PodNamespace":"ns","PodUID":"u","Node":"ok"}"#;
    let answer = server.peer().post(Http::Two, "/extender/bind", bind).await;
    assert_eq!(answer.text(), r#"{"Error":""}"#);
    server.fake.released.add_permits(2);
    for held in held {
        assert_eq!(no_hang(held).await.expect("no panic").status, 200);
    }
    assert_eq!(
        server.requests("filter", "shed") + server.requests("prioritize", "shed"),
        2.0
    );
    works(&server).await;
}

#[tokio::test]
async fn a_panic_fails_its_request_only() {
    let server = start(Limits::default()).await;
    for http in BOTH {
        let peer = server.peer();
        let other = tokio::spawn(async move { peer.post(http, FILTER, args("please-hold", &["ok"])).await });
        no_hang(server.fake.wait_entered()).await;
        let mut conn = server.peer().connect(http).await.expect("connects");
        let answer = conn.post(FILTER, args("please-panic", &["ok"])).await.expect("answers");
        assert_eq!(answer.status, 500);
        assert!(!answer.text().contains("asked to"), "what a panic says is for the log");
        // The same connection goes on.
        assert_eq!(
            conn.post(FILTER, args("p", &["ok"])).await.expect("answers").status,
            200
        );
        server.fake.released.add_permits(1);
        assert_eq!(no_hang(other).await.expect("no panic").status, 200);
    }
    assert_eq!(server.requests("filter", "panic"), 2.0);
    let review = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","operation":"CREATE",
        "resource":{"group":"","version":"v1","resource":"pods"},"name":"please-panic","object":{}}}"#;
    let bind = r#"{"PodName":"please-panic","PodNamespace":"ns","PodUID":"u","Node":"ok"}"#;
    let named = args("please-panic", &["ok"]);
    for (verb, path, body) in [
        ("bind", "/extender/bind", bind),
        ("mutate", "/admission/mutate", review),
        ("prioritize", "/extender/prioritize", &named),
    ] {
        for http in BOTH {
            assert_eq!(
                server.peer().post(http, path, body.to_owned()).await.status,
                500,
                "{verb}"
            );
        }
        assert_eq!(server.requests(verb, "panic"), 2.0, "{verb}");
    }
    works(&server).await;
}

#[tokio::test]
async fn a_client_that_hangs_up_gives_everything_back() {
    let limits = Limits {
        extender_requests: 1,
        ..Limits::default()
    };
    let server = start(limits).await;
    for (http, gone) in [(Http::One, 1.0), (Http::Two, 2.0)] {
        // While it is decided.
        let peer = server.peer();
        let caller = tokio::spawn(async move { peer.post(http, FILTER, args("please-hold", &["ok"])).await });
        no_hang(server.fake.wait_entered()).await;
        caller.abort();
        eventually("the request is counted as gone", || {
            server.requests("filter", "gone") == gone
        })
        .await;
        works(&server).await;
    }
    // In the middle of a body.
    let mut stream = server.peer().tls(Http::One).await.expect("shakes hands");
    let head = format!("POST {FILTER} HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{{");
    stream.write_all(head.as_bytes()).await.expect("writes");
    drop(stream);
    eventually("it is counted", || {
        server.requests("filter", "gone") + server.requests("filter", "bad_request") == 3.0
    })
    .await;
    eventually("all connections end", || server.value("wattlane_connections") == 0.0).await;
    works(&server).await;
}

#[tokio::test]
async fn a_client_that_does_not_read_its_answer_is_let_go() {
    let limits = Limits {
        stalled: SOON,
        ..Limits::default()
    };
    let server = start(limits).await;
    // Asked about whole nodes of many megabytes, more than the kernel holds for a client.
    let node = format!(r#"{{"metadata":{{"name":"ok"}},"x":"{}"}}"#, "y".repeat(32 << 20));
    let body = format!(r#"{{"Pod":{{}},"Nodes":{{"items":[{node}]}}}}"#);
    let mut stream = server.peer().tls(Http::One).await.expect("shakes hands");
    let head = format!(
        "POST {FILTER} HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.expect("writes");
    stream.write_all(body.as_bytes()).await.expect("writes");
    eventually("it is answered", || server.requests("filter", "ok") == 1.0).await;
    eventually("its connection ends", || server.value("wattlane_connections") == 0.0).await;
    drop(stream);
    works(&server).await;
}
