//! Waiting for what drivers report of the devices a pod was given, before it is bound. The rules of what is awaited are
//! the model's; here are the time and the watch.

use tokio::time::{Instant, timeout_at};

use super::Shared;
use super::settle::given;
use crate::model::{Claim, Readiness};
use crate::placement::ClaimPlacement;
use crate::snapshot::Snapshot;

/// What the pod's claims have come to, at the latest at `until`. The words name the claim.
pub(super) async fn settled(shared: &Shared, placed: &[ClaimPlacement], until: Instant) -> Readiness {
    let mut reader = shared.reader.clone();
    loop {
        reader.version.borrow_and_update();
        let now = look(shared, &reader.load(), placed);
        let awaited = matches!(now, Readiness::Awaited(_));
        // Also when the index has ended, which is somebody else's to notice.
        if !awaited || !matches!(timeout_at(until, reader.version.changed()).await, Ok(Ok(()))) {
            return now;
        }
    }
}

/// A failure of any claim counts before anything that is still awaited.
fn look(shared: &Shared, snapshot: &Snapshot, placed: &[ClaimPlacement]) -> Readiness {
    let mut awaited = None;
    let waiting = |p: &&ClaimPlacement| p.allocation.results.iter().any(|r| !r.binding_conditions.is_empty());
    for placed in placed.iter().filter(waiting) {
        let claim = seen(snapshot, placed);
        let name = &placed.claim.key;
        match claim.readiness() {
            Readiness::Ready => {}
            Readiness::Failed(why) => return Readiness::Failed(format!("ResourceClaim {name}: {why}")),
            Readiness::Awaited(what) => {
                let patience = i64::try_from(shared.limits.unready.as_secs()).unwrap_or(i64::MAX);
                let late = claim
                    .allocated_at
                    .is_some_and(|at| (shared.clock)() > at.saturating_add(patience));
                if late {
                    let words = format!("ResourceClaim {name}: {what} was waited for {patience} s in vain");
                    return Readiness::Failed(words);
                }
                awaited.get_or_insert_with(|| format!("ResourceClaim {name}: {what}"));
            }
        }
    }
    awaited.map_or(Readiness::Ready, Readiness::Awaited)
}

/// The claim as the watch shows it; as it was written, with nothing reported yet, while the watch is behind.
fn seen(snapshot: &Snapshot, placed: &ClaimPlacement) -> Claim {
    let shown = snapshot.claim(&placed.claim.key).filter(|shown| {
        let as_placed = |a: &std::sync::Arc<_>| given(a) == given(&placed.allocation);
        shown.uid == placed.claim.uid && shown.allocation.as_ref().is_some_and(as_placed)
    });
    match shown {
        Some(shown) => Claim::clone(shown),
        None => Claim {
            allocation: Some(placed.allocation.clone()),
            allocated_at: None,
            conditions: vec![],
            ..Claim::clone(&placed.claim)
        },
    }
}
