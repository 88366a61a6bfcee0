//! Drives the election over the `Cluster`: reads and writes the Lease, publishes the standing, brings the cache of a
//! new leader up to date, and gives the Lease back at the end. Time is tokio's only.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::election::{Act, At, Election, Timing};
use super::label;
use super::standing::{Lead, Leadership, Standing, Stats};
use crate::cluster::{Cluster, LeaseWrite, WriteError, deadline};
use crate::model::{Name, NamespacedName};

/// For giving the Lease back, and for taking the label off: a replica that ends does not wait long.
pub(super) const LAST_CALL: Duration = Duration::from_secs(3);
/// A leader that cannot bring its cache up to date for so many leases is none: another replica may be well.
const HOPELESS: u32 = 3;
/// Tries to give it back: one of our own renewals may have been on its way.
const LAST_CALLS: usize = 2;

/// Whose election, and who stands for it.
#[derive(Clone, Debug)]
pub struct Settings {
    pub lease: NamespacedName,
    /// This process's alone, not only this pod's: a restarted one must not take the old one's Lease for its own.
    pub identity: Name,
    /// The pod that carries the label while it leads; None: there is none.
    pub pod: Option<NamespacedName>,
    pub timing: Timing,
}

/// An election that stands still until its future runs; that one ends after `Leadership::resign` only.
pub fn elect(cluster: Arc<dyn Cluster>, settings: Settings) -> (Leadership, impl Future<Output = ()> + Send + 'static) {
    let (tx, standing) = watch::channel(Standing {
        holder: "".into(),
        lead: None,
        proven: 0,
    });
    let leadership = Leadership {
        standing,
        stats: Arc::new(Stats::default()),
        resign: CancellationToken::new(),
        ended: CancellationToken::new(),
    };
    let run = run(cluster, settings, tx, leadership.clone());
    (leadership, run)
}

async fn run(cluster: Arc<dyn Cluster>, settings: Settings, tx: watch::Sender<Standing>, leadership: Leadership) {
    let _ended = leadership.ended.clone().drop_guard();
    let tx = Arc::new(tx);
    let label_stop = CancellationToken::new();
    let mut side = JoinSet::new();
    if let Some(pod) = settings.pod.clone() {
        let retry = settings.timing.retry;
        side.spawn(label::follow(
            cluster.clone(),
            pod,
            retry,
            leadership.clone(),
            label_stop.clone(),
        ));
    }
    let mut candidate = Candidate {
        election: Election::new(settings.identity, settings.timing),
        lease: settings.lease,
        start: Instant::now(),
        stats: leadership.stats.clone(),
        proofs: JoinSet::new(),
        said: "".into(),
        cluster,
        tx,
    };
    tokio::select! {
        biased;
        () = leadership.resign.cancelled() => {}
        () = candidate.stand() => {}
    }
    candidate.give_back().await;
    label_stop.cancel();
    // Ends by itself, within LAST_CALL.
    while side.join_next().await.is_some() {}
}

struct Candidate {
    cluster: Arc<dyn Cluster>,
    election: Election,
    lease: NamespacedName,
    /// Zero of the election's clock.
    start: Instant,
    tx: Arc<watch::Sender<Standing>>,
    stats: Arc<Stats>,
    /// Brings the cache of the current term up to date; false: that came to nothing.
    proofs: JoinSet<bool>,
    /// The trouble that was logged last.
    said: String,
}

impl Candidate {
    fn now(&self) -> At {
        self.start.elapsed()
    }

    /// Never ends by itself.
    async fn stand(&mut self) {
        loop {
            match self.publish(|election, now| election.next(now)) {
                Act::Wait(until) => {
                    let hopeless = tokio::select! {
                        () = sleep_until(self.start + until) => false,
                        Some(Ok(false)) = self.proofs.join_next() => true,
                    };
                    if hopeless {
                        tracing::warn!(
                            "elected, and cannot read claims and pods: the Lease is left to another replica"
                        );
                        self.give_back().await;
                        self.publish(|election, now| election.stand_back(now));
                    }
                }
                Act::Read => self.read().await,
                Act::Write(write) => self.write(write).await,
            }
        }
    }

    /// One call takes no longer than half the time in which a holder must renew.
    fn limit(&self) -> Instant {
        Instant::now() + self.election.timing().renew / 2
    }

    async fn read(&mut self) {
        match deadline::within(self.limit(), self.cluster.lease(&self.lease)).await {
            Ok(found) => {
                self.publish(|election, now| election.read(now, found));
                self.said.clear();
            }
            Err(error) => {
                self.publish(|election, now| election.not_read(now));
                self.trouble(&error);
            }
        }
    }

    async fn write(&mut self, write: LeaseWrite) {
        let (begun, wall) = (self.now(), SystemTime::now());
        let renewal = !write.acquired;
        match deadline::within(self.limit(), self.cluster.write_lease(&self.lease, &write)).await {
            Ok(lease) => {
                self.published(wall, |election, now| election.written(begun, now, lease));
                self.said.clear();
            }
            Err(error) => {
                if renewal {
                    self.stats.renew_failures.fetch_add(1, Ordering::Relaxed);
                }
                self.publish(|election, now| election.not_written(now));
                // Another was faster: that is what the Lease is for.
                if renewal || !matches!(error, WriteError::Conflict(_)) {
                    self.trouble(&error);
                }
            }
        }
    }

    fn trouble(&mut self, error: &WriteError) {
        let said = error.to_string();
        if said == self.said {
            tracing::debug!(lease = %self.lease, %error, "election");
            return;
        }
        let advice = match error {
            WriteError::Refused(_) => "get, create and patch on this Lease are needed: apply manifests/base/rbac.yaml",
            _ => "trying again",
        };
        tracing::warn!(lease = %self.lease, %error, advice, "cannot read or write the Lease of the election");
        self.said = said;
    }

    fn publish<T>(&mut self, step: impl FnOnce(&mut Election, At) -> T) -> T {
        self.published(SystemTime::now(), step)
    }

    /// Takes one step of the election and shows where it stands, under the lock of those who judge by it. `wall`: when
    /// what the step is about was begun.
    fn published<T>(&mut self, wall: SystemTime, step: impl FnOnce(&mut Election, At) -> T) -> T {
        let (election, start) = (&mut self.election, self.start);
        let mut result = None;
        let (mut begun, mut ended) = (None, None);
        self.tx.send_if_modified(|standing| {
            // Somebody may have seen it end.
            if standing.lead.is_some_and(|l| l.over()) {
                election.lost(start.elapsed());
            }
            result = Some(step(election, start.elapsed()));
            let held = election.held();
            let before = standing.lead;
            standing.lead = held.map(|held| {
                let until = start + held.until;
                match before.filter(|l| l.term == held.term && l.until == until) {
                    Some(same) => same,
                    None => Lead {
                        term: held.term,
                        until,
                        renewed: wall,
                        lasts: election.timing().renew,
                    },
                }
            });
            let (old, new) = (before.map(|l| l.term), standing.lead.map(|l| l.term));
            if old != new {
                (begun, ended) = (new, old);
            }
            let holder = election.holder();
            let news = old != new || before.map(|l| l.until) != standing.lead.map(|l| l.until);
            let other = standing.holder != holder;
            if other {
                tracing::info!(holder = &*holder, "the Lease of the election is held by");
                standing.holder = holder;
            }
            news || other
        });
        if let Some(term) = ended {
            self.proofs.abort_all();
            self.stats.lost.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(term, "no longer the leader: binds are refused");
        }
        if let Some(term) = begun {
            self.stats.gained.fetch_add(1, Ordering::Relaxed);
            tracing::info!(term, "elected: reading what the last leader wrote");
            let prove = prove(self.cluster.clone(), self.tx.clone(), term, self.election.timing());
            while self.proofs.try_join_next().is_some() {}
            self.proofs.spawn(prove);
        }
        result.expect("send_if_modified calls its closure, once")
    }

    /// The fence closes first; then the next replica may begin at once.
    async fn give_back(&mut self) {
        self.proofs.abort_all();
        for _ in 0..LAST_CALLS {
            let Some(write) = self.publish(|election, _| election.resign()) else {
                return;
            };
            let limit = Instant::now() + LAST_CALL;
            match deadline::within(limit, self.cluster.write_lease(&self.lease, &write)).await {
                Ok(_) => {
                    tracing::info!(lease = %self.lease, "the Lease of the election is given back");
                    return;
                }
                Err(WriteError::Conflict(_)) => match deadline::within(limit, self.cluster.lease(&self.lease)).await {
                    Ok(found) => self.publish(|election, now| election.read(now, found)),
                    Err(_) => return,
                },
                Err(error) => {
                    tracing::warn!(%error, "the Lease is not given back: the next leader waits until it has run out");
                    return;
                }
            }
        }
    }
}

/// Until the cache shows all that was written before this term: nothing may be bound. False: it took too long.
async fn prove(cluster: Arc<dyn Cluster>, tx: Arc<watch::Sender<Standing>>, term: u64, timing: Timing) -> bool {
    let begun = Instant::now();
    let caught_up = async {
        while let Err(error) = cluster.caught_up().await {
            tracing::warn!(%error, "cannot read what the last leader wrote: not binding yet");
            sleep(timing.retry).await;
        }
    };
    if timeout_at(begun + HOPELESS * timing.lease, caught_up).await.is_err() {
        return false;
    }
    tx.send_if_modified(|standing| {
        let current = standing.lead.is_some_and(|l| l.term == term);
        if current {
            standing.proven = term;
        }
        current
    });
    tracing::info!(
        term,
        took_ms = begun.elapsed().as_millis() as u64,
        "leading: binds are taken"
    );
    true
}
