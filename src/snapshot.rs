//! An immutable view of the cluster, and nothing else: `index` builds it, everyone reads it.
//!
//! Cloning is cheap (some fourteen reference counts), so the index keeps one as its own
//! working copy and publishes clones. No reader ever needs a lock.

mod boards;
mod cuts;
mod fits;
mod hold;
mod mask;
pub mod mix;
mod names;
mod plugin;
mod pool;
mod power;
mod same;
mod shard;
mod sharers;
mod slots;
mod usage;
mod wiring;

pub use boards::{Boards, Draw};
pub use cuts::{Card, Cuts};
pub use fits::Fit;
pub use hold::{Hold, HoldId, PoolHolds};
pub use mask::MaskCache;
pub use mix::Mix;
pub use names::Names;
pub use pool::{CardKind, Group, Pool, PoolDevice, PoolHealth, PoolIx, PoolState, Summary, Verdicts, Visible};
pub use power::{Domain, DomainIx, Power, Use};
pub use same::{ByCard, Drawn, Shadow, Shadows};
pub use shard::{Mark, ShardMap};
pub use sharers::{Seat, Sharers, Users, Waiting};
pub use slots::Slots;
pub use usage::DeviceUse;
pub use wiring::Wiring;

use std::cmp::Reverse;
use std::sync::Arc;

use crate::model::{Claim, ClaimTemplate, DeviceClass, Name, Namespace, NamespacedName, Node, Pod, Room};

/// Position of a node in `Snapshot::nodes`. Stable while the node exists; reused after it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeIx(pub u32);

/// A node and the pools whose devices it can reach.
#[derive(Clone, Debug)]
pub struct NodeEntry {
    pub node: Arc<Node>,
    /// Sorted by (driver, pool name).
    pub pools: Vec<Visible>,
    pub wiring: Option<Arc<Wiring>>,
    /// The power domains with a budget that it is in, one a label.
    pub domains: Arc<[DomainIx]>,
}

#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Grows by one with every publication that changed something.
    pub version: u64,
    /// None: a free position.
    pub nodes: Slots<Arc<NodeEntry>>,
    pub node_index: ShardMap<Name, NodeIx>,
    /// None: a free position.
    pub pools: Slots<Arc<PoolState>>,
    pub claims: ShardMap<NamespacedName, Arc<Claim>>,
    /// Pods with claims, GPU extended resources or our annotations; others are not kept.
    pub pods: ShardMap<NamespacedName, Arc<Pod>>,
    /// Pods that name a group (`wattlane.dev/group`), by namespace and group, sorted.
    pub groups: ShardMap<NamespacedName, Arc<Vec<NamespacedName>>>,
    pub templates: ShardMap<NamespacedName, Arc<ClaimTemplate>>,
    pub classes: ShardMap<Name, Arc<DeviceClass>>,
    pub namespaces: ShardMap<Name, Arc<Namespace>>,
    /// Names of the RuntimeClasses.
    pub runtime_classes: ShardMap<Name, ()>,
    pub power: Power,
    /// By position of the node, the CPU and memory that no pod on it asks for; None: it does not say what it has.
    pub rooms: Slots<Room>,
    /// What pods ask for.
    pub mix: Arc<Mix>,
    /// Devices kept for pods that are being placed, by each claim they are for.
    pub holds: ShardMap<NamespacedName, Arc<Hold>>,
    /// Of claims that pods share: who has a slot or waits for one, beside what the claim says.
    pub sharers: ShardMap<NamespacedName, Arc<Sharers>>,
    /// Why nothing may be given at the moment, where that is so: an object cannot be read that may hold devices, or forbid
    /// them.
    pub unread: Option<Name>,
}

impl Snapshot {
    pub fn node_ix(&self, name: &str) -> Option<NodeIx> {
        self.node_index.get(name).copied()
    }

    pub fn node(&self, ix: NodeIx) -> Option<&Arc<NodeEntry>> {
        self.nodes.get(ix.0)
    }

    pub fn node_named(&self, name: &str) -> Option<&Arc<NodeEntry>> {
        self.node(self.node_ix(name)?)
    }

    /// Every node with its position, in position order.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeIx, &Arc<NodeEntry>)> {
        self.nodes
            .iter()
            .enumerate()
            .filter_map(|(i, n)| Some((NodeIx(u32::try_from(i).ok()?), n?)))
    }

    pub fn pool(&self, ix: PoolIx) -> Option<&Arc<PoolState>> {
        self.pools.get(ix.0)
    }

    /// The DeviceClass that serves an extended resource: the one of its implicit name, else the newest that names the
    /// resource, then by name, as in-tree.
    pub fn class_serving(&self, resource: &str) -> Option<&Arc<DeviceClass>> {
        let implicit = resource.strip_prefix("deviceclass.resource.kubernetes.io/");
        implicit.and_then(|class| self.classes.get(class)).or_else(|| {
            let classes = self.classes.iter().map(|(_, class)| class);
            let serving = classes.filter(|c| c.extended_resource.as_deref() == Some(resource));
            serving.min_by_key(|c| (Reverse(c.created), &c.name))
        })
    }

    /// The class named for the resource, where there is one, else the one that says it serves it.
    pub fn class_for(&self, resource: &str, named: Option<&str>) -> Option<&Arc<DeviceClass>> {
        named
            .and_then(|name| self.classes.get(name))
            .or_else(|| self.class_serving(resource))
    }

    pub fn claim(&self, key: &NamespacedName) -> Option<&Arc<Claim>> {
        self.claims.get(key)
    }

    /// The pools a node reaches, with what of them it sees.
    pub fn pools_of<'a>(&'a self, node: &'a NodeEntry) -> impl Iterator<Item = (&'a Arc<PoolState>, &'a Visible)> {
        node.pools.iter().filter_map(|v| Some((self.pool(v.pool)?, v)))
    }
}
