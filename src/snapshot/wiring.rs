//! Which of a node's devices are which cards of its shape.

use std::sync::Arc;

use super::PoolState;
use crate::topology::{Cards, LinkSource, Shape};

/// How the whole cards of one node are connected. A node without one: nothing is known, or it has more cards than
/// tables hold.
#[derive(Clone, Debug)]
pub struct Wiring {
    pub shape: Arc<Shape>,
    /// Who said how they are connected.
    pub source: LinkSource,
    /// By position in `NodeEntry::pools`, then by position in the pool; `NO_CARD`: a partition, a NIC, a device that is not
    /// wired. Two devices that are one card (a GPU and its passthrough twin) share a position.
    places: Box<[Box<[u8]>]>,
}

const NO_CARD: u8 = u8::MAX;

impl Wiring {
    /// `places`: by pool of the node and device of the pool, the card; None: not one. Cards the shape lacks are none.
    pub fn new(shape: Arc<Shape>, source: LinkSource, places: &[Vec<Option<usize>>]) -> Self {
        let known = |card: &Option<usize>| card.filter(|c| *c < shape.cards());
        let of = |pool: &Vec<Option<usize>>| {
            let cards = pool
                .iter()
                .map(|c| known(c).and_then(|c| u8::try_from(c).ok()).unwrap_or(NO_CARD));
            cards.collect()
        };
        let places = places.iter().map(of).collect();
        Self { shape, source, places }
    }

    /// The card of a device, by the position of its pool among the node's and its own in the pool.
    pub fn card(&self, pool: usize, device: usize) -> Option<u8> {
        let card = *self.places.get(pool)?.get(device)?;
        (card != NO_CARD).then_some(card)
    }

    /// Every device of a pool that is a card: (position in the pool, card).
    pub fn of_pool(&self, pool: usize) -> impl Iterator<Item = (usize, u8)> + '_ {
        let places = self.places.get(pool).map_or(&[][..], |p| p);
        places
            .iter()
            .enumerate()
            .filter(|(_, c)| **c != NO_CARD)
            .map(|(i, c)| (i, *c))
    }

    /// The cards among 64 devices of a pool, as bits from device `64 * word`.
    pub fn cards_of_word(&self, pool: usize, word: usize, devices: u64) -> Cards {
        let (mut left, mut cards) = (devices, 0);
        while left != 0 {
            let device = word * 64 + left.trailing_zeros() as usize;
            left &= left - 1;
            cards |= self.card(pool, device).map_or(0, |c| 1 << c);
        }
        cards
    }
}

impl PartialEq for Wiring {
    /// Shapes are interned.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shape, &other.shape) && self.source == other.source && self.places == other.places
    }
}

impl PoolState {
    /// Whether nobody holds the device, any of it, or a part of what it is made of.
    pub fn is_whole(&self, device: usize) -> bool {
        let position = u32::try_from(device).unwrap_or(u32::MAX);
        !self.taken.contains(device)
            && self.mode_against(device).is_none()
            && !self.shared.contains_key(&position)
            && self.pool.devices.get(device).is_some_and(|d| {
                let left = |(set, counter): (usize, usize)| self.counters_left.get(set)?.get(counter);
                let mut draws = self.pool.draws(&d.device);
                draws.all(|(at, amount)| at.and_then(left).is_some_and(|left| *left >= amount))
            })
    }
}
