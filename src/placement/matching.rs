//! Selectors against the devices of a pool, through the pool's cache.
//!
//! The cache holds what each selector alone says of every device. A request ANDs its selectors in order, so that a
//! selector is only "looked at" on devices its predecessors accept, as in the in-tree allocator.

use std::sync::Arc;

use super::demand::Alternative;
use crate::model::{Bits, Reason, Refusal};
use crate::selector::Selector;
use crate::snapshot::{Pool, Verdicts, Visible};

#[derive(Debug)]
pub(super) struct SelectorUse {
    selector: Arc<Selector>,
    /// Of the DeviceClass; else of the request.
    of_class: bool,
    /// Position in its list.
    at: usize,
}

impl SelectorUse {
    pub(super) fn new(selector: Arc<Selector>, of_class: bool, at: usize) -> Self {
        Self { selector, of_class, at }
    }

    /// Of this process; never reused.
    pub(super) fn id(&self) -> u64 {
        self.selector.id
    }

    fn whose(&self, alternative: &Alternative) -> String {
        if self.of_class {
            format!("selector {} of DeviceClass {}", self.at + 1, alternative.class.name)
        } else {
            format!("selector {} of request {}", self.at + 1, alternative.name)
        }
    }

    pub(super) fn compile_refusal(&self, alternative: &Alternative) -> Option<Refusal> {
        let error = self.selector.compile_error()?;
        let words = format!("{} does not compile: {}", self.whose(alternative), error.0);
        Some(Refusal::new(Reason::SelectorError, words))
    }

    /// What the selector says of every device of the pool, evaluated if it is not known already.
    pub(super) fn of<T>(&self, pool: &Pool, read: impl FnOnce(&Verdicts) -> T) -> T {
        // The id is unique in the process and never reused, and the pool's devices never change.
        let found = || Arc::new(self.evaluate(pool));
        pool.masks.with(self.selector.id, found, |verdicts| read(verdicts))
    }

    fn evaluate(&self, pool: &Pool) -> Verdicts {
        let size = pool.devices.len();
        let (mut matches, mut failed) = (Bits::new(size), Bits::new(size));
        for (i, device) in pool.devices.iter().enumerate() {
            match self.selector.matches(&pool.driver, &device.device, None) {
                Ok(true) => matches.insert(i),
                Ok(false) => {}
                Err(_) => failed.insert(i),
            }
        }
        Verdicts { matches, failed }
    }
}

/// What an alternative's selectors say of 64 devices, as two words of bits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Matching {
    /// All selectors accept it.
    pub(super) matches: u64,
    /// One of them, reached in order, gave no answer.
    pub(super) failed: u64,
}

/// Of the pool's devices that can be seen, 64 in each word of `words`.
pub(super) fn matching(alternative: &Alternative, pool: &Pool, visible: &Visible, words: &mut [Matching]) {
    for (n, word) in words.iter_mut().enumerate() {
        word.matches = visible.word(n, pool.devices.len());
    }
    for selector in &alternative.selectors {
        selector.of(pool, |verdicts| {
            for (n, word) in words.iter_mut().enumerate() {
                word.failed |= word.matches & verdicts.failed.word(n);
                word.matches &= verdicts.matches.word(n);
            }
        });
    }
}

/// Which selector failed on the device, and why.
pub(super) fn failure(alternative: &Alternative, pool: &Pool, device: usize) -> Refusal {
    let words = pool.devices.get(device).and_then(|d| {
        let mut selectors = alternative.selectors.iter();
        selectors.find_map(|s| match s.selector.matches(&pool.driver, &d.device, None) {
            Ok(_) => None,
            Err(e) => Some(format!(
                "{} failed on device {}: {}",
                s.whose(alternative),
                d.device.name,
                e.0
            )),
        })
    });
    // A selector that failed once fails again: it sees nothing but its text and the device.
    Refusal::new(
        Reason::SelectorError,
        words.unwrap_or_else(|| "a selector failed".to_owned()),
    )
}
