//! The plain policies: a whole-number score for each node a pod fits on, and the cards it would get there.

use super::Ties;
use super::fgd::Mix;
use super::fleet::Room;
use super::trace::{CARD, Shape, Trace};
use crate::quality::Dice;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rival {
    Random,
    /// The first node of the list, and there the first cards.
    First,
    /// Least CPU and units left, as the artefact of FGD weighs them.
    Best,
    Fgd,
    /// FGD and watts, weighed as 9 to 1 (arXiv 2412.17484, alpha 0.1).
    FgdPower,
}

/// The largest machine of the artefact's BestFit, in CPU and units.
const MOST: [f64; 2] = [128_000.0, 8_000.0];
const POWER_WEIGHT: i64 = 1;
const FGD_WEIGHT: i64 = 9;

#[derive(Clone, Debug, Default)]
struct Known {
    version: u32,
    score: i64,
    watts: i64,
    cards: Vec<usize>,
}

pub(crate) struct Chooser<'t> {
    rival: Rival,
    ties: Ties,
    trace: &'t Trace,
    mix: Mix,
    /// By shape, then by node: what was found when the node was last of this version.
    known: Vec<Vec<Known>>,
}

/// Of the nodes of the highest score, with their positions.
pub(crate) fn pick(scores: impl Iterator<Item = (usize, i64)>, ties: Ties, dice: &mut Dice) -> Option<usize> {
    let (mut best, mut equal) = (None, 0);
    for (node, score) in scores {
        match best {
            Some((_, most)) if score < most => continue,
            Some((_, most)) if score == most => equal += 1,
            _ => equal = 1,
        }
        // Each of the equal ones is as likely: kube-scheduler's way.
        if equal == 1 || ties == Ties::Random && dice.roll(equal) == 0 {
            best = Some((node, score));
        }
    }
    best.map(|(node, _)| node)
}

impl<'t> Chooser<'t> {
    pub(crate) fn new(rival: Rival, ties: Ties, trace: &'t Trace) -> Self {
        Self {
            rival,
            ties,
            trace,
            mix: Mix::of(trace),
            known: vec![vec![Known::default(); trace.machines.len()]; trace.shapes.len()],
        }
    }

    /// Node and cards. None: it fits nowhere.
    pub(crate) fn choose(&mut self, rooms: &[Room<'_>], pod: usize, dice: &mut Dice) -> Option<(usize, Vec<usize>)> {
        let shape = &self.trace.shapes[pod];
        let fits: Vec<usize> = (0..rooms.len())
            .filter(|n| rooms[*n].has_cpu_and_memory(shape) && rooms[*n].has_cards(shape))
            .collect();
        for node in &fits {
            let (room, known) = (&rooms[*node], &mut self.known[pod][*node]);
            if known.version == room.version {
                continue;
            }
            let (score, cards) = match self.rival {
                Rival::Random | Rival::First => (0, room.first(shape)),
                Rival::Best => best_fit(room, shape),
                Rival::Fgd | Rival::FgdPower => self.mix.score(room, shape),
            };
            let mut after = room.clone();
            after.take(shape, &cards);
            let watts = after.watts() as i64 - room.watts() as i64;
            *known = Known {
                version: room.version,
                score,
                watts,
                cards,
            };
        }
        let known = &self.known[pod];
        let node = match self.rival {
            Rival::Random => dice.pick(&fits)?,
            Rival::First => *fits.first()?,
            Rival::Best | Rival::Fgd => pick(fits.iter().map(|n| (*n, known[*n].score)), self.ties, dice)?,
            Rival::FgdPower => {
                let watts = || fits.iter().map(|n| known[*n].watts);
                let (least, most) = (watts().min()?, watts().max()?);
                let saved = |watts: i64| 100 * (most - watts) / (most - least).max(1);
                let total = |n: usize| FGD_WEIGHT * known[n].score + POWER_WEIGHT * saved(known[n].watts);
                pick(fits.iter().map(|n| (*n, total(*n))), self.ties, dice)?
            }
        };
        let mut cards = known[node].cards.clone();
        if self.rival == Rival::Random {
            let mut all: Vec<usize> = rooms[node].fitting(shape).collect();
            dice.shuffle(&mut all);
            cards = all.into_iter().take(shape.cards).collect();
        }
        Some((node, cards))
    }
}

fn best_fit(room: &Room<'_>, shape: &Shape) -> (i64, Vec<usize>) {
    let left = [
        (room.cpu_milli - shape.cpu_milli) as f64 / MOST[0],
        (f64::from(room.units()) - shape.units() as f64) / MOST[1],
    ];
    let score = (100.0 * (1.0 - (left[0] + left[1]) / 2.0)) as i64;
    let mut fit: Vec<usize> = room.fitting(shape).collect();
    fit.sort_by_key(|c| room.cards[*c].min(CARD));
    fit.truncate(shape.cards);
    (score, fit)
}
