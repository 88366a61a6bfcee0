//! Is this answer valid? Judges an allocation, ours or upstream's, by the rules of the API, sharing no code with
//! wattlane's placement. Selectors are taken from the oracle, which evaluates them with the real CEL.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::amount::amount;
use super::case::{Case, items, requests, text};
use super::upstream::Matches;
use super::world::{Found, World, consumes, id};

/// Which rule an answer breaks; the first word is the rule, for counting.
pub(crate) type Violation = String;

/// `allocations`: one AllocationResult a claim, in order. Empty: valid.
pub(crate) fn violations(case: &Case, matches: &Matches, allocations: &[Value]) -> Vec<Violation> {
    violations_in(&World::of(case), case, matches, allocations)
}

/// The same, where many answers to one case are judged.
pub(crate) fn violations_in(
    world: &World<'_>,
    case: &Case,
    matches: &Matches,
    allocations: &[Value],
) -> Vec<Violation> {
    let mut found = vec![];
    let claims = case.list("claims");
    if allocations.len() != claims.len() {
        found.push(format!(
            "claims: {} of {} have an allocation",
            allocations.len(),
            claims.len()
        ));
        return found;
    }
    let mut given = Given::default();
    for (claim, allocation) in claims.iter().zip(allocations) {
        counts(world, matches, claim, allocation, &mut found);
        constraints(world, claim, allocation, &mut found);
        super::check_rest::config(case, claim, allocation, &mut found);
        super::check_rest::node_selector(world, allocation, &mut found);
        let mut in_claim = BTreeSet::new();
        for result in results(allocation) {
            device(world, matches, claim, result, &mut in_claim, &mut given, &mut found);
        }
    }
    given.judge(world, &mut found);
    found
}

pub(crate) fn results(allocation: &Value) -> &[Value] {
    items(&allocation["devices"]["results"])
}

pub(crate) fn ask_of<'a>(claim: &'a Value, request: &str) -> Option<&'a Value> {
    requests(claim)
        .into_iter()
        .find(|(name, ..)| name == request)
        .map(|(_, ask, _)| ask)
}

fn counts(world: &World<'_>, matches: &Matches, claim: &Value, allocation: &Value, found: &mut Vec<Violation>) {
    if results(allocation).len() > 32 {
        found.push("limit: more than 32 results".into());
    }
    let names: BTreeSet<_> = results(allocation).iter().map(|r| text(&r["request"])).collect();
    for name in &names {
        if ask_of(claim, name).is_none() {
            found.push(format!("request: {name} is not asked for"));
        }
    }
    for request in items(&claim["spec"]["devices"]["requests"]) {
        let name = text(&request["name"]);
        let chosen: Vec<_> = requests(claim)
            .into_iter()
            .filter(|(full, _, of)| *of == name && names.contains(full.as_str()))
            .collect();
        let [(full, ask, _)] = chosen.as_slice() else {
            found.push(format!("request: {name} has results of {} alternatives", chosen.len()));
            continue;
        };
        let got: BTreeSet<_> = results(allocation)
            .iter()
            .filter(|r| r["request"] == **full)
            .map(id)
            .collect();
        let number = results(allocation).iter().filter(|r| r["request"] == **full).count();
        if ask["allocationMode"] == "All" {
            let all = all_of(world, matches, claim, full, ask);
            if got != all || got.len() != number {
                found.push(format!("count: {full} wants all of {all:?}, has {got:?}"));
            }
            if !world.broken.is_empty() {
                found.push(format!("broken: All with {:?}", world.broken));
            }
        } else if ask["count"] != number || got.len() != number {
            found.push(format!(
                "count: {full} wants {}, has {number}, {} different",
                ask["count"],
                got.len()
            ));
        }
    }
}

/// Every device the node sees that matches, and is large enough when empty of this pod's own shares.
pub(crate) fn all_of(world: &World<'_>, matches: &Matches, claim: &Value, full: &str, ask: &Value) -> BTreeSet<String> {
    let row = &matches[&format!("{}/{full}", text(&claim["metadata"]["name"]))];
    let enough = |id: &String, f: &Found<'_>| {
        let used = world.shared.get(id);
        let share = consumed(f.device, ask);
        share.is_some_and(|share| {
            share.iter().all(|(name, v)| {
                let before = used.and_then(|u| u.get(name)).copied().unwrap_or(0);
                before + v <= amount(&f.device["capacity"][name]["value"])
            })
        })
    };
    let all = world
        .devices
        .iter()
        .filter(|(id, f)| f.visible && row.get(*id) == Some(&json!(true)) && enough(id, f));
    all.map(|(id, _)| id.clone()).collect()
}

/// What pods get of this pod's answer, summed over its claims.
#[derive(Default)]
struct Given<'a> {
    /// Whole devices that are consumed.
    whole: BTreeSet<String>,
    /// Shares by device and capacity.
    shares: BTreeMap<String, BTreeMap<String, i128>>,
    devices: BTreeMap<String, &'a Found<'a>>,
}

impl Given<'_> {
    fn judge(&self, world: &World<'_>, found: &mut Vec<Violation>) {
        for (id, shares) in &self.shares {
            for (name, sum) in shares {
                let before = world.shared.get(id).and_then(|u| u.get(name)).copied().unwrap_or(0);
                if before + sum > amount(&world.devices[id].device["capacity"][name]["value"]) {
                    found.push(format!("capacity: {name} of {id}: {before} + {sum}"));
                }
            }
        }
        let mut left = world.counters.clone();
        for (id, device) in &self.devices {
            if !world.shared.contains_key(id) {
                for (counter, value) in consumes(device) {
                    let left = left.entry(counter.clone()).or_default();
                    *left -= value;
                    if *left < 0 {
                        found.push(format!("counters: {counter:?} is {left}"));
                    }
                }
            }
        }
    }
}

fn device<'a>(
    world: &'a World<'a>,
    matches: &Matches,
    claim: &Value,
    result: &Value,
    in_claim: &mut BTreeSet<(String, String)>,
    given: &mut Given<'a>,
    found: &mut Vec<Violation>,
) {
    let (id, request) = (id(result), text(&result["request"]));
    let (Some(f), Some(ask)) = (world.devices.get(&id).filter(|f| f.visible), ask_of(claim, request)) else {
        found.push(format!("device: {id} is not there for this node"));
        return;
    };
    let row = matches.get(&format!("{}/{request}", text(&claim["metadata"]["name"])));
    if row.and_then(|row| row.get(&id)) != Some(&json!(true)) {
        found.push(format!("selector: {id} does not match {request}"));
    }
    let admin = ask["adminAccess"] == true;
    if admin != (result["adminAccess"] == true) {
        found.push(format!("admin: {id} does not say what {request} says"));
    }
    for waits in ["bindingConditions", "bindingFailureConditions"] {
        if result[waits] != f.device[waits] {
            found.push(format!("binding: {id} does not say the {waits} of its device"));
        }
    }
    let shareable = f.device["allowMultipleAllocations"] == true;
    if shareable == result["shareID"].is_null() {
        found.push(format!(
            "share: {id} must have a shareID if and only if it can be shared"
        ));
    }
    // A claim holds a device once; a shared one once a request.
    let scope = if shareable { request.to_owned() } else { String::new() };
    if !in_claim.insert((id.clone(), scope)) {
        found.push(format!("double: {id} twice in one claim"));
    }
    super::check_rest::taints(f, ask, result, found);
    match consumed(f.device, ask) {
        None => found.push(format!("capacity: {id} cannot give what {request} asks for")),
        Some(share) if shareable => {
            let said = result["consumedCapacity"].as_object();
            let said: BTreeMap<_, _> = said
                .into_iter()
                .flatten()
                .map(|(k, v)| (k.clone(), amount(v)))
                .collect();
            if said != share {
                found.push(format!("consumed: {id} says {said:?}, should be {share:?}"));
            }
            for (name, wanted) in &share {
                if *wanted > amount(&f.device["capacity"][name]["value"]) {
                    found.push(format!("capacity: {name} of {id} is less than {wanted}"));
                }
            }
            if !admin {
                let sum = given.shares.entry(id.clone()).or_default();
                share
                    .into_iter()
                    .for_each(|(name, v)| *sum.entry(name).or_default() += v);
            }
        }
        Some(share) => {
            for (name, wanted) in share {
                if wanted > amount(&f.device["capacity"][&name]["value"]) {
                    found.push(format!("capacity: {name} of {id} is less than {wanted}"));
                }
            }
        }
    }
    if admin {
        return;
    }
    if world.exclusive.contains(&id) || (!shareable && !given.whole.insert(id.clone())) {
        found.push(format!("double: {id} is taken"));
    }
    given.devices.insert(id, f);
}

/// What a request takes of each capacity: its wish, rounded up by the policy; without a wish the default, else all.
/// None: a capacity that is not there, or a value the policy does not allow.
fn consumed(device: &Value, ask: &Value) -> Option<BTreeMap<String, i128>> {
    let wishes = ask["capacity"]["requests"].as_object();
    let capacities = device["capacity"].as_object();
    for (name, _) in wishes.into_iter().flatten() {
        capacities?.get(name)?;
    }
    let mut all = BTreeMap::new();
    for (name, capacity) in capacities.into_iter().flatten() {
        let policy = &capacity["requestPolicy"];
        let wish = wishes.and_then(|w| w.get(name)).map(amount);
        let value = match (wish, policy["default"].is_null()) {
            (None, true) => amount(&capacity["value"]),
            (None, false) => amount(&policy["default"]),
            (Some(wish), _) => round_up(wish, policy)?,
        };
        all.insert(name.clone(), value);
    }
    Some(all)
}

fn round_up(wish: i128, policy: &Value) -> Option<i128> {
    let values = items(&policy["validValues"]);
    if !values.is_empty() {
        return values.iter().map(amount).filter(|v| *v >= wish).min();
    }
    let range = &policy["validRange"];
    if !range.is_object() {
        return Some(wish);
    }
    let min = amount(&range["min"]);
    let mut value = wish.max(min);
    if !range["step"].is_null() {
        let step = amount(&range["step"]);
        value = min + (value - min).div_euclid(step) * step + if (value - min) % step == 0 { 0 } else { step };
    }
    (range["max"].is_null() || value <= amount(&range["max"])).then_some(value)
}

fn constraints(world: &World<'_>, claim: &Value, allocation: &Value, found: &mut Vec<Violation>) {
    for constraint in items(&claim["spec"]["devices"]["constraints"]) {
        let named = items(&constraint["requests"]);
        let applies = |request: &str| {
            let parent = request.split('/').next().unwrap_or(request);
            named.is_empty() || named.iter().any(|n| n == request || n == parent)
        };
        let (attribute, distinct) = match constraint["matchAttribute"].as_str() {
            Some(attribute) => (attribute, false),
            None => (text(&constraint["distinctAttribute"]), true),
        };
        let affected = results(allocation).iter().filter(|r| applies(text(&r["request"])));
        let sets: Option<Vec<_>> = affected
            .map(|r| super::check_rest::values(world, r, attribute))
            .collect();
        let Some(sets) = sets else {
            found.push(format!("constraint: a device has no {attribute}"));
            continue;
        };
        if distinct {
            let apart = sets
                .iter()
                .enumerate()
                .all(|(i, a)| sets[i + 1..].iter().all(|b| a.is_disjoint(b)));
            if !apart {
                found.push(format!("distinct: {attribute} repeats: {sets:?}"));
            }
        } else if let Some((first, rest)) = sets.split_first() {
            let common = rest.iter().fold(first.clone(), |a, b| &a & b);
            if common.is_empty() {
                found.push(format!("match: {attribute} differs: {sets:?}"));
            }
        }
    }
}
