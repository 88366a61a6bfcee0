//! Every reason placement can give, with its exact words; those of pods and claims are in `refused_pods`.

use serde_json::{Value, json};

use super::world::{DRIVER, World, annotated, ask, asking, gpu, mixed, pod, request, with};

pub(crate) fn one_node(devices: &[Value]) -> World {
    let mut world = World::new();
    world.node("n", devices);
    world
}

/// What node `n` says to a pod whose only claim asks for this.
pub(crate) fn says(world: &mut World, spec: Value) -> String {
    world.claim("c", spec);
    world.refused(&pod("p", &["c"]), "n")
}

/// What every node says, because the pod itself cannot be placed.
pub(crate) fn nowhere(world: &World, pod: &wattlane::model::Pod) -> String {
    let refusal = world.demand(pod).expect_err("no node can take it");
    format!("{}: {}", refusal.reason.as_str(), refusal.message)
}

#[test]
fn a_claim_allocated_elsewhere() {
    let mut world = one_node(&mixed());
    let there =
        json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["m"]}]}]});
    let allocation = json!({"devices": {"results": []}, "nodeSelector": there});
    world.claim_with("c", ask(1), json!({}), json!({"allocation": allocation}));
    assert_eq!(
        world.refused(&pod("p", &["c"]), "n"),
        "allocated_elsewhere: claim c is allocated to devices of other nodes"
    );
}

/// No selector in the allocation: which nodes it is for says only who publishes the devices.
#[test]
fn devices_of_other_nodes_are_not_taken_for_gone() {
    let per_node = |name: &str| {
        with(
            gpu(name, "big", 600),
            json!({"nodeName": if name == "s0" { "m" } else { "n" }}),
        )
    };
    let mut world = one_node(&mixed());
    world.node("m", &[gpu("d7", "big", 600)]);
    let both = json!({"perDeviceNodeSelection": true, "devices": [per_node("s0"), per_node("s1")]});
    world.slice("shared", both);
    let half = json!({"name": "half", "generation": 1, "resourceSliceCount": 2});
    let devices = json!([gpu("h0", "big", 600)]);
    world.slice("half", json!({"nodeName": "m", "pool": half, "devices": devices}));
    let mut says = |pool: &str, device: &str| {
        let result = json!({"request": "r", "driver": DRIVER, "pool": pool, "device": device});
        let status = json!({"allocation": {"devices": {"results": [result]}}});
        world.claim_with("c", ask(1), json!({}), status);
        world.check(&pod("p", &["c"]), "n").map_err(|e| e.message.to_string())
    };
    let elsewhere = Err("claim c is allocated to devices of other nodes".to_owned());
    // Of another node's pool, one that may be in the slice that is still to come, and of a pool that several nodes share.
    for (pool, device) in [("m", "d7"), ("half", "h1"), ("shared", "s0")] {
        assert_eq!(says(pool, device), elsewhere, "{pool}/{device}");
    }
    assert_eq!(says("shared", "s1"), Ok(()));
    for (pool, device) in [("m", "d0"), ("x", "d0"), ("n", "d7"), ("shared", "s2")] {
        let words = says(pool, device).expect_err("it is gone");
        assert!(
            words.contains("which is not published any more"),
            "{pool}/{device}: {words}"
        );
    }
}

#[test]
fn device_classes_that_are_missing_or_not_understood() {
    let mut world = one_node(&mixed());
    world.claim("c", asking(json!({"deviceClassName": "tpu"})));
    assert_eq!(
        nowhere(&world, &pod("p", &["c"])),
        "device_class_missing: DeviceClass tpu does not exist; there is gpu"
    );
    for i in 0..6 {
        world.class(&format!("x{i}"), json!({}));
    }
    assert_eq!(
        nowhere(&world, &pod("p", &["c"])),
        "device_class_missing: DeviceClass tpu does not exist; there is gpu, x0, x1, x2, x3 and 2 more"
    );
    world.class("odd", json!({"selectors": [{"rego": {"expression": "x"}}]}));
    world.claim("odd", asking(json!({"deviceClassName": "odd"})));
    let words = nowhere(&world, &pod("p", &["odd"]));
    assert!(words.starts_with("unsupported: DeviceClass odd: "), "{words}");
    world.claim(
        "odd",
        with(ask(1), json!({"constraints": [{"requests": ["r"], "roundRobin": "x"}]})),
    );
    let words = nowhere(&world, &pod("p", &["odd"]));
    assert!(words.starts_with("unsupported: claim odd: "), "{words}");
}

#[test]
fn devices_that_do_not_match() {
    let mut world = one_node(&mixed());
    world.claim("c", ask(1));
    world.node("empty", &[]);
    assert_eq!(
        world.refused(&pod("p", &["c"]), "empty"),
        "no_matching_device: no gpu device"
    );
    assert_eq!(
        says(&mut world, ask(5)),
        "no_matching_device: only 4 gpu devices matching are there, 5 asked"
    );
    let none = json!({"selectors": [{"cel": {"expression": "device.driver == 'other'"}}]});
    assert_eq!(
        says(&mut world, asking(none)),
        "no_matching_device: no gpu device matches the selectors of request r"
    );
    let one = format!("device.attributes['{DRIVER}'].class == 'big'");
    assert_eq!(
        says(
            &mut world,
            asking(json!({"count": 3, "selectors": [{"cel": {"expression": one}}]}))
        ),
        "no_matching_device: only 2 gpu devices matching are there, 3 asked"
    );
}

#[test]
fn selectors_that_fail() {
    let mut world = one_node(&mixed());
    let select = |text: &str| asking(json!({"selectors": [{"cel": {"expression": text}}]}));
    world.claim("c", select("device.driver =="));
    let words = nowhere(&world, &pod("p", &["c"]));
    assert!(
        words.starts_with("selector_error: selector 1 of request r does not compile: "),
        "{words}"
    );
    let words = says(&mut world, select("device.attributes['gpu.nvidia.com'].nothing == 'x'"));
    assert!(
        words.starts_with("selector_error: selector 1 of request r failed on device gpu-0: "),
        "{words}"
    );
    world.class(
        "typo",
        json!({"selectors": [{"cel": {"expression": "device.attributes['gpu.nvidia.com'].nothing"}}]}),
    );
    let words = says(&mut world, asking(json!({"deviceClassName": "typo"})));
    assert!(
        words.starts_with("selector_error: selector 1 of DeviceClass typo "),
        "{words}"
    );
}

#[test]
fn devices_that_are_taken_or_tainted() {
    let mut world = one_node(&mixed());
    world.take("n", &["gpu-0", "gpu-1", "gpu-2"]);
    assert_eq!(
        says(&mut world, ask(2)),
        "not_enough_free: 1 of 4 gpu devices that match is free, 2 asked"
    );
    let sick = json!({"taints": [{"key": "xid", "value": "79", "effect": "NoExecute"}]});
    let worn = json!({"taints": [{"key": "worn", "effect": "NoSchedule"}]});
    let noted = json!({"taints": [{"key": "seen", "effect": "None"}]});
    let mut world = one_node(&[
        with(gpu("a", "x", 1), sick),
        with(gpu("b", "x", 1), worn),
        with(gpu("c", "x", 1), noted),
    ]);
    assert_eq!(
        says(&mut world, ask(2)),
        "tainted: 1 of 3 free gpu devices is untainted, 2 asked: a has taint xid=79:NoExecute"
    );
    world.claim("d", ask(1));
    assert_eq!(world.devices(&pod("p", &["d"]), "n"), ["c"]);
    world.take("n", &["a", "c"]);
    assert_eq!(says(&mut world, ask(1)), "tainted: b has taint worn:NoSchedule");
    let tolerating = json!({"tolerations": [{"key": "worn", "operator": "Exists"}]});
    world.claim("t", asking(tolerating));
    assert_eq!(world.devices(&pod("p", &["t"]), "n"), ["b"]);
}

#[test]
fn pools_that_are_not_whole() {
    let mut world = World::new();
    world.node("n", &[]);
    world.slice(
        "n",
        json!({"nodeName": "n", "devices": mixed(),
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 2}}),
    );
    let words = "gpu.nvidia.com is publishing its devices: 1 of 2 slices are there";
    assert_eq!(says(&mut world, ask(1)), format!("pool_incomplete: {words}"));
    assert_eq!(
        says(&mut world, asking(json!({"allocationMode": "All"}))),
        format!("pool_incomplete: all devices asked, but {words}")
    );
    let mut world = one_node(&[gpu("twice", "x", 1), gpu("twice", "x", 1)]);
    let words = says(&mut world, ask(1));
    assert!(
        words.starts_with("pool_incomplete: what gpu.nvidia.com publishes is invalid: "),
        "{words}"
    );
}

#[test]
fn constraints_that_cannot_be_met() {
    let board = |name: &str, board: &str| with(gpu(name, "x", 1), json!({"attributes": {"board": {"string": board}}}));
    let mut world = one_node(&[board("a0", "a"), board("b0", "b"), board("a1", "a"), board("b1", "b")]);
    let same = |count: u32| {
        with(
            ask(count),
            json!({"constraints": [{"matchAttribute": "gpu.nvidia.com/board"}]}),
        )
    };
    let distinct = |count: u32| {
        with(
            ask(count),
            json!({"constraints": [{"distinctAttribute": "gpu.nvidia.com/board"}]}),
        )
    };
    assert_eq!(
        says(&mut world, same(3)),
        "constraint: no free devices that each have the same gpu.nvidia.com/board"
    );
    assert_eq!(
        says(&mut world, distinct(3)),
        "constraint: no free devices that each have a different gpu.nvidia.com/board"
    );
    world.claim("c", same(2));
    assert_eq!(world.devices(&pod("p", &["c"]), "n"), ["a0", "a1"]);
    world.claim("c", distinct(2));
    assert_eq!(world.devices(&pod("p", &["c"]), "n"), ["a0", "b0"]);
    let both = json!({"constraints": [{"matchAttribute": "gpu.nvidia.com/board"}, {"distinctAttribute": "gpu.nvidia.com/board"}]});
    assert_eq!(
        says(&mut world, with(ask(2), both)),
        "constraint: no free devices that each have the same gpu.nvidia.com/board (and its other constraints)"
    );
    assert_eq!(
        says(
            &mut world,
            with(
                ask(1),
                json!({"constraints": [{"matchAttribute": "gpu.nvidia.com/nothing"}]})
            )
        ),
        "constraint: no free devices that each have the same gpu.nvidia.com/nothing"
    );
}

#[test]
fn counters_and_shares_that_are_used_up() {
    let part = |name: &str, slots: u32| {
        with(
            gpu(name, "x", 1),
            json!({"consumesCounters": [{"counterSet": "card", "counters": {"slots": {"value": slots.to_string()}}}]}),
        )
    };
    let mut world = World::new();
    world.node("n", &[]);
    let pool = |count: u32| json!({"name": "n", "generation": 1, "resourceSliceCount": count});
    world.slice(
        "n",
        json!({"nodeName": "n", "pool": pool(2), "devices": [part("p4", 4), part("p3", 3), part("p7", 7)]}),
    );
    world.slice(
        "n-counters",
        json!({"nodeName": "n", "pool": pool(2),
        "sharedCounters": [{"name": "card", "counters": {"slots": {"value": "7"}}}]}),
    );
    world.claim("c", ask(2));
    assert_eq!(
        world.devices(&pod("p", &["c"]), "n"),
        ["p3", "p4"],
        "the one that leaves more first"
    );
    assert_eq!(
        says(&mut world, ask(3)),
        "capacity_exhausted: the requests compete for the same devices, counters or capacity, and not all can be met together"
    );
    world.take("n", &["p3"]);
    assert_eq!(
        says(&mut world, ask(2)),
        "capacity_exhausted: counters or capacity are left for 1 of 2 gpu devices, 2 asked"
    );

    let shared = with(
        gpu("s", "x", 1),
        json!({"allowMultipleAllocations": true, "capacity": {"memory": {"value": "80Gi"}}}),
    );
    let mut world = one_node(&[shared]);
    let memory = |size: &str| json!({"capacity": {"requests": {"memory": size}}});
    let two = |size: &str| json!({"requests": [request("a", memory(size)), request("b", memory(size))]});
    // As in-tree: each request takes a device once, and several requests share it.
    assert_eq!(
        says(&mut world, asking(with(memory("1Gi"), json!({"count": 2})))),
        "no_matching_device: only 1 gpu device matching is there, 2 asked"
    );
    assert_eq!(
        says(&mut world, two("50Gi")),
        "capacity_exhausted: the requests compete for the same devices, counters or capacity, and not all can be met together"
    );
    world.claim("c", two("40Gi"));
    let shares = pod("p", &["c"]);
    assert_eq!(world.devices(&shares, "n"), ["s", "s"]);
    let placed = world.place(&shares, "n").expect("two shares");
    world.commit(&placed);
    assert_eq!(
        {
            world.claim("d", asking(memory("1Gi")));
            world.refused(&pod("q", &["d"]), "n")
        },
        "capacity_exhausted: counters or capacity are left for 0 of 1 gpu device, 1 asked"
    );
}

#[test]
fn admin_access_needs_the_namespace_label() {
    let mut world = one_node(&mixed());
    world.take("n", &["gpu-0", "gpu-1", "gpu-2", "gpu-3"]);
    world.claim("c", asking(json!({"adminAccess": true, "allocationMode": "All"})));
    let words = "admin_access: request r asks for adminAccess: namespace default is not labelled \
                 resource.kubernetes.io/admin-access=true";
    assert_eq!(nowhere(&world, &pod("p", &["c"])), words);
    world.namespace(json!({"resource.kubernetes.io/admin-access": "false"}));
    assert_eq!(nowhere(&world, &pod("p", &["c"])), words);
    world.namespace(json!({"resource.kubernetes.io/admin-access": "true"}));
    // Taken devices and mixed classes are no matter to who only looks.
    assert_eq!(
        world.devices(&pod("p", &["c"]), "n"),
        ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
    );
    let placed = world.place(&pod("p", &["c"]), "n").expect("it looks");
    assert_eq!((placed.class.clone(), placed.watts), (None, 0));
    assert!(
        placed.claims[0]
            .allocation
            .results
            .iter()
            .all(|r| r.admin_access && r.share_id.is_none())
    );
    // And a class asked for is a class to run on: looking is not running.
    let wishing = annotated("p", &["c"], json!({"wattlane.dev/class": "small"}));
    assert_eq!(world.devices(&wishing, "n").len(), 4);
    // What looks takes nothing.
    world.commit(&placed);
    world.node("m", &mixed());
    world.claim("d", ask(2));
    assert_eq!(world.devices(&pod("q", &["d"]), "m"), ["gpu-1", "gpu-3"]);
}

#[test]
fn what_a_pod_holds_decides_the_class_of_the_rest() {
    let mut world = one_node(&mixed());
    let held = |device: &str| json!({"allocation": {"devices": {"results": [{"request": "r", "driver": "gpu.nvidia.com", "pool": "n", "device": device}]}}});
    world.claim_with("held", ask(1), json!({}), held("gpu-0"));
    world.claim("c", ask(1));
    world.claim("two", ask(2));
    assert_eq!(world.devices(&pod("p", &["held", "c"]), "n"), ["gpu-0", "gpu-2"]);
    assert_eq!(
        world.refused(&pod("p", &["held", "two"]), "n"),
        "mixed_classes: all devices of the pod must be of class big, which its claims hold already; \
         free: 2 x small and 1 x big"
    );
    let small = annotated("p", &["held", "c"], json!({"wattlane.dev/class": "small"}));
    assert_eq!(
        world.refused(&small, "n"),
        "mixed_classes: the pod asks for class small, but its claims hold devices of class big"
    );
    let may = annotated(
        "p",
        &["held", "c"],
        json!({"wattlane.dev/class": "small", "wattlane.dev/mix-classes": "true"}),
    );
    assert_eq!(world.devices(&may, "n"), ["gpu-0", "gpu-1"]);
}
