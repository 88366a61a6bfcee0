//! The embedded cluster by itself: what the API server and the claim controller would say. `round` has it behind a
//! real index task, `real_data` reads the shared slices.

mod real_data;
mod round;

use std::sync::Arc;

use serde_json::{Value, json};

use super::Embedded;
use crate::cluster::{Cluster as _, WriteError};
use crate::model::{Allocation, Claim, Consumer, DeviceId, DeviceResult, NamespacedName, Pod};

const SMALL: &str = "\
apiVersion: v1
kind: Namespace
metadata: {name: ml, labels: {wattlane.dev/enabled: 'true'}}
---
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {kubernetes.io/hostname: n1}}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec: {selectors: [{cel: {expression: device.driver == 'gpu.example.com'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s1}
spec:
  driver: gpu.example.com
  nodeName: n1
  pool: {name: n1, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}, {name: gpu-1}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one, namespace: ml}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: shared, namespace: ml}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: ignored, namespace: ml}
---
apiVersion: v1
kind: Pod
metadata: {name: waits, namespace: ml}
spec: {containers: [{name: c}], resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]}
";

fn small() -> Embedded {
    Embedded::from_yaml("small", SMALL).unwrap()
}

fn pod(name: &str, claims: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "ml"}, "spec": {"resourceClaims": claims}})
}

fn from_template() -> Value {
    json!([{"name": "gpu", "resourceClaimTemplateName": "one"}])
}

fn key(name: &str) -> NamespacedName {
    NamespacedName::new("ml", name)
}

fn consumer(pod: &Pod) -> Consumer {
    numbered(&pod.key.name, &pod.uid)
}

fn numbered(name: &str, uid: &str) -> Consumer {
    Consumer {
        resource: "pods".into(),
        name: name.into(),
        uid: uid.into(),
    }
}

fn device(name: &str) -> Allocation {
    let id = DeviceId {
        driver: "gpu.example.com".into(),
        pool: "n1".into(),
        device: name.into(),
    };
    Allocation {
        results: vec![DeviceResult {
            request: "gpu".into(),
            id,
            ..DeviceResult::default()
        }],
        ..Allocation::default()
    }
}

async fn claim(cluster: &Embedded, name: &str) -> Claim {
    cluster.claim(&key(name)).await.unwrap().unwrap()
}

fn conflict<T: std::fmt::Debug>(result: Result<T, WriteError>) -> String {
    match result {
        Err(WriteError::Conflict(what)) => what,
        other => panic!("{other:?}"),
    }
}

fn refused<T: std::fmt::Debug>(result: Result<T, WriteError>) -> String {
    match result {
        Err(WriteError::Refused(what)) => what,
        other => panic!("{other:?}"),
    }
}

fn fails(text: &str) -> String {
    match Embedded::from_yaml("f", text) {
        Ok(_) => panic!("loads: {text}"),
        Err(e) => format!("{e:#}"),
    }
}

#[tokio::test]
async fn a_pod_gets_its_claims_at_once_and_takes_them_along() {
    let cluster = small();
    assert_eq!(cluster.assumptions(), [""; 0]);
    assert_eq!(cluster.skipped().get("apps/v1 Deployment").map(|s| s.count), Some(1));
    let [waits] = &cluster.pending()[..] else { panic!() };
    assert!(cluster.pod_json("ml", "waits").is_none(), "not in the cluster yet");

    let pod = cluster.create_pod(waits.clone()).await.unwrap();
    assert_eq!(pod.claims[0].claim_name().map(|n| &**n), Some("waits-gpu"));
    let json = cluster.pod_json("ml", "waits").unwrap();
    assert_eq!(
        json["status"]["resourceClaimStatuses"],
        json!([{"name": "gpu", "resourceClaimName": "waits-gpu"}])
    );
    assert_eq!(json["metadata"]["uid"].as_str(), Some(&*pod.uid));
    let made = claim(&cluster, "waits-gpu").await;
    assert_eq!(made.owner_pod.as_ref(), Some(&pod.uid));
    assert_eq!(made.spec, claim(&cluster, "shared").await.spec);

    assert!(refused(cluster.create_pod(waits.clone()).await).contains("already exists"));
    cluster.delete_pod("ml", "waits").await.unwrap();
    assert_eq!(cluster.claim(&key("waits-gpu")).await, Ok(None));
    assert!(matches!(
        cluster.delete_pod("ml", "waits").await,
        Err(WriteError::NotFound(_))
    ));

    let again = cluster.create_pod(waits.clone()).await.unwrap();
    assert_ne!(again.uid, pod.uid);
    assert_ne!(claim(&cluster, "waits-gpu").await.uid, made.uid);
}

#[tokio::test]
async fn what_cannot_be_created_leaves_nothing_behind() {
    let cluster = small();
    let missing = json!([
        {"name": "gpu", "resourceClaimTemplateName": "one"},
        {"name": "x", "resourceClaimTemplateName": "none"},
    ]);
    let what = refused(cluster.create_pod(pod("p", missing)).await);
    assert!(what.contains("ml/none") && what.contains("does not exist"), "{what}");
    assert_eq!(cluster.claim(&key("p-gpu")).await, Ok(None));
    assert!(cluster.pod_json("ml", "p").is_none());

    cluster.create_pod(pod("a", from_template())).await.unwrap();
    // `a-gpu` for the entry `gpu` of `a` and for an entry of a pod with a longer name.
    let entry = json!([{"name": "gpu", "resourceClaimTemplateName": "one"}]);
    cluster.create_pod(pod("a-b", entry)).await.unwrap();
    let taken = json!([{"name": "b-gpu", "resourceClaimTemplateName": "one"}]);
    cluster.delete_pod("ml", "a").await.unwrap();
    let what = refused(cluster.create_pod(pod("a", taken)).await);
    assert!(what.contains("ml/a-b-gpu") && what.contains("not this pod's"), "{what}");

    let mut elsewhere = pod("p", json!([]));
    elsewhere["metadata"]["namespace"] = "nowhere".into();
    assert!(refused(cluster.create_pod(elsewhere).await).contains("namespace nowhere not found"));
    for nonsense in [
        json!(null),
        json!([]),
        json!({"metadata": {"name": "p"}, "spec": [null, null, null, null, null]}),
        json!({"metadata": [], "spec": {}}),
        json!({"spec": {}}),
    ] {
        refused(cluster.create_pod(nonsense).await);
    }
}

#[tokio::test]
async fn allocation_wants_the_claim_as_it_is_and_is_immutable() {
    let cluster = small();
    let pod = cluster.create_pod(pod("p", from_template())).await.unwrap();
    let before = claim(&cluster, "p-gpu").await;
    let written = cluster
        .allocate(&before, &device("gpu-0"), &consumer(&pod))
        .await
        .unwrap();
    assert_eq!(written.allocation.as_deref(), Some(&device("gpu-0")));
    assert_eq!(written.reserved_for, [consumer(&pod)]);
    let version = |c: &Claim| c.resource_version.parse::<u64>().unwrap();
    assert!(version(&written) > version(&before));
    assert_eq!(claim(&cluster, "p-gpu").await, written);

    assert!(conflict(cluster.allocate(&before, &device("gpu-1"), &consumer(&pod)).await).contains("modified"));
    assert!(refused(cluster.allocate(&written, &device("gpu-1"), &consumer(&pod)).await).contains("immutable"));
    let other = Claim {
        uid: "other".into(),
        ..written.clone()
    };
    assert!(conflict(cluster.allocate(&other, &device("gpu-0"), &consumer(&pod)).await).contains("gone"));
    let gone = Claim {
        key: key("none"),
        ..written.clone()
    };
    let result = cluster.allocate(&gone, &device("gpu-0"), &consumer(&pod)).await;
    assert!(matches!(result, Err(WriteError::NotFound(_))), "{result:?}");

    let mut big = device("gpu-0");
    big.results = vec![big.results[0].clone(); 33];
    let shared = claim(&cluster, "shared").await;
    assert!(refused(cluster.allocate(&shared, &big, &consumer(&pod)).await).contains("at most 32"));
}

#[tokio::test]
async fn a_shared_claim_is_freed_with_its_last_pod() {
    let cluster = small();
    let shares = || json!([{"name": "gpu", "resourceClaimName": "shared"}]);
    let a = cluster.create_pod(pod("a", shares())).await.unwrap();
    let b = cluster.create_pod(pod("b", shares())).await.unwrap();
    let start = claim(&cluster, "shared").await;
    conflict(cluster.reserve(&start, &consumer(&a), None).await);
    let first = cluster.allocate(&start, &device("gpu-0"), &consumer(&a)).await.unwrap();
    let both = cluster.reserve(&first, &consumer(&b), None).await.unwrap();
    // As often as you like, also with what was read before; but not where it was given again meanwhile.
    assert_eq!(cluster.reserve(&first, &consumer(&b), None).await, Ok(both.clone()));
    let placed_elsewhere = Claim {
        allocation: Some(Arc::new(device("gpu-1"))),
        ..first.clone()
    };
    conflict(cluster.reserve(&placed_elsewhere, &consumer(&b), None).await);

    cluster.delete_pod("ml", "a").await.unwrap();
    let left = claim(&cluster, "shared").await;
    assert_eq!(left.reserved_for, [consumer(&b)]);
    assert!(left.allocation.is_some());
    cluster.delete_pod("ml", "b").await.unwrap();
    let free = claim(&cluster, "shared").await;
    assert_eq!((free.reserved_for.len(), &free.allocation), (0, &None));
    assert_eq!(free.uid, start.uid);
}

#[tokio::test]
async fn undoing_takes_back_only_what_is_there() {
    let cluster = small();
    let (p, q) = (numbered("p", "p"), numbered("q", "q"));
    let start = claim(&cluster, "shared").await;
    let first = cluster.allocate(&start, &device("gpu-0"), &p).await.unwrap();
    cluster.reserve(&first, &q, None).await.unwrap();
    cluster.unreserve(&start.key, &start.uid, &p, true).await.unwrap();
    let left = claim(&cluster, "shared").await;
    assert!(
        left.allocation.is_some() && left.reserved_for == [q.clone()],
        "{left:?}"
    );
    cluster.unreserve(&start.key, &start.uid, &q, false).await.unwrap();
    let left = claim(&cluster, "shared").await;
    assert!(left.allocation.is_some() && left.reserved_for.is_empty(), "{left:?}");
    cluster.unreserve(&start.key, "another", &q, true).await.unwrap();
    cluster.unreserve(&key("none"), "u", &q, true).await.unwrap();
    assert_eq!(claim(&cluster, "shared").await, left, "nothing to undo writes nothing");
    cluster.unreserve(&start.key, &start.uid, &q, true).await.unwrap();
    assert_eq!(claim(&cluster, "shared").await.allocation, None);
}

#[tokio::test]
async fn no_more_pods_than_there_are_slots() {
    let cluster = small();
    let start = claim(&cluster, "shared").await;
    let [p, q, r] = ["p", "q", "r"].map(|name| numbered(name, name));
    let first = cluster.allocate(&start, &device("gpu-0"), &p).await.unwrap();
    conflict(cluster.reserve(&first, &q, Some(1)).await);
    assert_eq!(cluster.reserve(&first, &p, Some(1)).await, Ok(first.clone()), "its own");
    let both = cluster.reserve(&first, &q, Some(2)).await.unwrap();
    assert_eq!(both.reserved_for, [p.clone(), q.clone()]);
    // Though two were free when this was read.
    conflict(cluster.reserve(&first, &r, Some(2)).await);
    assert_eq!(claim(&cluster, "shared").await.reserved_for, [p, q]);
}

#[tokio::test]
async fn no_more_than_256_pods_share_a_claim() {
    let cluster = small();
    let start = claim(&cluster, "shared").await;
    let mut now = cluster
        .allocate(&start, &device("gpu-0"), &numbered("p", "0"))
        .await
        .unwrap();
    for i in 1..256 {
        now = cluster
            .reserve(&now, &numbered("p", &i.to_string()), None)
            .await
            .unwrap();
    }
    assert_eq!(now.reserved_for.len(), 256);
    assert!(refused(cluster.reserve(&now, &numbered("p", "256"), None).await).contains("256"));
    cluster.reserve(&now, &numbered("p", "7"), None).await.unwrap();
}

#[tokio::test]
async fn binding_is_once_and_to_one_node() {
    let cluster = small();
    let pod = cluster.create_pod(pod("p", json!([]))).await.unwrap();
    conflict(cluster.bind(&pod.key, "other", "n1").await);
    cluster.bind(&pod.key, &pod.uid, "n1").await.unwrap();
    cluster.bind(&pod.key, &pod.uid, "n1").await.unwrap();
    assert!(conflict(cluster.bind(&pod.key, &pod.uid, "n2").await).contains("n1"));
    let result = cluster.bind(&key("none"), "u", "n1").await;
    assert!(matches!(result, Err(WriteError::NotFound(_))), "{result:?}");
    let bound = cluster.pod(&pod.key).await.unwrap().unwrap();
    assert_eq!((&*bound.node_name, &bound.uid), ("n1", &pod.uid));
    assert_eq!(cluster.pod_json("ml", "p").unwrap()["spec"]["nodeName"], "n1");
    cluster.poke(&pod.key, &pod.uid).await.unwrap();
}

#[tokio::test]
async fn templates_of_ours_are_made_once_and_strangers_are_left_alone() {
    let cluster = small();
    let template = |count: u32| {
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
            "metadata": {"name": "wl", "namespace": "ml", "labels": {"by": "wattlane"}},
            "spec": {"spec": {"devices": {"requests": [
                {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", "count": count}}]}}},
        })
    };
    cluster.ensure_template(&template(1)).await.unwrap();
    // The API server's defaults are the same content.
    let mut spelled_out = template(1);
    spelled_out["spec"]["spec"]["devices"]["requests"][0]["exactly"]["allocationMode"] = "ExactCount".into();
    cluster.ensure_template(&spelled_out).await.unwrap();
    assert!(refused(cluster.ensure_template(&template(2)).await).contains("other content"));
    let mut foreign = template(1);
    foreign["metadata"]["name"] = "one".into();
    assert!(refused(cluster.ensure_template(&foreign).await).contains("labels"));
    refused(cluster.ensure_template(&json!({"kind": "Pod"})).await);

    let uses = json!([{"name": "gpu", "resourceClaimTemplateName": "wl"}]);
    cluster.create_pod(pod("p", uses)).await.unwrap();
    assert!(cluster.claim(&key("p-gpu")).await.unwrap().is_some());
}

#[tokio::test]
async fn running_pods_keep_their_claims_or_get_them() {
    let text = format!(
        "{SMALL}---
apiVersion: v1
kind: Pod
metadata: {{name: runs, namespace: ml, uid: u-runs}}
spec: {{nodeName: n1, resourceClaims: [{{name: gpu, resourceClaimTemplateName: one}}]}}
status: {{resourceClaimStatuses: [{{name: gpu, resourceClaimName: runs-gpu-x7k}}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: runs-gpu-x7k
  namespace: ml
  uid: u-claim
  resourceVersion: '900'
  ownerReferences: [{{apiVersion: v1, kind: Pod, name: runs, uid: u-runs, controller: true}}]
spec: {{devices: {{requests: [{{name: gpu, exactly: {{deviceClassName: gpu.example.com}}}}]}}}}
status:
  allocation: {{devices: {{results: [{{request: gpu, driver: gpu.example.com, pool: n1, device: gpu-1}}]}}}}
  reservedFor: [{{resource: pods, name: runs, uid: u-runs}}]
---
apiVersion: v1
kind: Pod
metadata: {{name: bare, namespace: ml}}
spec: {{nodeName: n1, resourceClaims: [{{name: gpu, resourceClaimTemplateName: one}}]}}
---
apiVersion: v1
kind: Pod
metadata: {{name: lost, namespace: ml}}
spec: {{nodeName: n1, resourceClaims: [{{name: gpu, resourceClaimTemplateName: none}}]}}
---
apiVersion: v1
kind: Pod
metadata: {{name: done, namespace: ml}}
spec: {{nodeName: n1, resourceClaims: [{{name: gpu, resourceClaimTemplateName: none}}]}}
status: {{phase: Succeeded}}
"
    );
    let cluster = Embedded::from_yaml("f", &text).unwrap();
    assert_eq!(cluster.pending().len(), 1);
    let held = claim(&cluster, "runs-gpu-x7k").await;
    assert_eq!((&*held.uid, &*held.resource_version), ("u-claim", "900"));
    assert_eq!(held.allocation.as_deref(), Some(&device("gpu-1")));
    let bare = claim(&cluster, "bare-gpu").await;
    assert!(bare.allocation.is_none() && bare.owner_pod.is_some());
    assert!(bare.resource_version.parse::<u64>().unwrap() > 900);
    assert!(cluster.pod(&key("done")).await.unwrap().is_some());
    let [said] = cluster.assumptions() else {
        panic!("{:?}", cluster.assumptions())
    };
    assert!(
        said.contains("not in the files: 1 ") && said.contains("ml/lost"),
        "{said}"
    );
}

#[test]
fn kinds_that_are_left_out_are_assumed_and_said() {
    let slice = |name: &str| {
        format!(
            "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {{name: s-{name}}}\nspec: {{driver: d, \
             nodeName: {name}, pool: {{name: {name}, generation: 1, resourceSliceCount: 1}}}}\n---\n"
        )
    };
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: team}\nspec: {}\n";
    let cluster = Embedded::from_yaml("f", &format!("{}{}{pod}", slice("b"), slice("a"))).unwrap();
    let said = cluster.assumptions();
    assert_eq!(said.len(), 3, "{said:?}");
    assert!(said[0].contains("no Node") && said[0].contains("the 2"), "{said:?}");
    assert!(said[1].contains("no Namespace"), "{said:?}");
    assert!(
        said[2].contains("no DeviceClass") && said[2].contains("mig.nvidia.com"),
        "{said:?}"
    );
}

#[test]
fn namespaces_have_the_label_of_their_name_and_default_is_there_if_it_is_used() {
    let team = "apiVersion: v1\nkind: Namespace\nmetadata: {name: team, labels: {a: b}}\n---\n";
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {}\n---\n";
    let says = "Namespace default, which every cluster has, not opted in";
    for (text, names, said) in [
        (team.to_owned(), vec!["team"], false),
        (format!("{team}{pod}"), vec!["default", "team"], true),
        (pod.to_owned(), vec!["default"], false),
    ] {
        let cluster = Embedded::from_yaml("f", &text).expect("loads");
        assert_eq!(cluster.assumptions().iter().any(|a| a == says), said, "{text}");
        let state = cluster.state.lock().expect("nobody panicked");
        let labelled = state
            .namespaces
            .values()
            .map(|n| n.labels["kubernetes.io/metadata.name"].to_string());
        assert_eq!(labelled.collect::<Vec<_>>(), names);
        assert!(
            state
                .namespaces
                .values()
                .all(|n| n.labels["kubernetes.io/metadata.name"] == n.name)
        );
    }
}

#[test]
fn what_cannot_be_kept_is_an_error_with_file_and_object() {
    let old = "apiVersion: resource.k8s.io/v1alpha3\nkind: ResourceSlice\nmetadata: {name: s}\nspec: {}\n";
    let error = fails(old);
    assert!(
        error.starts_with("f, document 1: ResourceSlice s") && error.contains("v1alpha3"),
        "{error}"
    );
    let nameless = "apiVersion: v1\nkind: Pod\nmetadata: {}\nspec: {}\n";
    assert!(fails(nameless).contains("metadata.name"));
    let bad = "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {name: s}\nspec: {driver: [1]}\n";
    let error = fails(bad);
    assert!(
        error.contains("ResourceSlice s") && error.contains("spec.driver"),
        "{error}"
    );

    let pod =
        |node: &str| format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{nodeName: '{node}'}}\n---\n");
    assert!(fails(&format!("{}{}", pod("a"), pod("b"))).contains("Pod default/p is there twice"));
    assert!(Embedded::from_yaml("f", &format!("{}{}", pod("a"), pod("a"))).is_ok());
    let node = |zone: &str| format!("apiVersion: v1\nkind: Node\nmetadata: {{name: n, labels: {{z: {zone}}}}}\n---\n");
    assert!(fails(&format!("{}{}", node("a"), node("b"))).contains("Node n is there twice"));
}
