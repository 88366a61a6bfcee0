//! The cards of a pool that can be cut, each with its kind (`partition::Shape`), and which device is which cut of which
//! card.

use std::sync::Arc;

use super::PoolState;
use crate::partition::{Amounts, Shape, State};

/// One counter set of a pool, which is one card.
#[derive(Clone, Debug)]
pub struct Card {
    /// Position in `Pool::counter_sets`.
    pub set: usize,
    pub shape: Arc<Shape>,
    /// By counter of the set: how many nanos are one unit of the shape's amounts; 0: no device draws of it.
    units: Box<[i128]>,
}

#[derive(Clone, Debug, Default)]
pub struct Cuts {
    pub cards: Box<[Card]>,
    /// By device: position in `cards`, and which of the shape's cuts it is. None: it draws of no counter set, of several,
    /// or of one that is no card.
    of: Box<[Option<(u16, u16)>]>,
}

impl Card {
    pub fn new(set: usize, shape: Arc<Shape>, units: Box<[i128]>) -> Self {
        Self { set, shape, units }
    }

    /// What is left of the card in the units of its shape. A counter that a driver shrank below what is in use has
    /// nothing left.
    pub fn left(&self, state: &PoolState) -> Amounts {
        let left = state.counters_left.get(self.set).map_or(&[][..], |l| l);
        let counters = self.units.iter().enumerate().filter(|(_, unit)| **unit > 0);
        let amount = |(i, unit): (usize, &i128)| left.get(i).map_or(0, |q| q.nanos().max(0) / unit);
        counters.map(|c| u32::try_from(amount(c)).unwrap_or(u32::MAX)).collect()
    }

    /// Which occupancy it has. None: one that no choice of devices leads to.
    pub fn state(&self, state: &PoolState) -> Option<State> {
        self.shape.state(&self.left(state))
    }
}

impl Cuts {
    pub fn new(cards: Vec<Card>, of: Vec<Option<(u16, u16)>>) -> Self {
        Self {
            cards: cards.into(),
            of: of.into(),
        }
    }

    /// The card of a device, and which cut of it: positions in `cards`, and in the shape.
    pub fn of(&self, device: usize) -> Option<(usize, usize)> {
        let (card, cut) = (*self.of.get(device)?)?;
        Some((usize::from(card), usize::from(cut)))
    }
}
