//! Lists on demand. A watch may be late without knowing it, and tells how far it is only when something happens (events)
//! or about once a minute (bookmarks, which kube-runtime keeps to itself). So who must know what was written up to now
//! has the kind listed again: a list without a resourceVersion is a consistent read.

use std::sync::Arc;

use tokio::sync::watch;

use crate::index::Kind;

/// The kinds a leader writes to.
const WRITTEN: [Kind; 2] = [Kind::Claim, Kind::Pod];

/// One kind's requests: numbers that grow.
#[derive(Debug)]
pub(super) struct Relist {
    wanted: watch::Sender<u64>,
    /// The newest request that a whole list, begun after it, has answered.
    done: watch::Sender<u64>,
}

impl Relist {
    fn new() -> Self {
        Self {
            wanted: watch::Sender::new(0),
            done: watch::Sender::new(0),
        }
    }

    /// Called before a list begins; what it returns is for `listed`.
    pub(super) fn begin(&self) -> u64 {
        *self.wanted.borrow()
    }

    /// The index has the whole list that was begun then.
    pub(super) fn listed(&self, begun: u64) {
        self.done.send_if_modified(|done| {
            let newer = begun > *done;
            *done = begun.max(*done);
            newer
        });
    }

    /// Returns when somebody wants a list that begins later than that.
    pub(super) async fn wanted(&self, begun: u64) {
        // The sender is in self.
        let _ = self.wanted.subscribe().wait_for(|wanted| *wanted > begun).await;
    }

    async fn fresh(&self) {
        let mut number = 0;
        self.wanted.send_modify(|wanted| {
            *wanted += 1;
            number = *wanted;
        });
        let _ = self.done.subscribe().wait_for(|done| *done >= number).await;
    }
}

#[derive(Debug)]
pub(super) struct Relists([Arc<Relist>; Kind::ALL.len()]);

impl Default for Relists {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Arc::new(Relist::new())))
    }
}

impl Relists {
    pub(super) fn of(&self, kind: Kind) -> Arc<Relist> {
        self.0[kind as usize].clone()
    }

    /// Returns when the index has lists of the kinds that leaders write, begun after this call.
    pub(super) async fn caught_up(&self) {
        let fresh = WRITTEN.map(|kind| {
            let relist = self.of(kind);
            async move { relist.fresh().await }
        });
        futures::future::join_all(fresh).await;
    }
}
