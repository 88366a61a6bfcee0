//! The order of nodes, and extender scores from it.

use std::cmp::Reverse;
use std::sync::Arc;

use super::demand::Demand;
use super::key::Key;
use super::{Context, power, quick, solve};
use crate::model::Name;
use crate::snapshot::NodeEntry;

/// The highest score of the extender protocol; the best node alone has it.
pub const BEST: u8 = 10;

/// How good a node is for a pod. Lower is better, key by key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// Which alternatives of `firstAvailable` lists it serves: earlier ones first.
    preference: u64,
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

/// What the best choice on a node comes to.
pub(super) struct Best {
    pub(super) preference: u64,
    pub(super) key: Key,
    /// Devices that could have served it and stay free.
    pub(super) left: u32,
}

/// The alternatives that are served, as one number: those of the first request count most, as on one node. A list has at
/// most eight entries; requests after the twentieth do not count.
pub(super) fn preference(offers: &[usize]) -> u64 {
    const COUNTED: usize = 20;
    let counted = (0..COUNTED).map(|r| offers.get(r).copied().unwrap_or(0));
    counted.fold(0, |sum, offer| sum * 8 + u64::try_from(offer.min(7)).unwrap_or(7))
}

/// None: the node does not fit (it may have changed since filter).
pub fn rank(ctx: Context<'_>, demand: &Demand, node: &NodeEntry) -> Option<Rank> {
    demand.admit(ctx, node).ok()?;
    let Best {
        preference,
        mut key,
        left,
    } = match quick::tally(ctx, demand, node, true) {
        Some(tally) => tally.best(demand)?,
        None => solve::best(ctx, demand, node).ok()?.1,
    };
    if ctx.rules.spread {
        // To keep groups whole is to pack; who spreads wants the opposite.
        (key.big, key.pairs) = (0, 0);
    }
    Some(Rank {
        preference,
        links: (key.cost, key.across_cost),
        distance: demand.group.as_ref().map_or(0, |g| g.distance(&node.node)),
        key,
        filling: if ctx.rules.spread { u32::MAX - left } else { left },
        headroom: Reverse(power::headroom(ctx, node)),
    })
}

/// Extender scores, 0 to 10, in the order of `nodes`. The best node alone has 10; equal nodes are ordered by name. A
/// node that does not fit has 0.
pub fn scores(ctx: Context<'_>, demand: &Demand, nodes: &[&Arc<NodeEntry>]) -> Vec<u8> {
    let ranked = |(i, node): (usize, &&'_ Arc<NodeEntry>)| Some((rank(ctx, demand, node)?, i));
    let mut fitting: Vec<_> = nodes
        .iter()
        .enumerate()
        .filter_map(ranked)
        .map(|(rank, i)| (rank, &nodes[i].node.name, i))
        .collect();
    let mut scores = vec![0; nodes.len()];
    score(&mut fitting, &mut scores);
    scores
}

/// The same from ranks: the nodes that fit, each with its name and its position in `scores`, which holds zeros.
pub fn score(fitting: &mut [(Rank, &Name, usize)], scores: &mut [u8]) {
    fitting.sort_unstable_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
    let best = usize::from(BEST);
    let others = fitting.len().saturating_sub(1).max(1);
    for (place, (_, _, i)) in fitting.iter().enumerate() {
        let score = match place {
            0 => best,
            // 9 for the second, down to 1 for the last: better than not fitting.
            _ => best - 1 - (place - 1) * (best - 2) / others,
        };
        if let Some(slot) = scores.get_mut(*i) {
            *slot = u8::try_from(score).unwrap_or(0);
        }
    }
}
