//! Who is silent, floods or reckons for long keeps nobody else out.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use wattlane::metrics::{Metrics, Readiness};
use wattlane::server::{Limits, admin};

use crate::support::{BOTH, Http, Running, args, eventually, no_hang, start, value};

const FILTER: &str = "/extender/filter";
const BIND: &str = r#"{"PodName":"p","PodNamespace":"ns","PodUID":"u","Node":"ok"}"#;
const REVIEW: &str = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","operation":"CREATE",
    "resource":{"group":"","version":"v1","resource":"pods"},"name":"p","namespace":"ns","object":{}}}"#;

async fn others_work(server: &Running) {
    for http in BOTH {
        let bound = server.peer().post(http, "/extender/bind", BIND).await;
        assert_eq!(bound.text(), r#"{"Error":""}"#);
        let admitted = server.peer().post(http, "/admission/mutate?timeout=60s", REVIEW).await;
        assert_eq!(admitted.status, 200, "{}", admitted.text());
    }
}

#[tokio::test]
async fn silent_connections_give_way() {
    let limits = Limits {
        connections: 4,
        handshake: Duration::from_secs(3600),
        first_request: Duration::from_secs(3600),
        ..Limits::default()
    };
    let server = start(limits).await;
    let mut scheduler = server.peer().connect(Http::Two).await.expect("connects");
    let answer = scheduler.post(FILTER, args("p", &["ok"])).await.expect("answers");
    assert_eq!(answer.status, 200);
    let mut silent = vec![];
    for _ in 0..20 {
        silent.push(TcpStream::connect(server.address).await.expect("connects"));
    }
    others_work(&server).await;
    assert!(
        server.value(r#"wattlane_connections_shed_total{port="tls"}"#) >= 17.0,
        "the silent ones made room"
    );
    // Who has asked something stays longer than who has not.
    let answer = scheduler.post(FILTER, args("p", &["ok"])).await.expect("answers");
    assert_eq!(answer.status, 200);
    let mut closed = 0;
    for stream in &mut silent[..16] {
        closed += usize::from(no_hang(stream.read(&mut [0; 1])).await.unwrap_or(0) == 0);
    }
    assert_eq!(closed, 16);
}

#[tokio::test]
async fn where_everybody_is_busy_the_newcomer_is_turned_away() {
    let limits = Limits {
        connections: 1,
        ..Limits::default()
    };
    let server = start(limits).await;
    let peer = server.peer();
    let held = tokio::spawn(async move { peer.post(Http::One, FILTER, args("please-hold", &["ok"])).await });
    no_hang(server.fake.wait_entered()).await;
    assert!(server.peer().connect(Http::One).await.is_err());
    assert_eq!(server.value(r#"wattlane_connections_shed_total{port="tls"}"#), 1.0);
    server.fake.released.add_permits(1);
    assert_eq!(no_hang(held).await.expect("no panic").status, 200);
    eventually("it hangs up", || server.value("wattlane_connections") == 0.0).await;
    others_work(&server).await;
}

#[tokio::test]
async fn probes_are_answered_beside_any_number_of_silent_connections() {
    let metrics = Arc::new(Metrics::new().expect("registers"));
    let readiness = Arc::new(Readiness::new(metrics.clone(), None));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let address = listener.local_addr().expect("bound");
    let stop = CancellationToken::new();
    tokio::spawn(admin::serve(listener, metrics.clone(), readiness, stop.clone()));
    let mut silent = vec![];
    for _ in 0..200 {
        silent.push(TcpStream::connect(address).await.expect("connects"));
    }
    assert_eq!(crate::admin::ask(address, "GET", "/livez").await.0, 200);
    assert!(value(&metrics, r#"wattlane_connections_shed_total{port="admin"}"#) >= 137.0);
    stop.cancel();
}

#[tokio::test]
async fn a_flood_of_filter_bodies_leaves_room_for_the_rest() {
    let limits = Limits {
        buffered_bytes: 1000,
        extender_requests: 3,
        ..Limits::default()
    };
    let server = start(limits).await;
    // All the room there is for bodies of filter is taken by some that never end.
    let mut flood = vec![];
    for _ in 0..3 {
        let peer = server.peer();
        let body = crate::limits::chunks(330, 1, true);
        flood.push(tokio::spawn(async move {
            let mut conn = peer.connect(Http::Two).await.expect("connects");
            conn.send(http::Method::POST, FILTER, body).await
        }));
    }
    let full = async || {
        let answer = server.peer().post(Http::Two, FILTER, args("p", &["ok"])).await;
        answer.status == 503
    };
    while !no_hang(full()).await {}
    others_work(&server).await;
    flood.iter().for_each(tokio::task::JoinHandle::abort);
    assert!(server.requests("filter", "shed") >= 1.0);
}

/// Strangers reach the path of admission, too: what they never finish sending takes no turn from a review that is here.
#[tokio::test]
async fn bodies_that_never_end_keep_no_review_out() {
    let limits = Limits {
        admission_requests: 2,
        ..Limits::default()
    };
    let server = start(limits).await;
    let mut flood = vec![];
    for _ in 0..20 {
        let peer = server.peer();
        let body = crate::limits::chunks(10, 1, true);
        flood.push(tokio::spawn(async move {
            let mut conn = peer.connect(Http::Two).await.expect("connects");
            conn.send(http::Method::POST, "/admission/mutate", body).await
        }));
    }
    while server.value("wattlane_connections_total") < 20.0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for _ in 0..10 {
        let answer = server.peer().post(Http::One, "/admission/mutate", REVIEW).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    flood.iter().for_each(tokio::task::JoinHandle::abort);
}

/// A few megabytes of empty maps would be half a gigabyte of values.
#[tokio::test]
async fn a_review_that_is_small_as_text_and_huge_as_values_is_413() {
    let server = start(Limits::default()).await;
    let maps = vec![r#"{"":0}"#; 400_000].join(",");
    let review = REVIEW.replace(r#""name":"p""#, &format!(r#""name":"p","x":[{maps}]"#));
    for http in BOTH {
        let answer = server.peer().post(http, "/admission/mutate", review.clone()).await;
        assert_eq!(answer.status, 413);
        assert!(answer.text().contains("no pod does"), "{}", answer.text());
    }
    assert_eq!(server.requests("mutate", "too_large"), 2.0);
    others_work(&server).await;
}

#[tokio::test]
async fn a_decision_that_takes_too_long_is_given_up() {
    let limits = Limits {
        decide: Duration::from_millis(100),
        extender_requests: 1,
        ..Limits::default()
    };
    let server = start(limits).await;
    for http in BOTH {
        for path in [FILTER, "/extender/prioritize"] {
            let answer = server.peer().post(http, path, args("please-hold", &["ok"])).await;
            assert_eq!(answer.status, 503);
            assert!(answer.text().contains("100 ms"), "{}", answer.text());
        }
    }
    assert_eq!(server.requests("filter", "timeout"), 2.0);
    assert_eq!(server.requests("prioritize", "timeout"), 2.0);
    others_work(&server).await;
    // A bind is not cut off: what it wrote it must see through.
    let peer = server.peer();
    let bind = BIND.replace(r#""p""#, r#""please-hold""#);
    let held = tokio::spawn(async move { peer.post(Http::One, "/extender/bind", bind).await });
    no_hang(server.fake.wait_entered()).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!held.is_finished());
    server.fake.released.add_permits(100);
    assert_eq!(no_hang(held).await.expect("no panic").text(), r#"{"Error":""}"#);
}
