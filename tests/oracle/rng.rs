//! Where the choices of a generated case come from: the same seed gives the same case on every machine, for ever.

#[path = "../shared/splitmix.rs"]
mod splitmix;

use splitmix::SplitMix;

pub(crate) struct Rng(SplitMix);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix::new(seed))
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.0.below(n as u64)).expect("less than a usize")
    }

    /// `low` to `high`, both included.
    pub(crate) fn range(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high + 1 - low)
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}
