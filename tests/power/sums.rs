//! What is added up, and when: measured limits, devices that are published no more, reloads and relabels.

use serde_json::json;
use wattlane::index::Kind;

use super::world::{MAX_Q, SERVER, World};

fn one_rack(budget: u64) -> World {
    let mut world = World::new(&json!([{"label": "rack", "budget": budget}]));
    world.node("n", json!({"rack": "a"}));
    world.cards("n", &[SERVER, SERVER, MAX_Q]);
    world
}

#[test]
fn reloads_and_relabels_move_sums() {
    let mut world = one_rack(5000);
    world.claim("c", 2, &[("n", "gpu-0"), ("n", "gpu-2")]);
    assert_eq!(world.domains(), [("rack=a".into(), 900, 5000)]);
    world.node("n", json!({"rack": "b", "row": "1"}));
    assert_eq!(
        world.domains(),
        [("rack=b".into(), 900, 5000)],
        "nobody is in rack a any more"
    );
    world.reload(&json!([{"label": "row", "budgets": {"1": "1kW", "2": "2kW"}}]));
    assert_eq!(
        world.domains(),
        [("row=1".into(), 900, 1000), ("row=2".into(), 0, 2000)]
    );
    world.node("n", json!({}));
    assert_eq!(world.domains(), [("row=1".into(), 0, 1000), ("row=2".into(), 0, 2000)]);
    world.node("n", json!({"row": "2"}));
    assert_eq!(world.domains()[1], ("row=2".into(), 900, 2000));
    world.remove(Kind::Node, "", "n");
    assert_eq!(world.domains()[1], ("row=2".into(), 0, 2000));
    world.node("n", json!({"row": "2"}));
    world.reload(&json!([]));
    assert_eq!(world.domains(), []);
    world.reload(&json!([{"label": "row", "budget": 700}]));
    assert_eq!(
        world.domains(),
        [("row=2".into(), 900, 700)],
        "over, and nobody is harmed"
    );
    world.remove(Kind::Claim, "ns", "c");
    assert_eq!(world.domains(), [("row=2".into(), 0, 700)]);
}

#[test]
fn a_device_held_twice_counts_once_and_admin_access_not_at_all() {
    let mut world = one_rack(5000);
    world.claim("c", 1, &[("n", "gpu-0")]);
    world.claim("d", 1, &[("n", "gpu-0")]);
    assert_eq!(world.domains()[0].1, 600);
    world.remove(Kind::Claim, "ns", "c");
    assert_eq!(world.domains()[0].1, 600);
    world.remove(Kind::Claim, "ns", "d");
    assert_eq!(world.domains()[0].1, 0);
}

#[test]
fn what_is_held_draws_on_when_its_driver_is_away() {
    let mut world = one_rack(1000);
    world.claim("c", 1, &[("n", "gpu-2")]);
    assert_eq!(world.domains()[0].1, 300);
    world.remove(Kind::Slice, "", "n");
    assert_eq!(world.domains()[0].1, 300);
    world.cards("n", &[SERVER]);
    assert_eq!(world.domains()[0].1, 300, "its card is listed no more, but was known");
    world.claim("d", 1, &[("n", "gpu-7")]);
    assert_eq!(
        world.domains()[0].1,
        900,
        "one never seen counts as the dearest of its pool"
    );
}

#[test]
fn what_was_never_seen_leaves_nothing_of_the_budget() {
    let mut world = World::new(&json!([{"label": "rack", "budget": 5000}]));
    world.node("n", json!({"rack": "a"}));
    world.node("m", json!({"rack": "a"}));
    world.claim("c", 1, &[("n", "gpu-0")]);
    world.cards("m", &[MAX_Q]);
    world.claim("d", 1, &[]);
    let refusal = world.place(&world.snapshot, "d", "m").expect_err("refused");
    assert_eq!(
        &*refusal.message,
        "power domain rack=a: watts of device gpu.nvidia.com/n/gpu-0, in use and not published, unknown"
    );
    world.cards("n", &[SERVER]);
    assert!(world.place(&world.snapshot, "d", "m").is_ok());
    assert_eq!(world.domains(), [("rack=a".into(), 600, 5000)]);
}

#[test]
fn a_reservation_that_would_pass_the_budget_is_a_conflict() {
    let mut world = one_rack(1000);
    world.node("m", json!({"rack": "a"}));
    world.cards("m", &[SERVER]);
    world.claim("c", 1, &[]);
    world.claim("d", 1, &[]);
    world.claim("e", 1, &[]);
    let seen = world.snapshot.clone();
    let first = world.place(&seen, "c", "m").expect("fits");
    let second = world.place(&seen, "d", "n").expect("fits by the same snapshot");
    assert_eq!((first.watts, second.watts), (600, 300));
    let id = world.reserve(&first, "m").expect("first");
    world.reserve(&second, "n").expect("900 of 1000");
    let third = world.place(&seen, "e", "n").expect("fits by the old one");
    let conflict = world.reserve(&third, "n").expect_err("taken");
    assert!(conflict.0.contains("is taken"), "{conflict}");
    world.claim("f", 2, &[]);
    let pair = world.place(&seen, "f", "n").map(|p| p.watts);
    assert!(pair.is_err(), "1200 do not fit 1000");
    world.index.release(id);
    world.publish();
    world.claim("g", 1, &[]);
    let large = world.place(&world.snapshot.clone(), "g", "m").expect("fits again");
    world.reload(&json!([{"label": "rack", "budget": 800}]));
    assert_eq!(
        world
            .reserve(&large, "m")
            .expect_err("the budget is lower now")
            .0
            .as_ref(),
        "power domain rack=a: budget 800 W, 500 W left, 600 W needed"
    );
    assert_eq!(
        world.domains(),
        [("rack=a".into(), 300, 800)],
        "a conflict leaves nothing"
    );
}

#[test]
fn a_measured_limit_is_what_counts() {
    use wattlane::topology::{Report, ReportedCard, annotation};
    let card = |i: usize, watts| ReportedCard {
        uuid: Some(format!("GPU-n-{i}").into()),
        power_limit_watts: Some(watts),
        ..ReportedCard::default()
    };
    let report = Report {
        cards: vec![card(0, 450), card(1, 600)],
        links: vec![wattlane::topology::Link::Unknown; 4],
    };
    let text = annotation::encode(&report).expect("encodes");
    let mut world = one_rack(5000);
    world.claim("c", 3, &[("n", "gpu-0"), ("n", "gpu-1"), ("n", "gpu-2")]);
    assert_eq!(world.domains()[0].1, 1500);
    let mut annotations = json!({});
    annotations[annotation::ANNOTATION] = text.as_str().into();
    world.node_with("n", json!({"rack": "a"}), annotations);
    assert_eq!(world.domains()[0].1, 1350);
    let state = world.snapshot.pools.iter().flatten().next().expect("the pool");
    let classes: Vec<_> = state
        .pool
        .devices
        .iter()
        .map(|d| d.classified.class.as_deref().unwrap_or("-"))
        .collect();
    assert_eq!(
        classes,
        [
            "rtx-pro-6000-blackwell-server-edition-450w",
            "rtx-pro-6000-blackwell-server-edition-600w",
            "rtx-pro-6000-blackwell-max-q-workstation-edition-300w"
        ]
    );
}
