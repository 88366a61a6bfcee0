//! Whose turn it is to reckon. Filter and prioritize look at thousands of nodes without waiting for anything; this keeps
//! them from holding every worker thread of the runtime, on which binds, admission and the admin port run as well. Whose
//! turn it is has a desk with what earlier ones found out.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};

use super::desk::Desk;

/// Longest time between two points where others may run, and where a request whose caller has gone ends.
const SLICE: Duration = Duration::from_millis(1);
/// Nodes between two looks at the clock.
pub(super) const STRIDE: usize = 16;

/// So many requests reckon at one time; the others wait in the order they came.
pub struct Turns {
    permits: Semaphore,
    /// Not in use now; the one used last is on top, so that no more are kept warm than are needed at one time. Locked
    /// to take one or put one back, and for nothing else.
    desks: Mutex<Vec<Desk>>,
}

impl Turns {
    pub fn new(at_once: usize) -> Self {
        Self {
            permits: Semaphore::new(at_once.max(1)),
            desks: Mutex::default(),
        }
    }

    /// Waits for a turn, which ends when it is dropped.
    pub(super) async fn take(&self) -> Turn<'_> {
        // Never closed; if it were, there would be no bound, and no harm.
        let permit = self.permits.acquire().await.ok();
        let desk = self.desks().pop().unwrap_or_default();
        Turn {
            desk,
            pace: Pace { begun: Instant::now() },
            turns: self,
            _permit: permit,
        }
    }

    fn desks(&self) -> std::sync::MutexGuard<'_, Vec<Desk>> {
        self.desks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct Turn<'a> {
    pub(super) desk: Desk,
    pub(super) pace: Pace,
    turns: &'a Turns,
    _permit: Option<SemaphorePermit<'a>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // What a panic has left half changed is not used again.
        if !std::thread::panicking() {
            let desk = std::mem::take(&mut self.desk);
            self.turns.desks().push(desk);
        }
    }
}

pub(super) struct Pace {
    begun: Instant,
}

impl Pace {
    /// Call after each `STRIDE` nodes.
    pub(super) async fn step(&mut self) {
        if self.begun.elapsed() >= SLICE {
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
                    turn.pace.step().await;
                }
            }
        };
        let gone = tokio::spawn(reckon(Arc::default()));
        tokio::task::yield_now().await;
        assert_eq!(turns.permits.available_permits(), 0);
        let next = tokio::spawn(reckon(enough.clone()));
        tokio::task::yield_now().await;
        // Its caller went away: nobody says "enough" to this one.
        gone.abort();
        assert!(gone.await.expect_err("ended").is_cancelled());
        enough.store(true, Ordering::Relaxed);
        next.await.expect("its turn came");
        assert_eq!(turns.permits.available_permits(), 1);
    }
}
