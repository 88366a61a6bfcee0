//! What of a node's cards nobody could use who comes next: the node is filled with pods of the mix seen so far, by its cards, CPU
//! and memory, and what is left over is lost. A choice is as dear as it makes that grow.
//!
//! Beside fragmentation as FGD (USENIX ATC'23) has it, which asks of each kind of pod alone what of the node it can use,
//! this sees that CPU runs out before cards, or that parts leave rests, when pods of all kinds share the node.

use super::Context;
use super::demand::Demand;
use super::offer::given;
use crate::model::Room;
use crate::snapshot::mix::{Ask, CARD, Mix, ROWS, thousandths};
use crate::snapshot::{NodeEntry, NodeIx, PoolHealth, PoolState};

/// More cards than that are not looked at, and such a node loses nothing.
const CARDS: usize = 16;
/// A card that nobody can use is as bad as so many watts. Measured (loadtest `openb`) at 170 to 1000: above, the draw rises,
/// and below, cards are left over; from 250 to 330 it is much the same.
const CARD_WATTS: i64 = 250;
/// CPUs wake by sockets: whoever needs a first core of one turns it on, and the rest of it costs little. So many threads, in
/// thousandths, as in arXiv 2412.17484 (16 cores of two); where sockets have more, nodes in use are filled all the same.
const SOCKET: u64 = 32_000;
/// What that weighs. There it draws 105 W more than idle, but others will share it. Measured at 0 to 160: without, half
/// full, 40 kW of 780 more are drawn by CPUs alone, and pods without cards take cores of nodes that the largest pods need
/// whole; from 100 on fewer cards are given out.
const SOCKET_WATTS: u64 = 75;
/// Of what a node could take of pods for several cards, so much counts beside what is left over, in hundredths: else a
/// node would be opened for whoever leaves nothing over on it.
const SEVERAL: i64 = 5;
/// Prices nearer than that, in thousandths of a card, are one: then the fuller node is better.
const STEP: i64 = 25;

/// What a node has left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vacancy {
    cards: [u16; CARDS],
    len: usize,
    room: Room,
    /// CPU of the node that is taken, in thousandths of a core.
    busy: u32,
}

/// What a pod takes of one card, in thousandths: of how much that was left, how much.
pub(super) type Part = (u16, u16);

/// So many whole cards.
pub(super) fn whole(cards: u32) -> impl Iterator<Item = Part> {
    (0..cards).map(|_| (CARD, CARD))
}

impl Vacancy {
    /// None: nothing is known of the node's CPU, or of what pods ask for.
    pub(super) fn of(ctx: Context<'_>, node: &NodeEntry, ix: NodeIx) -> Option<Self> {
        let snapshot = ctx.snapshot;
        let room = *snapshot.rooms.get(ix.0)?;
        if snapshot.mix.is_empty() {
            return None;
        }
        let all = node.node.allocatable.unwrap_or(room);
        let mut vacancy = Self {
            cards: [0; CARDS],
            len: 0,
            room,
            busy: all.cpu.saturating_sub(room.cpu),
        };
        for (state, visible) in snapshot.pools_of(node) {
            if *visible.health(&state.pool) != PoolHealth::Complete {
                continue;
            }
            // Parts that are cut have tables of their own (`slots`).
            let cut = |at: usize| !state.pool.devices[at].device.consumes.is_empty();
            let groups = state.pool.summary().groups.iter().filter(|g| g.class.is_some());
            for at in groups.flat_map(|g| g.devices.iter()).filter(|at| visible.sees(*at)) {
                if cut(at) {
                    continue;
                }
                *vacancy.cards.get_mut(vacancy.len)? = left(state, at);
                vacancy.len += 1;
            }
        }
        Some(vacancy)
    }

    /// With what a pod takes. None: it has not got that.
    fn after(mut self, room: Room, parts: impl Iterator<Item = Part>) -> Option<Self> {
        self.room = self.room.minus(room);
        for (of, taken) in parts {
            let card = self.cards[..self.len].iter_mut().find(|left| **left == of)?;
            *card = card.saturating_sub(taken);
        }
        Some(self)
    }

    /// Watts of the sockets that a pod turns on.
    fn waking(&self, room: Room) -> u64 {
        let sockets = |cpu: u64| cpu.div_ceil(SOCKET);
        let busy = u64::from(self.busy);
        (sockets(busy + u64::from(room.cpu)) - sockets(busy)) * SOCKET_WATTS
    }

    /// Thousandths left of all cards.
    fn free(&self) -> u32 {
        self.cards[..self.len].iter().map(|left| u32::from(*left)).sum()
    }

    pub(super) fn whole(&self) -> u32 {
        self.cards[..self.len].iter().map(|left| u32::from(*left == CARD)).sum()
    }

    /// What is left over once pods came in this order, in thousandths.
    fn over(mut self, row: &[Ask]) -> u32 {
        let (mut free, mut whole) = (self.free(), self.whole());
        for ask in row {
            if free == 0 {
                break;
            }
            if !self.room.has(ask.room) {
                continue;
            }
            let cards = &mut self.cards[..self.len];
            if ask.milli == CARD {
                if whole < u32::from(ask.cards) {
                    continue;
                }
                let taken = cards
                    .iter_mut()
                    .filter(|left| **left == CARD)
                    .take(usize::from(ask.cards));
                taken.for_each(|left| *left = 0);
                whole -= u32::from(ask.cards);
                free -= u32::from(ask.cards) * u32::from(CARD);
            } else {
                // Of several parts all go, or as many as there is room for: few pods ask so.
                let mut any = false;
                for _ in 0..ask.cards {
                    let fits = cards.iter_mut().filter(|left| **left >= ask.milli);
                    let Some(least) = fits.min_by_key(|left| **left) else {
                        break;
                    };
                    whole -= u32::from(*least == CARD);
                    *least -= ask.milli;
                    free -= u32::from(ask.milli);
                    any = true;
                }
                if !any {
                    continue;
                }
            }
            self.room = self.room.minus(ask.room);
        }
        free
    }

    /// What is lost, and what pods for several cards could still have of it (which counts against that), in thousandths of a card by
    /// `ROWS` and by 100.
    fn lost(&self, mix: &Mix) -> i64 {
        if self.cards[..self.len].iter().all(|left| *left == 0) {
            return 0;
        }
        let over: u32 = mix.rows.iter().map(|row| self.over(row)).sum();
        let whole = self.whole();
        let of = |(ask, part): &(Ask, u32)| {
            let times = self
                .room
                .times(ask.room)
                .unwrap_or(u32::MAX)
                .min(whole / u32::from(ask.cards));
            // A part in thousandths, of cards in thousandths.
            i64::from(*part) * i64::from(times) * i64::from(ask.cards)
        };
        let several: i64 = mix.several.iter().map(of).sum();
        i64::from(over) * 100 - several * SEVERAL * ROWS as i64
    }

    /// What a choice costs that takes these parts and turns on cards of so many watts, sockets of CPUs added; in steps. Below 0
    /// where less is lost with it than without.
    pub(super) fn price(
        &self,
        ctx: Context<'_>,
        demand: &Demand,
        before: i64,
        parts: impl Iterator<Item = Part>,
        watts: u64,
    ) -> i64 {
        let watts = watts.saturating_add(self.waking(demand.room));
        let Some(after) = self.after(demand.room, parts) else {
            return by_watts(watts);
        };
        let grows = (after.lost(&ctx.snapshot.mix) - before) / (100 * ROWS as i64);
        step(thousandths_of(watts).saturating_add(grows))
    }

    pub(super) fn before(&self, ctx: Context<'_>) -> i64 {
        self.lost(&ctx.snapshot.mix)
    }
}

/// The price where nothing else is known.
pub(super) fn by_watts(watts: u64) -> i64 {
    step(thousandths_of(watts))
}

/// Of a card that nobody can use.
fn thousandths_of(watts: u64) -> i64 {
    let watts = i64::try_from(watts).unwrap_or(i64::MAX);
    watts.saturating_mul(i64::from(CARD)) / CARD_WATTS
}

fn step(price: i64) -> i64 {
    price.saturating_add(STEP / 2).div_euclid(STEP)
}

/// What is left of a card, in thousandths.
pub(super) fn left(state: &PoolState, at: usize) -> u16 {
    if state.taken.contains(at) {
        return 0;
    }
    let device = &state.pool.devices[at].device;
    let shared = device.allow_multiple && u32::try_from(at).is_ok_and(|at| state.shared.contains_key(&at));
    if !shared {
        return CARD;
    }
    let given = given(device, state, at);
    let parts = device.capacity.iter().zip(given);
    parts
        .filter(|((_, capacity), _)| capacity.value.nanos() > 0)
        .map(|((_, capacity), given)| thousandths(capacity.value.nanos() - given, capacity.value.nanos()))
        .min()
        .unwrap_or(0)
}
