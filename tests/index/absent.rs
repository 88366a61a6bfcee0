//! Devices that overlap, in any pools of a driver, published and gone: against a model that knows which piece of which
//! card each device is.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};
use wattlane::index::{Change, Index, Key, Kind, Reservation, ReservedClaim};

use super::support::*;

const POOLS: [&str; 2] = ["p0", "p1"];
const SLOTS: u32 = 4;

/// What a device is of which card. Its name says all of it, so one name is always the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Piece {
    card: usize,
    kind: Sort,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sort {
    Whole,
    /// The same card for passthrough.
    Twin,
    /// A partition that exists.
    Fixed(u8),
    /// The card, and parts that can be cut from it, with counters.
    Uncut,
    Cut(u8),
}

use Sort::*;

const PLAIN: [Sort; 4] = [Whole, Twin, Fixed(0), Fixed(1)];
const COUNTED: [Sort; 4] = [Uncut, Cut(1), Cut(2), Cut(3)];

impl Piece {
    fn name(self) -> String {
        format!("c{}-{:?}", self.card, self.kind)
            .to_lowercase()
            .replace(['(', ')'], "-")
            .trim_end_matches('-')
            .into()
    }

    fn slots(self) -> u32 {
        match self.kind {
            Uncut => SLOTS,
            Cut(n) => u32::from(n),
            _ => 0,
        }
    }

    /// The first card is told by its uuid, the second by its address.
    fn json(self) -> Value {
        let card = self.card;
        let (uuid, pci) = (format!("GPU-{card}"), format!("0000:0{card}:00.0"));
        let text = |t: &str| json!({"string": t});
        let part = matches!(self.kind, Fixed(_) | Cut(_));
        let attributes = match (part, card) {
            (false, _) => {
                json!({"type": text("gpu"), "uuid": text(&uuid), "resource.kubernetes.io/pciBusID": text(&pci)})
            }
            (true, 0) => json!({"type": text("mig"), "parentUUID": text(&uuid)}),
            (true, _) => json!({"type": text("amdgpu-partition"), "parentPciAddr": text(&pci)}),
        };
        let mut device = json!({"name": self.name(), "attributes": attributes});
        if self.slots() > 0 {
            device["consumesCounters"] =
                json!([{"counterSet": format!("s{card}"), "counters": {"slots": {"value": self.slots().to_string()}}}]);
        }
        device
    }
}

/// Of one pool each: whether both can be somebody's.
fn apart(a: (usize, Piece), b: (usize, Piece)) -> bool {
    let ((a_pool, a), (b_pool, b)) = (a, b);
    if a.card != b.card {
        return true;
    }
    match (a.kind, b.kind) {
        // Added up elsewhere.
        (Uncut | Cut(_), Uncut | Cut(_)) if a_pool == b_pool => a != b,
        (Fixed(i), Fixed(j)) => i != j || a_pool != b_pool,
        _ => false,
    }
}

#[derive(Clone, Debug)]
enum Op {
    /// Pool, with counters, which devices of each card, reversed.
    Publish(usize, bool, u8, bool),
    Unpublish(usize),
    Reserve(Vec<(usize, Piece)>),
    /// Whoever it is gives back.
    End(usize),
    Restart,
}

fn op() -> impl Strategy<Value = Op> {
    let piece = || {
        let all = PLAIN.into_iter().chain(COUNTED).collect::<Vec<_>>();
        (0..2usize, 0..2usize, prop::sample::select(all)).prop_map(|(pool, card, kind)| (pool, Piece { card, kind }))
    };
    prop_oneof![
        6 => (0..2usize, any::<bool>(), any::<u8>(), any::<bool>()).prop_map(|(p, c, m, r)| Op::Publish(p, c, m, r)),
        1 => (0..2usize).prop_map(Op::Unpublish),
        12 => prop::collection::vec(piece(), 1..3).prop_map(Op::Reserve),
        2 => (0..8usize).prop_map(Op::End),
        1 => Just(Op::Restart),
    ]
}

#[derive(Default)]
struct Model {
    /// By pool: its slice, and what is in it.
    published: BTreeMap<usize, (Value, Vec<Piece>)>,
    /// By claim.
    held: BTreeMap<String, (Value, Vec<(usize, Piece)>)>,
    /// Held devices that this index has never seen.
    unseen: Vec<(usize, Piece)>,
}

impl Model {
    fn all_held(&self) -> impl Iterator<Item = (usize, Piece)> + '_ {
        self.held.values().flat_map(|(_, pieces)| pieces.iter().copied())
    }

    fn lists(&self, pool: usize, piece: Piece) -> bool {
        self.published.get(&pool).is_some_and(|(_, all)| all.contains(&piece))
    }

    /// None: it depends on what the index could not see.
    fn could(&self, wanted: &[(usize, Piece)]) -> Option<bool> {
        let mut held: Vec<(usize, Piece)> = self.all_held().collect();
        let mut sure = true;
        for (pool, piece) in wanted {
            let Some((slice, all)) = self.published.get(pool) else {
                return Some(false);
            };
            if !all.contains(piece) {
                return Some(false);
            }
            let cut = slice["spec"].get("sharedCounters").is_some()
                || all.iter().any(|p| matches!(p.kind, Fixed(_) | Cut(_)));
            if cut && self.unseen.iter().any(|(p, _)| p == pool) {
                return Some(false);
            }
            for other in &held {
                if !apart((*pool, *piece), *other) {
                    match self.unseen.contains(other) {
                        true => sure = false,
                        false => return Some(false),
                    }
                }
            }
            let drawn = held.iter().filter(|(p, o)| p == pool && o.card == piece.card);
            if piece.slots() > 0 && drawn.map(|(_, o)| o.slots()).sum::<u32>() + piece.slots() > SLOTS {
                return Some(false);
            }
            held.push((*pool, *piece));
        }
        sure.then_some(true)
    }

    fn see(&mut self) {
        let published = &self.published;
        self.unseen
            .retain(|(pool, piece)| !published.get(pool).is_some_and(|(_, all)| all.contains(piece)));
    }
}

fn fresh(model: &Model) -> Index {
    let mut index = index();
    upsert(&mut index, &node("n0", json!({})));
    model.held.values().for_each(|(claim, _)| upsert(&mut index, claim));
    model
        .published
        .values()
        .for_each(|(slice, _)| upsert(&mut index, slice));
    index.publish();
    index
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn what_overlaps_a_held_device_is_not_given_and_all_else_is(ops in prop::collection::vec(op(), 1..50)) {
        let mut model = Model::default();
        let mut index = fresh(&model);
        let mut made = 0;
        for op in ops {
            match op {
                Op::Publish(pool, counted, mask, reversed) => {
                    made += 1;
                    let menu = if counted { COUNTED } else { PLAIN };
                    let all = (0..2usize).flat_map(|card| menu.map(|kind| Piece { card, kind }));
                    let mut all: Vec<Piece> = (0..8).zip(all).filter(|(bit, _)| mask >> bit & 1 == 1).map(|(_, p)| p).collect();
                    if reversed {
                        all.reverse();
                    }
                    let mut scope = json!({"nodeName": "n0"});
                    if counted {
                        let set = |card| json!({"name": format!("s{card}"), "counters": {"slots": {"value": SLOTS.to_string()}}});
                        scope["sharedCounters"] = json!([set(0), set(1)]);
                    }
                    let devices = all.iter().map(|p| p.json()).collect();
                    let slice = slice(POOLS[pool], POOLS[pool], made, 1, scope, devices);
                    upsert(&mut index, &slice);
                    model.published.insert(pool, (slice, all));
                    model.see();
                    index.publish();
                }
                Op::Unpublish(pool) => {
                    model.published.remove(&pool);
                    index.apply(Change::Remove(Kind::Slice, Key::new("", POOLS[pool])));
                    index.publish();
                }
                Op::Reserve(pieces) => {
                    made += 1;
                    let name = format!("c{made}");
                    upsert(&mut index, &claim(&name, "u", 1, json!([])));
                    let results: Vec<_> = pieces.iter().map(|(pool, p)| result(POOLS[*pool], &p.name())).collect();
                    let reserved = index.reserve(Reservation {
                        pod: Key::new("ns", name.as_str()),
                        pod_uid: name.as_str().into(),
                        node: "n0".into(),
                        claims: vec![ReservedClaim { claim: Key::new("ns", name.as_str()), uid: "u".into(), results: results.clone() }],
                        slots: vec![],
                    });
                    if let Some(could) = model.could(&pieces) {
                        prop_assert_eq!(reserved.is_ok(), could, "{:?} beside {:?}: {:?}", pieces, model.all_held().collect::<Vec<_>>(), reserved);
                    }
                    if reserved.is_ok() {
                        let written = claim(&name, "u", 2, results_json(&results));
                        upsert(&mut index, &written);
                        model.held.insert(name, (written, pieces));
                    }
                }
                Op::End(n) => {
                    let Some(name) = model.held.keys().nth(n).cloned() else { continue };
                    let ended = model.held.remove(&name).map(|(_, pieces)| pieces).unwrap_or_default();
                    model.unseen.retain(|piece| !ended.contains(piece));
                    index.apply(Change::Remove(Kind::Claim, Key::new("ns", name.as_str())));
                }
                Op::Restart => {
                    model.unseen = model.all_held().filter(|(pool, piece)| !model.lists(*pool, *piece)).collect();
                    index = fresh(&model);
                }
            }
        }
        // What is taken comes back when all have ended.
        for name in model.held.keys() {
            index.apply(Change::Remove(Kind::Claim, Key::new("ns", name.as_str())));
        }
        upsert(&mut index, &node("n1", json!({})));
        let snapshot = index.publish().expect("one node more");
        for state in snapshot.pools.iter().flatten() {
            let full = state.pool.counter_sets.iter().map(|s| s.counters.iter().map(|(_, q)| *q).collect::<Vec<_>>());
            prop_assert!(state.taken.is_empty() && full.eq(state.counters_left.iter().cloned()));
        }
        let closed = snapshot.nodes().flat_map(|(_, n)| &n.pools).find_map(|seen| seen.health.clone());
        prop_assert_eq!(closed, None);
    }
}

/// A pool under another name: what is held under the old one is taken in the new.
#[test]
fn a_pool_that_is_renamed_keeps_what_is_held() {
    let mut index = index();
    upsert(&mut index, &node("n0", json!({})));
    let card = |card| Piece { card, kind: Whole }.json();
    let devices = json!([card(0), card(1)]);
    let scope = json!({"nodeName": "n0"});
    upsert(&mut index, &slice("old", "p0", 1, 1, scope.clone(), devices.clone()));
    let held = result("p0", &Piece { card: 0, kind: Whole }.name());
    upsert(
        &mut index,
        &claim("c", "u", 1, results_json(std::slice::from_ref(&held))),
    );
    index.publish();
    index.apply(Change::Remove(Kind::Slice, Key::new("", "old")));
    index.publish();
    upsert(&mut index, &slice("new", "p1", 1, 1, scope, devices));
    let snapshot = index.publish().expect("a pool more");
    assert_eq!(taken(&snapshot, "p1"), [Piece { card: 0, kind: Whole }.name()]);
    index.apply(Change::Remove(Kind::Claim, Key::new("ns", "c")));
    index.take_loosened();
    let snapshot = index.publish().expect("it is free");
    assert!(taken(&snapshot, "p1").is_empty() && index.take_loosened());
}
