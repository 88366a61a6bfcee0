//! Whether a pod may have a slot of a claim that several pods share: policy allows it, a slot is free, and no older pod
//! waits for it. What the claim says of itself is a record; the policy in force counts.

use std::collections::HashMap;

use super::Context;
use super::allowed::{Slots, rule_for};
use crate::model::{Claim, DeviceId, Name, NamespacedName, NodeScope, Pod, Reason, Refusal};
use crate::snapshot::{Pool, Waiting};

/// Pods named in a refusal.
const SHOWN: usize = 4;

/// A claim of the pod that is shared, and how many pods may have it at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shared {
    pub(super) claim: NamespacedName,
    pub(super) most: usize,
}

/// None: the claim is no shared one of ours.
pub(super) fn shared<'a>(
    ctx: Context<'a>,
    claim: &Claim,
    pod: &Pod,
) -> Result<Option<(Shared, Option<&'a Slots>)>, Refusal> {
    let Some(share) = claim.share() else { return Ok(None) };
    let name = &claim.key.name;
    let namespace = &claim.key.namespace;
    let Some(rule) = rule_for(ctx, namespace, |rule| rule.slots.is_some()) else {
        let words = format!("namespace {namespace} is not known yet, and with it whether its pods may share devices");
        return Err(Refusal::new(Reason::Slots, words));
    };
    let slots = rule.and_then(|rule| rule.slots.as_ref());
    let most = slots.map_or(0, |s| s.most).min(share.slots) as usize;
    let shared = Shared {
        claim: claim.key.clone(),
        most: most.max(1),
    };
    // It has its slot already: whatever the policy says since then, it may go on.
    if claim.reserved_for.iter().any(|c| c.uid == pod.uid) {
        return Ok(Some((shared, slots)));
    }
    if slots.is_none() {
        let words = format!(
            "claim {name} is shared, and the policy of namespace {namespace} allows no sharing (namespaces[].sharing)"
        );
        return Err(Refusal::new(Reason::Slots, words));
    }
    let mut users = ctx.snapshot.users(claim);
    users.retain(|(uid, _)| **uid != pod.uid);
    if users.len() >= most {
        let mut names: Vec<&str> = users.iter().map(|(_, name)| &***name).collect();
        names.sort_unstable();
        let words = format!("all {most} slots of claim {name} are taken, by {}", listed(&names));
        return Err(Refusal::new(Reason::Slots, words));
    }
    let own = Waiting::of(pod);
    let queue = ctx.snapshot.sharers.get(&claim.key).map_or(&[][..], |s| &s.queue);
    let before = queue.iter().take_while(|waiting| **waiting < own);
    let older: Vec<&str> = before
        .filter(|w| w.pod_uid != pod.uid && !users.contains(&(&w.pod_uid, &w.pod)))
        .map(|w| &*w.pod)
        .collect();
    if older.len() >= most - users.len() {
        let words = format!(
            "a slot of claim {name} is free, and older pods wait for it: {}",
            listed(&older)
        );
        return Err(Refusal::new(Reason::Slots, words));
    }
    Ok(Some((shared, slots)))
}

fn listed(names: &[&str]) -> String {
    let shown = names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// A shared claim as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareState {
    pub claim: NamespacedName,
    /// Pods at a time, as policy has it now; 0 where it allows none any more.
    pub slots: usize,
    /// Names of the pods that have one, by a reservation or hold of ours, too.
    pub users: Vec<Name>,
    /// The device and, where it is local to one, its node. None: not allocated.
    pub device: Option<DeviceId>,
    pub node: Option<Name>,
}

impl ShareState {
    pub fn left(&self) -> usize {
        self.slots.saturating_sub(self.users.len())
    }
}

/// The shared claims of the cluster, those that policy allows no longer included.
pub fn shares<'a>(ctx: Context<'a>) -> impl Iterator<Item = ShareState> + 'a {
    let pools = ctx.snapshot.pools.iter().flatten().map(|state| &*state.pool);
    let pools: HashMap<_, _> = pools.map(|pool| ((&pool.driver, &pool.name), pool)).collect();
    let claims = ctx.snapshot.claims.iter();
    claims.filter_map(move |(_, claim)| {
        let share = claim.share()?;
        let rule = rule_for(ctx, &claim.key.namespace, |rule| rule.slots.is_some()).flatten();
        let slots = rule.and_then(|rule| rule.slots.as_ref());
        let most = slots.map_or(0, |s| s.most).min(share.slots);
        let device = claim
            .allocation
            .as_ref()
            .and_then(|a| Some(a.results.first()?.id.clone()));
        let mut users: Vec<Name> = ctx
            .snapshot
            .users(claim)
            .into_iter()
            .map(|(_, name)| name.clone())
            .collect();
        users.sort();
        Some(ShareState {
            claim: claim.key.clone(),
            slots: most as usize,
            users,
            node: device.as_ref().and_then(|id| node_of(&pools, id)),
            device,
        })
    })
}

fn node_of(pools: &HashMap<(&Name, &Name), &Pool>, id: &DeviceId) -> Option<Name> {
    let pool = pools.get(&(&id.driver, &id.pool))?;
    let at = *pool.by_name.get(&id.device)? as usize;
    match &pool.devices.get(at)?.scope {
        NodeScope::Node(node) => Some(node.clone()),
        _ => None,
    }
}
