//! Which of a few kinds a call to the Kubernetes API is: for whoever counts them.

use std::time::Duration;

/// Closed set: metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// A read of one object or a list; watches are not among them.
    Read,
    /// A ResourceClaim itself: its finalizer.
    Claim,
    /// Allocation and reservation.
    Status,
    Binding,
    Other,
}

impl Call {
    pub const ALL: [Self; 5] = [Self::Read, Self::Claim, Self::Status, Self::Binding, Self::Other];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Claim => "claim",
            Self::Status => "status",
            Self::Binding => "binding",
            Self::Other => "other",
        }
    }
}

/// Told of every call by a cluster that makes any.
pub trait CallStatus: Send + Sync + 'static {
    /// It has ended, well or not, after this long; waits that the API server asked for are in it.
    fn called(&self, call: Call, took: Duration);
}
