//! Giving back devices that pin a pod to a node where it was never bound: claims that were allocated, or joined, for a
//! bind which came to nothing. kube-scheduler's own plugin does the same after a filter that left no node.
//!
//! Done only while no Binding of the pod can be on its way: in the pod's turn, and not before the last one that was
//! not answered (by us, or by whoever wrote before us) has run into the API server's own limit. What the API says counts,
//! not the cache.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::{Instant, sleep_until};
use tracing::Instrument as _;

use super::settle::Writes;
use super::{Binder, Running, Shared};
use crate::cluster::Cluster;
use crate::model::{Claim, Name, NamespacedName, Pod};
use crate::snapshot::Snapshot;

/// Pods whose devices are being given back at one time.
const MOST: usize = 64;

/// What became of the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GiveBack {
    /// The pod has no part of its claims any more.
    Done,
    /// Nothing was to be given back: the pod is bound or gone, or has no part of its claims.
    Kept,
    /// Too many at one time.
    Shed,
    /// The API failed; what is known to be free is free.
    Failed,
}

/// Whether the pod is kept to a node by an allocation that it could give up its part of.
pub fn is_pinned(snapshot: &Snapshot, pod: &Pod) -> bool {
    let claims = pod.claims.iter().filter_map(|c| c.claim_name());
    let mut found = claims.filter_map(|name| snapshot.claim(&pod.claim_key(name)));
    found.any(|claim| pins(claim, &pod.uid))
}

/// What the pod has a part of, and what waits for a pod that nobody is: whoever made the claim. The last to leave gives
/// the devices back, as the claim controller does when such a pod is deleted; others keep what they have.
fn pins(claim: &Claim, pod: &Name) -> bool {
    let users = &claim.reserved_for;
    claim.allocation.is_some() && !claim.deleting && (users.is_empty() || users.iter().any(|c| c.uid == *pod))
}

impl Binder {
    /// In the background; once at a time for a pod, and by the leader only. `done` hears what came of it, but where it is
    /// under way already.
    pub fn give_back(&self, pod: &Pod, done: impl FnOnce(GiveBack) + Send + 'static) {
        let Ok(mandate) = self.mandate() else {
            return done(GiveBack::Kept);
        };
        let shared = self.shared.clone();
        let place = match shared.returns.enter(&pod.uid) {
            Ok(place) => place,
            Err(Full::Twice) => return,
            Err(Full::TooMany) => return done(GiveBack::Shed),
        };
        let (key, uid) = (pod.key.clone(), pod.uid.clone());
        let span = tracing::info_span!("give back", pod = %key, uid = %uid);
        let work = async move {
            let outcome = tokio::select! {
                biased;
                () = mandate.over() => GiveBack::Failed,
                outcome = give_back(shared, &*mandate.cluster, &key, &uid) => outcome,
            };
            drop(place);
            tracing::info!(?outcome, "devices on a node that the pod was not bound to");
            done(outcome);
        };
        tokio::spawn(work.instrument(span));
    }
}

async fn give_back(shared: Arc<Shared>, cluster: &dyn Cluster, key: &NamespacedName, uid: &Name) -> GiveBack {
    // Nobody else has sent anything since we started: a leader before us is fenced, nothing of it can take effect now.
    sleep_until(shared.started + shared.limits.in_flight).await;
    let ticket = shared.flights.enter(uid);
    let (_turn, _) = ticket.turn().await;
    let _running = Running::new(shared.clone());
    if shared.returns.may_be_bound(uid) {
        return GiveBack::Kept;
    }
    let pod = match cluster.pod(key).await {
        Ok(Some(pod)) if pod.awaits_node(uid) => pod,
        Ok(_) => return GiveBack::Kept,
        Err(_) => return GiveBack::Failed,
    };
    let mut pinning = vec![];
    for name in pod.claims.iter().filter_map(|c| c.claim_name()) {
        match cluster.claim(&pod.claim_key(name)).await {
            Ok(found) => pinning.extend(found.filter(|claim| pins(claim, uid))),
            Err(_) => return GiveBack::Failed,
        }
    }
    if pinning.is_empty() {
        return GiveBack::Kept;
    }
    let writes = Writes {
        shared: &shared,
        cluster,
        pod: key,
        consumer: pod.consumer(),
        node: "",
        started: Instant::now(),
    };
    let undone = futures::future::join_all(pinning.iter().map(|claim| writes.unreserve(claim, true))).await;
    match undone.into_iter().all(|clean| clean) {
        true => GiveBack::Done,
        false => GiveBack::Failed,
    }
}

/// Who is giving back now, and whose Binding may still take effect.
#[derive(Default)]
pub(super) struct Returns {
    giving: Mutex<HashSet<Name>>,
    /// Until when a Binding that was sent and not answered can take effect.
    sent: Mutex<HashMap<Name, Instant>>,
}

enum Full {
    Twice,
    TooMany,
}

struct Place {
    shared: Arc<Returns>,
    uid: Name,
}

impl Returns {
    fn enter(self: &Arc<Self>, uid: &Name) -> Result<Place, Full> {
        let mut giving = lock(&self.giving);
        if giving.contains(uid) {
            return Err(Full::Twice);
        }
        if giving.len() >= MOST {
            return Err(Full::TooMany);
        }
        giving.insert(uid.clone());
        Ok(Place {
            shared: self.clone(),
            uid: uid.clone(),
        })
    }

    /// Before a Binding is sent: it can take effect until then, unless its end is heard of.
    pub(super) fn sending(&self, uid: &Name, until: Instant) {
        let mut sent = lock(&self.sent);
        let now = Instant::now();
        sent.retain(|_, until| *until > now);
        sent.insert(uid.clone(), until);
    }

    pub(super) fn settled(&self, uid: &Name) {
        lock(&self.sent).remove(uid);
    }

    fn may_be_bound(&self, uid: &Name) -> bool {
        lock(&self.sent).get(uid).is_some_and(|until| *until > Instant::now())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.shared.giving).remove(&self.uid);
    }
}

/// Sets cannot be left half changed by a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
