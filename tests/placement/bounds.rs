//! Hostile and huge demands: an answer in bounded steps, on the stack of an ordinary thread.

use serde_json::json;
use wattlane::model::Reason;

use super::world::{DRIVER, World, ask, gpu, ids, pod, request, with};

#[test]
fn hostile_alternatives_end_with_words() {
    let mut world = World::new();
    // Any two devices of a claim must differ and agree in something: no vector of alternatives can do it.
    let devices: Vec<_> = (0..128)
        .map(|i| {
            with(
                gpu(&format!("g{i:03}"), "x", 300),
                json!({"attributes": {"n": {"int": i}}}),
            )
        })
        .collect();
    for node in 0..40 {
        world.node(&format!("n{node}"), &devices);
    }
    let list = |i: usize| {
        let subs: Vec<_> = (0..8)
            .map(|j| json!({"name": format!("s{j}"), "deviceClassName": "gpu"}))
            .collect();
        json!({"name": format!("r{i}"), "firstAvailable": subs})
    };
    let requests: Vec<_> = (0..32).map(list).collect();
    let attribute = format!("{DRIVER}/n");
    world.claim(
        "c",
        json!({"requests": requests, "constraints": [{"matchAttribute": attribute}]}),
    );
    let pod = pod("p", &["c"]);
    let demand = world.demand(&pod).expect("a pod that can be read");
    for node in 0..40 {
        let refusal =
            wattlane::placement::check(world.ctx(), &demand, world.entry(&format!("n{node}"))).expect_err("impossible");
        assert_eq!(refusal.reason, Reason::Limit);
    }
    assert_eq!(
        world.place(&pod, "n0").expect_err("impossible").to_string(),
        "no placement found within 20000 search steps: simplify the claim's requests and constraints"
    );
}

#[test]
fn a_demand_that_used_up_its_steps_is_not_searched_any_more() {
    let mut world = World::new();
    let devices: Vec<_> = (0..40)
        .map(|i| {
            with(
                gpu(&format!("g{i:02}"), "x", 300),
                json!({"attributes": {"n": {"int": i}, "m": {"int": i % 20}}}),
            )
        })
        .collect();
    world.node("n", &devices);
    // Twenty-one of twenty values: a pigeon-hole problem, the worst there is for a search.
    let distinct = |name: &str| json!({"distinctAttribute": format!("{DRIVER}/{name}")});
    world.claim(
        "c",
        with(ask(21), json!({"constraints": [distinct("m"), distinct("n")]})),
    );
    let pod = pod("p", &["c"]);
    let demand = world.demand(&pod).expect("a pod that can be read");
    let mut answers = vec![];
    for _ in 0..3000 {
        let refusal = wattlane::placement::check(world.ctx(), &demand, world.entry("n")).expect_err("impossible");
        assert_eq!(refusal.reason, Reason::Limit);
        let message = refusal.message.to_string();
        if answers.last() != Some(&message) {
            answers.push(message);
        }
    }
    // Each of them was cut, and is counted.
    assert_eq!(demand.cut_searches(), 3000);
    let words =
        |n: u32| format!("no placement found within {n} search steps: simplify the claim's requests and constraints");
    assert_eq!(answers, [
        words(20_000),
        words(1_000),
        "not looked at: other nodes used up the search steps of this pod; simplify the claim's requests and constraints".into(),
    ]);
}

#[test]
fn impossible_constraints_over_many_devices_end_with_words() {
    let mut world = World::new();
    let devices: Vec<_> = (0..128)
        .map(|i| {
            with(
                gpu(&format!("g{i:03}"), "x", 300),
                json!({"attributes": {"a": {"int": i % 7}, "b": {"int": i % 11}, "c": {"int": i}}}),
            )
        })
        .collect();
    world.node("n", &devices);
    let on = |kind: &str, name: &str| json!({kind: format!("{DRIVER}/{name}")});
    // Equal in a and in b, and nothing else: every 77th. Three of 128 are not to be had.
    let constraints =
        json!({"constraints": [on("matchAttribute", "a"), on("matchAttribute", "b"), on("distinctAttribute", "c")]});
    world.claim("c", with(ask(3), constraints));
    let refused = world.refused(&pod("p", &["c"]), "n");
    assert!(
        refused.starts_with("constraint: ") || refused.starts_with("limit: "),
        "{refused}"
    );
    world.claim(
        "two",
        with(
            ask(2),
            json!({"constraints": [on("matchAttribute", "a"), on("matchAttribute", "b")]}),
        ),
    );
    assert_eq!(world.devices(&pod("p", &["two"]), "n"), ["g000", "g077"]);
}

/// In a thread with this much stack, in a debug build: as little as tokio gives its workers.
fn on_two_mebibytes(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(test)
        .expect("a thread");
    thread
        .join()
        .expect("no panic, and no overflow, which would end the process");
}

#[test]
fn sixty_four_claims_of_thirty_two_devices_fit_the_stack() {
    on_two_mebibytes(|| {
        let mut world = World::new();
        world.labelled_node("n", json!({}));
        for pool in 0..16 {
            let devices: Vec<_> = (0..128).map(|i| gpu(&format!("g{i}"), "x", 300)).collect();
            world.slice(&format!("pool-{pool:02}"), json!({"nodeName": "n", "devices": devices}));
        }
        let names: Vec<String> = (0..64).map(|i| format!("c{i}")).collect();
        for name in &names {
            world.claim(name, ask(32));
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let all = pod("p", &names);
        assert_eq!(world.check(&all, "n"), Ok(()));
        let placed = world.place(&all, "n").expect("2,048 of 2,048");
        let mut given: Vec<_> = ids(&placed).collect();
        given.sort();
        given.dedup();
        assert_eq!(given.len(), 2048);
        assert_eq!(world.list_order(&all, "n").map(|l| l.len()), Some(2048));
    });
}

#[test]
fn an_alternative_of_absurd_size_is_passed_over() {
    on_two_mebibytes(|| {
        let mut world = World::new();
        let shared = json!({"allowMultipleAllocations": true});
        world.node("n", &[with(gpu("s", "x", 300), shared)]);
        let list = json!({"requests": [{"name": "r", "firstAvailable": [
            {"name": "absurd", "deviceClassName": "gpu", "count": u32::MAX}, {"name": "one", "deviceClassName": "gpu"}]}]});
        world.claim("c", list);
        assert_eq!(world.devices(&pod("p", &["c"]), "n"), ["s"]);
        // A share that takes nothing can be had as often as a claim can hold.
        let one = |i| request(&format!("r{i}"), json!({}));
        world.claim("many", json!({"requests": (0..32).map(one).collect::<Vec<_>>()}));
        assert_eq!(world.devices(&pod("p", &["many"]), "n").len(), 32);
    });
}

#[test]
fn more_than_all_a_claim_can_hold_is_known_before_the_search() {
    on_two_mebibytes(|| {
        let mut world = World::new();
        world.labelled_node("n", json!({}));
        for pool in 0..24 {
            let devices: Vec<_> = (0..128).map(|i| gpu(&format!("g{i}"), "x", 300)).collect();
            world.slice(&format!("pool-{pool:02}"), json!({"nodeName": "n", "devices": devices}));
        }
        world.claim(
            "c",
            json!({"requests": [request("r", json!({"allocationMode": "All"}))]}),
        );
        assert_eq!(
            world.refused(&pod("p", &["c"]), "n"),
            "limit: claim c would get 3072 devices: at most 32 go into one claim"
        );
    });
}
