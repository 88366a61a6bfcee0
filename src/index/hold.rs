//! Holds: weak reservations, one a pod, between the answer that sends a pod to a node and its bind. A hold counts in the
//! ledger and in budgets as a reservation does, and gives nothing: the pod's reservation takes its place, and anything
//! that shows that no bind of it will come ends it. When one is too old is told from outside; here is no clock.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::ledger::Holder;
use super::shares::SeatBy;
use super::{Conflict, Index, Key, PoolKey, Reservation};
use crate::model::{Claim, DeviceResult, Name, Pod};
use crate::snapshot::{DomainIx, Hold, HoldId, PoolIx};

/// Holds kept at one time; one more ends the oldest.
pub const MOST_HOLDS: usize = 10_000;

/// How a hold ended. Closed set: metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HoldEnd {
    /// It became the reservation of its pod's bind on that node.
    Bound,
    /// By another hold of its pod, or its reservation on another node.
    Replaced,
    /// No bind came in time.
    Expired,
    /// The pod or a claim of it is not what it was, its bind failed, or it fits nowhere now.
    Dropped,
}

impl HoldEnd {
    pub const ALL: [Self; 4] = [Self::Bound, Self::Replaced, Self::Expired, Self::Dropped];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bound => "bound",
            Self::Replaced => "replaced",
            Self::Expired => "expired",
            Self::Dropped => "dropped",
        }
    }
}

#[derive(Default)]
pub(super) struct Holds {
    last: u64,
    live: BTreeMap<HoldId, Reservation>,
    by_pod: HashMap<Key, HoldId>,
    by_claim: HashMap<Key, HoldId>,
    ended: [u64; HoldEnd::ALL.len()],
}

impl Holds {
    pub(super) fn of_pod(&self, pod: &Key) -> Option<HoldId> {
        self.by_pod.get(pod).copied()
    }

    pub(super) fn of_claim(&self, claim: &Key) -> Option<HoldId> {
        self.by_claim.get(claim).copied()
    }

    pub(super) fn node(&self, hold: HoldId) -> Option<&Name> {
        self.live.get(&hold).map(|held| &held.node)
    }

    /// The pools these take something of.
    pub(super) fn pools(&self, holds: &BTreeSet<HoldId>) -> BTreeSet<PoolKey> {
        let live = holds.iter().filter_map(|id| self.live.get(id));
        live.flat_map(results).map(|r| PoolKey::of(&r.id)).collect()
    }
}

fn results(hold: &Reservation) -> impl Iterator<Item = &DeviceResult> {
    hold.claims.iter().flat_map(|c| &c.results)
}

impl Index {
    /// Takes the devices for a pod that is being placed, in place of the hold it has. All or nothing; on a conflict the
    /// pod holds nothing.
    pub fn hold(&mut self, mut wanted: Reservation) -> Result<HoldId, Conflict> {
        self.settle();
        let own = self.holds.of_pod(&wanted.pod);
        // Another pod that shares the claim places it: the slot is all there is to hold.
        wanted.claims.retain(|held| {
            let shared = wanted.slots.iter().any(|slot| slot.claim == held.claim);
            let placed = self.holds.of_claim(&held.claim).is_some_and(|id| Some(id) != own);
            !(shared && (placed || self.allocating(&held.claim).is_some()))
        });
        if let Err(why) = self.holdable(&wanted, own) {
            own.into_iter().for_each(|id| self.end_hold(id, HoldEnd::Dropped));
            return Err(Conflict(why.into()));
        }
        own.into_iter().for_each(|id| self.end_hold(id, HoldEnd::Replaced));
        if self.holds.live.len() >= MOST_HOLDS
            && let Some((oldest, _)) = self.holds.live.first_key_value()
        {
            self.end_hold(*oldest, HoldEnd::Dropped);
        }
        self.holds.last += 1;
        let id = HoldId(self.holds.last);
        for held in &wanted.claims {
            let holder = Holder::Hold(id, held.claim.clone());
            self.stale_states.extend(self.ledger.put(&holder, &held.results));
            self.holds.by_claim.insert(held.claim.clone(), id);
        }
        self.sit(SeatBy::Hold(id), &wanted);
        self.holds.by_pod.insert(wanted.pod.clone(), id);
        self.holds.live.insert(id, wanted);
        self.stale_holds.insert(id);
        self.settle();
        Ok(id)
    }

    fn holdable(&self, wanted: &Reservation, own: Option<HoldId>) -> Result<(), String> {
        if wanted.claims.is_empty() && wanted.slots.is_empty() {
            return Err(format!("pod {} has nothing to hold", wanted.pod));
        }
        let known = self.snapshot.pods.get(&wanted.pod);
        if known.is_some_and(|pod| !pod.awaits_node(&wanted.pod_uid)) {
            return Err(format!("pod {} is not waiting for a node any more", wanted.pod));
        }
        for held in &wanted.claims {
            if self.holds.of_claim(&held.claim).is_some_and(|id| Some(id) != own) {
                return Err(format!("claim {} is being placed with another pod", held.claim));
            }
        }
        self.seatable(wanted, true)?;
        self.takeable(wanted, &own.into_iter().collect())
    }

    /// Unknown ids are ignored.
    pub fn drop_hold(&mut self, id: HoldId) {
        self.end_hold(id, HoldEnd::Dropped);
    }

    /// No bind came in time for this one and all that are older.
    pub fn expire_holds(&mut self, through: HoldId) {
        while let Some((id, _)) = self.holds.live.first_key_value().filter(|(id, _)| **id <= through) {
            self.end_hold(*id, HoldEnd::Expired);
        }
    }

    /// No bind of this pod came in time, however often it was tried.
    pub fn expire_hold_of(&mut self, pod: &Key) {
        if let Some(id) = self.holds.of_pod(pod) {
            self.end_hold(id, HoldEnd::Expired);
        }
    }

    pub fn holds(&self) -> usize {
        self.holds.live.len()
    }

    /// Since the start, in the order of `HoldEnd::ALL`.
    pub fn ended_holds(&self) -> [u64; HoldEnd::ALL.len()] {
        self.holds.ended
    }

    pub(super) fn end_hold(&mut self, id: HoldId, how: HoldEnd) {
        let Some(hold) = self.holds.live.remove(&id) else {
            return;
        };
        self.holds.by_pod.remove(&hold.pod);
        self.stand_up(SeatBy::Hold(id), &hold);
        for held in &hold.claims {
            let holder = Holder::Hold(id, held.claim.clone());
            self.stale_states.extend(self.ledger.drop(&holder, &held.results));
            self.holds.by_claim.remove(&held.claim);
            self.changed |= self.snapshot.holds.remove(&held.claim).is_some();
        }
        self.holds.ended[how as usize] += 1;
    }

    /// The pod has become `now` (None: it is gone, or has no claims): will a bind still come?
    pub(super) fn hold_of_pod(&mut self, key: &Key, now: Option<&Pod>) {
        let Some(id) = self.holds.of_pod(key) else { return };
        let held = self.holds.live.get(&id);
        if !held.zip(now).is_some_and(|(held, pod)| pod.awaits_node(&held.pod_uid)) {
            self.end_hold(id, HoldEnd::Dropped);
        }
    }

    /// The claim has become `now` (None: it is gone): can it still be given what is held for it?
    pub(super) fn hold_of_claim(&mut self, key: &Key, now: Option<&Claim>) {
        let Some(id) = self.holds.of_claim(key) else { return };
        let held = self.holds.live.get(&id);
        let held = held.and_then(|h| h.claims.iter().find(|c| c.claim == *key));
        let open = |c: &Claim| c.allocation.is_none() && !c.deleting;
        if !held
            .zip(now)
            .is_some_and(|(held, claim)| held.uid == claim.uid && open(claim))
        {
            self.end_hold(id, HoldEnd::Dropped);
        }
    }

    /// Publishes where the hold's devices are now and what power domains count for it.
    pub(super) fn settle_hold(&mut self, id: HoldId) {
        let Some(hold) = self.holds.live.get(&id) else { return };
        let keys: BTreeSet<PoolKey> = results(hold).map(|r| PoolKey::of(&r.id)).collect();
        let published = |key| {
            let ix = self.pools.get(key)?.ix;
            self.snapshot.pool(ix).map(|_| ix)
        };
        let touched: BTreeSet<&PoolKey> = keys
            .iter()
            .flat_map(|key| self.absent.seen_in(key).chain([key]))
            .collect();
        let pools: Vec<PoolIx> = touched.into_iter().filter_map(published).collect();
        let mut watts: BTreeMap<DomainIx, u64> = BTreeMap::new();
        for (domain, more) in keys.iter().flat_map(|key| self.drawn_by(key, id)) {
            *watts.entry(domain).or_default() += more;
        }
        let seen = Arc::new(Hold {
            id,
            pod_uid: hold.pod_uid.clone(),
            node: hold.node.clone(),
            devices: results(hold)
                .filter(|r| !r.admin_access)
                .map(|r| r.id.clone())
                .collect(),
            claims: hold.claims.iter().map(|c| c.claim.clone()).collect(),
            pools: pools.into(),
            watts: watts.into_iter().collect(),
        });
        for held in &hold.claims {
            if self.snapshot.holds.get(&held.claim) != Some(&seen) {
                self.snapshot.holds.insert(held.claim.clone(), seen.clone());
                self.changed = true;
            }
        }
    }
}
