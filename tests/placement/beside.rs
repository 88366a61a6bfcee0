//! One card in several shapes: whoever has one of them keeps the others from all, in whatever order, pool or way they are
//! listed; and what a held device that vanished overlaps.

use serde_json::{Value, json};
use wattlane::index::{Change, Kind};
use wattlane::model::NamespacedName;

use super::world::{DRIVER, World, ask, asking, pod};

fn device(name: &str, attributes: &[(&str, &str)]) -> Value {
    let attributes: serde_json::Map<String, Value> = attributes
        .iter()
        .map(|(k, v)| ((*k).to_owned(), json!({"string": v})))
        .collect();
    json!({"name": name, "attributes": attributes})
}

/// How a partition names its card, and the card itself.
const WAYS: [[(&str, &str); 2]; 4] = [
    [("uuid", "GPU-0"), ("parentUUID", "GPU-0")],
    [("pciAddr", "0000:01:00.0"), ("parentPciAddr", "0000:01:00.0")],
    [
        ("resource.kubernetes.io/pciBusID", "0000:01:00.0"),
        ("resource.kubernetes.io/pciBusID", "0000:01:00.0"),
    ],
    [("uuid", "GPU-0"), ("uuid", "GPU-0")],
];

fn shapes(way: [(&str, &str); 2]) -> (Value, Value, Value) {
    let part = |name: &str| device(name, &[("type", "mig"), ("profile", "3g"), way[1]]);
    (
        device("whole", &[("type", "gpu"), way[0]]),
        part("part-a"),
        part("part-b"),
    )
}

fn of_type(kind: &str) -> Value {
    let selector = format!("device.attributes['{DRIVER}'].type == '{kind}'");
    asking(json!({"selectors": [{"cel": {"expression": selector}}]}))
}

fn worlds() -> Vec<World> {
    let mut worlds = vec![];
    for way in WAYS {
        let (whole, a, b) = shapes(way);
        // By their own uuid parts cannot be told apart.
        let parts = if way[1].0 == "uuid" { vec![a] } else { vec![a, b] };
        let mut devices = parts.clone();
        devices.insert(0, whole.clone());
        let mut reversed = devices.clone();
        reversed.reverse();
        for devices in [devices, reversed] {
            let mut world = World::new();
            world.node("n", &devices);
            worlds.push(world);
        }
        let mut world = World::new();
        world.node("n", &[whole]);
        world.slice("parts", json!({"nodeName": "n", "devices": parts}));
        worlds.push(world);
    }
    worlds
}

#[test]
fn a_card_and_a_part_of_it_are_not_given_both() {
    for mut world in worlds() {
        world.claim("gpu", of_type("gpu"));
        world.claim("mig", of_type("mig"));
        for (first, second) in [("gpu", "mig"), ("mig", "gpu")] {
            let words = world.refused(&pod("both", &[first, second]), "n");
            assert!(words.starts_with("capacity_exhausted: "), "one pod: {words}");
            let given = world.place(&pod("a", &[first]), "n").expect("free");
            let before = world.snapshot.clone();
            world.commit(&given);
            let words = world.refused(&pod("b", &[second]), "n");
            assert!(
                words.starts_with("not_enough_free: "),
                "{second} after {first}: {words}"
            );
            assert!(!std::sync::Arc::ptr_eq(&before, &world.snapshot));
            world.claim(first, of_type(first));
        }
    }
}

#[test]
fn a_card_that_two_pools_list_is_one() {
    let mut world = World::new();
    let card = |name: &str| device(name, &[("type", "gpu"), ("uuid", "GPU-0")]);
    world.node("n", &[card("gpu-0")]);
    world.slice(
        "more",
        json!({"nodeName": "n", "devices": [card("again"), device("gpu-1", &[("uuid", "GPU-1")])]}),
    );
    world.claim("two", ask(2));
    world.claim("three", ask(3));
    let given = world.devices(&pod("p", &["two"]), "n");
    assert!(given.contains(&"gpu-1".to_owned()), "{given:?}");
    world.refused(&pod("p", &["three"]), "n");
    world.take("n", &["gpu-0"]);
    world.refused(&pod("p", &["two"]), "n");
    world.claim("one", ask(1));
    assert_eq!(world.devices(&pod("p", &["one"]), "n"), ["gpu-1"]);
    // An address is one node's.
    let mut world = World::new();
    for node in ["n", "m"] {
        world.node(
            node,
            &[device("gpu-0", &[("type", "gpu"), ("pciAddr", "0000:01:00.0")])],
        );
    }
    world.slice(
        "parts",
        json!({"nodeName": "m", "devices": [device("part", &[("type", "mig"), ("parentPciAddr", "0000:01:00.0")])]}),
    );
    world.take("parts", &["part"]);
    world.claim("one", ask(1));
    assert_eq!(world.devices(&pod("p", &["one"]), "n"), ["gpu-0"]);
    world.refused(&pod("p", &["one"]), "m");
}

/// Nobody saw the held device before it vanished: a card that can be cut may have it, one that cannot is another.
#[test]
fn what_was_never_seen_closes_a_pool_of_cards_that_can_be_cut() {
    let (whole, a, b) = shapes(WAYS[0]);
    let mut world = World::new();
    world.take("n", &["lost"]);
    world.node("n", &[a.clone(), b.clone()]);
    world.claim("one", ask(1));
    let words = world.refused(&pod("p", &["one"]), "n");
    let said = "unknown_holder: claim default/held-n-lost holds lost, which gpu.nvidia.com does not publish any more: it may be a part of \
                any card here, and nothing is given until the claim is gone or the device is back";
    assert_eq!(words, said);
    world.slice(
        "n",
        json!({"nodeName": "n", "devices": [a.clone(), b.clone(), device("lost", &[("type", "mig")])]}),
    );
    assert_eq!(world.check(&pod("p", &["one"]), "n"), Ok(()));
    // Seen now, and gone again: it names no card.
    world.slice("n", json!({"nodeName": "n", "devices": [a.clone(), b.clone()]}));
    assert_eq!(world.refused(&pod("p", &["one"]), "n"), said);

    let mut world = World::new();
    world.take("n", &["lost"]);
    world.node("n", &[whole]);
    world.claim("one", ask(1));
    assert_eq!(world.check(&pod("p", &["one"]), "n"), Ok(()));
    world.slice("n", json!({"nodeName": "n", "devices": [a, b]}));
    world.refused(&pod("p", &["one"]), "n");
    world.change(Change::Remove(
        Kind::Claim,
        NamespacedName::new("default", "held-n-lost"),
    ));
    assert_eq!(world.check(&pod("p", &["one"]), "n"), Ok(()));
}
