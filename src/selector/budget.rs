//! What an evaluation may cost, in steps: the crate's evaluator has no bound of its own, so the prepared
//! expression calls back here (`@step`, `@weigh`) and our functions charge for their work.
//!
//! The budget is of the thread: overloads of the crate are plain functions without a place for state. An
//! evaluation never leaves its thread and never waits.

use std::cell::Cell;

use cel::ExecutionError;
use cel::common::types::{CelBytes, CelList, CelMap, CelOptional, CelString, MAP_TYPE};
use cel::common::value::Val;

/// Steps for one evaluation. Kubernetes allows 1,000,000 of cel-go's, which come cheaper than ours; what
/// people write takes tens. It is paid for each device, so it must be milliseconds at the most.
const MAX_COST: u64 = 100_000;
/// Bytes looked at or copied for one step, as in cel-go.
const BYTES_PER_STEP: u64 = 10;

pub(super) const EXHAUSTED: &str = "operation cancelled: actual cost limit exceeded";

thread_local! {
    static LEFT: Cell<Option<u64>> = const { Cell::new(Some(MAX_COST)) };
}

/// A fresh budget for one evaluation.
pub(super) fn start() {
    LEFT.set(Some(MAX_COST));
}

/// Whether the evaluation ran out. Its result means nothing then: the error may have been absorbed by `||`.
pub(super) fn exhausted() -> bool {
    LEFT.get().is_none()
}

/// Pays for work before it is done.
pub(super) fn charge(steps: u64) -> Result<(), ExecutionError> {
    let left = LEFT.get().and_then(|left| left.checked_sub(steps));
    LEFT.set(left);
    match left {
        Some(_) => Ok(()),
        None => Err(ExecutionError::function_error("@budget", EXHAUSTED)),
    }
}

pub(super) fn charge_bytes(bytes: usize) -> Result<(), ExecutionError> {
    charge((bytes as u64).div_ceil(BYTES_PER_STEP))
}

/// Pays for looking at a whole value, whatever is in it. Values are trees that are copied, never shared.
pub(super) fn weigh(value: &dyn Val) -> Result<(), ExecutionError> {
    if let Some(s) = value.downcast_ref::<CelString>() {
        charge_bytes(s.inner().len())
    } else if let Some(b) = value.downcast_ref::<CelBytes>() {
        charge_bytes(b.inner().len())
    } else if let Some(list) = value.downcast_ref::<CelList>() {
        charge(list.inner().len() as u64)?;
        list.inner().iter().try_for_each(|v| weigh(v.as_ref()))
    } else if let Some(map) = value.downcast_ref::<CelMap>() {
        charge(2 * map.inner().len() as u64)?;
        map.inner().iter().try_for_each(|(k, v)| {
            weigh(k.inner())?;
            weigh(v.as_ref())
        })
    } else if let Some(optional) = value.downcast_ref::<CelOptional>() {
        optional.option().map_or(Ok(()), weigh)
    } else if value.get_type() == &MAP_TYPE {
        // A map of a device only borrows it, but makes its keys when it is walked.
        charge(16)
    } else {
        // Numbers and the like.
        Ok(())
    }
}
