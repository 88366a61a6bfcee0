//! The certificates of a Secret behind a real server, with clients that come again and again: as CAs and certificates
//! change in virtual time, not one request is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use wattlane::certs::rotation::Lifetimes;
use wattlane::certs::{Authority, client, now, trust};
use wattlane::keeper::{Keeper, Settings};
use wattlane::model::NamespacedName;
use wattlane::server::{Limits, Material, Tls, TlsOptions};

use crate::store::Store;
use crate::support::{Http, Peer, Running, args, serving_pair, start_with};

const FILTER: &str = "/extender/filter";
/// Seconds, of a clock that runs as the test says; the verifiers of both sides go by the real one, so that all of it must
/// fit into the hour by which certificates are backdated.
const LEAF: i64 = 300;
const OVERLAP: i64 = 400;
const AUTHORITY: i64 = 1_500;

pub(crate) struct Kept {
    pub(crate) store: Arc<Store>,
    pub(crate) clock: Arc<AtomicI64>,
    pub(crate) keeper: Keeper,
    pub(crate) server: Running,
}

pub(crate) async fn kept() -> Kept {
    let nobody = Authority::new().expect("a CA");
    let pair = serving_pair(&nobody);
    let options = TlsOptions {
        cert: Material::Text(pair.cert),
        key: Material::Text(pair.key),
        client_ca: Some(Material::Text(nobody.pair().cert.clone())),
        client_names: vec![client::NAME.to_owned()],
        admission_names: vec![],
    };
    let tls = Arc::new(Tls::load(options).expect("loads"));
    let server = start_with(Limits::default(), nobody, tls.clone()).await;
    let store = Arc::new(Store::default());
    let clock = Arc::new(AtomicI64::new(now()));
    let settings = Settings {
        secret: NamespacedName::new("ns", "certs"),
        client: Some(NamespacedName::new("ns", "client")),
        webhooks: "wattlane".to_owned(),
        names: vec!["localhost".to_owned()],
        lifetimes: Lifetimes::new(AUTHORITY, OVERLAP, LEAF).expect("fit"),
    };
    let time = clock.clone();
    let keeper = Keeper::new(
        settings,
        store.clone(),
        Box::new(move || time.load(Ordering::Relaxed)),
        0.5,
        tls,
        server.metrics.clone(),
        server.readiness.clone(),
    );
    Kept {
        store,
        clock,
        keeper,
        server,
    }
}

impl Kept {
    /// Who reads the Secret of the scheduler now.
    pub(crate) fn scheduler(&self) -> Peer {
        scheduler(&self.store, &self.server)
    }
}

fn scheduler(store: &Store, server: &Running) -> Peer {
    Peer {
        ca: store.text("client", "ca.crt"),
        client: Some(wattlane::certs::Pair {
            cert: store.text("client", "tls.crt"),
            key: store.text("client", "tls.key"),
        }),
        ..server.peer()
    }
}

#[tokio::test]
async fn before_the_secret_is_read_nobody_may_call_and_it_is_not_ready() {
    let mut kept = kept().await;
    kept.server.readiness.certificate_expires(0);
    let stranger = kept.server.peer();
    assert_eq!(stranger.post(Http::Two, FILTER, args("p", &["ok"])).await.status, 403);
    assert_eq!(kept.keeper.look().await, [""; 0]);
    let answer = kept.scheduler().post(Http::Two, FILTER, args("p", &["ok"])).await;
    assert_eq!(answer.status, 200);
    let anonymous = Peer {
        client: None,
        ..kept.scheduler()
    };
    assert_eq!(anonymous.post(Http::One, FILTER, args("p", &["ok"])).await.status, 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rotation_under_load_loses_no_request() {
    let mut kept = kept().await;
    assert_eq!(kept.keeper.look().await, [""; 0]);
    let first = kept.scheduler();
    let mut old = first.connect(Http::Two).await.expect("connects");
    let done = Arc::new(AtomicBool::new(false));
    let served = [Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0))];
    // They read their files for every connection.
    let mut clients = vec![];
    for (http, served) in [Http::One, Http::Two].into_iter().zip(served.clone()) {
        let (store, first, done) = (kept.store.clone(), first.clone(), done.clone());
        clients.push(tokio::spawn(async move {
            while !done.load(Ordering::Relaxed) {
                let peer = Peer {
                    ca: store.text("client", "ca.crt"),
                    client: Some(wattlane::certs::Pair {
                        cert: store.text("client", "tls.crt"),
                        key: store.text("client", "tls.key"),
                    }),
                    ..first.clone()
                };
                // The pair was written between its two halves being read: a client's own affair.
                if trust::authorities(peer.ca.as_bytes()).is_empty() || !peer.client.as_ref().is_some_and(whole) {
                    continue;
                }
                let answer = peer.post(http, FILTER, args("p", &["ok"])).await;
                assert_eq!(answer.status, 200, "{}", answer.text());
                served.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    // Through the announcement, the switch, and the first certificates of the new CA.
    let mut certificates = vec![kept.store.text("certs", "tls.crt")];
    let (begin, end) = (now(), now() + AUTHORITY - OVERLAP + LEAF);
    while kept.clock.load(Ordering::Relaxed) < end {
        let before = served.each_ref().map(|s| s.load(Ordering::Relaxed));
        kept.clock.fetch_add(LEAF / 6, Ordering::Relaxed);
        assert_eq!(kept.keeper.look().await, [""; 0]);
        // Each has read its files and connected since.
        while served
            .iter()
            .zip(before)
            .any(|(s, b)| s.load(Ordering::Relaxed) < b + 2)
            && clients.iter().all(|c| !c.is_finished())
        {
            tokio::task::yield_now().await;
        }
        let now = kept.store.text("certs", "tls.crt");
        if certificates.last() != Some(&now) {
            certificates.push(now);
        }
        let answer = old.post(FILTER, args("p", &["ok"])).await.expect("it is still open");
        assert_eq!(answer.status, 200);
    }
    done.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.expect("every request was answered");
    }
    assert!(certificates.len() >= 4, "{} certificates", certificates.len());
    let switched = r#"wattlane_tls_rotations_total{action="switch",outcome="done"}"#;
    assert_eq!(kept.server.value(switched), 1.0);
    assert_eq!(kept.server.value("wattlane_tls_handshake_failures_total"), 0.0);
    assert!(kept.server.value("wattlane_tls_ca_expiry_timestamp_seconds") as i64 > begin + AUTHORITY);
}

fn whole(pair: &wattlane::certs::Pair) -> bool {
    let data = [("tls.crt", &pair.cert), ("tls.key", &pair.key)]
        .map(|(name, text)| (name.to_owned(), text.clone().into_bytes()))
        .into();
    wattlane::certs::keyring::pair(&data, "tls.crt", "tls.key").is_ok()
}
