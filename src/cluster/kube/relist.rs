//! Lists on demand. A watch may be late without knowing it, and tells how far it is only when something happens (events)
//! or about once a minute (bookmarks, which kube-runtime keeps to itself). So who must know what was written up to now
//! has the kind listed again: a list without a resourceVersion is a consistent read.

use std::sync::Arc;

use tokio::sync::watch;

use crate::cluster::WriteError;
use crate::index::Kind;

/// The kinds a leader writes to.
const WRITTEN: [Kind; 2] = [Kind::Claim, Kind::Pod];

/// One kind's requests: numbers that grow.
#[derive(Debug)]
pub(super) struct Relist {
    wanted: watch::Sender<u64>,
    /// The newest request that a whole list, begun after it, has answered.
    done: watch::Sender<u64>,
    /// The newest request that was tried in vain, and why.
    failed: watch::Sender<(u64, String)>,
}

impl Relist {
    fn new() -> Self {
        Self {
            wanted: watch::Sender::new(0),
            done: watch::Sender::new(0),
            failed: watch::Sender::new((0, String::new())),
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

    /// The list that was begun then came to nothing; it is tried again without being asked.
    pub(super) fn failed(&self, begun: u64, why: String) {
        self.failed.send_replace((begun, why));
    }

    /// Returns when somebody wants a list that begins later than that.
    pub(super) async fn wanted(&self, begun: u64) {
        // The sender is in self.
        let _ = self.wanted.subscribe().wait_for(|wanted| *wanted > begun).await;
    }

    /// Ends with the first list that begins after the call, whole or not.
    async fn fresh(&self) -> Result<(), String> {
        let (mut done, mut failed) = (self.done.subscribe(), self.failed.subscribe());
        let mut number = 0;
        self.wanted.send_modify(|wanted| {
            *wanted += 1;
            number = *wanted;
        });
        tokio::select! {
            biased;
            _ = done.wait_for(|done| *done >= number) => Ok(()),
            failed = failed.wait_for(|(begun, _)| *begun >= number) => Err(failed.map_or_else(|e| e.to_string(), |f| f.1.clone())),
        }
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
    ///
    /// # Errors
    /// One of them could not be listed. How long a list may take is the caller's business.
    pub(super) async fn caught_up(&self) -> Result<(), WriteError> {
        let fresh = WRITTEN.map(|kind| {
            let relist = self.of(kind);
            async move {
                let fresh = relist.fresh().await;
                fresh.map_err(|why| WriteError::Unknown(format!("cannot list {}: {why}", kind.as_str())))
            }
        });
        futures::future::try_join_all(fresh).await.map(drop)
    }
}
