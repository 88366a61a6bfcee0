//! CPU and memory that are left of nodes: whatever comes, goes, moves or is listed anew, what every pod there asks for is taken off
//! once.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;
use wattlane::index::{Change, Key, Kind, Object};
use wattlane::model::Room;
use wattlane::snapshot::Snapshot;

use super::support::*;

#[derive(Clone, Debug)]
enum Step {
    /// The pod is there: on a node, or on none; finished or not.
    Pod(u8, Option<u8>, u32, bool),
    Gone(u8),
    Node(u8, Option<u32>),
    NodeGone(u8),
    /// Only these pods are there, as they were.
    Listed(Vec<u8>),
}

fn step() -> impl Strategy<Value = Step> {
    let pod = (0..6_u8, prop::option::of(0..3_u8), 1..5_u32, prop::bool::weighted(0.2));
    prop_oneof![
        6 => pod.prop_map(|(p, n, cpu, finished)| Step::Pod(p, n, cpu, finished)),
        2 => (0..6_u8).prop_map(Step::Gone),
        2 => (0..3_u8, prop::option::of(8..20_u32)).prop_map(|(n, cpu)| Step::Node(n, cpu)),
        1 => (0..3_u8).prop_map(Step::NodeGone),
        1 => prop::collection::vec(0..6_u8, 0..6).prop_map(Step::Listed),
    ]
}

fn pod(name: u8, on: Option<u8>, cpu: u32, finished: bool) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p{name}"), "namespace": "ns", "uid": format!("u{name}")},
        "spec": {"nodeName": on.map(|n| format!("n{n}")),
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": format!("{cpu}Mi")}}}]},
        "status": {"phase": if finished { "Succeeded" } else { "Running" }}})
}

proptest! {
    #[test]
    fn what_is_left_is_what_pods_do_not_ask_for(steps in prop::collection::vec(step(), 1..60)) {
        let mut index = index();
        let mut snapshot: Arc<Snapshot> = Arc::default();
        let mut pods: BTreeMap<u8, (Option<u8>, u32, bool)> = BTreeMap::new();
        let mut nodes: BTreeMap<u8, Option<u32>> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Pod(p, on, cpu, finished) => {
                    pods.insert(p, (on, cpu, finished));
                    upsert(&mut index, &pod(p, on, cpu, finished));
                }
                Step::Gone(p) => {
                    pods.remove(&p);
                    index.apply(Change::Remove(Kind::Pod, Key::new("ns", format!("p{p}"))));
                }
                Step::Node(n, cpu) => {
                    nodes.insert(n, cpu);
                    let allocatable = cpu.map(|cpu| json!({"cpu": cpu, "memory": "100Mi"}));
                    upsert(&mut index, &json!({"apiVersion": "v1", "kind": "Node",
                        "metadata": {"name": format!("n{n}"), "uid": "u"}, "status": {"allocatable": allocatable}}));
                }
                Step::NodeGone(n) => {
                    nodes.remove(&n);
                    index.apply(Change::Remove(Kind::Node, Key::new("", format!("n{n}"))));
                }
                Step::Listed(listed) => {
                    pods.retain(|p, _| listed.contains(p));
                    let objects = pods.iter().map(|(p, (on, cpu, finished))| object(&pod(*p, *on, *cpu, *finished)));
                    index.apply(Change::Reset(Kind::Pod, objects.collect::<Vec<Object>>()));
                }
            }
            if let Some(published) = index.publish() {
                snapshot = published;
            }
            for (n, all) in &nodes {
                let on = pods.values().filter(|(on, _, finished)| *on == Some(*n) && !finished);
                let asked: u32 = on.map(|(_, cpu, _)| cpu).sum();
                let left = all.map(|all| Room { cpu: (all * 1000).saturating_sub(asked * 1000), memory: 100 - asked });
                let ix = snapshot.node_ix(&format!("n{n}")).expect("it is there");
                prop_assert_eq!(snapshot.rooms.get(ix.0).copied(), left);
            }
            let known = snapshot.rooms.iter().flatten().count();
            prop_assert_eq!(known, nodes.values().flatten().count(), "nothing is left of nodes that are gone");
        }
    }
}
