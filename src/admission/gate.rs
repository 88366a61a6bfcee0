//! The scheduling gate of manifests/gated: put on a pod by the API server before we see it, so that a pod which we never
//! see is not scheduled past us. Whatever we decide about a pod, we take the gate off with it; where we cannot know yet
//! whose pod it is, it stays, and the audit's loop looks again.

use serde_json::Value;

use super::Skip;
use super::decide::Decision;
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

/// The decision about `lifted`, as one about the pod as it came, with the gate.
pub(super) fn lift(came: &Value, mut lifted: Value, decision: Decision) -> Decision {
    match decision {
        Decision::Refuse(refused) => Decision::Refuse(refused),
        Decision::LeaveAlone { reason, warnings } if stays(reason) => Decision::LeaveAlone { reason, warnings },
        Decision::LeaveAlone { warnings, .. } => Decision::Patch {
            ops: json_patch::diff(came, &lifted),
            templates: vec![],
            warnings,
        },
        Decision::Patch {
            ops,
            templates,
            warnings,
        } => match json_patch::patch(&mut lifted, &ops) {
            Ok(()) => Decision::Patch {
                ops: json_patch::diff(came, &lifted),
                templates,
                warnings,
            },
            // It is the difference between this object and another. Should it fail, the gate is left to the loop.
            Err(_) => Decision::Patch {
                ops,
                templates,
                warnings,
            },
        },
    }
}

/// Left alone for want of knowledge, not because it needs nothing.
fn stays(reason: Skip) -> bool {
    matches!(reason, Skip::NotCreate | Skip::UnknownNamespace | Skip::NotOptedIn)
}
