//! The index, fed with objects: what a snapshot says afterwards.

mod absent;
mod holders;
mod holds;
mod memo;
mod property;
mod rooms;
mod shares;
mod support;
mod wiring;

use serde_json::json;
use support::*;
use wattlane::index::{Change, Index, Key, Kind, Object, Reservation, ReservationId, ReservedClaim, Unreadable};
use wattlane::model::{DeviceResult, QualifiedName, Readiness};
use wattlane::snapshot::{PoolHealth, Snapshot};

fn publish(index: &mut Index) -> std::sync::Arc<Snapshot> {
    index.publish().expect("a change")
}

fn on(node: &str) -> serde_json::Value {
    json!({"nodeName": node})
}

fn reservation(claim: &str, uid: &str, results: Vec<DeviceResult>) -> Reservation {
    Reservation {
        pod: Key::new("ns", "pod"),
        pod_uid: "pod-uid".into(),
        node: "n1".into(),
        claims: vec![ReservedClaim {
            claim: Key::new("ns", claim),
            uid: uid.into(),
            results,
        }],
        slots: vec![],
    }
}

fn reserve(index: &mut Index, claim: &str, results: Vec<DeviceResult>) -> Result<ReservationId, String> {
    index
        .reserve(reservation(claim, "u", results))
        .map_err(|c| c.0.to_string())
}

/// A node with a pool of three devices, and the claims a and b.
fn small() -> Index {
    let mut index = index();
    upsert(&mut index, &node("n1", json!({})));
    upsert(
        &mut index,
        &slice("s", "n1", 1, 1, on("n1"), plain(&["d0", "d1", "d2"])),
    );
    upsert(&mut index, &claim("a", "u", 1, json!([])));
    upsert(&mut index, &claim("b", "u", 1, json!([])));
    index
}

/// A watch that broke may show a claim only after its devices were given back again.
#[test]
fn a_write_that_was_never_seen_frees_its_reservation_once_the_watch_is_past_it() {
    for (seen_first, seen) in [(false, 11), (true, 12)] {
        let mut index = small();
        let id = reserve(&mut index, "a", vec![result("n1", "d0")]).expect("free");
        let free = |index: &mut Index| {
            upsert(index, &claim("a", "u", seen, json!([])));
        };
        if seen_first {
            free(&mut index);
            assert_eq!(index.reservations(), 1, "nobody knows of the write yet");
        }
        index.written(id, Key::new("ns", "a"), "11".into());
        if !seen_first {
            upsert(&mut index, &claim("a", "u", 10, json!([])));
            assert_eq!(index.reservations(), 1, "the write is still to come");
            free(&mut index);
        }
        assert_eq!(index.reservations(), 0);
        assert_eq!(taken(&publish(&mut index), "n1"), Vec::<String>::new());
        reserve(&mut index, "a", vec![result("n1", "d0")]).expect("free again");
    }
}

/// To leave out what cannot be read would be to say that it holds and forbids nothing.
#[test]
fn nothing_is_given_while_something_cannot_be_read_that_may_hold_or_forbid() {
    let unread = |kind, namespace: &str| {
        let key = Key::new(namespace, "a");
        let why = "status: odd".into();
        Object::Unreadable(Unreadable { kind, key, why })
    };
    let ways: [(Kind, &str); 5] = [
        (Kind::Claim, "ns"),
        (Kind::Pod, "ns"),
        (Kind::Node, ""),
        (Kind::Class, ""),
        (Kind::TaintRule, ""),
    ];
    for (kind, namespace) in ways {
        let mut index = small();
        upsert(&mut index, &claim("a", "u", 2, results_json(&[result("n1", "d0")])));
        publish(&mut index);
        index.apply(Change::Upsert(unread(kind, namespace)));
        let snapshot = publish(&mut index);
        let words = snapshot.unread.clone().expect("it is said");
        assert!(
            words.contains(kind.as_str()) && words.contains("status: odd"),
            "{words}"
        );
        assert_eq!(taken(&snapshot, "n1"), ["d0"], "what was known of it stays");
        assert_eq!(
            reserve(&mut index, "b", vec![result("n1", "d1")]),
            Err(words.to_string())
        );
        // A list that has it, still unreadable, beside what it may have besides.
        let listed = match kind {
            Kind::Node => vec![node("n1", json!({}))],
            Kind::Claim => vec![claim("b", "u", 1, json!([]))],
            _ => vec![],
        };
        let mut listed: Vec<_> = listed.iter().map(object).collect();
        listed.push(unread(kind, namespace));
        index.apply(Change::Reset(kind, listed));
        assert!(index.publish().is_none(), "all is as it was");
        index.apply(Change::Remove(kind, Key::new(namespace, "a")));
        assert_eq!(publish(&mut index).unread, None);
        reserve(&mut index, "b", vec![result("n1", "d1")]).expect("all is known again");
    }
}

#[test]
fn a_list_without_what_could_not_be_read_ends_the_doubt() {
    let mut index = small();
    let unread = |kind, name: &str| {
        let key = Key::new("", name);
        let why = "odd".into();
        Change::Upsert(Object::Unreadable(Unreadable { kind, key, why }))
    };
    index.apply(unread(Kind::TaintRule, "rule"));
    assert!(publish(&mut index).unread.is_some());
    index.apply(Change::Reset(Kind::TaintRule, vec![]));
    assert_eq!(publish(&mut index).unread, None);
    // One that gives is taken out, and nothing else is in doubt.
    index.apply(unread(Kind::Slice, "s"));
    let snapshot = publish(&mut index);
    assert_eq!((snapshot.unread.clone(), pool(&snapshot, "n1").is_none()), (None, true));
}

#[test]
fn an_update_that_changes_nothing_publishes_nothing() {
    let mut index = small();
    assert_eq!(publish(&mut index).version, 1);
    upsert(&mut index, &node("n1", json!({})));
    upsert(
        &mut index,
        &slice("s", "n1", 1, 1, on("n1"), plain(&["d0", "d1", "d2"])),
    );
    upsert(&mut index, &claim("a", "u", 1, json!([])));
    index.apply(Change::Remove(Kind::Pod, Key::new("ns", "unknown")));
    assert!(index.publish().is_none());
}

#[test]
fn the_newest_generation_counts_and_only_when_it_is_complete() {
    let mut index = small();
    upsert(&mut index, &slice("s2", "n1", 2, 2, on("n1"), plain(&["e0"])));
    let health = |s: &Snapshot| pool(s, "n1").map(|p| (p.pool.health.clone(), p.pool.devices.len()));
    let incomplete = PoolHealth::Incomplete { have: 1, want: 2 };
    assert_eq!(health(&publish(&mut index)), Some((incomplete, 1)));
    upsert(&mut index, &slice("s1", "n1", 2, 2, on("n1"), plain(&["e1"])));
    let whole = publish(&mut index);
    assert_eq!(health(&whole), Some((PoolHealth::Complete, 2)));
    // Slices by name, devices as listed.
    let order = pool(&whole, "n1").map(|p| p.pool.devices.iter().map(|d| d.device.name.to_string()).collect());
    assert_eq!(order, Some(vec!["e1".to_owned(), "e0".to_owned()]));
    for name in ["s", "s1", "s2"] {
        index.apply(Change::Remove(Kind::Slice, Key::new("", name)));
    }
    let gone = publish(&mut index);
    assert!(pool(&gone, "n1").is_none() && sees(&gone, "n1").is_empty());
}

#[test]
fn a_pool_that_contradicts_itself_is_invalid_and_says_why() {
    let draws = |set: &str, counter: &str| {
        let mut counters = json!({});
        counters[counter] = json!({"value": "1"});
        json!([{"name": "d0", "consumesCounters": [{"counterSet": set, "counters": counters}]}])
    };
    let sets = json!({"nodeName": "n1", "sharedCounters": [{"name": "set", "counters": {"a": {"value": "1"}}}]});
    for (scope, devices, why) in [
        (on("n1"), plain(&["d0", "d0"]), "device d0 is listed twice"),
        (
            sets.clone(),
            draws("other", "a"),
            "device d0 uses the counter set other, which does not exist",
        ),
        (
            sets.clone(),
            draws("set", "b"),
            "device d0 uses the counter set/b, which does not exist",
        ),
        (
            on("n1"),
            json!([{"name": "d0", "attributes": {"x": {"newer": 1}}}]),
            "device d0: attribute x has a type that is not known here",
        ),
        (
            on("n1"),
            json!([{"name": 7}]),
            "spec.devices[0].name: invalid type: integer `7`, expected a string",
        ),
    ] {
        let mut index = index();
        upsert(&mut index, &node("n1", json!({})));
        upsert(&mut index, &slice("s", "n1", 1, 1, scope, devices));
        let snapshot = publish(&mut index);
        let health = pool(&snapshot, "n1").map(|p| p.pool.health.clone());
        assert_eq!(health, Some(PoolHealth::Invalid(why.into())));
        assert_eq!(sees(&snapshot, "n1"), ["n1"], "the node can tell the reason");
    }
}

#[test]
fn a_node_sees_what_reaches_it() {
    let mut index = index();
    let rack = |r: &str| {
        json!({"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions":
            [{"key": "rack", "operator": "In", "values": [r]}]}]}})
    };
    let mut mine = json!({"name": "p0", "nodeName": "n1"});
    upsert(&mut index, &slice("s1", "own", 1, 1, on("n1"), plain(&["d0"])));
    upsert(&mut index, &slice("s2", "rack", 1, 1, rack("r1"), plain(&["d0"])));
    upsert(
        &mut index,
        &slice("s3", "wide", 1, 1, json!({"allNodes": true}), plain(&["d0"])),
    );
    let per_device = json!({"perDeviceNodeSelection": true});
    let devices = json!([mine, {"name": "p1", "allNodes": true}, {"name": "p2", "nodeName": "n9"}]);
    upsert(&mut index, &slice("s4", "per", 1, 1, per_device.clone(), devices));
    // No Node object: no entry; the slices wait.
    assert_eq!(publish(&mut index).nodes().count(), 0);
    upsert(&mut index, &node("n1", json!({"rack": "r1"})));
    upsert(&mut index, &node("n2", json!({"rack": "r2"})));
    let s = publish(&mut index);
    assert_eq!(sees(&s, "n1"), ["own", "per[p0,p1]", "rack", "wide"]);
    assert_eq!(sees(&s, "n2"), ["per[p1]", "wide"]);
    // A label moves a node into a rack, a device moves to another node.
    upsert(&mut index, &node("n2", json!({"rack": "r1"})));
    mine["nodeName"] = "n2".into();
    upsert(&mut index, &slice("s4", "per", 1, 1, per_device, json!([mine])));
    let s = publish(&mut index);
    assert_eq!(sees(&s, "n1"), ["own", "rack", "wide"]);
    assert_eq!(sees(&s, "n2"), ["per", "rack", "wide"]);
    index.apply(Change::Remove(Kind::Node, Key::new("", "n1")));
    assert!(publish(&mut index).node_named("n1").is_none());
}

#[test]
fn labels_of_the_node_decide_the_class_of_its_devices() {
    let mut index = small();
    let class = |s: &Snapshot| pool(s, "n1").and_then(|p| p.pool.devices[0].classified.class.clone());
    let before = publish(&mut index);
    assert_eq!(class(&before), None);
    upsert(&mut index, &node("n1", json!({"other": "x"})));
    let same = publish(&mut index);
    let shared = |a: &Snapshot, b: &Snapshot| {
        pool(a, "n1")
            .zip(pool(b, "n1"))
            .is_some_and(|(a, b)| std::sync::Arc::ptr_eq(&a.pool, &b.pool))
    };
    assert!(
        shared(&before, &same),
        "no class changed: caches beside the pool live on"
    );
    upsert(&mut index, &node("n1", json!({"class": "fast"})));
    assert_eq!(class(&publish(&mut index)).as_deref(), Some("fast"));
}

#[test]
fn allocations_take_devices_whoever_made_them() {
    let mut index = small();
    upsert(
        &mut index,
        &claim(
            "a",
            "u",
            2,
            json!([
                {"request": "r", "driver": "gpu.test", "pool": "n1", "device": "d1"},
                {"request": "r", "driver": "gpu.test", "pool": "n1", "device": "d0", "adminAccess": true},
                {"request": "r", "driver": "gpu.test", "pool": "n1", "device": "later"},
            ]),
        ),
    );
    // A second claim on the same device: an accident elsewhere, and it is free only after both.
    upsert(&mut index, &claim("b", "u", 2, results_json(&[result("n1", "d1")])));
    assert_eq!(taken(&publish(&mut index), "n1"), ["d1"]);
    upsert(&mut index, &claim("b", "u", 3, json!([])));
    index.publish();
    // A device that was not there when its allocation was seen.
    upsert(&mut index, &slice("s", "n1", 2, 1, on("n1"), plain(&["d1", "later"])));
    assert_eq!(taken(&publish(&mut index), "n1"), ["d1", "later"]);
    index.take_loosened();
    index.apply(Change::Remove(Kind::Claim, Key::new("ns", "a")));
    assert!(taken(&publish(&mut index), "n1").is_empty());
    assert!(index.take_loosened() && !index.take_loosened());
}

#[test]
fn counters_are_drawn_once_a_device_and_shares_add_up() {
    let mut index = index();
    let draw = |n: u32| json!([{"counterSet": "card", "counters": {"slots": {"value": n.to_string()}}}]);
    let devices = json!([
        {"name": "half", "consumesCounters": draw(4)},
        {"name": "shared", "allowMultipleAllocations": true, "capacity": {"mem": {"value": "10"}}, "consumesCounters": draw(3)},
        {"name": "rest", "consumesCounters": draw(2)},
    ]);
    let sets = json!({"nodeName": "n1", "sharedCounters": [{"name": "card", "counters": {"slots": {"value": "8"}}}]});
    upsert(&mut index, &slice("s", "n1", 1, 1, sets, devices));
    let share = |id: &str, amount: &str| DeviceResult {
        share_id: Some(id.into()),
        consumed_capacity: vec![(
            QualifiedName::parse("mem", &"gpu.test".into()),
            amount.parse().expect("a quantity"),
        )],
        ..result("n1", "shared")
    };
    for name in ["a", "b", "c", "d"] {
        upsert(&mut index, &claim(name, "u", 1, json!([])));
    }
    upsert(
        &mut index,
        &claim("a", "u", 2, results_json(&[share("1", "4"), result("n1", "half")])),
    );
    assert_eq!(reserve(&mut index, "b", vec![share("2", "5")]), Ok(ReservationId(1)));
    let s = publish(&mut index);
    let state = pool(&s, "n1").expect("the pool");
    assert_eq!(
        state.counters_left[0][0].to_string(),
        "1",
        "8 - 4 - 3, the share counted once"
    );
    assert_eq!(state.shared[&1][0].1.to_string(), "9");
    // Held under the other spelling of the name: the same memory.
    let (mut short, mut one) = (share("5", "2"), share("6", "1"));
    for other in [&mut short, &mut one] {
        other.consumed_capacity[0].0.domain = "".into();
    }
    let over = reserve(&mut index, "d", vec![short]);
    assert_eq!(over, Err("device gpu.test/n1/shared has too little mem left".into()));
    assert_eq!(reserve(&mut index, "d", vec![one]), Ok(ReservationId(2)));
    let s = publish(&mut index);
    let sums = &pool(&s, "n1").expect("the pool").shared[&1];
    assert_eq!((sums.len(), sums[0].1.to_string()), (1, "10".to_owned()));
    let full = reserve(&mut index, "c", vec![share("3", "2")]);
    assert_eq!(full, Err("device gpu.test/n1/shared has too little mem left".into()));
    let counters = reserve(&mut index, "c", vec![result("n1", "rest")]);
    assert_eq!(
        counters,
        Err("device gpu.test/n1/rest needs more of card/slots than is left".into())
    );
    let whole = reserve(&mut index, "c", vec![result("n1", "shared")]);
    assert_eq!(whole, Err("device gpu.test/n1/shared is shared already".into()));
    let not = reserve(
        &mut index,
        "c",
        vec![DeviceResult {
            share_id: Some("9".into()),
            ..result("n1", "rest")
        }],
    );
    assert_eq!(
        not,
        Err("device gpu.test/n1/rest does not allow several allocations".into())
    );
}

/// Two binds that chose another memory mode each on one node of AMD's: the second meets the first.
#[test]
fn a_node_with_one_mode_for_all_is_reserved_in_one() {
    let mut index = small();
    let device = |name: &str, mode: &str| json!({"name": name, "attributes": {"memoryPartition": {"string": mode}}});
    let devices = json!([device("a1", "nps1"), device("b1", "nps1"), device("a4", "nps4"), {"name": "any"}]);
    let mut s = slice("amd", "amd", 1, 1, on("n1"), devices.clone());
    s["spec"]["driver"] = json!("gpu.amd.com");
    upsert(&mut index, &s);
    publish(&mut index);
    let of = |device: &str| {
        let mut result = result("amd", device);
        result.id.driver = "gpu.amd.com".into();
        vec![result]
    };
    let other = "device gpu.amd.com/amd/a4 needs another memoryPartition than nps1, which is in use on its node";
    let both = reserve(&mut index, "a", [of("a1"), of("a4")].concat());
    assert_eq!(both, Err(other.into()));
    let first = reserve(&mut index, "a", of("a1")).expect("nothing is in use");
    assert_eq!(reserve(&mut index, "b", of("a4")), Err(other.into()));
    let same = reserve(&mut index, "b", [of("b1"), of("any")].concat()).expect("the same mode, and none");
    index.release(first);
    assert_eq!(reserve(&mut index, "a", of("a4")), Err(other.into()), "b1 is in use");
    index.release(same);
    assert!(reserve(&mut index, "a", of("a4")).is_ok());
    // Of another driver it is an attribute like any.
    upsert(&mut index, &slice("s", "n1", 2, 1, on("n1"), devices));
    let plain = |device: &str| result("n1", device);
    assert!(reserve(&mut index, "b", vec![plain("a1"), plain("a4")]).is_ok());
}

#[test]
fn a_reservation_is_all_or_nothing_and_names_the_conflict() {
    let mut index = small();
    publish(&mut index);
    let d = |name: &str| result("n1", name);
    for (claim, uid, results, why) in [
        ("z", "u", vec![d("d0")], "claim ns/z is gone"),
        (
            "a",
            "v",
            vec![d("d0")],
            "claim ns/a was replaced by another of its name",
        ),
        (
            "a",
            "u",
            vec![d("d0"), d("d9")],
            "device gpu.test/n1/d9 does not exist any more",
        ),
        ("a", "u", vec![d("d0"), d("d0")], "device gpu.test/n1/d0 is taken"),
        (
            "a",
            "u",
            vec![result("p", "d0")],
            "device gpu.test/p/d0: its pool is gone",
        ),
    ] {
        let refused = index
            .reserve(reservation(claim, uid, results))
            .map_err(|c| c.0.to_string());
        assert_eq!(refused, Err(why.into()));
        assert!(index.publish().is_none(), "nothing was kept of it");
    }
    assert_eq!(index.reservations(), 0);
    assert_eq!(reserve(&mut index, "a", vec![d("d0")]), Ok(ReservationId(1)));
    assert_eq!(
        reserve(&mut index, "a", vec![d("d1")]),
        Err("claim ns/a is being allocated by an earlier attempt".into())
    );
    assert_eq!(
        reserve(&mut index, "b", vec![d("d0")]),
        Err("device gpu.test/n1/d0 is taken".into())
    );
    assert_eq!(taken(&publish(&mut index), "n1"), ["d0"]);
    upsert(&mut index, &slice("s", "n1", 2, 2, on("n1"), plain(&["d1"])));
    assert_eq!(
        reserve(&mut index, "b", vec![d("d1")]),
        Err("device gpu.test/n1/d1: its pool is being updated".into())
    );
}

#[test]
fn a_reservation_ends_when_its_allocation_shows_or_its_claim_goes() {
    let held = |index: &mut Index| {
        reserve(index, "a", vec![result("n1", "d0")]).expect("free");
        publish(index);
        assert_eq!(index.reservations(), 1);
    };
    // Released: free again. Twice is as once.
    let mut index = small();
    held(&mut index);
    index.release(ReservationId(1));
    index.release(ReservationId(1));
    assert!(taken(&publish(&mut index), "n1").is_empty());
    assert!(index.take_loosened());

    // A relist that does not show the allocation yet, and then the one that does: never free in between.
    let mut index = small();
    held(&mut index);
    let relist = |version, results| [claim("a", "u", version, results), claim("b", "u", 1, json!([]))];
    let stale = relist(1, json!([])).iter().map(object).collect();
    index.apply(Change::Reset(Kind::Claim, stale));
    assert_eq!((index.reservations(), index.publish().is_none()), (1, true));
    let shown = relist(5, results_json(&[result("n1", "d0")]));
    index.apply(Change::Reset(Kind::Claim, shown.iter().map(object).collect()));
    assert_eq!(taken(&publish(&mut index), "n1"), ["d0"]);
    assert_eq!(index.reservations(), 0);
    index.release(ReservationId(1));
    assert!(index.publish().is_none(), "the allocation counts on its own");
    // What was overtaken on the way does not free it again.
    upsert(&mut index, &claim("a", "u", 3, json!([])));
    assert!(index.publish().is_none());
    upsert(&mut index, &claim("a", "u", 6, json!([])));
    assert!(taken(&publish(&mut index), "n1").is_empty());

    // Deleted, and replaced.
    for gone in [
        Change::Remove(Kind::Claim, Key::new("ns", "a")),
        Change::Upsert(object(&claim("a", "other", 9, json!([])))),
        Change::Reset(Kind::Claim, vec![]),
    ] {
        let mut index = small();
        held(&mut index);
        index.apply(gone);
        assert!(taken(&publish(&mut index), "n1").is_empty());
        assert_eq!(index.reservations(), 0);
    }

    // Allocated by somebody else, elsewhere: that counts, and nothing else.
    let mut index = small();
    held(&mut index);
    upsert(&mut index, &claim("a", "u", 2, results_json(&[result("n1", "d2")])));
    assert_eq!(taken(&publish(&mut index), "n1"), ["d2"]);
}

#[test]
fn pods_without_devices_are_not_kept() {
    let mut index = index();
    let pod = |name: &str, extra: serde_json::Value, annotations: serde_json::Value| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations},
            "spec": {"containers": [{"name": "c", "resources": {"limits": extra}}]}})
    };
    upsert(&mut index, &pod("cpu", json!({"cpu": "1"}), json!({"x/y": "z"})));
    assert!(index.publish().is_none());
    upsert(&mut index, &pod("gpu", json!({"nvidia.com/gpu": "1"}), json!({})));
    upsert(
        &mut index,
        &pod("wish", json!({}), json!({"wattlane.dev/class": "fast"})),
    );
    assert_eq!(publish(&mut index).pods.len(), 2);
    // One that stops being interesting leaves.
    upsert(&mut index, &pod("wish", json!({}), json!({})));
    assert_eq!(publish(&mut index).pods.len(), 1);
}

/// Bind waits for it, and so does a pod that was refused because it failed.
#[test]
fn what_a_driver_reports_of_a_claim_is_published_and_may_let_a_refused_pod_in() {
    let mut index = small();
    let mut waiting = result("n1", "d0");
    waiting.binding_conditions = vec!["Ready".into()];
    let mut held = claim("a", "u", 2, results_json(&[waiting]));
    upsert(&mut index, &held);
    publish(&mut index);
    index.take_loosened();
    held["metadata"]["resourceVersion"] = "3".into();
    held["status"]["devices"] = json!([{"driver": "gpu.test", "pool": "n1", "device": "d0",
        "conditions": [{"type": "Ready", "status": "True"}]}]);
    upsert(&mut index, &held);
    let snapshot = publish(&mut index);
    let seen = snapshot.claim(&Key::new("ns", "a")).expect("the claim");
    assert_eq!(seen.readiness(), Readiness::Ready);
    assert!(index.take_loosened());
}

/// As in-tree, a node goes by its own slices; but a name is one device, whoever publishes it.
#[test]
fn nodes_that_share_a_pool_name_use_it_and_each_device_name_once() {
    let mut index = index();
    for n in ["n1", "n2", "n3"] {
        upsert(&mut index, &node(n, json!({})));
    }
    upsert(&mut index, &slice("s1", "all", 1, 1, on("n1"), plain(&["d0", "d1"])));
    upsert(&mut index, &slice("s2", "all", 1, 1, on("n2"), plain(&["d0"])));
    // Half of what it says it is, and the other half contradicts itself.
    upsert(&mut index, &slice("s3", "all", 1, 2, on("n3"), plain(&["d3", "d3"])));
    for name in ["a", "b", "c"] {
        upsert(&mut index, &claim(name, "u", 1, json!([])));
    }
    let snapshot = publish(&mut index);
    let health = |node: &str| {
        let entry = snapshot.node_named(node).expect("there");
        let (state, visible) = snapshot.pools_of(entry).next().expect("sees it");
        visible.health(&state.pool).clone()
    };
    assert_eq!(
        (health("n1"), health("n2")),
        (PoolHealth::Complete, PoolHealth::Complete)
    );
    assert!(
        matches!(health("n3"), PoolHealth::Incomplete { .. }),
        "{:?}",
        health("n3")
    );

    assert!(reserve(&mut index, "a", vec![result("all", "d0")]).is_ok());
    let snapshot = publish(&mut index);
    assert_eq!(taken(&snapshot, "all"), ["d0", "d0"]);
    let wanted = Reservation {
        node: "n2".into(),
        ..reservation("b", "u", vec![result("all", "d0")])
    };
    let refused = index.reserve(wanted).map_err(|c| c.0.to_string());
    assert_eq!(refused, Err("device gpu.test/all/d0 is taken".to_owned()));
    assert!(reserve(&mut index, "c", vec![result("all", "d1")]).is_ok());
    let elsewhere = Reservation {
        node: "n3".into(),
        ..reservation("b", "u", vec![result("all", "d3")])
    };
    assert!(index.reserve(elsewhere).is_err());
}

/// As the resourceslice tracker of kube-scheduler does it.
#[test]
fn taint_rules_of_an_administrator_are_taints_of_the_devices() {
    let mut index = small();
    upsert(&mut index, &slice("t", "n2", 1, 1, on("n2"), plain(&["d0"])));
    publish(&mut index);
    index.take_loosened();
    let rule = |name: &str, version: &str, selector: serde_json::Value, effect: &str| {
        json!({"apiVersion": format!("resource.k8s.io/{version}"), "kind": "DeviceTaintRule", "metadata": {"name": name},
            "spec": {"deviceSelector": selector, "taint": {"key": "sick", "value": name, "effect": effect}}})
    };
    let taints = |s: &Snapshot| -> Vec<String> {
        let pools = ["n1", "n2"].into_iter().filter_map(|p| pool(s, p));
        let devices = pools.flat_map(|p| p.pool.devices.iter().map(move |d| (p, d)));
        let lines = devices.flat_map(|(p, d)| {
            d.device
                .taints
                .iter()
                .map(move |t| format!("{}/{} {}", p.pool.name, d.device.name, t.value))
        });
        lines.collect()
    };
    upsert(
        &mut index,
        &rule(
            "one",
            "v1beta2",
            json!({"driver": "gpu.test", "pool": "n1", "device": "d1"}),
            "NoSchedule",
        ),
    );
    upsert(
        &mut index,
        &rule("named", "v1alpha3", json!({"device": "d0"}), "NoExecute"),
    );
    upsert(
        &mut index,
        &rule("other", "v1beta2", json!({"driver": "nic.test"}), "NoSchedule"),
    );
    assert_eq!(
        taints(&publish(&mut index)),
        ["n1/d0 named", "n1/d1 one", "n2/d0 named"]
    );
    // A slice that comes later is tainted too, and no selector at all selects everything.
    upsert(&mut index, &rule("named", "v1beta2", json!(null), "NoExecute"));
    upsert(&mut index, &slice("t", "n2", 2, 1, on("n2"), plain(&["d9"])));
    let all = ["n1/d0 named", "n1/d1 named", "n1/d1 one", "n1/d2 named", "n2/d9 named"];
    assert_eq!(taints(&publish(&mut index)), all);
    index.take_loosened();
    index.apply(Change::Reset(Kind::TaintRule, vec![]));
    assert!(taints(&publish(&mut index)).is_empty());
    assert!(index.take_loosened(), "a refused pod may fit now");
}

/// Whoever shares a claim fits where it is allocated, though no device came free.
#[test]
fn a_shared_claim_that_is_allocated_lets_its_other_pods_fit() {
    let mut index = small();
    let mut own = claim("own", "u", 1, json!([]));
    own["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": true}]);
    upsert(&mut index, &own);
    upsert(&mut index, &claim("shared", "v", 2, json!([])));
    publish(&mut index);
    index.take_loosened();
    own["metadata"]["resourceVersion"] = "3".into();
    own["status"] = json!({"allocation": {"devices": {"results": results_json(&[result("n1", "d0")])}}});
    upsert(&mut index, &own);
    publish(&mut index);
    assert!(!index.take_loosened(), "nobody else can use it");
    upsert(
        &mut index,
        &claim("shared", "v", 4, results_json(&[result("n1", "d1")])),
    );
    publish(&mut index);
    assert!(index.take_loosened());
}
