//! Holds: devices kept for a pod from the answer that sends it to a node until its bind. Everybody sees them as taken
//! but the pods that use the held claims, which see them as if there were no hold.
//!
//! To undo a hold is to count again without it, from what was taken before any hold: exact for twins, shares and
//! counters, where taking away again what was added would not be.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{DeviceUse, DomainIx, PoolIx, PoolState, Snapshot};
use crate::model::{DeviceId, Name, NamespacedName, Pod};

/// Later ones are larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HoldId(pub u64);

/// One hold as a reader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    pub id: HoldId,
    pub pod_uid: Name,
    pub node: Name,
    pub devices: Box<[DeviceId]>,
    /// Those it is for; never empty.
    pub claims: Box<[NamespacedName]>,
    /// The published pools of its devices.
    pub pools: Box<[PoolIx]>,
    /// What power domains count for it alone: cards of which somebody else holds a part are not in it.
    pub watts: Box<[(DomainIx, u64)]>,
}

/// What holds take of one pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolHolds {
    /// The pool as it is without any of them.
    pub without: PoolState,
    /// Never empty; by id.
    pub of: Vec<(HoldId, Vec<DeviceUse>)>,
}

impl PoolState {
    /// Adds what holds take to a state that has none.
    #[must_use]
    pub fn with_holds(self, of: Vec<(HoldId, Vec<DeviceUse>)>) -> Self {
        if of.is_empty() {
            return self;
        }
        let mut state = self.clone();
        of.iter().flat_map(|(_, uses)| uses).for_each(|used| state.add(used));
        state.holds = Some(Arc::new(PoolHolds { without: self, of }));
        state
    }

    /// As it would be without these holds; those that took nothing of it make no difference.
    #[must_use]
    pub fn without_holds(&self, lifted: &BTreeSet<HoldId>) -> Cow<'_, Self> {
        match &self.holds {
            Some(holds) if holds.of.iter().any(|(id, _)| lifted.contains(id)) => {
                let rest = holds.of.iter().filter(|(id, _)| !lifted.contains(id));
                Cow::Owned(holds.without.clone().with_holds(rest.cloned().collect()))
            }
            _ => Cow::Borrowed(self),
        }
    }
}

impl Snapshot {
    /// What the pod may be placed in: holds on claims it uses, its own above all, are undone. Borrowed, and as good as
    /// free, where there are none.
    pub fn as_seen_by(&self, pod: &Pod) -> Cow<'_, Self> {
        let held: BTreeMap<HoldId, &Hold> = self.on_claims_of(pod).map(|hold| (hold.id, hold)).collect();
        match held.is_empty() {
            true => Cow::Borrowed(self),
            false => Cow::Owned(self.lifted(&held)),
        }
    }

    /// The pod's own hold of devices.
    pub fn hold_of<'a>(&'a self, pod: &'a Pod) -> Option<&'a Hold> {
        self.on_claims_of(pod).find(|hold| hold.pod_uid == pod.uid)
    }

    /// The pod's own hold, be it of devices or of a slot only.
    pub fn held_for(&self, pod: &Pod) -> Option<HoldId> {
        self.hold_of(pod).map(|hold| hold.id).or_else(|| {
            let claims = pod.claims.iter().filter(|_| !self.sharers.is_empty());
            let sharers = claims.filter_map(|c| self.sharers.get(&pod.claim_key(c.claim_name()?)));
            let mut seats = sharers.flat_map(|s| &s.seats);
            seats.find(|seat| seat.pod_uid == pod.uid)?.hold
        })
    }

    /// As it would be if nothing were held for anybody. None: nothing is.
    pub fn without_holds(&self) -> Option<Self> {
        let all: BTreeMap<HoldId, &Hold> = self.holds.iter().map(|(_, hold)| (hold.id, &**hold)).collect();
        (!all.is_empty()).then(|| self.lifted(&all))
    }

    fn on_claims_of<'a>(&'a self, pod: &'a Pod) -> impl Iterator<Item = &'a Hold> {
        // No key is made where nothing is held, as is usual.
        let claims = pod.claims.iter().filter(|_| !self.holds.is_empty());
        claims.filter_map(|claim| {
            let key = pod.claim_key(claim.claim_name()?);
            self.holds.get(&key).map(|hold| &**hold)
        })
    }

    fn lifted(&self, holds: &BTreeMap<HoldId, &Hold>) -> Self {
        let ids: BTreeSet<HoldId> = holds.keys().copied().collect();
        let mut seen = self.clone();
        for claim in holds.values().flat_map(|h| &h.claims) {
            seen.holds.remove(claim);
        }
        let touched: BTreeSet<PoolIx> = holds.values().flat_map(|h| h.pools.iter().copied()).collect();
        for ix in touched {
            if let Some(state) = self.pool(ix)
                && let Cow::Owned(free) = state.without_holds(&ids)
            {
                seen.pools.put(ix.0, Some(Arc::new(free)));
            }
        }
        let watts: Vec<(DomainIx, u64)> = holds.values().flat_map(|h| h.watts.iter().copied()).collect();
        if !watts.is_empty() {
            let uses = Arc::make_mut(&mut seen.power.uses);
            for (ix, watts) in watts {
                if let Some(used) = uses.get_mut(ix.0 as usize) {
                    used.watts = used.watts.saturating_sub(watts);
                }
            }
        }
        seen
    }
}
