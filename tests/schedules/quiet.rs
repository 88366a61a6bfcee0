//! What must be true once the faults have ended and time has gone on: nothing is left over, every replica sees what the
//! API says, and whatever could be placed is.

use std::collections::BTreeMap;
use std::sync::Arc;

use wattlane::index::{Change, Index, Kind};
use wattlane::model::Pod;
use wattlane::placement::{self, Context, Demand, Rules};
use wattlane::policy::{Policy, PolicyClassifier};
use wattlane::selector::Selectors;
use wattlane::snapshot::Snapshot;

use super::checks::Checks;
use super::replica::Replica;
use super::scenario::Cards;
use super::store::{Store, text};

/// Judges a store without any state of a replica.
pub(crate) struct Judge {
    selectors: Selectors,
    policy: Arc<Policy>,
    rules: Rules,
}

impl Judge {
    pub(crate) fn new(policy: &str) -> Self {
        let selectors = Selectors::new();
        let policy = Policy::read(policy, &selectors).unwrap_or_else(|e| panic!("{e:?}"));
        Self {
            selectors,
            rules: policy.rules(),
            policy: Arc::new(policy),
        }
    }

    /// What is not as it must be in the end, in words.
    pub(crate) fn unsettled(&self, store: &Store, checks: &Checks, replicas: &[&Replica]) -> Vec<String> {
        let mut wrong = leftovers(store);
        // Each step costs more than the one before, and can only be right once that is.
        let asked = if wrong.is_empty() { replicas } else { &[] };
        for (i, replica) in asked.iter().enumerate() {
            let busy = replica.busy();
            if busy != [0; 3] {
                wrong.push(format!(
                    "replica {i} has reservations, holds, binds under way: {busy:?}"
                ));
            }
        }
        if !wrong.is_empty() {
            return wrong;
        }
        let truth = self.rebuilt(store);
        for pod in store.pods().filter(|p| p.node_name.is_empty() && !p.finished) {
            if let Some(node) = self.place(&truth, pod).or_else(|| counted(store, checks, pod)) {
                wrong.push(format!("pod {} waits, and would fit on {node}", pod.key));
            }
        }
        let truth = content(&truth);
        for (i, replica) in replicas.iter().enumerate() {
            let seen = content(&replica.core.reader.load());
            let differs = truth.iter().find(|(k, v)| seen.get(*k) != Some(v)).map(|(k, _)| k);
            let differs = differs.or_else(|| seen.keys().find(|k| !truth.contains_key(*k)));
            if let Some(key) = differs {
                let (is, sees) = (truth.get(key), seen.get(key));
                wrong.push(format!("replica {i} sees {key} as {sees:?}, and it is {is:?}"));
            }
        }
        wrong
    }

    fn rebuilt(&self, store: &Store) -> Arc<Snapshot> {
        let mut index = Index::new(Arc::new(PolicyClassifier::new(self.policy.clone())));
        for kind in Kind::ALL {
            let objects = store.all(kind).map(|(object, _)| object.clone()).collect();
            index.apply(Change::Reset(kind, objects));
        }
        index.publish().expect("there is something to see")
    }

    fn place(&self, snapshot: &Snapshot, pod: &Pod) -> Option<String> {
        let context = Context {
            snapshot,
            selectors: &self.selectors,
            rules: &self.rules,
        };
        let demand = Demand::of(context, pod).ok()?;
        let fits = snapshot
            .nodes()
            .find(|(_, node)| placement::check(context, &demand, node).is_ok());
        fits.map(|(_, node)| node.node.name.to_string())
    }
}

fn leftovers(store: &Store) -> Vec<String> {
    let mut wrong = vec![];
    for claim in store.claims() {
        let pods: Vec<_> = claim
            .reserved_for
            .iter()
            .map(|c| store.pods().find(|p| p.uid == c.uid))
            .collect();
        if claim.allocation.is_some() && !pods.iter().flatten().any(|p| !p.finished) {
            wrong.push(format!("claim {} is allocated, and no living pod has it", claim.key));
        }
        if let Some(pod) = pods.iter().flatten().find(|p| p.node_name.is_empty()) {
            wrong.push(format!(
                "claim {} is allocated, and its pod {} is not bound",
                claim.key, pod.key
            ));
        }
        if claim.deleting {
            wrong.push(format!("claim {} is not gone yet", claim.key));
        }
    }
    for pod in store.pods() {
        if pod.deleting {
            wrong.push(format!("pod {} is not gone yet", pod.key));
        }
        if pod.claims.iter().any(|c| c.claim_name().is_none()) {
            wrong.push(format!("pod {} has not got its claims yet", pod.key));
        }
    }
    wrong
}

/// Without asking placement: a pod of one claim for whole cards fits where so many are free, if no budget is in the way.
fn counted(store: &Store, checks: &Checks, pod: &Pod) -> Option<String> {
    let raw = store.raw(Kind::Pod, &pod.key)?;
    let [claim] = raw["spec"]["resourceClaims"].as_array()?.as_slice() else {
        return None;
    };
    let count: u64 = text(claim, "/resourceClaimTemplateName")
        .strip_prefix("gpu-")?
        .parse()
        .ok()?;
    let nodes = (0..checks.plants.len()).map(|n| format!("n{n}"));
    let mut whole = nodes.filter(|n| checks.plant(n).cards == Cards::Whole && checks.budget.is_none());
    whole.find(|node| checks.free_cards(store, node) >= count)
}

/// What a reader goes by, independent of positions.
fn content(snapshot: &Snapshot) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for state in snapshot.pools.iter().flatten() {
        let words = format!("{:?} {:?} {:?}", state.taken, state.shared, state.counters_left);
        all.insert(format!("pool {}", state.pool.name), words);
    }
    for (key, claim) in snapshot.claims.iter() {
        all.insert(
            format!("claim {key}"),
            format!("{} {}", claim.uid, claim.resource_version),
        );
    }
    for (key, pod) in snapshot.pods.iter() {
        all.insert(
            format!("pod {key}"),
            format!("{} {:?} {} {}", pod.uid, pod.node_name, pod.deleting, pod.finished),
        );
    }
    // Not the queue: whose turn passed is what each replica saw itself.
    for (key, sharers) in snapshot.sharers.iter().filter(|(_, s)| !s.seats.is_empty()) {
        all.insert(
            format!("seats {key}"),
            format!("{:?} {:?}", sharers.seats, sharers.coming),
        );
    }
    for domain in snapshot.power.domains() {
        all.insert(format!("power {}", domain.budget.value), format!("{:?}", domain.used));
    }
    all
}
