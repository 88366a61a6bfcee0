//! What everybody else may know of the election: who holds the Lease, and whether *we* may write now.
//!
//! One value behind a watch channel. That a term is over is final: readers judge by the clock while they hold the
//! value, and the election extends a term only if it is not over at that moment, under the same lock. So nobody who
//! saw it end can be contradicted by a renewal that was answered a moment too late.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::model::Name;

/// A write is not begun with less than this left: it would most likely be cut off. The next renewal is waited for.
const LEAST: Duration = Duration::from_secs(2);

/// Our leadership, as far as it is paid for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lead {
    pub(super) term: u64,
    /// Unless renewed before.
    pub(super) until: Instant,
    /// The wall clock at the last renewal, and how much of it may pass. The monotonic clock stands still while a
    /// machine is suspended, and the Lease does not; a wall clock that went too far can only end a term.
    pub(super) renewed: SystemTime,
    pub(super) lasts: Duration,
}

impl Lead {
    pub(super) fn over(&self) -> bool {
        let slept = self.renewed.elapsed().is_ok_and(|passed| passed >= self.lasts);
        slept || Instant::now() >= self.until
    }
}

#[derive(Clone, Debug)]
pub(super) struct Standing {
    /// Empty: nobody that we know of.
    pub(super) holder: Name,
    pub(super) lead: Option<Lead>,
    /// The last term whose cache is known to show all that was written before it.
    pub(super) proven: u64,
}

impl Standing {
    fn current(&self, term: u64) -> Option<Lead> {
        self.lead.filter(|lead| lead.term == term && !lead.over())
    }

    /// The term in which this replica may bind now.
    pub(super) fn leads(&self) -> Option<u64> {
        self.lead.filter(|l| l.term == self.proven && !l.over()).map(|l| l.term)
    }
}

/// Counted since the start, for metrics.
#[derive(Debug, Default)]
pub struct Stats {
    pub(super) gained: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) renew_failures: AtomicU64,
    pub(super) label_failures: AtomicU64,
}

impl Stats {
    /// Terms begun.
    pub fn gained(&self) -> u64 {
        self.gained.load(Ordering::Relaxed)
    }

    /// Terms that ended, given back or run out.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Renewals of a Lease that was ours which failed or were not answered.
    pub fn renew_failures(&self) -> u64 {
        self.renew_failures.load(Ordering::Relaxed)
    }

    /// Tries to put the leader's label where it belongs that failed.
    pub fn label_failures(&self) -> u64 {
        self.label_failures.load(Ordering::Relaxed)
    }
}

/// Why this replica does not bind, in words for the pod's event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotLeading(pub Name);

impl std::fmt::Display for NotLeading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotLeading {}

/// Asks the election. Cheap to clone.
#[derive(Clone)]
pub struct Leadership {
    pub(super) standing: watch::Receiver<Standing>,
    pub(super) stats: Arc<Stats>,
    pub(super) resign: CancellationToken,
    pub(super) ended: CancellationToken,
}

impl Leadership {
    /// The term that runs now.
    ///
    /// # Errors
    /// Another replica leads, nobody does, or we do not know yet what the last leader wrote.
    pub fn term(&self) -> Result<Term, NotLeading> {
        let standing = self.standing.borrow();
        if let Some(number) = standing.leads() {
            return Ok(Term {
                number,
                standing: self.standing.clone(),
            });
        }
        let words = if standing.lead.is_some_and(|l| !l.over()) {
            "becoming the leader: reading what the last one wrote; trying again will help".to_owned()
        } else if standing.holder.is_empty() {
            "not the leader; there is none at this moment".to_owned()
        } else {
            format!("not the leader; {} is, or was until now", standing.holder)
        };
        Err(NotLeading(words.into()))
    }

    /// Returns when this replica is not on the way to leading: it leads, or it was not elected; at `by` at the latest.
    pub async fn becoming(&self, by: Instant) {
        let mut standing = self.standing.clone();
        let settled = standing.wait_for(|s| s.leads().is_some() || s.lead.is_none_or(|l| l.over()));
        // Whatever ended the wait, `term` says what is the case.
        let _ = timeout_at(by, settled).await;
    }

    /// Whether this replica may bind now.
    pub fn leads(&self) -> bool {
        self.standing.borrow().leads().is_some()
    }

    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Gives the Lease back, so that the next replica need not wait for its end, and takes the label off. First see to
    /// it that nothing is being written. Returns when that is done or has failed; within seconds.
    pub async fn resign(&self) {
        self.resign.cancel();
        self.ended.cancelled().await;
    }
}

/// One uninterrupted stretch of leadership. What was found out and reserved in it is worth nothing in another.
#[derive(Clone)]
pub struct Term {
    number: u64,
    standing: watch::Receiver<Standing>,
}

impl Term {
    /// For how long a write that is begun now may take effect; waits for the next renewal where that is short.
    ///
    /// # Errors
    /// The term is over, for good.
    pub async fn permit(&self) -> Result<Instant, NotLeading> {
        let mut standing = self.standing.clone();
        loop {
            let lead = standing.borrow_and_update().current(self.number);
            let Some(lead) = lead else {
                return Err(NotLeading("no longer the leader: the write was not sent".into()));
            };
            if lead.until.saturating_duration_since(Instant::now()) >= LEAST {
                return Ok(lead.until);
            }
            changed_or(&mut standing, lead.until).await;
        }
    }

    /// Returns when the term is over.
    pub async fn over(&self) {
        let mut standing = self.standing.clone();
        loop {
            let lead = standing.borrow_and_update().current(self.number);
            let Some(lead) = lead else { return };
            changed_or(&mut standing, lead.until).await;
        }
    }

    pub fn is_over(&self) -> bool {
        self.standing.borrow().current(self.number).is_none()
    }
}

async fn changed_or(standing: &mut watch::Receiver<Standing>, until: Instant) {
    tokio::select! {
        changed = standing.changed() => {
            // The election has ended, which ends the process; its last term runs out.
            if changed.is_err() {
                sleep_until(until).await;
            }
        }
        () = sleep_until(until) => {}
    }
}

/// An election that a test decides.
#[cfg(test)]
pub(crate) struct Lever(watch::Sender<Standing>);

#[cfg(test)]
impl Lever {
    pub(crate) fn new() -> (Self, Leadership) {
        let (tx, standing) = watch::channel(Standing {
            holder: "another".into(),
            lead: None,
            proven: 0,
        });
        let leadership = Leadership {
            standing,
            stats: Arc::default(),
            resign: CancellationToken::new(),
            ended: CancellationToken::new(),
        };
        (Self(tx), leadership)
    }

    /// Leads from now on, for long.
    pub(crate) fn elect(&self, term: u64) {
        let lasts = Duration::from_secs(100_000);
        self.0.send_modify(|standing| {
            standing.lead = Some(Lead {
                term,
                until: Instant::now() + lasts,
                renewed: SystemTime::now(),
                lasts,
            });
            standing.proven = term;
        });
    }

    /// Elected, and not leading yet.
    pub(crate) fn choose(&self, term: u64) {
        self.elect(term);
        self.0.send_modify(|standing| standing.proven = 0);
    }

    pub(crate) fn depose(&self) {
        self.0.send_modify(|standing| standing.lead = None);
    }
}
