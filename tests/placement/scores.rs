//! Scores: one best node, a strict order, packing or spreading.

use proptest::prelude::*;
use wattlane::placement::Topology;
use wattlane::topology::Link;

use super::world::{World, ask, gpu, ids, mixed, pod};

fn cards(count: usize, class: &str, watts: u32) -> Vec<serde_json::Value> {
    (0..count).map(|i| gpu(&format!("{class}-{i}"), class, watts)).collect()
}

#[test]
fn the_fullest_node_wins_or_with_spreading_the_emptiest() {
    let mut world = World::new();
    for name in ["a", "b", "c"] {
        world.node(name, &cards(4, "x", 300));
    }
    world.take("b", &["x-0"]);
    world.take("c", &["x-0", "x-1"]);
    world.claim("one", ask(1));
    let one = pod("p", &["one"]);
    assert_eq!(world.scores(&one, &["a", "b", "c"]), [5, 9, 10]);
    world.rules.spread = true;
    assert_eq!(world.scores(&one, &["a", "b", "c"]), [10, 9, 5]);
}

#[test]
fn watts_come_before_packing() {
    let mut world = World::new();
    world.node("full", &cards(1, "big", 600));
    world.node("empty", &cards(8, "small", 300));
    world.claim("one", ask(1));
    assert_eq!(world.scores(&pod("p", &["one"]), &["full", "empty"]), [9, 10]);
}

#[test]
fn equal_nodes_go_by_name_and_those_that_do_not_fit_have_nothing() {
    let mut world = World::new();
    for name in ["b", "a", "c"] {
        world.node(name, &mixed());
    }
    world.node("none", &[]);
    world.take("c", &["gpu-0", "gpu-1"]);
    world.claim("two", ask(2));
    let two = pod("p", &["two"]);
    assert_eq!(world.scores(&two, &["b", "none", "c", "a"]), [9, 0, 0, 10]);
    assert_eq!(world.scores(&two, &["none"]), [0]);
    assert_eq!(world.scores(&two, &["b"]), [10]);
    assert_eq!(world.scores(&two, &[]), [0_u8; 0]);
}

/// Both cost the same by sum, and the switched pair is nearer by its worst link.
#[test]
fn a_pair_leaves_the_node_on_which_eight_reach_each_other() {
    let mut world = World::new();
    for name in ["mesh", "switched"] {
        world.node(name, &cards(8, "x", 300));
    }
    world.claim("two", ask(2));
    world.claim("eight", ask(8));
    world.wire("mesh", &super::topology::cube_mesh());
    world.wire("switched", &[Link::NvSwitch; 64]);
    assert_eq!(world.scores(&pod("p", &["two"]), &["mesh", "switched"]), [10, 9]);
    assert_eq!(world.scores(&pod("p", &["eight"]), &["mesh", "switched"]), [9, 10]);
}

type Cards = Vec<(&'static str, u32)>;

/// Cards of a node, how many of them are taken.
/// and how they are connected.
fn node() -> impl Strategy<Value = (Cards, usize, Option<Vec<Link>>)> {
    let kind = prop::sample::select(vec![("a", 300), ("b", 300), ("b", 600), ("c", 600)]);
    let link = prop::sample::select(vec![
        Link::NvLink(2),
        Link::NvLink(1),
        Link::Phb,
        Link::Sys,
        Link::Unknown,
    ]);
    let links = prop::option::of(prop::collection::vec(link, 64));
    (prop::collection::vec(kind, 0..9), 0_usize..4, links)
}

fn topology() -> impl Strategy<Value = Topology> {
    prop::sample::select(vec![
        Topology::Preferred,
        Topology::Preferred,
        Topology::Required,
        Topology::None,
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// The common shape answers from bit masks; the same question with a constraint that everything satisfies goes
    /// through the search. Both must say the same of every node, in the same words and in the same order.
    #[test]
    fn the_quick_path_and_the_search_agree(nodes in prop::collection::vec(node(), 1..14), count in 1_u32..5, mix: bool, spread: bool, topology in topology()) {
        let mut world = World::new();
        (world.rules.mix_classes, world.rules.spread, world.rules.topology) = (mix, spread, topology);
        let names: Vec<String> = (0..nodes.len()).map(|i| format!("n{:02}", (i * 5) % 14)).collect();
        for ((cards, taken, _), name) in nodes.iter().zip(&names) {
            let cards: Vec<_> = cards.iter().enumerate().map(|(i, (class, watts))| {
                super::world::with(gpu(&format!("d{i}"), class, *watts),
                    serde_json::json!({"attributes": {"same": {"bool": true}}}))
            }).collect();
            world.node(name, &cards);
            for i in 0..(*taken).min(cards.len()) {
                world.take(name, &[&format!("d{i}")]);
            }
        }
        world.claim("quick", ask(count));
        let constrained = serde_json::json!({"constraints": [{"matchAttribute": format!("{}/same", super::world::DRIVER)}]});
        world.claim("slow", super::world::with(ask(count), constrained));
        for ((cards, _, links), name) in nodes.iter().zip(&names) {
            if let (Some(links), 1..) = (links, cards.len()) {
                world.wire(name, &links[..cards.len() * cards.len()]);
            }
        }
        let (quick, slow) = (pod("p", &["quick"]), pod("p", &["slow"]));
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut fitting = 0;
        for name in &names {
            let checked = world.check(&quick, name);
            prop_assert_eq!(&checked, &world.check(&slow, name));
            let (fast, thorough) = (world.place(&quick, name), world.place(&slow, name));
            prop_assert_eq!(checked.clone().err(), fast.as_ref().err().cloned());
            if let (Ok(fast), Ok(thorough)) = (&fast, &thorough) {
                prop_assert_eq!(ids(fast).collect::<Vec<_>>(), ids(thorough).collect::<Vec<_>>());
                fitting += 1;
            }
            prop_assert_eq!(fast.is_ok(), thorough.is_ok());
        }
        let scores = world.scores(&quick, &names);
        prop_assert_eq!(&scores, &world.scores(&slow, &names));
        prop_assert_eq!(scores.iter().filter(|s| **s == 10).count(), usize::from(fitting > 0));
        prop_assert_eq!(scores.iter().filter(|s| **s > 0).count(), fitting);
        // Not a matter of the order in which the nodes are named.
        let backwards: Vec<&str> = names.iter().rev().copied().collect();
        let mut reversed = world.scores(&quick, &backwards);
        reversed.reverse();
        prop_assert_eq!(scores, reversed);
    }
}
