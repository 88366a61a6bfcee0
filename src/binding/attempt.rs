//! The steps of one bind: find the pod, place it, reserve in the index, write the claims, bind; or undo.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::conditions;
use super::settle::{BoundTo, Claimed, Pause, Writes, bound_elsewhere, pod_gone};
use super::turns::Turn;
use super::{BUSY_EARLIER, BindError, BindFailure, BindOutcome, BindRequest, Shared};
use crate::cluster::Cluster;
use crate::index::{Reservation, ReservationId, ReservedClaim, WantedSlot};
use crate::model::{Name, Pod, Readiness, Reason};
use crate::placement::{ClaimPlacement, Rules};

/// How long a new snapshot is waited for before the pod is placed again from the old one.
const NEWS: Duration = Duration::from_millis(250);

/// Time kept for the answer when devices are waited for.
const ANSWER: Duration = Duration::from_millis(200);

/// What a round came to.
enum Round {
    Done(BindOutcome),
    /// Nothing is left of it, and another look may help.
    Again {
        error: BindError,
        /// The API knows more of the pod than our watch has shown.
        behind: bool,
    },
}

impl Round {
    fn again(error: impl Into<BindError>) -> Self {
        let error = error.into();
        // Whether its claims have been made is said by the pod.
        let behind = error.kind == BindFailure::Refused(Reason::ClaimMissing);
        Self::Again { error, behind }
    }
}

pub(super) struct Attempt<'a> {
    shared: &'a Shared,
    cluster: &'a dyn Cluster,
    rules: &'a Rules,
    request: &'a BindRequest,
    /// Nothing is begun after this: the caller has gone, and the scheduler may have another plan.
    deadline: Instant,
    started: Instant,
    /// What it holds in the index; for whoever ends it from outside.
    reserved: Mutex<Option<ReservationId>>,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        cluster: &'a dyn Cluster,
        rules: &'a Rules,
        request: &'a BindRequest,
        deadline: Instant,
    ) -> Self {
        Self {
            shared,
            cluster,
            rules,
            request,
            deadline,
            started: Instant::now(),
            reserved: Mutex::default(),
        }
    }

    /// Gives up what it holds in the index: its writes are known to have failed, or to be taken back, or nothing may be
    /// written any more.
    pub(super) async fn release(&self) {
        let reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(id) = reserved {
            self.shared.index.release(id).await;
        }
    }

    /// `waited`: another bind of this pod has just ended, so what the cache says of the pod is out of date.
    pub(super) async fn run(&self, waited: bool) -> Result<BindOutcome, BindError> {
        let mut last: Option<BindError> = None;
        let mut fresh = waited;
        for n in 0..self.shared.limits.attempts.max(1) {
            // Also the end of a round that was begun in time and came to nothing.
            if n > 0 && Instant::now() >= self.deadline {
                break;
            }
            let pod = self.pod(fresh).await?;
            if pod.node_name == self.request.node && pod.uid == self.request.uid {
                return Ok(BindOutcome::Already);
            }
            self.bindable(&pod)?;
            // A pod without claims writes to none.
            let turn = match pod.claims.is_empty() {
                true => None,
                false => Some(self.turn().await?),
            };
            match self.round(&pod, turn).await? {
                Round::Done(outcome) => return Ok(outcome),
                Round::Again { error, behind } => {
                    last = Some(error);
                    fresh = waited || behind;
                }
            }
        }
        Err(last.unwrap_or_else(|| self.too_late()))
    }

    fn bindable(&self, pod: &Pod) -> Result<(), BindError> {
        if pod.uid != self.request.uid {
            return Err(pod_gone(&pod.key));
        }
        if !pod.node_name.is_empty() {
            return Err(bound_elsewhere(&pod.key, &pod.node_name));
        }
        if pod.deleting || pod.finished {
            let what = format!("pod {} is being deleted or has finished", pod.key);
            return Err(BindError::new(BindFailure::PodGone, what));
        }
        Ok(())
    }

    fn too_late(&self) -> BindError {
        let what = format!(
            "the time for binding pod {} ran out; nothing was written",
            self.request.pod
        );
        BindError::new(BindFailure::Conflict, what)
    }

    /// Waits until it may write to claims. It is placed only then, from what is known by then.
    async fn turn(&self) -> Result<Turn, BindError> {
        let until = self.deadline.checked_sub(BUSY_EARLIER).unwrap_or(self.deadline);
        self.shared.turns.take(until).await.ok_or_else(|| {
            let what = format!(
                "the Kubernetes API is slow and other binds were first: nothing was written for pod {}",
                self.request.pod
            );
            BindError::new(BindFailure::Crowded, what)
        })
    }

    /// Pods without claims are not in the cache, so one that is missing is asked for at once. `fresh`: do not ask the
    /// cache.
    async fn pod(&self, fresh: bool) -> Result<Pod, BindError> {
        let key = &self.request.pod;
        if !fresh {
            let snapshot = self.shared.reader.load();
            if let Some(pod) = snapshot.pods.get(key).filter(|p| p.uid == self.request.uid) {
                return Ok(Pod::clone(pod));
            }
        }
        let mut pause = Pause::new();
        loop {
            match self.cluster.pod(key).await {
                Ok(Some(pod)) => return Ok(pod),
                Ok(None) => return Err(pod_gone(key)),
                Err(e) if Instant::now() >= self.deadline => {
                    let what = format!("cannot read pod {key}: {e}; nothing was written");
                    return Err(BindError::new(BindFailure::Unknown, what));
                }
                Err(_) => pause.wait().await,
            }
        }
    }

    async fn round(&self, pod: &Pod, turn: Option<Turn>) -> Result<Round, BindError> {
        let snapshot = self.shared.reader.load();
        let seen = snapshot.as_seen_by(pod);
        let placed = match (self.shared.planner)(&seen, &self.shared.selectors, self.rules, pod, &self.request.node) {
            Ok(placed) => placed,
            // The cache may be a moment behind the scheduler's.
            Err(no) if matches!(no.reason, Reason::ClaimMissing | Reason::UnknownNode) => {
                self.news(turn, snapshot.version).await;
                return Ok(Round::again(no));
            }
            Err(no) => return Err(no.into()),
        };
        // Another pod's bind is giving the claim these devices: a moment later they are there to share, or free.
        if let Some(coming) = placed.iter().find(|p| p.existing && p.claim.allocation.is_none()) {
            let what = format!("ResourceClaim {} is being allocated for another pod", coming.claim.key);
            self.news(turn, snapshot.version).await;
            return Ok(Round::again(BindError::new(BindFailure::Conflict, what)));
        }
        let reserved = match self.reserve(pod, &placed).await {
            Ok(id) => id,
            Err(conflict) => {
                self.news(turn, snapshot.version).await;
                return Ok(Round::again(BindError::new(BindFailure::Conflict, conflict)));
            }
        };
        drop(seen);
        drop(snapshot);
        // The index may have kept us waiting.
        if Instant::now() >= self.deadline {
            self.release().await;
            return Err(self.too_late());
        }
        self.write(pod, &placed, reserved, turn).await
    }

    /// Takes all devices that are not given yet, or none. None: there is nothing to take.
    async fn reserve(&self, pod: &Pod, placed: &[ClaimPlacement]) -> Result<Option<ReservationId>, Name> {
        let Some(reservation) = reservation(pod, &self.request.node, placed) else {
            return Ok(None);
        };
        let id = self.shared.index.reserve(reservation).await.map_err(|e| e.0)?;
        *self.reserved.lock().unwrap_or_else(PoisonError::into_inner) = Some(id);
        Ok(Some(id))
    }

    async fn write(
        &self,
        pod: &Pod,
        placed: &[ClaimPlacement],
        reserved: Option<ReservationId>,
        turn: Option<Turn>,
    ) -> Result<Round, BindError> {
        let writes = Writes {
            shared: self.shared,
            cluster: self.cluster,
            pod: &pod.key,
            consumer: pod.consumer(),
            node: &self.request.node,
            started: self.started,
        };
        let all: Vec<_> = placed.iter().map(|p| writes.claim(p, turn.clone())).collect();
        drop(turn);
        let claimed = futures::future::join_all(all).await;
        let mut written: Vec<_> = placed.iter().zip(claimed).collect();
        if let Some(id) = reserved {
            for (placed, claimed) in &written {
                if let Claimed::Allocated(version) = claimed {
                    let claim = placed.claim.key.clone();
                    self.shared.index.written(id, claim, version.clone()).await;
                }
            }
        }
        let trouble = trouble(&written).or_else(|| {
            // Settled, but too late for the scheduler.
            (!placed.is_empty() && Instant::now() >= writes.forward())
                .then(|| Trouble::No(BindError::new(BindFailure::Unknown, "the Kubernetes API was too slow")))
        });
        let trouble = match trouble {
            Some(trouble) => Some(trouble),
            None => match self.ready(placed).await {
                Readiness::Ready => None,
                // Allocated and reserved: the next attempt finds it so.
                Readiness::Awaited(what) => {
                    let what = format!("pod {} is not bound yet: waiting for {what}", pod.key);
                    return Err(BindError::new(BindFailure::Awaited, what));
                }
                // The pod begins anew; claims that others hold keep their devices.
                Readiness::Failed(why) => {
                    written
                        .iter_mut()
                        .for_each(|(_, claimed)| *claimed = Claimed::Allocated(Name::default()));
                    let what = format!("pod {} gives its devices back: {why}", pod.key);
                    Some(Trouble::No(BindError::new(BindFailure::Unready, what)))
                }
            },
        };
        let trouble = match trouble {
            Some(trouble) => trouble,
            None => match writes.bind().await {
                BoundTo::Node if placed.is_empty() => return Ok(Round::Done(BindOutcome::Plain)),
                // The reservation stays until the watch shows the claims.
                BoundTo::Node => return Ok(Round::Done(BindOutcome::Bound)),
                BoundTo::Not(error) => Trouble::No(error),
                // The claims keep their allocation: with the pod perhaps bound it must not be given again, and if it is
                // not, the next attempt finds it and comes back to this node.
                BoundTo::Unsettled(why) => {
                    let what = format!(
                        "it is not known whether pod {} was bound; its devices stay: {why}",
                        pod.key
                    );
                    return Err(BindError::new(BindFailure::Unknown, what));
                }
            },
        };
        let clean = writes.undo(&written).await;
        if clean {
            self.release().await;
        }
        match trouble {
            // Whoever changed a claim may have bound the pod.
            Trouble::Changed(why) if clean => Ok(Round::Again {
                error: BindError::new(BindFailure::Conflict, why),
                behind: true,
            }),
            Trouble::No(error) if clean => Err(error),
            Trouble::Changed(why) => Err(left_over(&why)),
            Trouble::No(error) => Err(left_over(&error.message)),
        }
    }

    /// What the devices are waited for, while the caller is still there to hear of it.
    async fn ready(&self, placed: &[ClaimPlacement]) -> Readiness {
        let patience = Instant::now() + self.shared.limits.ready;
        let heard = self.deadline.checked_sub(ANSWER).unwrap_or(self.deadline);
        conditions::settled(self.shared, placed, patience.min(heard)).await
    }

    /// A newer snapshot than `version`, or the end of our patience.
    async fn news(&self, turn: Option<Turn>, version: u64) {
        // Who waits writes nothing.
        drop(turn);
        let until = (Instant::now() + NEWS).min(self.deadline);
        let mut reader = self.shared.reader.clone();
        // What was sent to the index before is then visible.
        let _ = timeout_at(until, self.shared.index.flush()).await;
        while reader.load().version <= version {
            // Also when the index has ended, which is somebody else's to notice.
            if !matches!(timeout_at(until, reader.version.changed()).await, Ok(Ok(()))) {
                return;
            }
        }
    }
}

/// What is to be reserved, or held, of a placement: what the pod has not been given yet, devices and slots. None: nothing.
pub fn reservation(pod: &Pod, node: &Name, placed: &[ClaimPlacement]) -> Option<Reservation> {
    let new = placed.iter().filter(|p| !p.existing);
    let claims: Vec<_> = new
        .map(|p| ReservedClaim {
            claim: p.claim.key.clone(),
            uid: p.claim.uid.clone(),
            results: p.allocation.results.clone(),
        })
        .collect();
    let slots: Vec<_> = placed
        .iter()
        .filter(|p| !p.claim.reserved_for.iter().any(|c| c.uid == pod.uid))
        .filter_map(|p| {
            Some(WantedSlot {
                claim: p.claim.key.clone(),
                uid: p.claim.uid.clone(),
                most: p.slots?,
            })
        })
        .collect();
    (!claims.is_empty() || !slots.is_empty()).then(|| Reservation {
        pod: pod.key.clone(),
        pod_uid: pod.uid.clone(),
        node: node.clone(),
        claims,
        slots,
    })
}

enum Trouble {
    Changed(String),
    No(BindError),
}

/// The worst that happened to any claim: a "no" ends the bind, a change means another look.
fn trouble(written: &[(&ClaimPlacement, Claimed)]) -> Option<Trouble> {
    let mut changed = None;
    for (placed, claimed) in written {
        match claimed {
            Claimed::Failed(error) => return Some(Trouble::No(error.clone())),
            Claimed::Unsettled(why) => {
                let what = format!("ResourceClaim {}: {why}", placed.claim.key);
                return Some(Trouble::No(BindError::new(BindFailure::Unknown, what)));
            }
            Claimed::Changed(why) => changed = Some(Trouble::Changed(why.clone())),
            Claimed::Allocated(_) | Claimed::Reserved | Claimed::Kept => {}
        }
    }
    changed
}

fn left_over(why: &str) -> BindError {
    let what = format!("what was written could not be taken back, so its devices stay reserved: {why}");
    BindError::new(BindFailure::Unknown, what)
}
