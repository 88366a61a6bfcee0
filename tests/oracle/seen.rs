//! The index alone: what its snapshot shows to the node is what the rules of the API say (see `world`). Needs no Go.

use std::collections::{BTreeMap, BTreeSet};

use wattlane::model::Quantity;
use wattlane::snapshot::{PoolHealth, Snapshot};

use super::amount::amount;
use super::case::NODE;
use super::generate;
use super::load::load;
use super::world::{Counter, World};

/// What of the cluster the node sees, in the checker's words.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    devices: BTreeSet<String>,
    broken: BTreeSet<String>,
    /// Of the devices it sees.
    exclusive: BTreeSet<String>,
    shared: BTreeMap<String, BTreeMap<String, i128>>,
    counters: BTreeMap<Counter, i128>,
}

fn by_rules(world: &World<'_>) -> Seen {
    let visible = |id: &&String| world.devices.get(*id).is_some_and(|f| f.visible);
    let pools: BTreeSet<_> = world
        .devices
        .values()
        .filter(|f| f.visible)
        .map(|f| f.pool.clone())
        .collect();
    let short = |sum: &BTreeMap<String, i128>| {
        let names = sum
            .iter()
            .map(|(name, v)| (name.rsplit('/').next().unwrap_or(name), *v));
        names.map(|(name, v)| (name.to_owned(), v)).collect()
    };
    // A sum of nothing is no sum.
    let shared = world
        .shared
        .iter()
        .filter(|(id, _)| visible(id))
        .map(|(id, sum)| (id.clone(), short(sum)));
    let counters = world.counters.iter().filter(|((pool, ..), _)| pools.contains(pool));
    Seen {
        devices: world
            .devices
            .iter()
            .filter(|(_, f)| f.visible)
            .map(|(id, _)| id.clone())
            .collect(),
        broken: world.broken.clone(),
        exclusive: world.exclusive.iter().filter(visible).cloned().collect(),
        shared: shared.collect(),
        counters: counters.map(|(k, v)| (k.clone(), *v)).collect(),
    }
}

fn whole(quantity: Quantity) -> i128 {
    amount(&quantity.to_string().into())
}

fn by_index(snapshot: &Snapshot) -> Seen {
    let mut seen = Seen::default();
    let node = snapshot.node_named(NODE).expect("the node was loaded");
    for (state, visible) in snapshot.pools_of(node) {
        let name = format!("{}/{}", state.pool.driver, state.pool.name);
        if *visible.health(&state.pool) != PoolHealth::Complete {
            seen.broken.insert(name);
            continue;
        }
        let mut any = false;
        for (i, device) in state.pool.devices.iter().enumerate().filter(|(i, _)| visible.sees(*i)) {
            any = true;
            let id = format!("{name}/{}", device.device.name);
            if state.taken.contains(i) {
                seen.exclusive.insert(id.clone());
            }
            if let Some(sums) = state.shared.get(&u32::try_from(i).expect("few devices")) {
                let short = |n: &wattlane::model::QualifiedName| n.name.to_string();
                seen.shared
                    .insert(id.clone(), sums.iter().map(|(n, q)| (short(n), whole(*q))).collect());
            }
            seen.devices.insert(id);
        }
        if any {
            for (set, left) in state.pool.counter_sets.iter().zip(&state.counters_left) {
                for ((counter, _), left) in set.counters.iter().zip(left) {
                    seen.counters
                        .insert((name.clone(), set.name.to_string(), counter.to_string()), whole(*left));
                }
            }
        }
    }
    seen
}

#[test]
fn the_index_shows_what_the_rules_say() {
    let (mut wrong, mut broken) = (vec![], 0);
    for seed in 0..2000 {
        let (_, case) = generate::case(seed);
        let (snapshot, _) = load(&case);
        let (rules, index) = (by_rules(&World::of(&case)), by_index(&snapshot));
        broken += rules.broken.len();
        if rules != index {
            wrong.push(format!("seed {seed}:\n  rules {rules:?}\n  index {index:?}"));
        }
    }
    assert!(broken > 0, "no broken pool was made");
    assert!(
        wrong.is_empty(),
        "{} of 2000:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(5)].join("\n")
    );
}
