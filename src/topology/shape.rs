//! The tables of one matrix of links: for every set of cards how near it is and what it is worth, and for every set of
//! free cards the nearest so many of them. Nodes of one build share a `Shape`.

use std::cmp::Reverse;
use std::sync::OnceLock;

use super::worth::{self, Worth};
use super::{Link, Nearness};

/// Most cards of a node whose links are held in tables; a set of them is a `u16`.
pub const MOST_CARDS: usize = 16;

/// A set of cards by position, lowest bit first.
pub type Cards = u16;

/// How good a choice is among the cards of one wattage class; lower is better, key by key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Grade {
    /// Sum over pairs.
    pub cost: u32,
    /// Groups of four and more that others can no longer have, by the cards in them.
    pub big: u32,
    /// Decides by the worst pair, the sums being equal.
    pub near: Nearness,
    pub pairs: u32,
}

/// Whether cards of a node are joined by NVLink, XGMI or their kin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fabric {
    /// Two of them are.
    Some,
    /// No two are.
    None,
    /// Nobody said.
    Unknown,
}

#[derive(Debug)]
pub struct Shape {
    cards: usize,
    links: Box<[Link]>,
    /// By set of cards.
    near: Box<[Nearness]>,
    worth: Box<[Worth]>,
    /// Every pair is joined alike: cards are interchangeable.
    uniform: bool,
    fabric: Fabric,
    /// By number of cards and set of free ones: the best choice. Built by `warm`, or with the shape where it is small.
    best: OnceLock<Box<[Box<[Cards]>]>>,
}

impl Shape {
    /// Largest number of cards for which all tables are made at once: 3 to its power is what that costs.
    const SMALL: usize = 8;

    /// `links` is a square, row by row. None: not a square of 1 to `MOST_CARDS` cards. `bare`: it is known that no two
    /// cards are joined by a fabric; that no such link was read does not say so.
    pub fn new(links: &[Link], bare: bool) -> Option<Self> {
        let cards = (1..=MOST_CARDS).find(|n| n * n == links.len())?;
        let link = |a: usize, b: usize| match a == b {
            true => Link::Unknown,
            false => farther(links[a * cards + b], links[b * cards + a]),
        };
        let symmetric: Box<[Link]> = (0..cards * cards).map(|i| link(i / cards, i % cards)).collect();
        let mut near = vec![Nearness::ZERO; 1 << cards];
        for set in 1..near.len() {
            let (low, rest) = (set.trailing_zeros() as usize, set & (set - 1));
            near[set] = bits(rest).fold(near[rest], |sum, other| sum.with(link(low, other)));
        }
        let mut pairs = (0..cards)
            .flat_map(|a| (0..a).map(move |b| (a, b)))
            .map(|(a, b)| symmetric[a * cards + b]);
        let uniform = pairs.next().is_none_or(|first| pairs.all(|l| l == first));
        let fabric = match symmetric.iter().any(|l| l.is_fabric()) {
            true => Fabric::Some,
            false if bare => Fabric::None,
            false => Fabric::Unknown,
        };
        let shape = Self {
            cards,
            uniform,
            worth: worth::table(cards, &symmetric, fabric),
            fabric,
            links: symmetric,
            near: near.into(),
            best: OnceLock::new(),
        };
        if cards <= Self::SMALL && !shape.uniform {
            shape.warm();
        }
        Some(shape)
    }

    /// Makes the tables that `nearest` reads. Some hundred milliseconds for sixteen cards: never on a request's path.
    pub fn warm(&self) {
        self.best.get_or_init(|| {
            let all = self.near.len();
            let choose = |k: u32| -> Box<[Cards]> {
                (0..all)
                    .map(|free| {
                        self.first(free as Cards, free as Cards, k, |_| ())
                            .map_or(0, |(set, ..)| set)
                    })
                    .collect()
            };
            (0..=self.cards as u32).map(choose).collect()
        });
    }

    /// Whether `nearest` answers from a table (or needs none).
    pub fn is_warm(&self) -> bool {
        self.uniform || self.best.get().is_some()
    }

    pub fn cards(&self) -> usize {
        self.cards
    }

    /// Row by row; symmetric.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    pub fn link(&self, a: usize, b: usize) -> Link {
        let inside = a < self.cards && b < self.cards;
        if inside {
            self.links[a * self.cards + b]
        } else {
            Link::Unknown
        }
    }

    /// How near the cards of the set are. Positions the shape does not have are not in it.
    pub fn near(&self, set: Cards) -> Nearness {
        self.near[self.known(set)]
    }

    /// What others lose of `free` when `set` is taken out of it.
    pub fn lost(&self, free: Cards, set: Cards) -> Worth {
        let free = self.known(free);
        self.worth[free].minus(self.worth[free & !usize::from(set)])
    }

    pub fn grade(&self, free: Cards, set: Cards) -> Grade {
        let (lost, near) = (self.lost(free, set), self.near(set));
        Grade {
            cost: near.sum(),
            near,
            big: lost.big,
            pairs: lost.pairs,
        }
    }

    /// Whether every two cards of the set are joined as `topology: required` asks: by a fabric where the node has any,
    /// below one PCIe root where it is known to have none. A single card always is.
    pub fn is_clique(&self, set: Cards) -> bool {
        let set = self.known(set);
        let joined = |a, b| worth::joined(self.fabric, self.links[a * self.cards + b]);
        bits(set).all(|a| bits(set).all(|b| a == b || joined(a, b)))
    }

    pub fn is_uniform(&self) -> bool {
        self.uniform
    }

    /// For a pod that does not care how near: the `k` usable cards that others miss least.
    pub fn least_lost(&self, free: Cards, usable: Cards, k: u32) -> Option<(Cards, Grade)> {
        let rank = |set: Cards| (self.lost(free, set), Reverse(set.reverse_bits()));
        let (_, Reverse(reversed)) = choices(usable, k).map(rank).min()?;
        let set = reversed.reverse_bits();
        Some((set, self.grade(free, set)))
    }

    /// The nearest `k` of the usable cards that are all joined, as `is_clique` has it. None: there are none.
    pub fn nearest_clique(&self, free: Cards, usable: Cards, k: u32) -> Option<(Cards, Grade)> {
        let apart = |set| !self.is_clique(set);
        let (set, grade, apart) = match self.fabric == Fabric::Some {
            // All fabric links cost the same, and less than any other: if there is a clique, it is the nearest set.
            true => self
                .nearest(free, usable, k)
                .map(|(set, grade)| (set, grade, apart(set)))?,
            false => self.first(free, usable, k, apart)?,
        };
        (!apart).then_some((set, grade))
    }

    pub fn fabric(&self) -> Fabric {
        self.fabric
    }

    /// The best `k` of the usable cards: by the sum over pairs, then the least loss to others of what is `free` (the
    /// usable ones and those this pod cannot have), the worst pair, the lowest positions. None: fewer than `k`.
    pub fn nearest(&self, free: Cards, usable: Cards, k: u32) -> Option<(Cards, Grade)> {
        let (free, usable) = (self.known(free | usable) as Cards, self.known(usable) as Cards);
        if usable.count_ones() < k {
            return None;
        }
        if self.uniform {
            // As good as any others.
            let set = spread((1_u32 << k) - 1, usable);
            return Some((set, self.grade(free, set)));
        }
        if let (true, Some(best)) = (free == usable, self.best.get()) {
            let set = *best.get(k as usize)?.get(usize::from(free))?;
            return Some((set, self.grade(free, set)));
        }
        self.first(free, usable, k, |_| ()).map(|(set, grade, ())| (set, grade))
    }

    /// The same with a key of the caller's before all others. Looks at every set of `k`: 12,870 at most.
    fn first<K: Ord + Copy>(
        &self,
        free: Cards,
        usable: Cards,
        k: u32,
        key: impl Fn(Cards) -> K,
    ) -> Option<(Cards, Grade, K)> {
        // Reversed bits: of two sets the one with the lowest position that the other lacks comes first.
        let rank = |set: Cards| (key(set), self.grade(free, set), Reverse(set.reverse_bits()));
        let (key, grade, Reverse(reversed)) = choices(usable, k).map(rank).min()?;
        Some((reversed.reverse_bits(), grade, key))
    }

    fn known(&self, set: Cards) -> usize {
        usize::from(set) & (self.near.len() - 1)
    }
}

/// Of two reports on one pair the farther is believed.
fn farther(a: Link, b: Link) -> Link {
    if a.rank() >= b.rank() { a } else { b }
}

/// Positions in a set.
pub(super) fn bits(set: usize) -> impl Iterator<Item = usize> {
    let mut left = set;
    std::iter::from_fn(move || {
        let next = (left != 0).then(|| left.trailing_zeros() as usize)?;
        left &= left - 1;
        Some(next)
    })
}

/// Every subset of `k` cards.
fn choices(of: Cards, k: u32) -> impl Iterator<Item = Cards> {
    let n = of.count_ones();
    let last = 1_u32 << n;
    // Gosper's walk over the numbers with k bits, spread over the positions that are there.
    let mut dense = (k <= n).then(|| (1_u32 << k) - 1);
    std::iter::from_fn(move || {
        let now = dense?;
        dense = match now {
            0 => None,
            _ => {
                let low = now & now.wrapping_neg();
                let carried = now + low;
                Some((((carried ^ now) >> 2) / low) | carried).filter(|next| *next < last)
            }
        };
        Some(spread(now, of))
    })
}

/// The `i`-th bit of `dense` at the place of the `i`-th set bit of `over`.
fn spread(dense: u32, over: Cards) -> Cards {
    let (mut left, mut out) = (over, 0);
    let mut dense = dense;
    while dense != 0 && left != 0 {
        let low = left & left.wrapping_neg();
        if dense & 1 != 0 {
            out |= low;
        }
        dense >>= 1;
        left &= left - 1;
    }
    out
}
