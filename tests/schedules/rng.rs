//! The one source of chance: the same seed gives the same schedule on every machine.

#[path = "../shared/splitmix.rs"]
mod splitmix;

use splitmix::SplitMix;

pub(crate) struct Rng(SplitMix);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix::new(seed))
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0.below(n)
    }

    /// `low` to `high`, both included.
    pub(crate) fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high + 1 - low)
    }

    pub(crate) fn permille(&mut self, chance: u64) -> bool {
        self.below(1000) < chance
    }

    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.permille(chance * 10)
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[usize::try_from(self.below(from.len() as u64)).expect("a position")]
    }

    /// A generator of its own, so that one part's draws do not move another's.
    pub(crate) fn fork(&mut self) -> Self {
        Self::new(self.0.next())
    }
}
