//! `wattlane check`, from policy text and a snapshot to what is printed.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use wattlane::cli::check::{Report, check};
use wattlane::model::{Bits, Classified, NodeScope, WattOrigin};
use wattlane::snapshot::{MaskCache, Pool, PoolDevice, PoolHealth, PoolState, Snapshot};

use super::HEAD;
use super::classes::device;

fn cluster(products: &[&str]) -> Snapshot {
    let devices = products.iter().map(|product| PoolDevice {
        device: Arc::new(device("gpu.nvidia.com", &[("type", "gpu"), ("productName", product)])),
        // What the index knew under another policy does not matter here.
        classified: Classified {
            class: Some("stale".into()),
            watts: None,
            origin: WattOrigin::Unknown,
            board: None,
        },
        scope: NodeScope::All,
    });
    let pool = Pool {
        driver: "gpu.nvidia.com".into(),
        name: "n".into(),
        generation: 1,
        health: PoolHealth::Complete,
        devices: devices.collect(),
        by_name: BTreeMap::new(),
        counter_sets: vec![],
        masks: MaskCache::default(),
        summary: Default::default(),
        boards: Default::default(),
    };
    let state = PoolState {
        taken: Bits::new(pool.devices.len()),
        pool: Arc::new(pool),
        shared: BTreeMap::new(),
        counters_left: vec![],
        holds: None,
    };
    Snapshot {
        pools: Arc::new(vec![None, Some(Arc::new(state))]),
        ..Snapshot::default()
    }
}

fn printed(report: &Report) -> (Value, String) {
    let (mut json, mut text) = (vec![], vec![]);
    report.write_json(&mut json).expect("a vector takes all");
    report.write_text(&mut text).expect("a vector takes all");
    (
        serde_json::from_slice(&json).expect("one JSON document"),
        String::from_utf8(text).expect("UTF-8"),
    )
}

const CLASSES: &str = r#"
classes:
- name: small
  watts: 72
  match: device.attributes["gpu.nvidia.com"].productName == "NVIDIA L4"
- name: nobody
  match: device.driver == "gpu.amd.com"
namespaces:
- {match: {}, defaultClass: ghost}
"#;

#[test]
fn counts_what_the_classes_match() {
    let cluster = cluster(&["NVIDIA L4", "NVIDIA L4", "NVIDIA H200"]);
    let report = check(&format!("{HEAD}{CLASSES}"), Some(&cluster));
    assert_eq!(report.exit_code(), 0);
    let (json, text) = printed(&report);
    assert_eq!(
        json["classes"],
        json!([
            {"name": "small", "watts": 72, "wattsFrom": ["policy"], "source": "policy", "devices": 2},
            {"name": "nobody", "watts": null, "wattsFrom": [], "source": "policy", "devices": 0},
            {"name": "h200-700w", "watts": 700, "wattsFrom": ["table"], "source": "derived", "devices": 1},
        ])
    );
    let doubted: Vec<_> = report.warnings.iter().map(|w| w.path.as_str()).collect();
    assert_eq!(doubted, ["classes[1]", "namespaces[0]"]);
    assert!(text.contains("h200-700w") && text.contains("ghost"), "{text}");
}

#[test]
fn an_invalid_policy_is_a_no_with_reasons() {
    let report = check(&format!("{HEAD}classes: [{{name: A, match: \"true\"}}]"), None);
    assert_eq!(report.exit_code(), 1);
    let (json, text) = printed(&report);
    assert_eq!(
        (&json["valid"], &json["errors"][0]["path"]),
        (&json!(false), &json!("classes[0].name"))
    );
    assert!(text.contains("classes[0].name"), "{text}");
}

#[test]
fn without_a_cluster_nothing_is_counted() {
    let report = check(&format!("{HEAD}{CLASSES}"), None);
    assert!(report.valid && report.warnings.is_empty());
    assert!(report.classes.iter().all(|c| c.devices.is_none()));
}
