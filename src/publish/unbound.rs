//! How long devices have been held for pods without a bind. A hold ends by itself, but every try of its pod takes another:
//! a pod that is tried again and again and never bound would keep its devices from all others for ever.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use super::task::HELD;
use crate::index::{Conflict, HoldId, MOST_HOLDS, Reservation};
use crate::model::Name;

/// Held for this long, a pod gets no more holds: some tries of a pod whose bind is slow, and less than others notice.
const LONGEST: Duration = Duration::from_secs(45);
/// So long after its last hold it gets some again. Much longer than `LONGEST`, so that others have nearly all the time.
const COOL_DOWN: Duration = Duration::from_secs(300);

/// By pod uid; without those that were bound since, and those whose last hold is `COOL_DOWN` ago.
#[derive(Default)]
pub(super) struct Unbound {
    pods: HashMap<Name, Tries>,
    /// The same pods by their last hold, which is by age.
    last: BTreeMap<HoldId, Name>,
}

struct Tries {
    last: HoldId,
    /// When the last one was taken.
    since: Instant,
    /// What it has been held for before that.
    before: Duration,
}

impl Tries {
    /// A hold that was dropped early counts to its end: its pod was not bound either.
    fn held(&self, now: Instant) -> Duration {
        self.before + now.saturating_duration_since(self.since).min(HELD)
    }
}

impl Unbound {
    /// Whether a hold of the pod may begin now.
    pub(super) fn may_hold(&mut self, wanted: &Reservation, now: Instant) -> Result<(), Conflict> {
        let cold = |tries: &Tries| now.saturating_duration_since(tries.since) >= COOL_DOWN;
        while let Some((_, uid)) = self.last.first_key_value()
            && self.pods.get(uid).is_none_or(cold)
        {
            self.forget_oldest();
        }
        let held = self.pods.get(&wanted.pod_uid).map(|tries| tries.held(now));
        match held.filter(|held| *held >= LONGEST) {
            None => Ok(()),
            Some(held) => Err(Conflict(
                format!(
                    "devices were held for pod {} for {} s and it was not bound: none are held for it until it is, or \
                     for {} s",
                    wanted.pod,
                    held.as_secs(),
                    COOL_DOWN.as_secs()
                )
                .into(),
            )),
        }
    }

    pub(super) fn held(&mut self, uid: Name, hold: HoldId, now: Instant) {
        let before = self.pods.get(&uid).map_or(Duration::ZERO, |tries| tries.held(now));
        self.bound(&uid);
        if self.pods.len() >= MOST_HOLDS {
            self.forget_oldest();
        }
        self.last.insert(hold, uid.clone());
        let tries = Tries {
            last: hold,
            since: now,
            before,
        };
        self.pods.insert(uid, tries);
    }

    /// Its bind has come: the pod begins anew.
    pub(super) fn bound(&mut self, uid: &Name) {
        if let Some(tries) = self.pods.remove(uid) {
            self.last.remove(&tries.last);
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, uid)) = self.last.pop_first() {
            self.pods.remove(&uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is asked for, no more is remembered than may be held; the pod held for last is not forgotten for others.
    #[tokio::test(start_paused = true)]
    async fn what_is_remembered_is_bounded() {
        let mut unbound = Unbound::default();
        let most = MOST_HOLDS as u64;
        for id in 0..most + 100 {
            unbound.held(format!("uid-{id}").into(), HoldId(id), Instant::now());
        }
        assert_eq!((unbound.pods.len(), unbound.last.len()), (MOST_HOLDS, MOST_HOLDS));
        assert!(!unbound.pods.contains_key("uid-99") && unbound.pods.contains_key("uid-100"));
        tokio::time::sleep(COOL_DOWN).await;
        let pod = crate::model::NamespacedName::new("ns", "p");
        let wanted = Reservation {
            pod,
            pod_uid: "uid-p".into(),
            node: "n".into(),
            claims: vec![],
            slots: vec![],
        };
        assert!(unbound.may_hold(&wanted, Instant::now()).is_ok());
        assert_eq!((unbound.pods.len(), unbound.last.len()), (0, 0));
    }
}
