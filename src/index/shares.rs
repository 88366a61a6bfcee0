//! Slots of shared claims: those that reservations and holds take before the claim says so, and the pods that wait for
//! one, in the order of their creation. A slot of ours ends when the claim shows it, its pod is gone, or its reservation
//! or hold ends; whose turn has passed is told from outside, since here is no clock.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::{HoldId, Index, Key, Reservation, ReservationId};
use crate::model::{Allocation, Claim, Name, NodeSelector, Pod, PodClaimSource, Share};
use crate::snapshot::{Seat, Sharers, Waiting};

/// A slot of a shared claim that a reservation or hold takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedSlot {
    pub claim: Key,
    pub uid: Name,
    /// Pods that may have one at a time.
    pub most: usize,
}

/// By whose doing a pod has a slot. Reservations first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SeatBy {
    Reservation(ReservationId),
    Hold(HoldId),
}

#[derive(Default)]
struct Of {
    seats: BTreeMap<SeatBy, Seat>,
    queue: BTreeSet<Waiting>,
}

#[derive(Default)]
pub(super) struct Shares {
    of: BTreeMap<Key, Of>,
    /// Reservations of a pod that take slots: they end with it.
    by_pod: HashMap<Key, BTreeSet<ReservationId>>,
    /// Pods, by uid, that nobody waits for any more.
    passed: HashSet<Name>,
}

/// The shared claims that a pod waits for a slot of.
fn waits_for(pod: &Pod) -> Vec<Key> {
    let waits = pod.node_name.is_empty() && !pod.deleting && !pod.finished && !pod.gated;
    let shared = pod.claims.iter().filter(|_| waits).filter_map(|c| match &c.source {
        PodClaimSource::Claim(name) => Share::of_name(name).map(|_| pod.claim_key(name)),
        PodClaimSource::Template(_) | PodClaimSource::Other => None,
    });
    shared.collect()
}

impl Index {
    pub(super) fn sit(&mut self, by: SeatBy, wanted: &Reservation) {
        for slot in &wanted.slots {
            let seat = Seat {
                pod: wanted.pod.name.clone(),
                pod_uid: wanted.pod_uid.clone(),
                hold: match by {
                    SeatBy::Hold(id) => Some(id),
                    SeatBy::Reservation(_) => None,
                },
            };
            self.shares
                .of
                .entry(slot.claim.clone())
                .or_default()
                .seats
                .insert(by, seat);
            self.stale_shares.insert(slot.claim.clone());
        }
        if let SeatBy::Reservation(id) = by
            && !wanted.slots.is_empty()
        {
            self.shares.by_pod.entry(wanted.pod.clone()).or_default().insert(id);
        }
    }

    pub(super) fn stand_up(&mut self, by: SeatBy, held: &Reservation) {
        for slot in &held.slots {
            if let Some(of) = self.shares.of.get_mut(&slot.claim) {
                of.seats.remove(&by);
            }
            self.stale_shares.insert(slot.claim.clone());
        }
        if let SeatBy::Reservation(id) = by
            // Of a pod with several shared claims one may have ended before the others.
            && self.reservation(id).is_none_or(|left| left.slots.is_empty())
            && let Some(ids) = self.shares.by_pod.get_mut(&held.pod)
        {
            ids.remove(&id);
            if ids.is_empty() {
                self.shares.by_pod.remove(&held.pod);
            }
        }
    }

    /// Whether there is a slot for the pod. Holds of others count where `holds` says so.
    pub(super) fn seatable(&self, wanted: &Reservation, holds: bool) -> Result<(), String> {
        for slot in &wanted.slots {
            let name = &slot.claim;
            let claim = self
                .snapshot
                .claims
                .get(name)
                .filter(|c| c.uid == slot.uid && !c.deleting);
            let Some(claim) = claim else {
                return Err(format!("claim {name} is gone or being deleted"));
            };
            let mut users: BTreeSet<&Name> = claim.reserved_for.iter().map(|c| &c.uid).collect();
            let seats = self.shares.of.get(name).into_iter().flat_map(|of| of.seats.values());
            users.extend(seats.filter(|s| holds || s.hold.is_none()).map(|s| &s.pod_uid));
            users.remove(&wanted.pod_uid);
            if users.len() >= slot.most {
                return Err(format!("all {} slots of claim {name} are taken", slot.most));
            }
        }
        Ok(())
    }

    /// The claim has become `now` (None: it is gone): slots that it shows are no longer ours to keep.
    pub(super) fn confirm_slots(&mut self, key: &Key, now: Option<&Claim>) {
        let Some(of) = self.shares.of.get(key) else { return };
        let shown = |seat: &Seat| now.is_some_and(|c| c.reserved_for.iter().any(|r| r.uid == seat.pod_uid));
        let reserved = of.seats.iter().filter_map(|(by, seat)| match by {
            SeatBy::Reservation(id) => Some((*id, seat)),
            SeatBy::Hold(_) => None,
        });
        let ended = reserved.filter(|(id, seat)| {
            let same = |slot: &WantedSlot| slot.claim == *key && now.is_some_and(|c| c.uid == slot.uid);
            shown(seat) || !self.reservation(*id).is_some_and(|r| r.slots.iter().any(same))
        });
        let ended: Vec<ReservationId> = ended.map(|(id, _)| id).collect();
        for id in ended {
            self.end_slot(id, key);
        }
        self.stale_shares.insert(key.clone());
    }

    /// The pod was and is: slots that are reserved for one that is gone end, and it enters or leaves the queues.
    pub(super) fn shares_of_pod(&mut self, key: &Key, old: Option<&Pod>, new: Option<&Pod>) {
        let gone = |id: &ReservationId| {
            let uid = self.reservation(*id).map(|r| &r.pod_uid);
            !new.is_some_and(|pod| Some(&pod.uid) == uid && !pod.finished)
        };
        let ids = self.shares.by_pod.get(key).into_iter().flatten().copied();
        let ended: Vec<ReservationId> = ids.filter(gone).collect();
        for id in ended {
            let claims = self.reservation(id).map(|r| r.slots.iter().map(|s| s.claim.clone()));
            for claim in claims.into_iter().flatten().collect::<Vec<_>>() {
                self.end_slot(id, &claim);
            }
        }
        if let Some(pod) = old {
            for claim in waits_for(pod) {
                if let Some(of) = self.shares.of.get_mut(&claim) {
                    of.queue.remove(&Waiting::of(pod));
                }
                self.stale_shares.insert(claim);
            }
        }
        let waits = new.map_or_else(Vec::new, waits_for);
        if let Some(pod) = old.filter(|_| waits.is_empty()) {
            self.shares.passed.remove(&pod.uid);
        }
        for (claim, pod) in waits.into_iter().zip(std::iter::repeat(new)) {
            let queue = &mut self.shares.of.entry(claim.clone()).or_default().queue;
            queue.extend(pod.map(Waiting::of));
            self.stale_shares.insert(claim);
        }
    }

    /// Publishes what is known of the claim's sharers.
    pub(super) fn settle_share(&mut self, key: &Key) {
        let Some(of) = self.shares.of.get(key) else { return };
        if of.seats.is_empty() && of.queue.is_empty() {
            self.shares.of.remove(key);
            if self.snapshot.sharers.remove(key).is_some() {
                (self.changed, self.loosened) = (true, true);
            }
            return;
        }
        let waiting = of.queue.iter().filter(|w| !self.shares.passed.contains(&w.pod_uid));
        let new = Sharers {
            seats: of.seats.values().cloned().collect(),
            coming: self.coming(key),
            queue: waiting.cloned().collect(),
        };
        let old = self.snapshot.sharers.get(key);
        if old.is_some_and(|old| **old == new) {
            return;
        }
        // Somebody else may have the slot, or is the oldest, now.
        self.loosened |= old.is_some_and(|old| {
            old.seats.iter().any(|s| !new.seats.contains(s))
                || old.queue.iter().any(|w| new.queue.binary_search(w).is_err())
        });
        self.snapshot.sharers.insert(key.clone(), Arc::new(new));
        self.changed = true;
    }

    /// What a reservation is about to write to the claim.
    fn coming(&self, key: &Key) -> Option<(Name, Arc<Allocation>)> {
        let reservation = self.reservation(self.allocating(key)?)?;
        let claim = reservation.claims.iter().find(|c| c.claim == *key)?;
        let allocation = Allocation {
            results: claim.results.clone(),
            config: vec![],
            node_selector: Some(Arc::new(NodeSelector::for_node(&reservation.node))),
        };
        Some((reservation.pod_uid.clone(), Arc::new(allocation)))
    }

    /// Pods, by uid, for which a slot of their claim is free and which are the oldest that wait for it.
    pub fn turns(&mut self) -> Vec<Name> {
        self.settle();
        let mut turns = vec![];
        for (key, sharers) in self.snapshot.sharers.iter().filter(|(_, s)| !s.queue.is_empty()) {
            let claim = self.snapshot.claims.get(key);
            let Some((claim, share)) = claim.and_then(|c| Some((c, c.share()?))) else {
                continue;
            };
            // As placement counts: where policy gives fewer than the claim's name says, a slot too many would be the turn of
            // one pod after the other, and each would lose its place by not taking it.
            let namespace = self.snapshot.namespaces.get(&key.namespace).map(|n| &n.labels);
            let slots = share.slots.min(self.classifier.slots(namespace)) as usize;
            let users = self.snapshot.users(claim);
            let without = sharers.queue.iter().filter(|w| !users.contains(&(&w.pod_uid, &w.pod)));
            let first = without.take(slots.saturating_sub(users.len()));
            turns.extend(first.map(|w| w.pod_uid.clone()));
        }
        turns
    }

    /// Nobody waits for the pod (by uid) any more, or everybody does again, as long as it waits itself.
    pub fn pass_over(&mut self, uid: &Name, passed: bool) {
        let changed = match passed {
            true => self.shares.passed.insert(uid.clone()),
            false => self.shares.passed.remove(uid),
        };
        if changed {
            let waits = |of: &Of| of.queue.iter().any(|w| w.pod_uid == *uid);
            let claims = self.shares.of.iter().filter(|(_, of)| waits(of)).map(|(key, _)| key);
            self.stale_shares.extend(claims.cloned());
        }
    }
}
