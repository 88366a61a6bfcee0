//! The index task and its two halves: the handle that feeds it, and the reader that sees its snapshots.
//!
//! `task` owns the loop, `pokes` decides which refused pods are worth another try, `unbound` which pods get no more holds,
//! `turns` how long pods wait for an older one at a shared device.

mod pokes;
mod task;
#[cfg(test)]
mod tests;
mod turns;
mod unbound;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::index::{Change, Conflict, HoldId, Reservation, ReservationId};
use crate::model::{Classifier, Name, NamespacedName, Pod};
use crate::snapshot::Snapshot;

pub use task::{Running, Stats, spawn};

/// Whether the pod could be placed somewhere in this snapshot. Pure; called off the index task.
pub type Fits = dyn Fn(&Snapshot, &Pod) -> bool + Send + Sync;

/// What the index task is told.
pub enum Message {
    Change(Change),
    Classifier(Arc<dyn Classifier>),
    Reserve(Reservation, oneshot::Sender<Result<ReservationId, Conflict>>),
    Release(ReservationId),
    /// The claim was allocated for that reservation, in this resourceVersion.
    Written(ReservationId, NamespacedName, Name),
    Hold(Reservation, oneshot::Sender<Result<HoldId, Conflict>>),
    DropHold(HoldId),
    /// No node could take this pod in the snapshot of that version: poke it when that may have changed.
    Refused(Arc<Pod>, u64),
    /// Answered once all messages before it are published.
    Flush(oneshot::Sender<()>),
}

/// A refused pod that could fit now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Poke {
    pub pod: NamespacedName,
    pub uid: Name,
}

/// The index task has ended, and with it the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the index task has ended")
    }
}

impl std::error::Error for Closed {}

/// Feeds the index task. Its queue is bounded: a watch that is faster than the index waits.
#[derive(Clone)]
pub struct IndexHandle {
    pub(crate) tx: mpsc::Sender<Message>,
}

impl IndexHandle {
    pub async fn change(&self, change: Change) -> Result<(), Closed> {
        self.tx.send(Message::Change(change)).await.map_err(|_| Closed)
    }

    /// A new policy: every device is classified again.
    pub async fn set_classifier(&self, classifier: Arc<dyn Classifier>) -> Result<(), Closed> {
        self.tx.send(Message::Classifier(classifier)).await.map_err(|_| Closed)
    }

    /// All or nothing. Answered when the snapshot that shows the devices as taken is published.
    pub async fn reserve(&self, reservation: Reservation) -> Result<ReservationId, Conflict> {
        self.take(Message::Release, |reply| Message::Reserve(reservation, reply))
            .await
    }

    /// Keeps the devices for a pod that is sent to a node, in place of what was held for it; answered as `reserve` is. It
    /// becomes the pod's reservation, or ends by itself. A pod that was held for too long without a bind gets none. A caller that stops waiting has none.
    pub async fn hold(&self, wanted: Reservation) -> Result<HoldId, Conflict> {
        self.take(Message::DropHold, |reply| Message::Hold(wanted, reply)).await
    }

    /// No bind of the pod is to be expected any more. Ended ones are ignored.
    pub async fn drop_hold(&self, id: HoldId) {
        let _ = self.tx.send(Message::DropHold(id)).await;
    }

    async fn take<T>(
        &self,
        undo: fn(T) -> Message,
        ask: impl FnOnce(oneshot::Sender<Result<T, Conflict>>) -> Message,
    ) -> Result<T, Conflict> {
        let ended = || Conflict(Closed.to_string().into());
        let (reply, answer) = oneshot::channel();
        self.tx.send(ask(reply)).await.map_err(|_| ended())?;
        let mut answer = Awaited {
            answer,
            undo,
            index: self,
        };
        (&mut answer.answer).await.map_err(|_| ended())?
    }

    /// The write is known to have failed. After the end of the task there is nothing left to free.
    pub async fn release(&self, id: ReservationId) {
        let _ = self.tx.send(Message::Release(id)).await;
    }

    /// The write to a claim of the reservation took effect, in this resourceVersion: once the watch has come so far, the
    /// reservation holds nothing for it any more.
    pub async fn written(&self, id: ReservationId, claim: NamespacedName, version: Name) {
        let _ = self.tx.send(Message::Written(id, claim, version)).await;
    }

    /// No node could take the pod in the snapshot of that version. Never waits: under load a pod may be
    /// forgotten, and kube-scheduler's own five minutes bring it back.
    pub fn refused(&self, pod: Arc<Pod>, version: u64) {
        let _ = self.tx.try_send(Message::Refused(pod, version));
    }

    /// Returns when everything sent before it is published.
    pub async fn flush(&self) -> Result<(), Closed> {
        let (reply, answer) = oneshot::channel();
        self.tx.send(Message::Flush(reply)).await.map_err(|_| Closed)?;
        answer.await.map_err(|_| Closed)
    }
}

/// A reservation or hold that is being answered. Whoever waits for it may be dropped after the answer is sent and
/// before it is read; then nobody knows of it, and a reservation would be held for ever.
struct Awaited<'a, T> {
    answer: oneshot::Receiver<Result<T, Conflict>>,
    undo: fn(T) -> Message,
    index: &'a IndexHandle,
}

impl<T> Drop for Awaited<'_, T> {
    fn drop(&mut self) {
        // From here on the task sees that nobody waits, and takes it back by itself.
        self.answer.close();
        if let (Ok(Ok(id)), Ok(runtime)) = (self.answer.try_recv(), tokio::runtime::Handle::try_current()) {
            let (tx, undo) = (self.index.tx.clone(), (self.undo)(id));
            runtime.spawn(async move {
                // After the end of the task there is nothing left to free.
                let _ = tx.send(undo).await;
            });
        }
    }
}

/// Sees the newest snapshot.
#[derive(Clone)]
pub struct Reader {
    pub(crate) current: Arc<ArcSwap<Snapshot>>,
    pub(crate) version: watch::Receiver<u64>,
}

impl Reader {
    /// The newest snapshot. Load it once per request and pass it on.
    pub fn load(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// Waits for a snapshot that satisfies the predicate, at most `patience`. None: it did not come.
    pub async fn wait_until(
        &self,
        patience: Duration,
        mut wanted: impl FnMut(&Snapshot) -> bool,
    ) -> Option<Arc<Snapshot>> {
        let deadline = Instant::now() + patience;
        let mut version = self.version.clone();
        loop {
            version.borrow_and_update();
            let snapshot = self.load();
            if wanted(&snapshot) {
                return Some(snapshot);
            }
            match tokio::time::timeout_at(deadline, version.changed()).await {
                Ok(Ok(())) => {}
                // Late, or the task has ended.
                _ => return None,
            }
        }
    }
}
