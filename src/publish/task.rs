//! The loop around the index: takes what is queued, applies it, publishes once, answers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::pokes::{self, News};
use super::turns::Turns;
use super::unbound::Unbound;
use super::{Fits, IndexHandle, Message, Poke, Reader};
use crate::index::{Conflict, HoldEnd, HoldId, Index, Reservation, ReservationId};

/// Messages that may wait. A watch that fills it is slowed down, which its API server's buffer takes.
const QUEUE: usize = 8192;
/// Messages taken between two publications: bounds how long a reservation waits behind a flood of events.
const BATCH: usize = 512;
/// Refused pods that may wait for the poke task.
const NEWS: usize = 4096;
/// Pokes that may wait for the API.
const POKES: usize = 256;

/// How long a hold waits for its bind. Between prioritize and bind kube-scheduler runs Reserve, Permit and PreBind, and
/// the bind itself may queue in a burst: seconds, unless a volume is made first. Too short costs a placement in bind,
/// too long keeps devices from others where the scheduler has dropped the pod without a word.
pub(super) const HELD: Duration = Duration::from_secs(15);
/// Holds taken within this time end together: bounds what is remembered of their ends.
const TOGETHER: Duration = Duration::from_millis(100);

/// What metrics read.
#[derive(Debug, Default)]
pub struct Stats {
    publications: AtomicU64,
    reservations: AtomicUsize,
    holds: AtomicUsize,
    ended_holds: [AtomicU64; HoldEnd::ALL.len()],
    pub(super) waiting: AtomicUsize,
}

impl Stats {
    /// Snapshots published since the start.
    pub fn publications(&self) -> u64 {
        self.publications.load(Ordering::Relaxed)
    }

    /// Reservations held now.
    pub fn reservations(&self) -> usize {
        self.reservations.load(Ordering::Relaxed)
    }

    /// Holds now.
    pub fn holds(&self) -> usize {
        self.holds.load(Ordering::Relaxed)
    }

    /// Holds ended since the start, by how.
    pub fn ended_holds(&self) -> impl Iterator<Item = (HoldEnd, u64)> {
        let counts = self.ended_holds.iter().map(|n| n.load(Ordering::Relaxed));
        HoldEnd::ALL.into_iter().zip(counts)
    }

    /// Refused pods that wait for devices.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// A started index task.
pub struct Running {
    pub index: IndexHandle,
    pub reader: Reader,
    /// Refused pods that could fit now; whoever receives them patches the pods.
    pub pokes: mpsc::Receiver<Poke>,
    pub stats: Arc<Stats>,
    /// Ends when every handle is dropped; earlier only by a fault.
    pub task: JoinHandle<()>,
}

/// Starts the index task and the poke task beside it. Must be called within a tokio runtime.
pub fn spawn(index: Index, fits: Arc<Fits>) -> Running {
    let (tx, rx) = mpsc::channel(QUEUE);
    let (news_tx, news_rx) = mpsc::channel(NEWS);
    let (loosened_tx, loosened_rx) = watch::channel(0);
    let (poke_tx, pokes) = mpsc::channel(POKES);
    let (version_tx, version) = watch::channel(0);
    let current = Arc::new(ArcSwap::default());
    let stats = Arc::<Stats>::default();
    let reader = Reader {
        current: current.clone(),
        version,
    };
    tokio::spawn(pokes::run(
        reader.clone(),
        fits,
        news_rx,
        loosened_rx,
        poke_tx,
        stats.clone(),
    ));
    let state = Loop {
        index,
        current,
        version: version_tx,
        loosened: loosened_tx,
        news: news_tx,
        stats: stats.clone(),
        ends: VecDeque::new(),
        unbound: Unbound::default(),
        turns: Turns::default(),
    };
    let task = tokio::spawn(state.run(rx));
    Running {
        index: IndexHandle { tx },
        reader,
        pokes,
        stats,
        task,
    }
}

/// Answers that wait for the publication of what they answer.
enum Reply {
    Reserved(
        oneshot::Sender<Result<ReservationId, Conflict>>,
        Result<ReservationId, Conflict>,
    ),
    Held(oneshot::Sender<Result<HoldId, Conflict>>, Result<HoldId, Conflict>),
    Flushed(oneshot::Sender<()>),
}

struct Loop {
    index: Index,
    current: Arc<ArcSwap<crate::snapshot::Snapshot>>,
    version: watch::Sender<u64>,
    loosened: watch::Sender<u64>,
    news: mpsc::Sender<News>,
    stats: Arc<Stats>,
    /// When the next holds end: these and all that are older.
    ends: VecDeque<(Instant, HoldId)>,
    unbound: Unbound,
    turns: Turns,
}

impl Loop {
    async fn run(mut self, mut rx: mpsc::Receiver<Message>) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let news = rx.recv_many(&mut batch, BATCH);
            let ends = self.ends.front().map(|(at, _)| *at);
            let ended = match ends.into_iter().chain(self.turns.due()).min() {
                Some(at) => timeout_at(at, news).await == Ok(0),
                None => news.await == 0,
            };
            if ended {
                return;
            }
            self.expire();
            let replies: Vec<Reply> = batch.drain(..).filter_map(|message| self.take(message)).collect();
            self.publish();
            let mut orphans = false;
            for reply in replies {
                match reply {
                    // The bind has gone away: nobody will write or release, so the reservation goes too.
                    Reply::Reserved(to, result) => {
                        if let Err(Ok(id)) = to.send(result) {
                            self.index.release(id);
                            orphans = true;
                        }
                    }
                    Reply::Held(to, result) => {
                        if let Err(Ok(id)) = to.send(result) {
                            self.index.drop_hold(id);
                            orphans = true;
                        }
                    }
                    // Nobody waits any more.
                    Reply::Flushed(to) => _ = to.send(()),
                }
            }
            if orphans {
                self.publish();
            }
            // Long work on a runtime shared with requests: let them in between.
            tokio::task::yield_now().await;
        }
    }

    fn take(&mut self, message: Message) -> Option<Reply> {
        match message {
            Message::Change(change) => self.index.apply(change),
            Message::Classifier(classifier) => self.index.set_classifier(classifier),
            Message::Reserve(reservation, to) => return Some(Reply::Reserved(to, self.reserve(reservation))),
            Message::Release(id) => self.index.release(id),
            Message::Written(id, claim, version) => self.index.written(id, claim, version),
            Message::Hold(wanted, to) => return Some(Reply::Held(to, self.hold(wanted))),
            Message::DropHold(id) => self.index.drop_hold(id),
            Message::Refused(pod, version) => {
                // Full: forgotten, and brought back by the scheduler's own five minutes.
                let _ = self.news.try_send(News { pod, version });
            }
            Message::Flush(to) => return Some(Reply::Flushed(to)),
        }
        None
    }

    fn reserve(&mut self, wanted: Reservation) -> Result<ReservationId, Conflict> {
        let uid = wanted.pod_uid.clone();
        let id = self.index.reserve(wanted)?;
        self.unbound.bound(&uid);
        Ok(id)
    }

    fn hold(&mut self, wanted: Reservation) -> Result<HoldId, Conflict> {
        let now = Instant::now();
        if let Err(too_long) = self.unbound.may_hold(&wanted, now) {
            self.index.expire_hold_of(&wanted.pod);
            return Err(too_long);
        }
        let uid = wanted.pod_uid.clone();
        let held = self.index.hold(wanted)?;
        self.unbound.held(uid, held, now);
        let end = now + HELD + TOGETHER;
        match self.ends.back_mut() {
            Some((at, newest)) if end < *at + TOGETHER => *newest = held,
            _ => self.ends.push_back((end, held)),
        }
        Ok(held)
    }

    fn expire(&mut self) {
        let now = Instant::now();
        while let Some((_, newest)) = self.ends.front().filter(|(at, _)| *at <= now) {
            self.index.expire_holds(*newest);
            self.ends.pop_front();
        }
    }

    fn publish(&mut self) {
        self.turns.look(&mut self.index, Instant::now());
        if let Some(snapshot) = self.index.publish() {
            let version = snapshot.version;
            self.current.store(snapshot);
            self.stats.publications.fetch_add(1, Ordering::Relaxed);
            self.version.send_replace(version);
        }
        for shape in self.index.take_cold() {
            // A moment of a whole core; until it is done, answers are as right and take longer.
            tokio::task::spawn_blocking(move || shape.warm());
        }
        // Also without a new snapshot: another policy may let a pod fit where no device changed.
        if self.index.take_loosened() {
            self.loosened.send_replace(*self.version.borrow());
        }
        let stats = &self.stats;
        stats.reservations.store(self.index.reservations(), Ordering::Relaxed);
        stats.holds.store(self.index.holds(), Ordering::Relaxed);
        for (shown, count) in stats.ended_holds.iter().zip(self.index.ended_holds()) {
            shown.store(count, Ordering::Relaxed);
        }
    }
}
