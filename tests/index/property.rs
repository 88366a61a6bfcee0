//! Changes in any order, applied one by one, give what an index built from the final objects gives.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};
use wattlane::index::{Change, Index, Key, Kind, Object, Reservation, ReservationId, ReservedClaim};
use wattlane::model::{DeviceResult, Name};

use super::support::*;

#[derive(Clone, Debug)]
pub(super) enum Op {
    Upsert(Object),
    Remove(Kind, Key),
    /// Keeps the objects of the kind whose position is in the mask.
    Reset(Kind, u8),
    Reserve(Vec<(usize, Vec<DeviceResult>)>),
    Release(u64),
    Publish,
}

pub(super) const NODES: [&str; 3] = ["n0", "n1", "n2"];
const POOLS: [&str; 3] = ["p0", "p1", "p2"];
pub(super) const CLAIMS: [&str; 4] = ["c0", "c1", "c2", "c3"];

pub(super) fn results() -> impl Strategy<Value = Vec<DeviceResult>> {
    let one = (0..POOLS.len(), 0..4u8, 0..6u8).prop_map(|(p, d, kind)| {
        let mut r = result(POOLS[p], &format!("d{d}"));
        r.admin_access = kind == 5;
        if kind == 4 {
            r.share_id = Some("share".into());
            r.consumed_capacity = vec![(
                wattlane::model::QualifiedName::parse("mem", &"gpu.test".into()),
                wattlane::model::Quantity::from_integer(3),
            )];
        }
        r
    });
    prop::collection::vec(one, 1..3)
}

fn scope() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => (0..NODES.len()).prop_map(|n| json!({"nodeName": NODES[n]})),
        1 => Just(json!({"allNodes": true})),
        1 => Just(json!({"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions":
            [{"key": "class", "operator": "Exists"}]}]}})),
        1 => Just(json!({"perDeviceNodeSelection": true})),
    ]
}

pub(super) fn slices() -> impl Strategy<Value = Object> {
    (
        0..5u8,
        0..POOLS.len(),
        1..3i64,
        1..3i64,
        scope(),
        0..16u8,
        any::<bool>(),
    )
        .prop_map(|(name, pool, generation, count, mut scope, mask, counters)| {
            let devices: Vec<Value> = (0..4u8)
                .filter(|d| mask >> d & 1 == 1)
                .map(|d| {
                    let mut device = json!({"name": format!("d{d}"), "capacity": {"mem": {"value": "5"}}});
                    if d == 3 {
                        device["allowMultipleAllocations"] = true.into();
                    }
                    if counters {
                        device["consumesCounters"] =
                            json!([{"counterSet": "set", "counters": {"slots": {"value": "2"}}}]);
                    }
                    if scope.get("perDeviceNodeSelection").is_some() {
                        device["nodeName"] = NODES[usize::from(d) % NODES.len()].into();
                    }
                    device
                })
                .collect();
            if counters {
                scope["sharedCounters"] = json!([{"name": "set", "counters": {"slots": {"value": "5"}}}]);
            }
            let name = format!("s{name}");
            object(&slice(&name, POOLS[pool], generation, count, scope, devices.into()))
        })
}

pub(super) fn claims() -> impl Strategy<Value = Object> {
    let allocated = prop_oneof![2 => Just(vec![]), 1 => results()];
    (0..CLAIMS.len(), prop_oneof![4 => Just("u"), 1 => Just("v")], allocated).prop_map(|(c, uid, results)| {
        // No version: each event is the newest.
        let mut value = claim(CLAIMS[c], uid, 0, results_json(&results));
        value["metadata"]["resourceVersion"] = "".into();
        object(&value)
    })
}

pub(super) fn nodes() -> impl Strategy<Value = Object> {
    (
        0..NODES.len(),
        prop_oneof![
            Just(json!({})),
            Just(json!({"class": "a"})),
            Just(json!({"class": "b"})),
            Just(json!({"sort": "a"}))
        ],
    )
        .prop_map(|(n, labels)| {
            let mut node = node(NODES[n], labels);
            // The first does not say what it has.
            if n > 0 {
                node["status"] = json!({"allocatable": {"cpu": 4 * n, "memory": "8Gi"}});
            }
            object(&node)
        })
}

/// On a node or waiting, of a device plugin or with a claim, running or finished.
fn pods() -> impl Strategy<Value = Object> {
    let resource = prop_oneof![3 => Just("test/card"), 1 => Just("test/nic")];
    (0..3u8, 0..=NODES.len(), resource, 0..6u8).prop_map(|(name, node, resource, state)| {
        let node = NODES.get(node).copied().unwrap_or_default();
        let mut pod = plugin_pod(&format!("p{name}"), node, resource);
        match state {
            0 => pod["status"] = json!({"phase": "Succeeded"}),
            1 => pod["status"] = json!({"extendedResourceClaimStatus": {"resourceClaimName": "c0"}}),
            _ => {}
        }
        object(&pod)
    })
}

/// Whether a pod that is there may hold a device of the pools on the node: slices are of one driver.
fn held_unseen(objects: &BTreeMap<(Kind, Key), Object>, node: &str) -> bool {
    objects.values().any(|o| match o {
        Object::Pod(p) => {
            let card = p.extended_resources.iter().any(|(r, _)| &**r == "test/card");
            &*p.node_name == node && card && !p.finished && p.extended_resource_claim.is_none()
        }
        _ => false,
    })
}

pub(super) fn op() -> impl Strategy<Value = Op> {
    let kinds = prop_oneof![Just(Kind::Node), Just(Kind::Slice), Just(Kind::Claim), Just(Kind::Pod)];
    let wanted = prop::collection::vec((0..CLAIMS.len(), results()), 1..3);
    prop_oneof![
        3 => nodes().prop_map(Op::Upsert),
        5 => slices().prop_map(Op::Upsert),
        5 => claims().prop_map(Op::Upsert),
        1 => pods().prop_map(Op::Upsert),
        1 => pods().prop_map(|o| Op::Remove(Kind::Pod, o.key())),
        1 => nodes().prop_map(|o| Op::Remove(Kind::Node, o.key())),
        2 => slices().prop_map(|o| Op::Remove(Kind::Slice, o.key())),
        2 => claims().prop_map(|o| Op::Remove(Kind::Claim, o.key())),
        1 => (kinds, any::<u8>()).prop_map(|(k, m)| Op::Reset(k, m)),
        6 => wanted.prop_map(Op::Reserve),
        2 => (0..12u64).prop_map(Op::Release),
        2 => Just(Op::Publish),
    ]
}

/// What should be there: the objects, and per reservation the claims it still holds devices for.
#[derive(Default)]
pub(super) struct Expected {
    objects: BTreeMap<(Kind, Key), Object>,
    held: BTreeMap<u64, Vec<ReservedClaim>>,
}

impl Expected {
    fn put(&mut self, object: Object) {
        self.objects.insert((object.kind(), object.key()), object);
        self.confirm();
    }

    fn drop(&mut self, kind: Kind, key: &Key) {
        self.objects.remove(&(kind, key.clone()));
        self.confirm();
    }

    fn confirm(&mut self) {
        let objects = &self.objects;
        for held in self.held.values_mut() {
            held.retain(|h| match objects.get(&(Kind::Claim, h.claim.clone())) {
                Some(Object::Claim(c)) => c.uid == h.uid && c.allocation.is_none(),
                _ => false,
            });
        }
        self.held.retain(|_, held| !held.is_empty());
    }

    /// The same from nothing; what reservations hold is held by claims of another namespace.
    fn fresh(&self) -> Index {
        let mut index = index();
        for kind in [Kind::Claim, Kind::Node, Kind::Slice, Kind::Pod] {
            let objects = self.objects.values().filter(|o| o.kind() == kind).cloned().collect();
            index.apply(Change::Reset(kind, objects));
        }
        for (i, held) in self.held.values().flatten().enumerate() {
            let mut value = claim(&format!("held-{i}"), "x", 0, results_json(&held.results));
            value["metadata"]["namespace"] = "phantom".into();
            index.apply(Change::Upsert(object(&value)));
        }
        index
    }
}

pub(super) fn step(index: &mut Index, expected: &mut Expected, op: Op) -> Result<(), TestCaseError> {
    match op {
        Op::Upsert(object) => {
            index.apply(Change::Upsert(object.clone()));
            expected.put(object);
        }
        Op::Remove(kind, key) => {
            index.apply(Change::Remove(kind, key.clone()));
            expected.drop(kind, &key);
        }
        Op::Reset(kind, mask) => {
            let all: Vec<Object> = expected
                .objects
                .values()
                .filter(|o| o.kind() == kind)
                .cloned()
                .collect();
            let (kept, lost): (Vec<_>, Vec<_>) = (0..)
                .zip(all)
                .partition(|(i, _): &(u32, Object)| mask >> (i % 8) & 1 == 1);
            for (_, object) in lost {
                expected.drop(kind, &object.key());
            }
            index.apply(Change::Reset(kind, kept.into_iter().map(|(_, o)| o).collect()));
        }
        Op::Reserve(wanted) => {
            index.publish();
            let claims: Vec<ReservedClaim> = wanted
                .into_iter()
                .map(|(c, results)| ReservedClaim {
                    claim: Key::new("ns", CLAIMS[c]),
                    uid: "u".into(),
                    results,
                })
                .collect();
            let reservation = Reservation {
                pod: Key::new("ns", "p"),
                pod_uid: "p".into(),
                node: "n0".into(),
                claims: claims.clone(),
                slots: vec![],
            };
            match index.reserve(reservation) {
                Ok(id) => drop(expected.held.insert(id.0, claims)),
                Err(_) => prop_assert!(index.publish().is_none(), "a refused reservation left something"),
            }
        }
        Op::Release(id) => {
            index.release(ReservationId(id));
            expected.held.remove(&id);
        }
        Op::Publish => drop(index.publish()),
    }
    Ok(())
}

/// Takes away what holds devices that are not published: what is remembered of those no index made anew can know.
fn without_vanished(index: &mut Index, expected: &mut Expected) {
    index.publish();
    let published: Vec<(Name, Name)> = {
        upsert(
            index,
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "look"}}),
        );
        let snapshot = index.publish().expect("one namespace more");
        index.apply(Change::Remove(Kind::Namespace, Key::new("", "look")));
        let pools = snapshot.pools.iter().flatten().map(|s| &s.pool);
        pools
            .flat_map(|p| p.by_name.keys().map(|d| (p.name.clone(), d.clone())))
            .collect()
    };
    let gone = |r: &DeviceResult| !published.contains(&(r.id.pool.clone(), r.id.device.clone()));
    let claims = expected.objects.values().filter_map(|o| match o {
        Object::Claim(c) if c.allocation.iter().flat_map(|a| &a.results).any(gone) => Some(c.key.clone()),
        _ => None,
    });
    for key in claims.collect::<Vec<_>>() {
        index.apply(Change::Remove(Kind::Claim, key.clone()));
        expected.drop(Kind::Claim, &key);
    }
    let held = expected
        .held
        .iter()
        .filter(|(_, claims)| claims.iter().flat_map(|c| &c.results).any(gone));
    for id in held.map(|(id, _)| *id).collect::<Vec<_>>() {
        index.release(ReservationId(id));
        expected.held.remove(&id);
    }
}

/// The whole content: an index publishes only what changed, so one more object makes it.
pub(super) fn content(index: &mut Index) -> String {
    let mark = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mark"}});
    upsert(index, &mark);
    index.apply(Change::Remove(Kind::Namespace, Key::new("", "mark")));
    index.publish().map(|s| dump(&s)).unwrap_or_default()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn incremental_equals_rebuilt(ops in prop::collection::vec(op(), 1..60)) {
        let (mut index, mut expected) = (index(), Expected::default());
        for op in ops {
            step(&mut index, &mut expected, op)?;
        }
        prop_assert_eq!(index.reservations(), expected.held.len());
        without_vanished(&mut index, &mut expected);
        prop_assert_eq!(content(&mut index), content(&mut expected.fresh()));
        // And nothing is left once all is released.
        for id in std::mem::take(&mut expected.held).into_keys() {
            index.release(ReservationId(id));
        }
        prop_assert_eq!(index.reservations(), 0);
        prop_assert_eq!(content(&mut index), content(&mut expected.fresh()));
    }

    /// However changes come in: no device is given whole to two reservations, or to one and a claim.
    #[test]
    fn a_device_is_reserved_once(ops in prop::collection::vec(op(), 1..60)) {
        let (mut index, mut expected) = (index(), Expected::default());
        for op in ops {
            let reserving = matches!(op, Op::Reserve(_));
            let before = expected.held.len();
            step(&mut index, &mut expected, op)?;
            if !reserving || expected.held.len() == before {
                continue;
            }
            let newest = expected.held.iter().next_back().map(|(id, c)| (*id, c.clone()));
            let Some((newest, claims)) = newest else { continue };
            if let Some(s) = index.publish().filter(|_| held_unseen(&expected.objects, "n0")) {
                let pools: Vec<_> = s.node_named("n0").into_iter().flat_map(|n| s.pools_of(n)).collect();
                let reached = |r: &DeviceResult| pools.iter().any(|(state, _)| state.pool.name == r.id.pool);
                let given = claims.iter().flat_map(|c| &c.results).find(|r| reached(r));
                prop_assert!(given.is_none(), "{given:?} was given beside a pod that may hold it");
            }
            let others = expected.held.iter().filter(|(id, _)| **id != newest).flat_map(|(_, c)| c);
            let mut holders: Vec<DeviceResult> = others.flat_map(|c| c.results.clone()).collect();
            for object in expected.objects.values() {
                if let Object::Claim(c) = object {
                    holders.extend(c.allocation.iter().flat_map(|a| a.results.clone()));
                }
            }
            for given in claims.iter().flat_map(|c| &c.results).filter(|r| !r.admin_access) {
                let clash = holders.iter().any(|h| {
                    h.id == given.id && !h.admin_access && (h.share_id.is_none() || given.share_id.is_none())
                });
                prop_assert!(!clash, "{} was given twice", given.id);
            }
        }
    }
}
