//! What an allocation looks like, and the parts of the claim API one by one.

use std::collections::HashSet;

use serde_json::{Value, json};
use wattlane::model::ConfigSource;

use super::world::{DRIVER, World, annotated, ask, asking, gpu, ids, mixed, pod, request, with};

#[test]
fn first_available_goes_by_the_list_and_not_by_watts() {
    let mut world = World::new();
    world.node("n", &mixed());
    let of =
        |class: &str| json!([{"cel": {"expression": format!("device.attributes['{DRIVER}'].class == '{class}'")}}]);
    let list = |count: u32| {
        json!({"requests": [{"name": "r", "firstAvailable": [
            {"name": "big", "deviceClassName": "gpu", "count": count, "selectors": of("big")},
            {"name": "small", "deviceClassName": "gpu", "selectors": of("small")}]}]})
    };
    world.claim("c", list(2));
    let placed = world.place(&pod("p", &["c"]), "n").expect("fits");
    assert_eq!(ids(&placed).map(|i| &*i.device).collect::<Vec<_>>(), ["gpu-0", "gpu-2"]);
    assert!(
        placed.claims[0]
            .allocation
            .results
            .iter()
            .all(|r| &*r.request == "r/big")
    );
    world.claim("c", list(3));
    let placed = world.place(&pod("p", &["c"]), "n").expect("fits");
    assert_eq!(ids(&placed).map(|i| &*i.device).collect::<Vec<_>>(), ["gpu-1"]);
    assert_eq!(&*placed.claims[0].allocation.results[0].request, "r/small");
    // Refused in the words of what was wanted most.
    world.take("n", &["gpu-1", "gpu-3"]);
    assert_eq!(
        world.refused(&pod("p", &["c"]), "n"),
        "no_matching_device: only 2 gpu devices matching are there, 3 asked"
    );
}

#[test]
fn an_earlier_alternative_gives_way_when_the_whole_would_fail() {
    let mut world = World::new();
    world.node("n", &mixed());
    // Two of a kind for r leaves none of the kind for s: r takes its second alternative.
    let list = json!({"requests": [
        {"name": "r", "firstAvailable": [
            {"name": "two", "deviceClassName": "gpu", "count": 2}, {"name": "one", "deviceClassName": "gpu"}]},
        request("s", json!({}))]});
    world.claim("c", list);
    let placed = world.place(&pod("p", &["c"]), "n").expect("fits");
    let requests: Vec<_> = placed.claims[0]
        .allocation
        .results
        .iter()
        .map(|r| &*r.request)
        .collect();
    assert_eq!(requests, ["r/one", "s"]);
}

#[test]
fn all_is_all_or_nothing() {
    let mut world = World::new();
    world.node("n", &[gpu("a", "x", 1), gpu("b", "x", 1)]);
    world.claim("c", asking(json!({"allocationMode": "All"})));
    assert_eq!(world.devices(&pod("p", &["c"]), "n"), ["a", "b"]);
    world.take("n", &["a"]);
    assert_eq!(
        world.refused(&pod("p", &["c"]), "n"),
        "not_enough_free: 1 of 2 gpu devices that match is free, all 2 asked"
    );
    let mut world = World::new();
    world.node("n", &mixed());
    world.claim("c", asking(json!({"allocationMode": "All"})));
    assert_eq!(
        world.refused(&pod("p", &["c"]), "n"),
        "mixed_classes: needs 4 free gpu devices of one class: free: 2 x big and 2 x small"
    );
    world.node("empty", &[]);
    assert_eq!(
        world.refused(&pod("p", &["c"]), "empty"),
        "no_matching_device: no gpu device"
    );
}

#[test]
fn configuration_of_classes_first_each_once_then_of_the_claim() {
    let mut world = World::new();
    let opaque = |n: u32| json!({"opaque": {"driver": DRIVER, "parameters": {"n": n}}});
    world.class("a", json!({"config": [opaque(1), opaque(2)]}));
    world.class("b", json!({"config": [opaque(3)]}));
    world.node(
        "n",
        &[
            gpu("g0", "x", 1),
            gpu("g1", "x", 1),
            gpu("g2", "x", 1),
            gpu("g3", "x", 1),
        ],
    );
    let of = |name: &str, class: &str| request(name, json!({"deviceClassName": class}));
    let own = |n: u32, requests: Value| with(opaque(n), json!({"requests": requests}));
    world.claim(
        "c",
        json!({
        "requests": [of("r1", "b"), of("r2", "a"), of("r3", "b"), {"name": "r4", "firstAvailable": [
            {"name": "many", "deviceClassName": "a", "count": 9}, {"name": "one", "deviceClassName": "gpu"}]}],
        "config": [own(4, json!([])), own(5, json!(["r4/many"])), own(6, json!(["r4"])), own(7, json!(["r2"]))]}),
    );
    let placed = world.place(&pod("p", &["c"]), "n").expect("fits");
    let config: Vec<(ConfigSource, String, Vec<&str>)> = placed.claims[0]
        .allocation
        .config
        .iter()
        .map(|c| {
            (
                c.source,
                c.parameters.to_string(),
                c.requests.iter().map(|r| &**r).collect(),
            )
        })
        .collect();
    let n = |n: u32| format!("{{\"n\":{n}}}");
    assert_eq!(
        config,
        [
            (ConfigSource::FromClass, n(3), vec!["r1", "r3"]),
            (ConfigSource::FromClass, n(1), vec!["r2"]),
            (ConfigSource::FromClass, n(2), vec!["r2"]),
            (ConfigSource::FromClaim, n(4), vec![]),
            (ConfigSource::FromClaim, n(6), vec!["r4"]),
            (ConfigSource::FromClaim, n(7), vec!["r2"]),
        ]
    );
}

#[test]
fn the_node_selector_says_where_the_devices_are_reached_from() {
    let mut world = World::new();
    world.labelled_node("n", json!({"zone": "z1", "rack": "r1"}));
    let class = |name: &str, pool: &str| {
        (
            name.to_owned(),
            format!("'pool' in device.attributes['{DRIVER}'] && device.attributes['{DRIVER}'].pool == '{pool}'"),
        )
    };
    for (name, cel) in [
        class("local", "local"),
        class("all", "all"),
        class("zone", "zone"),
        class("rack", "rack"),
    ] {
        world.class(&name, json!({"selectors": [{"cel": {"expression": cel}}]}));
    }
    let device = |pool: &str| json!([{"name": "d", "attributes": {"pool": {"string": pool}}}]);
    let on = |key: &str, value: &str| json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]});
    world.slice("local", json!({"nodeName": "n", "devices": device("local")}));
    world.slice("all", json!({"allNodes": true, "devices": device("all")}));
    world.slice(
        "zone",
        json!({"nodeSelector": on("zone", "z1"), "devices": device("zone")}),
    );
    world.slice(
        "rack",
        json!({"nodeSelector": on("rack", "r1"), "devices": device("rack")}),
    );
    let mut selector = |classes: &[&str]| {
        let requests: Vec<_> = classes
            .iter()
            .map(|c| request(c, json!({"deviceClassName": c})))
            .collect();
        world.claim("c", json!({"requests": requests}));
        let placed = world.place(&pod("p", &["c"]), "n").expect("fits");
        let selector = placed.claims[0].allocation.node_selector.as_deref()?;
        assert_eq!(selector.terms.len(), 1);
        let term = &selector.terms[0];
        let words = term
            .fields
            .iter()
            .chain(&term.expressions)
            .map(|r| format!("{} {} {}", r.key, r.operator, r.values.join(",")));
        Some(words.collect::<Vec<_>>())
    };
    let of = |words: &[&str]| Some(words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>());
    assert_eq!(selector(&["local"]), of(&["metadata.name In n"]));
    assert_eq!(selector(&["zone", "local", "all"]), of(&["metadata.name In n"]));
    assert_eq!(selector(&["all"]), None);
    assert_eq!(selector(&["all", "zone"]), of(&["zone In z1"]));
    assert_eq!(selector(&["zone", "rack"]), of(&["zone In z1", "rack In r1"]));
}

#[test]
fn share_ids_are_uuids_and_no_two_are_equal() {
    let shared = |name: &str| {
        with(
            gpu(name, "x", 1),
            json!({"allowMultipleAllocations": true, "capacity": {
            "memory": {"value": "80Gi"},
            "slots": {"value": "40", "requestPolicy": {"default": "1", "validRange": {"min": "1", "step": "1"}}}}}),
        )
    };
    // As in-tree: one request takes a device once, so that many shares are many requests.
    let shares = |count: usize| {
        let one = |i| request(&format!("r{i}"), json!({"capacity": {"requests": {"memory": "2Gi"}}}));
        json!({"requests": (0..count).map(one).collect::<Vec<_>>()})
    };
    let mut world = World::new();
    world.node("n", &[shared("s0"), shared("s1")]);
    let mut seen = HashSet::new();
    for i in 0..8 {
        let (name, other) = (format!("c{i}"), format!("d{i}"));
        for claim in [&name, &other] {
            world.claim(claim, shares(4));
        }
        let pod = pod(&format!("p{i}"), &[&name, &other]);
        let placed = world.place(&pod, "n").expect("fits");
        let again = world.place(&pod, "n").expect("fits");
        for (claim, same) in placed.claims.iter().zip(&again.claims) {
            assert_eq!(claim.allocation, same.allocation, "computed twice, the same");
            for result in &claim.allocation.results {
                let id = result.share_id.as_ref().expect("a share");
                let parts: Vec<&str> = id.split('-').collect();
                assert_eq!(
                    parts.iter().map(|p| p.len()).collect::<Vec<_>>(),
                    [8, 4, 4, 4, 12],
                    "{id}"
                );
                assert!(
                    id.chars().all(|c| c == '-' || matches!(c, '0'..='9' | 'a'..='f')),
                    "{id}"
                );
                assert!(
                    parts[2].starts_with('8') && matches!(parts[3].as_bytes()[0], b'8' | b'9' | b'a' | b'b'),
                    "{id}"
                );
                assert!(seen.insert(id.clone()), "{id} twice");
                let consumed: Vec<_> = result
                    .consumed_capacity
                    .iter()
                    .map(|(q, v)| format!("{}={v}", q.name))
                    .collect();
                assert_eq!(consumed, ["memory=2Gi", "slots=1"]);
            }
        }
        world.commit(&placed);
    }
    // 64 shares of 2Gi are 128Gi of 160Gi: sixteen are left, not seventeen.
    world.claim("rest", shares(16));
    world.claim("more", shares(17));
    assert_eq!(world.devices(&pod("q", &["rest"]), "n").len(), 16);
    assert_eq!(
        world.refused(&pod("q", &["more"]), "n"),
        "capacity_exhausted: the requests compete for the same devices, counters or capacity, and not all can be met together"
    );
}

#[test]
fn a_device_of_which_a_share_is_held_is_not_given_whole_once_it_is_not_shared_any_more() {
    let card = |shared: bool| {
        with(
            gpu("d0", "x", 1),
            json!({"allowMultipleAllocations": shared, "capacity": {"memory": {"value": "80Gi"}}}),
        )
    };
    let quick = ask(1);
    let searched = json!({"requests": [request("r", json!({"capacity": {"requests": {"memory": "1Gi"}}}))]});
    for consumed in [json!({"memory": "1Gi"}), json!({})] {
        let mut world = World::new();
        world.node("n", &[card(true)]);
        let share = json!({"request": "r", "driver": DRIVER, "pool": "n", "device": "d0", "consumedCapacity": consumed,
            "shareID": "a671734a-e8e5-41e4-8fde-42010af09327"});
        let held = json!({"allocation": {"devices": {"results": [share]}}});
        world.claim_with("held", ask(1), json!({}), held);
        world.claim("c", searched.clone());
        assert_eq!(world.devices(&pod("p", &["c"]), "n"), ["d0"], "another share");
        world.node("n", &[card(false)]);
        for spec in [&quick, &searched] {
            world.claim("c", spec.clone());
            let words = world.refused(&pod("p", &["c"]), "n");
            assert_eq!(words, "not_enough_free: 0 of 1 gpu device that match are free, 1 asked");
        }
        world.claim("held", ask(1));
        for spec in [&quick, &searched] {
            world.claim("c", spec.clone());
            assert_eq!(world.devices(&pod("p", &["c"]), "n"), ["d0"], "the last share is gone");
        }
    }
}

#[test]
fn a_claim_named_twice_is_placed_once_and_an_allocated_one_is_kept() {
    let mut world = World::new();
    world.node("n", &mixed());
    world.claim("c", ask(1));
    let twice = pod("p", &["c", "c"]);
    let placed = world.place(&twice, "n").expect("fits");
    assert_eq!(placed.claims.len(), 1);
    assert!(!placed.claims[0].existing);
    world.commit(&placed);
    let again = world.place(&twice, "n").expect("it holds it");
    assert!(again.claims[0].existing);
    assert_eq!(again.claims[0].allocation, placed.claims[0].allocation);
    assert_eq!((again.class.as_deref(), again.watts), (Some("small"), 300));
    world.node("m", &mixed());
    assert_eq!(
        world.refused(&twice, "m"),
        "allocated_elsewhere: claim c is allocated to devices of other nodes"
    );
    // The order of the pod's claims is the order of the answer.
    world.claim("d", ask(1));
    let both = world.place(&pod("p", &["d", "c"]), "n").expect("fits");
    let names: Vec<_> = both.claims.iter().map(|c| (&*c.claim.key.name, c.existing)).collect();
    assert_eq!(names, [("d", false), ("c", true)]);
    assert_eq!(both.class.as_deref(), Some("small"));
}

#[test]
fn hami_annotations_choose_by_product_and_uuid() {
    let card = |name: &str, product: &str, uuid: &str| {
        with(
            gpu(name, "x", 1),
            json!({"attributes": {"productName": {"string": product}, "uuid": {"string": uuid}}}),
        )
    };
    let mut world = World::new();
    world.node(
        "n",
        &[
            card("a", "NVIDIA A100-SXM4-80GB", "GPU-1"),
            card("h", "NVIDIA H100 NVL", "GPU-2"),
            card("h2", "NVIDIA H100 NVL", "GPU-22"),
        ],
    );
    world.slice(
        "nic",
        json!({"driver": "nic.example.com", "nodeName": "n", "devices": [{"name": "nic-0"}]}),
    );
    world.class(
        "nic",
        json!({"selectors": [{"cel": {"expression": "device.driver == 'nic.example.com'"}}]}),
    );
    world.class(
        "card",
        json!({"selectors": [{"cel": {"expression": format!("device.driver == '{DRIVER}'")}}]}),
    );
    world.claim("c", asking(json!({"deviceClassName": "card"})));
    world.claim("nic", asking(json!({"deviceClassName": "nic"})));
    let with_annotation = |claims: &[&str], key: &str, value: &str| annotated("p", claims, json!({key: value}));
    for (key, value, gets) in [
        ("nvidia.com/use-gputype", "h100", "h"),
        // A part of the name is enough: in HAMi's key A1 selects an A100, as H20 would an H200.
        ("nvidia.com/use-gputype", "A1", "a"),
        ("nvidia.com/use-gputype", ",  H10 ,,", "h"),
        ("nvidia.com/use-gputype", "V100, a100", "a"),
        ("nvidia.com/nouse-gputype", "A100", "h"),
        ("nvidia.com/use-gpuuuid", "GPU-22", "h2"),
        ("nvidia.com/nouse-gpuuuid", "GPU-1,GPU-2", "h2"),
    ] {
        assert_eq!(
            world.devices(&with_annotation(&["c"], key, value), "n"),
            [gets],
            "{key}={value}"
        );
        // A device of another driver without such an attribute is not what the pod speaks of.
        let nic = world.devices(&with_annotation(&["nic"], "nvidia.com/nouse-gputype", "A100"), "n");
        assert_eq!(nic, ["nic-0"]);
    }
    assert_eq!(
        world.refused(&with_annotation(&["c"], "nvidia.com/use-gpuuuid", "GPU-3"), "n"),
        "wrong_class: 0 of 3 card devices fit nvidia.com/use-gpuuuid=GPU-3, 1 asked"
    );
}

#[test]
fn list_order_takes_what_comes_first() {
    let mut world = World::new();
    world.node("n", &mixed());
    world.take("n", &["gpu-0"]);
    world.claim("c", ask(2));
    let wishing = annotated("p", &["c"], json!({"wattlane.dev/class": "big"}));
    assert_eq!(
        world.list_order(&wishing, "n"),
        Some(vec!["gpu-1".into(), "gpu-2".into()])
    );
    world.claim("c", ask(4));
    assert_eq!(world.list_order(&pod("p", &["c"]), "n"), None);
}

#[test]
fn binding_conditions_go_into_the_result_and_such_devices_come_last() {
    let waits = json!({"bindingConditions": ["ready.example.com"], "bindingFailureConditions": ["failed.example.com"]});
    let mut world = World::new();
    world.node("n", &[]);
    world.slice(
        "a",
        json!({"nodeName": "n", "devices": [with(gpu("fabric", "x", 1), waits)]}),
    );
    world.slice("b", json!({"nodeName": "n", "devices": [gpu("local", "x", 1)]}));
    world.claim("c", ask(1));
    assert_eq!(world.devices(&pod("p", &["c"]), "n"), ["local"]);
    assert_eq!(
        world.list_order(&pod("p", &["c"]), "n").as_deref(),
        Some(&["local".to_owned()][..])
    );
    world.take("b", &["local"]);
    let placed = world.place(&pod("p", &["c"]), "n").expect("fits");
    let result = &placed.claims[0].allocation.results[0];
    assert_eq!(&*result.id.device, "fabric");
    assert_eq!(result.binding_conditions, ["ready.example.com".into()]);
    assert_eq!(result.binding_failure_conditions, ["failed.example.com".into()]);
}

#[test]
fn a_claim_whose_device_failed_is_nobody_elses_while_it_is_held() {
    let mut world = World::new();
    world.node("n", &mixed());
    let status = |holder: &str, holds: &str| {
        let device = json!({"driver": DRIVER, "pool": "n", "device": "gpu-0"});
        let conditions = json!({"bindingConditions": ["Attached"], "bindingFailureConditions": ["AttachFailed"]});
        json!({
            "allocation": {"devices": {"results": [with(with(json!({"request": "r"}), device.clone()), conditions)]}},
            "devices": [with(device, json!({"conditions": [{"type": "AttachFailed", "status": holds, "reason": "Broken"}]}))],
            "reservedFor": [{"resource": "pods", "name": holder, "uid": format!("uid-{holder}")}],
        })
    };
    // Waiting is no reason to refuse: bind waits. Nor is a failure that bind can clear.
    for (holder, holds) in [("other", "False"), ("other", "Unknown"), ("p", "True")] {
        world.claim_with("c", ask(1), json!({}), status(holder, holds));
        assert_eq!(world.check(&pod("p", &["c"]), "n"), Ok(()), "{holder} {holds}");
    }
    world.claim_with("c", ask(1), json!({}), status("other", "True"));
    let refusal = world.demand(&pod("p", &["c"])).expect_err("refused for every node");
    assert_eq!(
        (refusal.reason.as_str(), &*refusal.message),
        (
            "claim_unusable",
            "claim c is held by other pods, and device gpu.nvidia.com/n/gpu-0 reports AttachFailed: Broken"
        )
    );
}
