//! The scheduling gate of manifests/gated: put on a pod by the API server before we see it, so that a pod which we never
//! see is not scheduled past us. Whatever we decide about a pod, we take the gate off with it; where we cannot know yet
//! whose pod it is, it stays, and the audit's loop looks again.

use serde_json::Value;

use super::Skip;
use crate::model::GATE;

/// The pod without our gate. None: it has none.
pub(super) fn without(pod: &Value) -> Option<Value> {
    let is_ours = |gate: &Value| gate["name"] == GATE;
    let gates = pod["spec"]["schedulingGates"].as_array()?;
    if !gates.iter().any(is_ours) {
        return None;
    }
    let others: Vec<Value> = gates.iter().filter(|gate| !is_ours(gate)).cloned().collect();
    let mut pod = pod.clone();
    let spec = pod.get_mut("spec")?.as_object_mut()?;
    match others.is_empty() {
        true => spec.remove("schedulingGates"),
        false => spec.insert("schedulingGates".to_owned(), others.into()),
    };
    Some(pod)
}

/// Left alone for want of knowledge, not because it needs nothing.
pub(super) fn stays(reason: Skip) -> bool {
    matches!(reason, Skip::NotCreate | Skip::UnknownNamespace | Skip::NotOptedIn)
}
