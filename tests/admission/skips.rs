//! Pods that are none of our business, each by one change to a pod that is.

use std::sync::Arc;

use serde_json::{Value, json};
use wattlane::admission::{Decision, Request, Skip, decide};
use wattlane::convert;
use wattlane::model::DeviceClass;

use super::world;

fn pod() -> Value {
    json!({
        "metadata": {"name": "p", "namespace": "ml", "labels": {}, "annotations": {}},
        "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
    })
}

fn outcome(pod: &Value, namespace: &str, operation: &str) -> Result<(), Skip> {
    let request = Request {
        namespace,
        operation,
        object: pod,
    };
    match decide(&world::snapshot(), &world::policy(), &request) {
        Decision::Patch { .. } => Ok(()),
        Decision::LeaveAlone { reason, .. } => Err(reason),
        Decision::Refuse(refused) => panic!("{refused}"),
    }
}

#[test]
fn left_alone_by_reason() {
    assert_eq!(outcome(&pod(), "ml", "CREATE"), Ok(()));
    assert_eq!(outcome(&pod(), "ml", "UPDATE"), Err(Skip::NotCreate));
    assert_eq!(outcome(&pod(), "off", "CREATE"), Err(Skip::NotOptedIn));
    assert_eq!(outcome(&pod(), "elsewhere", "CREATE"), Err(Skip::UnknownNamespace));
    for (pointer, key, value, want) in [
        (
            "/metadata/labels",
            "wattlane.dev/webhook",
            json!("ignore"),
            Err(Skip::OptedOut),
        ),
        (
            "/metadata/annotations",
            "wattlane.dev/webhook",
            json!("ignore"),
            Err(Skip::OptedOut),
        ),
        ("/metadata/annotations", "wattlane.dev/webhook", json!("no"), Ok(())),
        (
            "/metadata/annotations",
            "kubernetes.io/config.mirror",
            json!("x"),
            Err(Skip::Mirror),
        ),
        (
            "/metadata",
            "ownerReferences",
            json!([{"apiVersion": "apps/v1", "kind": "DaemonSet"}]),
            Err(Skip::DaemonSet),
        ),
        (
            "/metadata",
            "ownerReferences",
            json!([{"apiVersion": "example.com/v1", "kind": "DaemonSet"}]),
            Ok(()),
        ),
        ("/spec", "nodeName", json!("n1"), Err(Skip::Assigned)),
        ("/spec", "nodeName", json!(""), Ok(())),
        ("/spec", "schedulerName", json!("volcano"), Err(Skip::OtherScheduler)),
        ("/spec", "schedulerName", json!("wattlane"), Ok(())),
        ("/spec", "schedulerName", json!(""), Ok(())),
        ("/spec", "containers", json!([{"name": "c"}]), Err(Skip::NothingAsked)),
        ("/spec", "containers", json!("nonsense"), Err(Skip::NothingAsked)),
    ] {
        let mut pod = pod();
        pod.pointer_mut(pointer).expect("there")[key] = value.clone();
        assert_eq!(outcome(&pod, "ml", "CREATE"), want, "{pointer}/{key} = {value}");
    }
    for nonsense in [json!(null), json!([]), json!("pod"), json!({"metadata": 1, "spec": []})] {
        assert_eq!(
            outcome(&nonsense, "ml", "CREATE"),
            Err(Skip::NothingAsked),
            "{nonsense}"
        );
    }
}

#[test]
fn without_a_device_class_the_device_plugin_keeps_the_pod() {
    let mut snapshot = world::snapshot();
    snapshot.classes.remove("gpu.nvidia.com");
    let pod = pod();
    let request = Request {
        namespace: "ml",
        operation: "CREATE",
        object: &pod,
    };
    let policy = world::policy();
    let Decision::LeaveAlone { reason, warnings } = decide(&snapshot, &policy, &request) else {
        panic!("treated");
    };
    assert_eq!(reason, Skip::NoDeviceClass);
    assert!(warnings[0].contains("gpu.nvidia.com"), "{warnings:?}");

    // A class of another name that says it serves the resource will do; of two the newer.
    for (name, created) in [("old", 1), ("new", 2), ("unrelated", 3)] {
        let mut class = device_class(name);
        class.created = created;
        class.extended_resource = (name != "unrelated").then(|| "nvidia.com/gpu".into());
        snapshot.classes.insert(name.into(), Arc::new(class));
    }
    let Decision::Patch {
        templates, warnings, ..
    } = decide(&snapshot, &policy, &request)
    else {
        panic!("not treated");
    };
    assert_eq!(&*templates[0].device_class, "new");
    assert!(
        warnings[0].contains("DeviceClass new, which says it serves it"),
        "{warnings:?}"
    );

    // Claims of it count where the namespace has a limit, as those of the class the policy names.
    let claim = json!([{"name": "own", "resourceClaimName": "four"}]);
    let mut claiming = self::pod();
    claiming["spec"]["resourceClaims"] = claim;
    let four = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "four", "namespace": "research"}, "spec": {"devices": {"requests": [
            {"name": "gpu", "exactly": {"deviceClassName": "new", "count": 4}}]}}});
    let four = convert::claim(&four).expect("readable");
    snapshot.claims.insert(four.key.clone(), Arc::new(four));
    let request = Request {
        namespace: "research",
        object: &claiming,
        ..request
    };
    let decision = decide(&snapshot, &policy, &request);
    assert!(
        matches!(&decision, Decision::Refuse(no) if no.message.contains("asks for 5 GPUs")),
        "{decision:?}"
    );
}

#[test]
fn reasons_have_distinct_names() {
    let names: std::collections::BTreeSet<_> = Skip::ALL.iter().map(|s| s.as_str()).collect();
    assert_eq!(names.len(), Skip::ALL.len());
}

fn device_class(name: &str) -> DeviceClass {
    DeviceClass {
        name: name.into(),
        selectors: vec![],
        config: vec![],
        extended_resource: None,
        created: 0,
        unsupported: None,
    }
}
