//! How many binds write at one time, and who waits because of it.
//!
//! An API server that is slow gets no faster by more calls at once: all of them become late together, later than
//! kube-scheduler waits, and then it sends pods elsewhere whose claims are just being allocated. So few write, in the order
//! they came, and while many wait, filter waits too: kube-scheduler, which places one pod after the other, then sends no
//! more than is bound.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, timeout_at};

pub(super) struct Turns {
    permits: Arc<Semaphore>,
    /// Binds that write or wait to.
    crowd: Arc<watch::Sender<usize>>,
    /// A crowd from which on filter waits.
    most: usize,
}

/// The place of a bind among those that write now, until each of its claims has been written to once: what has to be found
/// out after that may take long, and is nobody else's to wait for.
#[derive(Clone)]
pub(super) struct Turn {
    _held: Arc<(OwnedSemaphorePermit, Counted)>,
}

impl Turns {
    pub(super) fn new(at_once: usize) -> Self {
        let at_once = at_once.max(1);
        Self {
            permits: Arc::new(Semaphore::new(at_once)),
            crowd: Arc::new(watch::Sender::new(0)),
            most: 2 * at_once,
        }
    }

    /// First come, first served. None: it did not come in time.
    pub(super) async fn take(&self, until: Instant) -> Option<Turn> {
        let counted = Counted::new(self.crowd.clone());
        // Nobody closes it.
        let permit = timeout_at(until, self.permits.clone().acquire_owned())
            .await
            .ok()?
            .ok()?;
        Some(Turn {
            _held: Arc::new((permit, counted)),
        })
    }

    /// Returns when one more bind would not wait for long, or at this time.
    pub(super) async fn room(&self, until: Instant) {
        let mut crowd = self.crowd.subscribe();
        // The sender lives in self. At the limit the caller goes on all the same.
        let _ = timeout_at(until, crowd.wait_for(|n| *n < self.most)).await;
    }
}

/// One of the crowd, as long as it lives.
struct Counted(Arc<watch::Sender<usize>>);

impl Counted {
    fn new(crowd: Arc<watch::Sender<usize>>) -> Self {
        crowd.send_modify(|n| *n += 1);
        Self(crowd)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|n| *n -= 1);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn few_at_once_and_a_crowd_keeps_others_waiting() {
        let turns = Turns::new(2);
        let soon = || Instant::now() + Duration::from_secs(1);
        let first = turns.take(soon()).await.expect("free");
        let second = turns.take(soon()).await.expect("free");
        let begun = Instant::now();
        turns.room(soon()).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert!(turns.take(soon()).await.is_none(), "both are taken");

        let also = first.clone();
        drop(first);
        let mut third = Box::pin(turns.take(soon()));
        let mut fourth = Box::pin(turns.take(soon()));
        assert!(
            futures::poll!(&mut third).is_pending(),
            "the other claim is not written yet"
        );
        assert!(futures::poll!(&mut fourth).is_pending());
        let begun = Instant::now();
        turns.room(soon()).await;
        assert_eq!(begun.elapsed(), Duration::from_secs(1), "four are two too many");
        drop((also, second));
        // Who gives up is no crowd.
        drop(third);
        let fourth = fourth.await;
        assert!(fourth.is_some(), "its turn has come");
        drop(fourth);
        turns.room(soon()).await;
        assert_eq!(*turns.crowd.borrow(), 0);
    }
}
