//! A pool of devices: what its driver publishes (`Pool`, immutable and shared between snapshots)
//! and what of it is taken (`PoolState`).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::MaskCache;
use crate::model::{Bits, Classified, CounterSet, Device, Name, NodeScope, QualifiedName, Quantity, Refusal};

/// Position of a pool in `Snapshot::pools`. Stable while the pool exists; reused after it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolIx(pub u32);

/// Whether a pool may be allocated from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolHealth {
    Complete,
    /// Slices are missing: have, want.
    Incomplete {
        have: u32,
        want: u32,
    },
    /// Duplicate device names, a counter set that does not exist, a part we do not know: why.
    Invalid(Name),
}

/// A device with what the index knows about it beyond the slice.
#[derive(Clone, Debug)]
pub struct PoolDevice {
    pub device: Arc<Device>,
    pub classified: Classified,
    /// Which nodes reach it.
    pub scope: NodeScope,
}

/// The newest generation of one pool. Devices are ordered by (slice name, position in the slice),
/// the order in which the in-tree allocator tries them.
#[derive(Debug)]
pub struct Pool {
    pub driver: Name,
    pub name: Name,
    pub generation: i64,
    pub health: PoolHealth,
    pub devices: Vec<PoolDevice>,
    /// Position by device name.
    pub by_name: BTreeMap<Name, u32>,
    /// Sorted by name.
    pub counter_sets: Vec<CounterSet>,
    /// Results of selector sets over `devices`: the bits that match, or the first error.
    pub masks: MaskCache<Result<Arc<Bits>, Refusal>>,
}

/// A pool and what allocations and reservations took of it.
#[derive(Clone, Debug)]
pub struct PoolState {
    pub pool: Arc<Pool>,
    /// Devices given whole, by an allocation in the API or a reservation of ours.
    pub taken: Bits,
    /// Devices of which shares are given, and how much of each capacity, summed.
    pub shared: BTreeMap<u32, Vec<(QualifiedName, Quantity)>>,
    /// What is left of each counter: same order as `pool.counter_sets` and their counters.
    /// May be negative where a driver shrank a set below what is in use.
    pub counters_left: Vec<Vec<Quantity>>,
}

/// What of a pool one node sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visible {
    pub pool: PoolIx,
    /// None: all of it (the usual case: a pool of the node itself).
    pub devices: Option<Arc<Bits>>,
}

impl Visible {
    pub fn sees(&self, device: usize) -> bool {
        self.devices.as_ref().is_none_or(|bits| bits.contains(device))
    }
}
