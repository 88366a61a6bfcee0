//! The cluster of `world.yaml`, a policy, and the corpus. The end-to-end and the command-line tests read it as well.

use std::sync::{Arc, LazyLock};

use serde_json::Value;
use wattlane::convert;
use wattlane::index::{Change, Index};
use wattlane::policy::{Policy, PolicyClassifier};
use wattlane::selector::Selectors;
use wattlane::snapshot::Snapshot;

pub(crate) const POLICY: &str = r#"
apiVersion: wattlane.dev/v1alpha1
kind: PlacementPolicy
classes:
- name: server-600w
  match: device.attributes["gpu.nvidia.com"].productName.contains("Server Edition")
  watts: 600W
  patch:
    runtimeClassName: nvidia-legacy
    tolerations: [{key: example.com/gpu, operator: Exists, effect: NoSchedule}]
    nodeSelector: {example.com/pool: server}
    annotations: {example.com/a.b: "1"}
    labels: {example.com/class: server}
    sharedMemory: 8Gi
- name: broken-runtime
  match: device.driver == "never"
  patch: {runtimeClassName: nvidia-cdi}
namespaces:
- match: {team: research}
  defaultClass: h200-700w
  allowedClasses: [h200-700w, h20-500w]
  maxGpusPerPod: 4
- match: {team: serving}
  defaultClass: server-600w
- match: {team: batch}
  patch:
    schedulerName: wattlane-batch
    runtimeClassName: runc
    tolerations: [{key: example.com/batch, operator: Exists}]
    nodeSelector: {example.com/pool: batch}
    annotations: {example.com/a.b: batch, example.com/queue: "q/1~2"}
    labels: {example.com/class: batch, example.com/tier: low}
    sharedMemory: 1Gi
- match: {team: chat}
  defaultClass: h20-500w
  sharing: {slots: 4, strategy: mps, memoryPerSlot: 10Gi, class: l4-72w}
defaults: {runtimeClassName: nvidia}
"#;

pub(crate) fn policy() -> Policy {
    static POLICY_READ: LazyLock<Policy> =
        LazyLock::new(|| Policy::read(POLICY, &Selectors::new()).expect("the test policy is valid"));
    POLICY_READ.clone()
}

/// Pods as a controller or a user would create them, each with a name and a namespace of its own.
pub(crate) fn pods() -> Vec<Value> {
    serde_saphyr::from_multiple(include_str!("pods.yaml")).expect("the corpus is YAML")
}

/// The objects, as a user of the API would apply them.
pub(crate) fn objects() -> Vec<Value> {
    serde_saphyr::from_multiple(include_str!("world.yaml")).expect("the world is YAML")
}

pub(crate) fn snapshot() -> Snapshot {
    static WORLD: LazyLock<Arc<Snapshot>> = LazyLock::new(build);
    Snapshot::clone(&WORLD)
}

fn build() -> Arc<Snapshot> {
    let mut index = Index::new(Arc::new(PolicyClassifier::new(Arc::new(policy()))));
    for object in objects() {
        let object = convert::object(&object)
            .expect("readable")
            .expect("of a kind that is kept");
        index.apply(Change::Upsert(object));
    }
    index.publish().expect("a first snapshot")
}
