//! The shapes whose speed is measured: `wattlane-loadtest allocate` compares them with the in-tree allocator, and
//! loadtest/benches/placement.rs counts instructions. One source of documents for both.

use serde_json::{Value, json};

use super::case::{Case, NAMESPACE, NODE};

/// Name and case of every shape.
pub(crate) fn shapes() -> Vec<(&'static str, Case)> {
    let exactly = |count: usize| json!([{"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}}]);
    let same_group = json!([{"matchAttribute": "gpu.example.com/group"}]);
    let three = json!([{"matchAttribute": "gpu.example.com/group"}, {"matchAttribute": "gpu.example.com/numa"},
        {"distinctAttribute": "gpu.example.com/uuid"}]);
    let all = json!([{"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}]);
    let partitions = json!([{"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 7,
        "selectors": [{"cel": {"expression": "device.attributes[\"gpu.example.com\"].profile == \"1g\""}}]}}]);
    vec![
        ("1 of 8", case(vec![cards(8, 4)], &exactly(1), &json!([]))),
        ("4 of 8, one group", case(vec![cards(8, 4)], &exactly(4), &same_group)),
        ("7 partitions", case(mig(), &partitions, &json!([]))),
        ("All of 16", case(vec![cards(16, 4)], &all, &json!([]))),
        // Groups of 8 of which no nine devices are: each group is searched to the end.
        (
            "9 of 128 that cannot be",
            case(vec![cards(128, 8)], &exactly(9), &three),
        ),
    ]
}

fn case(slices: Vec<Value>, requests: &Value, constraints: &Value) -> Case {
    let selector = "device.driver == \"gpu.example.com\" && device.attributes[\"gpu.example.com\"].type == \"gpu\"";
    Case {
        doc: json!({
            "node": {"metadata": {"name": NODE, "uid": "node-uid"}},
            "classes": [{"metadata": {"name": "gpu", "uid": "class"}, "spec": {"selectors": [{"cel": {"expression": selector}}]}}],
            "claims": [{"metadata": {"name": "c0", "namespace": NAMESPACE, "uid": "claim-0", "resourceVersion": "1"},
                "spec": {"devices": {"requests": requests, "constraints": constraints}}}],
            "allocated": [],
            "slices": slices,
        }),
    }
}

fn slice(name: &str, count: usize, mut body: Value) -> Value {
    body["driver"] = json!("gpu.example.com");
    body["nodeName"] = json!(NODE);
    body["pool"] = json!({"name": NODE, "generation": 1, "resourceSliceCount": count});
    json!({"metadata": {"name": name, "uid": name}, "spec": body})
}

/// `count` whole cards in groups of `group`.
fn cards(count: usize, group: usize) -> Value {
    let card = |i: usize| {
        json!({"name": format!("gpu{i:03}"), "attributes": {"type": {"string": "gpu"}, "uuid": {"string": format!("GPU-{i}")},
            "group": {"int": i / group}, "numa": {"int": i / group % 2}}, "capacity": {"memory": {"value": "80Gi"}}})
    };
    slice("cards", 1, json!({"devices": (0..count).map(card).collect::<Vec<_>>()}))
}

/// One card of seven slots: the card itself, two halves, seven smallest partitions.
fn mig() -> Vec<Value> {
    let counters = (0..7)
        .map(|s| (format!("slot{s}"), json!({"value": "1"})))
        .collect::<serde_json::Map<_, _>>();
    let part = |profile: &str, from: usize, size: usize| {
        let uses = (from..from + size)
            .map(|s| (format!("slot{s}"), json!({"value": "1"})))
            .collect::<serde_json::Map<_, _>>();
        json!({"name": format!("gpu0-{profile}-{from}"), "attributes": {"type": {"string": "gpu"}, "profile": {"string": profile}},
            "consumesCounters": [{"counterSet": "gpu0", "counters": uses}]})
    };
    let mut parts = vec![part("7g", 0, 7), part("3g", 0, 3), part("3g", 3, 3)];
    parts.extend((0..7).map(|s| part("1g", s, 1)));
    vec![
        slice(
            "counters",
            2,
            json!({"sharedCounters": [{"name": "gpu0", "counters": counters}]}),
        ),
        slice("partitions", 2, json!({"devices": parts})),
    ]
}
