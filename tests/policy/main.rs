//! The policy file from outside: what is refused, where and in which words; the product table against the study it came
//! from; classes of devices; and `check`.

mod check;
mod classes;
mod reload;

use serde_json::Value;
use wattlane::policy::{BoardPower, NodeOrder, Policy, PolicyError, board_power};
use wattlane::selector::Selectors;

const HEAD: &str = "apiVersion: wattlane.dev/v1alpha1\nkind: PlacementPolicy\n";

fn read(body: &str) -> Result<Policy, Vec<PolicyError>> {
    Policy::read(&format!("{HEAD}{body}"), &Selectors::new())
}

fn errors(body: &str) -> Vec<String> {
    let errors = read(body).err().unwrap_or_default();
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn a_full_policy_is_read() {
    let policy = read(
        r#"
metadata: {name: ours}
classes:
- name: server-600w
  match: device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].productName.contains("Server Edition")
  watts: 0.6kW
  patch:
    runtimeClassName: nvidia-legacy
    tolerations: [{key: example.com/gpu, operator: Exists, effect: NoExecute, tolerationSeconds: 30}]
    sharedMemory: 8Gi
- {name: rest, match: "true"}
placement: {nodes: spread, mixClasses: allow, topology: none, demandMix: {3g.40gb: 2, 1g.10gb+me: 0, whole: 1000}}
namespaces:
- {match: {team: research}, allowedClasses: [rest], maxGpusPerPod: 4}
- {match: {team: batch}, patch: {schedulerName: gpus-batch, labels: {tier: low}, sharedMemory: 1Gi}}
- {match: {}, defaultClass: rest}
defaults: {schedulerName: gpus, runtimeClassName: nvidia, deviceClasses: {intel.com/gpu: gpu.intel.com},
  partitionClasses: {intel.com/gpu: parts.intel.com}}
"#,
    )
    .expect("valid");
    assert_eq!(policy.class("server-600w").and_then(|c| c.watts), Some(600));
    assert_eq!((policy.rules().mix_classes, policy.rules().spread), (true, true));
    assert_eq!(policy.placement.nodes, NodeOrder::Spread);
    assert_eq!(policy.defaults.device_classes.len(), 3);
    let parts = &policy.defaults.partition_classes;
    assert_eq!(
        (parts.len(), &*parts["nvidia.com/gpu"], &*parts["intel.com/gpu"]),
        (3, "mig.nvidia.com", "parts.intel.com")
    );
    let mix = [("1g.10gb+me", 0), ("3g.40gb", 2), ("whole", 1000)].map(|(p, n)| (p.into(), n));
    assert_eq!(*policy.rules().demand, mix, "as placement reads it");
    assert_eq!(policy.namespaces[1].patch.shared_memory.as_deref(), Some("1Gi"));
    for (scheduler, ours) in [
        ("gpus", true),
        ("gpus-batch", true),
        ("wattlane", false),
        ("default-scheduler", false),
    ] {
        assert_eq!(policy.schedules(scheduler), ours, "{scheduler}");
    }
    let toleration = &policy.classes[0].patch.tolerations[0];
    assert_eq!(toleration["tolerationSeconds"], 30);
    assert_eq!(toleration.get("value"), None);
    // The only allowed class is the default, and the first matching rule holds.
    let rule = policy.namespace_rule(&labels(&[("team", "research")])).expect("a rule");
    assert_eq!(
        (rule.default_class.as_deref(), rule.max_gpus_per_pod),
        (Some("rest"), Some(4))
    );
    let most: Vec<_> = policy.rules().allowed.iter().map(|rule| rule.most_cards).collect();
    assert_eq!(most, [Some(4), None, None], "as placement reads it");
    let rule = policy.namespace_rule(&labels(&[("team", "other")])).expect("a rule");
    assert_eq!(rule.allowed_classes, None);
}

fn labels(pairs: &[(&str, &str)]) -> wattlane::model::Labels {
    std::sync::Arc::new(pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect())
}

#[test]
fn the_shipped_policy_is_valid() {
    let manifest = include_str!("../../manifests/base/policy.yaml");
    let config: Value = serde_saphyr::from_str(manifest).expect("YAML");
    let text = config["data"]["policy.yaml"].as_str().expect("the policy");
    Policy::read(text, &Selectors::new()).expect("valid");
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    for (body, want) in [
        ("clases: []", "clases: unknown field; did you mean classes?"),
        ("classes: {}", "classes: must be a list"),
        (
            "placement: {demandMix: [1g.10gb]}",
            "placement.demandMix: must be a mapping",
        ),
        (
            "placement: {demandMix: {1g.10gb: often}}",
            "placement.demandMix[\"1g.10gb\"]: must be a whole number, 0 or more",
        ),
        (
            "placement: {demandMix: {1g.10gb: 1001}}",
            "placement.demandMix[\"1g.10gb\"]: must be at most 1000",
        ),
        (
            "placement: {demandMix: {a b: 1}}",
            "placement.demandMix[\"a b\"]: \"a b\" is not valid",
        ),
        (
            "placement: {demandMix: {1g.10gb: }}",
            "placement.demandMix[\"1g.10gb\"]: is needed",
        ),
        (
            "defaults: {partitionClasses: {x.com/gpu: y}}",
            "defaults.partitionClasses[\"x.com/gpu\"]: is none of deviceClasses, which are amd.com/gpu, nvidia.com/gpu",
        ),
        ("classes: [{name: a}]", "classes[0].match: is needed"),
        (
            "classes: [{name: a, match: \"true\", wats: 1}]",
            "classes[0].wats: unknown field; did you mean watts?",
        ),
        (
            "classes: [{name: A b, match: \"true\"}]",
            "classes[0].name: \"A b\" is not valid",
        ),
        (
            "classes: [{name: a, match: \"true\"}, {name: a, match: \"true\"}]",
            "classes[1].name: is the name of an earlier class",
        ),
        (
            "classes: [{name: a, match: \"true\", watts: 600w}]",
            "classes[0].watts: write whole watts",
        ),
        (
            "classes: [{name: a, match: \"true\", watts: 600kW}]",
            "classes[0].watts: must be between",
        ),
        (
            "classes: [{name: a, match: \"true\", patch: {runtimeClassName: A_b}}]",
            "classes[0].patch.runtimeClassName:",
        ),
        (
            "classes: [{name: a, match: \"true\", patch: {labels: {x: a b}}}]",
            "classes[0].patch.labels[\"x\"]: \"a b\" is not valid",
        ),
        (
            "classes: [{name: a, match: \"true\", patch: {annotations: {wattlane.dev/class: b}}}]",
            "classes[0].patch.annotations[\"wattlane.dev/class\"]: keys of wattlane.dev/",
        ),
        (
            "classes: [{name: a, match: \"true\", patch: {sharedMemory: lots}}]",
            "classes[0].patch.sharedMemory: must be a size",
        ),
        (
            "classes: [{name: a, match: \"true\", patch: {tolerations: [{operator: Equal}]}}]",
            "classes[0].patch.tolerations[0].key: is needed",
        ),
        (
            "classes: [{name: a, match: \"true\", patch: {tolerations: [{operator: Exists, value: x}]}}]",
            "classes[0].patch.tolerations[0].value:",
        ),
        (
            "classes: [{name: a, match: \"true\", patch: {tolerations: [{operator: Exists, effect: Never}]}}]",
            "classes[0].patch.tolerations[0].effect:",
        ),
        (
            "classes: [{name: a, match: \"true\", patch: {tolerations: [{operator: Exists, tolerationSeconds: 1}]}}]",
            "classes[0].patch.tolerations[0].tolerationSeconds:",
        ),
        (
            "placement: {nodes: bunch}",
            "placement.nodes: must be one of pack, spread",
        ),
        (
            "placement: {mixClasses: sometimes}",
            "placement.mixClasses: must be one of never, allow",
        ),
        (
            "placement: {topology: nearby}",
            "placement.topology: must be one of preferred, none, required",
        ),
        (
            "placement: {nearness: [rack one]}",
            "placement.nearness[0]: \"rack one\" is not valid",
        ),
        (
            "power: [{label: rack, budget: 2000000000}]",
            "power[0].budget: must be between",
        ),
        (
            "power: [{label: rack, budget: 1kW}, {label: rack, budget: 2kW}]",
            "power[1].label: has budgets in an earlier entry already",
        ),
        ("power: [{label: rack}]", "power[0]: needs a budget"),
        (
            "power: [{label: rack, budgets: {r7: much}}]",
            "power[0].budgets[\"r7\"]: write whole watts",
        ),
        ("namespaces: [{defaultClass: a}]", "namespaces[0].match: is needed"),
        (
            "namespaces: [{match: {}, allowedClasses: []}]",
            "namespaces[0].allowedClasses: allows nothing",
        ),
        (
            "namespaces: [{match: {}, allowedClasses: [a, b]}]",
            "namespaces[0].defaultClass: is needed",
        ),
        (
            "namespaces: [{match: {}, allowedClasses: [a], defaultClass: b}]",
            "namespaces[0].defaultClass: \"b\" is not in allowedClasses",
        ),
        (
            "namespaces: [{match: {}, maxGpusPerPod: -1}]",
            "namespaces[0].maxGpusPerPod: must be a whole number, 0 or more, not the number -1",
        ),
        (
            "namespaces: [{match: {}, allowedClasses: }]",
            "namespaces[0].allowedClasses: has no value: give it one, or leave it out",
        ),
        (
            "namespaces: [{match: {}, maxGpusPerPod: null}]",
            "namespaces[0].maxGpusPerPod: has no value",
        ),
        (
            "power: [{label: rack, budget: , budgets: {r7: 1kW}}]",
            "power[0].budget: has no value",
        ),
        ("namespaces:", "namespaces: has no value"),
        ("namespaces: [{match: {a: x y}}]", "namespaces[0].match[\"a\"]:"),
        (
            "namespaces: [{match: {}, patch: {schedulerName: default-scheduler}}]",
            "namespaces[0].patch.schedulerName: must be a scheduler that calls",
        ),
        (
            "namespaces: [{match: {}, patch: {labels: {wattlane.dev/x: z}}}]",
            "namespaces[0].patch.labels[\"wattlane.dev/x\"]: keys of wattlane.dev/",
        ),
        (
            "namespaces: [{match: {}, sharing: true}]",
            "namespaces[0].sharing: must be a mapping, not true",
        ),
        (
            "classes: [{name: a, match: \"true\", sharing: {slots: 4}}]",
            "classes[0].sharing: is for rules of namespaces",
        ),
        (
            "namespaces: [{match: {}, sharing: {strategy: mps}}]",
            "namespaces[0].sharing.slots: is needed",
        ),
        (
            "namespaces: [{match: {}, sharing: {slots: 4}}]",
            "namespaces[0].sharing.strategy: is needed",
        ),
        (
            "namespaces: [{match: {}, sharing: {slots: 4, strategy: magic}}]",
            "namespaces[0].sharing.strategy: must be time-slicing or mps",
        ),
        (
            "namespaces: [{match: {}, sharing: {slots: 1, strategy: time-slicing}}]",
            "namespaces[0].sharing.slots: must be 2 to 256",
        ),
        (
            "namespaces: [{match: {}, sharing: {slots: 49, strategy: mps}}]",
            "namespaces[0].sharing.slots: must be 2 to 48",
        ),
        (
            "namespaces: [{match: {}, sharing: {slots: 4, strategy: mps, interval: Long}}]",
            "namespaces[0].sharing.interval: is for the strategy time-slicing",
        ),
        (
            "namespaces: [{match: {}, sharing: {slots: 4, strategy: time-slicing, interval: long}}]",
            "namespaces[0].sharing.interval: must be one of Default, Short, Medium, Long",
        ),
        (
            "namespaces: [{match: {}, sharing: {slots: 4, strategy: mps, memoryPerSlot: -1Gi}}]",
            "namespaces[0].sharing.memoryPerSlot: must be a size",
        ),
        // No pod could have it.
        (
            "namespaces: [{match: {}, sharing: {slots: 4, strategy: mps, memoryPerSlot: 500m}}]",
            "namespaces[0].sharing.memoryPerSlot: must be a size with its unit, a whole number of bytes",
        ),
        (
            "namespaces: [{match: {}, sharing: {slots: 4, strategy: mps, memoryPerSlot: '0.5'}}]",
            "namespaces[0].sharing.memoryPerSlot: must be a size with its unit, a whole number of bytes",
        ),
        (
            "namespaces: [{match: {}, allowedClasses: [a], sharing: {slots: 4, strategy: mps, class: b}}]",
            "namespaces[0].sharing.class: \"b\" is not in allowedClasses",
        ),
        (
            "namespaces: [{match: {}, sharing: {slots: 4, strategy: mps, slot: 5}}]",
            "namespaces[0].sharing.slot: unknown field; did you mean slots?",
        ),
        (
            "defaults: {schedulerName: default-scheduler}",
            "defaults.schedulerName: must be a scheduler that calls",
        ),
        (
            "defaults: {deviceClasses: {gpu: x}}",
            "defaults.deviceClasses[\"gpu\"]:",
        ),
        (
            "defaults: {deviceClasses: {nvidia.com/gpumem: x}}",
            "defaults.deviceClasses[\"nvidia.com/gpumem\"]: \"nvidia.com/gpumem\" is not valid: an amount of a card",
        ),
        (
            "defaults: {runtimeClassNames: {intel.com/gpu: x}}",
            "defaults.runtimeClassNames[\"intel.com/gpu\"]: is none of deviceClasses, which are amd.com/gpu, nvidia.com/gpu",
        ),
        ("defaults: []", "defaults: must be a mapping"),
        ("classes: [[a, \"true\"]]", "classes[0]: must be a mapping"),
    ] {
        let errors = errors(body);
        assert!(
            errors.iter().any(|e| e.starts_with(want)),
            "{body}\nwant {want}\ngot {errors:#?}"
        );
    }
}

#[test]
fn all_errors_at_once() {
    let errors =
        errors("extra: 1\nclasses: [{name: A, match: x, watts: no}, {}]\nplacement: {nodes: x}\ndefaults: {y: z}");
    assert_eq!(errors.len(), 8, "{errors:#?}");
}

/// Each with its place, whatever else is wrong beside it; and nothing that only follows from it.
#[test]
fn a_value_of_the_wrong_type_hides_no_other() {
    let errors = errors(
        "
classes:
- {name: [a], match: 'true', watts: {}, patch: {labels: [a], annotations: {x: 1}, tolerations: {key: a}, sharedMemory: 8}}
- nothing
placement: {nearness: rack, nodes: 1, topologie: none}
power: [{label: rack, budgets: [1kW]}, {label: 5, budget: 1kW}]
namespaces:
- {match: [team], defaultClass: 4, allowedClasses: [a, b], maxGpusPerPod: x, limits: {maxGpusPerPod: 8}}
- {match: {team: 5}, allowedClasses: [a, null], patch: {tolerations: [{operator: 1, tolerationSeconds: '5'}]}}
defaults: {deviceClasses: {nvidia.com/gpu: [gpu.nvidia.com]}, runtimeClassName: true}
",
    );
    let want = [
        "classes[1]: must be a mapping, not the text \"nothing\"",
        "classes[0].name: must be a text, not a list",
        "classes[0].watts: write whole watts: 600, \"600W\" or \"0.6kW\"",
        "classes[0].patch.labels: must be a mapping, not a list",
        "classes[0].patch.annotations[\"x\"]: must be a text (put it in quotes), not the number 1",
        "classes[0].patch.sharedMemory: must be a text (put it in quotes), not the number 8",
        "classes[0].patch.tolerations: must be a list, not a mapping",
        "placement.nodes: must be a text (put it in quotes), not the number 1",
        "placement.nearness: must be a list, not the text \"rack\"",
        "placement.topologie: unknown field; did you mean topology?",
        "power[0].budgets: must be a mapping, not a list",
        "power[1].label: must be a text (put it in quotes), not the number 5",
        "namespaces[0].match: must be a mapping, not a list",
        "namespaces[0].defaultClass: must be a text (put it in quotes), not the number 4",
        "namespaces[0].maxGpusPerPod: must be a whole number, 0 or more, not the text \"x\"",
        "namespaces[0].limits: unknown field; known are match, defaultClass, allowedClasses, maxGpusPerPod, patch, sharing",
        "namespaces[1].match[\"team\"]: must be a text (put it in quotes), not the number 5",
        "namespaces[1].allowedClasses[1]: must be an entry, not nothing",
        "namespaces[1].patch.tolerations[0].operator: must be a text (put it in quotes), not the number 1",
        "namespaces[1].patch.tolerations[0].tolerationSeconds: must be a whole number, not the text \"5\"",
        "and 3 more",
    ];
    assert_eq!(errors, want, "{errors:#?}");
}

/// One wrong entry of a list does not hide another; a key without a value is said once.
#[test]
fn each_entry_of_a_list_is_looked_at() {
    let errors = errors(
        "
placement: {nearness: [4, rack one, ok]}
namespaces: [{match: , allowedClasses: [~, 3, UPPER]}]
",
    );
    let want = [
        "placement.nearness[0]: must be a text (put it in quotes), not the number 4",
        "placement.nearness[1]: \"rack one\" is not valid",
        "namespaces[0].match: is needed",
        "namespaces[0].allowedClasses[0]: must be an entry, not nothing",
        "namespaces[0].allowedClasses[1]: must be a text (put it in quotes), not the number 3",
        "namespaces[0].allowedClasses[2]: \"UPPER\" is not valid",
    ];
    assert_eq!(errors.len(), want.len(), "{errors:#?}");
    for (said, want) in errors.iter().zip(want) {
        assert!(said.starts_with(want), "{errors:#?}");
    }
}

/// YAML's errors are for who wrote the file, not for who wrote the program.
#[test]
fn nobody_is_told_how_to_call_a_library() {
    let head = HEAD.trim_end();
    for text in [
        format!("{head}\nplacement: {{}}\nplacement: {{}}"),
        format!("{head}\n---\n{head}"),
        format!("{head}\nclasses: *nowhere"),
        format!("{head}\nclasses: !!binary x"),
        "a: [".to_owned(),
    ] {
        let errors = Policy::read(&text, &Selectors::new()).err().unwrap_or_default();
        let said = errors.first().map(ToString::to_string).unwrap_or_default();
        assert!(said.starts_with("not readable as YAML: "), "{text}: {said}");
        for word in ["Options", "Policy", "from_str", "_with", "\n"] {
            assert!(!said.contains(word), "{text}: {said}");
        }
    }
}

#[test]
fn another_document_is_no_policy() {
    for (text, want) in [
        ("", "expected a PlacementPolicy"),
        ("[]", "expected a PlacementPolicy"),
        ("a: [", "not readable as YAML"),
        ("a: 1\na: 2", "not readable as YAML"),
        (
            "apiVersion: wattlane.dev/v2\nkind: PlacementPolicy",
            "apiVersion: must be wattlane.dev/v1alpha1",
        ),
        (
            "apiVersion: wattlane.dev/v1alpha1\nkind: Policy",
            "kind: must be PlacementPolicy",
        ),
    ] {
        let errors = Policy::read(text, &Selectors::new()).err().unwrap_or_default();
        let said = errors.first().map(ToString::to_string).unwrap_or_default();
        assert!(said.starts_with(want), "{text:?}: {said}");
    }
}

#[test]
fn a_match_that_does_not_compile_is_refused() {
    let errors = errors("classes: [{name: a, match: \"device.driver ==\"}]");
    assert!(
        errors
            .iter()
            .any(|e| e.starts_with("classes[0].match: does not compile")),
        "{errors:?}"
    );
}

/// Against the study the table was made from, where it is at hand.
#[test]
fn every_studied_product_resolves_in_every_spelling() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/data/gpu-power.json");
    let Ok(text) = std::fs::read_to_string(path) else {
        return;
    };
    let study: Value = serde_json::from_str(&text).expect("the study is JSON");
    for entry in study["entries"].as_array().expect("entries") {
        let default = entry["default_limit_w"].as_u64().expect("watts");
        let others = entry["other_limits_seen_w"].as_array();
        let others: Vec<u64> = others
            .map(|o| o.iter().filter_map(Value::as_u64).collect())
            .unwrap_or_default();
        for name in ["product_name", "gfd_label", "sysfs_name"]
            .into_iter()
            .filter_map(|key| entry[key].as_str())
        {
            match board_power(name) {
                Some(BoardPower::Watts(w)) => {
                    assert_eq!((u64::from(w), others.as_slice()), (default, [].as_slice()), "{name}");
                }
                Some(BoardPower::OneOf(seen)) => {
                    let mut want = others.clone();
                    want.push(default);
                    want.sort_unstable();
                    assert_eq!(seen.iter().map(|w| u64::from(*w)).collect::<Vec<_>>(), want, "{name}");
                }
                None => panic!("{name} is not in the table"),
            }
        }
    }
}
