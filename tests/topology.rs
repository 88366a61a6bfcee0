//! The tables against the plainest reckoning of the same thing.

use proptest::prelude::*;

use wattlane::topology::{Cards, Link, Nearness, Shape, text};

fn bits(set: usize) -> impl Iterator<Item = usize> {
    (0..16).filter(move |i| set >> i & 1 == 1)
}

fn link(text: &str) -> Link {
    match text {
        "P" => Link::Pix,
        "H" => Link::Phb,
        "N" => Link::Node,
        "S" => Link::Sys,
        "?" => Link::Unknown,
        n => Link::NvLink(n.parse().expect("test link")),
    }
}

fn shape(rows: &[&str]) -> Shape {
    let links: Vec<Link> = rows
        .iter()
        .flat_map(|r| r.split(' '))
        .map(|c| link(if c == "X" { "?" } else { c }))
        .collect();
    Shape::new(&links, true).expect("a square")
}

/// A hybrid cube mesh: two quads, and one link from each card to its peer in the other quad.
fn cube_mesh() -> Shape {
    shape(&[
        "X 1 1 2 2 S S S",
        "1 X 2 1 S 2 S S",
        "1 2 X 2 S S 1 S",
        "2 1 2 X S S S 1",
        "2 S S S X 1 1 2",
        "S 2 S S 1 X 2 1",
        "S S 1 S 1 2 X 2",
        "S S S 1 2 1 2 X",
    ])
}

fn sum(s: &Shape, set: Cards) -> u32 {
    s.near(set).sum()
}

#[test]
fn four_of_the_last_six_cards_of_a_cube_mesh_are_one_quad() {
    let mesh = cube_mesh();
    let (set, grade) = mesh.nearest(0b1111_1100, 0b1111_1100, 4).expect("six are free");
    assert_eq!((set, grade.near.sum()), (0b1111_0000, 6));
    assert_eq!(sum(&mesh, 0b0011_1100), 18, "the first four in list order");
    assert!(mesh.is_clique(0b1111_0000) && mesh.is_clique(0b0001_0001));
    assert!(!mesh.is_clique(0xff), "connected is not joined");
}

#[test]
fn a_single_card_does_not_break_a_quad_while_another_is_broken() {
    let mesh = cube_mesh();
    let (set, grade) = mesh.nearest(0b1111_0111, 0b1111_0111, 1).expect("seven are free");
    assert_eq!(set & 0b1111_0000, 0, "the quad 4-7 is whole: {set:b}");
    assert_eq!(grade.big, 0);
    let (_, last_resort) = mesh.nearest(0b1111_0000, 0b1111_0000, 1).expect("four are free");
    assert_eq!(last_resort.big, 4);
}

#[test]
fn equal_sums_are_decided_by_the_worst_pair() {
    let s = shape(&["X 1 2 S", "1 X S S", "2 S X S", "S S S X"]);
    assert_eq!(
        s.nearest(0b1111, 0b1111, 2).map(|(set, _)| set),
        Some(0b0101),
        "NV2 before NV1"
    );
}

#[test]
fn without_a_fabric_one_pcie_root_is_a_group_and_with_one_it_is_not() {
    let pcie = shape(&["X P S", "P X S", "S S X"]);
    assert!(pcie.is_clique(0b011) && !pcie.is_clique(0b110));
    let bridged = shape(&["X P S", "P X 4", "S 4 X"]);
    assert!(!bridged.is_clique(0b011) && bridged.is_clique(0b110));
    assert!(!shape(&["X ?", "? X"]).is_clique(0b11), "unknown is not near");
}

#[test]
fn reports_that_disagree_count_as_the_farther() {
    assert_eq!(shape(&["X P", "S X"]).link(0, 1), Link::Sys);
}

#[test]
fn only_squares_of_up_to_sixteen() {
    assert!(Shape::new(&[], true).is_none() && Shape::new(&[Link::Pix; 3], true).is_none());
    assert!(Shape::new(&[Link::Pix; 17 * 17], true).is_none());
    assert!(Shape::new(&[Link::NvSwitch; 256], true).is_some());
}

/// How many disjoint groups of `size`, by trying all.
fn most(s: &Shape, set: usize, size: u32) -> u32 {
    let groups = (0..=set).filter(|g| g & set == *g && g.count_ones() == size && s.is_clique(*g as Cards));
    groups
        .map(|g| {
            1 + if set & !g == 0 {
                0
            } else {
                most_below(s, set & !g, size, g)
            }
        })
        .max()
        .unwrap_or(0)
}

/// The same with groups that come before `below` only: order does not matter.
fn most_below(s: &Shape, set: usize, size: u32, below: usize) -> u32 {
    let groups = (0..below).filter(|g| g & set == *g && g.count_ones() == size && s.is_clique(*g as Cards));
    groups.map(|g| 1 + most_below(s, set & !g, size, g)).max().unwrap_or(0)
}

fn worth(s: &Shape, set: usize) -> (u32, u32) {
    (4 * most(s, set, 4) + 8 * most(s, set, 8), 2 * most(s, set, 2))
}

fn brute(s: &Shape, free: usize, usable: usize, k: u32) -> Option<Cards> {
    brute_with(s, &|set| worth(s, set), free, usable, k)
}

type Worths<'a> = &'a dyn Fn(usize) -> (u32, u32);

fn brute_with(s: &Shape, worth: Worths<'_>, free: usize, usable: usize, k: u32) -> Option<Cards> {
    let before = worth(free);
    let sets = (0..=usable).filter(|set| set & usable == *set && set.count_ones() == k);
    let rank = |set: &usize| {
        let pairs = bits(*set)
            .flat_map(|a| bits(*set).map(move |b| (a, b)))
            .filter(|(a, b)| a < b);
        let pairs: Vec<Link> = pairs.map(|(a, b)| s.link(a, b)).collect();
        let cost: u32 = pairs.iter().map(|l| l.cost()).sum();
        let worst = pairs.iter().map(|l| l.rank()).max().unwrap_or(0);
        let after = worth(free & !set);
        let order: Vec<usize> = bits(*set).collect();
        (cost, before.0 - after.0, worst, before.1 - after.1, order)
    };
    sets.min_by_key(rank).map(|set| set as Cards)
}

/// Every free set, every number of cards.
fn holds_the_best_of_all(s: &Shape, name: &str) {
    let all = 1_usize << s.cards();
    let worths: Vec<_> = (0..all).map(|set| worth(s, set)).collect();
    for free in 0..all {
        for k in 1..=s.cards() as u32 {
            let best = s.nearest(free as Cards, free as Cards, k).map(|(set, _)| set);
            let want = brute_with(s, &|set| worths[set], free, free, k);
            assert_eq!(best, want, "{name}: free {free:b}, {k} of them");
        }
    }
}

#[test]
fn the_tables_of_a_cube_mesh_hold_the_best_of_every_free_set() {
    holds_the_best_of_all(&cube_mesh(), "cube mesh");
}

/// The captures are not part of the project: where they are not beside it, the cube mesh above has to do.
#[test]
fn every_captured_machine_of_up_to_eight_cards() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/topo");
    let Ok(files) = std::fs::read_dir(folder) else { return };
    let texts = files
        .filter_map(|f| f.ok().map(|f| f.path()))
        .filter(|p| p.extension().is_some_and(|e| e == "txt"));
    let mut seen = 0;
    for path in texts {
        let text = std::fs::read_to_string(&path).expect("a capture");
        let report = text::read(&[&text]).expect("a readable capture").report;
        let shape = Shape::new(&report.links, true).expect("a square");
        if shape.cards() <= 8 {
            holds_the_best_of_all(&shape, &path.display().to_string());
        } else {
            // All sixteen are joined alike: any would do, and the first are taken.
            assert!(shape.is_uniform());
            let chosen = shape
                .nearest(0b1101_0110_1011_0100, 0b1101_0110_1011_0100, 4)
                .map(|(set, grade)| (set, grade.near.sum()));
            assert_eq!(chosen, Some((0b1011_0100, 6)));
        }
        seen += 1;
    }
    assert!(seen > 10);
}

#[test]
fn sixteen_cards_answer_the_same_before_and_after_the_tables_are_made() {
    let links: Vec<Link> = (0..144)
        .map(|i| if i / 12 / 4 == i % 12 / 4 { Link::Pix } else { Link::Sys })
        .collect();
    let (cold, warm) = (
        Shape::new(&links, true).expect("a square"),
        Shape::new(&links, true).expect("a square"),
    );
    warm.warm();
    assert!(!cold.is_warm() && warm.is_warm());
    for free in (0..4096).step_by(37) {
        for k in [1, 2, 4, 7] {
            assert_eq!(cold.nearest(free, free, k), warm.nearest(free, free, k));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_matrix_any_cards(
        cells in proptest::collection::vec(prop_oneof![
            (1_u8..4).prop_map(Link::NvLink), Just(Link::Pix), Just(Link::Phb), Just(Link::Sys), Just(Link::Unknown),
        ], 36),
        (free, usable, k) in (0_u16..64, 0_u16..64, 1_u32..6),
    ) {
        let s = Shape::new(&cells, true).expect("a square");
        let usable = usable & free;
        let (got, want) = (s.nearest(free, usable, k), brute(&s, usize::from(free), usize::from(usable), k));
        prop_assert_eq!(got.map(|(set, _)| set), want);
        if let Some((set, grade)) = got {
            prop_assert!(grade.near >= Nearness::ZERO && set & !usable == 0);
        }
    }
}
