//! The drivers' side of a case: pools, slices, devices, counters.

use serde_json::{Map, Value, json};

use super::case::NODE;
use super::generate::{Feature, Features};
use super::rng::Rng;

const GPU: &str = "gpu.example.com";
const NIC: &str = "nic.example.com";

/// At most 12 devices in at most 4 pools.
pub(crate) fn slices(rng: &mut Rng, features: &Features) -> Vec<Value> {
    let mut pools = vec![(GPU, NODE)];
    if rng.chance(25) {
        pools.push((NIC, if rng.chance(50) { NODE } else { "nics" }));
    }
    if rng.chance(30) || features.has(Feature::Nodes) {
        pools.push((GPU, "shared"));
    }
    let mut slices = vec![];
    let mut left = 12;
    for (driver, pool) in pools {
        let most = if rng.chance(70) { 4 } else { 6 };
        let devices = rng.range(1, most).min(left);
        left -= devices;
        pool_slices(rng, features, driver, pool, devices, &mut slices);
    }
    slices
}

fn pool_slices(rng: &mut Rng, features: &Features, driver: &str, pool: &str, count: usize, out: &mut Vec<Value>) {
    let generation = rng.range(1, 3);
    let partitions = features.has(Feature::Counters) && rng.chance(if driver == GPU { 85 } else { 40 });
    let mut devices: Vec<_> = (0..count)
        .map(|d| device(rng, features, driver, pool, d, partitions))
        .collect();
    if features.has(Feature::Pools) && rng.chance(12) && devices.len() > 1 {
        devices[0]["name"] = devices[1]["name"].clone(); // a driver that contradicts itself
    }
    let pieces = if features.has(Feature::Pools) || features.has(Feature::Nodes) || partitions {
        rng.range(1, 2)
    } else {
        1
    };
    let per_piece = count.div_ceil(pieces);
    let mut bodies: Vec<Value> = devices
        .chunks(per_piece.max(1))
        .map(|d| json!({"devices": d}))
        .collect();
    // The counters come in a slice of their own (since 1.35 the API server insists).
    if partitions {
        let sets: Vec<_> = (0..2).map(|s| counter_set(rng, s)).collect();
        bodies.insert(rng.below(bodies.len() + 1), json!({"sharedCounters": sets}));
    }
    let mut total = bodies.len();
    if features.has(Feature::Pools) && rng.chance(20) {
        total += 1;
    }
    for (i, mut body) in bodies.into_iter().enumerate() {
        place(rng, features, pool, &mut body);
        body["driver"] = json!(driver);
        body["pool"] = json!({"name": pool, "generation": generation, "resourceSliceCount": total});
        out.push(slice(driver, pool, &i.to_string(), body));
    }
    if features.has(Feature::Pools) && rng.chance(25) {
        // A slice of another generation that is still, or already, there.
        let newer = rng.chance(40);
        let other = if newer { generation + 1 } else { generation - 1 };
        let mut body = json!({"devices": [device(rng, features, driver, pool, 9, false)], "driver": driver,
            "pool": {"name": pool, "generation": other, "resourceSliceCount": rng.range(1, 2)}});
        body["nodeName"] = json!(if rng.chance(50) { NODE } else { "n2" });
        out.push(slice(driver, pool, "other", body));
    }
}

fn slice(driver: &str, pool: &str, suffix: &str, spec: Value) -> Value {
    let name = format!("{}-{pool}-{suffix}", driver.split('.').next().unwrap_or(driver));
    json!({"metadata": {"name": name, "uid": name}, "spec": spec})
}

/// Exactly one of nodeName, nodeSelector, allNodes, perDeviceNodeSelection.
fn place(rng: &mut Rng, features: &Features, pool: &str, body: &mut Value) {
    if !features.has(Feature::Nodes) {
        if pool == NODE {
            body["nodeName"] = json!(NODE)
        } else {
            body["allNodes"] = json!(true)
        }
        return;
    }
    let per_device = body["devices"].is_array() && rng.chance(25);
    if per_device {
        body["perDeviceNodeSelection"] = json!(true);
        for device in body["devices"].as_array_mut().into_iter().flatten() {
            reach(rng, device);
        }
    } else {
        reach(rng, body);
    }
}

fn reach(rng: &mut Rng, body: &mut Value) {
    let zone = |z: &str| json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [z]}]}]});
    match rng.below(8) {
        0..=2 => body["nodeName"] = json!(NODE),
        3 => body["nodeName"] = json!("n2"),
        4 => body["allNodes"] = json!(true),
        5 => body["nodeSelector"] = zone("z1"),
        6 => {
            body["nodeSelector"] = json!({"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "gpu", "operator": "Exists"}, {"key": "zone", "operator": "NotIn", "values": ["z2"]}]}]});
        }
        _ => body["nodeSelector"] = zone("z2"),
    }
}

fn device(rng: &mut Rng, features: &Features, driver: &str, pool: &str, index: usize, partitions: bool) -> Value {
    let prefix = if driver == NIC {
        "nic"
    } else if pool == NODE {
        "gpu"
    } else {
        "net"
    };
    let mut device = json!({"name": format!("{prefix}{index}"), "attributes": attributes(rng, features, driver)});
    let shared = features.has(Feature::Capacity) && rng.chance(65);
    if shared {
        device["allowMultipleAllocations"] = json!(true);
    }
    if !features.has(Feature::Selectors) || !rng.chance(10) {
        device["capacity"] = capacity(rng, shared);
    }
    if features.has(Feature::Taints) && rng.chance(60) {
        device["taints"] = (0..rng.range(1, 2)).map(|_| taint(rng)).collect();
    }
    if partitions && rng.chance(90) {
        device["consumesCounters"] = consumption(rng);
    }
    if features.has(Feature::Nodes) && rng.chance(10) {
        device["bindsToNode"] = json!(true);
    }
    if features.has(Feature::Binding) && rng.chance(40) {
        device["bindingConditions"] = json!(["Attached"]);
        device["bindingFailureConditions"] = json!(["AttachFailed", "FabricDown"]);
        if rng.chance(50) {
            device["bindsToNode"] = json!(true);
        }
    }
    device
}

fn attributes(rng: &mut Rng, features: &Features, driver: &str) -> Value {
    let mut all = Map::new();
    // Missing attributes make selectors fail and constraints unmeetable: only where that is the subject.
    let gaps = |f: Feature| if features.has(f) { 10 } else { 0 };
    let constrained = features.has(Feature::MatchAttribute) || features.has(Feature::DistinctAttribute);
    if !rng.chance(gaps(Feature::Selectors)) {
        let name = if driver == GPU && rng.chance(20) {
            "gpu.example.com/model"
        } else {
            "model"
        };
        all.insert(name.into(), json!({"string": *rng.pick(&["a", "a", "b", "c"])}));
    }
    if !rng.chance(gaps(Feature::Selectors)) {
        all.insert(
            "version".into(),
            json!({"version": *rng.pick(&["1.2.3", "2.0.0", "1.10.0-rc.1"])}),
        );
    }
    all.insert("numa".into(), json!({"int": rng.below(2)}));
    if rng.chance(50) {
        all.insert("ecc".into(), json!({"bool": rng.chance(50)}));
    }
    if !constrained || !rng.chance(10) {
        let value = rng.below(3);
        let group = if features.has(Feature::ListAttributes) && rng.chance(50) {
            json!({"ints": (0..rng.range(1, 2)).map(|_| rng.below(3)).collect::<Vec<_>>()})
        } else if constrained && rng.chance(15) {
            json!({"string": value.to_string()}) // typed comparison: never equal to the number
        } else {
            json!({"int": value})
        };
        all.insert("group".into(), group);
    }
    if rng.chance(80) {
        all.insert("example.org/rack".into(), json!({"string": *rng.pick(&["r1", "r2"])}));
    }
    json!(all)
}

fn capacity(rng: &mut Rng, shared: bool) -> Value {
    let mut memory = json!({"value": *rng.pick(&["16Gi", "40Gi", "80Gi"])});
    if shared {
        memory["value"] = json!(*rng.pick(&["8Gi", "10Gi", "16Gi"]));
        match rng.below(6) {
            0 => {}
            1 => memory["requestPolicy"] = json!({"default": "4Gi"}),
            2 => memory["requestPolicy"] = json!({"default": "2Gi", "validValues": ["2Gi", "4Gi", "8Gi"]}),
            3 => memory["requestPolicy"] = json!({"default": "4Gi", "validRange": {"min": "2Gi", "max": "8Gi"}}),
            4 => memory["requestPolicy"] = json!({"default": "3Gi", "validRange": {"min": "1Gi", "step": "2Gi"}}),
            _ => {
                memory["requestPolicy"] =
                    json!({"default": "2Gi", "validRange": {"min": "2Gi", "max": "7Gi", "step": "3Gi"}})
            }
        }
        if memory["requestPolicy"]["validRange"]["max"] == "7Gi" {
            // 2, 5: a maximum that is no multiple of the step would be refused by the API server
            memory["requestPolicy"]["validRange"]["max"] = json!("8Gi");
        }
    }
    let name = if rng.chance(10) {
        "gpu.example.com/memory"
    } else {
        "memory"
    };
    let mut all = json!({name: memory});
    if shared && rng.chance(40) {
        all["slots"] = if rng.chance(70) {
            json!({"value": "4", "requestPolicy": {"default": "1"}})
        } else {
            json!({"value": "4"})
        };
    }
    all
}

fn taint(rng: &mut Rng) -> Value {
    let (key, value) = *rng.pick(&[("k1", "v1"), ("k1", "v2"), ("k2", "v2"), ("k3", "")]);
    let mut taint = json!({"key": key, "effect": *rng.pick(&["NoSchedule", "NoExecute", "NoSchedule", "None"])});
    if !value.is_empty() {
        taint["value"] = json!(value);
    }
    taint
}

fn counter_set(rng: &mut Rng, index: usize) -> Value {
    json!({"name": format!("card{index}"), "counters": {
        "memory": {"value": *rng.pick(&["10Gi", "20Gi", "40Gi"])},
        "slice0": {"value": "1"}, "slice1": {"value": "1"},
    }})
}

fn consumption(rng: &mut Rng) -> Value {
    let mut counters = Map::new();
    counters.insert("memory".into(), json!({"value": *rng.pick(&["5Gi", "10Gi", "20Gi"])}));
    for slice in ["slice0", "slice1"] {
        if rng.chance(30) {
            counters.insert(slice.into(), json!({"value": "1"}));
        }
    }
    let mut all = vec![json!({"counterSet": format!("card{}", rng.below(2)), "counters": counters})];
    if rng.chance(10) {
        let other = if all[0]["counterSet"] == "card0" {
            "card1"
        } else {
            "card0"
        };
        all.push(json!({"counterSet": other, "counters": {"memory": {"value": "5Gi"}}}));
    }
    json!(all)
}
