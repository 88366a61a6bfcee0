//! `wattlane check`, from policy text and a snapshot to what is printed.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use wattlane::cli::check::{Report, check};
use wattlane::model::{Bits, Capacity, Classified, NodeScope, QualifiedName, Quantity};
use wattlane::snapshot::{MaskCache, Pool, PoolDevice, PoolHealth, PoolState, Snapshot};

use super::HEAD;
use super::classes::device;

fn cluster(products: &[&str]) -> Snapshot {
    let with_memory = |product: &str| {
        let mut device = device("gpu.nvidia.com", &[("type", "gpu"), ("productName", product)]);
        let memory = Capacity {
            value: Quantity::from_integer(24 << 30),
            domain_written: false,
            policy: None,
        };
        let name = QualifiedName::parse("memory", &"gpu.nvidia.com".into());
        device.capacity = [(name, memory)].into();
        device
    };
    let devices = products.iter().map(|product| PoolDevice {
        device: Arc::new(with_memory(product)),
        // What the index knew under another policy does not matter here.
        classified: Classified {
            class: Some("stale".into()),
            ..Classified::default()
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
        shadows: Default::default(),
        summary: Default::default(),
        boards: Default::default(),
        cuts: Default::default(),
    };
    let state = PoolState {
        taken: Bits::new(pool.devices.len()),
        pool: Arc::new(pool),
        shared: BTreeMap::new(),
        counters_left: vec![],
        absent: Default::default(),
        modes: vec![],
        holds: None,
    };
    Snapshot {
        pools: [None, Some(Arc::new(state))].into_iter().collect(),
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
    assert!(report.valid && report.warnings.is_empty(), "{:?}", report.warnings);
    assert!(report.classes.iter().all(|c| c.devices.is_none()));
}

/// The evaluator's own words, and the advice that fits them.
#[test]
fn a_match_that_fails_says_why() {
    let l4 = cluster(&["NVIDIA L4", "NVIDIA L4"]);
    let fails = "classes[0].match: fails on 2 devices, which therefore are not of this class: ";
    let on = " on gpu.nvidia.com/n/gpu-0";
    let of = "device.attributes['gpu.nvidia.com']";
    for (text, want) in [
        (
            format!("{of}.prodName == 'x'"),
            format!("no such key: prodName{on}; did you mean productName?"),
        ),
        (
            "device.capacity['gpu.nvidia.com'].memroy == quantity('1Gi')".to_owned(),
            format!("no such key: memroy{on}; did you mean memory?"),
        ),
        (
            format!("{of}.cudaComputeCapability == 'x'"),
            format!(
                "no such key: cudaComputeCapability{on}; it has type, memory, productName. Where only some devices have \
                 cudaComputeCapability, ask for it first: \"cudaComputeCapability\" in device.attributes[\"gpu.nvidia.com\"]"
            ),
        ),
        (
            "device.attributes['gpu.amd.com'].productName == 'x'".to_owned(),
            format!("no such key: productName{on}; ask for the driver first (device.driver == \"…\" && …)"),
        ),
    ] {
        let said = warnings(&format!("classes:\n- {{name: a, match: \"{text}\"}}\n"), Some(&l4));
        assert_eq!(said[0], format!("{fails}{want}"));
    }
}

#[test]
fn what_nobody_can_ask_for_is_doubted() {
    let body = "placement: {demandMix: {3g.40gb: 2}}\ndefaults: {partitionClasses: {nvidia.com/gpu: parts}}\n";
    let said = warnings(body, Some(&cluster(&["NVIDIA L4"])));
    assert!(
        said[0].starts_with("defaults.partitionClasses[\"nvidia.com/gpu\"]: this cluster has no DeviceClass parts"),
        "{said:?}"
    );
    assert_eq!(
        said[1],
        "placement.demandMix[\"3g.40gb\"]: no device of this cluster is a 3g.40gb; it has no partitions, and no driver that cuts cards"
    );
    assert_eq!(said.len(), 2, "{said:?}");
}

fn warnings(body: &str, cluster: Option<&Snapshot>) -> Vec<String> {
    let report = check(&format!("{HEAD}{body}"), cluster);
    assert!(report.valid, "{:?}", report.errors);
    report.warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn rules_that_are_never_reached_are_found() {
    let body = r#"
classes:
- {name: a, match: device.driver == "x"}
- {name: b, match: device.driver == "y"}
- {name: again, match: device.driver == "x"}
- {name: all, match: "true"}
- {name: after, match: device.driver == "z"}
namespaces:
- {match: {team: a}}
- {match: {team: b, tier: low}}
- {match: {team: a, tier: low}}
- {match: {tier: low}}
- {match: {team: a}}
- {match: {}}
- {match: {team: c}}
"#;
    let never =
        |rule: &str, first: &str| format!("{rule}: is never reached: {first} comes first and matches all that it does");
    let want = [
        never("classes[2]", "classes[0]"),
        never("classes[4]", "classes[3]"),
        never("namespaces[2]", "namespaces[0]"),
        never("namespaces[4]", "namespaces[0]"),
        never("namespaces[6]", "namespaces[5]"),
    ];
    assert_eq!(warnings(body, None), want);
}

#[test]
fn sizes_of_shared_memory_that_do_nothing_or_too_much_are_doubted() {
    let sizes = ["8", "64Mi", "65Mi", "8Gi", "1.5", "500m", "4Ti", "5Ti", "8e30"];
    let of = |size: &str| format!("- {{match: {{size: \"{size}\"}}, patch: {{sharedMemory: \"{size}\"}}}}\n");
    let body: String = sizes.into_iter().map(of).collect();
    let doubted: Vec<_> = warnings(&format!("namespaces:\n{body}"), None)
        .iter()
        .map(|w| {
            w.split(": ")
                .nth(1)
                .unwrap_or_default()
                .split(' ')
                .next()
                .unwrap_or_default()
                .to_owned()
        })
        .collect();
    assert_eq!(doubted, ["8", "64Mi", "1.5", "500m", "5Ti", "8e30"]);
}

#[test]
fn names_that_the_cluster_does_not_have_are_said_with_those_it_has() {
    let mut cluster = cluster(&[]);
    for name in ["nvidia", "runc"] {
        cluster.runtime_classes.insert(name.into(), ());
    }
    let class = wattlane::model::DeviceClass {
        name: "gpu.example.com".into(),
        selectors: vec![],
        config: vec![],
        extended_resource: Some("example.com/served".into()),
        created: 0,
        unsupported: None,
    };
    cluster.classes.insert("gpu.example.com".into(), Arc::new(class));
    let body = r#"
classes: [{name: a, match: "true", patch: {runtimeClassName: nvidia-cdi}}]
namespaces: [{match: {}, patch: {runtimeClassName: runc}}]
defaults:
  runtimeClassName: nvidia-legacy
  runtimeClassNames: {amd.com/gpu: amd}
  deviceClasses: {example.com/gpu: card.example.com, example.com/served: none.example.com, example.com/fine: gpu.example.com}
"#;
    let said = warnings(body, Some(&cluster));
    let want = [
        "classes[0]: no device of this cluster is of class a",
        "defaults.runtimeClassNames[\"amd.com/gpu\"]: this cluster has no RuntimeClass amd, so pods with amd.com/gpu are refused; there is nvidia, runc",
        "defaults.runtimeClassName: this cluster has no RuntimeClass nvidia-legacy, so pods with nvidia.com/gpu are refused; there is nvidia, runc",
        "classes[0].patch.runtimeClassName: this cluster has no RuntimeClass nvidia-cdi, so its pods are refused; there is nvidia, runc",
        "defaults.deviceClasses[\"example.com/gpu\"]: this cluster has no DeviceClass card.example.com: example.com/gpu is left to the device plugin; there is gpu.example.com",
        "defaults.deviceClasses[\"example.com/served\"]: this cluster has no DeviceClass none.example.com: gpu.example.com, which says it serves example.com/served, is used instead",
    ];
    assert_eq!(said, want);
}

/// A resource of the operator's own that is claimed from the driver's class shares as well as any.
#[test]
fn a_slot_that_somebody_can_take_is_not_doubted() {
    let mut cluster = cluster(&["NVIDIA L4"]);
    let class = wattlane::model::DeviceClass {
        name: "gpu.nvidia.com".into(),
        selectors: vec![],
        config: vec![],
        extended_resource: None,
        created: 0,
        unsupported: None,
    };
    cluster.classes.insert("gpu.nvidia.com".into(), Arc::new(class));
    let doubted = |resource: &str| {
        let body = format!(
            "namespaces: [{{match: {{}}, sharing: {{slots: 4, strategy: mps}}}}]\n\
             defaults: {{deviceClasses: {{nvidia.com/gpu: none, {resource}: gpu.nvidia.com}}}}\n"
        );
        let said = warnings(&body, Some(&cluster));
        said.iter().any(|w| w.starts_with("namespaces[0].sharing"))
    };
    assert!(!doubted("acme.io/gpu"));
    assert!(doubted("amd.com/gpu"), "of another driver, whatever the class");
}

#[test]
fn the_rules_for_namespaces_are_listed_with_whom_they_are_for() {
    let mut cluster = cluster(&[]);
    for (name, team) in [("a", "x"), ("b", "x"), ("c", "y")] {
        let namespace = wattlane::model::Namespace {
            name: name.into(),
            labels: Arc::new([("team".into(), team.into())].into()),
            deleting: false,
        };
        cluster.namespaces.insert(name.into(), Arc::new(namespace));
    }
    let body = "namespaces: [{match: {team: x}, allowedClasses: [l4-72w], maxGpusPerPod: 2}, \
        {match: {}, sharing: {slots: 4, strategy: time-slicing, memoryPerSlot: 8Gi}}]";
    let report = check(&format!("{HEAD}{body}"), Some(&cluster));
    let (json, text) = printed(&report);
    assert_eq!(
        json["namespaces"],
        json!([
            {"match": {"team": "x"}, "defaultClass": "l4-72w", "allowedClasses": ["l4-72w"], "maxGpusPerPod": 2, "namespaces": 2},
            {"match": {}, "defaultClass": null, "allowedClasses": null, "maxGpusPerPod": null,
                "sharing": "4 slots, time-slicing, 8Gi each", "namespaces": 1},
        ])
    );
    let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
    assert!(
        lines.contains(&vec!["team=x", "2", "l4-72w", "l4-72w", "2", "-"]),
        "{text}"
    );
    assert!(
        text.contains(
            "(all)            1       -              (all)            -                4 slots, time-slicing, 8Gi each"
        ),
        "{text}"
    );
    let warned = |path: &str| {
        report
            .warnings
            .iter()
            .find(|w| w.path == path)
            .map(|w| w.message.as_str())
    };
    let memory = warned("namespaces[1].sharing.memoryPerSlot");
    assert!(memory.is_some_and(|m| m.contains("limits no memory")), "{text}");
    let nobody = warned("namespaces[1].sharing");
    assert!(nobody.is_some_and(|m| m.contains("no DeviceClass")), "{text}");
    // What all slots are promised, against the cards.
    let l4 = self::cluster(&["NVIDIA L4"]);
    let promise = |each: &str| {
        let body =
            format!("namespaces: [{{match: {{}}, sharing: {{slots: 4, strategy: mps, memoryPerSlot: {each}}}}}]");
        warnings(&body, Some(&l4))
            .into_iter()
            .any(|w| w.contains("more than the 25769803776 bytes of the largest card"))
    };
    assert!(promise("10Gi") && promise("900Gi") && !promise("6Gi"));
    // A misspelt key or value restricts nobody.
    let misspelt =
        r#"namespaces: [{match: {taem: x}}, {match: {team: x, tier: low}}, {match: {team: "y"}}, {match: {team: z}}]"#;
    let want = [
        "namespaces[0].match: no namespace of this cluster has taem=x",
        "namespaces[1].match: no namespace of this cluster has team=x and tier=low",
        "namespaces[3].match: no namespace of this cluster has team=z",
    ];
    assert_eq!(warnings(misspelt, Some(&cluster)), want);
    let (_, text) = printed(&check(&format!("{HEAD}{body}"), None));
    assert!(text.contains("NAMESPACES WITH") && text.contains("team=x"), "{text}");
}
