//! Which devices of a pool a selector accepts, remembered beside the pool's content.
//!
//! An append-only list of set-once cells: readers never lock, two that race compute the same value and
//! one of them wins. The pool's content is immutable, so an entry can never be stale; a republished
//! pool starts with an empty cache.

use std::sync::OnceLock;

/// Distinct selector sets remembered for a pool. Beyond it results are computed each time:
/// a tenant who invents selectors must not grow our memory.
const LIMIT: usize = 64;

#[derive(Debug)]
pub struct MaskCache<T> {
    head: OnceLock<Box<Cell<T>>>,
}

#[derive(Debug)]
struct Cell<T> {
    key: u64,
    value: T,
    next: OnceLock<Box<Cell<T>>>,
}

impl<T> Default for MaskCache<T> {
    fn default() -> Self {
        Self { head: OnceLock::new() }
    }
}

impl<T: Clone> MaskCache<T> {
    /// The remembered value.
    pub fn peek(&self, key: u64) -> Option<&T> {
        let mut slot = &self.head;
        while let Some(cell) = slot.get() {
            if cell.key == key {
                return Some(&cell.value);
            }
            slot = &cell.next;
        }
        None
    }

    /// The remembered value, or the computed one. `key` must name what is computed, for ever.
    pub fn get_or(&self, key: u64, compute: impl FnOnce() -> T) -> T {
        let mut slot = &self.head;
        let mut steps = 0;
        while let Some(cell) = slot.get() {
            if cell.key == key {
                return cell.value.clone();
            }
            slot = &cell.next;
            steps += 1;
        }
        let value = compute();
        let mut cell = Box::new(Cell {
            key,
            value: value.clone(),
            next: OnceLock::new(),
        });
        while steps < LIMIT {
            match slot.set(cell) {
                Ok(()) => break,
                Err(ours) => cell = ours,
            }
            // Somebody appended first: perhaps the same key, else go on behind it.
            match slot.get() {
                Some(theirs) if theirs.key != key => slot = &theirs.next,
                _ => break,
            }
            steps += 1;
        }
        value
    }
}

impl<T> Drop for MaskCache<T> {
    /// Unlinks one by one: the derived drop would recurse.
    fn drop(&mut self) {
        let mut next = self.head.take();
        while let Some(mut cell) = next {
            next = cell.next.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LIMIT, MaskCache};

    #[test]
    fn computes_once_per_key_up_to_the_limit() {
        let cache = MaskCache::default();
        let mut runs = 0;
        for round in 0..2 {
            for key in 0..LIMIT as u64 + 5 {
                let got = cache.get_or(key, || {
                    runs += 1;
                    key * 10
                });
                assert_eq!(got, key * 10, "round {round}");
            }
        }
        assert_eq!(runs, LIMIT + 10);
    }
}
