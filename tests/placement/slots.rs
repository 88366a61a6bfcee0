//! Partitions: which card and which place on it, against trying every choice and packing by hand.

use proptest::prelude::*;
use serde_json::{Value, json};
use wattlane::partition::{PRODUCTS, Product, Profile};

use wattlane::topology::Link;

use super::world::{DRIVER, World, annotated, gpu, pod, with};

fn product(id: &str) -> &'static Product {
    PRODUCTS.iter().find(|p| p.id == id).expect("a product of the table")
}

/// One partition of a card, by the rules of the vendor.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cut {
    card: usize,
    profile: &'static Profile,
    start: u8,
}

impl Cut {
    fn device(self) -> String {
        format!(
            "gpu-{}-mig-{}-{}",
            self.card,
            self.profile.name.replace(['.', '+'], ""),
            self.start
        )
    }

    fn slices(self) -> std::ops::Range<u8> {
        self.start..self.start + self.profile.memory_slices
    }
}

fn cuts(product: &Product, cards: usize) -> Vec<Cut> {
    let on = |card| {
        let profiles = product.profiles.iter();
        profiles.flat_map(move |profile| {
            profile.starts.iter().map(move |start| Cut {
                card,
                profile,
                start: *start,
            })
        })
    };
    (0..cards).flat_map(on).collect()
}

fn counters(product: &Product, slices: impl Fn(u8) -> bool, compute: u8, media: u8) -> Value {
    let mut counters = json!({"compute": {"value": compute.to_string()}, "media": {"value": media.to_string()}});
    for slice in (0..product.memory_slices).filter(|s| slices(*s)) {
        counters[format!("memory-slice-{slice}")] = json!({"value": "1"});
    }
    counters
}

/// As the NVIDIA driver publishes cards that can be cut: whole, and every partition at every place.
fn world(product: &Product, cards: usize) -> World {
    let draws = |card: usize, counters: Value| json!([{"counterSet": format!("card-{card}"), "counters": counters}]);
    let media = |p: &Profile| u8::from(p.name.contains("+me"));
    let mut devices: Vec<Value> = cuts(product, cards)
        .into_iter()
        .map(|cut| {
            let taken = counters(
                product,
                |s| cut.slices().contains(&s),
                cut.profile.compute_slices,
                media(cut.profile),
            );
            let device = with(
                gpu(&cut.device(), "x", 100),
                json!({"consumesCounters": draws(cut.card, taken)}),
            );
            attributes(
                device,
                json!({"type": {"string": "mig"}, "profile": {"string": cut.profile.name}}),
            )
        })
        .collect();
    for card in 0..cards {
        let all = counters(product, |_| true, product.compute_slices, 1);
        let device = with(
            gpu(&format!("gpu-{card}"), "x", 700),
            json!({"consumesCounters": draws(card, all)}),
        );
        devices.push(attributes(device, json!({"type": {"string": "gpu"}})));
    }
    let sets: Vec<Value> = (0..cards)
        .map(|card| json!({"name": format!("card-{card}"), "counters": counters(product, |_| true, product.compute_slices, 1)}))
        .collect();
    let mut world = World::new();
    world.node("n", &[]);
    let pool = json!({"name": "n", "generation": 1, "resourceSliceCount": 2});
    world.slice("n", json!({"nodeName": "n", "pool": pool, "devices": devices}));
    world.slice(
        "n-counters",
        json!({"nodeName": "n", "pool": pool, "sharedCounters": sets}),
    );
    world
}

fn attributes(mut device: Value, more: Value) -> Value {
    for (name, value) in more.as_object().expect("attributes") {
        device["attributes"][name] = value.clone();
    }
    device
}

/// `count` devices of the profile.
fn request(name: &str, profile: &str, count: usize) -> Value {
    let cel = format!("device.attributes['{DRIVER}'].?profile.orValue('') == '{profile}'");
    json!({"name": name, "exactly": {"deviceClassName": "gpu", "count": count, "selectors": [{"cel": {"expression": cel}}]}})
}

fn whole(count: usize) -> Value {
    let cel = format!("device.attributes['{DRIVER}'].type == 'gpu'");
    json!({"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": count, "selectors": [{"cel": {"expression": cel}}]}}]})
}

// ---- packing by hand

fn together(product: &Product, placed: &[Cut]) -> bool {
    let of = |card: usize| placed.iter().filter(move |c| c.card == card);
    placed.iter().enumerate().all(|(i, cut)| {
        let overlap =
            |other: &Cut| other.card == cut.card && other.start < cut.slices().end && cut.start < other.slices().end;
        let compute: u8 = of(cut.card).map(|c| c.profile.compute_slices).sum();
        let media = of(cut.card).filter(|c| c.profile.name.contains("+me")).count();
        !placed[..i].iter().any(overlap) && compute <= product.compute_slices && media <= 1
    })
}

/// The most of the profile on one card beside what is there.
fn most(product: &Product, there: &[Cut], profile: &Profile) -> u32 {
    fn add(product: &Product, there: &mut Vec<Cut>, open: &[Cut]) -> u32 {
        let mut best = 0;
        for (i, cut) in open.iter().enumerate() {
            there.push(*cut);
            if together(product, there) {
                best = best.max(1 + add(product, there, &open[i + 1..]));
            }
            there.pop();
        }
        best
    }
    let card = there.first().map_or(0, |c| c.card);
    let open: Vec<Cut> = profile
        .starts
        .iter()
        .map(|start| Cut {
            card,
            profile: leak(product, profile),
            start: *start,
        })
        .collect();
    add(product, &mut there.to_vec(), &open)
}

fn leak(product: &Product, profile: &Profile) -> &'static Profile {
    product.profiles.iter().find(|p| *p == profile).expect("of the product")
}

/// The part of the card it takes, in thousandths: the mean over memory slices, compute slices and media engines.
fn size(product: &Product, profile: &Profile) -> u32 {
    let slices = u32::from(profile.memory_slices) * 1000;
    let compute = u32::from(profile.compute_slices) * 1000 / u32::from(product.compute_slices);
    let media = if profile.name.contains("+me") { 1000 } else { 0 };
    (slices + compute + media) / (u32::from(product.memory_slices) + 2)
}

fn worth(product: &Product, there: &[Cut], cards: usize) -> u32 {
    let of = |card: usize| {
        there
            .iter()
            .filter(move |c| c.card == card)
            .copied()
            .collect::<Vec<_>>()
    };
    let worth = |card: usize| -> u32 {
        let there = of(card);
        let parts: u32 = product
            .profiles
            .iter()
            .map(|p| most(product, &there, p) * size(product, p))
            .sum();
        // And the whole card, where nothing is cut from it.
        parts + if there.is_empty() { 1000 } else { 0 }
    };
    (0..cards).map(worth).sum()
}

#[derive(Debug, Clone)]
struct Case {
    product: &'static str,
    cards: usize,
    /// Tried in order; those that fit are there already.
    there: Vec<usize>,
    /// Profile (by position) and count of each request.
    asks: Vec<(usize, usize)>,
}

fn case() -> impl Strategy<Value = Case> {
    (
        prop::sample::select(vec![
            "a100-80gb",
            "h100-80gb",
            "a30-24gb",
            "rtx-pro-6000-blackwell-96gb",
        ]),
        1_usize..5,
        prop::collection::vec(0_usize..1000, 0..8),
        prop::collection::vec((0_usize..100, 1_usize..3), 1..3),
    )
        .prop_map(|(product, cards, there, asks)| Case {
            product,
            cards,
            there,
            asks,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_left_to_others_is_the_most_there_can_be(case in case()) {
        let product = product(case.product);
        let all = cuts(product, case.cards);
        let mut there: Vec<Cut> = vec![];
        for pick in &case.there {
            there.push(all[pick % all.len()]);
            if !together(product, &there) {
                there.pop();
            }
        }
        let mut world = world(product, case.cards);
        let names: Vec<String> = there.iter().map(|c| c.device()).collect();
        if !names.is_empty() {
            world.take("n", &names.iter().map(String::as_str).collect::<Vec<_>>());
        }
        let asks: Vec<(&'static Profile, usize)> = case.asks.iter()
            .map(|(p, n)| (&product.profiles[p % product.profiles.len()], *n)).collect();
        let requests: Vec<Value> = asks.iter().enumerate().map(|(i, (p, n))| request(&format!("r{i}"), p.name, *n)).collect();
        world.claim("c", json!({"requests": requests}));

        // Every choice, each set once.
        let mut choices: Vec<Vec<Cut>> = vec![vec![]];
        for (profile, count) in &asks {
            let of: Vec<Cut> = all.iter().filter(|c| c.profile == *profile).copied().collect();
            let mut ways: Vec<(usize, Vec<Cut>)> = choices.into_iter().map(|c| (0, c)).collect();
            for _ in 0..*count {
                let longer = |(from, way): (usize, Vec<Cut>)| {
                    let next = (from..of.len()).map(|i| (i + 1, [way.clone(), vec![of[i]]].concat()));
                    next.filter(|(_, c)| together(product, &[there.clone(), c.clone()].concat())).collect::<Vec<_>>()
                };
                ways = ways.into_iter().flat_map(longer).collect();
            }
            choices = ways.into_iter().map(|(_, choice)| choice).collect();
        }
        let left = |choice: &[Cut]| worth(product, &[there.clone(), choice.to_vec()].concat(), case.cards);
        let best = choices.iter().map(|c| left(c)).max();
        match world.place(&pod("p", &["c"]), "n") {
            Ok(placed) => {
                let devices: Vec<String> = placed.claims[0].allocation.results.iter().map(|r| r.id.device.to_string()).collect();
                let chosen: Vec<Cut> = all.iter().filter(|c| devices.contains(&c.device())).copied().collect();
                prop_assert!(!placed.cut, "{:?}", case);
                prop_assert_eq!(Some(left(&chosen)), best, "{:?} beside {:?}", devices, names);
            }
            Err(why) => prop_assert!(choices.is_empty(), "{why}, but {:?}", choices.first()),
        }
    }
}

#[test]
fn a_3g_goes_to_the_far_end_of_an_empty_card_and_the_fullest_card_is_used_first() {
    let mut world = world(product("h100-80gb"), 8);
    world.claim("c", json!({"requests": [request("r", "3g.40gb", 1)]}));
    assert_eq!(world.devices(&pod("p", &["c"]), "n"), ["gpu-0-mig-3g40gb-4"]);
    world.take("n", &["gpu-5-mig-4g40gb-0"]);
    assert_eq!(
        world.devices(&pod("p", &["c"]), "n"),
        ["gpu-5-mig-3g40gb-4"],
        "beside the 4g nothing larger is lost"
    );
}

/// Partitions made by hand (static MIG) say whose they are; a driver that still lists the card whole is not believed.
#[test]
fn a_card_listed_whole_beside_its_static_partitions_is_one_or_the_other() {
    let card = attributes(
        gpu("gpu-0", "x", 300),
        json!({"type": {"string": "gpu"}, "uuid": {"string": "GPU-a"}}),
    );
    let part = |name: &str| {
        let of = json!({"type": {"string": "mig"}, "profile": {"string": "3g.40gb"}, "uuid": {"string": name}, "parentUUID": {"string": "GPU-a"}});
        attributes(gpu(name, "x", 100), of)
    };
    let mut world = World::new();
    world.node("n", &[card, part("mig-0"), part("mig-1")]);
    world.claim("part", json!({"requests": [request("r", "3g.40gb", 2)]}));
    world.claim("whole", whole(1));
    world.claim(
        "both",
        json!({"requests": [whole(1)["requests"][0], request("s", "3g.40gb", 1)]}),
    );
    assert_eq!(
        world.devices(&pod("p", &["part"]), "n"),
        ["mig-0", "mig-1"],
        "parts do not shut each other out"
    );
    assert!(world.place(&pod("q", &["both"]), "n").is_err());
    let mut cut = world;
    cut.take("n", &["mig-0"]);
    assert!(cut.place(&pod("r", &["whole"]), "n").is_err(), "a part of it is given");
    cut.claim("other", json!({"requests": [request("r", "3g.40gb", 1)]}));
    assert_eq!(cut.devices(&pod("s", &["other"]), "n"), ["mig-1"]);
    cut.take("n", &["gpu-0"]);
    assert!(cut.place(&pod("t", &["other"]), "n").is_err(), "the whole is given");
}

/// Whole cards that could be cut have links all the same.
#[test]
fn links_tell_uncut_cards_apart() {
    let mut world = world(product("a100-80gb"), 4);
    world.claim("pair", whole(2));
    let devices = world
        .entry("n")
        .pools
        .first()
        .and_then(|v| world.snapshot.pool(v.pool).cloned())
        .expect("a pool");
    let card = |i: usize| {
        devices.pool.devices[i]
            .device
            .name
            .strip_prefix("gpu-")
            .and_then(|n| n.parse::<usize>().ok())
    };
    let all = devices.pool.devices.len();
    let link = |a: usize, b: usize| match (card(a), card(b)) {
        (Some(1), Some(2)) | (Some(2), Some(1)) => Link::NvLink(4),
        _ => Link::Sys,
    };
    let cards: Vec<usize> = (0..all).filter(|i| card(*i).is_some()).collect();
    let links: Vec<Link> = cards.iter().flat_map(|a| cards.iter().map(|b| link(*a, *b))).collect();
    let places = (0..all).map(|i| cards.iter().position(|c| *c == i)).collect();
    world.wire_cards("n", &links, places);
    for topology in ["required", "preferred"] {
        let pair = annotated("p", &["pair"], json!({"wattlane.dev/topology": topology}));
        assert_eq!(world.devices(&pair, "n"), ["gpu-1", "gpu-2"], "{topology}");
    }
}

#[test]
fn seven_of_the_smallest_fill_one_card_of_sixteen() {
    let mut world = world(product("h100-80gb"), 16);
    world.claim("c", json!({"requests": [request("r", "1g.10gb", 7)]}));
    let placed = world.place(&pod("p", &["c"]), "n").expect("112 are free");
    let devices: Vec<&str> = placed.claims[0]
        .allocation
        .results
        .iter()
        .map(|r| &*r.id.device)
        .collect();
    assert!(devices.iter().all(|d| d.starts_with("gpu-0-")), "{devices:?}");
    assert!(!placed.cut);
}

#[test]
fn a_card_is_given_whole_or_cut_never_both() {
    let mut world = world(product("a100-80gb"), 2);
    world.take("n", &["gpu-0-mig-1g10gb-6"]);
    world.claim("whole", whole(1));
    assert_eq!(world.devices(&pod("p", &["whole"]), "n"), ["gpu-1"]);
    world.claim("two", whole(2));
    assert!(world.place(&pod("q", &["two"]), "n").is_err(), "one of the two is cut");
    world.take("n", &["gpu-1"]);
    world.claim("part", json!({"requests": [request("r", "1g.10gb", 7)]}));
    assert!(
        world.place(&pod("r", &["part"]), "n").is_err(),
        "six are left on the cut card, none on the whole one"
    );
    world.claim("six", json!({"requests": [request("r", "1g.10gb", 6)]}));
    assert!(world.place(&pod("s", &["six"]), "n").is_ok());
}
