//! The end: what is in flight finishes, nothing new is taken, and it does not last for ever.

use std::time::Duration;

use tokio::net::TcpStream;
use wattlane::server::Limits;

use crate::support::{BOTH, args, eventually, no_hang, start};

const FILTER: &str = "/extender/filter";

#[tokio::test]
async fn requests_in_flight_finish_and_new_connections_are_refused() {
    let server = start(Limits::default()).await;
    let mut held = vec![];
    for http in BOTH {
        let peer = server.peer();
        held.push(tokio::spawn(async move {
            peer.post(http, FILTER, args("please-hold", &["ok"])).await
        }));
        no_hang(server.fake.wait_entered()).await;
    }
    // Connections that do nothing, or never asked anything, are no reason to wait.
    let mut idle = server.peer().connect(BOTH[0]).await.expect("connects");
    assert_eq!(
        idle.post(FILTER, args("p", &["ok"])).await.expect("answers").status,
        200
    );
    let _fresh = [
        server.peer().connect(BOTH[0]).await.expect("connects"),
        server.peer().connect(BOTH[1]).await.expect("connects"),
    ];
    server.stop.cancel();
    eventually("readiness says so", || {
        server
            .readiness
            .missing()
            .iter()
            .any(|m| m.to_string().contains("shutting down"))
    })
    .await;
    loop {
        match TcpStream::connect(server.address).await {
            Err(_) => break,
            Ok(_) => tokio::task::yield_now().await,
        }
    }
    eventually("idle connections are closed", || {
        server.value("wattlane_connections") == 2.0
    })
    .await;
    assert!(!server.serving.is_finished(), "two requests are in flight");
    server.fake.released.add_permits(2);
    for held in held {
        assert_eq!(no_hang(held).await.expect("no panic").status, 200);
    }
    no_hang(server.serving).await.expect("ends");
}

#[tokio::test]
async fn the_grace_has_an_end() {
    let limits = Limits {
        grace: Duration::from_millis(100),
        ..Limits::default()
    };
    let server = start(limits).await;
    let mut held = vec![];
    for http in BOTH {
        let mut conn = server.peer().connect(http).await.expect("connects");
        held.push(tokio::spawn(async move {
            conn.post(FILTER, args("please-hold", &["ok"])).await
        }));
        no_hang(server.fake.wait_entered()).await;
    }
    // Neither does one that never says hello keep it.
    let _silent = TcpStream::connect(server.address).await.expect("connects");
    server.stop.cancel();
    no_hang(server.serving).await.expect("ends");
    for held in held {
        assert!(
            no_hang(held).await.expect("no panic").is_err(),
            "cut off, and not answered"
        );
    }
    eventually("what was cut off is counted", || {
        let page = server.metrics.render();
        page.contains(r#"wattlane_requests_total{outcome="gone",verb="filter"} 2"#)
    })
    .await;
    eventually("no connection is left", || server.metrics.connections.get() == 0).await;
}

#[tokio::test]
async fn during_the_delay_all_goes_on() {
    let limits = Limits {
        drain_delay: Duration::from_secs(600),
        ..Limits::default()
    };
    let server = start(limits).await;
    server.stop.cancel();
    eventually("not ready", || !server.readiness.missing().is_empty()).await;
    for http in BOTH {
        assert_eq!(server.peer().post(http, FILTER, args("p", &["ok"])).await.status, 200);
    }
    server.serving.abort();
}

/// kube-scheduler would stay on the connection, and with it at a replica that does not bind.
#[tokio::test]
async fn a_connection_to_a_replica_that_does_not_bind_is_closed_after_the_answer() {
    let server = start(Limits::default()).await;
    let bind = |node: &str| format!(r#"{{"PodName":"p","PodNamespace":"ns","PodUID":"u","Node":"{node}"}}"#);
    for http in BOTH {
        let mut conn = server.peer().connect(http).await.expect("connects");
        for node in ["refuse", "ok"] {
            let answer = conn.post("/extender/bind", bind(node)).await.expect("it stays open");
            assert_eq!(answer.status, 200);
        }
        let answer = conn.post("/extender/bind", bind("follower")).await.expect("answers");
        assert!(answer.text().contains("not on follower"), "{}", answer.text());
        eventually("it is closed", || server.value("wattlane_connections") == 0.0).await;
        assert!(conn.post(FILTER, args("p", &["ok"])).await.is_err());
    }
    assert_eq!(server.requests("bind", "not_leader"), 2.0);
}
