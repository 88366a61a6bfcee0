//! What selectors say of a pool's devices, remembered beside its content.
//!
//! A short list that is replaced as a whole: readers never lock, and of two that find out the same at one time both are
//! right. The pool's content is immutable, so an entry can never be stale; a republished pool starts with none.

use arc_swap::ArcSwapOption;

/// Distinct selectors remembered for a pool; another takes the place of the one that came first. A tenant who invents
/// selectors must not grow our memory, nor fill it once and for all.
const LIMIT: usize = 64;

#[derive(Debug)]
pub struct MaskCache<T> {
    known: ArcSwapOption<Vec<(u64, T)>>,
}

impl<T> Default for MaskCache<T> {
    fn default() -> Self {
        Self {
            known: ArcSwapOption::empty(),
        }
    }
}

impl<T: Clone> MaskCache<T> {
    /// Reads the remembered value, or the computed one. `key` must name what is computed, for ever.
    pub fn with<R>(&self, key: u64, compute: impl FnOnce() -> T, read: impl FnOnce(&T) -> R) -> R {
        let known = self.known.load();
        let found = known.iter().flat_map(|list| list.iter()).find(|(k, _)| *k == key);
        if let Some((_, value)) = found {
            return read(value);
        }
        let value = compute();
        self.known.rcu(|known| {
            let others = known.iter().flat_map(|list| list.iter()).filter(|(k, _)| *k != key);
            let mut list: Vec<_> = others.cloned().collect();
            if list.len() >= LIMIT {
                list.remove(0);
            }
            list.push((key, value.clone()));
            Some(std::sync::Arc::new(list))
        });
        read(&value)
    }
}

#[cfg(test)]
mod tests {
    use super::{LIMIT, MaskCache};

    #[test]
    fn computes_once_per_key_and_goes_on_remembering() {
        let cache = MaskCache::default();
        let mut runs = 0;
        let mut get = |key: u64| {
            let compute = || {
                runs += 1;
                key * 10
            };
            assert_eq!(cache.with(key, compute, |value| *value), key * 10);
            runs
        };
        let many = LIMIT as u64 + 5;
        assert_eq!((0..many).map(&mut get).max(), Some(LIMIT + 5));
        // The last ones are there, the first ones have gone, and come back.
        assert_eq!((5..many).map(&mut get).max(), Some(LIMIT + 5));
        assert_eq!([get(0), get(0)], [LIMIT + 6, LIMIT + 6]);
    }
}
