//! Golden bodies: what is sent, letter by letter, and that nothing unknown is lost on the way.

use super::body::*;
use crate::model::{Allocation, Consumer, DeviceId, DeviceResult, NamespacedName, NodeSelector};
use serde_json::{Value, json};
use std::sync::Arc;

fn pod() -> Consumer {
    Consumer {
        resource: "pods".into(),
        name: "train-0".into(),
        uid: "pod-uid".into(),
    }
}

fn plain_result(device: &str) -> DeviceResult {
    DeviceResult {
        request: "gpu".into(),
        id: DeviceId {
            driver: "gpu.nvidia.com".into(),
            pool: "node-a".into(),
            device: device.into(),
        },
        ..DeviceResult::default()
    }
}

fn allocation() -> Allocation {
    Allocation {
        results: vec![plain_result("gpu-0"), plain_result("gpu-1")],
        config: vec![],
        node_selector: Some(Arc::new(NodeSelector::for_node(&"node-a".into()))),
    }
}

/// A claim as an API newer than this code might serve it.
fn claim() -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": "c", "namespace": "ns", "uid": "claim-uid", "resourceVersion": "7",
            "finalizers": ["example.com/other"], "newInMetadata": true,
        },
        "spec": {"devices": {"requests": [{"name": "gpu"}]}, "newInSpec": {"a": [1, 2]}},
        "status": {"newInStatus": "kept"},
    })
}

/// What the API makes of `protect`: the list has its own entries as merge keys.
fn add_finalizer(claim: &mut Value) {
    let patch = protect("claim-uid", "7");
    let added = patch["metadata"]["finalizers"].as_array().expect("a list").clone();
    let list = claim["metadata"]["finalizers"].as_array_mut().expect("a list");
    list.extend(added);
}

#[test]
fn the_finalizer_is_added_to_one_version_of_one_claim() {
    assert_eq!(
        protect("u", "7"),
        json!({"metadata": {"uid": "u", "resourceVersion": "7", "finalizers": ["resource.kubernetes.io/delete-protection"]}})
    );
}

#[test]
fn an_allocation_goes_into_the_document_that_was_read() {
    let mut doc = claim();
    add_finalizer(&mut doc);
    set_allocation(&mut doc, &allocation(), &pod(), "2026-11-29T16:00:00Z");
    insta::assert_json_snapshot!(doc);
}

#[test]
fn a_consumer_is_never_there_twice() {
    let mut doc = claim();
    assert!(add_consumer(&mut doc, &pod()));
    assert!(!add_consumer(&mut doc, &pod()));
    assert_eq!(doc["status"]["reservedFor"].as_array().map(Vec::len), Some(1));
}

#[test]
fn undo_takes_back_exactly_what_was_written_in_two_steps() {
    let before = claim();
    let mut doc = before.clone();
    add_finalizer(&mut doc);
    set_allocation(&mut doc, &allocation(), &pod(), "2026-11-29T16:00:00Z");
    assert_eq!(undo(&mut doc, &pod(), true), Undo::Status);
    assert_eq!(undo(&mut doc, &pod(), true), Undo::Finalizer);
    assert_eq!(doc, before);
    assert_eq!(undo(&mut doc, &pod(), true), Undo::Nothing);
}

#[test]
fn undo_leaves_an_allocation_that_others_use_or_that_is_not_ours_to_clear() {
    let mut doc = claim();
    add_finalizer(&mut doc);
    set_allocation(&mut doc, &allocation(), &pod(), "2026-11-29T16:00:00Z");
    let other = Consumer {
        uid: "other".into(),
        ..pod()
    };
    let alone = doc.clone();
    add_consumer(&mut doc, &other);
    assert_eq!(undo(&mut doc, &pod(), true), Undo::Status);
    assert!(is_allocated(&doc));
    assert_eq!(doc["status"]["reservedFor"][0]["uid"], "other");
    assert_eq!(undo(&mut doc, &pod(), true), Undo::Nothing);

    let mut doc = alone;
    assert_eq!(undo(&mut doc, &pod(), false), Undo::Status);
    assert!(is_allocated(&doc));
    assert_eq!(undo(&mut doc, &pod(), false), Undo::Nothing);
}

#[test]
fn a_finalizer_without_allocation_is_taken_back() {
    let mut doc = claim();
    add_finalizer(&mut doc);
    assert_eq!(undo(&mut doc, &pod(), true), Undo::Finalizer);
    assert_eq!(doc, claim());
}

#[test]
fn binding_and_poke() {
    let pod = NamespacedName::new("ns", "train-0");
    insta::assert_json_snapshot!([binding(&pod, "pod-uid", "node-a"), poke("pod-uid", 42)]);
}

/// Whatever the API answers, these functions edit or leave it; they do not panic.
#[test]
fn documents_of_another_shape_do_no_harm() {
    for doc in [
        json!(null),
        json!([]),
        json!({"metadata": 1, "status": []}),
        json!({"status": {"reservedFor": 3}}),
    ] {
        let mut d = doc.clone();
        drop_finalizer(&mut d);
        add_consumer(&mut d, &pod());
        set_allocation(&mut d, &allocation(), &pod(), "");
        undo(&mut d, &pod(), true);
        assert_eq!(meta(&doc, "uid"), "");
    }
}

#[test]
fn only_our_gate_is_lifted_and_only_off_this_pod() {
    assert_eq!(
        lift_gate("u"),
        json!({"metadata": {"uid": "u"}, "spec": {"schedulingGates": [{"name": "wattlane.dev/admission", "$patch": "delete"}]}})
    );
}
