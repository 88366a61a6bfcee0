//! A "no" that passes by itself: nothing but what is held for other pods is in the way.

use std::sync::Arc;

use super::{Context, Demand, check};
use crate::snapshot::{NodeIx, Snapshot};

/// What a node that is refused only because of holds is refused with.
pub const HELD: &str = "what the pod needs here is held for other pods that are being placed";

/// Whether the node would take the pod if nothing were held. `free` is the snapshot of `ctx` without holds; made by the
/// caller, once for all nodes.
pub fn only_held(ctx: Context<'_>, free: &Snapshot, demand: &Demand, node: NodeIx) -> bool {
    let lifted = Context { snapshot: free, ..ctx };
    free.node(node).is_some_and(|node| {
        let mut pools = ctx.snapshot.pools_of(node);
        // Only where some hold draws watts are the sums others than with holds.
        let watts = !node.domains.is_empty() && !Arc::ptr_eq(&free.power.uses, &ctx.snapshot.power.uses);
        let touched = watts || pools.any(|(state, _)| state.holds.is_some());
        touched && check(lifted, demand, node).is_ok()
    })
}
