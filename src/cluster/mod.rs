//! Where state comes from and writes go: the Kubernetes API, or files held in memory, behind one trait.

mod calls;
pub mod deadline;
pub mod embedded;
pub mod files;
pub mod kube;
mod lease;
pub mod secrets;
pub mod strict;

use async_trait::async_trait;

use crate::index::Kind;
use crate::model::{Allocation, Claim, ClaimTemplate, Consumer, Name, NamespacedName, Pod};
use crate::publish::IndexHandle;

pub use calls::{Call, CallStatus};
pub use lease::{Lease, LeaseWrite};

/// A template that says it was used longer ago than this says it anew before admission answers with it. Seconds.
/// The sweeper waits twice as long (`admission/sweep.rs` says why).
pub const TEMPLATE_REFRESH: i64 = 30 * 60;

/// When a template or shared claim that says so was last used, at a time `now` (both in seconds since the epoch). One that
/// says a time still to come, by more than clocks may differ, says nothing: it would never be old. Then it was never used.
pub fn used_at(said: i64, now: i64) -> i64 {
    match said {
        used if used > now.saturating_add(TEMPLATE_REFRESH) => 0,
        used => used,
    }
}

/// Whether what it says is new enough not to be written anew.
pub fn used_lately(said: i64, now: i64) -> bool {
    now - used_at(said, now) < TEMPLATE_REFRESH
}

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// The object changed since we read it (409): look again.
    Conflict(String),
    NotFound(String),
    /// The API said no, and nothing was written. Its own message.
    Refused(String),
    /// Time-out, lost connection, 5xx: it may have been written. Read back before anything else.
    Unknown(String),
}

impl std::fmt::Display for WriteError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Conflict(m) | Self::NotFound(m) | Self::Refused(m) | Self::Unknown(m) => f.write_str(m),
        }
    }
}

impl std::error::Error for WriteError {}

/// Told by a cluster's watches, read by `/readyz` and metrics.
pub trait WatchStatus: Send + Sync + 'static {
    /// The kind has been listed whole and its watch is live (called again after each relist, and
    /// with every event or bookmark, as a sign of life).
    fn alive(&self, kind: Kind);
    /// The watch of the kind broke and is being started again.
    fn restarted(&self, kind: Kind);
    /// An object of the kind could not be read.
    fn undecodable(&self, kind: Kind);
}

/// A warning about an object, for who looks at it with `kubectl describe`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Pod or Claim.
    pub kind: Kind,
    pub key: NamespacedName,
    pub uid: Name,
    /// One word in CamelCase, from a closed set.
    pub reason: &'static str,
    /// Cut at 1,024 bytes, the API's limit.
    pub note: String,
}

#[async_trait]
pub trait Cluster: Send + Sync + 'static {
    /// Feeds the index until the process ends; returning is an error of the process.
    async fn watch(&self, index: IndexHandle, status: std::sync::Arc<dyn WatchStatus>) -> anyhow::Result<()>;

    /// Whom to tell of calls to the API, from now on; the first one named stays. A cluster from files makes none.
    fn tell_calls(&self, _to: std::sync::Arc<dyn CallStatus>) {}

    /// Adds the finalizer, then writes allocation and the pod's reservation in one status write. Preconditions: the claim's UID
    /// and resourceVersion as given. Returns the claim as written.
    async fn allocate(&self, claim: &Claim, allocation: &Allocation, pod: &Consumer) -> Result<Claim, WriteError>;

    /// Adds the pod to an allocated claim's reservedFor. Fine when it is there already. `slots`: not beside so many others
    /// or more, as the API has them in the version that is written over; `Conflict` then. None: no limit of ours.
    async fn reserve(&self, claim: &Claim, pod: &Consumer, slots: Option<usize>) -> Result<Claim, WriteError>;

    /// Undo: takes the pod out of reservedFor and, when `deallocate` and nobody else is left in it, clears the allocation and
    /// then the finalizer. Fine when there is nothing to undo or the claim is gone.
    async fn unreserve(
        &self,
        claim: &NamespacedName,
        uid: &str,
        pod: &Consumer,
        deallocate: bool,
    ) -> Result<(), WriteError>;

    /// The claim as the API has it now (not from a cache).
    async fn claim(&self, key: &NamespacedName) -> Result<Option<Claim>, WriteError>;

    /// The pod as the API has it now (not from a cache).
    async fn pod(&self, key: &NamespacedName) -> Result<Option<Pod>, WriteError>;

    /// POST pods/binding with the UID. Fine when the pod is bound to that node already.
    async fn bind(&self, pod: &NamespacedName, uid: &str, node: &str) -> Result<(), WriteError>;

    /// Makes a ResourceClaimTemplate of ours unless it exists with the same content, and then notes that it is in use
    /// unless that was noted less than [`TEMPLATE_REFRESH`] ago. `template` is the whole object (resource.k8s.io/v1)
    /// with the annotation [`crate::convert::TEMPLATE_LAST_USED`]. One of that name with other content, without our
    /// labels or on its way out is `Refused`.
    async fn ensure_template(&self, template: &serde_json::Value) -> Result<(), WriteError>;

    /// Deletes the template as it was seen: any change since then is a `Conflict`, and so is a pod that names it,
    /// looked for in the API and not in a cache. Fine when it is gone.
    async fn remove_template(&self, template: &ClaimTemplate) -> Result<(), WriteError> {
        let key = &template.key;
        Err(WriteError::Refused(format!(
            "templates of this cluster are not removed: {key}"
        )))
    }

    /// As `ensure_template`, a ResourceClaim that pods of its namespace share: whether it is allocated is no matter.
    async fn ensure_claim(&self, claim: &serde_json::Value) -> Result<(), WriteError> {
        let name = claim["metadata"]["name"].as_str().unwrap_or_default();
        Err(WriteError::Refused(format!(
            "claims of this cluster are not made here: {name}"
        )))
    }

    /// As `remove_template`, a shared claim that nobody has reserved.
    async fn remove_claim(&self, claim: &Claim) -> Result<(), WriteError> {
        Err(WriteError::Refused(format!(
            "claims of this cluster are not removed: {}",
            claim.key
        )))
    }

    /// A harmless label patch on a pending pod, which makes kube-scheduler try it again.
    async fn poke(&self, pod: &NamespacedName, uid: &str) -> Result<(), WriteError>;

    /// Writes the event, once: whoever writes the same again within its life (an hour by default) changes nothing. A
    /// cluster from files has nobody to read it.
    async fn event(&self, _event: &Event) -> Result<(), WriteError> {
        Ok(())
    }

    /// Takes the scheduling gate `model::GATE` off the pod. Fine when it is gone already; nobody schedules by gates in a
    /// cluster from files.
    async fn lift_gate(&self, _pod: &NamespacedName, _uid: &str) -> Result<(), WriteError> {
        Ok(())
    }

    /// The Lease as the API has it now (a consistent read); None: there is none.
    async fn lease(&self, key: &NamespacedName) -> Result<Option<Lease>, WriteError> {
        Err(no_leases(key))
    }

    /// Creates or changes a Lease under the precondition of the write; `Conflict` when it does not hold. Returns it as
    /// written. Its times are of the writer's wall clock and for people only.
    async fn write_lease(&self, key: &NamespacedName, _: &LeaseWrite) -> Result<Lease, WriteError> {
        Err(no_leases(key))
    }

    /// Returns when the index has been told everything that was written to claims and pods before this call: what a
    /// new leader must know of the old one's writes. Not the word of a watch, which may be late: a consistent read.
    ///
    /// # Errors
    /// It cannot be read now; asked again it may be.
    async fn caught_up(&self) -> Result<(), WriteError> {
        Err(WriteError::Refused(
            "this cluster cannot tell how new its watches are".to_owned(),
        ))
    }

    /// `leader`: the pod carries [`LEADER_LABEL`], and no other pod of its namespace does. Else it does not.
    async fn label_leader(&self, pod: &NamespacedName, leader: bool) -> Result<(), WriteError> {
        let _ = leader;
        Err(WriteError::Refused(format!("there is no pod {pod} of ours here")))
    }
}

/// Says `true` on the pod that binds; the Service for the extender selects it.
pub const LEADER_LABEL: &str = "wattlane.dev/leader";

fn no_leases(key: &NamespacedName) -> WriteError {
    WriteError::Refused(format!("this cluster has no leases: {key}"))
}
