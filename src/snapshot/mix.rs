//! What pods ask for, as seen so far: how many cards or what part of one, with how much CPU and memory. From it the draws
//! that placement fills a node with to see what would be left over.

use std::collections::BTreeMap;

use crate::model::Room;

/// A whole card, or all of one's capacity.
pub const CARD: u16 = 1000;
/// Ways a node is filled, and the pods of each: eight cards take a dozen or so, those that do not fit come on top. Measured (loadtest `openb`):
/// half the rows spread twice as far from one seed to another, more rows find no more.
pub const ROWS: usize = 8;
const ROW: usize = 24;
/// Of one row, so that a row is a few cache lines.
const MOST_CARDS: u16 = 16;

/// Of a card's capacity, in thousandths, rounded down.
pub fn thousandths(part: i128, of: i128) -> u16 {
    let exact = part.max(0).saturating_mul(i128::from(CARD)) / of.max(1);
    u16::try_from(exact).unwrap_or(CARD).min(CARD)
}

/// What one pod asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ask {
    pub cards: u16,
    /// Of each card, in thousandths.
    pub milli: u16,
    pub room: Room,
}

/// Empty: nothing was seen yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mix {
    /// `ROWS` of them, or none.
    pub rows: Vec<Vec<Ask>>,
    /// Those for several cards, by the thousandths of all cards asked for that are for them.
    pub several: Vec<(Ask, u32)>,
}

impl Mix {
    /// From how often each was seen. Every kind comes as often in the rows as its part of the whole says, to one draw; where
    /// in them is the same each time.
    pub fn of(counts: &BTreeMap<Ask, u32>) -> Self {
        let known = |(ask, n): &(&Ask, &u32)| (1..=MOST_CARDS).contains(&ask.cards) && ask.milli > 0 && **n > 0;
        let counts: Vec<(&Ask, &u32)> = counts.iter().filter(known).collect();
        let total: u64 = counts.iter().map(|(_, n)| u64::from(**n)).sum();
        if total == 0 {
            return Self::default();
        }
        let draws = (ROWS * ROW) as u64;
        let mut all: Vec<Ask> = vec![];
        let mut seen = 0;
        for (ask, n) in &counts {
            seen += u64::from(**n);
            // Draw i stands for the pod in the middle of its part.
            while (all.len() as u64) < draws && (2 * all.len() as u64 + 1) * total < 2 * draws * seen {
                all.push(**ask);
            }
        }
        shuffle(&mut all);
        let cards = |ask: &Ask, n: u32| u64::from(n) * u64::from(ask.cards) * u64::from(ask.milli);
        let asked: u64 = counts.iter().map(|(ask, n)| cards(ask, **n)).sum();
        let several = counts.iter().filter(|(ask, _)| ask.cards > 1);
        let part = |(ask, n): &(&Ask, &u32)| (**ask, (cards(ask, **n) * 1000 / asked.max(1)) as u32);
        Self {
            several: several.map(part).collect(),
            rows: all.chunks(ROW).map(<[Ask]>::to_vec).collect(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// The same order each time: all replicas prefer the same nodes.
fn shuffle(all: &mut [Ask]) {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    for i in (1..all.len()).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let at = (state >> 33) as usize % (i + 1);
        all.swap(i, at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(cards: u16, milli: u16) -> Ask {
        Ask {
            cards,
            milli,
            room: Room::default(),
        }
    }

    #[test]
    fn draws_are_as_the_counts() {
        let mix = Mix::of(&[(ask(1, 500), 30), (ask(1, 1000), 60), (ask(8, 1000), 6)].into());
        let drawn = |a: Ask| mix.rows.iter().flatten().filter(|d| **d == a).count();
        assert_eq!(mix.rows.iter().map(Vec::len).collect::<Vec<_>>(), [ROW; ROWS]);
        assert_eq!(
            [drawn(ask(1, 500)), drawn(ask(1, 1000)), drawn(ask(8, 1000))],
            [60, 120, 12]
        );
        // 48 of 123 cards.
        assert_eq!(mix.several, [(ask(8, 1000), 390)]);
        assert!(Mix::of(&BTreeMap::new()).is_empty() && Mix::of(&[(ask(0, 0), 3)].into()).is_empty());
    }
}
