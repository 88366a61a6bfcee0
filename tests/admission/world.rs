//! A small cluster and a policy, built by hand: what `decide` reads and nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;

use wattlane::model::{Bits, Classified, Device, DeviceClass, Labels, Name, Namespace, NodeScope, WattOrigin};
use wattlane::policy::Policy;
use wattlane::selector::Selectors;
use wattlane::snapshot::{MaskCache, Pool, PoolDevice, PoolHealth, PoolState, Snapshot};

pub(crate) const POLICY: &str = r#"
apiVersion: wattlane.dev/v1alpha1
kind: PlacementPolicy
classes:
- name: server-600w
  match: device.driver == "gpu.nvidia.com"
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
defaults: {runtimeClassName: nvidia}
"#;

pub(crate) fn labels(pairs: &[(&str, &str)]) -> Labels {
    let pairs = pairs.iter().map(|(k, v)| (Name::from(*k), Name::from(*v)));
    Arc::new(pairs.collect::<BTreeMap<_, _>>())
}

pub(crate) fn policy() -> Policy {
    Policy::read(POLICY, &Selectors::new()).expect("the test policy is valid")
}

fn device(class: &str) -> PoolDevice {
    PoolDevice {
        device: Arc::new(Device {
            name: "gpu-0".into(),
            attributes: Box::default(),
            capacity: Box::default(),
            taints: Box::default(),
            consumes: Box::default(),
            nodes: None,
            allow_multiple: false,
            binds_to_node: false,
            binding_conditions: Box::default(),
            binding_failure_conditions: Box::default(),
        }),
        classified: Classified {
            class: Some(class.into()),
            watts: None,
            origin: WattOrigin::Unknown,
            board: None,
        },
        scope: NodeScope::Node("n".into()),
    }
}

pub(crate) fn device_class(name: &str) -> DeviceClass {
    DeviceClass {
        name: name.into(),
        selectors: vec![],
        config: vec![],
        extended_resource: None,
        created: 0,
        unsupported: None,
    }
}

/// Namespaces `off` (not opted in), `ml` (no rule), `research` and `serving` (rules of the policy above).
pub(crate) fn snapshot() -> Snapshot {
    let mut snapshot = Snapshot::default();
    let enabled = ("wattlane.dev/enabled", "true");
    for (name, labels) in [
        ("off", labels(&[])),
        ("ml", labels(&[enabled])),
        ("research", labels(&[enabled, ("team", "research")])),
        ("serving", labels(&[enabled, ("team", "serving")])),
    ] {
        let namespace = Namespace {
            name: name.into(),
            labels,
            deleting: false,
        };
        snapshot.namespaces.insert(name.into(), Arc::new(namespace));
    }
    for name in ["gpu.nvidia.com", "gpu.amd.com"] {
        snapshot.classes.insert(name.into(), Arc::new(device_class(name)));
    }
    for name in ["nvidia", "nvidia-legacy", "runc"] {
        snapshot.runtime_classes.insert(name.into(), ());
    }
    let classes = ["h200-700w", "h20-500w", "l4-72w", "instinct-mi300x-oam-750w"];
    let pool = Pool {
        driver: "gpu.nvidia.com".into(),
        name: "n".into(),
        generation: 1,
        health: PoolHealth::Complete,
        devices: classes.into_iter().map(device).collect(),
        by_name: BTreeMap::new(),
        counter_sets: vec![],
        masks: MaskCache::default(),
        summary: std::sync::OnceLock::new(),
        boards: std::sync::OnceLock::new(),
    };
    let state = PoolState {
        taken: Bits::new(pool.devices.len()),
        pool: Arc::new(pool),
        shared: BTreeMap::new(),
        counters_left: vec![],
        holds: None,
    };
    snapshot.pools = Arc::new(vec![Some(Arc::new(state))]);
    snapshot
}
