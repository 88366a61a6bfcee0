//! A pool of devices: what its driver publishes (`Pool`, immutable and shared between snapshots)
//! and what of it is taken (`PoolState`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use super::same::twins;
use super::{Boards, Cuts, MaskCache, PoolHolds, Shadows};
use crate::model::{Bits, Classified, CounterSet, Device, Effect, Name, NodeScope, QualifiedName, Quantity, node_mode};

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
    /// Some pod holds devices of it, and nobody knows which: who. Only ever the health of one node's part.
    Held(Name),
    /// A device of it is held that is not published, and nobody knows which of its cards it was cut from: who, and which.
    /// Only ever the health of one node's part.
    Lost(Name),
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
    /// The cards among them that can be cut.
    pub cuts: Cuts,
    /// What single selectors say about `devices`, by the id of the selector. Sets of selectors are combined by
    /// whoever asks: the selectors of a class are shared by all requests of the class.
    pub masks: MaskCache<Arc<Verdicts>>,
    /// Devices that are not in it and overlap with some of it: those that vanished, and those of other pools of its driver.
    pub shadows: Shadows,
    /// Computed from `devices` and `shadows` when first asked for.
    pub summary: OnceLock<Summary>,
    /// Computed from `devices` when first asked for, which is where there are power budgets.
    pub boards: OnceLock<Boards>,
}

impl Pool {
    /// What a device takes of the pool's counters: position of the set and of the counter, amount. No position: it names
    /// a counter that is not there (the pool is invalid then).
    pub fn draws<'a>(&'a self, device: &'a Device) -> impl Iterator<Item = (Option<(usize, usize)>, Quantity)> + 'a {
        device.consumes.iter().flat_map(move |consumption| {
            let sets = &self.counter_sets;
            let set = sets.binary_search_by(|s| s.name.cmp(&consumption.counter_set)).ok();
            consumption.counters.iter().map(move |(name, amount)| {
                let counter = |s: usize| sets[s].counters.binary_search_by(|(n, _)| n.cmp(name)).ok();
                (set.and_then(|s| Some((s, counter(s)?))), *amount)
            })
        })
    }

    /// The same devices, with nothing remembered of them.
    #[must_use]
    pub fn with_shadows(&self, shadows: Shadows) -> Self {
        Self {
            driver: self.driver.clone(),
            name: self.name.clone(),
            generation: self.generation,
            health: self.health.clone(),
            devices: self.devices.clone(),
            by_name: self.by_name.clone(),
            counter_sets: self.counter_sets.clone(),
            cuts: self.cuts.clone(),
            masks: MaskCache::default(),
            shadows,
            summary: OnceLock::new(),
            boards: OnceLock::new(),
        }
    }

    pub fn summary(&self) -> &Summary {
        self.summary
            .get_or_init(|| Summary::of(&self.driver, &self.devices, &self.shadows))
    }

    /// The mode of the node that the device needs: position in `Summary::modes`. None: any.
    pub fn mode(&self, device: usize) -> Option<usize> {
        let modes = &self.summary().modes;
        modes.iter().position(|(_, of)| of.contains(device))
    }

    pub fn boards(&self) -> &Boards {
        self.boards.get_or_init(|| Boards::of(&self.driver, &self.devices))
    }
}

/// What one selector says about each device of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdicts {
    pub matches: Bits,
    /// Devices on which it gave no answer; never set together with `matches`. The words are not kept:
    /// evaluating it once more gives them.
    pub failed: Bits,
}

/// Devices of a pool that are alike in class and watts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub class: Option<Name>,
    pub watts: Option<u32>,
    pub devices: Bits,
}

/// What the quick path of placement would otherwise read device by device for every pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// In the order of their first device; every device is in exactly one.
    pub groups: Vec<Group>,
    /// Devices with a taint that keeps pods away unless tolerated.
    pub tainted: Bits,
    /// Devices that are more than present or absent: shares, counters, binding conditions, modes, twins, be they in another
    /// pool.
    pub special: Bits,
    /// Devices with binding conditions: whoever gets one waits for its driver.
    pub waiting: Bits,
    /// Devices that are not a whole card: partitions, and cards that are given in shares.
    pub parts: Bits,
    /// What each device overlaps beside what counters say: one card listed several times (as a GPU and for passthrough,
    /// say), a card listed whole beside its partitions, and devices of one name, which are one device to whoever holds it.
    /// Pairs, and no equivalence: whoever holds a part holds the whole, but no part holds another.
    pub twins: BTreeMap<u32, Vec<u32>>,
    /// By the mode of the node that they need (`model::node_mode`), the devices that do; by name. What is in use of one
    /// keeps those of all others from being given. Empty for nearly all drivers.
    pub modes: Vec<(Name, Bits)>,
    /// What can be asked for by its kind: partitions and whole cards, without what is given in shares.
    pub kinds: Vec<CardKind>,
}

/// Devices of a pool that somebody who asks by profile or by memory cannot tell apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CardKind {
    pub partition: bool,
    pub profile: Option<Name>,
    pub class: Option<Name>,
    /// Usable bytes. None: not published.
    pub memory: Option<Quantity>,
}

impl Summary {
    fn of(driver: &str, devices: &[PoolDevice], shadows: &Shadows) -> Self {
        let empty = Bits::new(devices.len());
        let mut summary = Self {
            groups: vec![],
            tainted: empty.clone(),
            special: empty.clone(),
            waiting: empty.clone(),
            parts: empty.clone(),
            twins: twins(devices),
            modes: modes(driver, devices),
            kinds: vec![],
        };
        let elsewhere = shadows.values().filter(|shadow| shadow.published);
        for at in elsewhere.flat_map(|shadow| &shadow.over) {
            summary.special.insert(*at as usize);
        }
        for (i, PoolDevice { device, classified, .. }) in devices.iter().enumerate() {
            let blocks = |e| matches!(e, Effect::NoSchedule | Effect::NoExecute);
            if device.taints.iter().any(|t| blocks(t.effect)) {
                summary.tainted.insert(i);
            }
            let twin = u32::try_from(i).is_ok_and(|i| summary.twins.contains_key(&i));
            let waits = !device.binding_conditions.is_empty();
            if waits {
                summary.waiting.insert(i);
            }
            let of_mode = summary.modes.iter().any(|(_, of)| of.contains(i));
            if of_mode || twin || waits || device.allow_multiple || !device.consumes.is_empty() {
                summary.special.insert(i);
            }
            if device.is_shared() || device.is_partition() {
                summary.parts.insert(i);
            }
            if !device.is_shared() {
                let kind = CardKind {
                    partition: device.is_partition(),
                    profile: device.profile(),
                    class: classified.class.clone(),
                    memory: device.memory(),
                };
                if !summary.kinds.contains(&kind) {
                    summary.kinds.push(kind);
                }
            }
            let alike = |g: &&mut Group| g.class == classified.class && g.watts == classified.watts;
            if let Some(group) = summary.groups.iter_mut().find(alike) {
                group.devices.insert(i);
                continue;
            }
            let mut devices = empty.clone();
            devices.insert(i);
            summary.groups.push(Group {
                class: classified.class.clone(),
                watts: classified.watts,
                devices,
            });
        }
        summary
    }
}

fn modes(driver: &str, devices: &[PoolDevice]) -> Vec<(Name, Bits)> {
    if node_mode(driver).is_none() {
        return vec![];
    }
    let mut modes: BTreeMap<&Name, Bits> = BTreeMap::new();
    for (i, d) in devices.iter().enumerate() {
        if let Some(mode) = d.device.node_mode(driver) {
            modes.entry(mode).or_insert_with(|| Bits::new(devices.len())).insert(i);
        }
    }
    modes.into_iter().map(|(mode, of)| (mode.clone(), of)).collect()
}

/// A pool and what allocations, reservations and holds took of it.
#[derive(Clone, Debug)]
pub struct PoolState {
    pub pool: Arc<Pool>,
    /// Devices given whole, by an allocation in the API, a reservation or a hold of ours.
    pub taken: Bits,
    /// Devices of which shares are given, and how much of each capacity, summed.
    pub shared: BTreeMap<u32, Vec<(QualifiedName, Quantity)>>,
    /// What is left of each counter: same order as `pool.counter_sets` and their counters.
    /// May be negative where a driver shrank a set below what is in use.
    pub counters_left: Vec<Vec<Quantity>>,
    /// Held devices that are not in the pool and draw of its counters: each draws once.
    pub absent: BTreeSet<Name>,
    /// Modes of the node (`Summary::modes`, by position) that something in use needs: one, or none yet. Several, where
    /// somebody else gave them, leave nothing to give.
    pub modes: Vec<usize>,
    /// What of all this is held for pods that are being placed; None: nothing.
    pub holds: Option<Arc<PoolHolds>>,
}

impl PoolState {
    /// A mode of the node that is in use and not the one that the device needs: it cannot be given meanwhile.
    pub fn mode_against(&self, device: usize) -> Option<&Name> {
        // Nearly always.
        if self.modes.is_empty() {
            return None;
        }
        let own = self.pool.mode(device)?;
        let other = self.modes.iter().find(|mode| **mode != own)?;
        self.pool.summary().modes.get(*other).map(|(name, _)| name)
    }
}

/// Equal in everything a reader sees.
impl PartialEq for PoolState {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.pool, &other.pool)
            && self.taken == other.taken
            && self.shared == other.shared
            && self.counters_left == other.counters_left
            && self.modes == other.modes
            && self.holds == other.holds
    }
}

/// What of a pool one node sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visible {
    pub pool: PoolIx,
    /// None: all of it (the usual case: a pool of the node itself).
    pub devices: Option<Arc<Bits>>,
    /// None: that of the pool. A node may see a whole and consistent part of a pool that is neither.
    pub health: Option<PoolHealth>,
}

impl Visible {
    /// Whether the node may be given devices of the pool.
    pub fn health<'a>(&'a self, pool: &'a Pool) -> &'a PoolHealth {
        self.health.as_ref().unwrap_or(&pool.health)
    }

    pub fn sees(&self, device: usize) -> bool {
        self.devices.as_ref().is_none_or(|bits| bits.contains(device))
    }

    /// Positions `n * 64..` as bits, of a pool of `size` devices.
    pub fn word(&self, n: usize, size: usize) -> u64 {
        let all = match size.saturating_sub(n * 64) {
            64.. => u64::MAX,
            tail => (1 << tail) - 1,
        };
        self.devices.as_ref().map_or(all, |bits| all & bits.word(n))
    }
}
