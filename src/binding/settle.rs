//! Brings each single write to a known end, and takes writes back.
//!
//! The rule behind all of it: a write that was not answered may still take effect later, with the preconditions it was
//! sent with. Reading the object and not seeing it proves nothing. Known is only what a read shows to be there, what a
//! later write to the same object has made impossible (its resourceVersion moved on), or what has not happened by the
//! time the API server gives up on any request.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::turns::Turn;
use super::{BindError, BindFailure, Shared};
use crate::cluster::{Cluster, WriteError};
use crate::model::{Allocation, Claim, Consumer, DeviceId, Name, NamespacedName, Pod, not_older};
use crate::placement::ClaimPlacement;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// Conflicts on one claim, each followed by a fresh read, before the pod is placed anew.
const CONFLICTS: u32 = 3;

/// What this bind did to a claim.
#[derive(Debug)]
pub(super) enum Claimed {
    /// It holds our allocation and our reservation, in this resourceVersion or an older one. Empty: no matter.
    Allocated(Name),
    /// It was allocated before; we added the pod.
    Reserved,
    /// It was allocated and reserved before.
    Kept,
    /// Nothing of ours is in it; the claim is not what it was when the pod was placed.
    Changed(String),
    /// Nothing of ours is in it, and trying again will not help.
    Failed(BindError),
    /// It cannot be found out.
    Unsettled(String),
}

/// What became of the Binding.
pub(super) enum BoundTo {
    Node,
    /// Known not to be bound to our node.
    Not(BindError),
    Unsettled(String),
}

/// One pod's writes.
pub(super) struct Writes<'a> {
    pub(super) shared: &'a Shared,
    pub(super) cluster: &'a dyn Cluster,
    pub(super) pod: &'a NamespacedName,
    pub(super) consumer: Consumer,
    pub(super) node: &'a str,
    pub(super) started: Instant,
}

impl Writes<'_> {
    pub(super) async fn claim(&self, placed: &ClaimPlacement, turn: Option<Turn>) -> Claimed {
        if placed.existing {
            self.reserve(&placed.claim, placed.slots, turn).await
        } else {
            self.allocate(&placed.claim, &placed.allocation, turn).await
        }
    }

    async fn allocate(&self, placed: &Claim, allocation: &Allocation, mut turn: Option<Turn>) -> Claimed {
        let mut claim = placed.clone();
        let mut conflicts = 0;
        let mut unanswered = None;
        let mut pause = Pause::new();
        loop {
            let written = self.cluster.allocate(&claim, allocation, &self.consumer).await;
            drop(turn.take());
            let (no, why) = match written {
                Ok(written) => return Claimed::Allocated(written.resource_version),
                Err(e @ WriteError::Unknown(_)) => {
                    unanswered = Some(Instant::now());
                    (None, e.to_string())
                }
                Err(e @ WriteError::Conflict(_)) => {
                    conflicts += 1;
                    (None, e.to_string())
                }
                Err(e) => (Some(definite(&e)), e.to_string()),
            };
            if let Some(error) = &no {
                match unanswered {
                    None => return Claimed::Failed(error.clone()),
                    // An earlier one may have passed what this one did not.
                    Some(sent) => sleep_until(sent + self.shared.limits.in_flight).await,
                }
            }
            let Some(found) = self.read_claim(&claim.key).await else {
                return Claimed::Unsettled(why);
            };
            let Some(found) = found.filter(|f| f.uid == placed.uid) else {
                return Claimed::Failed(gone(&claim));
            };
            if carries(&found, allocation, &self.consumer) {
                return Claimed::Allocated(found.resource_version);
            }
            if let Some(error) = no {
                return Claimed::Failed(error);
            }
            // What is still on its way was sent with an older resourceVersion.
            if found.allocation.is_some() {
                return Claimed::Changed(format!("ResourceClaim {} was allocated by somebody else", claim.key));
            }
            // The API adds no reservation to it any more.
            if found.deleting {
                return Claimed::Failed(gone(&claim));
            }
            if unanswered.is_none() && conflicts >= CONFLICTS {
                return Claimed::Changed(why);
            }
            if Instant::now() >= self.give_up() {
                return Claimed::Unsettled(why);
            }
            // Written again even when nobody wants it any more: only a write that is answered puts an end to one that
            // was not.
            claim = found;
            pause.wait().await;
        }
    }

    /// Adding the pod twice is the same as once, and a stray entry holds no device that is not held already: so an
    /// unanswered one is simply repeated.
    async fn reserve(&self, claim: &Claim, slots: Option<usize>, mut turn: Option<Turn>) -> Claimed {
        let held = claim.reserved_for.iter().any(|c| c.uid == self.consumer.uid);
        let mut pause = Pause::new();
        loop {
            let written = self.cluster.reserve(claim, &self.consumer, slots).await;
            drop(turn.take());
            match written {
                Ok(_) if held => return Claimed::Kept,
                Ok(_) => return Claimed::Reserved,
                Err(WriteError::Conflict(m)) => return Claimed::Changed(m),
                Err(WriteError::Unknown(m)) if Instant::now() >= self.forward() => return Claimed::Unsettled(m),
                Err(WriteError::Unknown(_)) => pause.wait().await,
                Err(e) => return Claimed::Failed(definite(&e)),
            }
        }
    }

    /// POSTs the Binding until it is known whether the pod is bound.
    pub(super) async fn bind(&self) -> BoundTo {
        let (returns, in_flight) = (&self.shared.returns, self.shared.limits.in_flight);
        returns.sending(&self.consumer.uid, self.give_up() + in_flight);
        let end = self.bind_until_known().await;
        match end {
            BoundTo::Unsettled(_) => returns.sending(&self.consumer.uid, Instant::now() + in_flight),
            _ => returns.settled(&self.consumer.uid),
        }
        end
    }

    async fn bind_until_known(&self) -> BoundTo {
        let mut unanswered = None;
        let mut pause = Pause::new();
        loop {
            let (no, why) = match self.cluster.bind(self.pod, &self.consumer.uid, self.node).await {
                Ok(()) => return BoundTo::Node,
                Err(e @ WriteError::Unknown(_)) => {
                    unanswered = Some(Instant::now());
                    (None, e.to_string())
                }
                Err(e) => (Some(definite(&e)), e.to_string()),
            };
            let late = Instant::now() >= self.forward();
            match (&no, unanswered) {
                // Whatever this call is refused for: an earlier bind of the pod may have bound it, and our watch not show it
                // yet. What it runs on must not be taken back.
                (Some(_), None) => {}
                // Not repeated any more: wait until none can be on its way.
                (_, Some(sent)) if no.is_some() || late => sleep_until(sent + self.shared.limits.in_flight).await,
                _ => {}
            }
            // A plain "no" leaves in the dark only what an earlier bind did: whoever asks next need not wait long for that.
            let until = match (&no, unanswered) {
                (Some(_), None) => self.forward(),
                _ => self.give_up(),
            };
            let Some(found) = self.read_pod(until).await else {
                return BoundTo::Unsettled(why);
            };
            let Some(found) = found.filter(|p| p.uid == self.consumer.uid) else {
                return BoundTo::Not(pod_gone(self.pod));
            };
            match &*found.node_name {
                node if node == self.node => return BoundTo::Node,
                "" => {}
                other => return BoundTo::Not(bound_elsewhere(self.pod, other)),
            }
            if let Some(error) = no {
                return BoundTo::Not(error);
            }
            if late {
                return BoundTo::Not(BindError::new(BindFailure::Unknown, why));
            }
            pause.wait().await;
        }
    }

    /// Takes back what was written to the claims; false: not known to be gone, so nothing may be freed.
    pub(super) async fn undo(&self, written: &[(&ClaimPlacement, Claimed)]) -> bool {
        let ours = |claimed: &Claimed| matches!(claimed, Claimed::Allocated(_) | Claimed::Reserved);
        let bound = match written.iter().any(|(_, claimed)| ours(claimed)) {
            true => self.bound_to().await,
            false => Some(Name::default()),
        };
        let bound = &bound;
        let undone = written.iter().map(|(placed, claimed)| async move {
            // The last to leave a shared claim gives its device back: nobody else would.
            let deallocate = match claimed {
                Claimed::Allocated(_) => true,
                Claimed::Reserved => placed.slots.is_some(),
                Claimed::Unsettled(_) => return false,
                Claimed::Kept | Claimed::Changed(_) | Claimed::Failed(_) => return true,
            };
            match bound {
                None => false,
                // An earlier bind had the pod bound on what was there already, and our watch does not show it yet.
                Some(node) if !node.is_empty() && placed.existing => true,
                Some(node) if **node == *self.node => false,
                Some(_) => self.unreserve(&placed.claim, deallocate).await,
            }
        });
        futures::future::join_all(undone).await.into_iter().all(|clean| clean)
    }

    /// The pod's node, empty where it is not bound or gone; None: nobody can say.
    async fn bound_to(&self) -> Option<Name> {
        let pod = self
            .read_pod(self.give_up())
            .await?
            .filter(|p| p.uid == self.consumer.uid);
        Some(pod.map_or_else(Name::default, |p| p.node_name))
    }

    pub(super) async fn unreserve(&self, claim: &Claim, deallocate: bool) -> bool {
        let until = Instant::now() + self.shared.limits.settle;
        let mut pause = Pause::new();
        loop {
            match self
                .cluster
                .unreserve(&claim.key, &claim.uid, &self.consumer, deallocate)
                .await
            {
                Ok(()) | Err(WriteError::NotFound(_)) => break,
                Err(WriteError::Refused(m)) => {
                    tracing::error!(claim = %claim.key, error = m, "cannot take an allocation back: it stays");
                    return false;
                }
                Err(e) if Instant::now() >= until => {
                    tracing::error!(claim = %claim.key, error = %e, "cannot take an allocation back: giving up");
                    return false;
                }
                Err(_) => pause.wait().await,
            }
        }
        !deallocate || self.caught_up(&claim.key, until).await
    }

    /// Waits until the watch shows a claim that was freed as it is now. Before that, the allocation just taken back can
    /// still come in, and the index would take it for the result of the next bind's write: that one's reservation would
    /// end, and its devices look free until its own write is seen.
    async fn caught_up(&self, key: &NamespacedName, until: Instant) -> bool {
        let now = match self.read_claim(key).await {
            Some(Some(now)) => now,
            Some(None) => return true,
            None => return false,
        };
        let mut reader = self.shared.reader.clone();
        loop {
            let seen = match reader.load().claim(key) {
                Some(seen) => seen.uid != now.uid || not_older(&seen.resource_version, &now.resource_version),
                None => true,
            };
            if seen {
                return true;
            }
            if !matches!(timeout_at(until, reader.version.changed()).await, Ok(Ok(()))) {
                tracing::error!(claim = %key, "the watch does not show what was taken back: its devices stay reserved");
                return false;
            }
        }
    }

    /// The claim as it is; None: nobody can say.
    async fn read_claim(&self, key: &NamespacedName) -> Option<Option<Claim>> {
        let mut pause = Pause::new();
        loop {
            match self.cluster.claim(key).await {
                Ok(found) => return Some(found),
                Err(_) if Instant::now() >= self.give_up() => return None,
                Err(_) => pause.wait().await,
            }
        }
    }

    /// The pod as it is; None: nobody can say before `until`.
    async fn read_pod(&self, until: Instant) -> Option<Option<Pod>> {
        let mut pause = Pause::new();
        loop {
            match self.cluster.pod(self.pod).await {
                Ok(found) => return Some(found),
                Err(_) if Instant::now() >= until => return None,
                Err(_) => pause.wait().await,
            }
        }
    }

    pub(super) fn forward(&self) -> Instant {
        self.started + self.shared.limits.forward
    }

    fn give_up(&self) -> Instant {
        self.started + self.shared.limits.settle
    }
}

/// Whether the claim is as our write would have left it. Tolerations and the like may come back in another form; what
/// is given is what counts.
fn carries(found: &Claim, allocation: &Allocation, pod: &Consumer) -> bool {
    found.reserved_for.iter().any(|c| c.uid == pod.uid)
        && found.allocation.as_ref().is_some_and(|a| given(a) == given(allocation))
}

pub(super) fn given(allocation: &Allocation) -> Vec<(&Name, &DeviceId, Option<&Name>)> {
    let results = allocation.results.iter();
    results.map(|r| (&r.request, &r.id, r.share_id.as_ref())).collect()
}

/// A "no" of the API as an error of the bind.
fn definite(error: &WriteError) -> BindError {
    let kind = match error {
        WriteError::Conflict(_) => BindFailure::Conflict,
        WriteError::NotFound(_) => BindFailure::PodGone,
        WriteError::Refused(_) => BindFailure::ApiRefused,
        WriteError::Unknown(_) => BindFailure::Unknown,
    };
    BindError::new(kind, error.to_string())
}

fn gone(claim: &Claim) -> BindError {
    let what = format!("ResourceClaim {} is gone or being deleted", claim.key);
    BindError::new(BindFailure::PodGone, what)
}

pub(super) fn pod_gone(pod: &NamespacedName) -> BindError {
    BindError::new(
        BindFailure::PodGone,
        format!("pod {pod} is gone, or another has its name"),
    )
}

pub(super) fn bound_elsewhere(pod: &NamespacedName, node: &str) -> BindError {
    BindError::new(
        BindFailure::BoundElsewhere,
        format!("pod {pod} is bound to node {node} already"),
    )
}

/// Doubling waits between two looks at the API.
pub(super) struct Pause(Duration);

impl Pause {
    pub(super) fn new() -> Self {
        Self(FIRST_PAUSE)
    }

    pub(super) async fn wait(&mut self) {
        sleep(self.0).await;
        self.0 = (self.0 * 2).min(MAX_PAUSE);
    }
}
