//! Whether this process may be sent requests, and if not, what it waits for: one latch per watched kind, the age
//! of each watch, the serving certificate, and the wish to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::Metrics;
use crate::cluster::WatchStatus;
use crate::index::Kind;

/// Why not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unready {
    NotListed(Kind),
    /// No sign of life from the watch for this long.
    Stale(Kind, Duration),
    /// The Secret with it has not been read yet.
    NoCertificate,
    CertificateExpired,
    Stopping,
}

impl std::fmt::Display for Unready {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotListed(kind) => write!(f, "{} has not been listed yet", kind.as_str()),
            Self::Stale(kind, age) => write!(
                f,
                "the watch of {} has been silent for {} s",
                kind.as_str(),
                age.as_secs()
            ),
            Self::NoCertificate => f.write_str("there is no serving certificate yet"),
            Self::CertificateExpired => f.write_str("the serving certificate has expired"),
            Self::Stopping => f.write_str("shutting down"),
        }
    }
}

pub struct Readiness {
    metrics: Arc<Metrics>,
    started: Instant,
    /// None: watches never go stale (a cluster from files has no events to wait for).
    stale_after: Option<Duration>,
    /// Milliseconds from `started` to the last sign of life, plus one; 0: never listed.
    alive: [AtomicU64; Kind::ALL.len()],
    /// Seconds since the epoch; 0: there is none yet; i64::MAX: nothing that expires.
    not_after: AtomicI64,
    stopping: AtomicBool,
}

impl Readiness {
    pub fn new(metrics: Arc<Metrics>, stale_after: Option<Duration>) -> Self {
        Self {
            metrics,
            started: Instant::now(),
            stale_after,
            alive: Default::default(),
            not_after: AtomicI64::new(i64::MAX),
            stopping: AtomicBool::new(false),
        }
    }

    /// Every kind has been listed once: what we say about the cluster has a ground, if perhaps an old one.
    pub fn listed(&self) -> Result<(), Unready> {
        match Kind::ALL.into_iter().find(|k| self.age(*k).is_none()) {
            Some(kind) => Err(Unready::NotListed(kind)),
            None => Ok(()),
        }
    }

    /// Everything that is missing; empty: ready. Also brings the metrics of the watches up to date.
    pub fn missing(&self) -> Vec<Unready> {
        let mut missing = vec![];
        let mut oldest = Duration::ZERO;
        for kind in Kind::ALL {
            let age = self.age(kind);
            oldest = oldest.max(age.unwrap_or_else(|| self.started.elapsed()));
            let problem = match age {
                None => Some(Unready::NotListed(kind)),
                Some(age) if self.stale_after.is_some_and(|limit| age > limit) => Some(Unready::Stale(kind, age)),
                Some(_) => None,
            };
            self.metrics
                .watch_alive
                .with_label_values(&[kind.as_str()])
                .set(i64::from(problem.is_none()));
            missing.extend(problem);
        }
        // A cluster from files does not age.
        let age = if self.stale_after.is_some() {
            oldest
        } else {
            Duration::ZERO
        };
        self.metrics.cache_age.set(age.as_secs_f64());
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        match self.not_after.load(Ordering::Relaxed) {
            0 => missing.push(Unready::NoCertificate),
            end if i64::try_from(now).is_ok_and(|now| now >= end) => missing.push(Unready::CertificateExpired),
            _ => {}
        }
        if self.stopping.load(Ordering::Relaxed) {
            missing.push(Unready::Stopping);
        }
        missing
    }

    /// The serving certificate now in use. Seconds since the epoch; 0: there is none yet.
    pub fn certificate_expires(&self, not_after: i64) {
        self.not_after.store(not_after, Ordering::Relaxed);
        self.metrics.tls_not_after.set(not_after);
    }

    /// From now on not ready: requests in flight are finished, new ones should go elsewhere.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Since the last sign of life; None: never listed.
    fn age(&self, kind: Kind) -> Option<Duration> {
        let at = self.alive[kind as usize].load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.started.elapsed().saturating_sub(Duration::from_millis(at)))
    }
}

impl WatchStatus for Readiness {
    fn alive(&self, kind: Kind) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        self.alive[kind as usize].store(now + 1, Ordering::Relaxed);
    }

    fn restarted(&self, kind: Kind) {
        self.metrics.watch_restarted(kind);
    }

    fn undecodable(&self, kind: Kind) {
        self.metrics.watch_undecodable(kind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readiness(stale_after: Option<Duration>) -> Readiness {
        Readiness::new(Arc::new(Metrics::new().expect("registers")), stale_after)
    }

    #[test]
    fn ready_only_when_every_kind_is_listed() {
        let ready = readiness(None);
        for kind in Kind::ALL {
            assert_eq!(ready.listed(), Err(Unready::NotListed(kind)));
            assert!(ready.missing().contains(&Unready::NotListed(kind)));
            ready.alive(kind);
        }
        assert_eq!((ready.listed(), ready.missing()), (Ok(()), vec![]));
        ready.certificate_expires(0);
        assert_eq!(ready.missing(), [Unready::NoCertificate]);
        ready.certificate_expires(1);
        ready.stop();
        assert_eq!(ready.missing(), [Unready::CertificateExpired, Unready::Stopping]);
        assert_eq!(
            Unready::NotListed(Kind::Slice).to_string(),
            "ResourceSlice has not been listed yet"
        );
    }

    #[test]
    fn a_silent_watch_is_stale() {
        let ready = readiness(Some(Duration::ZERO));
        Kind::ALL.into_iter().for_each(|k| ready.alive(k));
        while !matches!(ready.missing().as_slice(), [Unready::Stale(Kind::Node, _), ..]) {
            std::thread::yield_now();
        }
        assert_eq!(ready.listed(), Ok(()), "stale is not the same as never listed");
    }
}
