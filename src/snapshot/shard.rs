//! A hash map that is cheap to clone and cheap to change: 256 shared shards, copied on write.
//!
//! Publishing clones the map after every change, so a plain `HashMap` would copy every entry of a
//! cluster's claims each time. One shard of it holds a few hundred.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Weak};

const SHARDS: usize = 256;

#[derive(Debug)]
pub struct ShardMap<K, V> {
    /// One shared slice; empty while the map is empty.
    shards: Arc<[Arc<HashMap<K, V>>]>,
    len: usize,
}

/// What a map held of a key's shard at some time: equal while nothing of it has changed. Keeps nothing alive but its
/// own address, which nothing else gets meanwhile.
#[derive(Debug)]
pub struct Mark<K, V>(Weak<HashMap<K, V>>);

impl<K, V> PartialEq for Mark<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

impl<K, V> Clone for ShardMap<K, V> {
    fn clone(&self) -> Self {
        Self {
            shards: self.shards.clone(),
            len: self.len,
        }
    }
}

impl<K, V> Default for ShardMap<K, V> {
    fn default() -> Self {
        Self {
            shards: Arc::new([]),
            len: 0,
        }
    }
}

fn shard_of<Q: Hash + ?Sized>(key: &Q) -> usize {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    // The top bits: the map inside uses a hash of its own, but be sure not to share its low bits.
    (hasher.finish() >> 56) as usize % SHARDS
}

impl<K: Hash + Eq + Clone, V: Clone> ShardMap<K, V> {
    pub fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.shards.get(shard_of(key))?.get(key)
    }

    /// Whether something was put in or taken out since, even if it looks the same again. May say so of another key.
    pub fn mark<Q>(&self, key: &Q) -> Mark<K, V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        Mark(self.shards.get(shard_of(key)).map_or_else(Weak::new, Arc::downgrade))
    }

    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.get(key).is_some()
    }

    /// Returns what was there.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if self.shards.is_empty() {
            self.shards = (0..SHARDS).map(|_| Arc::default()).collect();
        }
        let shard = shard_of(&key);
        let old = Arc::make_mut(&mut Arc::make_mut(&mut self.shards)[shard]).insert(key, value);
        self.len += usize::from(old.is_none());
        old
    }

    /// Returns what was there; copies nothing when the key is absent.
    pub fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.get(key)?;
        let shard = shard_of(key);
        let old = Arc::make_mut(&mut Arc::make_mut(&mut self.shards)[shard]).remove(key);
        self.len -= usize::from(old.is_some());
        old
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// In no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.shards.iter().flat_map(|s| s.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::ShardMap;

    #[test]
    fn a_clone_does_not_see_later_changes() {
        let mut map = ShardMap::default();
        for i in 0..1000 {
            assert_eq!(map.insert(i, i * 2), None);
        }
        let before = map.clone();
        assert_eq!(map.insert(7, 0), Some(14));
        assert_eq!(map.remove(&8), Some(16));
        assert_eq!(
            (before.get(&7), before.get(&8), before.len()),
            (Some(&14), Some(&16), 1000)
        );
        assert_eq!(
            (map.get(&7), map.get(&8), map.len(), map.iter().count()),
            (Some(&0), None, 999, 999)
        );
    }

    #[test]
    fn what_came_and_went_has_left_a_mark() {
        let mut map = ShardMap::default();
        map.insert(1, ());
        let (published, mark) = (map.clone(), map.mark(&7));
        assert!(published.mark(&7) == mark && map.clone().mark(&7) == mark);
        map.insert(7, ());
        map.remove(&7);
        assert!(map.mark(&7) != mark);
        // Nor when nobody has the old one any more, and its memory could be used again.
        drop(published);
        for _ in 0..100 {
            map = map.clone();
            map.insert(7, ());
            map.remove(&7);
            assert!(map.mark(&7) != mark);
        }
    }
}
