//! Where the in-tree allocator (v0.36.3) is wrong or leaves it to chance, and wattlane decides otherwise. Each entry
//! is as narrow as it can be made, and has a case in cases/ under its name.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::case::{Case, items, requests, text};
use super::check::Violation;
use super::upstream::Answer;
use super::world::{World, counted_as, id, reaches};

/// Upstream's answer breaks a rule of the API.
pub(crate) fn invalid(case: &Case, violations: &[Violation]) -> Option<&'static str> {
    let only = |rule: &str| violations.iter().all(|v| v.starts_with(rule));
    if only("distinct:") {
        // constraint.go keeps one value a request name: the second device of a request overwrites the first.
        return Some("distinct-attribute-by-request");
    }
    if violations.iter().any(|v| v.starts_with("device:")) && obsolete_generation(case) {
        // pools_experimental.go takes the node's own slices for the whole pool when their number is right, and
        // does not look for a newer generation then.
        return Some("obsolete-generation");
    }
    if only("counters:") && one_pool_name_twice(case) {
        return Some("counters-by-pool-name");
    }
    if only("capacity:")
        && held(case, |result, device| {
            let consumed = result["consumedCapacity"].as_object();
            consumed.is_some_and(|c| c.keys().any(|name| counted_as(name, result, Some(device)) != *name))
        })
    {
        // Held under `memory`, published as `gpu.example.com/memory`, or the reverse: names are compared as text, and
        // what is held is given again. A request must name the capacity as the slice does, to both; what is held counts.
        return Some("held-under-another-spelling");
    }
    if violations
        .iter()
        .all(|v| v.starts_with("double:") || v.starts_with("count:"))
        && held(case, |result, device| {
            !result["shareID"].is_null() && device["allowMultipleAllocations"] != true
        })
    {
        // A share of a device that is not shared any more keeps others off by its capacity alone: without any the device
        // is given whole, and with some it is left out of All.
        return Some("share-of-a-whole-device");
    }
    None
}

/// Upstream has a valid answer as far as the slices say, and wattlane refuses.
pub(crate) fn refused(case: &Case) -> Option<&'static str> {
    let world = World::of(case);
    let cut: BTreeSet<String> = case
        .list("slices")
        .iter()
        .filter(|slice| slice["spec"]["sharedCounters"].is_array())
        .map(|slice| {
            format!(
                "{}/{}/",
                text(&slice["spec"]["driver"]),
                text(&slice["spec"]["pool"]["name"])
            )
        })
        .collect();
    let results = case.list("allocated").iter();
    let mut results = results.flat_map(|claim| items(&claim["status"]["allocation"]["devices"]["results"]));
    // A device is held that is not in its pool, whose cards can be cut: nobody can say what of them it takes, and the pool is
    // closed until its claim goes. Upstream counts it as nothing.
    let unseen = results.any(|r| !world.devices.contains_key(&id(r)) && cut.iter().any(|pool| id(r).starts_with(pool)));
    unseen.then_some("held-and-never-seen")
}

/// A device is held in a certain way: (result of another claim, device).
fn held(case: &Case, way: impl Fn(&Value, &Value) -> bool) -> bool {
    let world = World::of(case);
    let results = case.list("allocated").iter();
    let mut results = results.flat_map(|claim| items(&claim["status"]["allocation"]["devices"]["results"]));
    results.any(|r| r["adminAccess"] != true && world.devices.get(&id(r)).is_some_and(|f| way(r, f.device)))
}

/// Upstream says no, wattlane has a valid answer.
pub(crate) fn accepted(case: &Case, answer: &Answer) -> Option<&'static str> {
    let error = answer.error.as_deref().unwrap_or("");
    if error.contains("because a claim constraint would not be satisfied") {
        // A request for All aborts the whole search at the first device that breaks a constraint, although
        // another choice for an earlier request, or the next alternative, may satisfy it.
        return Some("all-aborts-the-search");
    }
    if error.contains("CEL runtime error") && selector_fails_out_of_reach(case, answer) {
        // With perDeviceNodeSelection, selectors are evaluated before it is asked whether the node reaches the device.
        return Some("selector-error-out-of-reach");
    }
    if error.contains("CEL runtime error") && distinct_over_several(case) {
        // Upstream's distinctAttribute lets the devices of one request be alike (as above), takes more of them than it
        // may, and so comes to alternatives and devices a search that keeps the rule never comes to.
        return Some("distinct-attribute-by-request");
    }
    if admin_overlaps(case, answer) {
        // Devices with admin access are marked as taken, and consume counters, for the rest of the same pod.
        return Some("admin-access-consumes");
    }
    if one_pool_name_twice(case) {
        return Some("counters-by-pool-name");
    }
    if overdrawn(case) {
        // A counter below zero stops every device of the pool that consumes any counter at all.
        return Some("overdrawn-counter-stops-the-pool");
    }
    None
}

/// A selector fails on a device that the node does not reach, in a slice of which it reaches others.
fn selector_fails_out_of_reach(case: &Case, answer: &Answer) -> bool {
    let world = World::of(case);
    let beside = |id: &String| {
        let device = world.devices.get(id);
        device.is_some_and(|f| !f.visible && f.slice["spec"]["perDeviceNodeSelection"] == true)
    };
    let mut rows = answer.matches.values();
    rows.any(|row| row.iter().any(|(id, m)| m.is_string() && beside(id)))
}

/// A claim asks that devices of one request be distinct, and for more than one.
fn distinct_over_several(case: &Case) -> bool {
    case.list("claims").iter().any(|claim| {
        let constraints = claim["spec"]["devices"]["constraints"].as_array();
        let distinct = constraints.is_some_and(|list| list.iter().any(|c| !c["distinctAttribute"].is_null()));
        distinct
            && requests(claim)
                .iter()
                .any(|(_, ask, _)| ask["count"].as_u64().is_some_and(|n| n > 1))
    })
}

/// A pool whose newest generation is only on other nodes.
fn obsolete_generation(case: &Case) -> bool {
    let mut newest: BTreeMap<String, (i64, bool)> = BTreeMap::new();
    for slice in case.list("slices") {
        let spec = &slice["spec"];
        let generation = spec["pool"]["generation"].as_i64().unwrap_or(0);
        let reached = reaches(spec, &case.doc["node"]);
        let entry = newest.entry(format!("{}/{}", text(&spec["driver"]), text(&spec["pool"]["name"])));
        let (most, here) = entry.or_insert((generation, false));
        if generation > *most {
            (*most, *here) = (generation, false);
        }
        *here |= generation == *most && reached;
    }
    newest.values().any(|(_, here)| !here)
}

/// A device that a request with admin access may get consumes counters, is shared already, or matches another request
/// of the pod too.
fn admin_overlaps(case: &Case, answer: &Answer) -> bool {
    let world = World::of(case);
    let mut rows = vec![];
    for claim in case.list("claims") {
        for (name, ask, _) in requests(claim) {
            let row = answer
                .matches
                .get(&format!("{}/{name}", text(&claim["metadata"]["name"])));
            rows.push((ask["adminAccess"] == true, row));
        }
    }
    let matching =
        |row: Option<&BTreeMap<String, Value>>, id: &String| row.and_then(|r| r.get(id)) == Some(&json!(true));
    world.devices.iter().filter(|(_, f)| f.visible).any(|(id, f)| {
        let wanted = rows.iter().filter(|(_, row)| matching(*row, id)).count();
        let by_admin = rows.iter().any(|(admin, row)| *admin && matching(*row, id));
        by_admin && (wanted > 1 || f.device["consumesCounters"].is_array() || world.shared.contains_key(id))
    })
}

/// Two drivers with a pool of one name, of which one has counters.
fn one_pool_name_twice(case: &Case) -> bool {
    let mut drivers: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut counters = BTreeSet::new();
    for slice in case.list("slices") {
        let name = text(&slice["spec"]["pool"]["name"]);
        drivers.entry(name).or_default().insert(text(&slice["spec"]["driver"]));
        if items(&slice["spec"]["devices"])
            .iter()
            .any(|d| !items(&d["consumesCounters"]).is_empty())
        {
            counters.insert(name);
        }
    }
    counters.iter().any(|name| drivers[name].len() > 1)
}

fn overdrawn(case: &Case) -> bool {
    World::of(case).counters.values().any(|left| *left < 0)
}
