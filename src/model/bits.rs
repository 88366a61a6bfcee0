//! A set of device positions within one pool.

/// Fixed-size bit set; position i is device i of the pool. Pools of up to 64 devices, nearly all
/// of them, cost one word.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bits {
    words: Box<[u64]>,
}

impl Bits {
    /// An empty set that can hold positions below `len`.
    pub fn new(len: usize) -> Self {
        Self {
            words: vec![0; len.div_ceil(64)].into(),
        }
    }

    /// Positions beyond the size are absent.
    pub fn contains(&self, i: usize) -> bool {
        self.words.get(i / 64).is_some_and(|w| w >> (i % 64) & 1 == 1)
    }

    /// Positions beyond the size are ignored.
    pub fn insert(&mut self, i: usize) {
        if let Some(w) = self.words.get_mut(i / 64) {
            *w |= 1 << (i % 64);
        }
    }

    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|w| *w == 0)
    }

    /// 64 positions at once; beyond the size: none.
    pub fn word(&self, n: usize) -> u64 {
        self.words.get(n).copied().unwrap_or(0)
    }

    /// Positions in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(n, word)| {
            std::iter::successors((*word != 0).then_some(*word), |w| {
                let rest = w & (w - 1);
                (rest != 0).then_some(rest)
            })
            .map(move |w| n * 64 + w.trailing_zeros() as usize)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Bits;

    #[test]
    fn positions_come_back_in_order_across_words() {
        let mut bits = Bits::new(130);
        for i in [129, 0, 63, 64, 500] {
            bits.insert(i);
        }
        assert_eq!(bits.iter().collect::<Vec<_>>(), [0, 63, 64, 129]);
        assert!(!bits.contains(62) && bits.contains(64) && !bits.contains(500));
        assert_eq!(bits.len(), 4);
    }
}
