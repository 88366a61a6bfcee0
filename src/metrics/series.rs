//! Series of what comes and goes: those of what is gone are taken off the page.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use prometheus::IntGaugeVec;

/// The labels of the series there are, of gauges with `N` labels.
#[derive(Default)]
pub(super) struct Series<T, const N: usize>(Mutex<BTreeSet<[T; N]>>);

impl<T: Ord + AsRef<str>, const N: usize> Series<T, N> {
    /// From now on there are these: what of `gauges` belongs to others goes.
    pub(super) fn only(&self, now: impl IntoIterator<Item = [T; N]>, gauges: &[&IntGaugeVec]) {
        let now: BTreeSet<_> = now.into_iter().collect();
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for gone in shown.difference(&now) {
            for gauge in gauges {
                // It is there, or it is gone already.
                let _ = gauge.remove_label_values(&gone.each_ref().map(AsRef::as_ref));
            }
        }
        *shown = now;
    }
}
