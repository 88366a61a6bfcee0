//! Why nobody made a claim of the cards that a pod asks for, where nobody did: all that a node says of it then is that it
//! has none to count.

use crate::app::Core;
use crate::audit;
use crate::model::{Name, Namespace, Pod, WEBHOOK};
use crate::policy::{Policy, named_by};
use crate::snapshot::Snapshot;

/// None: the pod asks for none, or its claims were made.
pub(super) fn why(core: &Core, snapshot: &Snapshot, pod: &Pod) -> Option<String> {
    let policy = core.policy.load();
    let (resource, _) = pod.unclaimed().find(|(name, amount)| {
        let cards = policy.defaults.device_classes.contains_key(name) || named_by(name).is_some();
        // kube-scheduler makes a claim of what a DeviceClass says that it serves.
        cards && !amount.is_zero() && snapshot.class_serving(name).is_none()
    })?;
    let namespace = snapshot.namespaces.get(&pod.key.namespace)?;
    let Some(reason) = left_alone(&policy, namespace, pod) else {
        return past(&policy, snapshot, pod, resource);
    };
    Some(format!(
        "{reason}: wattlane's webhook leaves the pod alone, and nobody made a claim of {resource}"
    ))
}

/// As admission decides before it looks at what the pod asks for.
fn left_alone(policy: &Policy, namespace: &Namespace, pod: &Pod) -> Option<String> {
    if !namespace.enabled() {
        let name = &namespace.name;
        return Some(match namespace.labels.get("wattlane.dev/enabled") {
            Some(value) => {
                format!("namespace {name} is labelled wattlane.dev/enabled={value:?}, which must be \"true\"")
            }
            None => format!("namespace {name} is not labelled wattlane.dev/enabled=true"),
        });
    }
    if pod.opted_out() {
        return Some(format!("the pod says {WEBHOOK}: ignore"));
    }
    if pod.fixed {
        return Some("the pod is a static one, or of a DaemonSet".to_owned());
    }
    let scheduler = &*pod.scheduler_name;
    let theirs = scheduler != crate::model::DEFAULT_SCHEDULER && !policy.schedules(scheduler);
    theirs.then(|| format!("the pod names the scheduler {scheduler}, which is not wattlane's"))
}

/// Of a pod that admission would have changed.
fn past(policy: &Policy, snapshot: &Snapshot, pod: &Pod, resource: &Name) -> Option<String> {
    if let Some((_, message)) = audit::untreated(snapshot, policy, pod) {
        return Some(format!("the pod {message}"));
    }
    let class = policy.defaults.device_classes.get(resource)?;
    let missing = snapshot.class_for(resource, Some(class)).is_none();
    missing.then(|| format!("this cluster has no DeviceClass {class}: nobody made a claim of {resource}"))
}
