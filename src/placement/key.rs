//! What a choice of devices on one node costs, in the order in which that matters.

use super::offer::{Candidate, Offer};
use super::slots::Loss;
use super::view::View;
use crate::snapshot::Wiring;
use crate::topology::{Cards, Link, Nearness};

/// What a set of devices draws. Fewer devices of unknown watts first, then fewer watts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Power {
    unknown: u32,
    watts: u32,
}

impl Power {
    pub(super) fn plus(self, watts: Option<u32>, devices: u32) -> Self {
        match watts {
            Some(w) => Self {
                watts: self.watts.saturating_add(w.saturating_mul(devices)),
                ..self
            },
            None => Self {
                unknown: self.unknown.saturating_add(devices),
                ..self
            },
        }
    }

    pub(super) fn watts(self) -> u64 {
        u64::from(self.watts)
    }

    /// Devices of unknown watts.
    pub(super) fn unknown(self) -> u32 {
        self.unknown
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self {
            unknown: self.unknown.saturating_add(other.unknown),
            watts: self.watts.saturating_add(other.watts),
        }
    }
}

/// Lower is better, key by key. Grows, or stays, with every device that is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Key {
    /// Links within each request, summed over pairs and requests.
    pub(super) cost: u32,
    /// The same between all cards of the pod: requests that could be near one another are.
    pub(super) across_cost: u32,
    /// Partitions that others lose.
    pub(super) lost: u32,
    /// Groups of four and more cards that others lose.
    pub(super) big: u32,
    pub(super) power: Power,
    /// What is lost by shares (`Candidate::dear`). Means something on one node only.
    pub(super) dear: u32,
    /// What was left of the cards that are cut, so that the fullest are used first.
    pub(super) vacant: u32,
    /// The worst pair, costs being equal.
    pub(super) near: Nearness,
    pub(super) across: Nearness,
    pub(super) pairs: u32,
}

impl Key {
    /// With the links of a single request.
    pub(super) fn linked(self, near: Nearness) -> Self {
        Self {
            cost: near.sum(),
            across_cost: near.sum(),
            near,
            across: near,
            ..self
        }
    }
}

/// Devices chosen so far, as far as links go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Chosen {
    pub(super) cards: Cards,
    /// Devices of which no links are known.
    pub(super) others: u32,
    /// Those of them that are GPUs: partitions, shares, cards nobody reported.
    pub(super) unwired: u32,
}

impl Chosen {
    pub(super) fn with(self, card: Option<u8>, classed: bool) -> Self {
        match card {
            Some(card) => Self {
                cards: self.cards | 1 << card,
                ..self
            },
            None => Self {
                others: self.others + 1,
                unwired: self.unwired + u32::from(classed),
                ..self
            },
        }
    }

    /// A pair of which nothing is known counts as the farthest.
    pub(super) fn near(self, wiring: Option<&Wiring>) -> Nearness {
        let wired = self.cards.count_ones();
        let (wired, others) = (u64::from(wired), u64::from(self.others));
        let unknown = others * wired + others * others.saturating_sub(1) / 2;
        let unknown = u32::try_from(unknown).unwrap_or(u32::MAX);
        let near = wiring.map_or(Nearness::ZERO, |w| w.shape.near(self.cards));
        near.joined(Nearness::of(Link::Unknown, unknown))
    }

    /// Whether `topology: required` could still be kept: one card, or cards that all reach each other.
    pub(super) fn is_clique(self, wiring: Option<&Wiring>) -> bool {
        let cards = self.cards.count_ones() + self.unwired;
        cards <= 1 || (self.unwired == 0 && wiring.is_some_and(|w| w.shape.is_clique(self.cards)))
    }
}

/// The least that what is still to be chosen adds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Floor {
    pub(super) lost: u32,
    pub(super) power: Power,
    pub(super) near: Nearness,
}

/// What is chosen on the way to a frame.
#[derive(Clone, Copy, Default)]
pub(super) struct SoFar {
    pub(super) loss: Loss,
    pub(super) dear: u32,
    pub(super) power: Power,
    /// Links within the requests that are complete.
    pub(super) near: Nearness,
    /// Of the current request.
    pub(super) request: Chosen,
    /// Of all, devices included that the pod's allocated claims hold.
    pub(super) all: Chosen,
}

impl SoFar {
    pub(super) fn with(
        self,
        view: &View<'_>,
        offer: &Offer<'_>,
        candidate: &Candidate,
        watts: Option<u32>,
        loss: Loss,
    ) -> Self {
        let dev = &view.devices[candidate.dev];
        let power = self.power.plus(watts, 1);
        // Looking at a device is not talking to it.
        if offer.alternative.request.admin_access {
            return Self { power, ..self };
        }
        let classed = dev.class.is_some();
        let all = self.all.with(dev.card, classed);
        let request = if view.links_count {
            self.request.with(dev.card, classed)
        } else {
            self.request
        };
        Self {
            loss: self.loss.plus(loss),
            dear: self.dear.saturating_add(candidate.dear),
            power,
            all,
            request,
            ..self
        }
    }

    /// The next request begins.
    pub(super) fn turned(self, view: &View<'_>) -> Self {
        Self {
            near: self.near.joined(self.request.near(view.wiring)),
            request: Chosen::default(),
            ..self
        }
    }

    /// What this costs, and whatever follows on top of `floor`.
    pub(super) fn key(&self, view: &View<'_>, near: Nearness, floor: Floor) -> Key {
        let lost = view.lost(self.all.cards);
        let near = self.near.joined(near).joined(floor.near);
        // The pairs within requests are among the pod's.
        let across = match view.links_count {
            true => self.all.near(view.wiring).max(near),
            false => Nearness::ZERO,
        };
        Key {
            cost: near.sum(),
            across_cost: across.sum(),
            near,
            across,
            lost: self.loss.lost.saturating_add(floor.lost),
            big: lost.big,
            dear: self.dear,
            power: self.power.and(floor.power),
            vacant: self.loss.vacant,
            pairs: lost.pairs,
        }
    }
}
