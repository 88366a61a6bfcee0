//! Fragmentation gradient descent (FGD, USENIX ATC'23), as its artefact reckons it: units of a node's cards that pods of
//! the usual mix could not use, in the mean, and how much a pod would add to that. Scores are whole numbers 0 to 100.

use super::fleet::Room;
use super::trace::{Shape, Trace};

/// The kinds of pods, those asked for most first, until they are so many percent of all pods.
const POPULAR: usize = 95;

/// By CPU and cards, as the artefact tells pods apart: not by memory.
pub(crate) struct Mix(Vec<(Shape, f64)>);

impl Mix {
    pub(crate) fn of(trace: &Trace) -> Self {
        let mut counts: Vec<(Shape, usize)> = vec![];
        for pod in &trace.pods {
            let shape = Shape {
                memory_mib: 0,
                ..trace.shapes[*pod].clone()
            };
            match counts.iter_mut().find(|(s, _)| *s == shape) {
                Some((_, n)) => *n += 1,
                None => counts.push((shape, 1)),
            }
        }
        counts.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        let mut sum = 0;
        counts.retain(|(_, n)| {
            let usual = sum * 100 < POPULAR * trace.pods.len();
            sum += if usual { n } else { &0 };
            usual
        });
        Self(counts.into_iter().map(|(s, n)| (s, n as f64 / sum as f64)).collect())
    }

    /// Units that are left of its cards and that a pod of the mix could not use, in the mean.
    pub(crate) fn fragments(&self, room: &Room<'_>) -> f64 {
        let all = room.units();
        if all == 0 {
            return 0.0;
        }
        let of = |shape: &Shape| {
            if shape.cards == 0 || room.cpu_milli < shape.cpu_milli || !room.has_cards(shape) {
                return all;
            }
            room.cards.iter().filter(|left| **left < shape.milli).sum()
        };
        self.0.iter().map(|(shape, part)| part * f64::from(of(shape))).sum()
    }

    /// The score, and the cards by which the node has it.
    pub(crate) fn score(&self, room: &Room<'_>, shape: &Shape) -> (i64, Vec<usize>) {
        let before = self.fragments(room);
        let after = |cards: &[usize]| {
            let mut room = room.clone();
            room.take(shape, cards);
            let grows = self.fragments(&room) - before;
            (100.0 / (1.0 + (grows / 1000.0).exp())) as i64
        };
        if !shape.is_part() {
            let cards = room.first(shape);
            return (after(&cards), cards);
        }
        let mut best: Option<(i64, usize)> = None;
        for card in room.fitting(shape) {
            // Cards of which as much is left are as good.
            if room.cards[..card].contains(&room.cards[card]) {
                continue;
            }
            let score = after(&[card]);
            if best.is_none_or(|(b, _)| score > b) {
                best = Some((score, card));
            }
        }
        best.map_or((0, vec![]), |(score, card)| (score, vec![card]))
    }
}
