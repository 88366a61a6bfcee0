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
    guarded_both(names, &[]).await
}

async fn guarded_both(names: &[&str], admission: &[&str]) -> (Running, Authority) {
    let (authority, clients) = (Authority::new().expect("a CA"), Authority::new().expect("a CA"));
    let pair = serving_pair(&authority);
    let options = TlsOptions {
        cert: Material::Text(pair.cert),
        key: Material::Text(pair.key),
        client_ca: Some(Material::Text(clients.pair().cert.clone())),
        client_names: names.iter().map(|n| (*n).to_owned()).collect(),
        admission_names: admission.iter().map(|n| (*n).to_owned()).collect(),
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

/// A client certificate of the CA as it should be, but for what `change` does.
fn made(clients: &Authority, own_key: bool, change: impl FnOnce(&mut rcgen::CertificateParams)) -> Pair {
    use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair};
    let ca_key = match own_key {
        true => KeyPair::generate().expect("a key"),
        false => KeyPair::from_pem(&clients.pair().key).expect("the CA's key"),
    };
    let issuer = Issuer::from_ca_cert_pem(&clients.pair().cert, ca_key).expect("the CA");
    let mut params = CertificateParams::new(vec!["kube-scheduler".to_owned()]).expect("a name");
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "kube-scheduler");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    change(&mut params);
    let key = KeyPair::generate().expect("a key");
    Pair {
        cert: params.signed_by(&key, &issuer).expect("signs").pem(),
        key: key.serialize_pem(),
    }
}

/// But for its time, which is over, or for who signed it.
fn forged(clients: &Authority, over: bool, own_key: bool) -> Pair {
    made(clients, own_key, |params| {
        if over {
            params.not_before = rcgen::date_time_ymd(2020, 1, 1);
            params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        }
    })
}

fn expired(clients: &Authority) -> Pair {
    forged(clients, true, false)
}

fn impostor(clients: &Authority) -> Pair {
    forged(clients, false, true)
}

#[tokio::test]
async fn a_certificate_of_another_ca_purpose_or_time_fails_the_handshake() {
    let (server, clients) = guarded(&[]).await;
    // What the others differ from.
    let peer = with(&server, Some(forged(&clients, false, false)));
    assert_eq!(peer.post(Http::Two, FILTER, args("p", &["ok"])).await.status, 200);
    let other = Authority::new().expect("a CA");
    let strangers = [
        other.client("kube-scheduler", 1).expect("signs"),
        // Signed by the right CA, but for serving: whoever serves is not thereby the scheduler.
        clients.serving(&["kube-scheduler".into()], 1).expect("signs"),
        // Ours to make, the CA's name, and the CA's key not in it.
        impostor(&clients),
        expired(&clients),
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
    assert_eq!(server.requests("filter", "ok"), 1.0);
}

/// The verifier lets them pass: one says nothing of what it is for, the other has two names for one caller.
#[tokio::test]
async fn a_certificate_that_is_not_clearly_a_clients_may_call_nothing() {
    let (server, clients) = guarded_both(&["kube-scheduler"], &["kube-scheduler"]).await;
    let purposeless = made(&clients, false, |params| params.extended_key_usages = vec![]);
    let two_names = made(&clients, false, |params| {
        let second = rcgen::DnType::CustomDnType(vec![2, 5, 4, 3]);
        params.distinguished_name.push(second, "admin");
    });
    for (pair, word) in [(purposeless, "clientAuth"), (two_names, "several common names")] {
        for http in BOTH {
            let peer = with(&server, Some(pair.clone()));
            for (path, body) in [(FILTER, args("p", &["ok"])), ("/admission/mutate", REVIEW.to_owned())] {
                let answer = peer.post(http, path, body).await;
                assert_eq!(answer.status, 403, "{word} {path}");
                assert!(answer.text().contains(word), "{}", answer.text());
            }
        }
    }
    let whole = with(&server, Some(made(&clients, false, |_| {})));
    assert_eq!(whole.post(Http::Two, FILTER, args("p", &["ok"])).await.status, 200);
    assert_eq!(
        (
            server.requests("filter", "forbidden"),
            server.requests("mutate", "forbidden")
        ),
        (4.0, 4.0)
    );
}

#[tokio::test]
async fn admission_asks_for_a_name_of_its_own_where_it_is_told_to() {
    let (server, clients) = guarded_both(&["kube-scheduler"], &["kube-apiserver"]).await;
    let client = |name: &str| Some(clients.client(name, 1).expect("signs"));
    for http in BOTH {
        for (client, filter, mutate) in [
            (None, 403, 403),
            (client("kube-scheduler"), 200, 403),
            (client("kube-apiserver"), 403, 200),
        ] {
            let peer = with(&server, client);
            let answer = peer.post(http, FILTER, args("p", &["ok"])).await;
            assert_eq!(answer.status.as_u16(), filter, "{http:?} {}", answer.text());
            let answer = peer.post(http, "/admission/mutate", REVIEW).await;
            assert_eq!(answer.status.as_u16(), mutate, "{http:?} {}", answer.text());
        }
    }
    assert_eq!(server.requests("mutate", "forbidden"), 4.0);
    // Who shows such a certificate needs no token; who shows none has no use for one.
    server.tls.paths().only(["token"], std::time::Duration::from_secs(60));
    for (client, path, status) in [
        (client("kube-apiserver"), "/admission/mutate", 200),
        (client("kube-scheduler"), "/admission/mutate/token", 403),
        (None, "/admission/mutate/token", 403),
    ] {
        let answer = with(&server, client).post(Http::Two, path, REVIEW).await;
        assert_eq!(answer.status.as_u16(), status, "{path} {}", answer.text());
    }
}
