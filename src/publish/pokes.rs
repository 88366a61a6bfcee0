//! Which refused pods are worth another try.
//!
//! kube-scheduler does not look again at a pod when a ResourceSlice changes or a reservation of ours ends, so we
//! tell it. A poke costs an API write and a scheduling cycle: it is sent only for a pod that would fit now.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

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
    loop {
        let round = async {
            match due {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            refused = news.recv() => {
                let Some(News { pod, version }) = refused else { return };
                remember(&mut waiting, pod);
                // Something came free between the snapshot it was refused in and now.
                if *loosened.borrow() > version {
                    due = sooner(due);
                }
            }
            changed = loosened.changed() => {
                if changed.is_err() {
                    return;
                }
                if !waiting.is_empty() {
                    due = sooner(due);
                }
            }
            () = round => {
                let snapshot = reader.load();
                let more = look(&mut waiting, &snapshot, &*fits, &pokes);
                due = more.then(|| Instant::now() + APART);
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

fn remember(waiting: &mut HashMap<Name, Waiting>, pod: Arc<Pod>) {
    let refused_at = Instant::now();
    if let Some(known) = waiting.get_mut(&pod.uid) {
        known.pod = pod;
        known.refused_at = refused_at;
    } else if waiting.len() < MOST {
        waiting.insert(
            pod.uid.clone(),
            Waiting {
                pod,
                refused_at,
                poked_at: None,
            },
        );
    } else {
        tracing::warn!(pod = %pod.key, limit = MOST, "too many refused pods to remember: it waits for the scheduler's own retry");
    }
}

/// One round. True: some pods could not be looked at yet.
fn look(waiting: &mut HashMap<Name, Waiting>, snapshot: &Snapshot, fits: &Fits, pokes: &mpsc::Sender<Poke>) -> bool {
    let now = Instant::now();
    waiting.retain(|_, w| match snapshot.pods.get(&w.pod.key) {
        Some(seen) => seen.uid == w.pod.uid && seen.node_name.is_empty() && !seen.deleting,
        None => now - w.refused_at < UNSEEN,
    });
    let mut turn: Vec<&mut Waiting> = waiting.values_mut().collect();
    turn.sort_by(|a, b| (a.poked_at, &a.pod.key).cmp(&(b.poked_at, &b.pod.key)));
    let (mut sent, mut more) = (0, false);
    for w in turn {
        if sent == ROUND || w.poked_at.is_some_and(|at| now - at < APART) {
            more = true;
            continue;
        }
        // A newer pod object than the one refused: labels and claims may have changed.
        let pod = snapshot.pods.get(&w.pod.key).unwrap_or(&w.pod);
        if !fits(snapshot, pod) {
            continue;
        }
        let poke = Poke {
            pod: NamespacedName::clone(&pod.key),
            uid: pod.uid.clone(),
        };
        if pokes.try_send(poke).is_err() {
            more = true;
            break;
        }
        w.poked_at = Some(now);
        sent += 1;
    }
    more
}
