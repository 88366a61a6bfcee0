//! Shared devices at admission: devices with consumable capacity, what is made before the answer and what is not, and
//! which shared claims the sweeper takes.

use std::sync::Arc;

use arc_swap::ArcSwap;
use serde_json::{Value, json};
use wattlane::admission::{Admitter, Decision, Request, Shared, decide, unused_shares};
use wattlane::cluster::{Cluster as _, TEMPLATE_REFRESH, embedded::Embedded};
use wattlane::convert::{self, Object, TEMPLATE_LAST_USED};
use wattlane::index::{Change, Index};
use wattlane::model::NamespacedName;
use wattlane::policy::{Policy, PolicyClassifier};
use wattlane::publish;
use wattlane::selector::Selectors;
use wattlane::snapshot::Snapshot;

use super::world;

fn snapshot(objects: &[Value]) -> Arc<Snapshot> {
    let mut index = Index::new(Arc::new(PolicyClassifier::new(Arc::default())));
    for object in objects {
        let object = convert::object(object).expect("readable").expect("a kind that is kept");
        index.apply(Change::Upsert(object));
    }
    index.publish().expect("a change")
}

fn policy(sharing: &str) -> Policy {
    let text = format!(
        "{{apiVersion: wattlane.dev/v1alpha1, kind: PlacementPolicy, namespaces: [{{match: {{}}, sharing: {sharing}}}]}}"
    );
    Policy::read(&text, &Selectors::new()).expect("valid")
}

fn pod(name: &str, annotations: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "chat", "annotations": annotations},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}})
}

fn ask(pod: &Value) -> Request<'_> {
    Request {
        namespace: "chat",
        operation: "CREATE",
        object: pod,
    }
}

/// A cluster whose cards may be given to several claims.
fn with_capacity() -> Vec<Value> {
    let policy = json!({"default": "1Gi", "validRange": {"min": "1Gi"}});
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "chat", "labels": {"wattlane.dev/enabled": "true"}}}),
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu.nvidia.com"}, "spec": {}}),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}),
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "n"}, "spec": {
            "driver": "gpu.nvidia.com", "nodeName": "n", "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0", "allowMultipleAllocations": true,
                "capacity": {"memory": {"value": "96Gi", "requestPolicy": policy}}}]}}),
    ]
}

#[test]
fn devices_with_consumable_capacity_are_shared_through_it() {
    let snapshot = snapshot(&with_capacity());
    let with_memory = policy("{slots: 4, strategy: time-slicing, memoryPerSlot: 8Gi}");
    let decided = |policy: &Policy, annotations: Value| {
        let pod = pod("p", annotations);
        match decide(&snapshot, policy, &ask(&pod)) {
            Decision::Patch { shared, ops, .. } => {
                let mut pod = pod.clone();
                json_patch::patch(&mut pod, &ops).expect("applies");
                // A second call finds nothing to do.
                assert!(
                    matches!(decide(&snapshot, policy, &ask(&pod)), Decision::LeaveAlone { .. }),
                    "{pod}"
                );
                Ok((shared, pod["spec"]["resourceClaims"][0].clone()))
            }
            Decision::Refuse(refused) => Err(refused.to_string()),
            other @ Decision::LeaveAlone { .. } => panic!("{other:?}"),
        }
    };
    let slot = |gib: i64| Shared::Capacity {
        device_class: "gpu.nvidia.com".into(),
        bytes: gib << 30,
    };
    let (shared, entry) = decided(&with_memory, json!({"wattlane.dev/share": "true"})).expect("a slot");
    assert_eq!(shared, [slot(8)]);
    assert_eq!(entry["resourceClaimTemplateName"], json!(&*slot(8).name()));
    let asked = json!({"wattlane.dev/share": "true", "wattlane.dev/memory": "20Gi"});
    assert_eq!(decided(&with_memory, asked).expect("a larger one").0, [slot(20)]);
    let no = decided(&policy("{slots: 4, strategy: mps}"), json!({"wattlane.dev/share": "a"})).expect_err("how much?");
    assert!(no.contains("say how much memory"), "{no}");
    let odd = json!({"wattlane.dev/share": "true", "wattlane.dev/memory": "some"});
    assert!(decided(&with_memory, odd).is_err_and(|no| no.contains("is not a size")));
}

/// A slot is neither a whole card nor no card.
#[test]
fn a_slot_is_told_as_one() {
    let snapshot = snapshot(&with_capacity());
    let policy = policy("{slots: 4, strategy: time-slicing}");
    let mut pod = pod("p", json!({"wattlane.dev/share": "a", "wattlane.dev/memory": "20Gi"}));
    pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpumem"] = json!("3000");
    let Decision::Patch { warnings, .. } = decide(&snapshot, &policy, &ask(&pod)) else {
        panic!("{:?}", decide(&snapshot, &policy, &ask(&pod)))
    };
    let dropped = "wattlane: nvidia.com/gpumem is dropped: the container gets a slot of a card";
    assert_eq!(warnings[0], dropped);
    assert!(
        warnings[1].starts_with("wattlane: the pod shares a card"),
        "{warnings:?}"
    );
    assert_eq!(warnings.len(), 2, "{warnings:?}");
}

/// By whatever vendor's name it was asked for.
#[test]
fn a_partition_is_not_shared() {
    let mut objects = with_capacity();
    objects.push(json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu.amd.com"}, "spec": {}}));
    objects.push(
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "m"}, "spec": {
        "driver": "gpu.amd.com", "nodeName": "n", "pool": {"name": "m", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "part-0", "attributes": {"type": {"string": "amdgpu-partition"},
            "partitionProfile": {"string": "cpx_nps4"}}}]}}),
    );
    let snapshot = snapshot(&objects);
    let policy = policy("{slots: 4, strategy: time-slicing, memoryPerSlot: 8Gi}");
    for resource in ["amd.com/cpx_nps4", "nvidia.com/mig-1g.10gb"] {
        let mut pod = pod("p", json!({"wattlane.dev/share": "a"}));
        pod["spec"]["containers"][0]["resources"]["limits"] = json!({resource: "1"});
        let Decision::Refuse(refused) = decide(&snapshot, &policy, &ask(&pod)) else {
            panic!("{:?}", decide(&snapshot, &policy, &ask(&pod)))
        };
        assert!(
            refused.message.contains("a partition is not shared"),
            "{}",
            refused.message
        );
    }
}

#[tokio::test]
async fn one_claim_is_made_for_all_and_none_on_a_dry_run() {
    let cluster = Arc::new(Embedded::from_yaml("world", include_str!("world.yaml")).expect("the world"));
    let running = publish::spawn(
        Index::new(Arc::new(PolicyClassifier::new(Arc::new(world::policy())))),
        Arc::new(|_, _| false),
    );
    let reader = running.reader.clone();
    let watching = {
        let (cluster, index) = (cluster.clone(), running.index.clone());
        tokio::spawn(async move { cluster.watch(index, Arc::new(super::sweep::Unwatched)).await })
    };
    reader
        .wait_until(std::time::Duration::from_secs(60), |s| {
            s.namespaces.contains_key("chat") && !s.classes.is_empty()
        })
        .await
        .expect("the world is shown");
    let admitters = [(); 2].map(|()| {
        let policy = Arc::new(ArcSwap::from_pointee(world::policy()));
        Admitter::new(cluster.clone(), reader.clone(), policy)
    });
    let pods: Vec<Value> = (0..6)
        .map(|i| pod(&format!("p{i}"), json!({"wattlane.dev/share": "llm"})))
        .collect();
    let shown = admitters[0].admit(&ask(&pods[0]), true).await;
    let Decision::Patch { shared, .. } = shown else {
        panic!("{shown:?}")
    };
    let key = shared[0].key("chat");
    assert_eq!(cluster.claim(&key).await, Ok(None), "a dry run");
    // Two replicas at once.
    let all = pods.iter().enumerate().map(|(i, pod)| {
        let admitter = &admitters[i % 2];
        async move { admitter.admit(&ask(pod), false).await }
    });
    for decision in futures::future::join_all(all).await {
        assert!(
            matches!(&decision, Decision::Patch { shared: s, .. } if *s == shared),
            "{decision:?}"
        );
    }
    let made = cluster.claim(&key).await.expect("readable").expect("made");
    assert_eq!(made.share().map(|s| (s.name, s.slots)), Some(("llm", 4)));
    assert_eq!(*made.spec, shared[0].claim_spec());
    watching.abort();
}

#[test]
fn the_sweeper_takes_shared_claims_that_nobody_needs() {
    const NOW: i64 = 1_800_000_000;
    let shared = Shared::Claim {
        share: "llm".into(),
        slots: 4,
        device_class: "gpu.nvidia.com".into(),
        parameters: json!({"kind": "GpuConfig"}).to_string().into(),
    };
    let at = |age: i64| jiff::Timestamp::from_second(NOW - age).expect("a time").to_string();
    let claim = |age: i64, change: &dyn Fn(&mut Value)| {
        let mut object = shared.object("chat");
        object["metadata"]["annotations"][TEMPLATE_LAST_USED] = json!(at(age));
        object["metadata"]["uid"] = json!("u");
        change(&mut object);
        object
    };
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "chat"}});
    let goes = |claim: Value, more: &[Value]| {
        let mut objects = vec![namespace.clone(), claim];
        objects.extend_from_slice(more);
        unused_shares(&snapshot(&objects), NOW).len() == 1
    };
    let old = 2 * TEMPLATE_REFRESH;
    assert!(goes(claim(old, &|_| ()), &[]));
    assert!(!goes(claim(old - 1, &|_| ()), &[]));
    let in_use = |c: &mut Value| {
        c["status"] = json!({"allocation": {"devices": {"results": []}},
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "p"}]});
    };
    assert!(!goes(claim(old, &in_use), &[]));
    // Allocated, and reserved for nobody: the device is free when it goes.
    let leaked = |c: &mut Value| c["status"] = json!({"allocation": {"devices": {"results": []}}});
    assert!(goes(claim(old, &leaked), &[]));
    assert!(!goes(claim(old, &|c| c["metadata"]["labels"] = json!({})), &[]));
    assert!(!goes(claim(old, &|c| c["spec"]["devices"]["config"] = json!([])), &[]));
    let named = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "chat", "uid": "p"},
        "spec": {"containers": [], "resourceClaims": [{"name": "g", "resourceClaimName": &*shared.name()}]}});
    assert!(!goes(claim(old, &|_| ()), &[named]));
    let Ok(Some(Object::Claim(read))) = convert::object(&claim(0, &|_| ())) else {
        panic!("a claim")
    };
    assert_eq!(read.key, NamespacedName::new("chat", shared.name()));
}
