//! Claims that pods share (`model::Share`): who has a slot before the claim says so, and who waits for one.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{HoldId, Snapshot};
use crate::model::{Allocation, Claim, Name, Pod};

/// A slot that a pod has by a reservation or a hold of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    pub pod: Name,
    pub pod_uid: Name,
    /// None: it is reserved.
    pub hold: Option<HoldId>,
}

/// A pod that names the claim and has no node. In the order of creation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiting {
    /// Seconds since the epoch.
    pub created: i64,
    pub pod: Name,
    pub pod_uid: Name,
}

impl Waiting {
    /// The place of a pod that waits.
    pub fn of(pod: &Pod) -> Self {
        Self {
            created: pod.created,
            pod: pod.key.name.clone(),
            pod_uid: pod.uid.clone(),
        }
    }
}

/// What is known of a shared claim beside the claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sharers {
    pub seats: Vec<Seat>,
    /// What is being written to the claim for that pod.
    pub coming: Option<(Name, Arc<Allocation>)>,
    /// Sorted. Without those whose turn passed.
    pub queue: Vec<Waiting>,
}

/// The pods that have a slot: name by uid.
pub type Users<'a> = BTreeSet<(&'a Name, &'a Name)>;

impl Snapshot {
    /// Who has a slot of the claim, each pod once: by the claim itself, by a reservation or by a hold. (uid, name)
    pub fn users<'a>(&'a self, claim: &'a Claim) -> Users<'a> {
        let seats = self.sharers.get(&claim.key).into_iter().flat_map(|s| &s.seats);
        let mut users: Users<'_> = claim.reserved_for.iter().map(|c| (&c.uid, &c.name)).collect();
        users.extend(seats.map(|seat| (&seat.pod_uid, &seat.pod)));
        users
    }
}
