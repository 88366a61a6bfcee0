//! Makes what pods share a device by anew where somebody deleted it while a pod waits for it: nobody else would. The claim
//! of a share is made by admission, once for many pods, and pods of a Deployment that wait are not admitted again.
//!
//! Only for pods that say by their annotation what they share, in namespaces that opted in, and only what today's policy
//! would make, under the very name that the pod has: another policy makes another claim, for other pods. Two replicas
//! would make the same.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Admitter;
use super::share::{self, Named};
use super::shared::Shared;
use crate::model::{NamespacedName, Pod, PodClaimSource, SHARE};
use crate::policy::Policy;
use crate::snapshot::Snapshot;

const EVERY: Duration = Duration::from_secs(2);
/// How many are made at a look; the rest at the next.
const MOST: usize = 64;

/// Looks after shared claims until dropped. `may` says, before each, whether this replica is the one that does and its
/// picture of the cluster is complete and fresh.
pub async fn remake(admitter: &Admitter, may: impl Fn() -> bool) {
    loop {
        tokio::time::sleep(EVERY).await;
        if !may() {
            continue;
        }
        let (snapshot, policy) = admitter.sees();
        for (key, shared) in missing(&snapshot, &policy) {
            // What failed has been told, and is tried again.
            if may() && admitter.ensure_shared(&snapshot, &key.namespace, &shared).await.is_ok() {
                tracing::info!(%key, "made anew: a pod waits for it");
            }
        }
    }
}

/// What waiting pods name of ours that is not there, by its name.
pub fn missing(snapshot: &Snapshot, policy: &Policy) -> BTreeMap<NamespacedName, Shared> {
    let mut missing = BTreeMap::new();
    let waits = |pod: &Pod| pod.awaits_node(&pod.uid) && pod.annotation(SHARE).is_some();
    for (_, pod) in snapshot.pods.iter().filter(|(_, pod)| waits(pod)) {
        let open = snapshot
            .namespaces
            .get(&pod.key.namespace)
            .filter(|n| n.enabled() && !n.deleting);
        let Some(sharing) = open.and_then(|n| policy.namespace_rule(&n.labels)?.sharing.as_ref()) else {
            continue;
        };
        for entry in &pod.claims {
            let (name, named) = match &entry.source {
                PodClaimSource::Claim(name) => (name, Named::Claim(name)),
                // Its claim is there already, or is made as soon as the template is.
                PodClaimSource::Template(name) if entry.generated.is_none() => (name, Named::Template(name)),
                _ => continue,
            };
            let key = pod.claim_key(name);
            let there = match named {
                Named::Claim(_) => snapshot.claims.contains_key(&key),
                Named::Template(_) => snapshot.templates.contains_key(&key),
            };
            if there || missing.len() >= MOST || missing.contains_key(&key) {
                continue;
            }
            if let Some(shared) = share::again(snapshot, sharing, named) {
                missing.insert(key, shared);
            }
        }
    }
    missing
}
