//! What nobody could use any more: which node, and which card of it, a pod takes where CPU is known and what pods ask for.

use serde_json::{Value, json};
use wattlane::convert::{self, Object};
use wattlane::index::Change;
use wattlane::model::Pod;

use super::world::{World, ask, asking, gpu, ids, pod, pod_of, with};

fn shared(name: &str) -> Value {
    with(
        gpu(name, "x", 300),
        json!({"allowMultipleAllocations": true, "capacity": {"memory": {"value": "1000"}}}),
    )
}

fn part(milli: u32) -> Value {
    asking(json!({"count": 1, "capacity": {"requests": {"memory": milli.to_string()}}}))
}

fn needing(name: &str, claims: &[&str], cpu: u32) -> Pod {
    let claims: Vec<_> = claims
        .iter()
        .map(|c| json!({"name": c, "resourceClaimName": c}))
        .collect();
    pod_of(json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}],
            "resourceClaims": claims}}))
}

fn node(world: &mut World, name: &str, cpu: u32, devices: &[Value]) {
    world.node(name, devices);
    world.apply(
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name},
        "status": {"allocatable": {"cpu": cpu, "memory": "64Gi"}}}),
    );
}

/// Binds it there, as the watch shows it.
fn run(world: &mut World, pod: &Pod, node: &str) {
    if !pod.claims.is_empty() {
        let placed = world.place(pod, node).expect("it fits");
        world.commit(&placed);
    }
    let bound = Pod {
        node_name: node.into(),
        ..pod.clone()
    };
    world.change(Change::Upsert(Object::Pod(bound)));
}

/// So many pods of a card and ten cores each, on a node of their own.
fn seen(world: &mut World, pods: u32) {
    let cards: Vec<_> = (0..pods).map(|i| gpu(&format!("s{i}"), "x", 300)).collect();
    node(world, "z-seen", 10 * pods, &cards);
    for i in 0..pods {
        let claim = format!("seen-{i}");
        world.claim(&claim, ask(1));
        run(world, &needing(&claim, &[&claim], 10), "z-seen");
    }
    assert!(!world.snapshot.mix.is_empty(), "so many pods are something to go by");
}

#[test]
fn a_share_goes_to_a_card_in_use_and_there_to_the_fullest() {
    let mut world = World::new();
    world.node("n", &[shared("a"), shared("b"), shared("c")]);
    let place = |world: &World, name: &str| {
        ids(&world.place(&pod(name, &[name]), "n").expect("fits"))
            .next()
            .expect("one")
            .device
            .to_string()
    };
    for (name, milli, card) in [
        ("p", 500, "a"),
        ("q", 700, "b"),
        ("r", 300, "b"),
        ("s", 400, "a"),
        ("t", 200, "c"),
        ("u", 100, "a"),
    ] {
        world.claim(name, part(milli));
        assert_eq!(place(&world, name), card, "{name}");
        let placed = world.place(&pod(name, &[name]), "n").expect("fits");
        world.commit(&placed);
    }
}

#[test]
fn a_card_in_use_draws_nothing_more() {
    let mut world = World::new();
    world.node(
        "cool",
        &[with(shared("a"), json!({"attributes": {"watts": {"int": 100}}}))],
    );
    world.node("hot", &[shared("a")]);
    world.claim("p", part(300));
    world.claim("q", part(300));
    assert_eq!(world.scores(&pod("p", &["p"]), &["cool", "hot"]), [10, 9]);
    let placed = world.place(&pod("p", &["p"]), "hot").expect("fits");
    world.commit(&placed);
    assert_eq!(world.scores(&pod("q", &["q"]), &["cool", "hot"]), [9, 10]);
}

#[test]
fn cards_are_not_left_without_cpu() {
    let mut world = World::new();
    node(&mut world, "lean", 20, &[gpu("a", "x", 300), gpu("b", "x", 300)]);
    node(
        &mut world,
        "rich",
        60,
        &[gpu("a", "x", 300), gpu("b", "x", 300), gpu("c", "x", 300)],
    );
    world.claim("p", ask(1));
    let hungry = needing("p", &["p"], 18);
    assert_eq!(
        world.scores(&hungry, &["lean", "rich"]),
        [10, 9],
        "the fuller one, as long as nothing is known of the demand"
    );
    seen(&mut world, 10);
    assert_eq!(world.scores(&hungry, &["lean", "rich"]), [9, 10]);
    let usual = needing("p", &["p"], 10);
    assert_eq!(
        world.scores(&usual, &["lean", "rich"]),
        [10, 9],
        "ten cores leave nothing over on either"
    );
    world.rules.spread = true;
    assert_eq!(
        world.scores(&hungry, &["lean", "rich"]),
        [9, 10],
        "more cards are left there"
    );
}

/// Of what is as good the scheduler chooses.
#[test]
fn pods_without_devices_do_not_take_the_cpu_that_cards_need() {
    let mut world = World::new();
    node(&mut world, "cards", 20, &[gpu("a", "x", 300), gpu("b", "x", 300)]);
    node(&mut world, "plain-a", 20, &[]);
    node(&mut world, "plain-b", 40, &[]);
    let plain = needing("p", &[], 8);
    let nodes = ["cards", "plain-a", "plain-b"];
    let demand = world.demand(&plain).expect("a pod");
    assert!(!wattlane::placement::has_say(world.ctx(), &demand));
    seen(&mut world, 10);
    assert!(wattlane::placement::has_say(world.ctx(), &demand));
    assert_eq!(world.scores(&plain, &nodes), [8, 10, 10]);
}

#[test]
fn a_socket_in_use_is_filled_before_another_is_turned_on() {
    let mut world = World::new();
    node(&mut world, "idle", 64, &[]);
    node(&mut world, "used", 64, &[]);
    seen(&mut world, 10);
    run(&mut world, &needing("q", &[], 20), "used");
    let nodes = ["idle", "used"];
    assert_eq!(world.scores(&needing("p", &[], 12), &nodes), [8, 10]);
    assert_eq!(
        world.scores(&needing("p", &[], 13), &nodes),
        [10, 10],
        "one more on either"
    );
}

/// Of a kind of pod that was not seen yet nothing is known, and it may need a whole node.
#[test]
fn pods_without_devices_go_where_fewest_cards_are_free() {
    let mut world = World::new();
    node(&mut world, "many", 200, &[gpu("a", "x", 300), gpu("b", "x", 300)]);
    node(&mut world, "few", 200, &[gpu("a", "x", 300)]);
    seen(&mut world, 10);
    assert_eq!(world.scores(&needing("p", &[], 8), &["many", "few"]), [8, 10]);
}

#[test]
fn what_is_asked_for_at_once_stays_whole() {
    let mut world = World::new();
    let cards = |n: usize| (0..n).map(|i| gpu(&format!("g{i}"), "x", 300)).collect::<Vec<_>>();
    // Nine cards are left on one: without one of them it can take a pod of eight still.
    node(&mut world, "a-eight", 80, &cards(8));
    node(&mut world, "nine", 160, &cards(16));
    world.take("nine", &["g0", "g1", "g2", "g3", "g4", "g5", "g6"]);
    for i in 0..10 {
        let name = format!("big-{i}");
        node(&mut world, &format!("z-{i}"), 80, &cards(8));
        world.claim(&name, ask(8));
        run(&mut world, &needing(&name, &[&name], 80), &format!("z-{i}"));
    }
    seen(&mut world, 10);
    world.claim("p", ask(1));
    assert_eq!(world.scores(&needing("p", &["p"], 10), &["a-eight", "nine"]), [9, 10]);
}

#[test]
fn requests_are_read_as_the_scheduler_counts_them() {
    let container =
        |cpu: &str, memory: &str| json!({"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}});
    let of = |spec: Value| {
        let mut pod = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec});
        pod["apiVersion"] = json!("v1");
        let room = convert::pod(&pod).expect("a pod").room;
        (room.cpu, room.memory)
    };
    assert_eq!(
        of(json!({"containers": [container("1500m", "1Gi"), container("0.5", "512Mi")]})),
        (2000, 1536)
    );
    assert_eq!(
        of(json!({"containers": [container("1", "1Gi")], "initContainers": [container("4", "1Mi")]})),
        (4000, 1024)
    );
    let sidecar = with(container("1", "1Gi"), json!({"restartPolicy": "Always"}));
    assert_eq!(
        of(json!({"containers": [container("1", "1Gi")], "initContainers": [sidecar]})),
        (2000, 2048)
    );
    assert_eq!(
        of(json!({"containers": [container("1", "1Gi")], "overhead": {"cpu": "250m", "memory": "1Mi"}})),
        (1250, 1025)
    );
    assert_eq!(
        of(json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": "3"}}}]})),
        (3000, 0)
    );
    assert_eq!(of(json!({"containers": [{"name": "c"}]})), (0, 0));
}
