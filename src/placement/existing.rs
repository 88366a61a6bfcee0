//! Allocations that are there already: whether a pod may go where their devices are. Stricter than in-tree, which never
//! looks at them again: a device that is not there is of no use to a pod that can still go elsewhere, and one that is
//! tainted is given to nobody anew.

use std::sync::{Arc, OnceLock};

use super::Context;
use super::offer::blocking_taint;
use super::solve::found;
use super::words::{taint_words, unhealthy};
use crate::model::{
    Allocation, Claim, DeviceId, DeviceRequest, DeviceResult, Name, Reason, Refusal, RequestKind, Toleration,
};
use crate::snapshot::{NodeEntry, PoolHealth};

/// A claim that is allocated, or about to be for another pod that shares it.
#[derive(Debug)]
pub(super) struct Existing {
    pub(super) claim: Arc<Claim>,
    pub(super) allocation: Arc<Allocation>,
    /// By position of the result, whether its device may be there for other nodes. Looks at all pools, so it is done for
    /// the first node that lacks a device, and once.
    elsewhere: OnceLock<Vec<bool>>,
}

impl Existing {
    pub(super) fn new(claim: Arc<Claim>, allocation: Arc<Allocation>) -> Self {
        Self {
            claim,
            allocation,
            elsewhere: OnceLock::new(),
        }
    }

    fn is_elsewhere(&self, ctx: Context<'_>, result: usize) -> bool {
        let all = || self.allocation.results.iter().map(|r| published(ctx, &r.id)).collect();
        self.elsewhere.get_or_init(all).get(result).is_some_and(|is| *is)
    }

    fn of_other_nodes(&self) -> Refusal {
        let words = format!("claim {} is allocated to devices of other nodes", self.claim.key.name);
        Refusal::new(Reason::AllocatedElsewhere, words)
    }
}

/// Whether some pool has the device, or is in no state to say that it has not.
fn published(ctx: Context<'_>, id: &DeviceId) -> bool {
    let mut pools = ctx.snapshot.pools.iter().flatten().map(|state| &state.pool);
    pools.any(|pool| {
        pool.name == id.pool
            && pool.driver == id.driver
            && (pool.by_name.contains_key(&id.device) || pool.health != PoolHealth::Complete)
    })
}

/// A pod that the claim is reserved for has its devices, if they exist; any other joins, and to join is to be given them.
pub(super) fn usable(ctx: Context<'_>, node: &NodeEntry, existing: &Existing, pod: &Name) -> Result<(), Refusal> {
    let Existing { claim, allocation, .. } = existing;
    if allocation
        .node_selector
        .as_ref()
        .is_some_and(|s| !s.matches(&node.node))
    {
        return Err(existing.of_other_nodes());
    }
    let joins = !claim.reserved_for.iter().any(|c| c.uid == *pod);
    for (i, result) in allocation.results.iter().enumerate() {
        let id = &result.id;
        let mut pools = ctx.snapshot.pools_of(node);
        let pool = pools.find(|(state, _)| state.pool.driver == id.driver && state.pool.name == id.pool);
        let health = pool.map(|(state, visible)| visible.health(&state.pool));
        // Who it is that nobody can name makes no difference: these devices are the claim's.
        let settled = matches!(
            health,
            None | Some(PoolHealth::Complete | PoolHealth::Held(_) | PoolHealth::Lost(_))
        );
        let sees = |at| pool.is_some_and(|(_, visible)| visible.sees(at));
        let device = found(ctx, node, id).filter(|(.., at)| sees(*at));
        let device = device.map(|(_, state, at)| &state.pool.devices[at].device);
        match (device, health) {
            (device, Some(health)) if !settled && (joins || device.is_none()) => {
                let words = format!(
                    "claim {} holds {id}, and {}",
                    claim.key.name,
                    unhealthy(&id.driver, health)
                );
                return Err(Refusal::new(Reason::PoolIncomplete, words));
            }
            (None, _) if existing.is_elsewhere(ctx, i) => return Err(existing.of_other_nodes()),
            (None, _) => {
                let words = format!(
                    "claim {} holds {id}, which is not published any more: {}",
                    claim.key.name,
                    remedy(claim, pod)
                );
                return Err(Refusal::new(Reason::ClaimUnusable, words));
            }
            (Some(device), _) => {
                if joins && let Some(taint) = blocking_taint(device, tolerations(claim, result)) {
                    let words = format!(
                        "claim {} holds {id}, which has taint {}",
                        claim.key.name,
                        taint_words(taint)
                    );
                    return Err(Refusal::new(Reason::Tainted, words));
                }
            }
        }
    }
    Ok(())
}

fn remedy(claim: &Claim, pod: &Name) -> &'static str {
    let others = claim.reserved_for.iter().any(|c| c.uid != *pod);
    match (claim.owner_pod.as_ref() == Some(pod) || claim.share().is_some(), others) {
        (_, true) => "if it does not come back, delete the pods that use the claim",
        (true, false) => "it is given back",
        (false, false) => "if it does not come back, make the claim anew",
    }
}

/// What the request tolerates now; the record in the result where the request is not there.
fn tolerations<'c>(claim: &'c Claim, result: &'c DeviceResult) -> &'c [Toleration] {
    let (name, sub) = match result.request.split_once('/') {
        Some((name, sub)) => (name, Some(sub)),
        None => (&*result.request, None),
    };
    let request = claim.spec.requests.iter().find(|r| *r.name == *name);
    let request: Option<&DeviceRequest> = request.and_then(|r| match (&r.kind, sub) {
        (RequestKind::Exactly(exactly), _) => Some(exactly),
        (RequestKind::FirstAvailable(list), Some(sub)) => list.iter().find(|s| *s.name == *sub).map(|s| &s.request),
        (RequestKind::FirstAvailable(_), None) => None,
    });
    request.map_or(&result.tolerations, |r| &r.tolerations)
}
