//! What is left of each machine, and what all of them draw. Counted here, whoever places.

use super::trace::{CARD, Machine, SOCKET_FULL, SOCKET_IDLE, SOCKET_MILLI, Shape};

#[derive(Clone, Debug)]
pub(crate) struct Room<'t> {
    pub(crate) machine: &'t Machine,
    pub(crate) cpu_milli: u64,
    pub(crate) memory_mib: u64,
    /// Units left of each card.
    pub(crate) cards: Vec<u32>,
    /// Grows with each pod that comes.
    pub(crate) version: u32,
}

impl<'t> Room<'t> {
    pub(crate) fn new(machine: &'t Machine) -> Self {
        Self {
            machine,
            cpu_milli: machine.cpu_milli,
            memory_mib: machine.memory_mib,
            cards: vec![CARD; machine.cards],
            version: 1,
        }
    }

    /// As NodeResourcesFit has it.
    pub(crate) fn has_cpu_and_memory(&self, shape: &Shape) -> bool {
        self.cpu_milli >= shape.cpu_milli && self.memory_mib >= shape.memory_mib
    }

    pub(crate) fn has_cards(&self, shape: &Shape) -> bool {
        shape.cards == 0 || shape.may_have(self.machine.model) && self.fitting(shape).count() >= shape.cards
    }

    /// Cards of which enough is left.
    pub(crate) fn fitting<'r>(&'r self, shape: &Shape) -> impl Iterator<Item = usize> + use<'r, 't> {
        let milli = shape.milli;
        (0..self.cards.len()).filter(move |c| self.cards[*c] >= milli)
    }

    /// Units left of all cards.
    pub(crate) fn units(&self) -> u32 {
        self.cards.iter().sum()
    }

    /// The first cards that do, where it does not matter which.
    pub(crate) fn first(&self, shape: &Shape) -> Vec<usize> {
        self.fitting(shape).take(shape.cards).collect()
    }

    /// False, and nothing taken: it does not fit.
    pub(crate) fn take(&mut self, shape: &Shape, cards: &[usize]) -> bool {
        let room = |c: &usize| self.cards.get(*c).is_some_and(|left| *left >= shape.milli);
        let each_once = cards.iter().enumerate().all(|(i, c)| !cards[..i].contains(c));
        let may = cards.is_empty() || shape.may_have(self.machine.model);
        if !(self.has_cpu_and_memory(shape) && may && each_once && cards.len() == shape.cards && cards.iter().all(room))
        {
            return false;
        }
        cards.iter().for_each(|c| self.cards[*c] -= shape.milli);
        self.cpu_milli -= shape.cpu_milli;
        self.memory_mib -= shape.memory_mib;
        self.version += 1;
        true
    }

    pub(crate) fn watts(&self) -> u64 {
        let (machine, model) = (self.machine, self.machine.model);
        let used = self.cards.iter().filter(|left| **left < CARD).count() as u64;
        let sockets = machine.cpu_milli.div_ceil(SOCKET_MILLI);
        let busy = (machine.cpu_milli - self.cpu_milli).div_ceil(SOCKET_MILLI);
        used * model.full
            + (self.cards.len() as u64 - used) * model.idle
            + busy * SOCKET_FULL
            + (sockets - busy) * SOCKET_IDLE
    }
}
