//! The one source of chance: a small seeded generator (splitmix64). The same seed gives the same schedule on every machine.

pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 0 to `n` - 1; 0 when `n` is 0. The bias of the remainder does not matter here.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
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
        Self(self.next())
    }
}
