//! The feed event by event, and a whole watch against a small API server on loopback.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::TokioIo;
use kube::runtime::watcher::{self, Event};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::feed::Feed;
use super::raw::Raw;
use super::relist::Relists;
use super::watch;
use crate::cluster::WatchStatus;
use crate::index::{Change, Kind, Object};
use crate::model::NamespacedName;
use crate::publish::{IndexHandle, Message};

fn namespace(name: &str) -> Value {
    json!({"metadata": {"name": name, "uid": name, "resourceVersion": "1"}})
}

fn raw(doc: Value) -> Raw {
    serde_json::from_value(doc).expect("any object will do")
}

/// A slice without a spec does not convert.
fn broken() -> Raw {
    raw(json!({"metadata": {"name": "broken"}, "spec": 7}))
}

fn names(change: Option<Change>) -> Vec<String> {
    match change {
        Some(Change::Reset(_, objects)) => objects.iter().map(|o| o.key().name.to_string()).collect(),
        Some(Change::Upsert(o)) => vec![format!("+{}", o.key().name)],
        Some(Change::Remove(_, key)) => vec![format!("-{}", key.name)],
        None => vec![],
    }
}

#[test]
fn a_relist_is_handed_over_whole_and_only_when_complete() {
    let mut feed = Feed::new(Kind::Namespace);
    let mut take = |event| names(feed.take(event).change);
    assert_eq!(take(Event::Init), [""; 0]);
    assert_eq!(take(Event::InitApply(raw(namespace("a")))), [""; 0]);
    // Broken off and begun again: the first half does not count.
    assert_eq!(take(Event::Init), [""; 0]);
    assert_eq!(take(Event::InitApply(raw(namespace("b")))), [""; 0]);
    assert_eq!(take(Event::InitApply(raw(namespace("c")))), [""; 0]);
    assert_eq!(take(Event::InitDone), ["b", "c"]);
    assert_eq!(take(Event::Apply(raw(namespace("d")))), ["+d"]);
    assert_eq!(take(Event::Delete(raw(namespace("b")))), ["-b"]);
}

#[test]
fn what_cannot_be_read_is_evicted_and_named_and_breaks_nothing_else() {
    let mut feed = Feed::new(Kind::Slice);
    feed.take(Event::Init);
    let listed = feed.take(Event::InitApply(broken()));
    assert_eq!(
        listed.undecodable.map(|u| u.key),
        Some(NamespacedName::new("", "broken"))
    );
    assert!(matches!(feed.take(Event::InitDone).change, Some(Change::Reset(Kind::Slice, o)) if o.is_empty()));
    let changed = feed.take(Event::Apply(broken()));
    assert!(changed.undecodable.is_some_and(|u| !u.why.is_empty()));
    assert_eq!(names(changed.change), ["-broken"]);
    // Its deletion needs no decoding.
    let deleted = feed.take(Event::Delete(broken()));
    assert_eq!(
        (deleted.undecodable, names(deleted.change)),
        (None, vec!["-broken".to_owned()])
    );
}

#[test]
fn an_error_says_what_to_do() {
    let failed = |code| {
        let status = kube::core::Status::failure("no", "NoReason").with_code(code);
        watch::advice(
            Kind::Template,
            &watcher::Error::InitialListFailed(kube::Error::Api(status.boxed())),
        )
    };
    assert_eq!(failed(403).0, "no (403)");
    assert!(
        failed(403).1.contains("resourceclaimtemplates") && failed(403).1.contains("rbac.yaml"),
        "{:?}",
        failed(403)
    );
    assert!(
        failed(404).1.contains("resource.k8s.io/v1") && failed(404).1.contains("1.34"),
        "{:?}",
        failed(404)
    );
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    Alive,
    Restarted,
    Undecodable,
}

struct Signs(mpsc::UnboundedSender<Sign>);

impl WatchStatus for Signs {
    fn alive(&self, _: Kind) {
        let _ = self.0.send(Sign::Alive);
    }

    fn restarted(&self, _: Kind) {
        let _ = self.0.send(Sign::Restarted);
    }

    fn undecodable(&self, _: Kind) {
        let _ = self.0.send(Sign::Undecodable);
    }
}

type Answer = http::Response<BoxBody<Bytes, Infallible>>;

fn whole(status: u16, body: &Value) -> Answer {
    let body = Full::new(Bytes::from(body.to_string())).boxed();
    http::Response::builder()
        .status(status)
        .body(body)
        .expect("a legal response")
}

/// An API server of one kind: the first list is refused, the second works; lines sent to `lines` go out on the watch.
async fn serve(lines: mpsc::UnboundedReceiver<Value>) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let requests = Arc::new(Mutex::new(vec![]));
    let lines = Arc::new(Mutex::new(Some(lines)));
    let seen = requests.clone();
    let answer = move |request: http::Request<hyper::body::Incoming>| {
        let mut seen = seen.lock().expect("not poisoned");
        let agent = request
            .headers()
            .get("user-agent")
            .and_then(|v| v.to_str().ok())
            .unwrap_or("");
        seen.push(format!("{} {agent}", request.uri()));
        let lists = seen.iter().filter(|r| !r.contains("watch=true")).count();
        let answer = if request.uri().query().is_some_and(|q| q.contains("watch=true")) {
            match lines.lock().expect("not poisoned").take() {
                Some(lines) => {
                    let frames = futures::stream::unfold(lines, |mut lines| async move {
                        let line = lines.recv().await?;
                        Some((Ok(Frame::data(Bytes::from(format!("{line}\n")))), lines))
                    });
                    http::Response::new(BodyExt::boxed(StreamBody::new(frames)))
                }
                None => whole(
                    500,
                    &json!({"kind": "Status", "code": 500, "message": "one watch only"}),
                ),
            }
        } else if lists == 1 {
            whole(
                403,
                &json!({"kind": "Status", "status": "Failure", "code": 403, "message": "no"}),
            )
        } else {
            whole(
                200,
                &json!({"kind": "NamespaceList", "metadata": {"resourceVersion": "5"}, "items": [namespace("a")]}),
            )
        };
        async move { Ok::<_, Infallible>(answer) }
    };
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = hyper::service::service_fn(answer.clone());
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    (address, requests)
}

#[tokio::test]
async fn a_refused_list_is_tried_again_and_bookmarks_are_signs_of_life() {
    let (lines, rx) = mpsc::unbounded_channel();
    let (address, requests) = serve(rx).await;
    let mut config = kube::Config::new(format!("http://{address}").parse().expect("a URL"));
    config.default_retry = false;
    config.headers.push((
        http::header::USER_AGENT,
        http::HeaderValue::from_static("wattlane/test"),
    ));
    // As connect does: the client wants one even where there is no TLS.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (tx, mut messages) = mpsc::channel(16);
    let (signs_tx, mut signs) = mpsc::unbounded_channel();
    let running = tokio::spawn(watch::run(
        Kind::Namespace,
        config,
        IndexHandle { tx },
        Arc::new(Signs(signs_tx)),
        Relists::default().of(Kind::Namespace),
    ));

    assert_eq!(signs.recv().await, Some(Sign::Restarted));
    match messages.recv().await {
        Some(Message::Change(Change::Reset(Kind::Namespace, objects))) => assert_eq!(objects.len(), 1),
        _ => panic!("the list comes first, and whole"),
    }
    assert!(signs.is_empty(), "not ready before the index has taken the list in");
    match messages.recv().await {
        Some(Message::Flush(done)) => done.send(()).expect("somebody waits"),
        _ => panic!("then it is waited for"),
    }
    assert_eq!(signs.recv().await, Some(Sign::Alive));
    // The watch is established; all signs so far are taken.
    while !requests
        .lock()
        .expect("not poisoned")
        .iter()
        .any(|r| r.contains("watch=true"))
    {
        tokio::task::yield_now().await;
    }
    lines
        .send(json!({"type": "ADDED", "object": namespace("b")}))
        .expect("the watch listens");
    match messages.recv().await {
        Some(Message::Change(Change::Upsert(Object::Namespace(n)))) => assert_eq!(&*n.name, "b"),
        _ => panic!("the event arrives"),
    }
    while signs.try_recv().is_ok() {}
    lines
        .send(json!({"type": "BOOKMARK", "object":
            {"kind": "Namespace", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}}}))
        .expect("the watch listens");
    assert_eq!(
        signs.recv().await,
        Some(Sign::Alive),
        "a bookmark changes nothing and is a sign of life"
    );
    assert!(messages.is_empty());

    let seen = requests.lock().expect("not poisoned").clone();
    assert!(
        seen.iter()
            .all(|r| r.starts_with("/api/v1/namespaces?") && r.ends_with("wattlane/test")),
        "{seen:?}"
    );
    assert!(
        seen.iter()
            .any(|r| r.contains("watch=true") && r.contains("timeoutSeconds=60")),
        "{seen:?}"
    );
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn who_wants_a_list_does_not_wait_for_a_watch_that_waits() {
    let relists = Relists::default();
    let relist = relists.of(Kind::Claim);
    let begun = relist.begin();
    assert!(!watch::pause(9, &relist, begun).await, "nobody wants one");
    let start = tokio::time::Instant::now();
    let (cut, _) = tokio::join!(
        watch::pause(9, &relist, begun),
        tokio::time::timeout(Duration::from_millis(1), relists.caught_up())
    );
    assert!(cut && start.elapsed() < Duration::from_millis(10));
    assert!(!watch::pause(9, &relist, relist.begin()).await, "the wish is known");
}
