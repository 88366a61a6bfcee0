//! Cards of one node that can be cut: what a choice of partitions takes from those who ask next.

use std::collections::BTreeMap;

use super::view::View;
use crate::model::Name;
use crate::partition::{Shape, State};
use crate::snapshot::PoolState;

/// The cards that devices of a view are cut from.
#[derive(Debug, Default)]
pub(super) struct Slots<'a> {
    cards: Vec<Card<'a>>,
    /// By device of the view: its card, and which cut of it. Empty: no device is cut from a card.
    of: Vec<Option<(usize, usize)>>,
    /// By pool of the view and mode of its node (`Summary::modes`), what others lose when the mode is put in force: the
    /// partitions of all others. Only where none is yet.
    modes: Vec<((usize, usize), u32)>,
    /// By device: the first of its card that is like it, by its place among the card's.
    ranks: Vec<usize>,
}

#[derive(Debug)]
struct Card<'a> {
    /// Pool of the view, and card of the pool.
    of: (usize, usize),
    shape: &'a Shape,
    /// None: an occupancy no choice of devices leads to; nothing is known then of what is lost.
    state: Option<State>,
    /// How much each profile is asked for; empty: all alike.
    mix: Vec<u32>,
    /// Cards that no request, rule or cost can tell apart have one number: as long as nothing is chosen of either, the
    /// devices of one stand for those of the other.
    kind: usize,
}

impl<'a> Slots<'a> {
    pub(super) fn of(view: &View<'a>, mix: &[(Name, u32)]) -> Self {
        let mut slots = Self::default();
        for (i, dev) in view.devices.iter().enumerate() {
            let pool = view.pools[dev.pool];
            // Its counters are drawn already: one share more takes nothing from others.
            if dev.shared {
                continue;
            }
            let Some((card, cut)) = pool.pool.cuts.of(dev.at) else {
                continue;
            };
            let of = (dev.pool, card);
            // Devices of one card mostly follow each other.
            let known = slots.cards.iter().rposition(|c| c.of == of);
            let at = known.unwrap_or_else(|| {
                let card = &pool.pool.cuts.cards[card];
                slots.cards.push(Card {
                    of,
                    shape: &card.shape,
                    state: card.state(pool),
                    mix: weights(card.shape.profiles(), mix),
                    kind: usize::MAX,
                });
                slots.cards.len() - 1
            });
            slots.of.resize(view.devices.len(), None);
            slots.of[i] = Some((at, cut));
        }
        for (pool, state) in view.pools.iter().enumerate() {
            // One for all the cards of most drivers.
            if state.modes.is_empty() && state.pool.summary().modes.len() > 1 {
                slots.add_modes(pool, state, mix);
            }
        }
        slots
    }

    fn add_modes(&mut self, pool: usize, state: &PoolState, mix: &[(Name, u32)]) {
        // By mode, profile and card: once, however many devices are one.
        let mut worth: BTreeMap<(usize, usize, usize), u64> = BTreeMap::new();
        let modes = state.pool.summary().modes.iter().enumerate();
        for (mode, at) in modes.flat_map(|(mode, (_, of))| of.iter().map(move |at| (mode, at))) {
            let Some((card, cut)) = state.pool.cuts.of(at) else {
                continue;
            };
            let of_card = &state.pool.cuts.cards[card];
            let (shape, profile) = (&of_card.shape, of_card.shape.profile(cut));
            worth.entry((mode, card, profile)).or_insert_with(|| {
                let weights = weights(shape.profiles(), mix);
                let left = of_card.state(state);
                left.map_or(0, |left| shape.worth_of(left, profile, &weights))
            });
        }
        let of = |mode: usize| {
            worth
                .iter()
                .filter(move |((m, ..), _)| *m != mode)
                .map(|(_, worth)| worth)
        };
        let all = (0..state.pool.summary().modes.len()).map(|mode| {
            let lost = of(mode).fold(0, |sum: u64, worth| sum.saturating_add(*worth));
            ((pool, mode), u32::try_from(lost).unwrap_or(u32::MAX))
        });
        self.modes.extend(all);
    }

    /// What others lose when the mode is put in force on the node of a pool of the view.
    pub(super) fn mode_loses(&self, pool: usize, mode: usize) -> Loss {
        let known = self.modes.iter().find(|(of, _)| *of == (pool, mode));
        Loss {
            lost: known.map_or(0, |(_, lost)| *lost),
            vacant: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Numbers cards and their devices: `alike` is what devices are told apart by, beside their card.
    pub(super) fn sort_cards<K: PartialEq>(&mut self, alike: impl Fn(usize) -> K) {
        // A cut, and which of the few things there are to see beside it.
        let mut devices: Vec<Vec<(usize, usize)>> = self.cards.iter().map(|_| vec![]).collect();
        let mut sights: Vec<K> = vec![];
        self.ranks = vec![0; self.of.len()];
        for (dev, of) in self.of.iter().enumerate() {
            let Some((card, cut)) = of else { continue };
            let seen = alike(dev);
            let seen = sights.iter().position(|s| *s == seen).unwrap_or_else(|| {
                sights.push(seen);
                sights.len() - 1
            });
            let (of_card, sight) = (&mut devices[*card], (*cut, seen));
            self.ranks[dev] = of_card.iter().position(|d| *d == sight).unwrap_or(of_card.len());
            of_card.push(sight);
        }
        let mut seen = vec![];
        for (card, devices) in self.cards.iter_mut().zip(devices) {
            let sight = (std::ptr::from_ref(card.shape), card.state, devices);
            card.kind = seen.iter().position(|s| *s == sight).unwrap_or_else(|| {
                seen.push(sight);
                seen.len() - 1
            });
        }
    }

    pub(super) fn card_of(&self, dev: usize) -> Option<usize> {
        Some((*self.of.get(dev)?)?.0)
    }

    /// The least that it takes from others, whatever is chosen beside it.
    pub(super) fn least(&self, dev: usize) -> u32 {
        let Some((card, cut)) = self.of.get(dev).copied().flatten() else {
            return 0;
        };
        let card = &self.cards[card];
        card.state.map_or(0, |_| card.shape.least(cut, &card.mix))
    }

    pub(super) fn start(&self) -> Taken<'_> {
        Taken {
            slots: self,
            states: self.cards.iter().map(|c| c.state).collect(),
            touched: vec![0; self.cards.len()],
            undo: vec![],
        }
    }
}

/// By profile: as much as it is asked for, and as much as all are in the mean; nothing where policy says that nobody asks. A mix that is believed whole takes the
/// rare large partitions for worthless, and then refuses more of them than it serves of the small ones (loadtest, `mig`).
fn weights(profiles: &[Name], mix: &[(Name, u32)]) -> Vec<u32> {
    if mix.is_empty() {
        return vec![];
    }
    let asked = |profile| mix.iter().find(|(name, _)| name == profile).map_or(1, |(_, n)| *n);
    let sum = profiles.iter().map(asked).fold(0, u32::saturating_add);
    let of = u32::try_from(profiles.len()).unwrap_or(u32::MAX);
    let weight = |profile| match asked(profile) {
        0 => 0,
        asked => asked.saturating_mul(of).saturating_add(sum),
    };
    profiles.iter().map(weight).collect()
}

/// What others lose by a choice, and how empty the cards are that it begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Loss {
    /// Partitions that fit no more, each by the part of a card it takes, in thousandths, and how much it is asked for.
    pub(super) lost: u32,
    /// What was left of the cards that are cut for it, in thousandths.
    pub(super) vacant: u32,
}

impl Loss {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            lost: self.lost.saturating_add(other.lost),
            vacant: self.vacant.saturating_add(other.vacant),
        }
    }
}

/// The occupancies of one search.
pub(super) struct Taken<'v> {
    slots: &'v Slots<'v>,
    states: Vec<Option<State>>,
    /// By card: how many devices of it are chosen.
    touched: Vec<u32>,
    undo: Vec<(usize, Option<State>)>,
}

impl Taken<'_> {
    /// What the device costs beside what is chosen already.
    pub(super) fn loses(&self, dev: usize) -> Loss {
        let Some((card, cut)) = self.slots.of.get(dev).copied().flatten() else {
            return Loss::default();
        };
        let Some(before) = self.states[card] else {
            return Loss::default();
        };
        let Card { shape, mix, .. } = &self.slots.cards[card];
        let after = shape.after(before, cut).map_or(0, |after| shape.worth(after, mix));
        let vacant = if self.touched[card] == 0 {
            shape.vacant(before)
        } else {
            0
        };
        Loss {
            lost: shape.worth(before, mix).saturating_sub(after),
            vacant,
        }
    }

    pub(super) fn take(&mut self, dev: usize) {
        if let Some((card, cut)) = self.slots.of.get(dev).copied().flatten() {
            let before = self.states[card];
            self.undo.push((card, before));
            self.touched[card] += 1;
            self.states[card] = before.and_then(|b| self.slots.cards[card].shape.after(b, cut));
        }
    }

    /// Undoes the last `take`, which was of this device.
    pub(super) fn give_back(&mut self, dev: usize) {
        if self.slots.card_of(dev).is_none() {
            return;
        }
        if let Some((card, before)) = self.undo.pop() {
            self.touched[card] -= 1;
            self.states[card] = before;
        }
    }

    /// What the device is interchangeable with, where nothing is chosen of its card yet: kind of card, place on it.
    pub(super) fn untouched(&self, dev: usize) -> Option<(usize, usize)> {
        let card = self.slots.card_of(dev)?;
        (self.touched[card] == 0).then(|| (self.slots.cards[card].kind, self.slots.ranks[dev]))
    }
}
