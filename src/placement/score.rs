//! The order of nodes, and extender scores from it.

use std::cmp::Reverse;
use std::sync::Arc;

use super::demand::Demand;
use super::key::Key;
use super::{Context, power, quick, solve};
use crate::snapshot::NodeEntry;

/// The highest score of the extender protocol; the best node alone has it.
pub const BEST: u8 = 10;

/// Lower is better, key by key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// Sums of link cost on the node: faster than any link between nodes.
    links: (u32, u32),
    /// From the pod's group.
    distance: u32,
    /// What else the devices cost.
    key: Key,
    /// Packing or spreading.
    filling: u32,
    /// What the node's tightest power domain has left.
    headroom: Reverse<u64>,
}

fn rank(ctx: Context<'_>, demand: &Demand, node: &NodeEntry) -> Option<Rank> {
    demand.admit(node).ok()?;
    let (mut key, left) = match quick::tally(ctx, demand, node, true) {
        Some(tally) => tally.best(demand)?,
        None => solve::best(ctx, demand, node).ok()?.1,
    };
    if ctx.rules.spread {
        // To keep groups whole is to pack; who spreads wants the opposite.
        (key.big, key.pairs) = (0, 0);
    }
    Some(Rank {
        links: (key.cost, key.across_cost),
        distance: demand.group.as_ref().map_or(0, |g| g.distance(&node.node)),
        key,
        filling: if ctx.rules.spread { u32::MAX - left } else { left },
        headroom: Reverse(power::headroom(ctx, node)),
    })
}

/// Extender scores, 0 to 10, in the order of `nodes`. The best node alone has 10; equal nodes are ordered by name. A
/// node that does not fit (it may have changed since filter) has 0.
pub fn scores(ctx: Context<'_>, demand: &Demand, nodes: &[&Arc<NodeEntry>]) -> Vec<u8> {
    let mut fitting: Vec<(Rank, usize)> = nodes
        .iter()
        .enumerate()
        .filter_map(|(i, node)| Some((rank(ctx, demand, node)?, i)))
        .collect();
    let by_rank = |a: &(Rank, usize), b: &(Rank, usize)| {
        a.0.cmp(&b.0)
            .then_with(|| nodes[a.1].node.name.cmp(&nodes[b.1].node.name))
    };
    fitting.sort_unstable_by(by_rank);
    let mut scores = vec![0; nodes.len()];
    let best = usize::from(BEST);
    let others = fitting.len().saturating_sub(1).max(1);
    for (place, (_, i)) in fitting.iter().enumerate() {
        let score = match place {
            0 => best,
            // 9 for the second, down to 1 for the last: better than not fitting.
            _ => best - 1 - (place - 1) * (best - 2) / others,
        };
        scores[*i] = u8::try_from(score).unwrap_or(0);
    }
    scores
}
