//! The one mutable picture of the cluster: a plain synchronous struct that objects are fed to and
//! snapshots are taken from. Knows no Kubernetes types, no tasks and no clock.
//!
//! A change marks what it touches (a claim the pools it names, a node its local pools); `settle` looks at
//! the marked and nothing else, once for a whole batch.

mod cuts;
mod hold;
mod holders;
mod ledger;
mod objects;
mod pools;
mod power;
mod reserve;
mod rooms;
mod settle;
mod shadows;
mod shares;
mod unread;
mod usage;
mod wiring;

pub use crate::convert::{Key, Kind, Object, Unreadable};
pub use crate::snapshot::HoldId;
pub use hold::{HoldEnd, MOST_HOLDS};
pub use reserve::{Conflict, Reservation, ReservationId, ReservedClaim};
pub use shares::WantedSlot;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::model::{Classifier, DeviceId, Name, TaintRule};
use crate::snapshot::{NodeIx, PoolIx, Snapshot};
use crate::topology::Shape;

#[derive(Clone, Debug)]
pub enum Change {
    Upsert(Object),
    /// Deleted.
    Remove(Kind, Key),
    /// A complete relist: what is not in it is gone.
    Reset(Kind, Vec<Object>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct PoolKey {
    driver: Name,
    name: Name,
}

impl PoolKey {
    fn of(id: &DeviceId) -> Self {
        Self {
            driver: id.driver.clone(),
            name: id.pool.clone(),
        }
    }
}

pub struct Index {
    classifier: Arc<dyn Classifier>,
    /// The working copy: published by cloning.
    snapshot: Snapshot,
    /// The working copy differs from what was published.
    changed: bool,
    loosened: bool,
    pools: HashMap<PoolKey, pools::Record>,
    slice_pools: HashMap<Name, PoolKey>,
    taint_rules: BTreeMap<Name, TaintRule>,
    unread: unread::Unread,
    /// Pools with devices of the node, whether or not the node is known.
    local: HashMap<Name, BTreeSet<PoolKey>>,
    /// Pools with devices that are not a single node's.
    wide: BTreeSet<PoolKey>,
    ledger: ledger::Ledger,
    holders: holders::Holders,
    absent: shadows::Absent,
    domains: power::Domains,
    rooms: rooms::Rooms,
    reservations: reserve::Reservations,
    holds: hold::Holds,
    shares: shares::Shares,
    shapes: wiring::Shapes,
    cut_shapes: cuts::CutShapes,
    free_nodes: Vec<NodeIx>,
    free_pools: Vec<PoolIx>,
    /// Positions of pools ever given.
    pool_slots: u32,
    /// To be assembled again from their slices.
    stale_pools: BTreeSet<PoolKey>,
    /// To be counted again from the ledger.
    stale_states: BTreeSet<PoolKey>,
    /// To see their pools again.
    stale_nodes: BTreeSet<Name>,
    /// To have their part in the power domains counted again.
    stale_power: BTreeSet<PoolKey>,
    /// To be published again.
    stale_holds: BTreeSet<HoldId>,
    /// Shared claims whose sharers are to be published again.
    stale_shares: BTreeSet<Key>,
}

impl Index {
    pub fn new(classifier: Arc<dyn Classifier>) -> Self {
        let mut index = Self {
            classifier,
            snapshot: Snapshot::default(),
            changed: false,
            loosened: false,
            pools: HashMap::new(),
            slice_pools: HashMap::new(),
            taint_rules: BTreeMap::new(),
            unread: unread::Unread::default(),
            local: HashMap::new(),
            wide: BTreeSet::new(),
            ledger: ledger::Ledger::default(),
            holders: holders::Holders::default(),
            absent: shadows::Absent::default(),
            rooms: rooms::Rooms::default(),
            domains: power::Domains::default(),
            reservations: reserve::Reservations::default(),
            holds: hold::Holds::default(),
            shares: shares::Shares::default(),
            shapes: wiring::Shapes::default(),
            cut_shapes: cuts::CutShapes::default(),
            free_nodes: vec![],
            free_pools: vec![],
            pool_slots: 0,
            stale_pools: BTreeSet::new(),
            stale_states: BTreeSet::new(),
            stale_nodes: BTreeSet::new(),
            stale_power: BTreeSet::new(),
            stale_holds: BTreeSet::new(),
            stale_shares: BTreeSet::new(),
        };
        index.reset_domains();
        index
    }

    /// A new policy: every device is classified again, and every node's power domains are looked up again.
    pub fn set_classifier(&mut self, classifier: Arc<dyn Classifier>) {
        self.classifier = classifier;
        self.stale_pools.extend(self.pools.keys().cloned());
        self.reset_domains();
        self.touch_holders();
        // Even where no class changes: the rules that refused a pod may have.
        self.loosened = true;
    }

    /// The next snapshot, or None when nothing a reader can see has changed.
    pub fn publish(&mut self) -> Option<Arc<Snapshot>> {
        self.settle();
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        self.snapshot.version += 1;
        Some(Arc::new(self.snapshot.clone()))
    }

    /// Shapes that are published without their tables: correct, and slow to ask. Whoever takes them warms them, elsewhere.
    pub fn take_cold(&mut self) -> Vec<Arc<Shape>> {
        self.shapes.take_cold()
    }

    /// Whether, since it was last asked, something changed by which a refused pod could fit now.
    pub fn take_loosened(&mut self) -> bool {
        std::mem::take(&mut self.loosened)
    }
}
