//! Holds, against a model that counts everything anew: what is held is taken for all but its pod, nothing is given twice,
//! nothing stays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use wattlane::index::{Change, HoldEnd, HoldId, Index, Key, Kind, Object, Reservation, ReservationId, ReservedClaim};
use wattlane::model::{Budget, Classified, Classifier, Device, DeviceResult, Labels, Name, Pod, WattOrigin};
use wattlane::snapshot::Snapshot;

use super::property::{CLAIMS, NODES, claims, content, nodes, results, slices};
use super::support::*;

/// Cards of 300 W on labelled nodes, where a domain has 1,000 W.
struct Watts;

impl Classifier for Watts {
    fn classify(&self, driver: &Name, device: &Device, labels: &Labels, annotations: &Labels) -> Classified {
        let known = ByLabel.classify(driver, device, labels, annotations);
        let watts = known.class.as_ref().map(|_| 300);
        Classified {
            watts,
            board: watts,
            origin: WattOrigin::Table,
            ..known
        }
    }

    fn budgets(&self, labels: &Labels) -> Vec<Budget> {
        ByLabel.budgets(labels)
    }
}

const PODS: [&str; 3] = ["p0", "p1", "p2"];

/// Pod i names claims i and i + 1: two pods may want one claim.
fn pod_json(i: usize) -> Value {
    let claims = [CLAIMS[i], CLAIMS[i + 1]].map(|c| json!({"name": c, "resourceClaimName": c}));
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "ns", "name": PODS[i], "uid": PODS[i]},
        "spec": {"resourceClaims": claims, "containers": []}})
}

fn pod(i: usize) -> Pod {
    match object(&pod_json(i)) {
        Object::Pod(pod) => pod,
        other => panic!("no pod: {other:?}"),
    }
}

#[derive(Clone, Debug)]
enum Op {
    Upsert(Object),
    Remove(Kind, Key),
    /// The pod, and for each of its two claims what it gets.
    Hold(usize, usize, Vec<Option<Vec<DeviceResult>>>),
    Reserve(usize, usize, Vec<Option<Vec<DeviceResult>>>),
    /// The bind of a pod takes what is held for it.
    Bind(usize),
    DropHold(u64),
    Expire(u64),
    Release(u64),
    Publish,
}

fn op() -> impl Strategy<Value = Op> {
    let pods = || {
        (0..PODS.len()).prop_flat_map(|i| {
            prop_oneof![
                3 => Just(pod_json(i)),
                1 => Just({ let mut p = pod_json(i); p["spec"]["nodeName"] = "n0".into(); p }),
                1 => Just({ let mut p = pod_json(i); p["metadata"]["uid"] = "other".into(); p }),
            ]
        })
    };
    let wanted = || prop::collection::vec(prop::option::of(results()), 2);
    let (pod, node) = (|| 0..PODS.len(), || 0..NODES.len());
    prop_oneof![
        2 => nodes().prop_map(Op::Upsert),
        4 => slices().prop_map(Op::Upsert),
        4 => claims().prop_map(Op::Upsert),
        2 => pods().prop_map(|p| Op::Upsert(object(&p))),
        1 => nodes().prop_map(|o| Op::Remove(Kind::Node, o.key())),
        1 => slices().prop_map(|o| Op::Remove(Kind::Slice, o.key())),
        1 => claims().prop_map(|o| Op::Remove(Kind::Claim, o.key())),
        1 => pod().prop_map(|i| Op::Remove(Kind::Pod, Key::new("ns", PODS[i]))),
        8 => (pod(), node(), wanted()).prop_map(|(p, n, w)| Op::Hold(p, n, w)),
        3 => (pod(), node(), wanted()).prop_map(|(p, n, w)| Op::Reserve(p, n, w)),
        3 => pod().prop_map(Op::Bind),
        1 => (0..20u64).prop_map(Op::DropHold),
        1 => (0..20u64).prop_map(Op::Expire),
        1 => (0..12u64).prop_map(Op::Release),
        2 => Just(Op::Publish),
    ]
}

fn reservation(pod: usize, node: usize, wanted: &[Option<Vec<DeviceResult>>]) -> Reservation {
    let claims = wanted.iter().enumerate().filter_map(|(i, results)| {
        Some(ReservedClaim {
            claim: Key::new("ns", CLAIMS[pod + i]),
            uid: "u".into(),
            results: results.clone()?,
        })
    });
    Reservation {
        pod: Key::new("ns", PODS[pod]),
        pod_uid: PODS[pod].into(),
        node: NODES[node].into(),
        claims: claims.collect(),
        slots: vec![],
    }
}

#[derive(Default)]
struct Model {
    objects: BTreeMap<(Kind, Key), Object>,
    reserved: BTreeMap<u64, Vec<ReservedClaim>>,
    holds: BTreeMap<u64, Reservation>,
}

fn names(hold: &Reservation, claim: &Key) -> bool {
    hold.claims.iter().any(|c| c.claim == *claim)
}

impl Model {
    fn change(&mut self, kind: Kind, key: &Key, now: Option<Object>) {
        match now {
            Some(object) => drop(self.objects.insert((kind, key.clone()), object)),
            None => drop(self.objects.remove(&(kind, key.clone()))),
        }
        let open = |claim: &ReservedClaim| match self.objects.get(&(Kind::Claim, claim.claim.clone())) {
            Some(Object::Claim(c)) => c.uid == claim.uid && c.allocation.is_none(),
            _ => false,
        };
        for held in self.reserved.values_mut() {
            held.retain(open);
        }
        self.reserved.retain(|_, held| !held.is_empty());
        self.holds.retain(|_, hold| hold.claims.iter().all(open));
        if kind == Kind::Pod {
            let pod = self.objects.get(&(kind, key.clone()));
            let waits =
                |h: &Reservation| matches!(pod, Some(Object::Pod(p)) if p.uid == h.pod_uid && p.node_name.is_empty());
            self.holds.retain(|_, hold| hold.pod != *key || waits(hold));
        }
    }

    /// What the pod sees as free: its own hold and those on its claims.
    fn lifted(&self, pod: &Key, claims: &[Key]) -> BTreeSet<u64> {
        let lifted = self
            .holds
            .iter()
            .filter(|(_, h)| h.pod == *pod || claims.iter().any(|c| names(h, c)));
        lifted.map(|(id, _)| *id).collect()
    }

    /// Whatever is taken, but for what these holds take.
    fn taken(&self, lifted: &BTreeSet<u64>) -> Vec<&DeviceResult> {
        let holds = self
            .holds
            .iter()
            .filter(|(id, _)| !lifted.contains(id))
            .flat_map(|(_, h)| &h.claims);
        holds
            .chain(self.reserved.values().flatten())
            .flat_map(|c| &c.results)
            .collect()
    }

    /// The same from nothing: what is reserved or held is held by claims of another namespace.
    fn fresh(&self, lifted: &BTreeSet<u64>) -> Index {
        let mut index = Index::new(Arc::new(Watts));
        for kind in [Kind::Claim, Kind::Node, Kind::Slice, Kind::Pod] {
            let objects = self.objects.values().filter(|o| o.kind() == kind).cloned().collect();
            index.apply(Change::Reset(kind, objects));
        }
        for (i, result) in self.taken(lifted).into_iter().enumerate() {
            let mut value = claim(&format!("held-{i}"), "x", 0, results_json(std::slice::from_ref(result)));
            value["metadata"]["namespace"] = "phantom".into();
            index.apply(Change::Upsert(object(&value)));
        }
        index.publish();
        index
    }

    /// Every device in use is published and of known watts: of one that is away an index made anew cannot know the watts,
    /// and where they are not known a pod's own hold is not undone (it ends with the refusal).
    fn is_exact(&self, snapshot: &Snapshot) -> bool {
        if snapshot.power.domains().any(|d| d.used.unknown.is_some()) {
            return false;
        }
        let allocated = self.objects.values().filter_map(|o| match o {
            Object::Claim(c) => c.allocation.as_ref(),
            _ => None,
        });
        let mut used = allocated.flat_map(|a| &a.results).chain(self.taken(&BTreeSet::new()));
        used.all(|r| pool(snapshot, &r.id.pool).is_some_and(|p| p.pool.by_name.contains_key(&r.id.device)))
    }

    /// Nothing is held that is remembered as it was, which no index made anew can know.
    fn is_placed(&self, snapshot: &Snapshot) -> bool {
        let allocated = self.objects.values().filter_map(|o| match o {
            Object::Claim(c) => c.allocation.as_ref(),
            _ => None,
        });
        let mut used = allocated.flat_map(|a| &a.results).chain(self.taken(&BTreeSet::new()));
        used.all(|r| {
            let pool = pool(snapshot, &r.id.pool).map(|p| &p.pool);
            pool.is_none_or(|p| p.counter_sets.is_empty() || p.by_name.contains_key(&r.id.device))
        })
    }

    /// Nobody else has any whole part of what was given just now.
    fn given_once(&self, given: &[ReservedClaim]) -> Result<(), TestCaseError> {
        let mut holders = self.taken(&BTreeSet::new());
        for object in self.objects.values() {
            if let Object::Claim(c) = object {
                holders.extend(c.allocation.iter().flat_map(|a| &a.results));
            }
        }
        for given in given.iter().flat_map(|c| &c.results).filter(|r| !r.admin_access) {
            let clash = holders
                .iter()
                .any(|h| h.id == given.id && !h.admin_access && (h.share_id.is_none() || given.share_id.is_none()));
            prop_assert!(!clash, "{} was given twice", given.id);
        }
        Ok(())
    }
}

fn watts(snapshot: &Snapshot) -> BTreeMap<Name, u64> {
    let domains = snapshot.power.domains();
    domains.map(|d| (d.budget.value.clone(), d.used.watts)).collect()
}

fn current(index: &mut Index) -> Snapshot {
    let mark = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mark"}});
    upsert(index, &mark);
    index.apply(Change::Remove(Kind::Namespace, Key::new("", "mark")));
    Snapshot::clone(&index.publish().expect("a change"))
}

fn step(index: &mut Index, model: &mut Model, op: Op) -> Result<(), TestCaseError> {
    match op {
        Op::Upsert(object) => {
            index.apply(Change::Upsert(object.clone()));
            model.change(object.kind(), &object.key(), Some(object.clone()));
        }
        Op::Remove(kind, key) => {
            index.apply(Change::Remove(kind, key.clone()));
            model.change(kind, &key, None);
        }
        Op::Hold(pod, node, wanted) => {
            let wanted = reservation(pod, node, &wanted);
            let own = model.lifted(&wanted.pod, &[]);
            let shared = wanted.claims.iter().any(|c| {
                model
                    .holds
                    .iter()
                    .any(|(id, h)| !own.contains(id) && names(h, &c.claim))
            });
            let held = index.hold(wanted.clone());
            let seen = current(index);
            if model.is_exact(&seen) && !shared && !wanted.claims.is_empty() {
                let mut fresh = model.fresh(&own);
                let busy = wanted
                    .claims
                    .iter()
                    .any(|c| model.reserved.values().flatten().any(|r| r.claim == c.claim));
                let known = model.objects.get(&(Kind::Pod, wanted.pod.clone()));
                let waits =
                    |o: &Object| matches!(o, Object::Pod(p) if p.uid == wanted.pod_uid && p.node_name.is_empty());
                let could = !busy && known.is_none_or(waits) && fresh.reserve(wanted.clone()).is_ok();
                prop_assert_eq!(held.is_ok(), could, "held: {:?}", held);
            }
            model.holds.retain(|id, _| !own.contains(id));
            if let Ok(HoldId(id)) = held {
                model.given_once(&wanted.claims)?;
                model.holds.insert(id, wanted);
            }
        }
        Op::Reserve(pod, node, wanted) => {
            let wanted = reservation(pod, node, &wanted);
            if !wanted.claims.is_empty() {
                reserve(index, model, wanted)?;
            }
        }
        Op::Bind(pod) => {
            let held = model.holds.values().find(|h| &*h.pod.name == PODS[pod]).cloned();
            if let Some(held) = held {
                reserve(index, model, held)?;
            }
        }
        Op::DropHold(id) => {
            index.drop_hold(HoldId(id));
            model.holds.remove(&id);
        }
        Op::Expire(id) => {
            index.expire_holds(HoldId(id));
            model.holds.retain(|held, _| *held > id);
        }
        Op::Release(id) => {
            index.release(ReservationId(id));
            model.reserved.remove(&id);
        }
        Op::Publish => drop(index.publish()),
    }
    Ok(())
}

fn reserve(index: &mut Index, model: &mut Model, wanted: Reservation) -> Result<(), TestCaseError> {
    let claims: Vec<Key> = wanted.claims.iter().map(|c| c.claim.clone()).collect();
    let lifted = model.lifted(&wanted.pod, &claims);
    let seen = current(index);
    let reserved = index.reserve(wanted.clone());
    if model.is_exact(&seen) {
        let busy = claims
            .iter()
            .any(|c| model.reserved.values().flatten().any(|r| r.claim == *c));
        let could = !busy && model.fresh(&lifted).reserve(wanted.clone()).is_ok();
        prop_assert_eq!(reserved.is_ok(), could, "reserved: {:?}", reserved);
    }
    match reserved {
        Ok(ReservationId(id)) => {
            model.holds.retain(|held, _| !lifted.contains(held));
            model.given_once(&wanted.claims)?;
            model.reserved.insert(id, wanted.claims);
        }
        Err(_) => prop_assert!(index.publish().is_none(), "a refused reservation left something"),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn holds_are_counted_exactly(ops in prop::collection::vec(op(), 1..60)) {
        let (mut index, mut model) = (Index::new(Arc::new(Watts)), Model::default());
        for op in ops {
            step(&mut index, &mut model, op)?;
            prop_assert_eq!(index.holds(), model.holds.len());
        }
        let none = BTreeSet::new();
        let seen = current(&mut index);
        let (exact, placed) = (model.is_exact(&seen), model.is_placed(&seen));
        let mut views = vec![(seen.clone(), none.clone())];
        for i in 0..PODS.len() {
            let pod = pod(i);
            let claims = [Key::new("ns", CLAIMS[i]), Key::new("ns", CLAIMS[i + 1])];
            views.push((seen.as_seen_by(&pod).into_owned(), model.lifted(&pod.key, &claims)));
        }
        if let Some(free) = seen.without_holds() {
            views.push((free, model.holds.keys().copied().collect()));
        }
        for (view, lifted) in views {
            let mut fresh = model.fresh(&lifted);
            let fresh = current(&mut fresh);
            if placed {
                prop_assert_eq!(dump(&view), dump(&fresh));
            }
            if exact {
                prop_assert_eq!(watts(&view), watts(&fresh));
            }
        }
        // Nothing is left once all has ended.
        index.expire_holds(HoldId(u64::MAX));
        model.holds.clear();
        prop_assert_eq!(index.holds(), 0);
        if placed {
            prop_assert_eq!(content(&mut index), content(&mut model.fresh(&none)));
        }
        prop_assert!(current(&mut index).holds.is_empty());
        prop_assert!(current(&mut index).pools.iter().flatten().all(|p| p.holds.is_none()));
    }
}

/// A node with a pool of three cards, and a claim for each of two pods.
fn small() -> Index {
    let mut index = Index::new(Arc::new(Watts));
    upsert(&mut index, &node("n0", json!({"class": "a"})));
    upsert(
        &mut index,
        &slice("s", "p0", 1, 1, json!({"nodeName": "n0"}), plain(&["d0", "d1", "d2"])),
    );
    for claim_name in CLAIMS {
        upsert(&mut index, &claim(claim_name, "u", 1, json!([])));
    }
    index.publish();
    index.take_loosened();
    index
}

fn wanted(pod: usize, devices: &[&str]) -> Reservation {
    let results = devices.iter().map(|d| result("p0", d)).collect();
    reservation(pod, 0, &[Some(results), None])
}

#[test]
fn a_hold_that_becomes_a_reservation_frees_nothing_and_one_that_ends_does() {
    let mut index = small();
    index.hold(wanted(0, &["d0"])).expect("free");
    assert_eq!(taken(&current(&mut index), "p0"), ["d0"]);
    assert!(index.hold(wanted(2, &["d0"])).is_err(), "held for another");
    index.reserve(wanted(0, &["d0"])).expect("its own");
    index.publish();
    assert!(!index.take_loosened());
    assert_eq!(index.ended_holds()[HoldEnd::Bound as usize], 1);

    let id = index.hold(wanted(2, &["d1"])).expect("free");
    index.publish();
    assert!(!index.take_loosened());
    index.expire_holds(id);
    index.publish();
    assert!(index.take_loosened(), "somebody may have it now");
    assert_eq!(index.ended_holds()[HoldEnd::Expired as usize], 1);
    assert_eq!(taken(&current(&mut index), "p0"), ["d0"]);
    // A bind that takes less than was held.
    index.hold(wanted(2, &["d1", "d2"])).expect("free");
    index.reserve(wanted(2, &["d1"])).expect("its own");
    index.publish();
    assert!(index.take_loosened());
}

#[test]
fn a_refused_reservation_leaves_the_hold() {
    let mut index = small();
    index.reserve(wanted(0, &["d0"])).expect("free");
    index.hold(wanted(2, &["d1"])).expect("free");
    index.publish();
    assert!(index.reserve(wanted(2, &["d0"])).is_err());
    assert!(index.publish().is_none());
    assert_eq!(index.holds(), 1);
    index.reserve(wanted(2, &["d1"])).expect("still its own");
}

#[test]
fn a_budget_counts_what_is_held_and_not_twice() {
    let mut index = small();
    index.hold(wanted(0, &["d0", "d1", "d2"])).expect("900 W of 1,000 W");
    let seen = current(&mut index);
    assert_eq!(watts(&seen).get("a"), Some(&900));
    assert_eq!(watts(&seen.as_seen_by(&pod(0))).get("a"), Some(&0));
    assert_eq!(watts(&seen.as_seen_by(&pod(2))).get("a"), Some(&900));
    index.reserve(wanted(0, &["d0", "d1", "d2"])).expect("the same watts");
    assert_eq!(watts(&current(&mut index)).get("a"), Some(&900));
}

/// More holds than are kept: the oldest goes.
#[test]
fn holds_are_bounded() {
    let mut index = small();
    let many = 10_001;
    let card = json!({"name": "d", "allowMultipleAllocations": true, "capacity": {"mem": {"value": "1Ti"}}});
    upsert(
        &mut index,
        &slice("t", "big", 1, 1, json!({"nodeName": "n1"}), json!([card])),
    );
    let wanted = |i: usize| {
        let mut share = result("big", "d");
        share.share_id = Some(format!("s{i}").into());
        Reservation {
            pod: Key::new("ns", format!("pod-{i}")),
            pod_uid: "u".into(),
            node: "n1".into(),
            claims: vec![ReservedClaim {
                claim: Key::new("ns", format!("claim-{i}")),
                uid: "u".into(),
                results: if i < 2 { vec![share] } else { vec![] },
            }],
            slots: vec![],
        }
    };
    for i in 0..many {
        upsert(&mut index, &claim(&format!("claim-{i}"), "u", 1, json!([])));
    }
    for i in 0..many {
        index.hold(wanted(i)).expect("there is room");
    }
    assert_eq!(index.holds(), many - 1);
    assert_eq!(index.ended_holds()[HoldEnd::Dropped as usize], 1);
    let seen = current(&mut index);
    let of_card = seen
        .pools
        .iter()
        .flatten()
        .find(|p| &*p.pool.name == "big")
        .expect("the pool");
    assert_eq!(of_card.holds.as_ref().map(|h| h.of.len()), Some(1), "the second of two");
}
