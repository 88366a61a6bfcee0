//! The loop of the service: only the replica that leads looks, each finding is told once, and so many a round.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use wattlane::app::{Core, PolicySource};
use wattlane::cluster::embedded::Embedded;
use wattlane::cluster::{Cluster, Event, WatchStatus, WriteError};
use wattlane::index::Kind;
use wattlane::model::{Allocation, Claim, Consumer, NamespacedName, Pod};
use wattlane::publish::IndexHandle;

use super::world::{plugin_pod, slice};

/// A cluster from files that remembers events, each with the round it came in. The audit writes nothing else.
struct Listening {
    files: Embedded,
    rounds: Arc<AtomicUsize>,
    events: Mutex<Vec<(usize, Event)>>,
    /// The next write fails.
    deaf: AtomicBool,
    lifted: Mutex<Vec<NamespacedName>>,
}

fn refused<T>() -> Result<T, WriteError> {
    Err(WriteError::Refused("the audit writes no such thing".into()))
}

#[async_trait]
impl Cluster for Listening {
    async fn watch(&self, index: IndexHandle, status: Arc<dyn WatchStatus>) -> anyhow::Result<()> {
        self.files.watch(index, status).await
    }
    async fn allocate(&self, _: &Claim, _: &Allocation, _: &Consumer) -> Result<Claim, WriteError> {
        refused()
    }
    async fn reserve(&self, _: &Claim, _: &Consumer, _: Option<usize>) -> Result<Claim, WriteError> {
        refused()
    }
    async fn unreserve(&self, _: &NamespacedName, _: &str, _: &Consumer, _: bool) -> Result<(), WriteError> {
        refused()
    }
    async fn claim(&self, _: &NamespacedName) -> Result<Option<Claim>, WriteError> {
        refused()
    }
    async fn pod(&self, _: &NamespacedName) -> Result<Option<Pod>, WriteError> {
        refused()
    }
    async fn bind(&self, _: &NamespacedName, _: &str, _: &str) -> Result<(), WriteError> {
        refused()
    }
    async fn ensure_template(&self, _: &serde_json::Value) -> Result<(), WriteError> {
        refused()
    }
    async fn poke(&self, _: &NamespacedName, _: &str) -> Result<(), WriteError> {
        refused()
    }
    async fn event(&self, event: &Event) -> Result<(), WriteError> {
        if self.deaf.swap(false, Ordering::SeqCst) {
            return Err(WriteError::Unknown("no answer".into()));
        }
        let round = self.rounds.load(Ordering::SeqCst);
        self.events.lock().expect("not poisoned").push((round, event.clone()));
        Ok(())
    }
    async fn lift_gate(&self, pod: &NamespacedName, _: &str) -> Result<(), WriteError> {
        self.lifted.lock().expect("not poisoned").push(pod.clone());
        Ok(())
    }
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let hang = Duration::from_secs(60);
    tokio::time::timeout(hang, wait)
        .await
        .unwrap_or_else(|_| panic!("waited in vain for {what}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_finding_is_told_once_by_the_one_that_leads() {
    const PODS: usize = 25;
    let mut objects: Vec<_> = (0..PODS).map(|i| plugin_pod(&format!("p{i}"), "plain", "n1")).collect();
    let mut gated = plugin_pod("gated", "plain", "");
    gated["spec"]["schedulingGates"] = serde_json::json!([{"name": "wattlane.dev/admission"}]);
    objects.push(slice("n1", &["gpu-0"]));
    for (name, enabled) in [("plain", "false"), ("ml", "true")] {
        let labels = serde_json::json!({"wattlane.dev/enabled": enabled});
        let metadata = serde_json::json!({"name": name, "labels": labels});
        objects.push(serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}));
    }
    let text: Vec<String> = objects.iter().map(ToString::to_string).collect();
    let rounds = Arc::new(AtomicUsize::new(0));
    let cluster = Arc::new(Listening {
        files: Embedded::from_yaml("test", &text.join("\n---\n")).expect("loads"),
        rounds: rounds.clone(),
        events: Mutex::default(),
        deaf: AtomicBool::new(true),
        lifted: Mutex::default(),
    });
    let core = Core::start(cluster.clone(), PolicySource::Default)
        .await
        .expect("starts");
    cluster.files.create_pod(gated).await.expect("created");

    let leads = Arc::new(AtomicBool::new(false));
    let (asked, leading) = (rounds.clone(), leads.clone());
    core.spawn_audit(Duration::from_millis(20), move || {
        asked.fetch_add(1, Ordering::SeqCst);
        leading.load(Ordering::SeqCst)
    });
    let told = || cluster.events.lock().expect("not poisoned").len();
    let gauge = |value: usize| format!("wattlane_audit_findings{{kind=\"unknown-holder\"}} {value}\n");
    until("rounds", || rounds.load(Ordering::SeqCst) > 3).await;
    assert_eq!(told(), 0, "another replica leads");
    assert!(core.metrics.render().contains(&gauge(0)));

    leads.store(true, Ordering::SeqCst);
    until("all to be told", || told() >= PODS).await;
    let then = rounds.load(Ordering::SeqCst);
    until("more rounds", || rounds.load(Ordering::SeqCst) > then + 3).await;
    let events = cluster.events.lock().expect("not poisoned").clone();
    let mut names: Vec<_> = events.iter().map(|(_, e)| e.key.to_string()).collect();
    names.sort();
    names.dedup();
    assert_eq!(
        (events.len(), names.len()),
        (PODS, PODS),
        "each once, also the one whose event was lost at first"
    );
    let mut by_round: BTreeMap<usize, usize> = BTreeMap::new();
    for (round, event) in &events {
        assert_eq!((event.kind, event.reason), (Kind::Pod, "UnknownHolder"));
        *by_round.entry(*round).or_default() += 1;
    }
    assert!(
        by_round.len() > 1 && by_round.values().all(|n| *n <= 20),
        "{by_round:?}"
    );
    assert!(core.metrics.render().contains(&gauge(PODS)));
    let lifted = cluster
        .lifted
        .lock()
        .expect("not poisoned")
        .first()
        .map(ToString::to_string);
    assert_eq!(lifted.as_deref(), Some("plain/gated"));

    leads.store(false, Ordering::SeqCst);
    until("the metric to go", || core.metrics.render().contains(&gauge(0))).await;
}
