//! A small cluster that is in order: two nodes of two cards each, and a pod with a claim on the first. Each test breaks
//! something of it.

use std::sync::Arc;

use serde_json::{Value, json};
use wattlane::audit::{Finding, Kind, audit};
use wattlane::convert;
use wattlane::index::{Change, Index};
use wattlane::model::FINALIZER;
use wattlane::policy::{Policy, PolicyClassifier};
use wattlane::selector::Selectors;
use wattlane::snapshot::Snapshot;

pub(crate) const DRIVER: &str = "gpu.nvidia.com";
const POLICY: &str = "
apiVersion: wattlane.dev/v1alpha1
kind: PlacementPolicy
classes:
- {name: big, match: 'false', patch: {schedulerName: wattlane-big}}
namespaces:
- {match: {team: big}, patch: {schedulerName: wattlane-team}}
power:
- {label: rack, budget: 1500W}
";

pub(crate) struct World {
    index: Index,
    policy: Arc<Policy>,
}

impl World {
    pub(crate) fn new() -> Self {
        let policy = Policy::read(POLICY, &Selectors::new()).expect("a valid policy");
        let policy = Arc::new(policy);
        let index = Index::new(Arc::new(PolicyClassifier::new(policy.clone())));
        let mut world = Self { index, policy };
        for (name, enabled) in [("ml", "true"), ("plain", "false")] {
            world.put(json!({"apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": name, "labels": {"wattlane.dev/enabled": enabled}}}));
        }
        world.put(json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": DRIVER}, "spec": {}}));
        for node in ["n1", "n2"] {
            world
                .put(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": {"rack": node}}}));
            world.put(slice(node, &["gpu-0", "gpu-1"]));
        }
        world.put(pod("a", "n1", &["ca"]));
        world.put(claim("ca", "n1", &["gpu-0"], Some("a")));
        world
    }

    pub(crate) fn put(&mut self, object: Value) {
        let read = convert::object(&object)
            .expect("readable")
            .expect("a kind that is kept");
        self.index.apply(Change::Upsert(read));
    }

    pub(crate) fn remove(&mut self, object: &Value) {
        let read = convert::object(object).expect("readable").expect("a kind that is kept");
        self.index.apply(Change::Remove(read.kind(), read.key()));
    }

    pub(crate) fn snapshot(&mut self) -> Arc<Snapshot> {
        // Only what changed is published.
        self.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mark"}}));
        let snapshot = self.index.publish().expect("changed");
        self.remove(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mark"}}));
        snapshot
    }

    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }

    pub(crate) fn findings(&mut self) -> Vec<Finding> {
        audit(&self.snapshot(), &self.policy)
    }

    /// `kind object` of each.
    pub(crate) fn found(&mut self) -> Vec<String> {
        let name = |f: Finding| format!("{} {}", f.kind.as_str(), f.object);
        self.findings().into_iter().map(name).collect()
    }

    pub(crate) fn kinds(&mut self) -> Vec<Kind> {
        self.findings().into_iter().map(|f| f.kind).collect()
    }

    /// The words of the only finding.
    #[track_caller]
    pub(crate) fn words(&mut self) -> String {
        let findings = self.findings();
        let [one] = findings.as_slice() else {
            panic!("{findings:?}")
        };
        one.message.clone()
    }
}

/// Cards of 600 W each.
pub(crate) fn slice(node: &str, devices: &[&str]) -> Value {
    let device = |name: &&str| {
        json!({"name": name, "attributes": {"uuid": {"string": format!("GPU-{node}-{name}")},
            "productName": {"string": "NVIDIA RTX PRO 6000 Blackwell Server Edition"}}})
    };
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": node}, "spec": {
        "driver": DRIVER, "nodeName": node, "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": devices.iter().map(device).collect::<Vec<_>>()}})
}

/// As wattlane's admission and bind leave it.
pub(crate) fn pod(name: &str, node: &str, claims: &[&str]) -> Value {
    let claims: Vec<_> = claims
        .iter()
        .map(|c| json!({"name": c, "resourceClaimName": c}))
        .collect();
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "ml", "uid": name, "annotations": {"wattlane.dev/admitted": "v1"}},
        "spec": {"nodeName": node, "schedulerName": "wattlane", "resourceClaims": claims, "containers": [{"name": "c"}]}})
}

/// One that no webhook saw.
pub(crate) fn plugin_pod(name: &str, namespace: &str, node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace, "uid": name},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}})
}

pub(crate) fn result(node: &str, device: &str) -> Value {
    json!({"request": "r", "driver": DRIVER, "pool": node, "device": device})
}

pub(crate) fn claim(name: &str, node: &str, devices: &[&str], user: Option<&str>) -> Value {
    let results: Vec<_> = devices.iter().map(|d| result(node, d)).collect();
    let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    let consumers: Vec<_> = user
        .iter()
        .map(|u| json!({"resource": "pods", "name": u, "uid": u}))
        .collect();
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "ml", "uid": name, "finalizers": [FINALIZER]},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": DRIVER}}]}},
        "status": {"reservedFor": consumers, "allocation": {"devices": {"results": results},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}}}})
}
