//! Who reaches whom over a fabric: connected groups, and the cliques in them. A group is not a clique: in a hybrid cube
//! mesh eight cards are connected, but at most four reach each other directly.

use super::Report;
use super::annotation::MAX_CARDS;

/// Sets of cards, one bit each.
type Set = u128;

/// Cliques looked for at the most. Reports of real machines have a handful; a made-up one could have 3^(n/3).
const MAX_CLIQUES: usize = 512;
/// Steps of the search at the most.
const MAX_STEPS: usize = 50_000;

/// Positions in the report, ascending, and ascending by their first.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Groups {
    /// Connected over NVLink or XGMI, two cards and more.
    pub groups: Vec<Vec<usize>>,
    /// Everyone directly with everyone, no card could be added; two cards and more.
    pub cliques: Vec<Vec<usize>>,
    /// There may be more cliques than are listed.
    pub cut: bool,
}

/// Both for a report. One of more cards than an annotation can hold has none, and is `cut`.
pub fn groups(report: &Report) -> Groups {
    let n = report.cards.len();
    if n > MAX_CARDS {
        return Groups {
            cut: true,
            ..Groups::default()
        };
    }
    let near: Vec<Set> = (0..n)
        .map(|a| {
            let linked = |b: &usize| *b != a && report.link(a, *b).is_fabric() && report.link(*b, a).is_fabric();
            (0..n).filter(linked).fold(0, |set, b| set | 1 << b)
        })
        .collect();
    let mut search = Search {
        near: &near,
        found: vec![],
        steps: 0,
        cut: false,
    };
    let all = if n == 128 { Set::MAX } else { (1 << n) - 1 };
    search.extend(0, all, 0);
    let mut cliques: Vec<Vec<usize>> = search.found.iter().map(|set| members(*set)).collect();
    cliques.sort();
    Groups {
        groups: connected(&near),
        cliques,
        cut: search.cut,
    }
}

fn connected(near: &[Set]) -> Vec<Vec<usize>> {
    let mut seen: Set = 0;
    let mut groups = vec![];
    for start in 0..near.len() {
        if seen & 1 << start != 0 {
            continue;
        }
        let mut group: Set = 1 << start;
        let mut edge = group;
        // Each round adds at least one card or is the last.
        while edge != 0 {
            let next = members(edge).into_iter().fold(0, |set, i| set | near[i]);
            edge = next & !group;
            group |= next;
        }
        seen |= group;
        if group.count_ones() > 1 {
            groups.push(members(group));
        }
    }
    groups
}

/// Bron and Kerbosch with a pivot.
struct Search<'a> {
    near: &'a [Set],
    found: Vec<Set>,
    steps: usize,
    cut: bool,
}

impl Search<'_> {
    /// As deep as the largest clique at the most.
    fn extend(&mut self, clique: Set, mut candidates: Set, mut done: Set) {
        self.steps += 1;
        if self.steps > MAX_STEPS || self.found.len() >= MAX_CLIQUES {
            self.cut = true;
            return;
        }
        if candidates | done == 0 {
            if clique.count_ones() > 1 {
                self.found.push(clique);
            }
            return;
        }
        let pivot = members(candidates | done)
            .into_iter()
            .max_by_key(|i| (self.near[*i] & candidates).count_ones());
        let skip = pivot.map_or(0, |i| self.near[i]);
        for i in members(candidates & !skip) {
            self.extend(clique | 1 << i, candidates & self.near[i], done & self.near[i]);
            candidates &= !(1 << i);
            done |= 1 << i;
        }
    }
}

fn members(mut set: Set) -> Vec<usize> {
    let mut out = Vec::with_capacity(set.count_ones() as usize);
    while set != 0 {
        out.push(set.trailing_zeros() as usize);
        set &= set - 1;
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Groups, groups};
    use crate::topology::{Link, Report, ReportedCard};

    fn report(n: usize, edges: &[(usize, usize)], link: Link) -> Report {
        let mut links = vec![Link::Sys; n * n];
        for (a, b) in edges {
            links[a * n + b] = link;
            links[b * n + a] = link;
        }
        Report {
            cards: vec![ReportedCard::default(); n],
            links,
        }
    }

    #[test]
    fn a_group_is_not_a_clique() {
        let found = groups(&report(5, &[(0, 1), (1, 2), (3, 4)], Link::Xgmi));
        assert_eq!(found.groups, [vec![0, 1, 2], vec![3, 4]]);
        assert_eq!(found.cliques, [vec![0, 1], vec![1, 2], vec![3, 4]]);
        assert_eq!(groups(&report(5, &[], Link::Sys)), Groups::default());
        assert_eq!(groups(&Report::default()), Groups::default());
    }

    #[test]
    fn a_link_that_one_end_denies_is_none() {
        let mut one_way = report(2, &[(0, 1)], Link::NvLink(4));
        one_way.links[2] = Link::Unknown;
        assert_eq!(groups(&one_way), Groups::default());
    }

    #[test]
    fn full_size_and_worst_case_end() {
        let all: Vec<_> = (0..128).flat_map(|a| (0..a).map(move |b| (a, b))).collect();
        let whole = groups(&report(128, &all, Link::NvLink(18)));
        assert_eq!((whole.cliques.len(), whole.groups.len(), whole.cut), (1, 1, false));
        // Moon and Moser: everyone but two others, 3^32 cliques.
        let moon: Vec<_> = all.into_iter().filter(|(a, b)| a / 3 != b / 3).collect();
        let cut = groups(&report(
            96,
            &moon.into_iter().filter(|(a, _)| *a < 96).collect::<Vec<_>>(),
            Link::Xgmi,
        ));
        assert!(cut.cut && !cut.cliques.is_empty());
        assert!(groups(&report(129, &[], Link::Sys)).cut);
    }

    proptest! {
        /// Against all subsets of a small graph.
        #[test]
        fn cliques_are_all_and_only_the_maximal_ones(edges in prop::collection::vec((0_usize..7, 0_usize..7), 0..20)) {
            let edges: Vec<_> = edges.into_iter().filter(|(a, b)| a != b).collect();
            let report = report(7, &edges, Link::NvLink(2));
            let linked = |a: usize, b: usize| edges.contains(&(a, b)) || edges.contains(&(b, a));
            let bits = |set: u32| (0..7).filter(move |i| set & 1 << i != 0);
            let clique = |set: u32| bits(set).all(|a| bits(set).all(|b| a == b || linked(a, b)));
            let mut want: Vec<Vec<usize>> = (0_u32..128)
                .filter(|s| s.count_ones() > 1 && clique(*s))
                .filter(|s| (0..7).all(|i| s & 1 << i != 0 || !clique(s | 1 << i)))
                .map(|s| bits(s).collect())
                .collect();
            want.sort();
            prop_assert_eq!(groups(&report).cliques, want);
        }
    }
}
