//! The embedded cluster behind a real index task: what was written is in the snapshot.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::json;

use super::{Embedded, claim, consumer, device, from_template, key, pod, small};
use crate::cluster::{Cluster as _, WatchStatus};
use crate::index::{Index, Kind};
use crate::model::Unclassified;
use crate::publish::{Reader, Running, spawn};

#[derive(Default)]
struct Alive(Mutex<Vec<Kind>>);

impl WatchStatus for Alive {
    fn alive(&self, kind: Kind) {
        self.0.lock().unwrap().push(kind);
    }
    fn restarted(&self, kind: Kind) {
        panic!("{kind:?}");
    }
    fn undecodable(&self, kind: Kind) {
        panic!("{kind:?}");
    }
}

/// Starts index and watch, and waits until all kinds are there.
pub(super) async fn watched(cluster: &Arc<Embedded>) -> Running {
    let running = spawn(Index::new(Arc::new(Unclassified)), Arc::new(|_, _| false));
    let (status, watch, index) = (Arc::new(Alive::default()), cluster.clone(), running.index.clone());
    let alive = status.clone();
    tokio::spawn(async move { watch.watch(index, status).await });
    for _ in 0..10_000 {
        if Kind::ALL.iter().all(|k| alive.0.lock().unwrap().contains(k)) {
            running.index.flush().await.unwrap();
            return running;
        }
        tokio::task::yield_now().await;
    }
    panic!("not all kinds are alive");
}

fn taken(reader: &Reader) -> Vec<usize> {
    let snapshot = reader.load();
    let node = snapshot.node_named("n1").unwrap().clone();
    let (pool, _) = snapshot.pools_of(&node).next().unwrap();
    pool.taken.iter().collect()
}

#[tokio::test]
async fn every_write_is_in_the_snapshot_after_a_flush() {
    let cluster = Arc::new(small());
    // Before the watch: part of what it starts with.
    let early = cluster.create_pod(pod("early", json!([]))).await.unwrap();
    cluster.bind(&early.key, &early.uid, "n1").await.unwrap();
    let before = cluster.create_pod(pod("before", from_template())).await.unwrap();
    let running = watched(&cluster).await;
    let (index, reader) = (&running.index, &running.reader);
    assert_eq!(taken(reader), [0; 0]);
    assert!(reader.load().pods.get(&before.key).is_some());
    assert!(reader.load().namespaces.get("ml").is_some_and(|n| n.enabled()));
    assert!(reader.load().templates.get(&key("one")).is_some());
    assert!(reader.load().classes.get("gpu.example.com").is_some());

    let p = cluster.create_pod(pod("p", from_template())).await.unwrap();
    index.flush().await.unwrap();
    assert_eq!(reader.load().pods.get(&p.key).map(|x| &**x), Some(&p));
    let seen = reader.load().claim(&key("p-gpu")).unwrap().clone();
    assert_eq!(*seen, claim(&cluster, "p-gpu").await);

    cluster.allocate(&seen, &device("gpu-1"), &consumer(&p)).await.unwrap();
    cluster.bind(&p.key, &p.uid, "n1").await.unwrap();
    index.flush().await.unwrap();
    assert_eq!(taken(reader), [1]);
    assert_eq!(&*reader.load().pods.get(&p.key).unwrap().node_name, "n1");

    cluster.delete_pod("ml", "p").await.unwrap();
    index.flush().await.unwrap();
    assert_eq!(taken(reader), [0; 0]);
    assert!(reader.load().pods.get(&p.key).is_none() && reader.load().claim(&key("p-gpu")).is_none());

    let template = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": "wl", "namespace": "ml"}, "spec": {"spec": {"devices": {}}}});
    cluster.ensure_template(&template).await.unwrap();
    index.flush().await.unwrap();
    assert!(reader.load().templates.get(&key("wl")).is_some());
}

#[tokio::test]
async fn a_write_whose_caller_went_away_reaches_the_index_all_the_same() {
    let cluster = Arc::new(small());
    let running = watched(&cluster).await;
    // Polled once while another holds the door to the index, then dropped.
    let door = cluster.index.lock().await;
    let dropped = tokio::time::timeout(Duration::ZERO, cluster.create_pod(pod("p", from_template()))).await;
    assert!(dropped.is_err());
    drop(door);
    let seen = running
        .reader
        .wait_until(Duration::from_secs(10), |s| s.claim(&key("p-gpu")).is_some())
        .await;
    assert!(seen.is_some());
}

#[tokio::test]
async fn writes_from_everywhere_arrive_in_their_order() {
    let cluster = Arc::new(small());
    let running = watched(&cluster).await;
    let mut tasks = vec![];
    for i in 0..50 {
        let cluster = cluster.clone();
        tasks.push(tokio::spawn(async move {
            let made = cluster
                .create_pod(pod(&format!("p{i}"), from_template()))
                .await
                .unwrap();
            let of = claim(&cluster, &format!("p{i}-gpu")).await;
            cluster.allocate(&of, &device("gpu-0"), &consumer(&made)).await.unwrap();
            if i % 2 == 0 {
                cluster.delete_pod("ml", &made.key.name).await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    running.index.flush().await.unwrap();
    let snapshot = running.reader.load();
    for i in 0..50 {
        let is = snapshot
            .claim(&key(&format!("p{i}-gpu")))
            .is_some_and(|c| c.allocation.is_some());
        assert_eq!(is, i % 2 == 1, "p{i}");
    }
}
