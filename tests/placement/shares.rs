//! Claims that pods share: who may have a slot, in which order, where, and the words for those who may not; and cards that
//! a device plugin gives in parts.

use std::sync::Arc;

use serde_json::{Value, json};
use wattlane::model::Pod;
use wattlane::placement::{NamespaceLimits, Slots, shares};

use super::reasons::nowhere;
use super::world::{DRIVER, World, ask, gpu, pod_of};

const CLAIM: &str = "wl-share-chat-x3-0123456789";

fn rules(most: u32, class: Option<&str>) -> Arc<[NamespaceLimits]> {
    Arc::new([NamespaceLimits {
        matches: [].into(),
        classes: None,
        most_cards: None,
        slots: Some(Slots {
            most,
            class: class.map(Into::into),
        }),
    }])
}

/// Two nodes of two cards, a claim of three slots, and a policy that allows as many.
fn world() -> World {
    let mut world = World::new();
    for node in ["n", "m"] {
        world.node(node, &[gpu("gpu-0", "big", 600), gpu("gpu-1", "small", 300)]);
    }
    world.namespace(json!({}));
    world.rules.allowed = rules(3, None);
    world.claim(CLAIM, ask(1));
    world
}

/// A pod that waits, created so many seconds into the day.
fn sharer(name: &str, second: u32) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"),
            "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")},
        "spec": {"containers": [{"name": "c"}], "resourceClaims": [{"name": "gpu", "resourceClaimName": CLAIM}]}})
}

fn pod(name: &str, second: u32) -> Pod {
    pod_of(sharer(name, second))
}

/// The claim is on the first card of `n`, for these.
fn held(world: &mut World, users: &[&str]) {
    let reserved: Vec<_> = users
        .iter()
        .map(|u| json!({"resource": "pods", "name": u, "uid": format!("uid-{u}")}))
        .collect();
    let there =
        json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]});
    let result = json!({"request": "r", "driver": DRIVER, "pool": "n", "device": "gpu-0"});
    let allocation = json!({"devices": {"results": [result]}, "nodeSelector": there});
    world.claim_with(
        CLAIM,
        ask(1),
        json!({}),
        json!({"allocation": allocation, "reservedFor": reserved}),
    );
}

#[test]
fn the_first_chooses_a_whole_card_and_the_rest_go_there() {
    let mut world = world();
    assert_eq!(world.devices(&pod("a", 1), "n").len(), 1);
    assert_eq!(world.devices(&pod("a", 1), "m").len(), 1);
    held(&mut world, &["a"]);
    let placed = world.place(&pod("b", 2), "n").expect("a slot is free");
    assert!(
        placed.claims[0].existing && placed.claims[0].slots == Some(3),
        "{placed:?}"
    );
    let elsewhere = world.refused(&pod("b", 2), "m");
    assert!(elsewhere.starts_with("allocated_elsewhere: "), "{elsewhere}");
}

#[test]
fn so_many_and_no_more() {
    let mut world = world();
    held(&mut world, &["a", "b", "c"]);
    let words = "slots: all 3 slots of claim wl-share-chat-x3-0123456789 are taken, by a, b, c";
    assert_eq!(nowhere(&world, &pod("d", 4)), words);
    // Who has one is asked again: it is not refused.
    assert_eq!(world.check(&pod("c", 3), "n"), Ok(()));
    // Policy says less than the record; those who have one keep it.
    world.rules.allowed = rules(2, None);
    let words = "slots: all 2 slots of claim wl-share-chat-x3-0123456789 are taken, by a, b, c";
    assert_eq!(nowhere(&world, &pod("d", 4)), words);
    assert_eq!(world.check(&pod("c", 3), "n"), Ok(()));
    // And more than the record is of no use.
    world.rules.allowed = rules(9, None);
    assert!(nowhere(&world, &pod("d", 4)).starts_with("slots: all 3 slots"));
    let state: Vec<_> = shares(world.ctx()).collect();
    assert_eq!((state.len(), state[0].slots, state[0].left()), (1, 3, 0));
    assert_eq!(state[0].node.as_deref(), Some("n"));
}

#[test]
fn a_long_list_of_users_is_cut() {
    let mut world = world();
    let many: Vec<String> = (0..9).map(|i| format!("p{i}")).collect();
    held(&mut world, &many.iter().map(String::as_str).collect::<Vec<_>>());
    let words = nowhere(&world, &pod("d", 4));
    assert!(words.ends_with("are taken, by p0, p1, p2, p3 and 5 more"), "{words}");
}

#[test]
fn nothing_is_shared_without_policy() {
    let mut world = world();
    held(&mut world, &["a"]);
    world.rules.allowed = Arc::default();
    let words = nowhere(&world, &pod("b", 2));
    assert!(
        words.contains("the policy of namespace default allows no sharing"),
        "{words}"
    );
    assert_eq!(world.check(&pod("a", 1), "n"), Ok(()), "it has its slot");
    let state: Vec<_> = shares(world.ctx()).collect();
    assert_eq!(
        (state.len(), state[0].slots, state[0].users.len()),
        (1, 0, 1),
        "it is there"
    );
    world.rules.allowed = rules(3, None);
    assert_eq!(world.check(&pod("b", 2), "n"), Ok(()));
}

#[test]
fn the_older_of_those_that_wait_is_first() {
    let mut world = world();
    held(&mut world, &["a", "b"]);
    for (name, second) in [("young", 9), ("old", 5), ("oldest", 4)] {
        world.apply(sharer(name, second));
    }
    assert_eq!(world.check(&pod("oldest", 4), "n"), Ok(()));
    for name in ["old", "young"] {
        let second = if name == "old" { 5 } else { 9 };
        let words = nowhere(&world, &pod(name, second));
        assert!(words.contains("is free, and older pods wait for it: oldest"), "{words}");
    }
    // As many as there are slots go at once.
    held(&mut world, &["a"]);
    assert_eq!(world.check(&pod("old", 5), "n"), Ok(()));
    assert!(nowhere(&world, &pod("young", 9)).ends_with("wait for it: oldest, old"));
    // One that got its slot waits no more, bound or not.
    held(&mut world, &["a", "oldest"]);
    assert_eq!(world.check(&pod("old", 5), "n"), Ok(()));
    // One that is bound, gone or deleted is waited for by nobody.
    held(&mut world, &["a", "b"]);
    let mut bound = sharer("oldest", 4);
    bound["spec"]["nodeName"] = json!("n");
    world.apply(bound);
    let mut deleted = sharer("old", 5);
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:00Z");
    world.apply(deleted);
    assert_eq!(world.check(&pod("young", 9), "n"), Ok(()));
}

#[test]
fn policy_may_hold_shared_cards_to_one_class() {
    let mut world = world();
    world.rules.allowed = rules(3, Some("small"));
    assert_eq!(world.devices(&pod("a", 1), "n"), ["gpu-1"]);
    let mut other = sharer("a", 1);
    other["metadata"]["annotations"] = json!({"wattlane.dev/class": "big"});
    let words = nowhere(&world, &pod_of(other));
    assert!(words.contains("devices of class small only are shared here"), "{words}");
}

#[test]
fn a_claim_of_our_name_that_is_a_pods_own_is_not_shared() {
    let mut world = world();
    world.rules.allowed = Arc::default();
    let owner = json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "uid-a", "controller": true}]});
    world.claim_with(CLAIM, ask(1), owner, json!({}));
    assert_eq!(world.check(&pod("a", 1), "n"), Ok(()));
}

/// With the labels that GPU feature discovery gives a node whose plugin time-slices.
#[test]
fn a_part_of_a_plugins_card_is_no_whole_card() {
    let mut world = World::new();
    let node = |name: &str, labels: Value| {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name, "labels": labels},
            "status": {"allocatable": {"nvidia.com/gpu": "4", "nvidia.com/gpu.shared": "4"}}})
    };
    world.apply(node(
        "sliced",
        json!({"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.product": "Tesla-T4-SHARED"}),
    ));
    world.apply(node(
        "whole",
        json!({"nvidia.com/gpu.replicas": "1", "nvidia.com/gpu.product": "Tesla-T4"}),
    ));
    let asking = |resource: &str, annotations: Value| {
        pod_of(
            json!({"metadata": {"name": "p", "namespace": "default", "uid": "p", "annotations": annotations},
            "spec": {"containers": [{"name": "c", "resources": {"limits": {resource: "1"}}}]}}),
        )
    };
    let plain = asking("nvidia.com/gpu", json!({}));
    let words = world.refused(&plain, "sliced");
    assert!(
        words.starts_with("unserved_extended_resource: the device plugin here gives nvidia.com/gpu in parts"),
        "{words}"
    );
    assert_eq!(world.check(&plain, "whole"), Ok(()));
    let part = asking("nvidia.com/gpu", json!({"wattlane.dev/share": "true"}));
    assert_eq!(world.check(&part, "sliced"), Ok(()));
    assert_eq!(
        world.check(&asking("nvidia.com/gpu.shared", json!({})), "sliced"),
        Ok(())
    );

    // The driver publishes the same cards: neither way is one of them given while a plugin's pod may hold it.
    world.slice(
        "sliced",
        json!({"nodeName": "sliced", "devices": [gpu("gpu-0", "big", 600)]}),
    );
    let words = world.refused(&part, "sliced");
    assert!(words.contains("gives the devices here by claims"), "{words}");
    world.claim("c", ask(1));
    let claiming = super::world::pod("claiming", &["c"]);
    assert_eq!(world.check(&claiming, "sliced"), Ok(()));
    world.apply(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "t", "namespace": "x", "uid": "t"},
        "spec": {"nodeName": "sliced", "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}));
    let words = world.refused(&claiming, "sliced");
    assert!(words.contains("has nvidia.com/gpu from the device plugin"), "{words}");
}
