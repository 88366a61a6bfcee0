//! Power budgets in placement: who is refused and with what words, and which set fits where the best does not.

use serde_json::{Value, json};

use super::world::{World, annotated, ask, asking, gpu, mixed, pod, request, with};

/// Two racks with a budget each and one node each, `a` and `b`.
fn racks(budget_a: u64, budget_b: u64, devices: &[Value]) -> World {
    let mut world = World::new();
    for rack in ["a", "b"] {
        world.node(rack, devices);
        world.labelled_node(rack, json!({"rack": rack}));
    }
    world.budgets(&[("a", budget_a), ("b", budget_b)]);
    world
}

fn big(n: usize) -> Vec<Value> {
    (0..n).map(|i| gpu(&format!("gpu-{i}"), "big", 600)).collect()
}

#[test]
fn a_node_over_budget_is_refused_with_domain_budget_rest_and_need() {
    let mut world = racks(2000, 20_000, &big(4));
    world.take("a", &["gpu-0", "gpu-1"]);
    world.claim("c", ask(2));
    assert_eq!(
        world.refused(&pod("p", &["c"]), "a"),
        "power_budget: power domain rack=a: budget 2 kW, 800 W left, 1200 W needed"
    );
    assert_eq!(world.devices(&pod("p", &["c"]), "b"), ["gpu-0", "gpu-1"]);
    // The same through the search.
    world.claim(
        "d",
        asking(json!({"selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}]})),
    );
    world.claim("e", ask(1));
    assert_eq!(
        world.refused(&pod("q", &["d", "e"]), "a"),
        "power_budget: power domain rack=a: budget 2 kW, 800 W left, 1200 W needed"
    );
    assert_eq!(world.devices(&pod("q", &["e"]), "a"), ["gpu-2"]);
}

#[test]
fn the_best_set_that_fits_is_taken_where_the_best_does_not() {
    // The pod of two would be given the class of which least is left; only the small one fits.
    let mut world = racks(1000, 1000, &mixed());
    world.claim("c", ask(2));
    assert_eq!(world.devices(&pod("p", &["c"]), "a"), ["gpu-1", "gpu-3"]);
    world.take("a", &["gpu-1"]);
    assert_eq!(
        world.refused(&pod("p", &["c"]), "a"),
        "power_budget: power domain rack=a: budget 1 kW, 700 W left, 1200 W needed"
    );
    // Several kinds within one class, in a search: 300 + 600 fit where 600 + 600 do not.
    let devices = [gpu("d0", "x", 600), gpu("d1", "x", 600), gpu("d2", "x", 300)];
    let mut world = racks(900, 900, &devices);
    world.claim(
        "c",
        json!({"requests": [request("r", json!({})), request("s", json!({}))]}),
    );
    let mut got = world.devices(&pod("p", &["c"]), "a");
    got.sort();
    assert_eq!(got, ["d0", "d2"]);
    // First in list order is not what fits: check must come to it as well.
    let list = json!({"requests": [{"name": "r", "firstAvailable": [
        {"name": "two", "deviceClassName": "gpu", "count": 3},
        {"name": "one", "deviceClassName": "gpu", "count": 2}]}]});
    world.claim("f", list);
    assert_eq!(
        world.devices(&pod("q", &["f"]), "a").len(),
        2,
        "an alternative that fits"
    );
}

#[test]
fn classes_that_fit_are_found_beside_those_that_do_not() {
    let mut world = racks(1300, 1300, &mixed());
    world.take("a", &["gpu-1"]);
    world.claim("c", ask(2));
    // 1000 W are left: the pair of 600 W does not fit, and one small card is no pair.
    assert!(world.refused(&pod("p", &["c"]), "a").starts_with("power_budget: "));
    let mixing = annotated("p", &["c"], json!({"wattlane.dev/mix-classes": "true"}));
    let mut got = world.devices(&mixing, "a");
    got.sort();
    assert_eq!(got, ["gpu-0", "gpu-3"], "by permission, 900 W of two classes");
}

#[test]
fn unknown_watts_are_not_given_where_there_is_a_budget() {
    let odd = json!({"name": "odd", "attributes": {"class": {"string": "odd"}}});
    let mut world = racks(2000, 2000, &[odd, gpu("gpu-1", "big", 600)]);
    world.claim("c", ask(1));
    assert_eq!(world.devices(&pod("p", &["c"]), "a"), ["gpu-1"]);
    let odd = annotated("p", &["c"], json!({"wattlane.dev/class": "odd"}));
    let words = "power_budget: watts of device odd unknown: give its class watts in the policy";
    assert_eq!(world.refused(&odd, "a"), words);
    // Searched.
    world.claim(
        "d",
        json!({"requests": [request("r", json!({})), request("s", json!({}))]}),
    );
    let mixing = annotated("q", &["d"], json!({"wattlane.dev/mix-classes": "true"}));
    assert_eq!(world.refused(&mixing, "a"), words);
    // In use by somebody else: what is left of the budget cannot be told.
    world.take("a", &["odd"]);
    assert_eq!(
        world.refused(&pod("p", &["c"]), "a"),
        "power_budget: power domain rack=a: watts of device gpu.nvidia.com/a/odd, in use, unknown: give its class watts in the policy"
    );
    assert_eq!(world.devices(&pod("p", &["c"]), "b"), ["gpu-1"]);
    // Without a budget nobody asks.
    world.budgets(&[]);
    assert_eq!(world.devices(&odd, "b"), ["odd"]);
}

#[test]
fn devices_without_a_class_are_not_counted() {
    let mut world = racks(100, 100, &[]);
    world.slice(
        "nics",
        json!({"driver": "nic.example.com", "nodeName": "a", "devices": [{"name": "nic"}]}),
    );
    world.claim("c", ask(1));
    let placed = world.place(&pod("p", &["c"]), "a").expect("fits");
    assert_eq!(world.devices(&pod("p", &["c"]), "a"), ["nic"]);
    world.commit(&placed);
    let used: Vec<_> = world.snapshot.power.domains().map(|d| d.used.clone()).collect();
    assert!(used.iter().all(|u| u.watts == 0 && u.unknown.is_none()), "{used:?}");
    // A card that nobody can name is counted by nobody, and so not given.
    let mut world = racks(100, 100, &[json!({"name": "card"})]);
    world.claim("c", ask(1));
    assert_eq!(
        world.refused(&pod("p", &["c"]), "a"),
        "power_budget: watts of device card unknown: give its class watts in the policy"
    );
}

/// A whole card and its two halves, by counters.
fn halves() -> Value {
    let part = |name: &str, n: u32, kind: &str| {
        json!({"name": name, "attributes": {"type": {"string": kind}, "class": {"string": "big"}, "board": {"int": 600},
            "uuid": {"string": name}},
            "consumesCounters": [{"counterSet": "card", "counters": {"slots": {"value": n.to_string()}}}]})
    };
    json!({"nodeName": "a", "sharedCounters": [{"name": "card", "counters": {"slots": {"value": "2"}}}],
        "devices": [with(part("whole", 2, "gpu"), json!({"attributes": {"watts": {"int": 600}}})),
            part("half-0", 1, "mig"), part("half-1", 1, "mig")]})
}

#[test]
fn a_part_counts_its_whole_card_once() {
    let mut world = World::new();
    world.labelled_node("a", json!({"rack": "a"}));
    world.slice("a", halves());
    world.budgets(&[("a", 700)]);
    let selector = json!({"selectors": [{"cel": {"expression": "device.attributes['gpu.nvidia.com'].type == 'mig'"}}]});
    world.claim("c", asking(selector.clone()));
    world.claim("d", asking(selector.clone()));
    world.claim("both", asking(with(selector, json!({"count": 2}))));
    assert_eq!(
        world.devices(&pod("p", &["both"]), "a"),
        ["half-0", "half-1"],
        "600 W, not 1200"
    );
    world.take("a", &["half-0"]);
    let used: Vec<u64> = world.snapshot.power.domains().map(|d| d.used.watts).collect();
    assert_eq!(used, [600]);
    assert_eq!(
        world.devices(&pod("p", &["c"]), "a"),
        ["half-1"],
        "counted already: nothing is added"
    );
    world.budgets(&[("a", 500)]);
    assert_eq!(world.devices(&pod("p", &["d"]), "a"), ["half-1"]);
}

#[test]
fn shares_of_a_card_in_use_add_nothing() {
    let share = |name: &str| {
        with(
            gpu(name, "big", 600),
            json!({"allowMultipleAllocations": true, "capacity": {"memory": {"value": "80Gi",
                "requestPolicy": {"default": "10Gi"}}}}),
        )
    };
    let mut world = World::new();
    world.node("a", &[share("s0"), share("s1")]);
    world.labelled_node("a", json!({"rack": "a"}));
    world.budgets(&[("a", 600)]);
    world.claim("c", ask(1));
    let placed = world.place(&pod("p", &["c"]), "a").expect("fits");
    world.commit(&placed);
    world.claim("d", ask(1));
    assert_eq!(world.devices(&pod("q", &["d"]), "a"), ["s0"]);
    world.claim("e", ask(2));
    assert_eq!(
        world.refused(&pod("r", &["e"]), "a"),
        "power_budget: power domain rack=a: budget 600 W, 0 W left, 600 W needed"
    );
    // Two requests of one pod may have shares of one card.
    world.claim(
        "f",
        json!({"requests": [request("r", json!({})), request("s", json!({}))]}),
    );
    assert_eq!(world.devices(&pod("s", &["f"]), "a"), ["s0", "s0"]);
}

#[test]
fn among_equal_nodes_the_domain_with_more_left_is_better() {
    let mut world = racks(5000, 9000, &big(4));
    world.claim("c", ask(1));
    assert_eq!(world.scores(&pod("p", &["c"]), &["a", "b"])[1], 10);
    world.budgets(&[("a", 9000), ("b", 5000)]);
    assert_eq!(world.scores(&pod("p", &["c"]), &["a", "b"])[0], 10);
    // Packing comes first.
    world.take("b", &["gpu-0"]);
    assert_eq!(world.scores(&pod("p", &["c"]), &["a", "b"])[1], 10);
}

#[test]
fn a_budget_below_use_refuses_and_one_above_admits_again() {
    let mut world = racks(5000, 5000, &big(4));
    world.take("a", &["gpu-0", "gpu-1"]);
    world.budgets(&[("a", 1000), ("b", 5000)]);
    world.claim("c", ask(1));
    assert_eq!(
        world.refused(&pod("p", &["c"]), "a"),
        "power_budget: power domain rack=a: budget 1 kW, 0 W left, 600 W needed"
    );
    // A pod whose claim is allocated already adds nothing.
    let held = pod("q", &["held-a-gpu-0-gpu-1"]);
    assert_eq!(world.devices(&held, "a").len(), 2);
    world.budgets(&[("a", 1800), ("b", 5000)]);
    assert_eq!(world.devices(&pod("p", &["c"]), "a"), ["gpu-2"]);
    world.labelled_node("a", json!({"rack": "b"}));
    world.budgets(&[("b", 1700)]);
    assert!(
        world
            .refused(&pod("p", &["c"]), "b")
            .contains("rack=b: budget 1700 W, 500 W left")
    );
}

#[test]
fn cards_that_several_nodes_reach_count_in_every_domain_of_theirs() {
    let mut world = World::new();
    for rack in ["a", "b"] {
        world.labelled_node(rack, json!({"rack": rack}));
    }
    world.slice("fabric", json!({"allNodes": true, "devices": big(3)}));
    world.budgets(&[("a", 2000), ("b", 1300)]);
    world.claim("c", ask(2));
    world.claim("d", ask(1));
    assert_eq!(world.devices(&pod("p", &["c"]), "a"), ["gpu-0", "gpu-1"]);
    world.take("fabric", &["gpu-0", "gpu-1"]);
    let used: Vec<u64> = world.snapshot.power.domains().map(|d| d.used.watts).collect();
    assert_eq!(used, [1200, 1200]);
    world.change(wattlane::index::Change::Remove(
        wattlane::index::Kind::Slice,
        wattlane::index::Key::new("", "fabric"),
    ));
    let away: Vec<u64> = world.snapshot.power.domains().map(|d| d.used.watts).collect();
    assert_eq!(away, [1200, 1200], "held still, whoever reaches them");
    world.slice("fabric", json!({"allNodes": true, "devices": big(3)}));
    assert!(
        world
            .refused(&pod("q", &["d"]), "a")
            .contains("rack=b: budget 1300 W, 100 W left, 600 W needed"),
        "{}",
        world.refused(&pod("q", &["d"]), "a")
    );
}
