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
    let mut by_name: Vec<(u32, &Arc<NodeEntry>)> = (0..).zip(nodes.iter().copied()).collect();
    by_name.sort_by_key(|(_, entry)| &entry.node.name);
    let mut fitting = Fitting::default();
    for (order, (at, entry)) in (0..).zip(by_name) {
        let ix = ctx.snapshot.node_ix(&entry.node.name);
        if let Some(rank) = ix.and_then(|ix| rank(ctx, demand, ix)) {
            fitting.add(rank, order, at);
        }
    }
    fitting.scores(demand, nodes.len())
}

/// Ranks looked at to find an equal one.
const LOOK_BACK: usize = 16;

/// The nodes that fit. Of thousands few are of different rank, so that ranks are compared once and then their places.
#[derive(Debug, Default)]
pub struct Fitting {
    /// Some may be equal.
    ranks: Vec<Rank>,
    /// By position of what the memo keeps: position of its rank and one more, 0: not seen yet.
    of_kept: Vec<u32>,
    nodes: Vec<Fit>,
}

#[derive(Clone, Copy, Debug)]
struct Fit {
    /// Position of the rank.
    rank: u32,
    /// What orders nodes of equal rank.
    order: u32,
    /// Position among the scores.
    at: u32,
}

impl Fitting {
    /// For so many nodes at most.
    pub fn with_capacity(nodes: usize) -> Self {
        Self {
            nodes: Vec::with_capacity(nodes),
            ..Self::default()
        }
    }

    /// A node that fits, with its place in the order of all names, which orders those of equal rank, and its position among
    /// the scores.
    pub fn add(&mut self, rank: Rank, order: u32, at: u32) {
        let first = self.ranks.len().saturating_sub(LOOK_BACK);
        let known = self.ranks[first..].iter().rposition(|known| *known == rank);
        let rank = match known {
            Some(known) => first + known,
            None => {
                self.ranks.push(rank);
                self.ranks.len() - 1
            }
        };
        let rank = rank as u32;
        self.nodes.push(Fit { rank, order, at });
    }

    /// The same for a node of which the memo keeps what its rank comes from.
    #[inline]
    pub(super) fn add_kept(&mut self, kept: usize, order: u32, at: u32, rank: impl FnOnce() -> Rank) {
        let known = self.of_kept.get(kept).and_then(|known| known.checked_sub(1));
        let rank = known.unwrap_or_else(|| {
            self.ranks.push(rank());
            self.of_kept.resize(self.of_kept.len().max(kept + 1), 0);
            self.of_kept[kept] = self.ranks.len() as u32;
            self.ranks.len() as u32 - 1
        });
        self.nodes.push(Fit { rank, order, at });
    }

    /// So many, 0 for what does not fit. Of a pod without devices equal nodes have equal scores: which of them is better is for the
    /// scheduler to say.
    pub fn scores(self, demand: &Demand, len: usize) -> Vec<u8> {
        let places = self.places();
        let place = |fit: &Fit| places[fit.rank as usize];
        let best = u32::from(BEST);
        let sorted = counted(counted(self.nodes, |fit| fit.order), place);
        let mut scores = vec![0; len];
        let mut set = |fit: &Fit, score: u32| {
            if let Some(slot) = scores.get_mut(fit.at as usize) {
                *slot = u8::try_from(score).unwrap_or(0);
            }
        };
        if demand.is_empty() {
            let worst = places.iter().max().map_or(1, |worst| (*worst).max(1));
            for fit in &sorted {
                // The next best is two below: no plugin of the scheduler should make up for it by itself.
                let below = |place: u32| best - 2 - (place - 1) * (best - 2) / worst;
                set(fit, if place(fit) == 0 { best } else { below(place(fit)) });
            }
            return scores;
        }
        let Some((first, others)) = sorted.split_first() else {
            return scores;
        };
        set(first, best);
        // 9 for the second, down to 1 for the last: better than not fitting.
        let (mut score, mut down) = (best - 1, 0);
        for fit in others {
            set(fit, score);
            down += best - 2;
            while down >= others.len() as u32 {
                (score, down) = (score.saturating_sub(1), down - others.len() as u32);
            }
        }
        scores
    }

    /// The place of each rank; equal ones have one.
    fn places(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.ranks.len() as u32).collect();
        order.sort_unstable_by_key(|at| self.ranks[*at as usize]);
        let mut places = vec![0; order.len()];
        for pair in order.windows(2) {
            let step = self.ranks[pair[0] as usize] != self.ranks[pair[1] as usize];
            places[pair[1] as usize] = places[pair[0] as usize] + u32::from(step);
        }
        places
    }
}

/// In the order of keys, equal ones as they were. Keys are places and positions: there are not many more of them than nodes of
/// the cluster, and to count them takes a tenth of comparing them.
fn counted(fits: Vec<Fit>, key: impl Fn(&Fit) -> u32) -> Vec<Fit> {
    if fits.is_sorted_by_key(&key) {
        return fits;
    }
    let most = fits.iter().map(&key).max().unwrap_or(0);
    let mut next = vec![0; most as usize + 2];
    fits.iter().for_each(|fit| next[key(fit) as usize + 1] += 1);
    let mut sum = 0_usize;
    next.iter_mut().for_each(|start| {
        sum += *start;
        *start = sum;
    });
    let mut sorted = fits.clone();
    for fit in &fits {
        let at = &mut next[key(fit) as usize];
        sorted[*at] = *fit;
        *at += 1;
    }
    sorted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// As sorting would have it; equal ones stay as they were.
        #[test]
        fn counting_sorts(keys in prop::collection::vec(0_u32..50, 0..40)) {
            let fit = |(at, key): (u32, &u32)| Fit { rank: 0, order: *key, at };
            let fits: Vec<Fit> = (0..).zip(&keys).map(fit).collect();
            let mut expected: Vec<(u32, u32)> = fits.iter().map(|fit| (fit.order, fit.at)).collect();
            expected.sort_unstable();
            let sorted: Vec<_> = counted(fits, |fit| fit.order).iter().map(|fit| (fit.order, fit.at)).collect();
            prop_assert_eq!(sorted, expected);
        }
    }
}
