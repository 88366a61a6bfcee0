//! The ledger of one search: what the devices chosen so far take, and whether one more may join them. Every `take`
//! has its `give_back`, in reverse order.

use super::view::{Candidate, Offer, View, given, left};
use crate::model::{AttributeValue, ConstraintKind};

/// What a search does not look at, to find out which rule stands in the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Relaxed {
    pub(super) constraints: bool,
    pub(super) classes: bool,
    /// Counters, shares, and devices being given once.
    pub(super) room: bool,
}

pub(super) struct State<'v> {
    view: &'v View<'v>,
    relaxed: Relaxed,
    /// By device: the claims that chose it, as bits.
    holders: Vec<u64>,
    /// By device: how often it was chosen as a share.
    shares: Vec<u32>,
    /// By device: what chosen shares take of each capacity, in nanos; empty: nothing.
    consumed: Vec<Vec<i128>>,
    /// (pool, set, counter), what chosen devices draw, in nanos. A handful of entries: a scan.
    drawn: Vec<((usize, usize, usize), i128)>,
    /// By rule: the values of the devices chosen under it, in order.
    values: Vec<Vec<&'v AttributeValue>>,
}

impl<'v> State<'v> {
    pub(super) fn new(view: &'v View<'v>, relaxed: Relaxed) -> Self {
        Self {
            view,
            relaxed,
            holders: vec![0; view.devices.len()],
            shares: vec![0; view.devices.len()],
            consumed: vec![vec![]; view.devices.len()],
            drawn: vec![],
            values: vec![vec![]; view.rules.len()],
        }
    }

    /// Takes the device for the claim, or says no and changes nothing.
    pub(super) fn take(&mut self, claim: usize, offer: &Offer<'v>, candidate: &Candidate) -> bool {
        let admin = offer.alternative.request.admin_access;
        if !self.unheld(claim, candidate, admin) || !self.agrees(offer, candidate) {
            return false;
        }
        if !self.relaxed.room && !admin && !self.has_room(candidate) {
            return false;
        }
        for rule in &offer.rules {
            self.values[*rule].extend(self.view.rules[*rule].values[candidate.dev]);
        }
        if !admin {
            self.draw(candidate, 1);
        }
        if candidate.takes.is_none() || admin {
            self.holders[candidate.dev] |= 1 << claim;
        }
        true
    }

    /// Undoes the last `take` that is not undone.
    pub(super) fn give_back(&mut self, claim: usize, offer: &Offer<'v>, candidate: &Candidate) {
        let admin = offer.alternative.request.admin_access;
        for rule in &offer.rules {
            if self.view.rules[*rule].values[candidate.dev].is_some() {
                self.values[*rule].pop();
            }
        }
        if !admin {
            self.draw(candidate, -1);
        }
        if candidate.takes.is_none() || admin {
            self.holders[candidate.dev] &= !(1 << claim);
        }
    }

    /// matchAttribute and distinctAttribute; a device without the attribute satisfies neither. Comparison is typed.
    fn agrees(&self, offer: &Offer<'v>, candidate: &Candidate) -> bool {
        self.relaxed.constraints
            || offer.rules.iter().all(|rule| {
                let Some(value) = self.view.rules[*rule].values[candidate.dev] else {
                    return false;
                };
                let chosen = &self.values[*rule];
                match self.view.rules[*rule].constraint.kind {
                    ConstraintKind::MatchAttribute => chosen.first().is_none_or(|v| **v == *value),
                    ConstraintKind::DistinctAttribute => chosen.iter().all(|v| **v != *value),
                }
            })
    }

    /// A device goes to one taker; for admin access to one of each claim.
    pub(super) fn unheld(&self, claim: usize, candidate: &Candidate, admin: bool) -> bool {
        let holders = self.holders[candidate.dev];
        match (admin, &candidate.takes) {
            (true, _) => holders & (1 << claim) == 0,
            (false, Some(_)) => true,
            (false, None) => holders == 0 || self.relaxed.room,
        }
    }

    fn has_room(&self, candidate: &Candidate) -> bool {
        let dev = &self.view.devices[candidate.dev];
        let state = self.view.pools[dev.pool];
        if let Some(takes) = &candidate.takes {
            let given = given(&dev.info.device, state, dev.at);
            let consumed = &self.consumed[candidate.dev];
            let mut capacities = dev.info.device.capacity.iter().zip(takes).zip(given).enumerate();
            let fits = capacities.all(|(i, (((_, capacity), takes), given))| {
                takes.nanos() + given + consumed.get(i).copied().unwrap_or(0) <= capacity.value.nanos()
            });
            if !fits {
                return false;
            }
        }
        self.counts_already(candidate)
            || dev.counters.iter().all(|(set, counter, amount)| {
                let key = (dev.pool, *set, *counter);
                let drawn: i128 = self.drawn.iter().filter(|(k, _)| *k == key).map(|(_, n)| n).sum();
                left(state, *set, *counter) - drawn >= *amount
            })
    }

    /// A shared device draws its counters once, with the first share.
    fn counts_already(&self, candidate: &Candidate) -> bool {
        candidate.takes.is_some() && (self.view.devices[candidate.dev].shared || self.shares[candidate.dev] > 0)
    }

    fn draw(&mut self, candidate: &Candidate, sign: i128) {
        let dev = &self.view.devices[candidate.dev];
        if let Some(takes) = &candidate.takes {
            if sign < 0 {
                self.shares[candidate.dev] -= 1;
            }
            let consumed = &mut self.consumed[candidate.dev];
            consumed.resize(takes.len(), 0);
            consumed
                .iter_mut()
                .zip(takes)
                .for_each(|(sum, takes)| *sum += sign * takes.nanos());
        }
        if !self.counts_already(candidate) {
            for (set, counter, amount) in &dev.counters {
                let key = (dev.pool, *set, *counter);
                match self.drawn.iter_mut().find(|(k, _)| *k == key) {
                    Some((_, sum)) => *sum += sign * amount,
                    None => self.drawn.push((key, sign * amount)),
                }
            }
        }
        if candidate.takes.is_some() && sign > 0 {
            self.shares[candidate.dev] += 1;
        }
    }
}
