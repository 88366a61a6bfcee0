//! Callers that use HTTP and TLS as nobody should: each is answered or let go, counted, and the next one is served.

use bytes::Bytes;
use http::{Method, Request};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use wattlane::server::Limits;

use crate::support::{BOTH, Conn, Http, Running, args, eventually, no_hang, start, whole};

const FILTER: &str = "/extender/filter";

async fn works(server: &Running) {
    for http in BOTH {
        let answer = server.peer().post(http, FILTER, args("p", &["ok"])).await;
        assert_eq!(answer.status, 200);
    }
}

#[tokio::test]
async fn streams_that_are_reset_as_soon_as_they_are_opened_hold_nothing() {
    let server = start(Limits::default()).await;
    let Conn::Two(mut send) = server.peer().connect(Http::Two).await.expect("connects") else {
        panic!("asked for HTTP/2");
    };
    for _ in 0..5_000 {
        // The server may end such a connection; then there is no more to be had from it.
        if send.ready().await.is_err() {
            break;
        }
        let request = Request::post(format!("https://localhost{FILTER}"));
        let answer = send.send_request(request.body(whole(args("please-hold", &["ok"]))).expect("a request"));
        // Opened, perhaps already at the server, and not wanted any more.
        drop(answer);
        tokio::task::yield_now().await;
    }
    works(&server).await;
    drop(send);
    eventually("nothing is left of them", || {
        server.value("wattlane_connections") == 0.0
    })
    .await;
    works(&server).await;
}

#[tokio::test]
async fn a_head_of_http_2_may_not_be_larger_than_one_of_http_1() {
    let limits = Limits {
        head_bytes: 8 << 10,
        ..Limits::default()
    };
    let server = start(limits).await;
    // One large field, and many small ones.
    for fields in [vec![("x".to_owned(), "y".repeat(20 << 10))], {
        (0..1000).map(|i| (format!("x-{i}"), "y".repeat(20))).collect()
    }] {
        let Conn::Two(mut send) = server.peer().connect(Http::Two).await.expect("connects") else {
            panic!("asked for HTTP/2");
        };
        let mut request = Request::post(format!("https://localhost{FILTER}"));
        for (name, value) in &fields {
            request = request.header(name, value);
        }
        let request = request.body(whole(args("p", &["ok"]))).expect("a request");
        // Refused with a status, or with the end of the stream.
        if let Ok(answer) = no_hang(send.send_request(request)).await {
            assert_eq!(answer.status(), 431);
        }
    }
    assert_eq!(server.requests("filter", "ok"), 0.0);
    works(&server).await;
}

#[tokio::test]
async fn a_body_that_is_not_said_to_be_json_is_415() {
    let server = start(Limits::default()).await;
    for http in BOTH {
        for (kind, status) in [
            ("application/json", 200),
            ("Application/JSON; charset=utf-8", 200),
            ("text/plain", 415),
            ("application/x-www-form-urlencoded", 415),
            ("application/json-patch+json", 415),
            ("", 415),
        ] {
            let mut conn = server.peer().connect(http).await.expect("connects");
            let answer = conn.typed(Method::POST, FILTER, kind, whole(args("p", &["ok"])));
            let answer = answer.await.expect("answers");
            assert_eq!(answer.status.as_u16(), status, "{kind:?}: {}", answer.text());
        }
    }
    assert_eq!(server.requests("filter", "bad_request"), 8.0);
    works(&server).await;
}

/// The smallest ClientHello of TLS 1.1: the highest version is in the head, and no extension names another.
#[tokio::test]
async fn tls_below_1_2_is_refused() {
    let server = start(Limits::default()).await;
    for minor in [0, 1, 2] {
        let mut hello = vec![3, minor];
        hello.extend([7; 32]);
        // No session, TLS_RSA_WITH_AES_128_CBC_SHA, no compression.
        hello.extend([0, 0, 2, 0, 0x2f, 1, 0]);
        let mut message = vec![1, 0, 0, u8::try_from(hello.len()).expect("short")];
        message.extend(hello);
        let mut record = vec![22, 3, 1, 0, u8::try_from(message.len()).expect("short")];
        record.extend(message);
        let mut tcp = TcpStream::connect(server.address).await.expect("connects");
        tcp.write_all(&record).await.expect("writes");
        let mut answer = vec![];
        no_hang(tcp.read_to_end(&mut answer)).await.ok();
        // An alert, fatal, and no ServerHello before it.
        assert_eq!((answer.first(), answer.get(5)), (Some(&21), Some(&2)), "{answer:?}");
    }
    assert_eq!(server.value("wattlane_tls_handshake_failures_total"), 3.0);
    works(&server).await;
}

#[tokio::test]
async fn a_head_that_is_none_ends_its_connection_only() {
    let server = start(Limits::default()).await;
    for head in [
        &b"\0\0\0\0\r\n\r\n"[..],
        b"POST /extender/filter HTTP/9.9\r\n\r\n",
        b"POST /extender/filter HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST /extender/filter HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"POST /extender/filter HTTP/1.1\r\ncontent-length: 99999999999999999999\r\n\r\n",
        // Two ways to say where a body ends: who believes which is how requests are smuggled.
        b"POST /extender/filter HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ncontent-length: 4\r\n\r\nzz\r\n",
        b"POST /extender/filter HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let mut stream = server.peer().tls(Http::One).await.expect("shakes hands");
        stream.write_all(head).await.expect("writes");
        let mut answer = vec![];
        no_hang(stream.read_to_end(&mut answer)).await.ok();
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    // Frames that are none, on a connection that said HTTP/2.
    let mut stream = server.peer().tls(Http::Two).await.expect("shakes hands");
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff")
        .await
        .expect("writes");
    no_hang(stream.read_to_end(&mut vec![])).await.ok();
    eventually("all end", || server.value("wattlane_connections") == 0.0).await;
    assert_eq!(server.requests("filter", "ok"), 0.0);
    works(&server).await;
}

/// As many names as no cluster has, some of them twice: each gets its verdict, in its place.
#[tokio::test]
async fn a_hundred_thousand_names() {
    let server = start(Limits::default()).await;
    let names: Vec<String> = (0..100_000).map(|i| format!("ok-{}", i / 2)).collect();
    let body = serde_json::json!({"Pod": {}, "NodeNames": names}).to_string();
    for http in BOTH {
        let answer = server.peer().post(http, FILTER, body.clone()).await;
        let answer: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
        assert_eq!(answer["NodeNames"], serde_json::json!(names));
        let answer = server.peer().post(http, "/extender/prioritize", body.clone()).await;
        let answer: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
        assert_eq!(answer.as_array().map(Vec::len), Some(100_000));
    }
    // The same as no JSON, and as more than a path takes: 16 MiB for a bind.
    let large = Bytes::from(vec![b'['; 16 << 20]);
    for http in BOTH {
        assert_eq!(server.peer().post(http, FILTER, large.clone()).await.status, 400);
        assert_eq!(
            server.peer().post(http, "/extender/bind", large.clone()).await.status,
            413
        );
        assert_eq!(
            server
                .peer()
                .post(http, "/admission/mutate", large.clone())
                .await
                .status,
            413
        );
    }
    assert_eq!(
        server.requests("bind", "too_large") + server.requests("mutate", "too_large"),
        4.0
    );
    works(&server).await;
}
