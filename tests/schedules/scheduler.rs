//! A stand-in for kube-scheduler as far as an extender meets it: a queue in order, its own view that lags, filter,
//! prioritize, and a bind that goes on beside the next pod, with the time limits and backoffs of the real one
//! (pkg/scheduler: extender.go, backend/queue/scheduling_queue.go).

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, timeout};
use wattlane::index::Kind;
use wattlane::model::NamespacedName;

use super::host::{Feed, Out};
use super::process::{Outbox, Process};
use super::replica::{Ask, Told};
use super::rng::Rng;
use super::store::{Entry, text};

/// httpTimeout of an extender unless configured.
const PATIENCE: Duration = Duration::from_secs(5);
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(10);
/// podMaxInUnschedulablePodsDuration.
const FLUSH: Duration = Duration::from_secs(300);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Its claims are not there yet (preEnqueue).
    Gated,
    Active,
    Backoff,
    Unschedulable,
    /// In a cycle, or assumed to be on a node.
    Out,
}

struct Known {
    pod: Arc<Value>,
    at: At,
    tries: u32,
    /// Something that could help happened while it was in a cycle.
    stirred: bool,
    since: Instant,
}

#[derive(Default)]
struct State {
    pods: BTreeMap<NamespacedName, Known>,
    claims: BTreeMap<NamespacedName, Arc<Value>>,
    nodes: BTreeMap<NamespacedName, ()>,
    active: VecDeque<NamespacedName>,
}

struct Scheduler {
    state: Mutex<State>,
    work: Notify,
    outbox: Arc<Outbox>,
    rng: Mutex<Rng>,
    other_node: u64,
    second_bind: u64,
}

pub(crate) fn start(now: u64, rng: Rng, other_node: u64, second_bind: u64) -> Process {
    let process = Process::new(now);
    let scheduler = Arc::new(Scheduler {
        state: Mutex::default(),
        work: Notify::new(),
        outbox: process.outbox.clone(),
        rng: Mutex::new(rng),
        other_node,
        second_bind,
    });
    process.block_on(async {
        for kind in [Kind::Node, Kind::Claim, Kind::Pod] {
            tokio::spawn(watch(scheduler.clone(), kind));
        }
        tokio::spawn(flush(scheduler.clone()));
        tokio::spawn(run(scheduler));
    });
    process
}

async fn watch(scheduler: Arc<Scheduler>, kind: Kind) {
    loop {
        let (feed, mut events) = mpsc::unbounded_channel();
        scheduler.outbox.push(Out::Watch { kind, feed });
        while let Some(event) = events.recv().await {
            match event {
                Feed::List(entries) => scheduler.relisted(kind, &entries),
                Feed::Event(entry) => scheduler.seen(&entry),
            }
        }
        sleep(Duration::from_millis(300)).await;
    }
}

async fn flush(scheduler: Arc<Scheduler>) {
    loop {
        sleep(Duration::from_secs(30)).await;
        let long = |k: &Known| k.since.elapsed() >= FLUSH;
        scheduler.stir(long);
    }
}

async fn run(scheduler: Arc<Scheduler>) {
    loop {
        let next = scheduler.state().active.pop_front();
        let Some(key) = next else {
            scheduler.work.notified().await;
            continue;
        };
        let taken = {
            let mut state = scheduler.state();
            state.pods.get_mut(&key).filter(|k| k.at == At::Active).map(|known| {
                known.at = At::Out;
                known.tries += 1;
                known.stirred = false;
                known.pod.clone()
            })
        };
        if let Some(pod) = taken {
            cycle(&scheduler, &key, pod).await;
        }
    }
}

async fn cycle(scheduler: &Arc<Scheduler>, key: &NamespacedName, pod: Arc<Value>) {
    let nodes: Vec<String> = scheduler.state().nodes.keys().map(|k| k.name.to_string()).collect();
    let uid = text(&pod, "/metadata/uid").to_owned();
    let left = match scheduler.ask(Ask::Filter(args(&pod, &nodes))).await {
        Some(Told::Fits(fits)) => nodes
            .into_iter()
            .zip(fits)
            .filter(|(_, fits)| *fits)
            .map(|(n, _)| n)
            .collect::<Vec<_>>(),
        _ => return scheduler.failed(key, &uid, At::Backoff),
    };
    if left.is_empty() {
        return scheduler.failed(key, &uid, At::Unschedulable);
    }
    let mut chosen = 0;
    if left.len() > 1 {
        // Errors of prioritize are swallowed.
        if let Some(Told::Scores(scores)) = scheduler.ask(Ask::Prioritize(args(&pod, &left))).await {
            chosen = (0..scores.len()).rev().max_by_key(|i| scores[*i]).unwrap_or(0);
        }
        let mut rng = scheduler.rng.lock().expect("not poisoned");
        if rng.permille(scheduler.other_node) {
            chosen = usize::try_from(rng.below(left.len() as u64)).expect("a position");
        }
    }
    let node = left[chosen].clone();
    let second = {
        let mut rng = scheduler.rng.lock().expect("not poisoned");
        rng.permille(scheduler.second_bind)
            .then(|| (rng.pick(&left).clone(), rng.below(6000)))
    };
    if let Some((node, after)) = second {
        let (scheduler, pod) = (scheduler.clone(), pod.clone());
        tokio::spawn(async move {
            sleep(Duration::from_millis(after)).await;
            scheduler.ask(bind(&pod, &node)).await
        });
    }
    let (scheduler, key) = (scheduler.clone(), key.clone());
    tokio::spawn(async move {
        match scheduler.ask(bind(&pod, &node)).await {
            Some(Told::Bound) => {}
            // Its words end up in the pod's event.
            Some(Told::No(words)) if words.is_empty() => unreachable!("a refusal says why"),
            _ => scheduler.failed(&key, &uid, At::Backoff),
        }
    });
}

fn args(pod: &Value, nodes: &[String]) -> Arc<Vec<u8>> {
    Arc::new(
        json!({"Pod": pod, "Nodes": null, "NodeNames": nodes})
            .to_string()
            .into_bytes(),
    )
}

fn bind(pod: &Value, node: &str) -> Ask {
    let meta = &pod["metadata"];
    let args = json!({"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node});
    Ask::Bind(Arc::new(args.to_string().into_bytes()))
}

impl Scheduler {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("not poisoned")
    }

    async fn ask(&self, ask: Ask) -> Option<Told> {
        timeout(PATIENCE, self.outbox.ask(|reply| Out::Ask { ask, reply }))
            .await
            .ok()?
    }

    fn relisted(&self, kind: Kind, entries: &[Arc<Entry>]) {
        {
            let mut state = self.state();
            let listed = |key: &NamespacedName| entries.iter().any(|e| e.key == *key);
            match kind {
                Kind::Node => state.nodes.retain(|k, ()| listed(k)),
                Kind::Claim => state.claims.retain(|k, _| listed(k)),
                _ => state.pods.retain(|k, _| listed(k)),
            }
        }
        entries.iter().for_each(|entry| self.seen(entry));
        self.stir(|_| true);
    }

    fn seen(self: &Scheduler, entry: &Entry) {
        let key = entry.key.clone();
        match (entry.kind, &entry.raw) {
            (Kind::Node, Some(_)) => drop(self.state().nodes.insert(key, ())),
            (Kind::Node, None) => drop(self.state().nodes.remove(&key)),
            (Kind::Claim, Some(raw)) => drop(self.state().claims.insert(key, raw.clone())),
            (Kind::Claim, None) => drop(self.state().claims.remove(&key)),
            (_, Some(raw)) => return self.pod_seen(key, raw),
            (_, None) => drop(self.state().pods.remove(&key)),
        }
        // What a hint would call worth a look, and a little more.
        self.stir(|_| entry.kind != Kind::Claim || entry.raw.is_none());
        self.ungate();
    }

    fn pod_seen(&self, key: NamespacedName, raw: &Arc<Value>) {
        let done = text(raw, "/status/phase") == "Succeeded";
        let placed =
            !text(raw, "/spec/nodeName").is_empty() || !text(raw, "/metadata/deletionTimestamp").is_empty() || done;
        let mut poked = false;
        {
            let mut state = self.state();
            if placed {
                state.pods.remove(&key);
            } else {
                let uid = |v: &Value| text(v, "/metadata/uid").to_owned();
                match state.pods.get_mut(&key).filter(|k| uid(&k.pod) == uid(raw)) {
                    Some(known) => {
                        poked = known.pod["metadata"]["labels"] != raw["metadata"]["labels"];
                        known.pod = raw.clone();
                    }
                    None => {
                        let known = Known {
                            pod: raw.clone(),
                            at: At::Gated,
                            tries: 0,
                            stirred: false,
                            since: Instant::now(),
                        };
                        state.pods.insert(key.clone(), known);
                    }
                }
            }
        }
        if done {
            self.stir(|_| true);
        } else if poked {
            self.stir(|known| text(&known.pod, "/metadata/name") == &*key.name);
        }
        self.ungate();
    }

    /// Pods whose claims are there may be tried.
    fn ungate(&self) {
        let mut state = self.state();
        let State {
            pods, claims, active, ..
        } = &mut *state;
        for (key, known) in pods.iter_mut().filter(|(_, k)| k.at == At::Gated) {
            let entries = known.pod["spec"]["resourceClaims"].as_array();
            let there = entries.into_iter().flatten().all(|entry| {
                let mut name = text(entry, "/resourceClaimName");
                if name.is_empty() {
                    let statuses = known.pod["status"]["resourceClaimStatuses"].as_array();
                    let status = statuses.into_iter().flatten().find(|s| s["name"] == entry["name"]);
                    name = status.map_or("", |s| text(s, "/resourceClaimName"));
                }
                claims.contains_key(&NamespacedName::new(key.namespace.clone(), name))
            });
            if there {
                known.at = At::Active;
                active.push_back(key.clone());
                self.work.notify_one();
            }
        }
    }

    /// Something happened that could make unschedulable pods fit.
    fn stir(&self, whom: impl Fn(&Known) -> bool) {
        let mut state = self.state();
        let State { pods, active, .. } = &mut *state;
        for (key, known) in pods.iter_mut().filter(|(_, k)| whom(k)) {
            match known.at {
                At::Out => known.stirred = true,
                At::Unschedulable => {
                    known.at = At::Active;
                    active.push_back(key.clone());
                    self.work.notify_one();
                }
                At::Gated | At::Active | At::Backoff => {}
            }
        }
    }

    fn failed(self: &Arc<Self>, key: &NamespacedName, uid: &str, to: At) {
        let mut state = self.state();
        let Some(known) = state.pods.get_mut(key).filter(|k| text(&k.pod, "/metadata/uid") == uid) else {
            return;
        };
        known.since = Instant::now();
        if to == At::Unschedulable && !known.stirred {
            known.at = At::Unschedulable;
            return;
        }
        known.at = At::Backoff;
        let pause = FIRST_BACKOFF
            .saturating_mul(1 << known.tries.saturating_sub(1).min(4))
            .min(MAX_BACKOFF);
        let (scheduler, key, uid) = (self.clone(), key.clone(), uid.to_owned());
        tokio::spawn(async move {
            sleep(pause).await;
            let mut state = scheduler.state();
            let same = |k: &&mut Known| k.at == At::Backoff && text(&k.pod, "/metadata/uid") == uid;
            if let Some(known) = state.pods.get_mut(&key).filter(same) {
                known.at = At::Active;
                state.active.push_back(key);
                scheduler.work.notify_one();
            }
        });
    }
}
