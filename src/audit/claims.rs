//! Findings about claims: allocations that no pod uses, that no claim can have got by rights, or that nothing protects.

use std::collections::BTreeSet;

use super::devices::{Pools, pools};
use super::{Finding, Kind, Subject, listed};
use crate::model::{
    Allocation, Claim, Consumer, Count, DeviceRequest, FINALIZER, Name, NamespacedName, NodeScope, Pod, Request,
    RequestKind,
};
use crate::snapshot::Snapshot;

pub(super) fn look(snapshot: &Snapshot, findings: &mut Vec<Finding>) {
    let pools = pools(snapshot);
    let drivers: BTreeSet<&Name> = pools.keys().map(|(driver, _)| *driver).collect();
    for (_, claim) in snapshot.claims.iter() {
        let Some(allocation) = claim.allocation.as_deref() else {
            continue;
        };
        let mut say = |kind, message| findings.push(Finding::on(kind, Subject::claim(claim), message));
        if let Some(message) = unused(snapshot, claim, allocation) {
            say(Kind::AllocationWithoutPod, message);
        }
        if let Some(message) = overdrawn(claim) {
            say(Kind::SlotsOverdrawn, message);
        }
        if let Some(message) = odd(claim, allocation, &pools) {
            say(Kind::AllocationOdd, message);
        }
        if let Some(message) = unprotected(claim, allocation, &drivers) {
            say(Kind::ClaimUnprotected, message);
        }
    }
}

fn devices(allocation: &Allocation) -> String {
    listed(allocation.results.iter().map(|r| &r.id))
}

fn unused(snapshot: &Snapshot, claim: &Claim, allocation: &Allocation) -> Option<String> {
    let mut idle = vec![];
    for consumer in &claim.reserved_for {
        // What is not a pod we do not watch.
        idle.push((&*consumer.resource == "pods").then(|| end(snapshot, claim, consumer))??);
    }
    let why = match idle.len() {
        0 => "reserved for no pod".to_owned(),
        _ => listed(idle),
    };
    Some(format!(
        "is allocated, and {why}: {} stay taken. The resource claim controller frees them within seconds when its pods are gone \
         or finished. If this lasts longer than a minute, see that kube-controller-manager is well; deleting the claim frees \
         them, too. It frees nothing that is reserved for a pod that lives, even one that does not use it: delete that pod, or \
         take it out of status.reservedFor, and find out who wrote it there",
        devices(allocation)
    ))
}

/// What became of the pod. None: it is there and uses the claim, or will.
fn end(snapshot: &Snapshot, claim: &Claim, consumer: &Consumer) -> Option<String> {
    let key = NamespacedName::new(claim.key.namespace.clone(), consumer.name.clone());
    let name = &consumer.name;
    match snapshot.pods.get(&key) {
        // Pods that ask for nothing are not kept.
        None => Some(format!("pod {name} is gone, or has no claims")),
        Some(pod) if pod.uid != consumer.uid => Some(format!("pod {name} is gone (another has its name)")),
        Some(pod) if pod.finished => Some(format!("pod {name} has finished")),
        Some(pod) if !uses(pod, claim) => Some(format!("pod {name} does not use it")),
        Some(_) => None,
    }
}

fn uses(pod: &Pod, claim: &Claim) -> bool {
    let named = |name: &Name| *name == claim.key.name;
    // One that was made for it: the status of the pod may not say so yet.
    claim.owner_pod.as_ref() == Some(&pod.uid)
        || pod.claims.iter().filter_map(|c| c.claim_name()).any(named)
        || pod.extended_resource_claim.as_ref().is_some_and(named)
}

/// By its name, which nobody can change; that policy says less since then takes nothing from pods that run.
fn overdrawn(claim: &Claim) -> Option<String> {
    let slots = claim.share()?.slots as usize;
    let users = claim.reserved_for.len();
    (users > slots).then(|| {
        format!(
            "is shared by {users} pods ({}), and has {slots} slots. wattlane reserves no more: find out who else writes \
             status.reservedFor, and delete the pods that are too many",
            listed(claim.reserved_for.iter().map(|c| &c.name))
        )
    })
}

fn odd(claim: &Claim, allocation: &Allocation, pools: &Pools<'_>) -> Option<String> {
    let nodes = allocation.results.iter().filter_map(|result| {
        let pool = &pools.get(&(&result.id.driver, &result.id.pool))?.pool;
        let at = pool.by_name.get(&result.id.device)?;
        match &pool.devices.get(*at as usize)?.scope {
            NodeScope::Node(node) => Some(node),
            _ => None,
        }
    });
    let nodes: BTreeSet<&Name> = nodes.collect();
    let short = claim.spec.requests.iter().filter(|r| !is_met(r, allocation));
    let short: Vec<&Name> = short.map(|r| &r.name).collect();
    let mut why = vec![];
    if nodes.len() > 1 {
        why.push(format!(
            "its devices are on several nodes ({}), of which a pod can have one only",
            listed(nodes)
        ));
    }
    if !short.is_empty() {
        why.push(format!(
            "it has fewer devices than its requests ask for: {}",
            listed(short)
        ));
    }
    (!why.is_empty()).then(|| {
        format!(
            "has an allocation that no allocator may make ({}): {}. Delete the pods that use it and the claim, and find out \
             who else than wattlane allocates",
            devices(allocation),
            why.join("; ")
        )
    })
}

/// Whether the request, or one of its alternatives, has as many devices as it asks for.
fn is_met(request: &Request, allocation: &Allocation) -> bool {
    let met = |asked: &DeviceRequest, name: &str| {
        let least = match asked.count {
            Count::Exactly(n) => n as usize,
            // Never none.
            Count::All => 1,
        };
        allocation.results.iter().filter(|r| &*r.request == name).count() >= least
    };
    match &request.kind {
        RequestKind::Exactly(asked) => met(asked, &request.name),
        RequestKind::FirstAvailable(subs) => {
            let mut subs = subs.iter();
            subs.any(|sub| met(&sub.request, &format!("{}/{}", request.name, sub.name)))
        }
    }
}

/// Only what the drivers of this cluster give: other claims are nothing to us.
fn unprotected(claim: &Claim, allocation: &Allocation, drivers: &BTreeSet<&Name>) -> Option<String> {
    let given = allocation.results.iter().any(|r| drivers.contains(&r.id.driver));
    (given && !claim.protected && !claim.reserved_for.is_empty()).then(|| {
        format!(
            "is in use without the finalizer {FINALIZER}: when it is deleted, {} are free while its pods still use them, and \
             are given again. Add the finalizer, and find out who allocated the claim without it or took it off",
            devices(allocation)
        )
    })
}
