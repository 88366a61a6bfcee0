//! What a set of free cards is still good for: how many groups of 2, 4, 8 and 16 cards that reach each other could be
//! given out side by side. Whoever chooses cards compares this before and after.

use super::Link;
use super::shape::{Fabric, bits};

/// Cards in groups that others could have. Whole groups of four and more weigh apart from pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Worth {
    pub big: u32,
    pub pairs: u32,
}

impl Worth {
    pub fn plus(self, other: Self) -> Self {
        Self {
            big: self.big + other.big,
            pairs: self.pairs + other.pairs,
        }
    }

    pub(super) fn minus(self, after: Self) -> Self {
        Self {
            big: self.big.saturating_sub(after.big),
            pairs: self.pairs.saturating_sub(after.pairs),
        }
    }
}

/// Sizes people ask for.
const SIZES: [usize; 4] = [2, 4, 8, 16];
/// Groups of one size that are packed exactly where they overlap; with more, the first that fit are counted.
const EXACT: usize = 256;

/// When two cards belong together: by a fabric where there is any, below one PCIe root where there is known to be none.
pub(super) fn joined(fabric: Fabric, link: Link) -> bool {
    match fabric {
        Fabric::Some => link.is_fabric(),
        Fabric::None => link.shares_root(),
        Fabric::Unknown => false,
    }
}

/// By set of cards.
pub(super) fn table(cards: usize, links: &[Link], fabric: Fabric) -> Box<[Worth]> {
    let neighbours: Vec<usize> = (0..cards)
        .map(|a| {
            (0..cards)
                .filter(|b| a != *b && joined(fabric, links[a * cards + b]))
                .fold(0, |set, b| set | 1 << b)
        })
        .collect();
    let mut worth = vec![Worth::default(); 1 << cards];
    for size in SIZES.into_iter().filter(|s| *s <= cards) {
        let count = packed(&neighbours, size);
        for (set, worth) in worth.iter_mut().enumerate() {
            let cards = u32::from(count(set)) * size as u32;
            match size {
                2 => worth.pairs += cards,
                _ => worth.big += cards,
            }
        }
    }
    worth.into()
}

/// For a set of cards: how many groups of `size` it holds that do not overlap.
fn packed(neighbours: &[usize], size: usize) -> Box<dyn Fn(usize) -> u8> {
    let closed = |a: usize| neighbours[a] | 1 << a;
    // Where being joined is mutual all through (a switch, sockets, bridges), groups are counted by division.
    if (0..neighbours.len()).all(|a| bits(neighbours[a]).all(|b| closed(a) == closed(b))) {
        let mut groups: Vec<usize> = (0..neighbours.len()).map(closed).collect();
        groups.sort_unstable();
        groups.dedup();
        return Box::new(move |set| {
            let whole = groups.iter().map(|g| (set & g).count_ones() as usize / size);
            whole.sum::<usize>() as u8
        });
    }
    let cliques = cliques(neighbours, size);
    if cliques.len() > EXACT {
        return Box::new(move |set| {
            let mut left = set;
            let fit = cliques.iter().filter(|c| {
                let fits = **c & left == **c;
                left &= !(if fits { **c } else { 0 });
                fits
            });
            fit.count() as u8
        });
    }
    // The lowest card of a set is in one of the groups, or in none.
    let mut most = vec![0_u8; 1 << neighbours.len()];
    for set in 1..most.len() {
        let low = set & set.wrapping_neg();
        let with = cliques.iter().filter(|c| **c & low != 0 && **c & set == **c);
        let best = with.map(|c| 1 + most[set & !c]).max().unwrap_or(0);
        most[set] = best.max(most[set & !low]);
    }
    Box::new(move |set| most[set])
}

/// Every set of `size` cards that are all joined, at most one more than can be used.
fn cliques(neighbours: &[usize], size: usize) -> Vec<usize> {
    let mut found = vec![];
    // (the set so far, who may join it: joined with all of it, and behind its last)
    let mut open = vec![(0_usize, (1_usize << neighbours.len()) - 1)];
    while let Some((set, may)) = open.pop() {
        if set.count_ones() as usize == size {
            found.push(set);
            if found.len() > EXACT * 16 {
                break;
            }
            continue;
        }
        for next in bits(may) {
            let behind = !((2 << next) - 1);
            open.push((set | 1 << next, may & neighbours[next] & behind));
        }
    }
    found.sort_unstable();
    found
}
