//! With a client CA: the extender's routes are for holders of its certificates, admission for everybody.

use std::sync::Arc;

use wattlane::certs::{Authority, Pair};
use wattlane::server::{Limits, Material, Tls, TlsOptions};

use crate::support::{BOTH, Http, Peer, Running, args, serving_pair, start_with};

const FILTER: &str = "/extender/filter";
const REVIEW: &str =
    r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","operation":"DELETE"}}"#;

/// The server, and the CA of its clients, which is not its own.
async fn guarded(names: &[&str]) -> (Running, Authority) {
    let (authority, clients) = (Authority::new().expect("a CA"), Authority::new().expect("a CA"));
    let pair = serving_pair(&authority);
    let options = TlsOptions {
        cert: Material::Text(pair.cert),
        key: Material::Text(pair.key),
        client_ca: Some(Material::Text(clients.pair().cert.clone())),
        client_names: names.iter().map(|n| (*n).to_owned()).collect(),
    };
    let tls = Arc::new(Tls::load(options).expect("loads"));
    (start_with(Limits::default(), authority, tls).await, clients)
}

fn with(server: &Running, client: Option<Pair>) -> Peer {
    Peer {
        client,
        ..server.peer()
    }
}

#[tokio::test]
async fn extender_routes_want_a_certificate_with_a_name_that_may() {
    let (server, clients) = guarded(&["kube-scheduler"]).await;
    let client = |name: &str| Some(clients.client(name, 1).expect("signs"));
    for http in BOTH {
        for (client, status, word) in [
            (None, 403, "tlsConfig.certFile"),
            (client("somebody"), 403, "\"somebody\""),
            (client("kube-scheduler"), 200, "NodeNames"),
        ] {
            let peer = with(&server, client);
            let answer = peer.post(http, FILTER, args("p", &["ok"])).await;
            assert_eq!(answer.status.as_u16(), status, "{http:?}");
            assert!(answer.text().contains(word), "{}", answer.text());
            // Admission asks nobody: kube-apiserver shows no certificate.
            assert_eq!(peer.post(http, "/admission/mutate", REVIEW).await.status, 200);
        }
        let stranger = with(&server, None);
        for path in ["/extender/prioritize", "/extender/bind", "/extender/preempt"] {
            assert_eq!(stranger.post(http, path, "").await.status, 403, "{path}");
        }
    }
    assert_eq!(server.requests("filter", "forbidden"), 4.0);
}

#[tokio::test]
async fn without_names_any_certificate_of_the_ca_may() {
    let (server, clients) = guarded(&[]).await;
    let peer = with(&server, Some(clients.client("anyone", 1).expect("signs")));
    assert_eq!(peer.post(Http::One, FILTER, args("p", &["ok"])).await.status, 200);
    assert_eq!(
        with(&server, None)
            .post(Http::One, FILTER, args("p", &["ok"]))
            .await
            .status,
        403
    );
}

#[tokio::test]
async fn a_certificate_of_another_ca_or_purpose_fails_the_handshake() {
    let (server, clients) = guarded(&[]).await;
    let other = Authority::new().expect("a CA");
    let strangers = [
        other.client("kube-scheduler", 1).expect("signs"),
        // Signed by the right CA, but for serving: whoever serves is not thereby the scheduler.
        clients.serving(&["kube-scheduler".into()], 1).expect("signs"),
    ];
    let mut failures = 0.0;
    for stranger in strangers {
        for http in BOTH {
            // In TLS 1.3 the client may learn of it only with its first read.
            let peer = with(&server, Some(stranger.clone()));
            let answered = match peer.connect(http).await {
                Ok(mut conn) => conn.post(FILTER, args("p", &["ok"])).await.is_ok(),
                Err(_) => false,
            };
            assert!(!answered);
            failures += 1.0;
            crate::support::eventually("the failure is counted", || {
                server.value("wattlane_tls_handshake_failures_total") == failures
            })
            .await;
        }
    }
    assert_eq!(server.requests("filter", "ok"), 0.0);
}
