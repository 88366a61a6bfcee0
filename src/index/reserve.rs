//! Reservations: devices held for a pod from before the API write until the watch shows the result.

use std::collections::{BTreeMap, BTreeSet};

use super::ledger::{Holder, Use};
use super::shadows::beside;
use super::shares::{SeatBy, WantedSlot};
use super::{HoldEnd, HoldId, Index, Key, PoolKey, usage};
use crate::model::{Claim, DeviceResult, Name, NamespacedName, not_older};
use crate::snapshot::{PoolHealth, PoolState};

/// Devices held for a pod from before the API write until the watch shows the result.
#[derive(Clone, Debug, PartialEq)]
pub struct Reservation {
    pub pod: NamespacedName,
    pub pod_uid: Name,
    pub node: Name,
    pub claims: Vec<ReservedClaim>,
    /// Slots of shared claims, of those above and of claims that are allocated already.
    pub slots: Vec<WantedSlot>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ReservedClaim {
    pub claim: NamespacedName,
    pub uid: Name,
    pub results: Vec<DeviceResult>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReservationId(pub u64);

/// A reservation was not taken because something changed since the snapshot it was computed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict(pub Name);

impl std::fmt::Display for Conflict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Conflict {}

/// What is still held, by claim. A claim leaves as soon as its allocation shows or it is gone; a
/// reservation without claims is gone.
#[derive(Default)]
pub(super) struct Reservations {
    last: u64,
    live: BTreeMap<ReservationId, Reservation>,
    by_claim: BTreeMap<Key, ReservationId>,
    /// The resourceVersion in which the claim was written, where that is known.
    written: BTreeMap<Key, Name>,
}

impl Reservations {
    /// Takes one claim out of the reservation that holds it.
    fn take(&mut self, claim: &Key) -> Option<(ReservationId, ReservedClaim)> {
        let id = self.by_claim.remove(claim)?;
        self.written.remove(claim);
        let reservation = self.live.get_mut(&id)?;
        let i = reservation.claims.iter().position(|c| c.claim == *claim)?;
        let taken = reservation.claims.swap_remove(i);
        self.end_if_empty(id);
        Some((id, taken))
    }

    fn end_if_empty(&mut self, id: ReservationId) {
        let empty = |r: &Reservation| r.claims.is_empty() && r.slots.is_empty();
        if self.live.get(&id).is_some_and(empty) {
            self.live.remove(&id);
        }
    }
}

impl Index {
    /// All or nothing; the devices are taken at once, and the next snapshot shows it. It takes the place of the pod's hold
    /// in one step; on a conflict the hold stays.
    pub fn reserve(&mut self, reservation: Reservation) -> Result<ReservationId, Conflict> {
        self.settle();
        let own = self.holds.of_pod(&reservation.pod);
        // Who reserves a claim is before those who only hold something for it.
        let of_claims = reservation.claims.iter().filter_map(|c| self.holds.of_claim(&c.claim));
        let lifted: BTreeSet<HoldId> = own.into_iter().chain(of_claims).collect();
        self.takeable(&reservation, &lifted)
            .and_then(|()| self.seatable(&reservation, false))
            .map_err(|why| Conflict(why.into()))?;
        for hold in lifted {
            let how = match Some(hold) == own {
                true if self.holds.node(hold) == Some(&reservation.node) => HoldEnd::Bound,
                true => HoldEnd::Replaced,
                false => HoldEnd::Dropped,
            };
            self.end_hold(hold, how);
        }
        self.reservations.last += 1;
        let id = ReservationId(self.reservations.last);
        for wanted in &reservation.claims {
            let holder = Holder::Reservation(id, wanted.claim.clone());
            let touched = self.ledger.put(&holder, &wanted.results);
            self.stale_states.extend(touched);
            self.reservations.by_claim.insert(wanted.claim.clone(), id);
        }
        self.sit(SeatBy::Reservation(id), &reservation);
        if !reservation.claims.is_empty() || !reservation.slots.is_empty() {
            self.reservations.live.insert(id, reservation);
        }
        self.settle();
        Ok(id)
    }

    /// The write is known to have failed: the devices are free again. Unknown ids are ignored, and claims
    /// whose allocation has shown in the meantime are not touched.
    pub fn release(&mut self, id: ReservationId) {
        let Some(reservation) = self.reservations.live.remove(&id) else {
            return;
        };
        self.stand_up(SeatBy::Reservation(id), &reservation);
        for held in reservation.claims {
            self.reservations.by_claim.remove(&held.claim);
            self.reservations.written.remove(&held.claim);
            self.unhold(id, &held);
        }
    }

    /// The claim was allocated for this reservation, in this resourceVersion. A watch that broke may never show that state,
    /// only what came after it, as when the devices of a claim that stays were given back.
    pub fn written(&mut self, id: ReservationId, claim: Key, version: Name) {
        if self.reservations.by_claim.get(&claim) != Some(&id) {
            return;
        }
        self.reservations.written.insert(claim.clone(), version);
        let now = self.snapshot.claims.get(&claim).cloned();
        self.confirm(&claim, now.as_deref());
    }

    pub fn reservations(&self) -> usize {
        self.reservations.live.len()
    }

    pub(super) fn reservation(&self, id: ReservationId) -> Option<&Reservation> {
        self.reservations.live.get(&id)
    }

    /// The reservation that is about to allocate the claim.
    pub(super) fn allocating(&self, claim: &Key) -> Option<ReservationId> {
        self.reservations.by_claim.get(claim).copied()
    }

    /// The slot is no longer the reservation's to keep.
    pub(super) fn end_slot(&mut self, id: ReservationId, claim: &Key) {
        let Some(reservation) = self.reservations.live.get_mut(&id) else {
            return;
        };
        let ended = Reservation {
            claims: vec![],
            slots: reservation
                .slots
                .iter()
                .filter(|s| s.claim == *claim)
                .cloned()
                .collect(),
            ..reservation.clone()
        };
        reservation.slots.retain(|s| s.claim != *claim);
        self.reservations.end_if_empty(id);
        self.stand_up(SeatBy::Reservation(id), &ended);
    }

    /// The claim has become `now` (None: it is gone): does a reservation still need to hold devices for it?
    pub(super) fn confirm(&mut self, key: &Key, now: Option<&Claim>) {
        let Some(id) = self.reservations.by_claim.get(key) else {
            return;
        };
        let uid = self.reservations.live.get(id).and_then(|r| {
            let held = r.claims.iter().find(|c| c.claim == *key)?;
            Some(&held.uid)
        });
        let past = |c: &Claim| {
            let written = self.reservations.written.get(key);
            written.is_some_and(|w| !w.is_empty() && not_older(&c.resource_version, w))
        };
        if now.is_some_and(|c| c.allocation.is_none() && Some(&c.uid) == uid && !past(c)) {
            return;
        }
        if let Some((id, held)) = self.reservations.take(key) {
            self.unhold(id, &held);
            self.stale_shares.insert(key.clone());
        }
    }

    fn unhold(&mut self, id: ReservationId, held: &ReservedClaim) {
        let holder = Holder::Reservation(id, held.claim.clone());
        let touched = self.ledger.drop(&holder, &held.results);
        self.stale_states.extend(touched);
    }

    /// Whether all of it is there to be had if these holds were gone.
    pub(super) fn takeable(&self, wanted: &Reservation, lifted: &BTreeSet<HoldId>) -> Result<(), String> {
        if !wanted.claims.is_empty()
            && let Some(words) = self.unread.words()
        {
            return Err(words);
        }
        let mut scratch: BTreeMap<PoolKey, PoolState> = BTreeMap::new();
        for (i, claim) in wanted.claims.iter().enumerate() {
            self.reservable(claim, &wanted.claims[..i])?;
            self.fits(&wanted.node, &claim.results, lifted, &mut scratch)?;
        }
        self.affords(wanted, lifted)
    }

    fn reservable(&self, wanted: &ReservedClaim, before: &[ReservedClaim]) -> Result<(), String> {
        let name = &wanted.claim;
        let Some(claim) = self.snapshot.claims.get(name) else {
            return Err(format!("claim {name} is gone"));
        };
        if claim.uid != wanted.uid {
            return Err(format!("claim {name} was replaced by another of its name"));
        }
        if claim.allocation.is_some() {
            return Err(format!("claim {name} is allocated already"));
        }
        if claim.deleting {
            return Err(format!("claim {name} is being deleted"));
        }
        let twice = before.iter().any(|b| b.claim == *name);
        if twice || self.reservations.by_claim.contains_key(name) {
            return Err(format!("claim {name} is being allocated by an earlier attempt"));
        }
        Ok(())
    }

    fn fits(
        &self,
        node: &Name,
        results: &[DeviceResult],
        lifted: &BTreeSet<HoldId>,
        scratch: &mut BTreeMap<PoolKey, PoolState>,
    ) -> Result<(), String> {
        let entry = self.snapshot.node_named(node);
        for result in results {
            let key = PoolKey::of(&result.id);
            let found = self
                .pools
                .get(&key)
                .and_then(|r| Some((r.ix, self.snapshot.pool(r.ix)?)));
            let Some((ix, published)) = found else {
                return Err(format!("device {}: its pool is gone", result.id));
            };
            let seen = entry.and_then(|e| e.pools.iter().find(|v| v.pool == ix));
            match seen.map_or(&published.pool.health, |v| v.health(&published.pool)) {
                PoolHealth::Complete => {}
                PoolHealth::Held(who) | PoolHealth::Lost(who) => {
                    return Err(format!("device {} may be in use: {who}", result.id));
                }
                _ => return Err(format!("device {}: its pool is being updated", result.id)),
            }
            let bare = |state: &PoolState| state.without_holds(lifted).into_owned();
            let state = scratch.entry(key.clone()).or_insert_with(|| bare(published));
            match Use::of(result) {
                Some(held) => {
                    usage::check(state, &held).map_err(|why| format!("device {} {why}", result.id))?;
                    state.add(&held);
                    for other in self.absent.seen_in(&key) {
                        let Some(published) = self.pools.get(other).and_then(|r| self.snapshot.pool(r.ix)) else {
                            continue;
                        };
                        let state = scratch.entry(other.clone()).or_insert_with(|| bare(published));
                        state.add(&beside(&held, &key.name));
                    }
                }
                None if !state.pool.by_name.contains_key(&result.id.device) => {
                    return Err(format!("device {} does not exist any more", result.id));
                }
                None => {}
            }
        }
        Ok(())
    }
}
