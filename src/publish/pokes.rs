//! Which refused pods are worth another try.
//!
//! kube-scheduler does not look again at a pod when a ResourceSlice changes or a reservation of ours ends, so we
//! tell it. A poke costs an API write and a scheduling cycle: it is sent only for a pod that would fit now.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::{Fits, Poke, Reader, Stats};
use crate::model::{Name, NamespacedName, Pod};
use crate::snapshot::Snapshot;

/// Refused pods remembered. One more is forgotten: the scheduler tries it again after five minutes by itself.
const MOST: usize = 10_000;
/// A pod is poked at most this often.
const APART: Duration = Duration::from_secs(1);
/// Changes within this time are looked at together.
const GATHER: Duration = Duration::from_millis(50);
/// Pokes of one round. The rest has its turn in the next; those that waited longest first.
const ROUND: usize = 64;
/// Pods looked at in one go, each against every node: what bounds the time a round takes.
const LOOK: usize = 256;
/// A pod that our watch has not shown by then does not exist any more.
const UNSEEN: Duration = Duration::from_secs(60);

/// A pod was refused everywhere in the snapshot of that version.
pub(super) struct News {
    pub(super) pod: Arc<Pod>,
    pub(super) version: u64,
}

struct Waiting {
    pod: Arc<Pod>,
    refused_at: Instant,
    poked_at: Option<Instant>,
    /// The epoch in which it was last found not to fit, or poked.
    looked: u64,
}

pub(super) async fn run(
    reader: Reader,
    fits: Arc<Fits>,
    mut news: mpsc::Receiver<News>,
    mut loosened: watch::Receiver<u64>,
    pokes: mpsc::Sender<Poke>,
    stats: Arc<Stats>,
) {
    let mut waiting: HashMap<Name, Waiting> = HashMap::new();
    // When the next round is due; None: nothing to look at.
    let mut due: Option<Instant> = None;
    // Counts the changes by which a pod could fit now; a pod is looked at once in each.
    let mut epoch: u64 = 1;
    loop {
        let round = async {
            match due {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        // In this order: a flood of refusals puts off no round, and what is looked at is as new as can be.
        tokio::select! {
            biased;
            changed = loosened.changed() => {
                if changed.is_err() {
                    return;
                }
                epoch += 1;
                if !waiting.is_empty() {
                    due = sooner(due);
                }
            }
            () = round => {
                let snapshot = reader.load();
                forget(&mut waiting, &snapshot);
                let now = Instant::now();
                let (turn, early) = turn(&waiting, &snapshot, epoch, now);
                let full = turn.len() == LOOK;
                let fit = could_fit(turn, snapshot, fits.clone()).await;
                let all = send(&mut waiting, fit, &pokes, epoch, now);
                due = if !all || early {
                    Some(Instant::now() + APART)
                } else {
                    full.then(|| Instant::now() + GATHER)
                };
            }
            refused = news.recv() => {
                let Some(News { pod, version }) = refused else { return };
                // Something came free between the snapshot it was refused in and now.
                let stale = *loosened.borrow() > version;
                remember(&mut waiting, pod, if stale { 0 } else { epoch });
                if stale {
                    due = sooner(due);
                }
            }
        }
        stats.waiting.store(waiting.len(), Ordering::Relaxed);
    }
}

/// A round soon; none is put off.
fn sooner(due: Option<Instant>) -> Option<Instant> {
    let soon = Instant::now() + GATHER;
    Some(due.map_or(soon, |at| at.min(soon)))
}

fn remember(waiting: &mut HashMap<Name, Waiting>, pod: Arc<Pod>, looked: u64) {
    let refused_at = Instant::now();
    if let Some(known) = waiting.get_mut(&pod.uid) {
        known.pod = pod;
        known.refused_at = refused_at;
        known.looked = looked;
    } else if waiting.len() < MOST {
        waiting.insert(
            pod.uid.clone(),
            Waiting {
                pod,
                refused_at,
                poked_at: None,
                looked,
            },
        );
    } else {
        tracing::warn!(pod = %pod.key, limit = MOST, "too many refused pods to remember: it waits for the scheduler's own retry");
    }
}

/// Those that are bound or gone.
fn forget(waiting: &mut HashMap<Name, Waiting>, snapshot: &Snapshot) {
    let now = Instant::now();
    waiting.retain(|_, w| match snapshot.pods.get(&w.pod.key) {
        Some(seen) => seen.awaits_node(&w.pod.uid),
        None => now - w.refused_at < UNSEEN,
    });
}

/// Whose turn it is: those not looked at in this epoch, the longest waiting first. True: it is too early for
/// some, which were poked a moment ago.
fn turn(waiting: &HashMap<Name, Waiting>, snapshot: &Snapshot, epoch: u64, now: Instant) -> (Vec<Arc<Pod>>, bool) {
    let due = waiting.values().filter(|w| w.looked < epoch);
    let (mut turn, early): (Vec<&Waiting>, Vec<_>) = due.partition(|w| w.poked_at.is_none_or(|at| now - at >= APART));
    turn.sort_by(|a, b| (a.looked, a.poked_at, &a.pod.key).cmp(&(b.looked, b.poked_at, &b.pod.key)));
    turn.truncate(LOOK);
    // A newer pod object than the one refused: labels and claims may have changed.
    let newest = |w: &Waiting| snapshot.pods.get(&w.pod.key).unwrap_or(&w.pod).clone();
    (turn.into_iter().map(newest).collect(), !early.is_empty())
}

/// Each pod with whether it would fit. On a thread for long work: no request waits for it. A runtime of one thread (a
/// simulation, which must do the same again) has it done at once.
async fn could_fit(turn: Vec<Arc<Pod>>, snapshot: Arc<Snapshot>, fits: Arc<Fits>) -> Vec<(Arc<Pod>, bool)> {
    let look = move || {
        turn.into_iter()
            .map(|pod| {
                let fit = fits(&snapshot, &pod);
                (pod, fit)
            })
            .collect()
    };
    if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
        return look();
    }
    match tokio::task::spawn_blocking(look).await {
        Ok(fit) => fit,
        Err(e) => {
            // A pod that makes the check panic: these wait for the scheduler's own retry.
            tracing::error!(error = %e, "looking at refused pods failed");
            vec![]
        }
    }
}

/// Pokes those that fit. False: some have to wait for the next round.
fn send(
    waiting: &mut HashMap<Name, Waiting>,
    looked_at: Vec<(Arc<Pod>, bool)>,
    pokes: &mpsc::Sender<Poke>,
    epoch: u64,
    now: Instant,
) -> bool {
    let (mut sent, mut all) = (0, true);
    for (pod, fit) in looked_at {
        let Some(w) = waiting.get_mut(&pod.uid) else { continue };
        if fit {
            let poke = Poke {
                pod: NamespacedName::clone(&pod.key),
                uid: pod.uid.clone(),
            };
            if sent == ROUND || pokes.try_send(poke).is_err() {
                all = false;
                continue;
            }
            sent += 1;
            w.poked_at = Some(now);
        }
        w.looked = epoch;
    }
    all
}
