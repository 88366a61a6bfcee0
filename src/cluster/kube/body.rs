//! The JSON of every write, as pure functions from the object that was read to the body that is sent.
//!
//! A PUT replaces the whole object, so these edit the raw document: fields this code does not know come back as they
//! came. Shapes are those of resource.k8s.io/v1 and core/v1 (facts: kube-controller-manager's and the in-tree
//! plugin's own writes look the same).

use serde_json::{Map, Value, json};

use crate::convert::{allocation_json, consumer_json};
use crate::model::{Allocation, Consumer, FINALIZER, GATE, NamespacedName};

/// Text of `metadata.<field>`, empty where there is none.
pub(super) fn meta<'a>(doc: &'a Value, field: &str) -> &'a str {
    doc.pointer("/metadata")
        .and_then(|m| m.get(field))
        .and_then(Value::as_str)
        .unwrap_or("")
}

/// Strategic merge patch that adds the finalizer, beside others, to exactly this version of the claim.
pub(super) fn protect(uid: &str, version: &str) -> Value {
    json!({"metadata": {"uid": uid, "resourceVersion": version, "finalizers": [FINALIZER]}})
}

/// Takes the finalizer out; false: it was not there.
pub(super) fn drop_finalizer(claim: &mut Value) -> bool {
    if !has_finalizer(claim) {
        return false;
    }
    if let Some(Value::Array(list)) = child(claim, "metadata").and_then(|m| m.get_mut("finalizers")) {
        list.retain(|f| f != FINALIZER);
    }
    true
}

fn has_finalizer(claim: &Value) -> bool {
    claim
        .pointer("/metadata/finalizers")
        .and_then(Value::as_array)
        .is_some_and(|l| l.iter().any(|f| f == FINALIZER))
}

pub(super) fn is_allocated(claim: &Value) -> bool {
    claim.pointer("/status/allocation").is_some_and(|a| !a.is_null())
}

/// Writes allocation and reservation into the status. `timestamp` is RFC 3339 with whole seconds.
pub(super) fn set_allocation(claim: &mut Value, allocation: &Allocation, pod: &Consumer, timestamp: &str) {
    let mut written = allocation_json(allocation);
    if let Some(map) = written.as_object_mut() {
        map.insert("allocationTimestamp".to_owned(), json!(timestamp));
    }
    if let Some(status) = child(claim, "status") {
        status.insert("allocation".to_owned(), written);
    }
    add_consumer(claim, pod);
}

/// Adds the pod to reservedFor; false: its UID was there.
pub(super) fn add_consumer(claim: &mut Value, pod: &Consumer) -> bool {
    let Some(status) = child(claim, "status") else {
        return false;
    };
    let entry = consumer_json(pod);
    match status.get_mut("reservedFor") {
        // A second entry for one UID is a 422.
        Some(Value::Array(list)) if list.iter().any(|c| uid_of(c) == &*pod.uid) => return false,
        Some(Value::Array(list)) => list.push(entry),
        _ => {
            status.insert("reservedFor".to_owned(), json!([entry]));
        }
    }
    true
}

/// What `unreserve` has to write next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Undo {
    Nothing,
    /// PUT this to the status endpoint.
    Status,
    /// PUT this to the object: only the finalizer is left of ours.
    Finalizer,
}

/// Takes the pod out of the claim and, when `deallocate` and nobody else holds it, the allocation; a claim without
/// allocation loses the finalizer. One step a call: the caller writes, and asks again with what came back.
pub(super) fn undo(claim: &mut Value, pod: &Consumer, deallocate: bool) -> Undo {
    let mut changed = false;
    if let Some(status) = claim.get_mut("status").and_then(Value::as_object_mut) {
        if let Some(Value::Array(list)) = status.get_mut("reservedFor") {
            let before = list.len();
            list.retain(|c| uid_of(c) != &*pod.uid);
            changed = list.len() != before;
        }
        let held = status
            .get("reservedFor")
            .and_then(Value::as_array)
            .is_some_and(|l| !l.is_empty());
        if !held && status.contains_key("reservedFor") {
            status.remove("reservedFor");
        }
        if deallocate && !held && status.get("allocation").is_some_and(|a| !a.is_null()) {
            status.remove("allocation");
            // Drivers report on allocated devices only; the API refuses entries for others.
            status.remove("devices");
            changed = true;
        }
    }
    if changed {
        return Undo::Status;
    }
    // The finalizer protects allocations. Without one it is what an interrupted attempt of ours left behind, and it
    // would keep the claim from being deleted.
    let held = claim
        .pointer("/status/reservedFor")
        .and_then(Value::as_array)
        .is_some_and(|l| !l.is_empty());
    if deallocate && !held && !is_allocated(claim) && drop_finalizer(claim) {
        return Undo::Finalizer;
    }
    Undo::Nothing
}

/// Body of POST pods/binding. The UID is a precondition.
pub(super) fn binding(pod: &NamespacedName, uid: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"namespace": &*pod.namespace, "name": &*pod.name, "uid": uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    })
}

/// Merge patch that changes a label (an annotation would not make kube-scheduler look again). The UID is a
/// precondition.
pub(super) fn poke(uid: &str, n: u128) -> Value {
    json!({"metadata": {"uid": uid, "labels": {"wattlane.dev/poked": n.to_string()}}})
}

/// Strategic merge patch that takes our scheduling gate away and leaves others. The UID is a precondition.
pub(super) fn lift_gate(uid: &str) -> Value {
    json!({"metadata": {"uid": uid}, "spec": {"schedulingGates": [{"name": GATE, "$patch": "delete"}]}})
}

fn uid_of(consumer: &Value) -> &str {
    consumer.get("uid").and_then(Value::as_str).unwrap_or("")
}

/// The map under `key`, made where it is missing. None: the document or the member is not a map.
fn child<'a>(doc: &'a mut Value, key: &str) -> Option<&'a mut Map<String, Value>> {
    let member = doc.as_object_mut()?.entry(key).or_insert_with(|| json!({}));
    if member.is_null() {
        *member = json!({});
    }
    member.as_object_mut()
}
