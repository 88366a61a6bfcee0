//! From a pod's claims and a node's free devices to the best devices, or to the reason why not.
//!
//! Pure functions over a snapshot; nothing here writes, waits or remembers.

use std::sync::Arc;

use crate::model::{Allocation, Claim, Name, Pod, Refusal};
use crate::selector::Selectors;
use crate::snapshot::{NodeEntry, Snapshot};

/// What policy says about placement.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Rules {
    /// Let a pod that does not say so itself hold devices of several wattage classes.
    pub mix_classes: bool,
    /// Emptiest node first instead of fullest.
    pub spread: bool,
}

/// What every decision of one request reads.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    pub snapshot: &'a Snapshot,
    pub selectors: &'a Selectors,
    pub rules: &'a Rules,
}

/// What a pod asks for: its claims, read once per request, not once per node.
#[derive(Debug)]
pub struct Demand {}

impl Demand {
    /// A refusal here holds for every node.
    pub fn of(_ctx: Context<'_>, _pod: &Pod) -> Result<Self, Refusal> {
        Ok(Self {})
    }

    /// Nothing to allocate and nothing to check: every node will do.
    pub fn is_empty(&self) -> bool {
        true
    }
}

/// Lower is better; compared key by key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Cost {
    /// Sum over pairs of devices of a request; 0 where there is one device or the links are unknown.
    pub links: u32,
    /// What the choice takes away from what others could still ask for.
    pub lost: u32,
    /// Watts above the least that would have satisfied the pod.
    pub excess_watts: u32,
}

/// One claim with what it gets.
#[derive(Clone, Debug)]
pub struct ClaimPlacement {
    pub claim: Arc<Claim>,
    pub allocation: Arc<Allocation>,
    /// The claim carried this allocation already; nothing is to be written but the reservation.
    pub existing: bool,
}

#[derive(Clone, Debug)]
pub struct Placement {
    /// In the order of the pod's claims.
    pub claims: Vec<ClaimPlacement>,
    pub cost: Cost,
    /// The one class of its devices; None: no classed device, or mixed by permission.
    pub class: Option<Name>,
    /// Sum of the known watts of its devices.
    pub watts: u32,
}

/// Whether the node can take the pod; cheaper than `place`.
pub fn check(_ctx: Context<'_>, _demand: &Demand, _node: &NodeEntry) -> Result<(), Refusal> {
    Ok(())
}

/// The best devices of one node.
pub fn place(_ctx: Context<'_>, _demand: &Demand, _node: &NodeEntry) -> Result<Placement, Refusal> {
    Ok(Placement {
        claims: vec![],
        cost: Cost::default(),
        class: None,
        watts: 0,
    })
}

/// Extender scores, 0 to 10, in the order of `nodes`. The best node alone has 10; equal nodes are ordered
/// by name. A node that does not fit (it may have changed since filter) has 0.
pub fn scores(_ctx: Context<'_>, _demand: &Demand, nodes: &[&Arc<NodeEntry>]) -> Vec<u8> {
    vec![0; nodes.len()]
}
