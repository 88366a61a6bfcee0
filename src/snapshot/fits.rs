//! What still fits on the cards a node sees, by profile.

use std::collections::BTreeMap;

use super::{NodeEntry, Pool, PoolHealth, PoolState, Snapshot};
use crate::model::{Device, Name, QualifiedName, Quantity};

const NANO: i128 = 1_000_000_000;

impl Snapshot {
    /// By profile, how many partitions of it alone still fit on the node, beside what is given; `whole` where cards that
    /// can be cut, or that are partitions already, are still uncut. Cards that are only ever whole are not in it. Where the
    /// node has one mode for all its cards, what is in use decides it and nothing fits of the others; as long as nothing is,
    /// each profile is counted as if it were the one that is chosen.
    pub fn fits(&self, node: &NodeEntry) -> BTreeMap<Name, u32> {
        let mut fits = BTreeMap::<Name, u32>::new();
        for (state, visible) in self.pools_of(node) {
            if *visible.health(&state.pool) == PoolHealth::Complete {
                for fit in state.fits(false, |i| visible.sees(i)) {
                    let sum = fits.entry(fit.profile).or_default();
                    *sum = sum.saturating_add(fit.count);
                }
            }
        }
        fits
    }
}

impl Snapshot {
    /// Memory left on the cards with consumable capacity that the node sees, in bytes, by pool; pools without any are not in
    /// it.
    pub fn shared_memory<'a>(&'a self, node: &'a NodeEntry) -> impl Iterator<Item = (&'a Pool, i128)> {
        self.pools_of(node).filter_map(|(state, visible)| {
            let (pool, summary) = (&*state.pool, state.pool.summary());
            let open = *visible.health(pool) == PoolHealth::Complete;
            let mut sum: Option<i128> = None;
            for i in summary.parts.iter().filter(|i| visible.sees(*i)) {
                let device = &pool.devices[i].device;
                let Some(all) = device.memory().filter(|_| device.is_shared()) else {
                    continue;
                };
                let free = open && !state.taken.contains(i) && !summary.tainted.contains(i);
                *sum.get_or_insert_default() += if free {
                    (all.nanos() - state.memory_given(i)).max(0) / NANO
                } else {
                    0
                };
            }
            Some((pool, sum?))
        })
    }
}

impl PoolState {
    /// Memory that is given of a shared device, in nano-bytes.
    pub fn memory_given(&self, at: usize) -> i128 {
        let given = u32::try_from(at).ok().and_then(|at| self.shared.get(&at));
        let memory = given.into_iter().flatten().filter(|(name, _)| &*name.name == "memory");
        memory.map(|(_, given)| given.nanos()).sum()
    }
}

/// So many of a profile, on one card or as partitions that are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Position in the pool of a device that is one.
    pub device: usize,
    pub profile: Name,
    pub count: u32,
}

impl PoolState {
    /// What of each profile fits on each card beside what is given; `empty`: if nothing were given. `sees`: which of the
    /// devices count.
    pub fn fits(&self, empty: bool, sees: impl Fn(usize) -> bool) -> Vec<Fit> {
        let pool = &*self.pool;
        let tainted = &pool.summary().tainted;
        let left = |i: usize| {
            let open = (empty || !self.taken.contains(i) && self.mode_against(i).is_none()) && !tainted.contains(i);
            if open {
                self.shares_left(&pool.devices[i].device, i, empty)
            } else {
                0
            }
        };
        let mut fits = vec![];
        let cards = &pool.cuts.cards;
        // By card and profile, what each device of it has to give: no more than is there.
        type OfProfile = Option<(usize, Vec<u32>)>;
        let mut devices: Vec<Vec<OfProfile>> = cards.iter().map(|c| vec![None; c.shape.profiles().len()]).collect();
        for (i, d) in pool.devices.iter().enumerate().filter(|(i, _)| sees(*i)) {
            if let Some((card, cut)) = pool.cuts.of(i) {
                let profile = cards[card].shape.profile(cut);
                // One that is being given in parts has drawn its counters already.
                let begun = !empty && u32::try_from(i).is_ok_and(|i| self.shared.contains_key(&i));
                if begun {
                    let profile = cards[card].shape.profiles()[profile].clone();
                    let (device, count) = (i, left(i));
                    fits.push(Fit { device, profile, count });
                } else {
                    devices[card][profile].get_or_insert((i, vec![])).1.push(left(i));
                }
                continue;
            }
            let plain = d.device.is_partition() && d.device.consumes.is_empty() && !d.device.is_shared();
            if let Some(profile) = d.device.profile().filter(|_| plain) {
                let (device, count) = (i, left(i));
                fits.push(Fit { device, profile, count });
            }
        }
        for (card, devices) in cards.iter().zip(devices) {
            let most = match empty {
                true => card.shape.fits(card.shape.empty()).to_vec(),
                false => card.shape.fits_in(&card.left(self)),
            };
            for ((profile, most), devices) in card.shape.profiles().iter().zip(most).zip(devices) {
                let Some((device, mut devices)) = devices else { continue };
                devices.sort_unstable_by(|a, b| b.cmp(a));
                let (profile, count) = (
                    profile.clone(),
                    devices
                        .iter()
                        .take(usize::from(most))
                        .fold(0, |sum: u32, n| sum.saturating_add(*n)),
                );
                fits.push(Fit { device, profile, count });
            }
        }
        fits
    }

    /// How often the device can still be given: once, or, where its driver counts equal partitions in it, as often as each
    /// of its capacities has what one allocation takes.
    fn shares_left(&self, device: &Device, at: usize, empty: bool) -> u32 {
        if !device.allow_multiple {
            return 1;
        }
        let at = u32::try_from(at).unwrap_or(u32::MAX);
        let shared = self.shared.get(&at).filter(|_| !empty);
        let given: &[(QualifiedName, Quantity)] = shared.map_or(&[], |v| v);
        let times = device.capacity.iter().filter_map(|(name, capacity)| {
            let default = capacity.policy.as_ref().and_then(|p| p.default);
            let takes = default.unwrap_or(capacity.value).nanos();
            let given: i128 = given.iter().filter(|(q, _)| q == name).map(|(_, v)| v.nanos()).sum();
            let left = (capacity.value.nanos() - given).max(0);
            (takes > 0).then(|| u32::try_from(left / takes).unwrap_or(u32::MAX))
        });
        times.min().unwrap_or(1)
    }
}
