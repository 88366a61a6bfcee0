//! Findings about pods: those that hold what nobody can name, those that lack what they were promised, and those that
//! went past wattlane.

use super::{Finding, Kind, Subject, listed};
use crate::model::{ADMITTED, DEFAULT_SCHEDULER, Name, Pod, Quantity, WEBHOOK};
use crate::policy::{Policy, Server, named_by};
use crate::snapshot::Snapshot;

pub(super) fn look(snapshot: &Snapshot, policy: &Policy, findings: &mut Vec<Finding>) {
    for (_, pod) in snapshot.pods.iter().filter(|(_, pod)| !pod.finished) {
        let mut say = |kind, message| findings.push(Finding::on(kind, Subject::pod(pod), message));
        if let Some(message) = holds_unseen(snapshot, policy, pod) {
            say(Kind::UnknownHolder, message);
        }
        for (kind, message) in lacks(snapshot, pod) {
            say(kind, message);
        }
        if let Some((kind, message)) = untreated(snapshot, policy, pod) {
            say(kind, message);
        }
    }
}

fn holds_unseen(snapshot: &Snapshot, policy: &Policy, pod: &Pod) -> Option<String> {
    if !pod.holds() {
        return None;
    }
    let node = snapshot.node_named(&pod.node_name)?;
    pod.unclaimed().find_map(|(resource, amount)| {
        let named = policy.defaults.device_classes.get(resource).map(|c| &**c);
        let mut seen = snapshot.pools_of(node);
        let (state, _) = seen.find(|(state, _)| snapshot.may_hold(resource, named, &state.pool.driver))?;
        let (driver, devices) = (&state.pool.driver, state.pool.devices.len());
        let count = Quantity::as_integer(*amount).map_or_else(String::new, |n| format!("{n} "));
        Some(format!(
            "has {count}{resource} from the device plugin on node {}, where {driver} publishes the cards, too ({devices} \
             devices, {} given by claims): nobody can say which it holds, or whether a claim has the same. Until it is gone, \
             nothing that is free there is given. Make it anew with a claim (label its namespace wattlane.dev/enabled=true), and \
             let the node have either the plugin or the driver",
            pod.node_name,
            state.taken.iter().count()
        ))
    })
}

/// Claims that the pod has, by their names; Err: what is wrong with one.
fn claim_names(pod: &Pod) -> impl Iterator<Item = Result<&Name, String>> {
    let own = pod.claims.iter().filter_map(|entry| match entry.claim_name() {
        Some(name) => Some(Ok(name)),
        // The controller says that none is needed.
        None if entry.generated.is_some() => None,
        None => Some(Err(format!("its claim {} was never made", entry.name))),
    });
    own.chain(pod.extended_resource_claim.iter().map(Ok))
}

/// A pod that goes away gives back its claims first.
fn lacks(snapshot: &Snapshot, pod: &Pod) -> Vec<(Kind, String)> {
    if !pod.holds() || pod.deleting {
        return vec![];
    }
    let (mut without, mut elsewhere) = (vec![], vec![]);
    for name in claim_names(pod) {
        let name = match name {
            Ok(name) => name,
            Err(words) => {
                without.push(words);
                continue;
            }
        };
        let key = pod.claim_key(name);
        let Some(claim) = snapshot.claim(&key) else {
            without.push(format!("claim {name} does not exist"));
            continue;
        };
        let Some(allocation) = &claim.allocation else {
            without.push(format!("claim {name} is not allocated"));
            continue;
        };
        if !claim.reserved_for.iter().any(|c| c.uid == pod.uid) {
            without.push(format!("claim {name} is not reserved for it"));
        }
        let reached =
            |node: &crate::snapshot::NodeEntry| allocation.node_selector.as_ref().is_none_or(|s| s.matches(&node.node));
        if snapshot.node_named(&pod.node_name).is_some_and(|node| !reached(node)) {
            elsewhere.push(format!("{name} ({})", listed(allocation.results.iter().map(|r| &r.id))));
        }
    }
    let mut found = vec![];
    if !without.is_empty() {
        let message = format!(
            "is bound to node {}, but {}: the kubelet does not start it. Delete it, and find out who bound it",
            pod.node_name,
            listed(without)
        );
        found.push((Kind::PodWithoutDevices, message));
    }
    if !elsewhere.is_empty() {
        let message = format!(
            "is bound to node {}, from where the devices of its claims cannot be reached: {}. Delete it, and find out who \
             bound it",
            pod.node_name,
            listed(elsewhere)
        );
        found.push((Kind::PodOnOtherNode, message));
    }
    found
}

/// Whether the pod is one that admission changes, in a namespace that has it so.
fn is_ours(snapshot: &Snapshot, policy: &Policy, pod: &Pod) -> bool {
    let opted_in = snapshot.namespaces.get(&pod.key.namespace).is_some_and(|n| n.enabled());
    opted_in && !pod.opted_out() && !pod.fixed && (!pod.claims.is_empty() || asks_for_cards(snapshot, policy, pod))
}

/// In extended resources that admission replaces by claims, since this cluster has a DeviceClass for them, or refuses,
/// since nobody here has the partition that they name.
fn asks_for_cards(snapshot: &Snapshot, policy: &Policy, pod: &Pod) -> bool {
    let classes = &policy.defaults.device_classes;
    let served = |(resource, _): &(Name, Quantity)| match named_by(resource) {
        Some((cards, profile)) => matches!(
            Server::of(snapshot, policy, resource, (cards, &profile)),
            Server::Class(_) | Server::Nobody
        ),
        None => {
            let named = classes.get(resource);
            named.is_some_and(|c| snapshot.class_for(resource, Some(c)).is_some())
        }
    };
    pod.unclaimed().any(served)
}

/// Why a pod of an opted-in namespace went past wattlane, if it did.
pub fn untreated(snapshot: &Snapshot, policy: &Policy, pod: &Pod) -> Option<(Kind, String)> {
    if pod.finished || pod.deleting || !is_ours(snapshot, policy, pod) {
        return None;
    }
    let scheduler = &pod.scheduler_name;
    let ours = policy.schedules(scheduler);
    if pod.holds() {
        let message = format!(
            "is in a namespace with wattlane.dev/enabled=true, but {scheduler} put it on node {}: it was made before the label, \
             or while the webhook could not be reached, or names that scheduler. Its devices count as they are; make it anew to \
             have them chosen by wattlane, or label it {WEBHOOK}=ignore",
            pod.node_name
        );
        return (!ours).then_some((Kind::OtherScheduler, message));
    }
    // Anybody can write the annotation; what passed the webhook has our gate no more.
    let admitted = pod.annotation(ADMITTED).is_some() && !pod.gated;
    let past = match ours {
        true => !admitted && asks_for_cards(snapshot, policy, pod),
        false => &**scheduler == DEFAULT_SCHEDULER,
    };
    let waits = match (pod.gated, ours) {
        (true, _) => format!("it waits behind the scheduling gate {}", crate::model::GATE),
        (false, true) => "it has no claims, and so gets no cards from wattlane".to_owned(),
        (false, false) => format!("{scheduler} may place it without wattlane"),
    };
    past.then(|| {
        let message = format!(
            "asks for devices in a namespace with wattlane.dev/enabled=true, but never passed wattlane's webhook, which could \
             not be reached when it was made: {waits}. What it lacks cannot be added to a pod that exists: delete it, and its \
             controller makes it anew"
        );
        (Kind::PodUntreated, message)
    })
}

/// Whether the gate of manifests/gated can be taken from the pod: it needs nothing of what admission does, or has it.
pub fn liftable(snapshot: &Snapshot, policy: &Policy, pod: &Pod) -> bool {
    // Of a namespace that is not known yet nobody can say.
    let known = snapshot.namespaces.contains_key(&pod.key.namespace);
    pod.gated && known && !pod.deleting && untreated(snapshot, policy, pod).is_none()
}
