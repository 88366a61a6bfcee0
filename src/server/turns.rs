//! Whose turn it is to reckon. Filter and prioritize look at thousands of nodes without waiting for anything; this keeps
//! them from holding every worker thread of the runtime, on which binds, admission and the admin port run as well. Whose
//! turn it is has a desk with what earlier ones found out.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};

use super::desk::Desk;

/// Longest time between two points where others may run, and where a request whose caller has gone ends; longer only by
/// what a search on one node takes.
const SLICE: Duration = Duration::from_millis(1);
/// Nodes of which all is remembered between two looks at the clock.
const STRIDE: u8 = 16;

/// So many requests reckon at one time; the others wait in the order they came.
pub struct Turns {
    permits: Semaphore,
    /// Not in use now; the one used last is on top, so that no more are kept warm than are needed at one time. Locked
    /// to take one or put one back, and for nothing else.
    desks: Mutex<Vec<Desk>>,
    /// Desks that are kept; requests that let others go first have more of them in use.
    kept: usize,
}

impl Turns {
    pub fn new(at_once: usize) -> Self {
        let at_once = at_once.max(1);
        Self {
            permits: Semaphore::new(at_once),
            desks: Mutex::default(),
            kept: at_once + 1,
        }
    }

    /// Waits for a turn, which ends when it is dropped.
    pub(super) async fn take(&self) -> Turn<'_> {
        let permit = self.permit().await;
        let desk = self.desks().pop().unwrap_or_default();
        Turn {
            desk,
            pace: Pace {
                begun: Instant::now(),
                nodes: 0,
                turns: self,
                permit,
            },
        }
    }

    async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        // Never closed; if it were, there would be no bound, and no harm.
        self.permits.acquire().await.ok()
    }

    fn desks(&self) -> std::sync::MutexGuard<'_, Vec<Desk>> {
        self.desks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct Turn<'a> {
    pub(super) desk: Desk,
    pub(super) pace: Pace<'a>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // What a panic has left half changed is not used again.
        if std::thread::panicking() {
            return;
        }
        let desk = std::mem::take(&mut self.desk);
        let mut desks = self.pace.turns.desks();
        if desks.len() < self.pace.turns.kept {
            desks.push(desk);
        }
    }
}

/// Of one request that has its turn.
pub(super) struct Pace<'a> {
    begun: Instant,
    /// Since the last look at the clock.
    nodes: u8,
    turns: &'a Turns,
    permit: Option<SemaphorePermit<'a>>,
}

impl Pace<'_> {
    /// Does so many nodes, by their positions, with rests between. `one` says whether all of its node was remembered and
    /// nothing was reckoned for it.
    pub(super) async fn through(&mut self, nodes: usize, mut one: impl FnMut(usize) -> bool) {
        let mut done = 0;
        while done < nodes {
            done = self.some(done, nodes, &mut one);
            if done < nodes {
                self.rest().await;
            }
        }
    }

    /// Until it is time to rest; returns how far it came. Not a part of `through`: what that keeps across an await is in
    /// memory, where each node would read and write it.
    fn some(&mut self, from: usize, nodes: usize, mut one: impl FnMut(usize) -> bool) -> usize {
        let over = (from..nodes).find(|at| {
            let remembered = one(*at);
            self.is_over(remembered)
        });
        over.map_or(nodes, |last| last + 1)
    }

    /// After a node: whether it is time to rest.
    fn is_over(&mut self, remembered: bool) -> bool {
        self.nodes += 1;
        if remembered && self.nodes < STRIDE {
            return false;
        }
        self.nodes = 0;
        self.begun.elapsed() >= SLICE
    }

    /// Lets everything else run, and those who wait for a turn have it first: what takes long holds up nobody who is
    /// quick.
    async fn rest(&mut self) {
        self.permit = None;
        tokio::task::yield_now().await;
        self.permit = self.turns.permit().await;
        self.begun = Instant::now();
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
        let begun = Arc::new(AtomicBool::new(false));
        let reckon = |enough: Arc<AtomicBool>| {
            let (turns, begun) = (turns.clone(), begun.clone());
            async move {
                let mut turn = turns.take().await;
                begun.store(true, Ordering::Relaxed);
                while !enough.load(Ordering::Relaxed) {
                    turn.pace.through(100, |_| true).await;
                }
            }
        };
        let gone = tokio::spawn(reckon(Arc::default()));
        tokio::task::yield_now().await;
        assert!(begun.load(Ordering::Relaxed), "and this runs");
        let next = tokio::spawn(reckon(enough.clone()));
        tokio::task::yield_now().await;
        // Its caller went away: nobody says "enough" to this one.
        gone.abort();
        assert!(gone.await.expect_err("ended").is_cancelled());
        enough.store(true, Ordering::Relaxed);
        next.await.expect("its turn came");
        assert_eq!(turns.permits.available_permits(), 1);
    }

    /// One that would take for ever, and others that come later: they have their turns, and no more desks are kept than said.
    #[tokio::test]
    async fn what_takes_long_holds_nobody_up() {
        let turns = Arc::new(Turns::new(1));
        let long = tokio::spawn({
            let turns = turns.clone();
            async move {
                let mut turn = turns.take().await;
                turn.pace.through(usize::MAX, |_| false).await;
            }
        });
        tokio::task::yield_now().await;
        let others: Vec<Turn<'_>> = futures::future::join_all((0..3).map(|_| async {
            let mut turn = turns.take().await;
            turn.pace.permit = None;
            turn
        }))
        .await;
        drop(others);
        assert_eq!(turns.desks().len(), 2);
        long.abort();
    }
}
