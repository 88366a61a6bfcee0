//! Which devices are one card, or a card and a part of it: the one rule for what may be given beside what, for power and
//! for the audit.
//!
//! What tells a card, in the words of the NVIDIA and AMD drivers (facts/devices.md): its `uuid` and the address it has on
//! its node (`pciAddr`, `pciBusID`); a partition names its card by `parentUUID`, `parentPciAddr` or `pciBusID`, or carries
//! the card's `uuid` itself. Where counters say what excludes what, they are believed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::pool::PoolDevice;
use crate::model::{Device, Name, NodeScope, Quantity};

/// What tells a card. An address is one of those who reach it.
pub(super) type Id<'a> = (&'static str, Option<&'a NodeScope>, &'a Name);

/// Everything that tells the card which the device is, or is cut from.
pub(super) fn ids(d: &PoolDevice) -> impl Iterator<Item = Id<'_>> {
    let names: &[(&str, &str)] = match d.device.is_partition() {
        false => &[("uuid", "uuid"), ("pci", "pciAddr"), ("pci", "pciBusID")],
        true => &[
            ("uuid", "parentUUID"),
            ("pci", "parentPciAddr"),
            ("pci", "pciBusID"),
            ("uuid", "uuid"),
        ],
    };
    names.iter().filter_map(|(kind, name)| {
        let told = d.device.text(name).filter(|text| !text.is_empty())?;
        Some((*kind, (*kind == "pci").then_some(&d.scope), told))
    })
}

/// Whether who holds one of them holds something of the other. `counters_tell`: both are, or were, of one pool, and its
/// counters say what of them goes together.
fn overlap(a: &PoolDevice, b: &PoolDevice, counters_tell: bool) -> bool {
    let uuid = |d: &PoolDevice| d.device.text("uuid").filter(|u| !u.is_empty()).cloned();
    let one_uuid = || uuid(a).is_some_and(|u| uuid(b) == Some(u));
    let one_card = || ids(a).any(|id| ids(b).any(|other| other == id));
    let counted = |d: &PoolDevice| !d.device.consumes.is_empty();
    let both_counted = counters_tell && counted(a) && counted(b);
    match (a.device.is_partition(), b.device.is_partition()) {
        // Two cards of one address are somebody's mistake.
        (false, false) => one_uuid(),
        // Partitions that exist are apart; what could be made of a card is apart where counters say so.
        (true, true) if counted(a) || counted(b) => match both_counted {
            true => one_uuid() && !common_set(&a.device, &b.device),
            false => one_card(),
        },
        (true, true) => one_uuid(),
        _ if both_counted => one_uuid() && !common_set(&a.device, &b.device),
        _ => one_card(),
    }
}

fn common_set(a: &Device, b: &Device) -> bool {
    let of_b = |set: &Name| b.consumes.iter().any(|c| c.counter_set == *set);
    a.consumes.iter().any(|c| of_b(&c.counter_set))
}

/// Devices of a list by what tells their card.
pub struct ByCard<'a> {
    devices: &'a [PoolDevice],
    ids: HashMap<Id<'a>, Vec<u32>>,
}

impl<'a> ByCard<'a> {
    pub fn of(devices: &'a [PoolDevice]) -> Self {
        let mut by: HashMap<Id<'_>, Vec<u32>> = HashMap::new();
        for (at, d) in (0u32..).zip(devices) {
            ids(d).for_each(|id| by.entry(id).or_default().push(at));
        }
        Self { devices, ids: by }
    }

    /// Whether the device says which card it is, or is cut from.
    pub fn tells(&self, device: &PoolDevice) -> bool {
        ids(device).next().is_some()
    }

    /// Those that overlap with the device, in order.
    pub fn overlapping(&self, device: &PoolDevice, counters_tell: bool) -> BTreeSet<u32> {
        let near = ids(device).filter_map(|id| self.ids.get(&id)).flatten().copied();
        let mut near: BTreeSet<u32> = near.collect();
        near.retain(|at| overlap(device, &self.devices[*at as usize], counters_tell));
        near
    }
}

/// The other positions of each device: what overlaps with it, and devices of its name.
pub(super) fn twins(devices: &[PoolDevice]) -> BTreeMap<u32, Vec<u32>> {
    let by_card = ByCard::of(devices);
    let mut by_name: HashMap<&Name, Vec<u32>> = HashMap::new();
    for (at, d) in (0u32..).zip(devices) {
        by_name.entry(&d.device.name).or_default().push(at);
    }
    let mut twins = BTreeMap::new();
    for (at, d) in (0u32..).zip(devices) {
        let mut others = by_card.overlapping(d, true);
        others.extend(by_name.get(&d.device.name).into_iter().flatten());
        others.remove(&at);
        if !others.is_empty() {
            twins.insert(at, others.into_iter().collect());
        }
    }
    twins
}

/// Position of a counter set and of a counter of it, and how much of that.
pub type Drawn = (usize, usize, Quantity);

/// What somebody takes of a pool who holds a device that is not in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shadow {
    /// Positions of the devices it overlaps.
    pub over: Box<[u32]>,
    /// What it takes of the counters.
    pub drawn: Box<[Drawn]>,
    /// It can be given: another pool of the driver lists it.
    pub published: bool,
    /// Nothing tells what it overlaps, neither counters nor an identity.
    pub unplaced: bool,
}

/// By pool and device.
pub type Shadows = BTreeMap<(Name, Name), Shadow>;
