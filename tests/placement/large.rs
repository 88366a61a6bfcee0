//! Searches that end in time only when dead ends are seen early.

use serde_json::{Value, json};

use crate::world::{World, ask, gpu, pod, with};

/// Six groups of sixteen and one of seventeen, no two devices alike: every subset of a smaller group looks like the
/// start of a solution.
#[test]
fn the_one_group_that_is_large_enough_is_found() {
    let device = |i: usize| {
        let of = json!({"group": {"int": (i / 16).min(6)}, "serial": {"int": i}});
        with(gpu(&format!("g{i:03}"), "x", 1), json!({ "attributes": of }))
    };
    let in_one_group = |count: u32| -> Value {
        let constraints = json!([
            {"requests": ["r"], "matchAttribute": "gpu.nvidia.com/group"},
            {"requests": ["r"], "distinctAttribute": "gpu.nvidia.com/serial"},
        ]);
        with(ask(count), json!({ "constraints": constraints }))
    };
    let mut world = World::new();
    world.node("n", &(0..6 * 16 + 17).map(device).collect::<Vec<_>>());
    world.claim("c", in_one_group(17));
    let expected: Vec<String> = (96..113).map(|i| format!("g{i:03}")).collect();
    assert_eq!(world.devices(&pod("p", &["c"]), "n"), expected);
    world.claim("d", in_one_group(18));
    assert_eq!(
        world.refused(&pod("q", &["d"]), "n"),
        "constraint: no free devices that each have the same gpu.nvidia.com/group (and its other constraints)"
    );
}

/// Seven partitions of 112 on sixteen cards, no two of which can be told to be alike: what is found first is best, and
/// that is seen without looking at every other set.
#[test]
fn partitions_that_draw_alike_do_not_exhaust_the_search() {
    let card = |i: usize| json!({"name": format!("card{i}"), "counters": {"slots": {"value": "7"}}});
    let part = |i: usize| {
        let counters = json!({"slots": {"value": "1"}});
        let consumes = json!([{"counterSet": format!("card{}", i / 7), "counters": counters}]);
        with(
            gpu(&format!("p{i:03}"), "x", 100),
            json!({ "consumesCounters": consumes }),
        )
    };
    let mut world = World::new();
    world.node("n", &[]);
    let pool = json!({"name": "n", "generation": 1, "resourceSliceCount": 2});
    let devices: Vec<_> = (0..112).map(part).collect();
    let cards: Vec<_> = (0..16).map(card).collect();
    world.slice("n", json!({"nodeName": "n", "pool": pool, "devices": devices}));
    world.slice(
        "n-counters",
        json!({"nodeName": "n", "pool": pool, "sharedCounters": cards}),
    );
    world.claim("c", ask(7));
    let placed = world.place(&pod("p", &["c"]), "n").expect("112 are free");
    assert_eq!((placed.watts, placed.cut), (700, false));
}
