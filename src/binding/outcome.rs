//! How a bind ended: closed sets for logs and metrics, words for the pod's event.

use crate::model::{Name, Reason, Refusal};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BindOutcome {
    /// Its claims are allocated and reserved, and it is bound.
    Bound,
    /// It has no claims and is bound.
    Plain,
    /// It was bound to this node before this call.
    Already,
}

impl BindOutcome {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bound => "bound",
            Self::Plain => "plain",
            Self::Already => "already",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BindFailure {
    /// The pod or a claim of it is gone, another has its name, or it is finished or being deleted.
    PodGone,
    /// It is bound to another node.
    BoundElsewhere,
    /// Placement says no, for this reason.
    Refused(Reason),
    /// Its devices are not ready yet: they stay its own, and the scheduler is to come again.
    Awaited,
    /// Its devices failed, or were not ready in time, and were given back.
    Unready,
    /// Something changed under us, again and again.
    Conflict,
    /// The API server said no to a write.
    ApiRefused,
    /// The API cannot be reached or does not say what became of a write. The message says what that leaves.
    Unknown,
    /// Another replica binds, or this one does not do so yet, or no longer. What was written of this call is left to
    /// the leader.
    NotLeader,
    /// An earlier bind of the same pod is still under way.
    Busy,
    /// The API is too slow for the binds under way: this one's turn to write did not come, and nothing was written.
    Crowded,
    /// No result yet; the bind goes on without its caller.
    Unfinished,
    Internal,
}

impl BindFailure {
    /// Metric label. The reason of a refusal has a label of its own.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PodGone => "pod_gone",
            Self::BoundElsewhere => "bound_elsewhere",
            Self::Refused(_) => "refused",
            Self::Awaited => "awaited",
            Self::Unready => "unready",
            Self::Conflict => "conflict",
            Self::ApiRefused => "api_refused",
            Self::Unknown => "unknown",
            Self::NotLeader => "not_leader",
            Self::Busy => "busy",
            Self::Crowded => "crowded",
            Self::Unfinished => "unfinished",
            Self::Internal => "internal",
        }
    }
}

/// Why a pod was not bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindError {
    pub kind: BindFailure,
    /// For the pod's event.
    pub message: Name,
}

impl BindError {
    pub(super) fn new(kind: BindFailure, message: impl Into<Name>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }
}

impl From<Refusal> for BindError {
    fn from(refusal: Refusal) -> Self {
        Self::new(BindFailure::Refused(refusal.reason), refusal.message)
    }
}

impl std::fmt::Display for BindError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for BindError {}
