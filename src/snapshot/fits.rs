//! What still fits on the cards a node sees, by profile.

use std::collections::BTreeMap;

use super::{NodeEntry, PoolHealth, PoolState, Snapshot, Visible};
use crate::model::{Effect, Name};

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
    let open = |i: usize| {
        let blocks = |e| matches!(e, Effect::NoSchedule | Effect::NoExecute);
        let device = &pool.devices[i].device;
        visible.sees(i) && !state.taken.contains(i) && !device.taints.iter().any(|t| blocks(t.effect))
    };
    for (at, card) in pool.cuts.cards.iter().enumerate() {
        // No more of a profile than devices of it are there to be given.
        let mut devices = vec![0_u32; card.shape.profiles().len()];
        for i in (0..pool.devices.len()).filter(|i| open(*i)) {
            if let Some((_, cut)) = pool.cuts.of(i).filter(|(of, _)| *of == at) {
                devices[card.shape.profile(cut)] += 1;
            }
        }
        let most = card.shape.fits_in(&card.left(state));
        for ((name, most), devices) in card.shape.profiles().iter().zip(most).zip(devices) {
            *fits.entry(name.clone()).or_default() += u32::from(most).min(devices);
        }
    }
    for (i, d) in pool.devices.iter().enumerate() {
        let profile = d
            .device
            .profile()
            .filter(|_| d.device.is_partition() && d.device.consumes.is_empty());
        if let Some(profile) = profile.filter(|_| visible.sees(i)) {
            *fits.entry(profile.clone()).or_default() += u32::from(open(i));
        }
    }
}
