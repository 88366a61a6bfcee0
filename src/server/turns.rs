//! Whose turn it is to reckon. Filter and prioritize look at thousands of nodes without waiting for anything; this keeps
//! them from holding every worker thread of the runtime, on which binds, admission and the admin port run as well.

use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};

/// Longest time between two points where others may run, and where a request whose caller has gone ends.
const SLICE: Duration = Duration::from_millis(1);
/// Nodes between two looks at the clock.
const STRIDE: u32 = 16;

/// So many requests reckon at one time; the others wait in the order they came.
pub struct Turns(Semaphore);

impl Turns {
    pub fn new(at_once: usize) -> Self {
        Self(Semaphore::new(at_once.max(1)))
    }

    /// Waits for a turn, which ends when it is dropped.
    pub(super) async fn take(&self) -> Turn<'_> {
        Turn {
            // Never closed; if it were, there would be no bound, and no harm.
            _permit: self.0.acquire().await.ok(),
            begun: Instant::now(),
            nodes: 0,
        }
    }
}

pub(super) struct Turn<'a> {
    _permit: Option<SemaphorePermit<'a>>,
    begun: Instant,
    nodes: u32,
}

impl Turn<'_> {
    /// Call after each node.
    pub(super) async fn step(&mut self) {
        self.nodes = self.nodes.wrapping_add(1);
        if self.nodes.is_multiple_of(STRIDE) && self.begun.elapsed() >= SLICE {
            tokio::task::yield_now().await;
            self.begun = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// On one thread: if a step never let others run, nobody would ever say that it is enough.
    #[tokio::test]
    async fn who_reckons_lets_others_run_and_ends_when_dropped() {
        let turns = Arc::new(Turns::new(1));
        let enough = Arc::new(AtomicBool::new(false));
        let reckon = |enough: Arc<AtomicBool>| {
            let turns = turns.clone();
            async move {
                let mut turn = turns.take().await;
                while !enough.load(Ordering::Relaxed) {
                    turn.step().await;
                }
            }
        };
        let gone = tokio::spawn(reckon(Arc::default()));
        tokio::task::yield_now().await;
        assert_eq!(turns.0.available_permits(), 0);
        let next = tokio::spawn(reckon(enough.clone()));
        tokio::task::yield_now().await;
        // Its caller went away: nobody says "enough" to this one.
        gone.abort();
        assert!(gone.await.expect_err("ended").is_cancelled());
        enough.store(true, Ordering::Relaxed);
        next.await.expect("its turn came");
        assert_eq!(turns.0.available_permits(), 1);
    }
}
