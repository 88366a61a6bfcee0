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

/// The same pod behind our gate, and somebody else's.
fn gated(mut pod: Value) -> Value {
    pod["spec"]["schedulingGates"] = json!([{"name": "example.com/quota"}, {"name": "wattlane.dev/admission"}]);
    pod
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
    let Decision::LeaveAlone { reason, warnings, .. } = decide(&snapshot, &policy, &request) else {
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

/// Whatever is decided about a pod, our gate goes with it and another stays; where the namespace is not known, both stay.
#[test]
fn the_gate_goes_with_the_decision() {
    let decide_on = |pod: &Value, namespace: &'static str| {
        let request = Request {
            namespace,
            operation: "CREATE",
            object: pod,
        };
        decide(&world::snapshot(), &world::policy(), &request)
    };
    let mut opted_out = pod();
    opted_out["metadata"]["labels"] = json!({"wattlane.dev/webhook": "ignore"});
    let mut other = pod();
    other["spec"]["schedulerName"] = json!("volcano");
    for plain in [pod(), opted_out, other] {
        let mut without = plain.clone();
        without["spec"]["schedulingGates"] = json!([{"name": "example.com/quota"}]);
        // As if there had never been a gate of ours.
        if let Decision::Patch { ops, .. } = decide_on(&without, "ml") {
            json_patch::patch(&mut without, &ops).expect("the patch applies");
        }
        let mut came = gated(plain);
        let Decision::Patch { ops, .. } = decide_on(&came, "ml") else {
            panic!("the gate stays on {came}")
        };
        json_patch::patch(&mut came, &ops).expect("the patch applies");
        assert_eq!(came, without);
        assert!(
            !matches!(decide_on(&came, "ml"), Decision::Patch { .. }),
            "nothing is left to do"
        );
    }
    for namespace in ["off", "elsewhere"] {
        assert!(matches!(
            decide_on(&gated(pod()), namespace),
            Decision::LeaveAlone { .. }
        ));
    }
    let mut only = pod();
    only["spec"]["schedulingGates"] = json!([{"name": "wattlane.dev/admission"}]);
    let Decision::Patch { ops, .. } = decide_on(&only, "ml") else {
        panic!("the gate stays")
    };
    json_patch::patch(&mut only, &ops).expect("the patch applies");
    assert!(only["spec"].get("schedulingGates").is_none());
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

/// A pod that was treated in an earlier life names a template that may be gone: with the gate as without it.
#[test]
fn templates_of_a_treated_pod_are_wanted_with_the_gate_too() {
    let (snapshot, policy) = (world::snapshot(), world::policy());
    let ask = |object: &Value| {
        let request = Request {
            namespace: "ml",
            operation: "CREATE",
            object,
        };
        decide(&snapshot, &policy, &request)
    };
    let mut treated = pod();
    let Decision::Patch { ops, templates, .. } = ask(&treated) else {
        panic!("it is treated")
    };
    assert!(!templates.is_empty());
    json_patch::patch(&mut treated, &ops).expect("the patch applies");
    let Decision::Patch { templates: again, .. } = ask(&gated(treated)) else {
        panic!("the gate goes")
    };
    assert_eq!(again, templates);
}

/// What is not claimed is the API server's business, however it is spelt.
#[test]
fn a_spelling_is_only_refused_where_a_claim_would_be_made() {
    let mut pod = pod();
    pod["spec"]["containers"][0]["resources"]["limits"] = json!({"nvidia.com/gpu": "2000m"});
    let request = |namespace, object| Request {
        namespace,
        operation: "CREATE",
        object,
    };
    let (snapshot, policy) = (world::snapshot(), world::policy());
    let Decision::Refuse(refused) = decide(&snapshot, &policy, &request("ml", &pod)) else {
        panic!("taken");
    };
    assert!(refused.message.ends_with("write 2"), "{refused}");
    assert_eq!(outcome(&pod, "off", "CREATE"), Err(Skip::NotOptedIn));
    let mut without = world::snapshot();
    without.classes.remove("gpu.nvidia.com");
    let left = decide(&without, &policy, &request("ml", &pod));
    assert!(
        matches!(
            left,
            Decision::LeaveAlone {
                reason: Skip::NoDeviceClass,
                ..
            }
        ),
        "{left:?}"
    );
    let mut none = pod;
    none["spec"]["containers"][0]["resources"]["limits"] = json!({"nvidia.com/gpu": "0m"});
    assert_eq!(outcome(&none, "ml", "CREATE"), Err(Skip::NothingAsked));
}

/// Advice leads to what a pod's author may write, and to where it is read.
#[test]
fn a_key_in_the_wrong_place_or_nobodys_to_set_is_warned_about() {
    let said = |part: &str, key: &str| {
        let mut pod = pod();
        pod["metadata"][part] = json!({key: "x"});
        let request = Request {
            namespace: "ml",
            operation: "CREATE",
            object: &pod,
        };
        let warnings = match decide(&world::snapshot(), &world::policy(), &request) {
            Decision::Patch { warnings, .. } | Decision::LeaveAlone { warnings, .. } => warnings,
            Decision::Refuse(refused) => panic!("{refused:?}"),
        };
        warnings.join("; ")
    };
    let of_label = said("labels", "wattlane.dev/class");
    assert!(of_label.contains("label wattlane.dev/class is not read"), "{of_label}");
    assert!(of_label.contains("annotation"), "{of_label}");
    for key in ["wattlane.dev/webhook", "wattlane.dev/leader", "team"] {
        assert_eq!(said("labels", key), "", "{key}");
    }
    let misspelt = said("annotations", "wattlane.dev/admited");
    assert!(misspelt.contains("means nothing to wattlane"), "{misspelt}");
    assert!(!misspelt.contains("did you mean"), "{misspelt}");
    let misspelt = said("annotations", "wattlane.dev/clas");
    assert!(misspelt.contains("did you mean wattlane.dev/class?"), "{misspelt}");
}
