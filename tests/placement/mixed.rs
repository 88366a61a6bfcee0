//! The story of the mixed node: two 600 W and two 300 W cards, pods of 1, 2 and 2, in every order of arrival.

use serde_json::json;

use super::world::{World, annotated, ask, gpu, ids, mixed, pod};

const ORDERS: [[u32; 3]; 3] = [[1, 2, 2], [2, 1, 2], [2, 2, 1]];

#[test]
fn no_order_of_arrival_mixes_classes_on_the_mixed_node() {
    for order in ORDERS {
        let mut world = World::new();
        world.node("mixed", &mixed());
        let mut refused = vec![];
        for (i, count) in order.into_iter().enumerate() {
            let name = format!("p{i}");
            world.claim(&name, ask(count));
            let pod = pod(&name, &[&name]);
            match world.place(&pod, "mixed") {
                Ok(placed) => {
                    assert_eq!(world.check(&pod, "mixed"), Ok(()));
                    assert_eq!(ids(&placed).count(), count as usize, "{order:?}");
                    assert_eq!(world.classes(&placed).len(), 1, "{order:?}: {placed:?}");
                    let each = if placed.class.as_deref() == Some("small") {
                        300
                    } else {
                        600
                    };
                    assert_eq!(placed.watts, each * count);
                    world.commit(&placed);
                }
                Err(_) => refused.push(world.refused(&pod, "mixed")),
            }
        }
        // Three of the four are given by then, and a pair took both cards of its class.
        let want = match order {
            [2, 2, 1] => "not_enough_free: 0 of 4 gpu devices that match are free, 1 asked",
            _ => "not_enough_free: 1 of 4 gpu devices that match is free, 2 asked",
        };
        assert_eq!(refused, [want], "{order:?}");
    }
}

/// Every sequence of pods of one or two cards, each saying nothing, a class, or that it may mix: whoever is refused could
/// not be served by one class it may have, and nobody else mixes.
#[test]
fn every_order_of_arrival_on_the_mixed_node() {
    let words = [
        json!({}),
        json!({"wattlane.dev/class": "big"}),
        json!({"wattlane.dev/class": "small"}),
        json!({"wattlane.dev/mix-classes": "true"}),
    ];
    let kinds: Vec<(u32, usize)> = [1, 2]
        .into_iter()
        .flat_map(|n| (0..words.len()).map(move |w| (n, w)))
        .collect();
    let sequences = |kinds: &[(u32, usize)], length: u32| -> Vec<Vec<(u32, usize)>> {
        let n = kinds.len();
        let count = n.pow(length);
        (0..count)
            .map(|i| (0..length).map(|at| kinds[i / n.pow(at) % n]).collect())
            .collect()
    };
    let silent = [(1, 0), (2, 0)];
    let all = sequences(&kinds, 3).into_iter().chain(sequences(&silent, 4));
    for sequence in all {
        let mut world = World::new();
        world.node("mixed", &mixed());
        let mut free = [("big", 2_u32), ("small", 2)];
        for (i, (count, word)) in sequence.iter().enumerate() {
            let name = format!("p{i}");
            world.claim(&name, ask(*count));
            let pod = annotated(&name, &[&name], words[*word].clone());
            let may_have = |class: &str| match word {
                1 => class == "big",
                2 => class == "small",
                _ => true,
            };
            let one = free.iter().any(|(class, n)| may_have(class) && n >= count);
            let any = *word == 3 && free.iter().map(|f| f.1).sum::<u32>() >= *count;
            let placed = world.place(&pod, "mixed");
            assert_eq!(placed.is_ok(), one || any, "{sequence:?}, pod {i}: {placed:?}");
            assert_eq!(world.check(&pod, "mixed").is_ok(), placed.is_ok());
            let Ok(placed) = placed else { continue };
            let classes = world.classes(&placed);
            assert_eq!(classes.len(), if one { 1 } else { 2 }, "{sequence:?}, pod {i}");
            if one && may_have("small") && free[1].1 >= *count {
                assert_eq!(
                    &*classes[0], "small",
                    "{sequence:?}, pod {i}: the class that draws less"
                );
            }
            for id in ids(&placed) {
                let small = matches!(&*id.device, "gpu-1" | "gpu-3");
                free[usize::from(small)].1 -= 1;
            }
            world.commit(&placed);
        }
    }
}

#[test]
fn a_pod_of_one_takes_the_card_that_draws_less() {
    let mut world = World::new();
    world.node("mixed", &mixed());
    world.claim("c", ask(1));
    assert_eq!(world.devices(&pod("p", &["c"]), "mixed"), ["gpu-1"]);
    assert_eq!(
        world.list_order(&pod("p", &["c"]), "mixed").as_deref(),
        Some(&["gpu-0".to_owned()][..])
    );
}

#[test]
fn list_order_would_have_mixed() {
    let mut world = World::new();
    world.node("mixed", &mixed());
    world.claim("c", ask(2));
    let pod = pod("p", &["c"]);
    assert_eq!(
        world.list_order(&pod, "mixed"),
        Some(vec!["gpu-0".into(), "gpu-1".into()])
    );
    assert_eq!(world.devices(&pod, "mixed"), ["gpu-1", "gpu-3"]);
}

#[test]
fn beside_an_eight_gpu_node_everything_fits() {
    for order in ORDERS {
        let mut world = World::new();
        world.node("mixed", &mixed());
        let eight: Vec<_> = (0..8).map(|i| gpu(&format!("gpu-{i}"), "nvlink", 700)).collect();
        world.node("nvlink", &eight);
        for (i, count) in order.into_iter().enumerate() {
            let name = format!("p{i}");
            world.claim(&name, ask(count));
            let pod = pod(&name, &[&name]);
            let nodes = ["mixed", "nvlink"];
            let scores = world.scores(&pod, &nodes);
            let best = (0..2).max_by_key(|i| scores[*i]).expect("two nodes");
            assert_eq!(scores[best], 10, "{order:?}");
            let placed = world.place(&pod, nodes[best]).expect("the best node takes it");
            assert_eq!(world.classes(&placed).len(), 1);
            world.commit(&placed);
        }
    }
}

#[test]
fn one_of_each_class_is_not_a_pair() {
    let mut world = World::new();
    world.node("mixed", &mixed());
    world.take("mixed", &["gpu-0", "gpu-3"]);
    world.claim("c", ask(2));
    assert_eq!(
        world.refused(&pod("p", &["c"]), "mixed"),
        "mixed_classes: needs 2 free gpu devices of one class: free: 1 x big and 1 x small"
    );
    world.claim("three", ask(3));
    assert_eq!(
        world.refused(&pod("p", &["three"]), "mixed"),
        "not_enough_free: 2 of 4 gpu devices that match are free, 3 asked"
    );
}

#[test]
fn a_pod_may_mix_when_it_or_the_policy_says_so() {
    let mut world = World::new();
    world.node("mixed", &mixed());
    world.claim("c", ask(3));
    let plain = pod("p", &["c"]);
    let may = annotated("p", &["c"], json!({"wattlane.dev/mix-classes": "true"}));
    let may_not = annotated("p", &["c"], json!({"wattlane.dev/mix-classes": "false"}));
    assert_eq!(
        world.refused(&plain, "mixed"),
        "mixed_classes: needs 3 free gpu devices of one class: free: 2 x big and 2 x small"
    );
    let placed = world.place(&may, "mixed").expect("it may mix");
    assert_eq!((placed.class.clone(), placed.watts), (None, 1200));
    assert_eq!(world.devices(&may, "mixed"), ["gpu-1", "gpu-3", "gpu-0"]);
    world.rules.mix_classes = true;
    assert_eq!(world.devices(&plain, "mixed"), ["gpu-1", "gpu-3", "gpu-0"]);
    world.refused(&may_not, "mixed");
    // Where one class will do, permission to mix changes nothing.
    world.claim("pair", ask(2));
    assert_eq!(world.devices(&pod("q", &["pair"]), "mixed"), ["gpu-1", "gpu-3"]);
}

#[test]
fn the_pod_not_the_claim_is_of_one_class() {
    let mut world = World::new();
    world.node("mixed", &mixed());
    world.claim("a", ask(1));
    world.claim("b", ask(1));
    assert_eq!(world.devices(&pod("p", &["a", "b"]), "mixed"), ["gpu-1", "gpu-3"]);
    world.take("mixed", &["gpu-1"]);
    assert_eq!(world.devices(&pod("p", &["a", "b"]), "mixed"), ["gpu-0", "gpu-2"]);
    world.take("mixed", &["gpu-0"]);
    assert_eq!(
        world.refused(&pod("p", &["a", "b"]), "mixed"),
        "mixed_classes: all devices of the pod must be of one class, unless it says wattlane.dev/mix-classes: \"true\"; free: 1 x big and 1 x small"
    );
}

#[test]
fn equal_watts_break_the_smaller_group() {
    let mut world = World::new();
    let devices = [
        gpu("a0", "a", 300),
        gpu("a1", "a", 300),
        gpu("a2", "a", 300),
        gpu("b0", "b", 300),
        gpu("b1", "b", 300),
    ];
    world.node("n", &devices);
    world.claim("c", ask(1));
    assert_eq!(world.devices(&pod("p", &["c"]), "n"), ["b0"]);
    world.claim("three", ask(3));
    assert_eq!(world.devices(&pod("p", &["three"]), "n"), ["a0", "a1", "a2"]);
}

#[test]
fn known_watts_come_before_unknown_ones() {
    let mut world = World::new();
    let unknown = json!({"name": "u0", "attributes": {"class": {"string": "u"}}});
    world.node("n", &[unknown, gpu("k0", "k", 900)]);
    world.claim("c", ask(1));
    assert_eq!(world.devices(&pod("p", &["c"]), "n"), ["k0"]);
}

#[test]
fn a_class_is_asked_for_by_its_exact_name() {
    let mut world = World::new();
    world.node(
        "n",
        &[gpu("g0", "h200", 700), gpu("g1", "h200", 700), gpu("g2", "h20", 500)],
    );
    world.claim("c", ask(1));
    world.claim("two", ask(2));
    let h20 = |claim: &str| annotated("p", &[claim], json!({"wattlane.dev/class": " h20 "}));
    assert_eq!(world.devices(&h20("c"), "n"), ["g2"]);
    assert_eq!(
        world.refused(&h20("two"), "n"),
        "wrong_class: 1 free of class h20, 2 asked; free: 2 x h200 and 1 x h20"
    );
    let h2 = annotated("p", &["c"], json!({"wattlane.dev/class": "h2"}));
    assert_eq!(
        world.refused(&h2, "n"),
        "wrong_class: 0 free of class h2, 1 asked; free: 2 x h200 and 1 x h20"
    );
    let two = annotated("p", &["c"], json!({"wattlane.dev/class": "h20, h200"}));
    assert_eq!(
        world.refused(&two, "n"),
        "invalid_request: annotation wattlane.dev/class is \"h20, h200\", not one class name"
    );
}

#[test]
fn devices_without_a_class_never_make_a_mix() {
    let mut world = World::new();
    let nic = json!({"name": "nic-0"});
    world.node("n", &[gpu("g0", "big", 600), gpu("g1", "small", 300), nic]);
    world.claim("c", ask(2));
    // g1 is of known watts; the device of unknown watts comes last but joins any class.
    assert_eq!(world.devices(&pod("p", &["c"]), "n"), ["g1", "nic-0"]);
    world.claim("three", ask(3));
    assert_eq!(
        world.refused(&pod("p", &["three"]), "n"),
        "mixed_classes: needs 3 free gpu devices of one class: free: 1 x (no class), 1 x big and 1 x small"
    );
}
