//! What is left of one pool: the arithmetic of taken devices, shares and counters.
//!
//! Source of the rules: k8s.io/dynamic-resource-allocation/structured. A device draws its counters once,
//! however many shares of it are given.

use std::sync::Arc;

use super::ledger::Use;
use crate::model::{Bits, QualifiedName, Quantity};
use crate::snapshot::{Pool, PoolState};

/// A pool of which nothing is taken.
pub(super) fn untouched(pool: Arc<Pool>) -> PoolState {
    let full = |set: &crate::model::CounterSet| set.counters.iter().map(|(_, q)| *q).collect();
    PoolState {
        taken: Bits::new(pool.devices.len()),
        shared: Default::default(),
        counters_left: pool.counter_sets.iter().map(full).collect(),
        pool,
    }
}

/// Counts a use, whether or not it fits: the API says it is so. Devices that are not there count nothing.
pub(super) fn add(state: &mut PoolState, held: &Use) {
    let Some(&ix) = state.pool.by_name.get(&held.device) else {
        return;
    };
    let first = !in_use(state, ix);
    // The same card under another name goes with it.
    let pool = state.pool.clone();
    let twins = |ix: &u32| pool.summary().twins.get(ix).into_iter().flatten();
    for twin in twins(&ix) {
        state.taken.insert(*twin as usize);
        // Which of several devices of one name it is cannot be told: all of them, each with its twins.
        if pool.devices[*twin as usize].device.name == held.device {
            twins(twin).for_each(|t| state.taken.insert(*t as usize));
        }
    }
    match held.share {
        // What is left of a device that is whole again cannot be given whole before its last share is gone.
        Some(_) if pool.devices[ix as usize].device.allow_multiple => {
            let sums = state.shared.entry(ix).or_default();
            for (name, amount) in &held.consumed {
                match sums.binary_search_by(|(n, _)| n.cmp(name)) {
                    Ok(i) => sums[i].1 = sums[i].1.plus(*amount),
                    Err(i) => sums.insert(i, (name.clone(), *amount)),
                }
            }
        }
        _ => state.taken.insert(ix as usize),
    }
    if first {
        for (set, counter, amount) in draws(&pool, ix) {
            let left = &mut state.counters_left[set][counter];
            *left = left.minus(amount);
        }
    }
}

/// Why the use cannot be added; in words for a log and a bind's error.
pub(super) fn check(state: &PoolState, held: &Use) -> Result<(), String> {
    let Some(&ix) = state.pool.by_name.get(&held.device) else {
        return Err("does not exist any more".to_owned());
    };
    let device = &state.pool.devices[ix as usize].device;
    if state.taken.contains(ix as usize) {
        return Err("is taken".to_owned());
    }
    let shares = state.shared.get(&ix);
    if held.share.is_none() {
        if shares.is_some() {
            return Err("is shared already".to_owned());
        }
    } else {
        if !device.allow_multiple {
            return Err("does not allow several allocations".to_owned());
        }
        for (name, amount) in &held.consumed {
            let used = shares.map_or(Quantity::ZERO, |s| sum(s, name));
            let there = device.capacity(&name.domain, &name.name).map(|c| c.value);
            if there.is_none_or(|all| used.plus(*amount) > all) {
                return Err(format!("has too little {} left", name.name));
            }
        }
    }
    if shares.is_none() {
        for (set, counter, amount) in draws(&state.pool, ix) {
            if amount > state.counters_left[set][counter] {
                let set = &state.pool.counter_sets[set];
                return Err(format!(
                    "needs more of {}/{} than is left",
                    set.name, set.counters[counter].0
                ));
            }
        }
    }
    Ok(())
}

fn sum(sums: &[(QualifiedName, Quantity)], name: &QualifiedName) -> Quantity {
    sums.iter().find(|(n, _)| n == name).map_or(Quantity::ZERO, |(_, q)| *q)
}

fn in_use(state: &PoolState, ix: u32) -> bool {
    state.taken.contains(ix as usize) || state.shared.contains_key(&ix)
}

/// What the device takes: (position of the set, position of the counter, amount). References to what
/// is not there are left out; they make the pool invalid elsewhere.
fn draws(pool: &Pool, ix: u32) -> impl Iterator<Item = (usize, usize, Quantity)> + '_ {
    let draws = pool.draws(&pool.devices[ix as usize].device);
    draws.filter_map(|(at, amount)| at.map(|(set, counter)| (set, counter, amount)))
}

/// Equal in everything a reader sees.
pub(super) fn same(a: &PoolState, b: &PoolState) -> bool {
    Arc::ptr_eq(&a.pool, &b.pool) && a.taken == b.taken && a.shared == b.shared && a.counters_left == b.counters_left
}

/// Whether the step from `old` to `new` left somebody with more than before.
pub(super) fn freed(old: &PoolState, new: &PoolState) -> bool {
    !Arc::ptr_eq(&old.pool, &new.pool)
        || old.taken.iter().any(|i| !new.taken.contains(i))
        || old.shared.iter().any(|(ix, sums)| {
            let now = new.shared.get(ix);
            now.is_none_or(|now| sums.iter().any(|(name, was)| sum(now, name) < *was))
        })
}
