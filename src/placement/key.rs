//! What a choice of devices on one node costs, in the order in which that matters.

use super::search::Power;
use crate::snapshot::Wiring;
use crate::topology::{Cards, Link, Nearness};

/// Lower is better, key by key. Grows, or stays, with every device that is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Key {
    /// Links within each request, summed.
    pub(super) near: Nearness,
    /// Links between all cards of the pod: requests that could be near one another are.
    pub(super) across: Nearness,
    /// Groups of four and more cards that others lose.
    pub(super) big: u32,
    pub(super) power: Power,
    pub(super) pairs: u32,
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
