//! Links between cards: the nearest set, groups that others keep, `required`, and groups of pods; small nodes against
//! every possible choice.

use proptest::prelude::*;
use serde_json::{Value, json};
use wattlane::placement::Topology;
use wattlane::topology::Link;

use super::world::{World, annotated, ask, gpu, ids, pod, pod_of, with};

/// `N` a fabric, `P` one PCIe bridge, `H` one host bridge, `S` across sockets, `?` unknown.
fn link(c: char) -> Link {
    match c {
        'N' => Link::NvLink(4),
        'P' => Link::Pix,
        'H' => Link::Phb,
        'S' => Link::Sys,
        _ => Link::Unknown,
    }
}

pub(crate) fn links(rows: &[&str]) -> Vec<Link> {
    rows.iter().flat_map(|r| r.chars()).map(link).collect()
}

/// Two quads, each card with one link to its peer in the other.
pub(crate) fn cube_mesh() -> Vec<Link> {
    links(&[
        "XNNNNSSS", "NXNNSNSS", "NNXNSSNS", "NNNXSSSN", "NSSSXNNN", "SNSSNXNN", "SSNSNNXN", "SSSNNNNX",
    ])
}

fn cards(count: usize) -> Vec<Value> {
    (0..count).map(|i| gpu(&format!("gpu-{i}"), "c", 300)).collect()
}

fn named(list: &[usize]) -> Vec<String> {
    list.iter().map(|i| format!("gpu-{i}")).collect()
}

fn mesh(taken: &[usize]) -> World {
    let mut world = World::new();
    world.node("n", &cards(8));
    for i in taken {
        world.take("n", &[&format!("gpu-{i}")]);
    }
    world.wire("n", &cube_mesh());
    world
}

#[test]
fn four_of_the_six_free_cards_are_the_quad_and_not_the_first_four() {
    let mut world = mesh(&[0, 1]);
    world.claim("four", ask(4));
    world.wire("n", &cube_mesh());
    let four = pod("p", &["four"]);
    assert_eq!(world.devices(&four, "n"), named(&[4, 5, 6, 7]));
    assert_eq!(world.place(&four, "n").map(|p| p.cost.links), Ok(6));
    assert_eq!(world.list_order(&four, "n"), Some(named(&[2, 3, 4, 5])), "18 by links");
}

#[test]
fn a_quad_is_broken_for_one_card_only_when_nothing_else_is_left() {
    let mut world = mesh(&[1]);
    world.claim("one", ask(1));
    world.wire("n", &cube_mesh());
    assert_eq!(world.devices(&pod("p", &["one"]), "n"), named(&[0]));
    let mut world = mesh(&[4, 5, 6]);
    world.claim("one", ask(1));
    world.wire("n", &cube_mesh());
    assert_eq!(world.devices(&pod("p", &["one"]), "n"), named(&[7]));
}

#[test]
fn required_takes_cards_that_all_reach_each_other_or_says_no() {
    let asks = json!({"wattlane.dev/topology": "required"});
    let mut world = mesh(&[0, 5]);
    for n in [1, 3, 4] {
        world.claim(&format!("c{n}"), ask(n));
    }
    world.wire("n", &cube_mesh());
    let wanting = |n| annotated("p", &[&*format!("c{n}")], asks.clone());
    assert_eq!(world.devices(&wanting(3), "n"), named(&[1, 2, 3]));
    assert_eq!(
        world.refused(&wanting(4), "n"),
        "topology: topology required: no 4 free gpu devices that all reach each other by NVLink or XGMI"
    );
    let preferring = annotated("p", &["c4"], json!({"wattlane.dev/topology": "preferred"}));
    assert_eq!(world.devices(&preferring, "n").len(), 4);
    // Without any word of how they are connected a single card is all that can be promised.
    world.node("dark", &cards(4));
    assert_eq!(world.devices(&wanting(1), "dark"), named(&[0]));
    assert_eq!(
        world.refused(&wanting(3), "dark"),
        "topology: topology required: how its cards are connected is not known (or they are more than 16)"
    );
    let odd = annotated("p", &["c1"], json!({"wattlane.dev/topology": "please"}));
    assert!(
        world
            .demand(&odd)
            .is_err_and(|r| r.message.contains("not required, preferred or none"))
    );
}

#[test]
fn required_speaks_of_all_cards_of_the_pod() {
    let mut world = mesh(&[]);
    let (a, b) = (world_request("a", 1), world_request("b", 1));
    world.claim("pair", json!({"requests": [a, b]}));
    world.take("n", &["gpu-1", "gpu-2", "gpu-3"]);
    world.wire("n", &cube_mesh());
    let pair = annotated("p", &["pair"], json!({"wattlane.dev/topology": "required"}));
    assert_eq!(
        world.devices(&pair, "n"),
        named(&[0, 4]),
        "joined, and the quad of 4 is broken in any case"
    );
}

fn world_request(name: &str, count: u32) -> Value {
    super::world::request(name, json!({"count": count}))
}

#[test]
fn one_pcie_root_is_enough_where_there_is_no_fabric() {
    let mut world = World::new();
    world.node("n", &cards(4));
    world.claim("two", ask(2));
    world.claim("three", ask(3));
    world.take("n", &["gpu-0"]);
    world.wire("n", &links(&["XHSS", "HXSS", "SSXH", "SSHX"]));
    let wanting = |claim| annotated("p", &[claim], json!({"wattlane.dev/topology": "required"}));
    assert_eq!(world.devices(&wanting("two"), "n"), named(&[2, 3]));
    assert_eq!(
        world.refused(&wanting("three"), "n"),
        "topology: topology required: no 3 free gpu devices below one PCIe root (the node has no NVLink)"
    );
}

#[test]
fn pods_of_a_group_go_near_its_members_and_take_their_class() {
    let mut world = World::new();
    for (name, rack) in [("a", "r1"), ("b", "r2"), ("c", "r1")] {
        world.node(name, &[gpu("big-0", "big", 600), gpu("small-0", "small", 300)]);
        world.labelled_node(name, json!({"topology.kubernetes.io/rack": rack}));
    }
    world.claim("first", ask(1));
    world.claim("second", ask(1));
    let member = |name: &str, claim: &str, node: &str| {
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "uid": name, "annotations": {"wattlane.dev/group": "job"}},
            "spec": {"nodeName": node, "containers": [{"name": "c"}],
                "resourceClaims": [{"name": claim, "resourceClaimName": claim}]}})
    };
    let second = pod_of(member("second", "second", ""));
    assert_eq!(
        world.scores(&second, &["b", "a", "c"]),
        [9, 10, 5],
        "nobody to be near to"
    );
    // The first member is on c with the big card.
    let status = json!({"allocation": {"devices": {"results": [
        {"request": "r", "driver": super::world::DRIVER, "pool": "c", "device": "big-0"}]}}});
    world.claim_with("first", ask(1), json!({}), status);
    world.apply(member("first", "first", "c"));
    assert_eq!(
        world.scores(&second, &["b", "a", "c"]),
        [9, 10, 0],
        "the same rack; c has no big card left"
    );
    assert_eq!(world.devices(&second, "a"), ["big-0"]);
    let alone = pod("alone", &["second"]);
    assert_eq!(world.devices(&alone, "a"), ["small-0"]);
}

#[derive(Clone, Debug)]
struct Case {
    /// Class, watts, taken.
    cards: Vec<(&'static str, u32, bool)>,
    cells: Vec<char>,
    /// Counts of the requests of one claim.
    asks: Vec<u32>,
    topology: Topology,
}

fn case() -> impl Strategy<Value = Case> {
    let kind = prop::sample::select(vec![("a", 300), ("a", 300), ("b", 600), ("b", 500)]);
    let card = (kind, prop::bool::weighted(0.2)).prop_map(|((class, watts), taken)| (class, watts, taken));
    (
        prop::collection::vec(card, 1..8),
        prop::collection::vec(prop::sample::select(vec!['N', 'N', 'P', 'H', 'S', '?']), 64),
        prop::collection::vec(1_u32..4, 1..3),
        prop::sample::select(vec![
            Topology::Preferred,
            Topology::Preferred,
            Topology::Required,
            Topology::None,
        ]),
        any::<bool>(),
    )
        .prop_map(|(cards, mut cells, asks, topology, fabric)| {
            if !fabric {
                cells.iter_mut().filter(|c| **c == 'N').for_each(|c| *c = 'P');
            }
            Case {
                cards,
                cells,
                asks,
                topology,
            }
        })
}

/// Sum over pairs, then the worst pair.
type Near = (u32, u8);

impl Case {
    fn links(&self) -> Vec<Link> {
        let n = self.cards.len();
        // The same both ways: disagreements are `Shape`'s business.
        (0..n * n)
            .map(|i| link(self.cells[(i / n).min(i % n) * 8 + (i / n).max(i % n)]))
            .collect()
    }

    fn near(&self, sets: &[Vec<usize>]) -> Near {
        let (links, n) = (self.links(), self.cards.len());
        let pairs = sets.iter().flat_map(|set| {
            set.iter()
                .enumerate()
                .flat_map(|(i, a)| set[..i].iter().map(move |b| (*a, *b)))
        });
        let pairs: Vec<Link> = pairs.map(|(a, b)| links[a * n + b]).collect();
        (
            pairs.iter().map(|l| l.cost()).sum(),
            pairs.iter().map(|l| l.rank()).max().unwrap_or(0),
        )
    }

    fn joined(&self, set: &[usize]) -> bool {
        let (links, n) = (self.links(), self.cards.len());
        let off_diagonal = || (0..n * n).filter(|i| i / n != i % n).map(|i| links[i]);
        let fabric = off_diagonal().any(Link::is_fabric);
        let unread = off_diagonal().any(|l| l == Link::Unknown);
        let joined = |l: Link| {
            if fabric {
                l.is_fabric()
            } else {
                !unread && l.shares_root()
            }
        };
        set.iter()
            .all(|a| set.iter().all(|b| a == b || joined(links[a * n + b])))
    }

    /// Most groups of `size` that can be given side by side.
    fn packed(&self, free: &[usize], size: usize) -> u32 {
        let n = free.len();
        if n < size {
            return 0;
        }
        // The first card is in a group, or is not.
        let without = self.packed(&free[1..], size);
        let rest = &free[1..];
        let groups = (0_u32..1 << rest.len()).filter(|g| g.count_ones() as usize == size - 1);
        let with = groups.filter_map(|g| {
            let (mut group, mut left) = (vec![free[0]], vec![]);
            for (i, card) in rest.iter().enumerate() {
                if g >> i & 1 == 1 {
                    group.push(*card)
                } else {
                    left.push(*card)
                }
            }
            self.joined(&group).then(|| 1 + self.packed(&left, size))
        });
        with.max().unwrap_or(0).max(without)
    }

    /// (big, pairs) that others lose.
    fn lost(&self, chosen: &[usize]) -> (u32, u32) {
        let mut lost = (0, 0);
        for class in ["a", "b"] {
            let of_class = |i: &usize| self.cards[*i].0 == class && !self.cards[*i].2;
            let before: Vec<usize> = (0..self.cards.len()).filter(of_class).collect();
            let after: Vec<usize> = before.iter().copied().filter(|i| !chosen.contains(i)).collect();
            let fewer = |size: u32| size * (self.packed(&before, size as usize) - self.packed(&after, size as usize));
            lost = (lost.0 + fewer(4) + fewer(8), lost.1 + fewer(2));
        }
        lost
    }

    fn key(&self, sets: &[Vec<usize>]) -> (u32, u32, u32, u32, Near, Near, u32) {
        let all: Vec<usize> = sets.concat();
        let (big, pairs) = self.lost(&all);
        let watts = all.iter().map(|i| self.cards[*i].1).sum();
        let counts = self.topology != Topology::None;
        let near = |sets: &[Vec<usize>]| if counts { self.near(sets) } else { (0, 0) };
        let (within, across) = (near(sets), near(std::slice::from_ref(&all)));
        (within.0, across.0, big, watts, within, across, pairs)
    }

    /// Every way to serve the requests from free cards of one class.
    fn ways(&self) -> Vec<Vec<Vec<usize>>> {
        let n = self.cards.len();
        let mut ways = vec![vec![]];
        for ask in &self.asks {
            let sets = (0_u32..1 << n).filter(|s| s.count_ones() == *ask);
            let sets: Vec<Vec<usize>> = sets.map(|s| (0..n).filter(|i| s >> i & 1 == 1).collect()).collect();
            ways = ways
                .into_iter()
                .flat_map(|way: Vec<Vec<usize>>| {
                    sets.iter().map(move |set| {
                        let mut way = way.clone();
                        way.push(set.clone());
                        way
                    })
                })
                .filter(|way| self.is_legal(way))
                .collect();
        }
        ways
    }

    fn is_legal(&self, way: &[Vec<usize>]) -> bool {
        let mut all = way.concat();
        let (first, size) = (self.cards[all[0]].0, all.len());
        let fine = all.iter().all(|i| self.cards[*i].0 == first && !self.cards[*i].2);
        let joined = self.topology != Topology::Required || self.joined(&all);
        all.sort_unstable();
        all.dedup();
        fine && joined && all.len() == size
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_choice_is_the_best_of_all(case in case()) {
        let mut world = World::new();
        world.rules.topology = case.topology;
        let cards: Vec<_> = case.cards.iter().enumerate().map(|(i, (class, watts, _))| {
            with(gpu(&format!("gpu-{i}"), class, *watts), json!({"attributes": {"same": {"bool": true}}}))
        }).collect();
        world.node("n", &cards);
        for (i, _) in case.cards.iter().enumerate().filter(|(_, c)| c.2) {
            world.take("n", &[&format!("gpu-{i}")]);
        }
        let names = ["r", "s"];
        let requests: Vec<_> = case.asks.iter().zip(names).map(|(n, name)| world_request(name, *n)).collect();
        world.claim("quick", json!({"requests": requests}));
        let rule = json!({"constraints": [{"matchAttribute": format!("{}/same", super::world::DRIVER)}]});
        world.claim("slow", with(json!({"requests": requests}), rule));
        world.wire("n", &case.links());
        let best = case.ways().iter().map(|way| case.key(way)).min();
        for claim in ["quick", "slow"] {
            let pod = pod("p", &[claim]);
            prop_assert_eq!(world.check(&pod, "n").is_ok(), best.is_some(), "{}", claim);
            let placed = world.place(&pod, "n");
            prop_assert_eq!(placed.is_ok(), best.is_some());
            let (Ok(placed), Some(best)) = (placed, best) else { continue };
            prop_assert!(!placed.cut);
            let mut sets = vec![vec![]; case.asks.len()];
            for result in placed.claims.iter().flat_map(|c| &c.allocation.results) {
                let card = result.id.device.trim_start_matches("gpu-").parse::<usize>().expect("a number");
                sets[names.iter().position(|n| **n == *result.request).expect("its request")].push(card);
            }
            prop_assert!(case.is_legal(&sets));
            prop_assert_eq!(case.key(&sets), best, "{:?}", sets);
            prop_assert_eq!(placed.cost.links, best.0);
            prop_assert_eq!(ids(&placed).count(), case.asks.iter().sum::<u32>() as usize);
        }
    }
}
