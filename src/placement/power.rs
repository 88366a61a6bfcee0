//! Power budgets in a decision: what of its domains a node may still draw, and what a choice of devices adds. A card
//! adds its watts once, whatever part of it is taken, and nothing where it is counted already.
//!
//! The index checks again when the devices are reserved. Here one figure stands for all domains of a node, that of the
//! domain of which least is left. Where the pod may also get devices that several nodes reach, the domains of all
//! those nodes are among them, which refuses too much rather than too little.

use super::Context;
use super::offer::Candidate;
use super::search::Choice;
use super::view::{Dev, View};
use crate::model::{Name, Reason, Refusal};
use crate::snapshot::{Domain, Draw, NodeEntry, PoolState};

/// What adds to a domain that cannot be told.
const UNKNOWN: u64 = u64::MAX;

/// The domain of the node of which least is left. None: the node is in none that has a budget.
pub(super) fn limit<'a>(ctx: Context<'a>, node: &NodeEntry) -> Option<Domain<'a>> {
    let power = &ctx.snapshot.power;
    let domains = node.domains.iter().filter_map(|ix| power.domain(*ix));
    domains.min_by_key(Domain::left)
}

/// Watts the node may still draw: more is better. Without a budget: the most there is.
pub(super) fn headroom(ctx: Context<'_>, node: &NodeEntry) -> u64 {
    limit(ctx, node).map_or(u64::MAX, |domain| domain.left())
}

/// A node over budget. `watts`: what the pod needs.
pub(super) fn refusal(domain: &Domain<'_>, watts: u64) -> Refusal {
    Refusal::new(Reason::PowerBudget, domain.short_of(watts))
}

/// A device that could be counted nowhere, where it would have to be.
pub(super) fn unknown(device: &Name) -> Refusal {
    let words = format!("watts of device {device} unknown: give its class watts in the policy");
    Refusal::new(Reason::PowerBudget, words)
}

/// The budget one search keeps to.
#[derive(Debug)]
pub(super) struct Budget<'a> {
    domain: Domain<'a>,
    left: u64,
    /// By position in `View::devices`.
    adds: Vec<Adds>,
    /// How many boards there are.
    boards: usize,
}

/// What one device adds when it is the first of its board.
#[derive(Clone, Copy, Debug)]
struct Adds {
    board: usize,
    /// Watts, 0 where nothing is counted or the board is already; `UNKNOWN`.
    watts: u64,
    /// Other devices may be of the same board.
    joined: bool,
}

impl<'a> Budget<'a> {
    /// None: nothing the pod could get falls under a budget.
    pub(super) fn of(ctx: Context<'a>, node: &'a NodeEntry, pools: &[&PoolState], devices: &[Dev<'_>]) -> Option<Self> {
        let power = &ctx.snapshot.power;
        let mut least = limit(ctx, node);
        if !power.wide.is_empty() {
            for (state, visible) in ctx.snapshot.pools_of(node) {
                let wide = power
                    .wide
                    .get(&visible.pool)
                    .filter(|_| pools.iter().any(|p| std::ptr::eq(*p, &**state)));
                let domains = wide.iter().flat_map(|d| d.iter()).filter_map(|ix| power.domain(*ix));
                least = domains.chain(least).min_by_key(Domain::left);
            }
        }
        let domain = least?;
        let mut budget = Self {
            domain,
            left: domain.left(),
            adds: Vec::with_capacity(devices.len()),
            boards: 0,
        };
        // Devices of a pool stand together; a board is told by its first device there.
        let mut offsets = vec![0; pools.len()];
        for (offset, state) in offsets.iter_mut().zip(pools) {
            *offset = budget.boards;
            budget.boards += state.pool.devices.len();
        }
        let counted: Vec<Vec<u32>> = pools.iter().map(|state| counted(state)).collect();
        for dev in devices {
            let boards = pools[dev.pool].pool.boards();
            let (first, draw) = boards.board(dev.at).unwrap_or((0, Draw::Unknown));
            let watts = match draw {
                _ if counted[dev.pool].contains(&first) => 0,
                Draw::Nothing => 0,
                Draw::Watts(watts) => u64::from(watts),
                Draw::Unknown => UNKNOWN,
            };
            budget.adds.push(Adds {
                board: offsets[dev.pool] + first as usize,
                watts,
                joined: boards.joined.contains(dev.at),
            });
        }
        Some(budget)
    }

    /// Devices that add differently are not interchangeable, and parts of a board never are.
    pub(super) fn kind(&self, dev: usize) -> (u64, Option<usize>) {
        let adds = &self.adds[dev];
        (adds.watts, adds.joined.then_some(dev))
    }

    /// The least that one of these adds, whatever else is chosen: a board that may be chosen twice adds nothing.
    pub(super) fn least<'c>(&self, candidates: impl Iterator<Item = &'c Candidate>) -> u64 {
        let adds = candidates.map(|c| match &self.adds[c.dev] {
            adds if adds.joined || c.takes.is_some() => 0,
            adds => adds.watts,
        });
        adds.min().unwrap_or(0)
    }
}

/// The boards of which some part is held.
fn counted(state: &PoolState) -> Vec<u32> {
    let shared = state.shared.keys().map(|at| *at as usize);
    let held = state.taken.iter().chain(shared);
    held.filter_map(|at| Some(state.pool.boards().board(at)?.0)).collect()
}

/// What a search has added so far.
#[derive(Debug)]
pub(super) struct Meter<'v> {
    budget: &'v Budget<'v>,
    spent: u64,
    /// By board: devices taken of it.
    taken: Vec<u32>,
}

impl<'v> Meter<'v> {
    pub(super) fn new(budget: &'v Budget<'v>) -> Self {
        Self {
            budget,
            spent: 0,
            taken: vec![0; budget.boards],
        }
    }

    fn adds(&self, dev: usize) -> u64 {
        let adds = &self.budget.adds[dev];
        if self.taken[adds.board] == 0 { adds.watts } else { 0 }
    }

    pub(super) fn fits(&self, candidate: &Candidate) -> bool {
        match self.adds(candidate.dev) {
            0 => true,
            watts => watts <= self.budget.left.saturating_sub(self.spent),
        }
    }

    pub(super) fn take(&mut self, candidate: &Candidate) {
        self.spent = self.spent.saturating_add(self.adds(candidate.dev));
        self.taken[self.budget.adds[candidate.dev].board] += 1;
    }

    /// Undoes the last `take` that is not undone.
    pub(super) fn give_back(&mut self, candidate: &Candidate) {
        self.taken[self.budget.adds[candidate.dev].board] -= 1;
        self.spent = self.spent.saturating_sub(self.adds(candidate.dev));
    }

    /// Whether so many watts more could be added at all.
    pub(super) fn affords(&self, watts: u64) -> bool {
        watts == 0 || watts <= self.budget.left.saturating_sub(self.spent)
    }
}

/// Why the budget stands in the way of this choice.
pub(super) fn over(view: &View<'_>, choice: &Choice) -> Option<Refusal> {
    let budget = view.budget.as_ref()?;
    let mut taken: Vec<usize> = vec![];
    let mut needed = 0_u64;
    for (request, (offer, picks)) in view.requests.iter().zip(choice.offers.iter().zip(&choice.picks)) {
        let offer = &request.offers[*offer];
        if offer.alternative.request.admin_access {
            continue;
        }
        for dev in picks.iter().map(|pick| offer.candidates[*pick].dev) {
            let adds = &budget.adds[dev];
            if taken.contains(&adds.board) {
                continue;
            }
            taken.push(adds.board);
            if adds.watts == UNKNOWN {
                return Some(unknown(&view.devices[dev].info.device.name));
            }
            needed = needed.saturating_add(adds.watts);
        }
    }
    Some(refusal(&budget.domain, needed))
}
