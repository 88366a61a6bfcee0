//! Between the answer that sends a pod to a node and its bind: what is held for it, over the whole service on loopback.

use serde_json::{Value, json};

use wattlane::binding::Limits;
use wattlane::cluster::Cluster as _;
use wattlane::index::Key;
use wattlane::model::Consumer;
use wattlane::placement::{self, Context, Demand};

use crate::real::{World, slice, start, start_with};
use crate::support::eventually;

impl World {
    /// Filter and prioritize, as kube-scheduler does: the node, or None.
    async fn place(&self, pod: &Value, nodes: &[&str]) -> Option<String> {
        let answer = self
            .ask("/extender/filter", &json!({"Pod": pod, "NodeNames": nodes}))
            .await;
        let left: Vec<&str> = answer["NodeNames"]
            .as_array()?
            .iter()
            .filter_map(Value::as_str)
            .collect();
        if left.len() < 2 {
            return left.first().map(|node| (*node).to_owned());
        }
        let scores = self
            .ask("/extender/prioritize", &json!({"Pod": pod, "NodeNames": left}))
            .await;
        let best = scores.as_array()?.iter().max_by_key(|s| s["Score"].as_i64())?;
        best["Host"].as_str().map(str::to_owned)
    }

    async fn bind(&self, pod: &Value, node: &str) -> String {
        let meta = &pod["metadata"];
        let body = json!({"PodName": meta["name"], "PodNamespace": "models", "PodUID": meta["uid"], "Node": node});
        let answer = self.ask("/extender/bind", &body).await;
        answer["Error"].as_str().expect("words, or none").to_owned()
    }

    fn ended(&self, how: &str) -> f64 {
        self.value(&format!(r#"wattlane_holds_ended_total{{outcome="{how}"}}"#))
    }

    /// The device of each allocated claim.
    fn devices(&self) -> Vec<String> {
        let snapshot = self.core.reader.load();
        let allocations = snapshot.claims.iter().filter_map(|(_, c)| c.allocation.clone());
        allocations
            .flat_map(|a| a.results.iter().map(|r| r.id.to_string()).collect::<Vec<_>>())
            .collect()
    }
}

const BOTH_NODES: [&str; 2] = ["n1", "n2"];

/// Two cards, two pods placed one after the other before any bind: each has its own.
async fn two_before_any_bind(nodes: &[&str]) {
    let world = start(1).await;
    let mut places = vec![];
    if nodes.len() > 1 {
        world.upsert(&slice("n2", 1)).await;
    } else {
        world.upsert(&slice("n1", 2)).await;
    }
    world.core.index.flush().await.expect("runs");
    for name in ["a", "b"] {
        let pod = world.create(name).await;
        let node = world.place(&pod, nodes).await.expect("there is room");
        places.push((pod, node));
    }
    assert_eq!(world.value("wattlane_holds"), 2.0);
    let third = world.create("c").await;
    let answer = world
        .ask("/extender/filter", &json!({"Pod": third, "NodeNames": nodes}))
        .await;
    for node in nodes {
        let words = answer["FailedAndUnresolvableNodes"][node].as_str().expect("words");
        assert!(words.contains("held for other pods"), "{words}");
    }
    // Its scheduler did not ask, or does not listen.
    let words = world.bind(&third, nodes[0]).await;
    assert!(words.contains("held for other pods"), "{words}");
    // In the other order than they were placed.
    for (pod, node) in places.iter().rev() {
        assert_eq!(world.bind(pod, node).await, "");
    }
    world.core.index.flush().await.expect("runs");
    let mut devices = world.devices();
    devices.sort();
    devices.dedup();
    assert_eq!(devices.len(), 2);
    assert_eq!((world.bound("bound"), world.bound("conflict")), (2.0, 0.0));
    assert_eq!((world.value("wattlane_holds"), world.ended("bound")), (0.0, 2.0));
}

#[tokio::test]
async fn two_pods_before_any_bind_get_different_nodes() {
    two_before_any_bind(&BOTH_NODES).await;
}

/// Prioritize is not called then.
#[tokio::test]
async fn two_pods_before_any_bind_get_different_cards_of_a_single_node() {
    two_before_any_bind(&["n1"]).await;
}

#[tokio::test]
async fn the_scheduler_may_choose_another_node_and_ask_again() {
    let world = start(1).await;
    world.upsert(&slice("n2", 1)).await;
    world.core.index.flush().await.expect("runs");
    let pod = world.create("a").await;
    let best = world.place(&pod, &BOTH_NODES).await.expect("there is room");
    // Its own hold is not in its way.
    assert_eq!(world.place(&pod, &BOTH_NODES).await.as_deref(), Some(&*best));
    assert_eq!((world.value("wattlane_holds"), world.ended("replaced")), (1.0, 1.0));
    let other = BOTH_NODES.into_iter().find(|n| *n != best).expect("one of two");
    assert_eq!(world.bind(&pod, other).await, "");
    assert_eq!((world.value("wattlane_holds"), world.ended("replaced")), (0.0, 2.0));
    // What was held is free for the next.
    let next = world.create("b").await;
    assert_eq!(world.place(&next, &BOTH_NODES).await.as_deref(), Some(&*best));
    // Refused everywhere (it is offered no node that has one): it needs nothing.
    assert_eq!(world.place(&next, &[other]).await, None);
    eventually("the hold is dropped", || world.value("wattlane_holds") == 0.0).await;
}

#[tokio::test]
async fn nothing_is_held_for_a_pod_that_is_gone_or_has_no_claims() {
    let world = start(1).await;
    let plain = json!({"metadata": {"name": "p", "namespace": "models", "uid": "u"}, "spec": {"containers": []}});
    assert_eq!(world.place(&plain, &["n1"]).await.as_deref(), Some("n1"));
    assert_eq!(world.value("wattlane_holds"), 0.0);
    let pod = world.create("a").await;
    assert_eq!(world.place(&pod, &["n1"]).await.as_deref(), Some("n1"));
    assert_eq!(world.value("wattlane_holds"), 1.0);
    let key = Key::new("models", "a");
    let gone = wattlane::index::Change::Remove(wattlane::index::Kind::Pod, key);
    world.core.index.change(gone).await.expect("runs");
    world.core.index.flush().await.expect("runs");
    assert_eq!((world.value("wattlane_holds"), world.ended("dropped")), (0.0, 1.0));
    let next = world.create("b").await;
    assert_eq!(world.place(&next, &["n1"]).await.as_deref(), Some("n1"));
}

/// A burst that is placed one by one, as kube-scheduler does, and bound all at once: no bind is refused.
#[tokio::test]
async fn a_burst_meets_no_conflict() {
    let world = start(8).await;
    world.upsert(&slice("n2", 8)).await;
    world.core.index.flush().await.expect("runs");
    let mut places = vec![];
    for i in 0..16 {
        let pod = world.create(&format!("p{i}")).await;
        let node = world.place(&pod, &BOTH_NODES).await.expect("there is room");
        places.push((pod, node));
    }
    let binds = places.iter().map(|(pod, node)| world.bind(pod, node));
    let errors = futures::future::join_all(binds).await;
    assert!(errors.iter().all(String::is_empty), "{errors:?}");
    world.core.index.flush().await.expect("runs");
    let mut devices = world.devices();
    devices.sort();
    devices.dedup();
    assert_eq!((devices.len(), world.bound("conflict")), (16, 0.0));
}

/// Pods of a group that come one right after the other: the second goes near where the first is sent to.
#[tokio::test]
async fn a_group_keeps_together_before_any_bind() {
    let world = start(1).await;
    for (name, rack) in [("n1", "r1"), ("n2", "r2"), ("n3", "r1")] {
        let labels = json!({"topology.kubernetes.io/rack": rack});
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
        world.upsert(&node).await;
        world.upsert(&slice(name, 1)).await;
    }
    for name in ["a", "b"] {
        let claims = json!([{"name": "gpu", "resourceClaimTemplateName": "one"}]);
        let mut pod = crate::real::pod(name, claims);
        pod["metadata"]["annotations"] = json!({"wattlane.dev/group": "g"});
        world.cluster.create_pod(pod).await.expect("created");
    }
    world.core.index.flush().await.expect("runs");
    let pod = |name| world.cluster.pod_json("models", name).expect("there");
    let nodes = ["n1", "n2", "n3"];
    assert_eq!(world.place(&pod("a"), &nodes).await.as_deref(), Some("n1"));
    assert_eq!(
        world.place(&pod("b"), &nodes).await.as_deref(),
        Some("n3"),
        "by name it would be n2"
    );
}

/// A bind that came to nothing after its claim was written, and a scheduler that cannot use that node any more.
#[tokio::test]
async fn what_pins_an_unbound_pod_is_given_back() {
    let limits = Limits {
        // Nothing of an earlier process is on its way here.
        in_flight: std::time::Duration::ZERO,
        ..Limits::default()
    };
    let world = start_with(1, limits).await;
    world.upsert(&slice("n2", 1)).await;
    world.core.index.flush().await.expect("runs");
    let pod = world.create("a").await;
    world.core.index.flush().await.expect("runs");
    {
        let snapshot = world.core.reader.load();
        let rules = world.core.rules();
        let context = Context {
            snapshot: &snapshot,
            selectors: &world.core.selectors,
            rules: &rules,
        };
        let pod = snapshot.pods.get(&Key::new("models", "a")).expect("it is seen");
        let demand = Demand::of(context, pod).expect("placeable");
        let placed = placement::place(context, &demand, snapshot.node_named("n1").expect("there")).expect("fits");
        let consumer = Consumer {
            resource: "pods".into(),
            name: "a".into(),
            uid: pod.uid.clone(),
        };
        let claim = &placed.claims[0];
        world
            .cluster
            .allocate(&claim.claim, &claim.allocation, &consumer)
            .await
            .expect("written");
    }
    world.core.index.flush().await.expect("runs");
    // While its node is among those offered, it goes there.
    assert_eq!(world.place(&pod, &BOTH_NODES).await.as_deref(), Some("n1"));
    assert_eq!(world.place(&pod, &["n2"]).await, None);
    let done = r#"wattlane_given_back_total{outcome="done"}"#;
    eventually("it is given back", || world.value(done) == 1.0).await;
    eventually("it is poked", || world.value("wattlane_pokes_total") >= 1.0).await;
    assert!(world.devices().is_empty());
    assert_eq!(world.place(&pod, &["n2"]).await.as_deref(), Some("n2"));
    assert_eq!(world.bind(&pod, "n2").await, "");
}
