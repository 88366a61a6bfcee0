//! The decision with its side effect: the templates exist before the answer goes out, except on a dry run.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use serde_json::json;

use super::Skip;
use super::decide::{Decision, Request, decide};
use super::refuse::Refused;
use super::shared::Shared;
use super::template::Template;
use crate::cluster::{Cluster, WriteError, used_lately};
use crate::convert::TEMPLATE_LAST_USED;
use crate::model::{ClaimTemplate, Name, Namespace, NamespacedName};
use crate::policy::Policy;
use crate::publish::Reader;
use crate::snapshot::{Mark, ShardMap, Snapshot};

/// How long a template we made is taken to exist before the watch has shown it, or that something else changed. Short:
/// what is deleted must not be believed in.
const BELIEVED: Duration = Duration::from_secs(10);
const MOST_BELIEVED: usize = 4096;
/// Templates made at one time.
const LANES: usize = 16;

/// What was found out about some objects, when, and what the watch had shown of each by then: once that has changed, the
/// watch is the one to say.
struct Notes<K, V>(Mutex<HashMap<K, Note<K, V>>>);

type Note<K, V> = (Instant, Mark<K, V>);

impl<K: Hash + Eq + Clone, V: Clone> Notes<K, V> {
    fn new() -> Self {
        Self(Mutex::default())
    }

    fn hold(&self, shown: &ShardMap<K, V>, key: &K) -> bool {
        let notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        notes
            .get(key)
            .is_some_and(|(at, seen)| at.elapsed() < BELIEVED && *seen == shown.mark(key))
    }

    fn take(&self, shown: &ShardMap<K, V>, key: K) {
        let seen = shown.mark(&key);
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.len() >= MOST_BELIEVED {
            notes.retain(|_, (at, _)| at.elapsed() < BELIEVED);
        }
        if notes.len() < MOST_BELIEVED {
            notes.insert(key, (Instant::now(), seen));
        }
    }
}

/// Admits pods against the newest snapshot and the current policy.
pub struct Admitter {
    cluster: Arc<dyn Cluster>,
    reader: Reader,
    policy: Arc<ArcSwap<Policy>>,
    /// How long a pod of a namespace we have not seen yet waits for the watch.
    patience: Duration,
    /// Templates made a moment ago: a burst of equal pods asks the API once, not once a pod.
    made: Notes<NamespacedName, Arc<ClaimTemplate>>,
    /// Namespaces of which a pod waited in vain for the opt-in: where the webhook is called for every namespace, not every
    /// pod of the others is to wait.
    vain: Notes<Name, Arc<Namespace>>,
    /// … also when its pods come all at once: who makes a template holds its lane.
    making: [tokio::sync::Mutex<()>; LANES],
}

impl Admitter {
    pub fn new(cluster: Arc<dyn Cluster>, reader: Reader, policy: Arc<ArcSwap<Policy>>) -> Self {
        Self {
            cluster,
            reader,
            policy,
            patience: Duration::ZERO,
            made: Notes::new(),
            vain: Notes::new(),
            making: Default::default(),
        }
    }

    /// A namespace and its first pods are often created in one go, or it is labelled and they come at once, and the pods can
    /// be faster than our watch. Left alone they would end on the default scheduler, so where a watch feeds the snapshots
    /// they wait for it, at most this long. Keep it well below the webhook's timeout.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The newest picture of the cluster, and the policy in force.
    pub(super) fn sees(&self) -> (Arc<Snapshot>, Arc<Policy>) {
        (self.reader.load(), self.policy.load_full())
    }

    /// Decides, and makes what the decision needs. Where that fails the pod is refused with the API's words.
    pub async fn admit(&self, request: &Request<'_>, dry_run: bool) -> Decision {
        let (snapshot, decision) = self.decide_patiently(request).await;
        let (needed, shared) = match &decision {
            Decision::Patch { templates, shared, .. } | Decision::LeaveAlone { templates, shared, .. } if !dry_run => {
                (&templates[..], &shared[..])
            }
            _ => (&[][..], &[][..]),
        };
        for template in needed {
            if let Err(refused) = self.ensure(&snapshot, request.namespace, template).await {
                return Decision::Refuse(refused);
            }
        }
        for shared in shared {
            if let Err(refused) = self.ensure_shared(&snapshot, request.namespace, shared).await {
                return Decision::Refuse(refused);
            }
        }
        decision
    }

    /// As `ensure`. What the watch shows is believed; a burst before it does asks the API, one after the other.
    pub(super) async fn ensure_shared(
        &self,
        snapshot: &Snapshot,
        namespace: &str,
        shared: &Shared,
    ) -> Result<(), Refused> {
        let key = shared.key(namespace);
        let now = jiff::Timestamp::now();
        let claim = |s: &Snapshot| {
            let claim = s.claims.get(&key);
            claim.is_some_and(|c| shared.is(c) && !c.deleting && used_lately(c.last_used, now.as_second()))
        };
        let template = |s: &Snapshot| {
            let template = s.templates.get(&key);
            template.is_some_and(|t| shared.is_template(t) && !t.deleting && used_lately(t.last_used, now.as_second()))
        };
        if claim(snapshot) || template(snapshot) {
            return Ok(());
        }
        let _alone = self.making[lane(&key)].lock().await;
        let newest = self.reader.load();
        if claim(&newest) || template(&newest) {
            return Ok(());
        }
        let mut object = shared.object(namespace);
        object["metadata"]["annotations"][TEMPLATE_LAST_USED] = json!(now.to_string());
        let made = match shared {
            Shared::Claim { .. } => self.cluster.ensure_claim(&object).await,
            Shared::Capacity { .. } => self.cluster.ensure_template(&object).await,
        };
        made.map_err(|e| {
            tracing::warn!(%key, error = %e, "what pods share a device by could not be made");
            Refused::new(
                code(&e),
                format!("wattlane could not make what the pod shares a device by: {e}"),
            )
        })
    }

    async fn decide_patiently(&self, request: &Request<'_>) -> (Arc<Snapshot>, Decision) {
        let policy = self.policy.load_full();
        let deadline = tokio::time::Instant::now() + self.patience;
        let mut version = self.reader.version.clone();
        loop {
            // Seen before the load: a publication in between wakes us again.
            version.borrow_and_update();
            let snapshot = self.reader.load();
            let decision = decide(&snapshot, &policy, request);
            let waits = match &decision {
                Decision::LeaveAlone { reason, .. } => match reason {
                    Skip::UnknownNamespace => true,
                    // We were asked because the webhook's namespaceSelector matched, unless it has none.
                    Skip::NotOptedIn => !self.vain.hold(&snapshot.namespaces, &request.namespace.into()),
                    _ => false,
                },
                _ => false,
            };
            if !waits || self.patience.is_zero() {
                return (snapshot, decision);
            }
            if !matches!(tokio::time::timeout_at(deadline, version.changed()).await, Ok(Ok(()))) {
                self.vain.take(&snapshot.namespaces, request.namespace.into());
                return (snapshot, decision);
            }
        }
    }

    async fn ensure(&self, snapshot: &Snapshot, namespace: &str, template: &Template) -> Result<(), Refused> {
        let key = template.key(namespace);
        let now = jiff::Timestamp::now();
        let shown = snapshot.templates.get(&key);
        // One that is not ours, or about to go: the cluster says no to it, with the reason. What we remember is older than a
        // stranger's that is shown: only the API knows.
        let ours = shown.is_none_or(|t| template.is(t) && !t.deleting);
        let believed = || ours && self.made.hold(&snapshot.templates, &key);
        let noted = shown.is_some_and(|t| used_lately(t.last_used, now.as_second()));
        if (ours && noted) || believed() {
            return Ok(());
        }
        let _alone = self.making[lane(&key)].lock().await;
        if believed() {
            return Ok(());
        }
        let mut object = template.object(namespace);
        object["metadata"]["annotations"] = json!({TEMPLATE_LAST_USED: now.to_string()});
        match self.cluster.ensure_template(&object).await {
            Ok(()) => {
                // As it was before the API was asked: what came and went meanwhile was perhaps ours.
                self.made.take(&snapshot.templates, key);
                Ok(())
            }
            Err(e) => {
                let code = code(&e);
                // The error names the template.
                let message = format!("wattlane could not make a claim template for the pod: {e}");
                tracing::warn!(template = %key, error = %e, "pod refused: its claim template could not be made");
                Err(Refused::new(code, message))
            }
        }
    }
}

fn code(error: &WriteError) -> u16 {
    match error {
        WriteError::Refused(_) | WriteError::NotFound(_) => 422,
        WriteError::Conflict(_) | WriteError::Unknown(_) => 500,
    }
}

fn lane(key: &NamespacedName) -> usize {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    // Less than LANES, whatever the width of usize.
    (hasher.finish() % LANES as u64) as usize
}

#[cfg(test)]
mod tests;
