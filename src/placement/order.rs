//! Which candidates of a request a search may use, and in which order it tries them.

use super::key::Chosen;
use super::offer::{Candidate, Offer};
use super::slots::Loss;
use super::state::Relaxed;
use super::view::View;
use crate::topology::{Cards, Nearness};

/// Which devices a pass may use, by wattage class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Classes {
    Any,
    /// Those of this class (a position in `View::classes`; None: no class) and, unless `strictly`, those without one.
    One {
        class: Option<usize>,
        strictly: bool,
    },
}

impl Classes {
    pub(super) fn admit(self, view: &View<'_>, offer: &Offer<'_>, candidate: &Candidate) -> bool {
        let Self::One { class, strictly } = self else {
            return true;
        };
        // Looking at a device, as admin access does, is not running on it.
        if offer.alternative.request.admin_access {
            return true;
        }
        match view.devices[candidate.dev].class {
            None => !(strictly && offer.classed),
            of => of == class,
        }
    }
}

/// The admitted candidates of one request, best first.
pub(super) struct Order {
    pub(super) picks: Vec<usize>,
    /// A selector failed on one of them: whoever looks for too many comes to it before the end.
    pub(super) fails: bool,
    /// A choice can rule out others beyond the device itself, through constraints or counters.
    pub(super) tangled: bool,
    /// Devices are cut from cards, and what others lose orders the picks; else watts do.
    pub(super) cut: bool,
    /// What one of them draws at least.
    pub(super) draws: Option<u32>,
    /// The least that others lose by any of them.
    pub(super) loses: u32,
    /// What draws less is the better choice: no links, no cards of which groups could be broken.
    pub(super) by_power: bool,
    /// How near the cards of the request are at best, whatever else is chosen.
    pub(super) near: Nearness,
    /// The least that a device of it adds to the node's power domains, in watts.
    pub(super) adds: u64,
}

/// How to search.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    pub(super) classes: Classes,
    pub(super) relaxed: Relaxed,
    /// The first find ends the search; candidates in list order.
    pub(super) first_only: bool,
}

/// What the pod draws by it. Looking at a device, as admin access does, draws nothing, and one more share of a card nothing
/// more.
pub(super) fn drawn(view: &View<'_>, offer: &Offer<'_>, candidate: &Candidate) -> Option<u32> {
    if offer.alternative.request.admin_access || view.devices[candidate.dev].shared {
        Some(0)
    } else {
        view.devices[candidate.dev].watts
    }
}

/// A share may take nothing that is not taken already.
fn loses(view: &View<'_>, candidate: &Candidate) -> u32 {
    match candidate.takes {
        Some(_) => 0,
        None => view.slots.least(candidate.dev),
    }
}

/// Cards that lose least by a single device first, each with its own devices together: who needs several fills one card
/// before the next.
fn by_card(view: &View<'_>, offer: &Offer<'_>, picks: &mut [usize]) {
    let dev = |i: &usize| offer.candidates[*i].dev;
    let untouched = view.slots.start();
    let mut least: Vec<Option<Loss>> = vec![];
    for pick in picks.iter() {
        if let Some(card) = view.slots.card_of(dev(pick)) {
            let alone = untouched.loses(dev(pick));
            least.resize(least.len().max(card + 1), None);
            least[card] = Some(least[card].map_or(alone, |known| known.min(alone)));
        }
    }
    picks.sort_by_cached_key(|i| {
        let card = view.slots.card_of(dev(i));
        let of_card = card.and_then(|card| least[card]).unwrap_or_default();
        (of_card, card, untouched.loses(dev(i)))
    });
}

impl Order {
    pub(super) fn of(view: &View<'_>, offer: &Offer<'_>, how: How) -> Self {
        let admitted = |i: &usize| how.classes.admit(view, offer, &offer.candidates[*i]);
        let mut picks = Vec::with_capacity(offer.candidates.len());
        picks.extend((0..offer.candidates.len()).filter(admitted));
        let is_cut = |i: &usize| view.slots.card_of(offer.candidates[*i].dev).is_some();
        let cut = !offer.alternative.request.admin_access && picks.iter().any(is_cut);
        if !how.first_only {
            // Stable: what is equal stays in device order.
            picks.sort_by_key(|i| {
                let watts = drawn(view, offer, &offer.candidates[*i]);
                (watts.is_none(), watts, offer.candidates[*i].dear)
            });
            if cut {
                by_card(view, offer, &mut picks);
            }
        }
        Self {
            fails: picks.iter().any(|i| offer.candidates[*i].failed),
            tangled: !offer.rules.is_empty() || {
                let mut devices = picks.iter().map(|i| &view.devices[offer.candidates[*i].dev]);
                devices.any(|d| !d.counters.is_empty() || d.mode.is_some())
            },
            by_power: {
                let mut devices = picks.iter().map(|i| &view.devices[offer.candidates[*i].dev]);
                offer.alternative.request.admin_access || !cut && devices.all(|d| d.card.is_none())
            },
            adds: match &view.budget {
                Some(budget) if !offer.alternative.request.admin_access => {
                    budget.least(picks.iter().map(|i| &offer.candidates[*i]))
                }
                _ => 0,
            },
            draws: picks
                .iter()
                .filter_map(|i| drawn(view, offer, &offer.candidates[*i]))
                .min(),
            loses: match cut {
                true => picks
                    .iter()
                    .map(|i| loses(view, &offer.candidates[*i]))
                    .min()
                    .unwrap_or(0),
                false => 0,
            },
            cut,
            picks,
            near: Nearness::ZERO,
        }
    }

    pub(super) fn nearest(&self, view: &View<'_>, offer: &Offer<'_>) -> Nearness {
        if offer.alternative.request.admin_access || !view.links_count {
            return Nearness::ZERO;
        }
        let devices = || self.picks.iter().map(|i| &view.devices[offer.candidates[*i].dev]);
        let asked = u32::try_from(offer.asked).unwrap_or(u32::MAX);
        if devices().all(|d| d.card.is_none()) {
            let unknown = Chosen {
                others: asked,
                ..Chosen::default()
            };
            return unknown.near(None);
        }
        let cards: Cards = devices().filter_map(|d| d.card).fold(0, |set, card| set | 1 << card);
        let wiring = view.wiring.filter(|_| devices().all(|d| d.card.is_some()));
        let best = wiring.and_then(|w| w.shape.nearest(cards, cards, asked));
        best.map_or(Nearness::ZERO, |(_, grade)| Nearness::at_least(grade.cost))
    }
}
