//! Makes cases from seeds: small clusters and claims that use one feature, or several at once.
//! Owns what is likely; the objects themselves are legal for the API server (or as slices may arrive from
//! a driver in the middle of an update).

use serde_json::{Value, json};

use super::case::{Case, NAMESPACE, NODE};
use super::rng::Rng;
use super::supply::slices;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Feature {
    Selectors,
    FirstAvailable,
    All,
    AdminAccess,
    MatchAttribute,
    DistinctAttribute,
    Taints,
    Counters,
    Capacity,
    Pools,
    Nodes,
    SeveralClaims,
    InUse,
    ListAttributes,
    Config,
    Binding,
}

impl Feature {
    pub(crate) const ALL: [Self; 16] = [
        Self::Selectors,
        Self::FirstAvailable,
        Self::All,
        Self::AdminAccess,
        Self::MatchAttribute,
        Self::DistinctAttribute,
        Self::Taints,
        Self::Counters,
        Self::Capacity,
        Self::Pools,
        Self::Nodes,
        Self::SeveralClaims,
        Self::InUse,
        Self::ListAttributes,
        Self::Config,
        Self::Binding,
    ];
}

/// Which features a case uses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Features(pub(crate) Vec<Feature>);

impl Features {
    pub(crate) fn has(&self, feature: Feature) -> bool {
        self.0.contains(&feature)
    }
}

/// Every other seed uses one feature (in turn), the others two to five at once.
pub(crate) fn features(seed: u64) -> Features {
    let mut rng = Rng::new(seed ^ 0xfea7);
    if seed.is_multiple_of(2) {
        let turn = usize::try_from(seed / 2 % Feature::ALL.len() as u64).expect("small");
        return Features(vec![Feature::ALL[turn]]);
    }
    let mut chosen: Vec<Feature> = (0..rng.range(2, 5)).map(|_| *rng.pick(&Feature::ALL)).collect();
    chosen.sort_unstable();
    chosen.dedup();
    Features(chosen)
}

pub(crate) fn case(seed: u64) -> (Features, Case) {
    let features = features(seed);
    let rng = &mut Rng::new(seed);
    let slices = slices(rng, &features);
    let allocated = if features.has(Feature::InUse) || rng.chance(20) {
        in_use(rng, &features, &slices)
    } else {
        vec![]
    };
    let count = if features.has(Feature::SeveralClaims) {
        rng.range(2, 3)
    } else {
        1
    };
    let claims: Vec<_> = (0..count).map(|i| claim(rng, &features, i, count)).collect();
    let doc = json!({
        "node": {"metadata": {"name": NODE, "uid": "node-uid", "labels": {"zone": "z1", "gpu": "true"}}},
        "slices": slices,
        "classes": classes(rng, &features),
        "claims": claims,
        "allocated": allocated,
    });
    (features, Case { doc })
}

fn classes(rng: &mut Rng, features: &Features) -> Value {
    let config = |rng: &mut Rng, name: &str| {
        if features.has(Feature::Config) && rng.chance(60) {
            json!([{"opaque": {"driver": "gpu.example.com", "parameters": {"from": name}}}])
        } else {
            json!([])
        }
    };
    json!([
        {"metadata": {"name": "any", "uid": "class-any"}, "spec": {"config": config(rng, "any")}},
        {"metadata": {"name": "gpu", "uid": "class-gpu"}, "spec": {"config": config(rng, "gpu"),
            "selectors": [{"cel": {"expression": "device.driver == \"gpu.example.com\""}}]}},
        {"metadata": {"name": "a", "uid": "class-a"}, "spec": {"config": config(rng, "a"), "selectors": [
            {"cel": {"expression": "device.driver == \"gpu.example.com\""}},
            {"cel": {"expression": "device.attributes[\"gpu.example.com\"].?model.orValue(\"\") == \"a\""}}]}},
    ])
}

/// Some error on devices without the attribute, or of another driver; the last two on every device.
const SELECTORS: [&str; 16] = [
    "device.attributes[\"gpu.example.com\"].model == \"a\"",
    "\"model\" in device.attributes[\"gpu.example.com\"] && device.attributes[\"gpu.example.com\"].model in [\"a\", \"b\"]",
    "device.attributes[\"gpu.example.com\"].?model.orValue(\"\") == \"b\"",
    "device.capacity[\"gpu.example.com\"].memory.compareTo(quantity(\"40Gi\")) >= 0",
    "device.capacity[\"gpu.example.com\"].memory.isLessThan(quantity(\"41Gi\"))",
    "device.attributes[\"gpu.example.com\"].version.isGreaterThan(semver(\"1.5.0\"))",
    "device.attributes[\"gpu.example.com\"].numa == 0",
    "has(device.attributes[\"gpu.example.com\"].ecc) && device.attributes[\"gpu.example.com\"].ecc",
    "device.attributes[\"gpu.example.com\"].model.matches(\"^[ab]$\")",
    "device.attributes[\"example.org\"].?rack.orValue(\"x\") == \"r1\"",
    "!device.allowMultipleAllocations",
    "device.attributes[\"gpu.example.com\"].model.lowerAscii().startsWith(\"a\")",
    "device.driver.endsWith(\"example.com\")",
    "[0, 1].exists(n, n == device.attributes[\"gpu.example.com\"].numa)",
    "device.attributes[\"gpu.example.com\"].nothing == 1",
    "device.attributes[",
];

fn selectors(rng: &mut Rng, features: &Features) -> Value {
    if !features.has(Feature::Selectors) {
        return json!([]);
    }
    let usable = if rng.chance(5) {
        SELECTORS.len()
    } else {
        SELECTORS.len() - 2
    };
    let list: Vec<_> = (0..rng.range(0, 2))
        .map(|_| json!({"cel": {"expression": SELECTORS[rng.below(usable)]}}))
        .collect();
    json!(list)
}

fn ask(rng: &mut Rng, features: &Features) -> Value {
    let class = if rng.chance(2) {
        "missing"
    } else {
        *rng.pick(&["any", "gpu", "gpu", "a"])
    };
    let mut ask = json!({"deviceClassName": class, "selectors": selectors(rng, features)});
    if features.has(Feature::All) && rng.chance(45) {
        ask["allocationMode"] = json!("All");
    } else {
        ask["allocationMode"] = json!("ExactCount");
        ask["count"] = json!(*rng.pick(&[1, 1, 1, 2, 2, 3]));
    }
    if features.has(Feature::Taints) {
        ask["tolerations"] = (0..rng.range(0, 2)).map(|_| toleration(rng)).collect();
    }
    if features.has(Feature::Capacity) && rng.chance(70) {
        let mut wants = serde_json::Map::new();
        if rng.chance(80) {
            let name = if rng.chance(5) {
                "gpu.example.com/memory"
            } else {
                "memory"
            };
            wants.insert(
                name.into(),
                json!(*rng.pick(&["1Gi", "2Gi", "3Gi", "5Gi", "8Gi", "9Gi", "100Gi"])),
            );
        }
        if rng.chance(25) {
            wants.insert("slots".into(), json!(*rng.pick(&["1", "2", "3"])));
        }
        if rng.chance(4) {
            wants.insert("nothing".into(), json!("1"));
        }
        ask["capacity"] = json!({"requests": wants});
    }
    ask
}

fn toleration(rng: &mut Rng) -> Value {
    let mut toleration = match rng.below(4) {
        0 => json!({"key": "k1", "operator": "Exists"}),
        1 => json!({"key": "k1", "operator": "Equal", "value": "v1"}),
        2 => json!({"key": "k2", "operator": "Equal", "value": "v2"}),
        _ => json!({"operator": "Exists"}),
    };
    if rng.chance(50) {
        toleration["effect"] = json!(*rng.pick(&["NoSchedule", "NoExecute"]));
    }
    toleration
}

fn claim(rng: &mut Rng, features: &Features, index: usize, of: usize) -> Value {
    let most = if of > 1 { 2 } else { 3 };
    let mut requests = vec![];
    let mut names = vec![];
    for r in 0..rng.range(1, most) {
        let name = format!("r{r}");
        names.push(name.clone());
        if features.has(Feature::FirstAvailable) && rng.chance(70) {
            let subs: Vec<_> = (0..rng.range(1, 3))
                .map(|s| {
                    let mut sub = ask(rng, features);
                    sub["name"] = json!(format!("s{s}"));
                    names.push(format!("{name}/s{s}"));
                    sub
                })
                .collect();
            requests.push(json!({"name": name, "firstAvailable": subs}));
        } else {
            let mut exactly = ask(rng, features);
            if features.has(Feature::AdminAccess) && rng.chance(50) {
                exactly["adminAccess"] = json!(true);
            }
            requests.push(json!({"name": name, "exactly": exactly}));
        }
    }
    let some_names = |rng: &mut Rng, names: &[String]| {
        let chosen: Vec<_> = names.iter().filter(|_| rng.chance(50)).cloned().collect();
        if rng.chance(50) { vec![] } else { chosen }
    };
    let mut constraints = vec![];
    for (feature, field) in [
        (Feature::MatchAttribute, "matchAttribute"),
        (Feature::DistinctAttribute, "distinctAttribute"),
    ] {
        if features.has(feature) {
            for _ in 0..rng.range(1, 2) {
                let attribute = *rng.pick(&[
                    "gpu.example.com/group",
                    "gpu.example.com/group",
                    "gpu.example.com/numa",
                    "example.org/rack",
                ]);
                constraints.push(json!({field: attribute, "requests": some_names(rng, &names)}));
            }
        }
    }
    let mut config = vec![];
    if features.has(Feature::Config) {
        for n in 0..rng.range(0, 2) {
            config.push(json!({"requests": some_names(rng, &names),
                "opaque": {"driver": "gpu.example.com", "parameters": {"n": n}}}));
        }
    }
    json!({
        "metadata": {"name": format!("c{index}"), "namespace": NAMESPACE, "uid": format!("claim-{index}"), "resourceVersion": "1"},
        "spec": {"devices": {"requests": requests, "constraints": constraints, "config": config}},
    })
}

/// Claims of others that hold some of the devices, now and then more of a counter than there is: drivers may shrink.
fn in_use(rng: &mut Rng, features: &Features, slices: &[Value]) -> Vec<Value> {
    let mut results = vec![];
    for slice in slices {
        let spec = &slice["spec"];
        for device in super::case::items(&spec["devices"]) {
            if !rng.chance(30) {
                continue;
            }
            let mut result = json!({"request": "r", "driver": spec["driver"], "pool": spec["pool"]["name"], "device": device["name"]});
            if features.has(Feature::AdminAccess) && rng.chance(30) {
                result["adminAccess"] = json!(true);
            } else if device["allowMultipleAllocations"] == true || rng.chance(3) {
                for share in 0..rng.range(1, 2) {
                    let mut part = result.clone();
                    part["shareID"] = json!(format!("{:08}-0000-4000-8000-{share:012}", results.len()));
                    let mut consumed = serde_json::Map::new();
                    for (name, _) in device["capacity"].as_object().into_iter().flatten() {
                        let amount = if name.ends_with("memory") {
                            *rng.pick(&["2Gi", "4Gi"])
                        } else {
                            "1"
                        };
                        let other = name
                            .strip_prefix("gpu.example.com/")
                            .unwrap_or("gpu.example.com/memory");
                        let name = if rng.chance(4) { other } else { name };
                        consumed.insert(name.into(), json!(amount));
                    }
                    part["consumedCapacity"] = json!(consumed);
                    results.push(part);
                }
                continue;
            }
            results.push(result);
        }
    }
    results
        .iter()
        .enumerate()
        .map(|(i, result)| {
            json!({
                "metadata": {"name": format!("held-{i}"), "namespace": NAMESPACE, "uid": format!("held-{i}"), "resourceVersion": "1"},
                "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1}}]}},
                "status": {"allocation": {"devices": {"results": [result]}},
                    "reservedFor": [{"resource": "pods", "name": format!("other-{i}"), "uid": format!("other-{i}")}]},
            })
        })
        .collect()
}
