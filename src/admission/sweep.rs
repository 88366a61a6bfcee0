//! Removes claim templates and shared claims of ours that nobody needs any more: made for a shape of pod that does not come again.
//!
//! Only what `Template` would write itself is touched: its labels, its content and the name of that content. A template
//! that any pod names stays, whatever the pod's state: its claims may have to be made again.
//!
//! **The race.** Admission answers with a template, and the pod that names it is stored a moment later; no look at pods
//! finds it in between. So each template says when it was last answered with. Admission writes that anew before the
//! answer when it is older than R (`TEMPLATE_REFRESH`), in any replica, from whatever cache: at every answer at time t
//! the object in the API says more than t - R, since the time only grows. The sweeper deletes, at time d, an object
//! that says less than d - 2R, in exactly the version it has read. Then t - R < d - 2R for every answer before: the last
//! was longer than R ago, and its pod was stored or refused within a minute. Nor can a replica with an old cache answer
//! with one that is gone: what its cache says is younger than R cannot have been 2R old. Clocks of replicas may differ
//! by what is left of R; what says more than that after d says nothing.
//!
//! Whatever is copied out of a live pod names a template that may be gone; admission makes it again (`decide.rs`).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::shared::Shared;
use super::template::Template;
use crate::cluster::{Cluster, TEMPLATE_REFRESH, WriteError, used_at};
use crate::model::{Claim, ClaimTemplate, Name, NamespacedName, PodClaimSource};
use crate::publish::Reader;
use crate::snapshot::Snapshot;

/// Unused for this long, in seconds.
const GRACE: i64 = 2 * TEMPLATE_REFRESH;
const EVERY: Duration = Duration::from_secs(300);
/// How soon to look again while this replica may not sweep, or has no complete picture.
const RETRY: Duration = Duration::from_secs(5);
/// Deletions a round, each with a look at the namespace's pods.
const MOST: usize = 64;

/// What became of a template that was to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swept {
    Removed,
    /// It was used or changed after all.
    Kept,
    /// The API said no or nothing.
    Failed,
}

impl Swept {
    pub const ALL: [Self; 3] = [Self::Removed, Self::Kept, Self::Failed];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Removed => "removed",
            Self::Kept => "kept",
            Self::Failed => "failed",
        }
    }
}

/// Sweeps every five minutes, until dropped. `may` says, before each deletion, whether this replica is the one that
/// sweeps and its picture of the cluster is complete and fresh.
pub async fn sweep(cluster: Arc<dyn Cluster>, reader: Reader, may: impl Fn() -> bool, told: impl Fn(Swept)) {
    loop {
        if !may() {
            tokio::time::sleep(RETRY).await;
            continue;
        }
        round(&*cluster, &reader, &may, &told).await;
        tokio::time::sleep(EVERY).await;
    }
}

async fn round(cluster: &dyn Cluster, reader: &Reader, may: &impl Fn() -> bool, told: &impl Fn(Swept)) {
    let now = jiff::Timestamp::now().as_second();
    for template in unused(&reader.load(), now) {
        if !may() {
            return;
        }
        let key = &template.key;
        told(swept("claim template", key, cluster.remove_template(&template).await));
    }
    for claim in unused_shares(&reader.load(), now) {
        if !may() {
            return;
        }
        told(swept("shared claim", &claim.key, cluster.remove_claim(&claim).await));
    }
}

fn swept(what: &str, key: &NamespacedName, removed: Result<(), WriteError>) -> Swept {
    match removed {
        Ok(()) => {
            tracing::info!(%key, "{what} removed: no pod names it");
            Swept::Removed
        }
        Err(WriteError::Conflict(why)) => {
            tracing::debug!(%key, why, "{what} kept");
            Swept::Kept
        }
        Err(error) => {
            tracing::warn!(%key, %error, "{what} not removed");
            Swept::Failed
        }
    }
}

/// Shared claims of ours that may go at this time, as templates: nobody has reserved them, and no pod names them. One that
/// is allocated all the same is freed by that.
pub fn unused_shares(snapshot: &Snapshot, now: i64) -> Vec<Arc<Claim>> {
    let named = named(snapshot, |source| match source {
        PodClaimSource::Claim(claim) => Some(claim),
        _ => None,
    });
    let goes = |c: &Claim| {
        let namespace = snapshot.namespaces.get(&c.key.namespace);
        c.managed
            && !c.deleting
            && c.reserved_for.is_empty()
            && used_at(c.last_used, now).saturating_add(GRACE) <= now
            && namespace.is_some_and(|n| !n.deleting)
            && Shared::made(c).is_some()
            && !named.contains(&(&c.key.namespace, &c.key.name))
    };
    let claims = snapshot.claims.iter().map(|(_, c)| c).filter(|c| goes(c));
    let mut unused: Vec<_> = claims.cloned().collect();
    unused.sort_by(|a, b| (used_at(a.last_used, now), &a.key).cmp(&(used_at(b.last_used, now), &b.key)));
    unused.truncate(MOST);
    unused
}

/// Templates of ours that may go at this time (seconds since the epoch): those unused for longest first, at most 64.
pub fn unused(snapshot: &Snapshot, now: i64) -> Vec<Arc<ClaimTemplate>> {
    let named = named(snapshot, |source| match source {
        PodClaimSource::Template(template) => Some(template),
        _ => None,
    });
    let goes = |t: &ClaimTemplate| {
        let namespace = snapshot.namespaces.get(&t.key.namespace);
        !t.deleting
            && used_at(t.last_used, now).saturating_add(GRACE) <= now
            && !named.contains(&(&t.key.namespace, &t.key.name))
            && namespace.is_some_and(|n| !n.deleting)
            && (Template::made(t).is_some() || Shared::made_template(t).is_some())
    };
    let mut unused: Vec<_> = snapshot
        .templates
        .iter()
        .map(|(_, t)| t)
        .filter(|t| goes(t))
        .cloned()
        .collect();
    unused.sort_by(|a, b| (used_at(a.last_used, now), &a.key).cmp(&(used_at(b.last_used, now), &b.key)));
    unused.truncate(MOST);
    unused
}

/// What the pods name, by namespace and name.
fn named(snapshot: &Snapshot, of: impl Fn(&PodClaimSource) -> Option<&Name>) -> HashSet<(&Name, &Name)> {
    let pods = snapshot.pods.iter().map(|(_, pod)| pod);
    let named = pods.flat_map(|pod| pod.claims.iter().map(move |claim| (&pod.key.namespace, claim)));
    named
        .filter_map(|(namespace, claim)| Some((namespace, of(&claim.source)?)))
        .collect()
}
