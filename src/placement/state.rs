//! The ledger of one search: what the devices chosen so far take, and whether one more may join them. Every `take`
//! has its `give_back`, in reverse order.

use super::limit::Tally;
use super::offer::{Candidate, Offer, given, left};
use super::power::Meter;
use super::slots::{Loss, Taken};
use super::view::View;
use crate::model::{AttributeValue, ConstraintKind};

/// What a search does not look at, to find out which rule stands in the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Relaxed {
    pub(super) constraints: bool,
    pub(super) classes: bool,
    pub(super) topology: bool,
    pub(super) power: bool,
    /// How many cards the pod may hold.
    pub(super) limit: bool,
    /// One mode for all devices of a node.
    pub(super) modes: bool,
    /// Counters, shares, and devices being given once.
    pub(super) room: bool,
}

pub(super) struct State<'v> {
    view: &'v View<'v>,
    relaxed: Relaxed,
    /// By device.
    chosen: Vec<Chosen>,
    /// (pool, set, counter), what chosen devices draw, in nanos. A handful of entries: a scan.
    drawn: Vec<((usize, usize, usize), i128)>,
    /// By rule: the values of the devices chosen under it, in order.
    values: Vec<Vec<&'v AttributeValue>>,
    /// Of the chosen devices that need a mode of the node: pool, and which. All of a pool are the same.
    modes: Vec<(usize, usize)>,
    /// None: no budget, or not looked at.
    meter: Option<Meter<'v>>,
    /// None: no limit of cards, or not looked at.
    tally: Option<Tally<'v>>,
    /// None: no device is cut from a card.
    cuts: Option<Taken<'v>>,
}

#[derive(Clone, Default)]
struct Chosen {
    /// The claims that chose it, as bits.
    holders: u64,
    /// How often it was chosen as a share.
    shares: u32,
    /// What chosen shares take of each capacity, in nanos; empty: nothing.
    consumed: Vec<i128>,
}

impl<'v> State<'v> {
    pub(super) fn new(view: &'v View<'v>, relaxed: Relaxed) -> Self {
        Self {
            view,
            relaxed,
            chosen: vec![Chosen::default(); view.devices.len()],
            drawn: vec![],
            values: vec![vec![]; view.rules.len()],
            modes: vec![],
            meter: view.budget.as_ref().filter(|_| !relaxed.power).map(Meter::new),
            tally: view.limit.as_ref().filter(|_| !relaxed.limit).map(Tally::new),
            cuts: (!view.slots.is_empty()).then(|| view.slots.start()),
        }
    }

    /// Whether the device may join what is chosen so far.
    pub(super) fn fits(&self, claim: usize, offer: &Offer<'v>, candidate: &Candidate) -> bool {
        let admin = offer.alternative.request.admin_access;
        self.agrees(offer, candidate)
            && self.unheld(claim, candidate, admin)
            && (admin || self.is_of_mode(candidate))
            && (self.relaxed.room || admin || self.has_room(candidate))
            && (admin || self.meter.as_ref().is_none_or(|m| m.fits(candidate)))
            && (admin || self.tally.as_ref().is_none_or(|t| t.fits(candidate)))
    }

    /// Whether the budget could bear so many watts more.
    pub(super) fn affords(&self, watts: u64) -> bool {
        self.meter.as_ref().is_none_or(|m| m.affords(watts))
    }

    /// What others lose by the device, beside what is chosen.
    pub(super) fn loss(&self, candidate: &Candidate) -> Loss {
        let Some(cuts) = self.cuts.as_ref().filter(|_| !self.counts_already(candidate)) else {
            return Loss::default();
        };
        let dev = &self.view.devices[candidate.dev];
        let first = |mode: &usize| !self.modes.contains(&(dev.pool, *mode));
        let begun = dev
            .mode
            .filter(first)
            .map(|mode| self.view.slots.mode_loses(dev.pool, mode));
        cuts.loses(candidate.dev).plus(begun.unwrap_or_default())
    }

    /// What the device is interchangeable with for the card it is cut from, where nothing is chosen of that card.
    pub(super) fn cut_of_untouched(&self, dev: usize) -> Option<(usize, usize)> {
        self.cuts.as_ref()?.untouched(dev)
    }

    /// Takes the device for the claim, or says no and changes nothing.
    pub(super) fn take(&mut self, claim: usize, offer: &Offer<'v>, candidate: &Candidate) -> bool {
        let admin = offer.alternative.request.admin_access;
        if !self.fits(claim, offer, candidate) {
            return false;
        }
        for rule in &offer.rules {
            self.values[*rule].extend(self.view.rules[*rule].values[candidate.dev]);
        }
        if !admin {
            let counts_already = self.counts_already(candidate);
            self.draw(candidate, 1);
            let dev = &self.view.devices[candidate.dev];
            self.modes.extend(dev.mode.map(|mode| (dev.pool, mode)));
            if let Some(meter) = &mut self.meter {
                meter.take(candidate);
            }
            if let Some(tally) = &mut self.tally {
                tally.take(candidate);
            }
            if let Some(cuts) = self.cuts.as_mut().filter(|_| !counts_already) {
                cuts.take(candidate.dev);
            }
        }
        if candidate.takes.is_none() {
            self.chosen[candidate.dev].holders |= 1 << claim;
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
            if self.view.devices[candidate.dev].mode.is_some() {
                self.modes.pop();
            }
            if let Some(meter) = &mut self.meter {
                meter.give_back(candidate);
            }
            if let Some(tally) = &mut self.tally {
                tally.give_back(candidate);
            }
            let counts_still = self.counts_already(candidate);
            if let Some(cuts) = self.cuts.as_mut().filter(|_| !counts_still) {
                cuts.give_back(candidate.dev);
            }
        }
        if candidate.takes.is_none() {
            self.chosen[candidate.dev].holders &= !(1 << claim);
        }
    }

    /// matchAttribute and distinctAttribute; a device without the attribute satisfies neither.
    fn agrees(&self, offer: &Offer<'v>, candidate: &Candidate) -> bool {
        self.relaxed.constraints
            || offer.rules.iter().all(|rule| {
                let Some(value) = self.view.rules[*rule].values[candidate.dev] else {
                    return false;
                };
                let chosen = &self.values[*rule];
                match self.view.rules[*rule].constraint.kind {
                    ConstraintKind::MatchAttribute => share_element(chosen, value),
                    ConstraintKind::DistinctAttribute => {
                        share_element(&[], value) && !chosen.iter().any(|v| share_element(&[v], value))
                    }
                }
            })
    }

    /// What is chosen of its node needs the same mode. What is in use already was looked at before.
    fn is_of_mode(&self, candidate: &Candidate) -> bool {
        let dev = &self.view.devices[candidate.dev];
        let Some(mode) = dev.mode else { return true };
        let mut of_node = self.modes.iter().filter(|(pool, _)| *pool == dev.pool);
        self.relaxed.modes || of_node.next().is_none_or(|(_, chosen)| *chosen == mode)
    }

    /// A device goes to one taker; for admin access to one of each claim. One that is shared goes to any number.
    pub(super) fn unheld(&self, claim: usize, candidate: &Candidate, admin: bool) -> bool {
        let holders = self.chosen[candidate.dev].holders;
        let twins = &self.view.devices[candidate.dev].twins;
        let chosen = |t: &usize| self.chosen[*t].holders != 0 || self.chosen[*t].shares != 0;
        if !admin && !self.relaxed.room && twins.iter().any(chosen) {
            return false;
        }
        match (admin, &candidate.takes) {
            (_, Some(_)) => true,
            (true, None) => holders & (1 << claim) == 0,
            (false, None) => holders == 0 || self.relaxed.room,
        }
    }

    fn has_room(&self, candidate: &Candidate) -> bool {
        let dev = &self.view.devices[candidate.dev];
        let state = self.view.pools[dev.pool];
        if let Some(takes) = &candidate.takes {
            let given = given(&dev.info.device, state, dev.at);
            let consumed = &self.chosen[candidate.dev].consumed;
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
        candidate.takes.is_some() && (self.view.devices[candidate.dev].shared || self.chosen[candidate.dev].shares > 0)
    }

    fn draw(&mut self, candidate: &Candidate, sign: i128) {
        let dev = &self.view.devices[candidate.dev];
        if let Some(takes) = &candidate.takes {
            if sign < 0 {
                self.chosen[candidate.dev].shares -= 1;
            }
            let consumed = &mut self.chosen[candidate.dev].consumed;
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
            self.chosen[candidate.dev].shares += 1;
        }
    }
}

/// Whether one element is in all of the values. A plain value is a list of one, an empty list has nothing in common
/// with anything. Typed: a version is never a string. As in-tree with list attributes enabled, where two values match
/// when they have an element in common, and are distinct when they have none.
fn share_element(chosen: &[&AttributeValue], value: &AttributeValue) -> bool {
    use AttributeValue::{Bool, Bools, Int, Ints, String, Strings, Version, Versions};
    // Scalar and list of one type, as one slice; none for another type.
    macro_rules! in_all {
        ($one:ident, $many:ident, $elements:expr) => {
            $elements.iter().any(|element| {
                chosen.iter().all(|other| match other {
                    $one(x) => x == element,
                    $many(list) => list.contains(element),
                    _ => false,
                })
            })
        };
    }
    match value {
        Int(x) => in_all!(Int, Ints, [*x]),
        Ints(list) => in_all!(Int, Ints, list),
        Bool(x) => in_all!(Bool, Bools, [*x]),
        Bools(list) => in_all!(Bool, Bools, list),
        String(x) => in_all!(String, Strings, std::slice::from_ref(x)),
        Strings(list) => in_all!(String, Strings, list),
        Version(x) => in_all!(Version, Versions, std::slice::from_ref(x)),
        Versions(list) => in_all!(Version, Versions, list),
    }
}

#[cfg(test)]
mod tests {
    use super::share_element;
    use crate::model::AttributeValue::{Bools, Int, Ints, String, Strings, Version};

    #[test]
    fn values_match_by_a_common_element_of_one_type() {
        let list = |names: &[&str]| Strings(names.iter().map(|n| (*n).into()).collect());
        let (xy, yz, zx) = (list(&["x", "y"]), list(&["y", "z"]), list(&["z", "x"]));
        assert!(share_element(&[], &xy) && share_element(&[&xy], &yz) && share_element(&[&xy, &yz], &list(&["y"])));
        assert!(
            !share_element(&[&xy, &yz], &zx),
            "two by two they have one, all three have none"
        );
        assert!(share_element(&[&String("y".into())], &xy) && share_element(&[&xy], &String("y".into())));
        assert!(share_element(&[&Int(1)], &Ints([2, 1].into())) && !share_element(&[&Int(1)], &Int(2)));
        assert!(!share_element(&[&String("1.0.0".into())], &Version("1.0.0".into())));
        assert!(
            !share_element(&[], &Bools([].into())),
            "an empty list matches nothing, itself included"
        );
    }
}
