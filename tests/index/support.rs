//! What the index tests share: objects from short JSON, and a snapshot as text that can be compared.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Value, json};
use wattlane::convert;
use wattlane::index::{Change, Index, Object};
use wattlane::model::{Allocation, Budget, Classified, Classifier, Device, DeviceId, DeviceResult, Labels, Name};
use wattlane::snapshot::{PoolState, Snapshot};

/// The class is the node's label `class`, which has a budget as well, or `sort`, so that relabelling shows.
pub(crate) struct ByLabel;

impl Classifier for ByLabel {
    fn classify(&self, _driver: &Name, _device: &Device, labels: &Labels, _annotations: &Labels) -> Classified {
        Classified {
            class: labels.get("class").or(labels.get("sort")).cloned(),
            ..Classified::default()
        }
    }

    fn device_class(&self, resource: &str) -> Option<Name> {
        (resource == "test/card").then(|| "gpu.test".into())
    }

    fn budgets(&self, labels: &Labels) -> Vec<Budget> {
        let budget = |value: &Name| Budget {
            label: "class".into(),
            value: value.clone(),
            watts: 1000,
        };
        labels.get("class").map(budget).into_iter().collect()
    }
}

pub(crate) fn index() -> Index {
    Index::new(Arc::new(ByLabel))
}

pub(crate) fn object(value: &Value) -> Object {
    convert::object(value)
        .expect("a readable object")
        .expect("a known kind")
}

pub(crate) fn upsert(index: &mut Index, value: &Value) {
    index.apply(Change::Upsert(object(value)));
}

pub(crate) fn node(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name, "labels": labels}})
}

/// A slice of one pool; `scope` is merged into its spec.
pub(crate) fn slice(name: &str, pool: &str, generation: i64, count: i64, scope: Value, devices: Value) -> Value {
    let mut spec = json!({"driver": "gpu.test", "devices": devices,
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": count}});
    for (key, value) in scope.as_object().expect("an object") {
        spec[key] = value.clone();
    }
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec})
}

pub(crate) fn plain(names: &[&str]) -> Value {
    let below = |root: &str| json!({"resource.kubernetes.io/pcieRoot": {"string": root}});
    names
        .iter()
        .map(|n| json!({"name": n, "attributes": below("r")}))
        .collect()
}

/// An allocated claim where there are results.
pub(crate) fn claim(name: &str, uid: &str, version: u64, results: Value) -> Value {
    let mut value = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": version.to_string()},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}});
    if results.as_array().is_some_and(|r| !r.is_empty()) {
        value["status"] = json!({"allocation": {"devices": {"results": results}}});
    }
    value
}

pub(crate) fn result(pool: &str, device: &str) -> DeviceResult {
    DeviceResult {
        request: "r".into(),
        id: DeviceId {
            driver: "gpu.test".into(),
            pool: pool.into(),
            device: device.into(),
        },
        ..DeviceResult::default()
    }
}

pub(crate) fn results_json(results: &[DeviceResult]) -> Value {
    let allocation = Allocation {
        results: results.to_vec(),
        ..Default::default()
    };
    convert::allocation_json(&allocation)["devices"]["results"].clone()
}

pub(crate) fn pool<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a Arc<PoolState>> {
    snapshot.pools.iter().flatten().find(|p| &*p.pool.name == name)
}

/// Names of the taken devices of a pool.
pub(crate) fn taken(snapshot: &Snapshot, name: &str) -> Vec<String> {
    let state = pool(snapshot, name).expect("the pool");
    let name = |i: usize| state.pool.devices[i].device.name.to_string();
    state.taken.iter().map(name).collect()
}

/// A pod on a node (on none where that is empty) that asks for the extended resource.
pub(crate) fn plugin_pod(name: &str, node: &str, resource: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"limits": {resource: "1"}}}]}})
}

/// Health of the pools the node sees, where it is not that of the pool.
pub(crate) fn health(snapshot: &Snapshot, node: &str) -> Vec<String> {
    let node = snapshot.node_named(node).expect("the node");
    let own = node.pools.iter().filter_map(|v| v.health.as_ref());
    own.map(|health| format!("{health:?}")).collect()
}

/// The pools the node sees, as `pool` or `pool[devices]`.
pub(crate) fn sees(snapshot: &Snapshot, node: &str) -> Vec<String> {
    let node = snapshot.node_named(node).expect("the node");
    snapshot
        .pools_of(node)
        .map(|(state, visible)| match &visible.devices {
            None => state.pool.name.to_string(),
            Some(bits) => {
                let names: Vec<&str> = bits.iter().map(|i| &*state.pool.devices[i].device.name).collect();
                format!("{}[{}]", state.pool.name, names.join(","))
            }
        })
        .collect()
}

/// Everything a reader sees, independent of positions, without claims of the namespace `phantom`. Of power domains what
/// they are: what is drawn of them remembers devices that are published no more, which an index made anew cannot.
pub(crate) fn dump(s: &Snapshot) -> String {
    let mut lines = vec![];
    for (_, node) in s.nodes() {
        let wiring = node.wiring.as_ref().map(|w| {
            let cards = (0..node.pools.len()).map(|pool| w.of_pool(pool).collect::<Vec<_>>());
            (w.source, w.shape.links(), cards.collect::<Vec<_>>())
        });
        let domains: Vec<_> = node
            .domains
            .iter()
            .map(|d| s.power.domain(*d).map(|d| d.budget))
            .collect();
        lines.push(format!(
            "{:?} sees {:?} {:?} in {domains:?} wired {wiring:?}",
            node.node,
            sees(s, &node.node.name),
            health(s, &node.node.name)
        ));
    }
    for state in s.pools.iter().flatten() {
        let pool = &state.pool;
        let mut text = format!(
            "pool {}/{} {} {:?}",
            pool.driver, pool.name, pool.generation, pool.health
        );
        let _ = write!(text, " {:?} {:?}", pool.devices, pool.by_name);
        let _ = write!(text, " {:?} {:?}", pool.counter_sets, state.taken);
        let _ = write!(text, " {:?} {:?}", state.shared, state.counters_left);
        lines.push(text);
    }
    lines.extend(
        s.claims
            .iter()
            .filter(|(key, _)| &*key.namespace != "phantom")
            .map(|(_, c)| format!("{c:?}")),
    );
    lines.extend(s.power.domains().map(|d| format!("{:?}", d.budget)));
    lines.extend(s.pods.iter().map(|(_, o)| format!("{o:?}")));
    lines.extend(s.classes.iter().map(|(_, o)| format!("{o:?}")));
    lines.sort();
    lines.join("\n")
}
