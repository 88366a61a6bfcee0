//! Compiled selectors by text: looked up without a lock, bounded in number.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;

use super::Selector;
use crate::model::Name;

/// Texts kept. A cluster has tens; a tenant who invents more must not grow our memory.
const LIMIT: usize = 2048;

/// Ids are of the process, not of one registry: result caches of pools outlive both.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// Compiled selectors by text. Reading does not lock; the number kept is bounded.
#[derive(Debug, Default)]
pub struct Selectors {
    by_text: ArcSwap<HashMap<Name, Arc<Selector>>>,
}

impl Selectors {
    pub fn new() -> Self {
        Self::default()
    }

    /// The selector of that text, compiled on first use. Whether it compiled, it says itself.
    pub fn selector(&self, text: &Name) -> Arc<Selector> {
        if let Some(found) = self.by_text.load().get(text) {
            return Arc::clone(found);
        }
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let made = Arc::new(Selector::compile(id, text));
        self.by_text.rcu(|known| {
            // Another thread may have been first: both selectors are right, one id should win.
            if known.contains_key(text) {
                return Arc::clone(known);
            }
            let mut next = match known.len() {
                // Full: a new generation. What is still in use comes back at its next use.
                n if n >= LIMIT => HashMap::new(),
                _ => HashMap::clone(known),
            };
            next.insert(text.clone(), Arc::clone(&made));
            Arc::new(next)
        });
        self.by_text.load().get(text).map_or(made, Arc::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::{LIMIT, Selectors};

    #[test]
    fn one_text_is_one_selector_and_ids_are_never_reused() {
        let selectors = Selectors::new();
        let a = selectors.selector(&"device.driver == 'a'".into());
        let again = selectors.selector(&"device.driver == 'a'".into());
        let other = selectors.selector(&"device.driver == 'b'".into());
        assert_eq!(a.id, again.id);
        assert_ne!(a.id, other.id);
        assert_ne!(Selectors::new().selector(&"device.driver == 'a'".into()).id, a.id);
    }

    #[test]
    fn the_number_kept_is_bounded() {
        let selectors = Selectors::new();
        let mut ids = std::collections::HashSet::new();
        for i in 0..LIMIT + 10 {
            let fresh = ids.insert(selectors.selector(&format!("{i} == 1").into()).id);
            assert!(fresh, "an id was used twice");
        }
        let kept = selectors.by_text.load().len();
        assert_eq!(kept, 10);
    }
}
