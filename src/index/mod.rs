//! The one mutable picture of the cluster: a plain synchronous struct that objects are fed to and
//! snapshots are taken from. Knows no Kubernetes types, no tasks and no clock.

use std::sync::Arc;

use crate::model::{
    Claim, ClaimTemplate, Classifier, DeviceClass, DeviceResult, Name, Namespace, NamespacedName, Node, Pod, Slice,
};
use crate::snapshot::Snapshot;

pub use crate::convert::{Key, Kind, Object};

#[derive(Clone, Debug)]
pub enum Change {
    Upsert(Object),
    /// Deleted, or no longer readable.
    Remove(Kind, Key),
    /// A complete relist: what is not in it is gone.
    Reset(Kind, Vec<Object>),
}

/// Devices held for a pod from before the API write until the watch shows the result.
#[derive(Clone, Debug, PartialEq)]
pub struct Reservation {
    pub pod: NamespacedName,
    pub pod_uid: Name,
    pub node: Name,
    pub claims: Vec<ReservedClaim>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ReservedClaim {
    pub claim: NamespacedName,
    pub uid: Name,
    pub results: Vec<DeviceResult>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReservationId(pub u64);

/// A reservation was not taken because something changed since the snapshot it was computed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict(pub Name);

pub struct Index {
    snapshot: Snapshot,
}

impl Index {
    pub fn new(_classifier: Arc<dyn Classifier>) -> Self {
        Self {
            snapshot: Snapshot::default(),
        }
    }

    pub fn apply(&mut self, _change: Change) {}

    /// A new policy: every device is classified again.
    pub fn set_classifier(&mut self, _classifier: Arc<dyn Classifier>) {}

    /// All or nothing.
    pub fn reserve(&mut self, _reservation: Reservation) -> Result<ReservationId, Conflict> {
        Err(Conflict("not built yet".into()))
    }

    /// The write is known to have failed: the devices are free again. Unknown ids are ignored.
    pub fn release(&mut self, _id: ReservationId) {}

    pub fn reservations(&self) -> usize {
        0
    }

    /// The next snapshot, or None when nothing a reader can see has changed.
    pub fn publish(&mut self) -> Option<Arc<Snapshot>> {
        Some(Arc::new(self.snapshot.clone()))
    }
}
