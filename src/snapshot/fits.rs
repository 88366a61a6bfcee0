//! What still fits on the cards a node sees, by profile.

use std::collections::BTreeMap;

use super::{NodeEntry, PoolHealth, PoolState, Snapshot, Visible};
use crate::model::{Device, Effect, Name, QualifiedName, Quantity};

impl Snapshot {
    /// By profile, how many partitions of it alone still fit on the node, beside what is given; `whole` where cards that
    /// can be cut, or that are partitions already, are still uncut. Cards that are only ever whole are not in it.
    pub fn fits(&self, node: &NodeEntry) -> BTreeMap<Name, u32> {
        let mut fits = BTreeMap::new();
        for (state, visible) in self.pools_of(node) {
            if *visible.health(&state.pool) == PoolHealth::Complete {
                add(state, visible, &mut fits);
            }
        }
        fits
    }
}

fn add(state: &PoolState, visible: &Visible, fits: &mut BTreeMap<Name, u32>) {
    let pool = &*state.pool;
    let left = |i: usize| {
        let device = &*pool.devices[i].device;
        let blocks = |e| matches!(e, Effect::NoSchedule | Effect::NoExecute);
        let open = visible.sees(i) && !state.taken.contains(i) && !device.taints.iter().any(|t| blocks(t.effect));
        if open { shares_left(device, state, i) } else { 0 }
    };
    let cards = &pool.cuts.cards;
    // By card and profile, what each device of it has to give: no more than is there.
    let mut devices: Vec<Vec<Vec<u32>>> = cards.iter().map(|c| vec![vec![]; c.shape.profiles().len()]).collect();
    for (i, d) in pool.devices.iter().enumerate() {
        if let Some((card, cut)) = pool.cuts.of(i) {
            let profile = cards[card].shape.profile(cut);
            // One that is being given in parts has drawn its counters already.
            if u32::try_from(i).is_ok_and(|i| state.shared.contains_key(&i)) {
                let name = &cards[card].shape.profiles()[profile];
                *fits.entry(name.clone()).or_default() += left(i);
            } else {
                devices[card][profile].push(left(i));
            }
            continue;
        }
        let plain = d.device.is_partition() && d.device.consumes.is_empty() && !d.device.is_shared();
        if let Some(profile) = d.device.profile().filter(|_| plain && visible.sees(i)) {
            *fits.entry(profile).or_default() += left(i);
        }
    }
    for (card, devices) in cards.iter().zip(devices) {
        let most = card.shape.fits_in(&card.left(state));
        for ((name, most), mut devices) in card.shape.profiles().iter().zip(most).zip(devices) {
            devices.sort_unstable_by(|a, b| b.cmp(a));
            *fits.entry(name.clone()).or_default() += devices.iter().take(usize::from(most)).sum::<u32>();
        }
    }
}

/// How often the device can still be given: once, or, where its driver counts equal partitions in it, as often as each of
/// its capacities has what one allocation takes.
fn shares_left(device: &Device, state: &PoolState, at: usize) -> u32 {
    if !device.allow_multiple {
        return 1;
    }
    let at = u32::try_from(at).unwrap_or(u32::MAX);
    let given: &[(QualifiedName, Quantity)] = state.shared.get(&at).map_or(&[], |v| v);
    let times = device.capacity.iter().filter_map(|(name, capacity)| {
        let default = capacity.policy.as_ref().and_then(|p| p.default);
        let takes = default.unwrap_or(capacity.value).nanos();
        let given: i128 = given.iter().filter(|(q, _)| q == name).map(|(_, v)| v.nanos()).sum();
        let left = (capacity.value.nanos() - given).max(0);
        (takes > 0).then(|| u32::try_from(left / takes).unwrap_or(u32::MAX))
    });
    times.min().unwrap_or(1)
}
