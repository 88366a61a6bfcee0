//! Slots of shared claims in the index, against a count made anew: whatever comes in whatever order, never more than
//! there are, and nothing left when all have gone.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use wattlane::index::{Change, HoldId, Index, Key, Kind, Reservation, ReservationId, WantedSlot};

use super::support::*;

#[path = "../shared/splitmix.rs"]
mod splitmix;
use splitmix::SplitMix;

const NAME: &str = "wl-share-chat-x3-0123456789";
const SLOTS: usize = 3;
const PODS: u64 = 8;

fn shared(version: u64, users: &BTreeSet<String>) -> Value {
    let mut claim = claim(NAME, "u", version, json!([]));
    if !users.is_empty() {
        let result = results_json(&[result("n1", "d0")]);
        let users: Vec<_> = users
            .iter()
            .map(|u| json!({"resource": "pods", "name": u, "uid": format!("uid-{u}")}))
            .collect();
        claim["status"] = json!({"allocation": {"devices": {"results": result}}, "reservedFor": users});
    }
    claim
}

fn pod(name: &str, node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}"),
            "creationTimestamp": format!("2026-01-01T00:00:0{}Z", &name[1..])},
        "spec": {"nodeName": node, "containers": [], "resourceClaims": [{"name": "g", "resourceClaimName": NAME}]}})
}

fn slot(pod: &str) -> Reservation {
    Reservation {
        pod: Key::new("ns", pod),
        pod_uid: format!("uid-{pod}").into(),
        node: "n1".into(),
        claims: vec![],
        slots: vec![WantedSlot {
            claim: Key::new("ns", NAME),
            uid: "u".into(),
            most: SLOTS,
        }],
    }
}

fn world() -> Index {
    let mut index = index();
    upsert(&mut index, &node("n1", json!({})));
    upsert(
        &mut index,
        &slice("s", "n1", 1, 1, json!({"nodeName": "n1"}), plain(&["d0"])),
    );
    upsert(&mut index, &shared(1, &BTreeSet::new()));
    index
}

/// Who has a slot, and by a reservation or hold alone.
fn seen(index: &mut Index) -> (BTreeSet<String>, usize, Vec<String>) {
    // Only what changed is published.
    upsert(index, &node("mark", json!({})));
    let snapshot = index.publish().expect("a change");
    index.apply(Change::Remove(Kind::Node, Key::new("", "mark")));
    let key = Key::new("ns", NAME);
    let sharers = snapshot.sharers.get(&key);
    let seats = sharers.map_or(0, |s| s.seats.len());
    let queue = sharers.map_or_else(Vec::new, |s| s.queue.iter().map(|w| w.pod.to_string()).collect());
    let users = snapshot.claim(&key).map(|c| snapshot.users(c));
    let users = users.into_iter().flatten().map(|(_, name)| name.to_string());
    (users.collect(), seats, queue)
}

/// Who has a slot that no hold is the only reason for.
fn firm(index: &mut Index) -> BTreeSet<String> {
    upsert(index, &node("mark", json!({})));
    let snapshot = index.publish().expect("a change");
    index.apply(Change::Remove(Kind::Node, Key::new("", "mark")));
    let key = Key::new("ns", NAME);
    let shown = snapshot.claim(&key).into_iter().flat_map(|c| &c.reserved_for);
    let seats = snapshot.sharers.get(&key).into_iter().flat_map(|s| &s.seats);
    let seats = seats.filter(|s| s.hold.is_none()).map(|s| s.pod.to_string());
    shown.map(|c| c.name.to_string()).chain(seats).collect()
}

/// The API, and what the index has not been told of it yet.
#[derive(Default)]
struct Api {
    version: u64,
    users: BTreeSet<String>,
    pods: BTreeMap<String, bool>,
    late: Vec<Change>,
}

impl Api {
    fn tell_claim(&mut self) {
        self.version += 1;
        self.late
            .push(Change::Upsert(object(&shared(self.version, &self.users))));
    }
}

fn name(n: u64) -> String {
    format!("p{n}")
}

fn play(seed: u64) {
    let mut random = SplitMix::new(seed);
    let mut index = world();
    let mut api = Api {
        version: 1,
        ..Api::default()
    };
    let mut reserved: BTreeMap<String, ReservationId> = BTreeMap::new();
    let mut held: BTreeMap<String, HoldId> = BTreeMap::new();
    for _ in 0..120 {
        let who = name(random.below(PODS));
        match random.below(9) {
            0 if !api.pods.contains_key(&who) => {
                api.pods.insert(who.clone(), false);
                api.late.push(Change::Upsert(object(&pod(&who, ""))));
            }
            1 => {
                if let Ok(id) = index.hold(slot(&who)) {
                    held.insert(who, id);
                }
            }
            2 => held.remove(&who).into_iter().for_each(|id| index.drop_hold(id)),
            3 if api.pods.get(&who) == Some(&false) && !reserved.contains_key(&who) => {
                if let Ok(id) = index.reserve(slot(&who)) {
                    reserved.insert(who.clone(), id);
                    let firm = firm(&mut index);
                    assert!(firm.len() <= SLOTS, "seed {seed}: {who} makes it {firm:?}");
                }
            }
            // The write of a bind, checked against the API as `Cluster::reserve` does; then the Binding.
            4 => {
                if let Some(id) = reserved.remove(&who) {
                    let alive = api.pods.get(&who) == Some(&false);
                    if alive && (api.users.contains(&who) || api.users.len() < SLOTS) {
                        api.users.insert(who.clone());
                        api.tell_claim();
                        api.pods.insert(who.clone(), true);
                        api.late.push(Change::Upsert(object(&pod(&who, "n1"))));
                    } else {
                        index.release(id);
                    }
                }
            }
            5 => {
                if api.pods.remove(&who).is_some() {
                    api.late.push(Change::Remove(Kind::Pod, Key::new("ns", who.as_str())));
                    if let Some(id) = reserved.remove(&who) {
                        index.release(id);
                    }
                }
            }
            // The claim controller.
            6 => {
                let before = api.users.len();
                let pods = &api.pods;
                api.users.retain(|u| pods.contains_key(u));
                if api.users.len() != before {
                    api.tell_claim();
                }
            }
            _ => {
                let n = random.below(api.late.len() as u64 + 1) as usize;
                api.late.drain(..n).for_each(|change| index.apply(change));
            }
        }
        assert!(api.users.len() <= SLOTS, "seed {seed}: {:?}", api.users);
        let (_, _, queue) = seen(&mut index);
        assert!(queue.is_sorted(), "seed {seed}: {queue:?}");
    }
    // All is told, all have gone.
    for (_, id) in std::mem::take(&mut reserved) {
        index.release(id);
    }
    for who in std::mem::take(&mut api.pods).into_keys() {
        api.late.push(Change::Remove(Kind::Pod, Key::new("ns", who.as_str())));
    }
    api.users.clear();
    api.tell_claim();
    api.late.drain(..).for_each(|change| index.apply(change));
    index.expire_holds(HoldId(u64::MAX));
    assert_eq!(seen(&mut index), (BTreeSet::new(), 0, vec![]), "seed {seed}");
    assert_eq!((index.reservations(), index.holds()), (0, 0), "seed {seed}");
}

#[test]
fn slots_are_counted_through_everything_and_none_is_lost() {
    (0..150).for_each(play);
}

#[test]
fn reservations_fill_the_slots_and_end_as_the_claim_shows_them() {
    let mut index = world();
    for n in 0..PODS {
        upsert(&mut index, &pod(&name(n), ""));
    }
    let taken: Vec<_> = (0..3).map(|n| index.reserve(slot(&name(n))).expect("free")).collect();
    let no = index.reserve(slot("p3")).expect_err("full").0.to_string();
    assert_eq!(no, format!("all 3 slots of claim ns/{NAME} are taken"));
    assert!(index.hold(slot("p3")).is_err(), "nothing to hold either");
    // One shows, one fails, one stays.
    upsert(&mut index, &shared(2, &["p0".to_owned()].into()));
    index.release(taken[1]);
    let (users, seats, _) = seen(&mut index);
    assert_eq!((users, seats), (["p0".to_owned(), "p2".to_owned()].into(), 1));
    index.reserve(slot("p3")).expect("a slot is free again");
    // Its pod is gone before anything was written: no leak.
    index.apply(Change::Remove(Kind::Pod, Key::new("ns", "p3")));
    assert_eq!(seen(&mut index).1, 1);
    // The claim is gone, or another has its name.
    let mut other = shared(9, &BTreeSet::new());
    other["metadata"]["uid"] = json!("other");
    upsert(&mut index, &other);
    assert_eq!((seen(&mut index).1, index.reservations()), (0, 0));
}

#[test]
fn holds_count_for_others_and_yield_to_a_bind() {
    let mut index = world();
    for n in 0..3 {
        index.hold(slot(&name(n))).expect("free");
    }
    assert!(index.hold(slot("p3")).is_err());
    assert_eq!(seen(&mut index).1, 3);
    // Who binds is before those who only hold; its own hold becomes the reservation.
    index.reserve(slot("p3")).expect("holds give nothing");
    index.reserve(slot("p0")).expect("its own");
    index.reserve(slot("p1")).expect("the last");
    assert!(index.reserve(slot("p2")).is_err(), "three are reserved");
}

/// A pod with two shared claims goes between the writes to them: neither slot is left.
#[test]
fn the_slot_that_was_not_written_goes_with_the_pod() {
    let mut index = world();
    let other = "wl-share-other-x3-0123456789";
    upsert(&mut index, &claim(other, "v", 1, json!([])));
    let mut both = pod("p1", "");
    both["spec"]["resourceClaims"]
        .as_array_mut()
        .expect("a list")
        .push(json!({"name": "h", "resourceClaimName": other}));
    upsert(&mut index, &both);
    let mut wanted = slot("p1");
    let second = WantedSlot {
        claim: Key::new("ns", other),
        uid: "v".into(),
        ..wanted.slots[0].clone()
    };
    wanted.slots.push(second);
    index.reserve(wanted).expect("there are slots");
    upsert(&mut index, &shared(2, &["p1".to_owned()].into()));
    index.apply(Change::Remove(Kind::Pod, Key::new("ns", "p1")));
    let snapshot = index.publish().expect("a change");
    let seats = snapshot
        .sharers
        .get(&Key::new("ns", other))
        .map_or(0, |s| s.seats.len());
    assert_eq!((seats, index.reservations()), (0, 0));
}
