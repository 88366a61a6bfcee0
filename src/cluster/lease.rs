//! A coordination.k8s.io/v1 Lease, as far as an election reads and writes it. Times of day are left out on purpose: no
//! decision compares the clocks of two machines.

use std::time::Duration;

use crate::model::Name;

/// A Lease that was read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// resourceVersion: another one with every write.
    pub version: Name,
    /// Empty: nobody, it may be taken at once.
    pub holder: Name,
    /// How long the holder asks others to wait after its last write.
    pub duration: Duration,
    /// How often it went to another holder.
    pub transitions: u32,
}

/// What to write, and on what condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseWrite {
    /// The version that is replaced; None: there is no such Lease, create it.
    pub replaces: Option<Name>,
    pub holder: Name,
    /// In whole seconds, at least one: the API has no less.
    pub duration: Duration,
    pub transitions: u32,
    /// It begins to be held with this write (`acquireTime`); else it is renewed.
    pub acquired: bool,
}
