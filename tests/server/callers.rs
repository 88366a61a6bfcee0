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
    server.tls.paths().only([wattlane::certs::Ending::of("token")]);
    for (client, path, status) in [
        (client("kube-apiserver"), "/admission/mutate", 200),
        (client("kube-scheduler"), "/admission/mutate/token", 403),
        (None, "/admission/mutate/token", 403),
    ] {
        let answer = with(&server, client).post(Http::Two, path, REVIEW).await;
        assert_eq!(answer.status.as_u16(), status, "{path} {}", answer.text());
    }
}

/// The server's certificate and the CA of its clients, in files.
fn files(dir: &std::path::Path, serving: &Pair, clients: &str) -> TlsOptions {
    let file = |name: &str, text: &str| {
        std::fs::write(dir.join(name), text).expect("writes");
        Material::File(dir.join(name))
    };
    TlsOptions {
        cert: file("tls.crt", &serving.cert),
        key: file("tls.key", &serving.key),
        client_ca: Some(file("ca.crt", clients)),
        client_names: vec!["kube-scheduler".to_owned()],
        admission_names: vec!["kube-scheduler".to_owned()],
    }
}

/// Refused, with the way out in words, or the connection was already being closed; then it is closed. A new one is no better.
async fn has_lost(conn: &mut crate::support::Conn, peer: &Peer, http: Http, word: &str) {
    if let Ok(answer) = conn.post("/extender/bind", "{}").await {
        assert_eq!(answer.status, 403, "{http:?} {}", answer.text());
        assert!(answer.text().contains(word), "{}", answer.text());
    }
    crate::support::no_hang(conn.closed()).await;
    let again = match peer.connect(http).await {
        Ok(mut conn) => conn.post(FILTER, args("p", &["ok"])).await.is_ok(),
        Err(_) => false,
    };
    assert!(!again, "{http:?}");
}

#[tokio::test]
async fn an_open_connection_does_not_outlive_the_ca_of_its_certificate() {
    let dir = tempfile::TempDir::new().expect("a folder");
    let (authority, old, new) = (
        Authority::new().expect("a CA"),
        Authority::new().expect("a CA"),
        Authority::new().expect("a CA"),
    );
    let serving = serving_pair(&authority);
    let tls = Arc::new(Tls::load(files(dir.path(), &serving, &old.pair().cert)).expect("loads"));
    let server = start_with(Limits::default(), authority, tls.clone()).await;
    let of = |ca: &Authority| with(&server, Some(ca.client("kube-scheduler", 1).expect("signs")));
    let ok = async |conn: &mut crate::support::Conn, path: &str, body: String| {
        let answer = conn.post(path, body).await.expect("answers");
        assert_eq!(answer.status, 200, "{}", answer.text());
    };
    for http in BOTH {
        std::fs::write(dir.path().join("ca.crt"), &old.pair().cert).expect("writes");
        tls.reload().expect("reads");
        let peer = of(&old);
        let mut conn = peer.connect(http).await.expect("connects");
        ok(&mut conn, FILTER, args("p", &["ok"])).await;
        // Both are trusted: an overlap, in which nobody is lost.
        let both = old.pair().cert.clone() + &new.pair().cert;
        std::fs::write(dir.path().join("ca.crt"), both).expect("writes");
        tls.reload().expect("reads");
        ok(&mut conn, FILTER, args("p", &["ok"])).await;
        let mut newer = of(&new).connect(http).await.expect("connects");
        // A pair that cannot be used, and the CA with it, changes nothing; the next, with the same CA, does.
        std::fs::write(dir.path().join("ca.crt"), &new.pair().cert).expect("writes");
        std::fs::write(dir.path().join("tls.key"), "no key").expect("writes");
        tls.reload().expect_err("no key");
        ok(&mut conn, "/admission/mutate", REVIEW.to_owned()).await;
        std::fs::write(dir.path().join("tls.key"), &serving.key).expect("writes");
        tls.reload().expect("reads");
        has_lost(&mut conn, &peer, http, "is of a CA that is not trusted any more").await;
        ok(&mut newer, FILTER, args("p", &["ok"])).await;
    }
}

/// Between two requests of one connection.
#[tokio::test]
async fn a_request_is_judged_by_the_ca_of_its_own_time() {
    let (authority, old, new) = (
        Authority::new().expect("a CA"),
        Authority::new().expect("a CA"),
        Authority::new().expect("a CA"),
    );
    let serving = serving_pair(&authority);
    let dir = tempfile::TempDir::new().expect("a folder");
    let tls = Arc::new(Tls::load(files(dir.path(), &serving, &old.pair().cert)).expect("loads"));
    let server = start_with(Limits::default(), authority, tls.clone()).await;
    let peer = with(&server, Some(old.client("kube-scheduler", 1).expect("signs")));
    for http in BOTH {
        tls.take(&serving.cert, &serving.key, &old.pair().cert).expect("takes");
        let mut conn = peer.connect(http).await.expect("connects");
        assert_eq!(
            conn.post(FILTER, args("p", &["ok"])).await.expect("answers").status,
            200
        );
        tls.take(&serving.cert, &serving.key, &new.pair().cert).expect("takes");
        has_lost(&mut conn, &peer, http, "not trusted any more").await;
    }
}

/// Good at the handshake for some seconds more, on a connection that is kept and one that is not used.
#[tokio::test]
async fn an_open_connection_does_not_outlive_its_certificate() {
    let (server, clients) = guarded(&["kube-scheduler"]).await;
    for http in BOTH {
        let short = made(&clients, false, |params| {
            let end = wattlane::certs::now() + 3;
            let epoch = rcgen::date_time_ymd(1970, 1, 1);
            params.not_before = rcgen::date_time_ymd(2020, 1, 1);
            params.not_after = epoch + std::time::Duration::from_secs(end.unsigned_abs());
        });
        let peer = with(&server, Some(short));
        let mut conn = peer.connect(http).await.expect("connects");
        assert_eq!(
            conn.post(FILTER, args("p", &["ok"])).await.expect("answers").status,
            200
        );
        // It is left before the end, so that who has a newer one comes back with it.
        crate::support::no_hang(conn.closed()).await;
        crate::support::eventually("the certificate is over", || {
            let cert = peer.client.as_ref().expect("has one").cert.as_bytes();
            wattlane::certs::Facts::of_pem(cert).expect("reads").not_after < wattlane::certs::now()
        })
        .await;
        has_lost(&mut conn, &peer, http, "has expired").await;
    }
}
