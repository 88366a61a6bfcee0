//! The index task and its two halves: the handle that feeds it, and the reader that sees its snapshots.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::{mpsc, oneshot, watch};

use crate::index::{Change, Conflict, Reservation, ReservationId};
use crate::model::{Classifier, Pod};
use crate::snapshot::Snapshot;

/// What the index task is told.
pub enum Message {
    Change(Change),
    Classifier(Arc<dyn Classifier>),
    Reserve(Reservation, oneshot::Sender<Result<ReservationId, Conflict>>),
    Release(ReservationId),
    /// No node could take this pod: poke it when that may have changed.
    Refused(Arc<Pod>),
    /// Answered once all messages before it are published.
    Flush(oneshot::Sender<()>),
}

/// Feeds the index task.
#[derive(Clone)]
pub struct IndexHandle {
    pub(crate) tx: mpsc::Sender<Message>,
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
}

#[derive(Debug)]
pub struct Closed;
impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the index task has ended")
    }
}
impl std::error::Error for Closed {}
impl IndexHandle {
    pub async fn change(&self, change: Change) -> Result<(), Closed> {
        self.tx.send(Message::Change(change)).await.map_err(|_| Closed)
    }
    pub async fn flush(&self) -> Result<(), Closed> {
        let (tx, rx) = oneshot::channel();
        self.tx.send(Message::Flush(tx)).await.map_err(|_| Closed)?;
        rx.await.map_err(|_| Closed)
    }
    pub async fn reserve(&self, r: Reservation) -> Result<ReservationId, Conflict> {
        let (tx, rx) = oneshot::channel();
        let gone = |_| Conflict("the index task has ended".into());
        self.tx
            .send(Message::Reserve(r, tx))
            .await
            .map_err(|_| Conflict("the index task has ended".into()))?;
        rx.await.map_err(gone)?
    }
    pub async fn release(&self, id: ReservationId) {
        let _ = self.tx.send(Message::Release(id)).await;
    }
}
