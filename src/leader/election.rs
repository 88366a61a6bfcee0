//! Who holds the Lease, as one replica can know it: the rules of client-go's leaderelection without clock and network.
//!
//! It is fed with what was read and written and when, on this process's own monotonic clock, and says what to do next.
//! Times of two machines are never compared: a replica that does not hold the Lease waits for a whole lease duration
//! since it last *saw* the record change; one that holds it counts from the *start* of its last write that was answered,
//! and only for the renew deadline, which is shorter. The record cannot have changed before that start, so the holder's
//! time is over before anybody else's begins.

use std::time::Duration;

use crate::cluster::{Lease, LeaseWrite};
use crate::model::Name;

/// Time since some fixed moment of this process, on a clock that never jumps.
pub(super) type At = Duration;

/// How long, and how often. `renew` < `lease`: the difference is what clocks that run unequally and writes that are
/// executed late may take. `retry` is small, since whoever follows sees the last renewal that much later at worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Others wait this long for a holder that is silent.
    pub lease: Duration,
    /// A holder that could not renew for this long is none any more.
    pub renew: Duration,
    /// Between two renewals, and between two looks at somebody else's Lease.
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(10),
            renew: Duration::from_secs(6),
            retry: Duration::from_secs(1),
        }
    }
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Ask again at that time.
    Wait(At),
    /// Read the Lease; tell `read` or `not_read`.
    Read,
    /// Write it; tell `written` or `not_written`.
    Write(LeaseWrite),
}

/// A stretch of time in which the Lease was ours without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// Grows; never that of an earlier stretch of this process.
    pub(super) term: u64,
    /// It is over then, unless it is renewed before.
    pub(super) until: At,
}

#[derive(Debug)]
pub(super) struct Election {
    identity: Name,
    timing: Timing,
    /// The newest record we know, and when we first saw it so. None: there is none.
    seen: Option<(Lease, At)>,
    /// What we know may be out of date: read before anything is written.
    unsure: bool,
    next: At,
    held: Option<Held>,
    terms: u64,
    /// After a term that ended against our will, another begins no sooner than somebody else's could: a write of ours
    /// that was late on its way is executed by then, or never.
    barred: At,
}

impl Election {
    /// `identity` must be this process's alone: a record with it is taken for one of our own writes.
    pub(super) fn new(identity: Name, timing: Timing) -> Self {
        Self {
            identity,
            timing,
            seen: None,
            unsure: true,
            next: At::ZERO,
            held: None,
            terms: 0,
            barred: At::ZERO,
        }
    }

    pub(super) fn next(&mut self, now: At) -> Act {
        self.lapse(now);
        if now < self.next {
            return Act::Wait(self.held.map_or(self.next, |h| h.until.min(self.next)));
        }
        if self.unsure {
            return Act::Read;
        }
        let (replaces, taken, transitions) = match &self.seen {
            None => (None, true, 0),
            Some((lease, _)) if lease.holder == self.identity => {
                (Some(lease.version.clone()), self.held.is_none(), lease.transitions)
            }
            Some((lease, since)) => {
                let free = self.free_at(lease, *since);
                if now < free {
                    self.unsure = true;
                    self.next = free.min(now + self.timing.retry);
                    return Act::Wait(self.next);
                }
                (Some(lease.version.clone()), true, lease.transitions.saturating_add(1))
            }
        };
        Act::Write(LeaseWrite {
            replaces,
            holder: self.identity.clone(),
            duration: self.timing.lease,
            transitions,
            acquired: taken,
        })
    }

    /// When somebody else's Lease may be taken.
    fn free_at(&self, lease: &Lease, since: At) -> At {
        if lease.holder.is_empty() {
            return At::ZERO;
        }
        // One that asks for more gets it: another version of us may be configured otherwise.
        since + self.timing.lease.max(lease.duration)
    }

    /// The Lease was read: asked and answered before `now`.
    pub(super) fn read(&mut self, now: At, found: Option<Lease>) {
        self.lapse(now);
        self.unsure = false;
        if found.as_ref().is_none_or(|l| l.holder != self.identity) {
            // Not to be expected while our time runs, but whoever wrote this may bind now.
            self.lost(now);
        }
        self.seen = match (found, self.seen.take()) {
            (None, _) => None,
            (Some(new), Some((old, since))) if new == old => Some((old, since)),
            (Some(new), _) => Some((new, now)),
        };
    }

    /// It could not be read.
    pub(super) fn not_read(&mut self, now: At) {
        self.lapse(now);
        self.next = now + self.timing.retry;
    }

    /// Our write, begun at `begun`, was answered before `now`.
    pub(super) fn written(&mut self, begun: At, now: At, lease: Lease) {
        self.lapse(now);
        let ours = lease.holder == self.identity;
        self.seen = Some((lease, now));
        self.unsure = false;
        self.next = begun + self.timing.retry;
        let until = begun + self.timing.renew;
        // An answer that came too late says only that others have to wait.
        if !ours || until <= now || (self.held.is_none() && begun < self.barred) {
            return;
        }
        let term = match self.held {
            Some(held) => held.term,
            None => {
                self.terms += 1;
                self.terms
            }
        };
        self.held = Some(Held { term, until });
    }

    /// Our write was refused, or not answered: it may still have been made.
    pub(super) fn not_written(&mut self, now: At) {
        self.lapse(now);
        self.unsure = true;
        // Sooner while there is something to lose.
        let pause = if self.held.is_some() {
            self.timing.retry / 4
        } else {
            self.timing.retry
        };
        self.next = now + pause;
    }

    /// Ends our time if it has run out.
    fn lapse(&mut self, now: At) {
        if let Some(held) = self.held.filter(|h| h.until <= now) {
            self.lost(held.until);
        }
    }

    /// Ends our time: it is known, otherwise than by the clock, that it ran out then.
    pub(super) fn lost(&mut self, at: At) {
        if self.held.take().is_some() {
            self.barred = at + self.timing.lease.saturating_sub(self.timing.renew);
        }
    }

    /// What gives the Lease back, for the next to take it at once; None: it is not ours, as far as we know. Nothing may
    /// be written under it any more.
    pub(super) fn resign(&mut self) -> Option<LeaseWrite> {
        self.held = None;
        let (lease, _) = self.seen.as_ref().filter(|(l, _)| l.holder == self.identity)?;
        Some(LeaseWrite {
            replaces: Some(lease.version.clone()),
            holder: "".into(),
            duration: Duration::from_secs(1),
            transitions: lease.transitions,
            acquired: false,
        })
    }

    pub(super) fn held(&self) -> Option<Held> {
        self.held
    }

    /// Who holds it as far as we know; empty: nobody.
    pub(super) fn holder(&self) -> Name {
        self.seen.as_ref().map_or_else(|| "".into(), |(l, _)| l.holder.clone())
    }

    pub(super) fn timing(&self) -> Timing {
        self.timing
    }
}
