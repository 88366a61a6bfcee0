//! The supply side as the API's documentation describes it: which devices of a case this node may use, what others
//! hold of them, and what is left. Written from the rules, sharing no code with wattlane.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::amount::amount;
use super::case::{Case, items, text};

/// `driver/pool/device`
pub(crate) type Id = String;
/// (driver/pool, counter set, counter)
pub(crate) type Counter = (String, String, String);

pub(crate) struct Found<'a> {
    pub(crate) device: &'a Value,
    pub(crate) slice: &'a Value,
    pub(crate) pool: String,
    pub(crate) visible: bool,
}

#[derive(Default)]
pub(crate) struct World<'a> {
    /// Devices of the newest complete, valid generations.
    pub(crate) devices: BTreeMap<Id, Found<'a>>,
    /// Pools this node reaches that are incomplete or contradict themselves.
    pub(crate) broken: BTreeSet<String>,
    pub(crate) counters: BTreeMap<Counter, i128>,
    pub(crate) exclusive: BTreeSet<Id>,
    /// Devices that are shared already, with the sum of what is consumed by capacity name.
    pub(crate) shared: BTreeMap<Id, BTreeMap<String, i128>>,
}

pub(crate) fn id(of: &Value) -> Id {
    format!("{}/{}/{}", text(&of["driver"]), text(&of["pool"]), text(&of["device"]))
}

impl<'a> World<'a> {
    pub(crate) fn of(case: &'a Case) -> Self {
        let mut world = Self::default();
        world.pools(case);
        for claim in case.list("allocated") {
            for result in items(&claim["status"]["allocation"]["devices"]["results"]) {
                if result["adminAccess"] == true {
                    continue;
                }
                let device = world.devices.get(&id(result)).map(|f| f.device);
                // A share of what is not shared any more: nobody can be given the whole of it.
                if result["shareID"].is_null() || device.is_some_and(|d| d["allowMultipleAllocations"] != true) {
                    world.exclusive.insert(id(result));
                } else {
                    let sum = world.shared.entry(id(result)).or_default();
                    for (name, value) in result["consumedCapacity"].as_object().into_iter().flatten() {
                        *sum.entry(counted_as(name, result, device)).or_default() += amount(value);
                    }
                }
            }
        }
        let used: Vec<_> = world
            .devices
            .iter()
            .filter(|(id, _)| world.exclusive.contains(*id) || world.shared.contains_key(*id))
            .flat_map(|(_, found)| consumes(found))
            .collect();
        for (counter, value) in used {
            *world.counters.entry(counter).or_default() -= value;
        }
        world
    }

    fn pools(&mut self, case: &'a Case) {
        let node = &case.doc["node"];
        let mut pools: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
        for slice in case.list("slices") {
            let spec = &slice["spec"];
            let pool = format!("{}/{}", text(&spec["driver"]), text(&spec["pool"]["name"]));
            pools.entry(pool).or_default().push(slice);
        }
        for (pool, slices) in pools {
            let generation = |s: &&&Value| s["spec"]["pool"]["generation"].as_i64();
            let newest = slices.iter().max_by_key(generation).and_then(|s| generation(&s));
            let mut slices: Vec<_> = slices.iter().filter(|s| generation(s) == newest).copied().collect();
            slices.sort_by_key(|s| text(&s["metadata"]["name"]).to_owned());
            let own = slices.iter().filter(|s| reaches(&s["spec"], node) || counters_only(s));
            let own: Vec<&Value> = own.copied().collect();
            let reached = !own.is_empty();
            let whole = |all: &[&Value]| all.iter().all(|s| s["spec"]["pool"]["resourceSliceCount"] == all.len());
            // The node's own slices, if they are as many as the pool should have; else all of them must be there.
            let complete = (reached && whole(&own)) || whole(&slices);
            if !(complete && self.valid(&pool, &slices, node)) {
                if reached {
                    self.broken.insert(pool);
                }
                continue;
            }
            // Devices beside counters in one slice: legal in 1.34, and ignored by the allocator of 1.36. They count here.
            for slice in slices {
                for device in items(&slice["spec"]["devices"]) {
                    let id = format!("{pool}/{}", text(&device["name"]));
                    let visible = if slice["spec"]["perDeviceNodeSelection"] == true {
                        matches_node(device, node)
                    } else {
                        matches_node(&slice["spec"], node)
                    };
                    // The same name in a slice of another node: the one that is seen is the one that counts.
                    if visible || !self.devices.contains_key(&id) {
                        let pool = pool.clone();
                        self.devices.insert(
                            id,
                            Found {
                                device,
                                slice,
                                pool,
                                visible,
                            },
                        );
                    }
                }
            }
        }
    }

    /// Device names of what the node reaches are unique, and counters that are consumed exist. Fills `counters`.
    fn valid(&mut self, pool: &str, slices: &[&Value], node: &Value) -> bool {
        let mut names = BTreeSet::new();
        let mut counters = BTreeMap::new();
        for slice in slices {
            for set in items(&slice["spec"]["sharedCounters"]) {
                for (name, counter) in set["counters"].as_object().into_iter().flatten() {
                    let key = (pool.to_owned(), text(&set["name"]).to_owned(), name.clone());
                    if counters.insert(key, amount(&counter["value"])).is_some() {
                        return false;
                    }
                }
            }
        }
        for slice in slices {
            for device in items(&slice["spec"]["devices"]) {
                if reaches(&slice["spec"], node) && !names.insert(text(&device["name"])) {
                    return false;
                }
                let known = |set: &Value, name: &str| {
                    counters.contains_key(&(pool.to_owned(), text(&set["counterSet"]).to_owned(), name.to_owned()))
                };
                for set in items(&device["consumesCounters"]) {
                    // A set without counters is not legal, so that the counters alone tell whether it is there.
                    if !set["counters"]
                        .as_object()
                        .into_iter()
                        .flatten()
                        .all(|(name, _)| known(set, name))
                    {
                        return false;
                    }
                }
            }
        }
        self.counters.extend(counters);
        true
    }
}

/// The capacity that a share takes from: the other spelling of a name counts where the device has only that one.
pub(crate) fn counted_as(name: &str, result: &Value, device: Option<&Value>) -> String {
    let domain = format!("{}/", text(&result["driver"]));
    let other = name
        .strip_prefix(&domain)
        .map_or(format!("{domain}{name}"), str::to_owned);
    let has = |name: &str| device.is_some_and(|d| !d["capacity"][name].is_null());
    if !has(name) && has(&other) {
        other
    } else {
        name.to_owned()
    }
}

fn counters_only(slice: &Value) -> bool {
    !items(&slice["spec"]["sharedCounters"]).is_empty()
}

/// What allocating the device takes out of its pool's counters.
pub(crate) fn consumes(found: &Found<'_>) -> Vec<(Counter, i128)> {
    let mut all = vec![];
    for set in items(&found.device["consumesCounters"]) {
        for (name, counter) in set["counters"].as_object().into_iter().flatten() {
            let key = (found.pool.clone(), text(&set["counterSet"]).to_owned(), name.clone());
            all.push((key, amount(&counter["value"])));
        }
    }
    all
}

/// Whether the node reaches any device of the slice.
pub(crate) fn reaches(spec: &Value, node: &Value) -> bool {
    if spec["perDeviceNodeSelection"] == true {
        items(&spec["devices"]).iter().any(|d| matches_node(d, node))
    } else {
        matches_node(spec, node)
    }
}

/// `of` is a slice's spec or, with perDeviceNodeSelection, a device.
pub(crate) fn matches_node(of: &Value, node: &Value) -> bool {
    if let Some(name) = of["nodeName"].as_str() {
        return node["metadata"]["name"] == name;
    }
    if of["allNodes"] == true {
        return true;
    }
    items(&of["nodeSelector"]["nodeSelectorTerms"]).iter().any(|term| {
        items(&term["matchExpressions"]).iter().all(|r| {
            let label = &node["metadata"]["labels"][text(&r["key"])];
            let listed = items(&r["values"]).contains(label);
            match text(&r["operator"]) {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => !label.is_null(),
                "DoesNotExist" => label.is_null(),
                other => panic!("operator {other} is not for this checker"),
            }
        })
    })
}
