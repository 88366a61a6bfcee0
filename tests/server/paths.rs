//! Admission by the token in its path: who does not know it is refused before anything of the body is read, unless the
//! configuration has just been changed; and in front of the real decisions, nothing is made for strangers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::Method;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use wattlane::app::{Kept, Net};
use wattlane::certs::Ending;
use wattlane::certs::rotation::Lifetimes;
use wattlane::keeper::Settings;
use wattlane::model::NamespacedName;
use wattlane::server::Limits;

use crate::real;
use crate::rotation::kept;
use crate::store::Store;
use crate::support::{BOTH, Body, Http, Peer, eventually, start};

const REVIEW: &str =
    r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","operation":"DELETE"}}"#;
const ADMISSION: &str = "/admission/mutate";

/// One that never comes.
fn silence() -> Body {
    let never = futures::stream::pending::<Result<Frame<Bytes>, std::io::Error>>();
    StreamBody::new(never).boxed()
}

#[tokio::test]
async fn who_does_not_know_the_path_is_refused_before_the_body_is_read() {
    let server = start(Limits::default()).await;
    let open = server.peer().post(Http::Two, ADMISSION, REVIEW).await;
    assert_eq!(open.status, 200);
    let paths = server.tls.paths().clone();
    paths.only([Ending::of("token")]);
    // A keeper that finds nothing new.
    let looks = tokio::spawn(async move {
        loop {
            paths.wanted().await;
            let look = paths.look();
            paths.only([Ending::of("token")]);
            drop(look);
        }
    });
    for http in BOTH {
        for path in [
            "",
            "/",
            "/tokem",
            "/token/",
            "/token?timeout=5s&x=/token",
            "/TOKEN",
            "/toke",
            "/token2",
        ] {
            let mut conn = server.peer().connect(http).await.expect("connects");
            let path = format!("{ADMISSION}{path}");
            let known = path.contains('?');
            let body = if known {
                crate::support::whole(REVIEW)
            } else {
                silence()
            };
            let answer = conn.send(Method::POST, &path, body).await.expect("answers");
            assert_eq!(answer.status, if known { 200 } else { 403 }, "{path} {}", answer.text());
            assert!(known || answer.text().contains("webhook configuration"));
        }
        // The path of a configuration without one.
        let answer = server.peer().post(http, "/", REVIEW).await;
        assert_eq!(answer.status, 403);
        // Doors with a lock of their own are as ever.
        let answer = server
            .peer()
            .post(http, "/extender/filter", crate::support::args("p", &["ok"]))
            .await;
        assert_eq!(answer.status, 200);
    }
    assert_eq!(
        (server.requests("mutate", "forbidden"), server.requests("mutate", "ok")),
        (16.0, 3.0)
    );
    looks.abort();
}

/// What is no review, whatever its path, is answered at once and makes nobody look: only a look here ends a wait, and there is
/// none.
#[tokio::test]
async fn what_is_no_review_has_nobody_look() {
    let server = start(Limits::default()).await;
    let paths = server.tls.paths().clone();
    paths.only([Ending::of("token")]);
    for http in BOTH {
        let mut conn = server.peer().connect(http).await.expect("connects");
        for path in ["", "/token", "/x"] {
            let path = format!("{ADMISSION}{path}");
            let answer = conn
                .send(Method::GET, &path, crate::support::whole(""))
                .await
                .expect("answers");
            assert_eq!(answer.status, 405, "{path}");
        }
    }
    let wanted = futures::FutureExt::now_or_never(paths.wanted());
    assert!(wanted.is_none(), "nobody is asked to look");
    assert_eq!(server.peer().post(Http::Two, ADMISSION, REVIEW).await.status, 403);
    let wanted = futures::FutureExt::now_or_never(paths.wanted());
    assert!(wanted.is_some(), "a stranger's review has the keeper look");
}

/// `kubectl replace`, say: API servers ask by what stands there now, before the keeper's next look by the clock.
#[tokio::test]
async fn a_path_that_has_just_been_reset_loses_no_request() {
    let mut kept = kept().await;
    for _ in 0..8 {
        assert_eq!(kept.keeper.look().await, [""; 0]);
        kept.clock.fetch_add(10, Ordering::Relaxed);
    }
    let anonymous = Peer {
        client: None,
        ..kept.scheduler()
    };
    let stop = CancellationToken::new();
    let (store, running) = (kept.store.clone(), tokio::spawn(kept.keeper.run(stop.clone())));
    let ask = async |path: &str| anonymous.post(Http::Two, path, REVIEW).await.status.as_u16();
    assert_eq!(ask(ADMISSION).await, 403);
    for path in ["/", ADMISSION, "/admission/mutate/somebodys"] {
        let token = format!("{ADMISSION}/{}", store.text("certs", "admission-path"));
        assert_eq!(ask(&token).await, 200);
        store.reset_path(0, path);
        assert_eq!((ask(path).await, ask(&token).await), (200, 200), "{path}");
    }
    // A token that another replica made.
    let other = wattlane::certs::Token::new().expect("random");
    store.meddle("certs", "admission-path", Some(other.as_str().as_bytes()));
    assert_eq!(ask(&format!("{ADMISSION}/{}", other.as_str())).await, 200);
    assert_eq!(ask("/admission/mutate/x").await, 403);
    stop.cancel();
    running.await.expect("no panic");
}

/// The whole service, with certificates and tokens that change every few seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_has_no_template_made() {
    let store = Arc::new(Store::default());
    let settings = Settings {
        secret: NamespacedName::new("ns", "certs"),
        client: None,
        webhooks: "wattlane".to_owned(),
        names: vec!["localhost".to_owned()],
        lifetimes: Lifetimes::new(3000, 1000, 10).expect("fit"),
    };
    let world = real::start_on(1, |net: &mut Net| {
        net.kept = Some(Kept {
            store: store.clone(),
            settings,
        });
    })
    .await;
    let review = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
        "uid": "u", "operation": "CREATE", "namespace": "models", "dryRun": false,
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-", "namespace": "models"},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}}})
    .to_string();
    let templates = async || {
        world.core.index.flush().await.expect("runs");
        world.core.reader.load().templates.len()
    };
    assert_eq!(world.value("wattlane_admission_closed"), 1.0, "before the first look");
    // The path is published before the certificate of the same look is taken.
    let taken = || world.value(r#"wattlane_tls_reloads_total{outcome="taken"}"#) >= 1.0;
    eventually("a token and a certificate are there", || {
        !store.asked().is_empty() && taken()
    })
    .await;
    let there = templates().await;
    let ask = async |path: &str| {
        let peer = Peer {
            ca: store.text("certs", "ca.crt"),
            ..world.peer.clone()
        };
        peer.post(Http::Two, path, review.clone()).await.status.as_u16()
    };
    for path in [
        "/",
        ADMISSION,
        "/admission/mutate/",
        "/admission/mutate/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    ] {
        assert_eq!(ask(path).await, 403, "{path}");
    }
    assert_eq!(templates().await, there);
    assert_eq!(world.value(r#"wattlane_admissions_total{outcome="patched"}"#), 0.0);
    let token = store.text("certs", "admission-path");
    assert_eq!(ask(&format!("{ADMISSION}/{token}")).await, 200);
    assert_eq!(templates().await, there + 1);
}
