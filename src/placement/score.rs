//! The order of nodes, and extender scores from it.

use std::cmp::Reverse;
use std::sync::Arc;

use super::demand::Demand;
use super::key::Key;
use super::vacancy::{Part, Vacancy, by_watts, whole};
use super::{Context, power, quick, solve};
use crate::snapshot::{NodeEntry, NodeIx};

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
    /// Partitions, and groups of four and more cards, that others lose.
    lost: (u32, u32),
    /// Devices of unknown watts.
    unknown: u32,
    /// Watts, and what nobody can use any more (`vacancy`).
    price: i64,
    /// What else the devices cost.
    key: Key,
    /// Packing or spreading.
    filling: u32,
    /// What the node's tightest power domain has left.
    headroom: Reverse<u64>,
}

/// What the best choice on a node comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Best {
    pub(super) preference: u64,
    pub(super) key: Key,
    /// Devices that could have served it and stay free; of a pod without devices, the node's free cards.
    pub(super) left: u32,
}

/// The alternatives that are served, as one number: those of the first request count most, as on one node. A list has at
/// most eight entries; requests after the twentieth do not count.
pub(super) fn preference(offers: &[usize]) -> u64 {
    const COUNTED: usize = 20;
    let counted = (0..COUNTED).map(|r| offers.get(r).copied().unwrap_or(0));
    counted.fold(0, |sum, offer| sum * 8 + u64::try_from(offer.min(7)).unwrap_or(7))
}

/// What the best choice on one node costs: all of a rank that hangs on the node's devices and its power domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cost {
    best: Best,
    price: i64,
    headroom: u64,
}

impl Cost {
    pub(super) fn of(
        ctx: Context<'_>,
        demand: &Demand,
        (node, ix): (&NodeEntry, NodeIx),
        mut best: Best,
        parts: impl Iterator<Item = Part>,
    ) -> Self {
        let headroom = power::headroom(ctx, node);
        let watts = best.key.power.watts();
        // Who spreads leaves rests everywhere and means to.
        let vacancy = (!ctx.rules.spread).then(|| Vacancy::of(ctx, node, ix)).flatten();
        if demand.is_empty() {
            // Where the price is the same, the CPU beside free cards is spared: who needs all of it may not have been seen yet.
            best.left = vacancy.map_or(0, |v| v.whole());
        }
        let price = match vacancy {
            Some(vacancy) => vacancy.price(ctx, demand, vacancy.before(ctx), parts, watts),
            None => by_watts(watts),
        };
        Self { best, price, headroom }
    }

    /// Quick: by masks alone. None: the node does not fit.
    pub(super) fn quick(
        tally: &quick::Tally<'_>,
        ctx: Context<'_>,
        demand: &Demand,
        node: (&NodeEntry, NodeIx),
    ) -> Option<Self> {
        let best = tally.best(demand)?;
        Some(Self::of(ctx, demand, node, best, whole(tally.asked())))
    }

    /// None: the node does not fit.
    pub(super) fn found(ctx: Context<'_>, demand: &Demand, node: &NodeEntry, ix: NodeIx) -> Option<Self> {
        demand.admit(ctx, node).ok()?;
        if demand.is_empty() {
            return Some(Self::of(ctx, demand, (node, ix), Best::default(), [].into_iter()));
        }
        if let Some(tally) = quick::tally(ctx, demand, node, true) {
            return Self::quick(&tally, ctx, demand, (node, ix));
        }
        let (_, best, parts) = solve::best(ctx, demand, node).ok()?;
        Some(Self::of(ctx, demand, (node, ix), best, parts.into_iter()))
    }
}

impl Rank {
    pub(super) fn of(ctx: Context<'_>, demand: &Demand, node: NodeIx, cost: Cost) -> Self {
        let Cost { best, price, headroom } = cost;
        let Best {
            preference,
            mut key,
            left,
        } = best;
        if ctx.rules.spread {
            // To keep groups whole is to pack; who spreads wants the opposite.
            (key.big, key.pairs) = (0, 0);
        }
        key.dear = 0;
        // Only a group makes the node itself matter.
        let distance = demand.group.as_ref().map_or(0, |group| {
            let node = ctx.snapshot.node(node);
            node.map_or(u32::MAX, |entry| group.distance(&entry.node))
        });
        Self {
            preference,
            links: (key.cost, key.across_cost),
            distance,
            lost: (key.lost, key.big),
            unknown: key.power.unknown(),
            price,
            key,
            filling: if ctx.rules.spread { u32::MAX - left } else { left },
            headroom: Reverse(headroom),
        }
    }
}

/// None: the node does not fit (it may have changed since filter).
pub fn rank(ctx: Context<'_>, demand: &Demand, ix: NodeIx) -> Option<Rank> {
    let cost = Cost::found(ctx, demand, ctx.snapshot.node(ix)?, ix)?;
    Some(Rank::of(ctx, demand, ix, cost))
}

/// Whether a node can be better than another. A pod without devices is not ours to place, but it should not take the CPU that cards
/// need; where nothing is known of that, the scheduler decides alone.
pub fn has_say(ctx: Context<'_>, demand: &Demand) -> bool {
    !demand.is_empty() || !(ctx.snapshot.mix.is_empty() || ctx.rules.spread)
}

/// Extender scores, 0 to 10, in the order of `nodes`. The best node alone has 10; equal nodes are ordered by name. A
/// node that does not fit has 0.
pub fn scores(ctx: Context<'_>, demand: &Demand, nodes: &[&Arc<NodeEntry>]) -> Vec<u8> {
    let mut fitting = Fitting::default();
    for (i, node) in nodes.iter().enumerate() {
        let name = &node.node.name;
        if let Some(rank) = ctx.snapshot.node_ix(name).and_then(|ix| rank(ctx, demand, ix)) {
            fitting.add(rank, name, i);
        }
    }
    fitting.scores(demand, nodes.len())
}

/// The nodes that fit. Of thousands few are of different rank, so that ranks are compared once and then their places.
#[derive(Debug)]
pub struct Fitting<N> {
    /// Some may be equal.
    ranks: Vec<Rank>,
    /// Position of the rank, what orders nodes of equal rank, and position among the scores.
    nodes: Vec<(u32, N, usize)>,
}

/// Ranks looked at to find an equal one.
const LOOK_BACK: usize = 16;

impl<N> Default for Fitting<N> {
    fn default() -> Self {
        Self {
            ranks: vec![],
            nodes: vec![],
        }
    }
}

impl<N: Ord> Fitting<N> {
    /// A node that fits, with what orders those of equal rank, and its position among the scores.
    pub fn add(&mut self, rank: Rank, name: N, at: usize) {
        let first = self.ranks.len().saturating_sub(LOOK_BACK);
        let known = self.ranks[first..]
            .iter()
            .rposition(|r| *r == rank)
            .map(|at| first + at);
        let known = known.unwrap_or_else(|| {
            self.ranks.push(rank);
            self.ranks.len() - 1
        });
        self.nodes.push((known as u32, name, at));
    }

    /// So many, 0 for what does not fit. Of a pod without devices equal nodes have equal scores: which of them is better is for the
    /// scheduler to say.
    pub fn scores(mut self, demand: &Demand, len: usize) -> Vec<u8> {
        // The place of each rank, in place of its position; equal ones have one place.
        let mut order: Vec<u32> = (0..self.ranks.len() as u32).collect();
        order.sort_unstable_by_key(|at| self.ranks[*at as usize]);
        let mut places = vec![0; order.len()];
        for pair in order.windows(2) {
            let step = self.ranks[pair[0] as usize] != self.ranks[pair[1] as usize];
            places[pair[1] as usize] = places[pair[0] as usize] + u32::from(step);
        }
        self.nodes
            .iter_mut()
            .for_each(|(rank, ..)| *rank = places[*rank as usize]);
        self.nodes.sort_unstable();
        let best = usize::from(BEST);
        let others = self.nodes.len().saturating_sub(1).max(1);
        let alike = demand.is_empty();
        let worst = self.nodes.last().map_or(0, |(rank, ..)| *rank as usize).max(1);
        let mut scores = vec![0; len];
        for (place, (rank, _, at)) in self.nodes.iter().enumerate() {
            let score = match place {
                // The next best is two below: no plugin of the scheduler should make up for it by itself.
                _ if alike && *rank == 0 => best,
                _ if alike => best - 2 - (*rank as usize - 1) * (best - 2) / worst,
                0 => best,
                // 9 for the second, down to 1 for the last: better than not fitting.
                _ => best - 1 - (place - 1) * (best - 2) / others,
            };
            if let Some(slot) = scores.get_mut(*at) {
                *slot = u8::try_from(score).unwrap_or(0);
            }
        }
        scores
    }
}
