//! From a pod's claims and a node's free devices to the best devices, or to the reason why not.
//!
//! Pure functions over a snapshot; nothing here writes or waits, and what is remembered is the caller's (`memo`). How a decision runs:
//! `demand` reads the pod once; `quick` answers the common shape from bit masks; for anything else `view` (`offer`, `cards`) lists what
//! one node has for each request, `search` (`order`, `key`) picks (with `state` as its ledger), `why` explains a "no" (`held`: one
//! that passes by itself), `result` writes the allocation.

mod allowed;
mod capacity;
mod cards;
mod demand;
mod existing;
mod group;
mod held;
mod key;
mod limit;
mod matching;
mod memo;
mod offer;
mod order;
mod power;
mod quick;
mod result;
mod score;
mod search;
mod share;
mod sharing;
mod slots;
mod solve;
mod state;
mod vacancy;
mod view;
mod why;
mod wish;
mod words;

use std::sync::Arc;

pub use allowed::{NamespaceLimits, Slots};
pub use demand::Demand;
pub use held::{HELD, only_held};
pub use memo::{Answers, Memo};
pub use score::{BEST, Fitting, Rank, has_say, rank, scores};
pub use share::{ShareState, shares};

use crate::model::{Allocation, Claim, DeviceId, Name, Refusal};
use crate::selector::Selectors;
use crate::snapshot::{NodeEntry, Snapshot};

/// What policy says about placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Let a pod that does not say so itself hold devices of several wattage classes.
    pub mix_classes: bool,
    /// Emptiest node first instead of fullest.
    pub spread: bool,
    /// For pods of more than one card that do not say so themselves.
    pub topology: Topology,
    /// Node labels that say how near two nodes are, narrowest first; for pods that name a group.
    pub nearness: Vec<Name>,
    /// What pods of namespaces may have; the first that matches counts. Shared: rules are made for every request.
    pub allowed: Arc<[NamespaceLimits]>,
    /// How much each partition profile is asked for (`whole`: uncut cards), as weights; what is not named has 1.
    pub demand: Arc<[(Name, u32)]>,
}

/// Of the labels in use: one NVLink domain, the rack, the zone.
pub const NEARNESS: [&str; 3] = [
    "nvidia.com/gpu.clique",
    "topology.kubernetes.io/rack",
    "topology.kubernetes.io/zone",
];

impl Default for Rules {
    fn default() -> Self {
        Self {
            mix_classes: false,
            spread: false,
            topology: Topology::default(),
            nearness: NEARNESS.map(Name::from).to_vec(),
            allowed: Arc::default(),
            demand: Arc::default(),
        }
    }
}

/// What every decision of one request reads.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    pub snapshot: &'a Snapshot,
    pub selectors: &'a Selectors,
    pub rules: &'a Rules,
}

/// Whether the links between a pod's cards count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Topology {
    /// All cards of the pod reach each other by a fabric (NVLink, XGMI), or are below one PCIe root where the node has no
    /// fabric; else the node is refused.
    Required,
    #[default]
    Preferred,
    None,
}

/// What a placement costs beyond watts; lower is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Cost {
    /// Sum over the pairs of devices within each request (`topology::Link::cost`): 1 for each pair joined by a fabric, 4
    /// for each of which nothing is known. 0 where requests are for one device, or the pod does not care.
    pub links: u32,
    /// Cards in groups of 2, 4, 8 and 16 that reach each other and that others can no longer have.
    pub lost: u32,
}

/// One claim with what it gets.
#[derive(Clone, Debug)]
pub struct ClaimPlacement {
    pub claim: Arc<Claim>,
    pub allocation: Arc<Allocation>,
    /// The claim carried this allocation already; nothing is to be written but the reservation.
    pub existing: bool,
    /// The claim is shared by so many pods at most. None: it is not one of those.
    pub slots: Option<usize>,
}

#[derive(Clone, Debug)]
pub struct Placement {
    /// In the order of the pod's claims.
    pub claims: Vec<ClaimPlacement>,
    pub cost: Cost,
    /// The one class of its devices; None: no classed device, or mixed by permission.
    pub class: Option<Name>,
    /// Sum of the known watts of its devices. Devices held for admin access do not count, here and in `class`.
    pub watts: u32,
    /// Devices whose watts are not known, and which `watts` therefore leaves out.
    pub unknown_watts: u32,
    /// The step limit ended the search: the devices are valid, but there may be better ones.
    pub cut: bool,
}

/// Whether the node can take the pod; cheaper than `place`.
pub fn check(ctx: Context<'_>, demand: &Demand, node: &NodeEntry) -> Result<(), Refusal> {
    demand.admit(ctx, node)?;
    match quick::tally(ctx, demand, node, false) {
        Some(tally) => tally.verdict(demand),
        None => solve::any(ctx, demand, node),
    }
}

/// The best devices of one node.
pub fn place(ctx: Context<'_>, demand: &Demand, node: &NodeEntry) -> Result<Placement, Refusal> {
    demand.admit(ctx, node)?;
    match quick::tally(ctx, demand, node, true).and_then(|tally| tally.place(ctx, demand, node)) {
        Some(placement) => placement,
        None => solve::best(ctx, demand, node).map(|(placement, ..)| placement),
    }
}

/// What plain list order would have taken of this node: the first devices that match and are free, with no regard to
/// wattage classes or wishes. For comparison only. None: it would have found nothing.
pub fn list_order(ctx: Context<'_>, demand: &Demand, node: &NodeEntry) -> Option<Vec<DeviceId>> {
    demand.admit(ctx, node).ok()?;
    solve::in_list_order(ctx, demand, node)
}
