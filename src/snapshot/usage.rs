//! What is taken of one pool: the arithmetic of devices, shares and counters. Who holds what is the index's to know.
//!
//! Source of the rules: k8s.io/dynamic-resource-allocation/structured. A device draws its counters once, however many
//! shares of it are given.

use std::sync::Arc;

use super::{Pool, PoolState};
use crate::model::{Bits, Name, QualifiedName, Quantity};

/// What is held of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceUse {
    /// Another pool of the driver that has the device; None: the one that is counted.
    pub pool: Option<Name>,
    pub device: Name,
    /// A share of a device that allows several; None: the whole device.
    pub share: Option<Name>,
    /// Names with their domain: of two spellings of one capacity both count against it. The in-tree allocator counts
    /// only the one of the slice, and gives again what is held under the other.
    pub consumed: Vec<(QualifiedName, Quantity)>,
}

impl Pool {
    /// What the device takes: position of the set, position of the counter, amount. References to what is not there are
    /// left out; they make the pool invalid elsewhere.
    pub fn drawn(&self, ix: u32) -> impl Iterator<Item = (usize, usize, Quantity)> + '_ {
        let draws = self.draws(&self.devices[ix as usize].device);
        draws.filter_map(|(at, amount)| at.map(|(set, counter)| (set, counter, amount)))
    }
}

impl PoolState {
    /// A pool of which nothing is taken.
    pub fn untouched(pool: Arc<Pool>) -> Self {
        let full = |set: &crate::model::CounterSet| set.counters.iter().map(|(_, q)| *q).collect();
        Self {
            taken: Bits::new(pool.devices.len()),
            shared: Default::default(),
            counters_left: pool.counter_sets.iter().map(full).collect(),
            absent: Default::default(),
            modes: vec![],
            holds: None,
            pool,
        }
    }

    /// Counts a use, whether or not it fits: the API says it is so. A device that is not there takes what it overlaps, as
    /// far as that is known.
    pub fn add(&mut self, held: &DeviceUse) {
        let own = held
            .pool
            .is_none()
            .then(|| self.pool.by_name.get(&held.device))
            .flatten();
        let Some(&ix) = own else {
            return self.add_absent(held);
        };
        let first = !(self.taken.contains(ix as usize) || self.shared.contains_key(&ix));
        // The same card under another name goes with it.
        let pool = self.pool.clone();
        let twins = |ix: &u32| pool.summary().twins.get(ix).into_iter().flatten();
        for twin in twins(&ix) {
            self.taken.insert(*twin as usize);
            // Which of several devices of one name it is cannot be told: all of them, each with its twins.
            if pool.devices[*twin as usize].device.name == held.device {
                twins(twin).for_each(|t| self.taken.insert(*t as usize));
            }
        }
        if let Some(mode) = pool.mode(ix as usize)
            && let Err(at) = self.modes.binary_search(&mode)
        {
            self.modes.insert(at, mode);
        }
        match held.share {
            // What is left of a device that is whole again cannot be given whole before its last share is gone.
            Some(_) if pool.devices[ix as usize].device.allow_multiple => {
                let sums = self.shared.entry(ix).or_default();
                for (name, amount) in &held.consumed {
                    match sums.binary_search_by(|(n, _)| n.cmp(name)) {
                        Ok(i) => sums[i].1 = sums[i].1.plus(*amount),
                        Err(i) => sums.insert(i, (name.clone(), *amount)),
                    }
                }
            }
            _ => self.taken.insert(ix as usize),
        }
        if first {
            for (set, counter, amount) in pool.drawn(ix) {
                let left = &mut self.counters_left[set][counter];
                *left = left.minus(amount);
            }
        }
    }

    fn add_absent(&mut self, held: &DeviceUse) {
        let pool = self.pool.clone();
        if pool.shadows.is_empty() {
            return;
        }
        let of = held.pool.as_ref().unwrap_or(&pool.name);
        let Some(shadow) = pool.shadows.get(&(of.clone(), held.device.clone())) else {
            return;
        };
        shadow.over.iter().for_each(|at| self.taken.insert(*at as usize));
        if !shadow.drawn.is_empty() && self.absent.insert(held.device.clone()) {
            for (set, counter, amount) in &shadow.drawn {
                let left = &mut self.counters_left[*set][*counter];
                *left = left.minus(*amount);
            }
        }
    }
}
