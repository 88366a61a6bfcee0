//! The order of nodes, and extender scores from it.

use std::sync::Arc;

use super::demand::Demand;
use super::search::Power;
use super::{Context, Cost, quick, solve};
use crate::snapshot::NodeEntry;

/// The highest score of the extender protocol.
const BEST: usize = 10;

/// Lower is better, key by key: what the devices cost, what they draw, then packing or spreading.
type Rank = (u32, u32, Power, u32);

fn rank(ctx: Context<'_>, demand: &Demand, node: &NodeEntry) -> Option<Rank> {
    demand.admit(node).ok()?;
    let (cost, power, left) = match quick::tally(ctx, demand, node) {
        Some(tally) => {
            let (power, left) = tally.best(demand)?;
            (Cost::default(), power, left)
        }
        None => {
            let (placement, (power, left)) = solve::best(ctx, demand, node).ok()?;
            (placement.cost, power, left)
        }
    };
    let filling = if ctx.rules.spread { u32::MAX - left } else { left };
    Some((cost.links, cost.lost, power, filling))
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
    let others = fitting.len().saturating_sub(1).max(1);
    for (place, (_, i)) in fitting.iter().enumerate() {
        let score = match place {
            0 => BEST,
            // 9 for the second, down to 1 for the last: better than not fitting.
            _ => BEST - 1 - (place - 1) * (BEST - 2) / others,
        };
        scores[*i] = u8::try_from(score).unwrap_or(0);
    }
    scores
}
