//! How many cards a pod may hold is kept in placement, whatever claims it comes by and whether or not admission saw it.

use std::sync::Arc;

use serde_json::{Value, json};
use wattlane::placement::NamespaceLimits;

use super::world::{World, ask, asking, gpu, pod, request};

const OVER: &str = "namespace_limit: the pod asks for";

fn rules(most: u32) -> Arc<[NamespaceLimits]> {
    let rule = |team: &str, most| NamespaceLimits {
        matches: [("team".into(), team.into())].into(),
        classes: None,
        most_cards: most,
        slots: None,
    };
    Arc::new([rule("free", None), rule("research", Some(most))])
}

/// Two cards a pod, on a node `n` of so many.
fn world(cards: usize) -> World {
    let mut world = World::new();
    let cards: Vec<Value> = (0..cards).map(|i| gpu(&format!("g{i}"), "a", 300)).collect();
    world.node("n", &cards);
    world.rules.allowed = rules(2);
    world.namespace(json!({"team": "research"}));
    world
}

#[test]
fn one_claim_of_a_users_own_is_held_to_the_limit() {
    let mut world = world(4);
    world.claim("two", ask(2));
    world.claim("three", ask(3));
    assert_eq!(world.devices(&pod("p", &["two"]), "n"), ["g0", "g1"]);
    assert_eq!(
        world.refused(&pod("p", &["three"]), "n"),
        "namespace_limit: the pod asks for 3 GPUs; the policy of namespace default allows 2 a pod"
    );
    assert_eq!(world.scores(&pod("p", &["three"]), &["n"]), [0]);
    // Nor do several requests, several claims or another DeviceClass help.
    world.class("mine", json!({"selectors": [{"cel": {"expression": "true"}}]}));
    let mine = |count: u32| request("s", json!({"deviceClassName": "mine", "count": count}));
    world.claim("mine", json!({"requests": [mine(3)]}));
    world.claim("both", json!({"requests": [request("r", json!({})), mine(2)]}));
    world.claim("one", ask(1));
    for claims in [&["mine"][..], &["both"], &["two", "one"]] {
        let words = world.refused(&pod("p", claims), "n");
        assert_eq!(
            words,
            format!("{OVER} 3 GPUs; the policy of namespace default allows 2 a pod")
        );
    }
    world.namespace(json!({"team": "free"}));
    assert_eq!(world.devices(&pod("p", &["three"]), "n").len(), 3);
}

#[test]
fn all_devices_are_as_many_as_the_node_has() {
    let mut world = world(4);
    world.node("small", &[gpu("s0", "a", 300), gpu("s1", "a", 300)]);
    world.claim("all", asking(json!({"allocationMode": "All"})));
    let pod = pod("p", &["all"]);
    assert_eq!(
        world.refused(&pod, "n"),
        "namespace_limit: the pod asks for 4 GPUs; the policy of namespace default allows 2 a pod"
    );
    assert_eq!(world.devices(&pod, "small"), ["s0", "s1"]);
    assert_eq!(world.scores(&pod, &["n", "small"]), [0, 10]);
}

#[test]
fn what_the_pod_holds_already_counts() {
    let mut world = world(5);
    world.take("n", &["g0"]);
    world.take("n", &["g1", "g2", "g3"]);
    world.claim("one", ask(1));
    world.claim("two", ask(2));
    assert_eq!(world.devices(&pod("p", &["held-n-g0", "one"]), "n"), ["g0", "g4"]);
    world.change(wattlane::index::Change::Remove(
        wattlane::convert::Kind::Claim,
        wattlane::model::NamespacedName::new("default", "held-n-g1-g2-g3"),
    ));
    assert_eq!(
        world.refused(&pod("p", &["held-n-g0", "two"]), "n"),
        "namespace_limit: the pod asks for 3 GPUs (1 of them held already); the policy of namespace default allows 2 a pod"
    );
    world.take("n", &["g1", "g2", "g3"]);
    assert_eq!(
        world.refused(&pod("p", &["held-n-g1-g2-g3"]), "n"),
        "namespace_limit: the pod's claims hold 3 GPUs; the policy of namespace default allows 2 a pod"
    );
}

#[test]
fn only_cards_count_and_each_once() {
    let mut world = world(2);
    let nics = ["nic0", "nic1", "nic2"].map(|name| json!({"name": name}));
    world.slice(
        "nics",
        json!({"driver": "nic.example.com", "nodeName": "n", "devices": nics}),
    );
    let of = |driver: &str| json!([{"cel": {"expression": format!("device.driver == '{driver}'")}}]);
    world.class("nic", json!({"selectors": of("nic.example.com")}));
    world.class("card", json!({"selectors": of("gpu.nvidia.com")}));
    let all = |name: &str, class: &str| request(name, json!({"deviceClassName": class, "allocationMode": "All"}));
    world.claim("c", json!({"requests": [all("n", "nic"), all("g", "card")]}));
    assert_eq!(world.devices(&pod("p", &["c"]), "n").len(), 5);
    // Admin access is to look at devices, not to have them.
    world.rules.allowed = rules(1);
    let admin = json!({"team": "research", "resource.kubernetes.io/admin-access": "true"});
    world.namespace(admin);
    let watch = request(
        "w",
        json!({"deviceClassName": "card", "allocationMode": "All", "adminAccess": true}),
    );
    world.claim("w", json!({"requests": [watch]}));
    assert_eq!(world.devices(&pod("p", &["w"]), "n").len(), 2);

    // Partitions of one card are one, wherever they stand in the list.
    let part = |name: &str, card: &str| json!({"name": name, "attributes": {"class": {"string": "a"}, "type": {"string": "mig"}, "parentUUID": {"string": card}}});
    world.node(
        "m",
        &[part("p0", "A"), part("p1", "B"), part("p2", "B"), part("p3", "C")],
    );
    world.claim("parts", ask(2));
    assert_eq!(world.devices(&pod("p", &["parts"]), "m"), ["p1", "p2"]);
    world.claim("many", ask(3));
    assert!(world.refused(&pod("p", &["many"]), "m").starts_with(OVER));
}

#[test]
fn an_alternative_within_the_limit_is_taken() {
    let mut world = world(4);
    let list = json!({"requests": [{"name": "r", "firstAvailable": [
        {"name": "three", "deviceClassName": "gpu", "count": 3},
        {"name": "two", "deviceClassName": "gpu", "count": 2}]}]});
    world.claim("f", list);
    assert_eq!(world.devices(&pod("p", &["f"]), "n"), ["g0", "g1"]);
}

#[test]
fn of_many_unlike_cards_the_limit_is_still_what_is_said() {
    let mut world = World::new();
    let cards: Vec<Value> = (0..30).map(|i| gpu(&format!("g{i}"), "a", 300 + i)).collect();
    world.node("n", &cards);
    world.rules.allowed = rules(12);
    world.namespace(json!({"team": "research"}));
    world.claim("c", ask(24));
    let words = world.refused(&pod("p", &["c"]), "n");
    assert!(
        words.starts_with("namespace_limit: the pod asks for 24 GPUs;"),
        "{words}"
    );
}

#[test]
fn an_unknown_namespace_has_no_cards_where_some_are_limited() {
    let mut world = World::new();
    world.node("n", &[gpu("g", "a", 300)]);
    world.claim("c", ask(1));
    world.rules.allowed = rules(2);
    assert_eq!(
        world.refused(&pod("p", &["c"]), "n"),
        "namespace_limit: namespace default is not known yet, and with it how many GPUs its pods may have"
    );
}
