use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{Poke, Running, spawn};
use crate::index::{Change, Index, Key, Kind, Object};
use crate::model::{Classified, Classifier, Device, Labels, Name, NamespacedName, Node, Pod, WattOrigin};

struct NoClass;

impl Classifier for NoClass {
    fn classify(&self, _: &Name, _: &Device, _: &Labels, _: &Labels) -> Classified {
        Classified {
            class: None,
            watts: None,
            origin: WattOrigin::Unknown,
        }
    }
}

fn node(name: &str) -> Change {
    Change::Upsert(Object::Node(Node {
        name: name.into(),
        uid: name.into(),
        labels: Arc::default(),
        annotations: Arc::default(),
        extended_resources: vec![],
        unschedulable: false,
        taints: vec![],
    }))
}

fn pod(name: &str) -> Arc<Pod> {
    Arc::new(Pod {
        key: NamespacedName::new("ns", name),
        uid: format!("uid-{name}").into(),
        labels: Arc::default(),
        annotations: Arc::default(),
        scheduler_name: "wattlane".into(),
        node_name: "".into(),
        finished: false,
        deleting: false,
        claims: vec![],
        extended_resources: vec![],
        extended_resource_claim: None,
    })
}

/// An index task whose refused pods fit once the switch is on.
fn started() -> (Running, Arc<AtomicBool>) {
    let fit = Arc::new(AtomicBool::new(false));
    let answer = fit.clone();
    (
        spawn(
            Index::new(Arc::new(NoClass)),
            Arc::new(move |_, _| answer.load(Ordering::Relaxed)),
        ),
        fit,
    )
}

#[tokio::test]
async fn what_was_sent_before_a_flush_is_published_after_it() {
    let (running, _) = started();
    running.index.change(node("a")).await.expect("the task runs");
    running.index.flush().await.expect("the task runs");
    assert!(running.reader.load().node_named("a").is_some());
    running
        .index
        .change(Change::Remove(Kind::Node, Key::new("", "a")))
        .await
        .expect("the task runs");
    let gone = running
        .reader
        .wait_until(Duration::from_secs(10), |s| s.node_named("a").is_none())
        .await;
    assert!(gone.is_some());
}

#[tokio::test(start_paused = true)]
async fn waiting_for_what_does_not_come_ends() {
    let (running, _) = started();
    let seen = running
        .reader
        .wait_until(Duration::from_millis(500), |s| s.node_named("a").is_some())
        .await;
    assert!(seen.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_refused_pod_is_poked_when_it_could_fit_and_not_before() {
    let (mut running, fit) = started();
    running.index.refused(pod("p"), 0);
    running.index.change(node("a")).await.expect("the task runs");
    let early = tokio::time::timeout(Duration::from_secs(5), running.pokes.recv()).await;
    assert!(early.is_err(), "it does not fit yet");

    fit.store(true, Ordering::Relaxed);
    running.index.change(slice("s")).await.expect("the task runs");
    let poke = tokio::time::timeout(Duration::from_secs(5), running.pokes.recv())
        .await
        .expect("a poke in time");
    assert_eq!(
        poke,
        Some(Poke {
            pod: NamespacedName::new("ns", "p"),
            uid: "uid-p".into()
        })
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_refused_in_an_older_snapshot_is_looked_at_at_once() {
    let (mut running, fit) = started();
    fit.store(true, Ordering::Relaxed);
    running.index.change(slice("s")).await.expect("the task runs");
    running.index.flush().await.expect("the task runs");
    // Refused in the snapshot before the slice came.
    running.index.refused(pod("p"), 0);
    let poke = tokio::time::timeout(Duration::from_secs(5), running.pokes.recv()).await;
    assert!(poke.is_ok_and(|p| p.is_some()));
    // Poked, refused again in the newest snapshot: nothing has changed, so it is left in peace.
    running.index.refused(pod("p"), running.reader.load().version);
    let again = tokio::time::timeout(Duration::from_secs(30), running.pokes.recv()).await;
    assert!(again.is_err());
}

fn slice(name: &str) -> Change {
    Change::Upsert(Object::Slice(crate::model::Slice {
        name: name.into(),
        driver: "d".into(),
        pool: name.into(),
        generation: 1,
        slice_count: 1,
        nodes: crate::model::NodeScope::All,
        devices: vec![],
        counter_sets: vec![],
        unsupported: None,
    }))
}
