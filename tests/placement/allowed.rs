//! The classes a namespace may use hold in placement, whatever the pod says of itself and whether or not admission saw it.

use std::sync::Arc;

use serde_json::json;
use wattlane::placement::NamespaceLimits;

use super::world::{World, annotated, ask, mixed, pod, request};

/// Namespaces of team research may use small cards, the interns none, others everything.
fn world(team: &str) -> World {
    let mut world = World::new();
    world.node("n", &mixed());
    let rule = |team: &str, classes: &[&str]| NamespaceLimits {
        matches: [("team".into(), team.into())].into(),
        classes: Some(classes.iter().map(|c| (*c).into()).collect()),
        most_cards: None,
        slots: None,
    };
    world.rules.allowed = Arc::new([rule("research", &["small"]), rule("intern", &[])]);
    world.namespace(json!({"team": team}));
    world.claim("c", ask(1));
    world
}

#[test]
fn a_pod_without_a_word_gets_only_what_its_namespace_may_use() {
    let mut world = world("research");
    assert_eq!(world.devices(&pod("p", &["c"]), "n"), ["gpu-1"]);
    world.take("n", &["gpu-1", "gpu-3"]);
    assert_eq!(
        world.refused(&pod("p", &["c"]), "n"),
        "not_enough_free: 0 of 2 gpu devices that match are free, 1 asked"
    );
    world.claim("three", ask(3));
    assert_eq!(
        world.refused(&pod("p", &["three"]), "n"),
        "wrong_class: 2 of 4 gpu devices fit the classes of namespace default (small), 3 asked"
    );
    // Searched: two requests.
    world.claim(
        "d",
        json!({"requests": [request("r", json!({})), request("s", json!({"count": 2}))]}),
    );
    assert!(world.refused(&pod("q", &["d"]), "n").starts_with("not_enough_free"));
    assert_eq!(
        super::allowed::world("other").devices(&pod("p", &["c"]), "n"),
        ["gpu-1"]
    );
}

#[test]
fn an_edited_annotation_is_refused() {
    let big = annotated("p", &["c"], json!({"wattlane.dev/class": "big"}));
    let world = world("research");
    assert_eq!(
        world.refused(&big, "n"),
        "wrong_class: the pod asks for class big, but namespace default may use only small"
    );
    assert_eq!(super::allowed::world("other").devices(&big, "n"), ["gpu-0"]);
    assert_eq!(
        super::allowed::world("intern").refused(&pod("p", &["c"]), "n"),
        "wrong_class: 0 of 4 gpu devices fit the classes of namespace default (none), 1 asked"
    );
    let mixing = annotated("p", &["c"], json!({"wattlane.dev/mix-classes": "true"}));
    assert_eq!(world.devices(&mixing, "n"), ["gpu-1"]);
    // In HAMi's words, which choose cards by name: no way round either.
    let mut hami = super::allowed::world("research");
    hami.node(
        "h",
        &[super::world::with(
            super::world::gpu("g", "big", 600),
            json!({"attributes": {"uuid": {"string": "GPU-x"}}}),
        )],
    );
    let chosen = annotated("p", &["c"], json!({"nvidia.com/use-gpuuuid": "GPU-x"}));
    assert_eq!(
        hami.refused(&chosen, "h"),
        "wrong_class: 0 of 1 gpu device fit nvidia.com/use-gpuuuid=GPU-x and the classes of namespace default (small), 1 asked"
    );
}

#[test]
fn devices_that_a_claim_holds_already_count_as_well() {
    let mut world = world("research");
    world.take("n", &["gpu-0"]);
    assert_eq!(
        world.refused(&pod("p", &["held-n-gpu-0"]), "n"),
        "wrong_class: the pod's claims hold devices of class big, but namespace default may use only small"
    );
    world.take("n", &["gpu-1"]);
    assert_eq!(world.devices(&pod("p", &["held-n-gpu-1"]), "n"), ["gpu-1"]);
}

#[test]
fn an_unknown_namespace_may_use_nothing_where_some_are_restricted() {
    let mut world = World::new();
    world.node("n", &mixed());
    world.claim("c", ask(1));
    assert_eq!(world.devices(&pod("p", &["c"]), "n"), ["gpu-1"]);
    world.rules.allowed = super::allowed::world("research").rules.allowed.clone();
    assert_eq!(
        world.refused(&pod("p", &["c"]), "n"),
        "wrong_class: namespace default is not known yet, and with it what classes it may use"
    );
}
