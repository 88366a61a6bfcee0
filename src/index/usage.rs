//! From who holds what of a pool to what is left of it, whether something more goes in, and what a step freed. The
//! arithmetic itself is the snapshot's, which has to undo holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ledger::{Holder, Use};
use crate::model::{QualifiedName, Quantity, node_mode};
use crate::snapshot::{HoldId, Pool, PoolState};

/// The pool with everything that is held of it, holds last.
pub(super) fn counted<'a>(pool: Arc<Pool>, uses: impl Iterator<Item = (&'a Holder, &'a Vec<Use>)>) -> PoolState {
    let mut state = PoolState::untouched(pool);
    let mut holds: BTreeMap<HoldId, Vec<Use>> = BTreeMap::new();
    for (holder, held) in uses {
        match holder {
            Holder::Hold(id, _) => holds.entry(*id).or_default().extend(held.iter().cloned()),
            _ => held.iter().for_each(|used| state.add(used)),
        }
    }
    state.with_holds(holds.into_iter().collect())
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
    if let Some(mode) = state.mode_against(ix as usize) {
        let of = node_mode(&state.pool.driver).unwrap_or("mode");
        return Err(format!("needs another {of} than {mode}, which is in use on its node"));
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
        for (set, counter, amount) in state.pool.drawn(ix) {
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

/// Whether the step from `old` to `new` left somebody with more than before.
pub(super) fn freed(old: &PoolState, new: &PoolState) -> bool {
    !Arc::ptr_eq(&old.pool, &new.pool)
        || old.taken.iter().any(|i| !new.taken.contains(i))
        || old
            .counters_left
            .iter()
            .zip(&new.counters_left)
            .any(|(old, new)| old.iter().zip(new).any(|(o, n)| n > o))
        || old.modes.iter().any(|mode| !new.modes.contains(mode))
        || old.shared.iter().any(|(ix, sums)| {
            let now = new.shared.get(ix);
            now.is_none_or(|now| sums.iter().any(|(name, was)| sum(now, name) < *was))
        })
}
