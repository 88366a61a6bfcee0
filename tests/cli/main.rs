//! The command-line contract from outside: the real binary, its exit codes, one JSON document on stdout.

mod audit;
mod cards;
mod corpus;
mod fields;
mod input;
mod options;
mod partitions;
mod power;
mod probe;
mod real_slices;
mod shares;
mod topology;

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

fn wattlane(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wattlane"))
        .args(args)
        .output()
        .expect("the binary runs")
}

/// Exit code and the one JSON document of stdout.
fn answer(args: &[&str]) -> (i32, Value) {
    let output = wattlane(args);
    let stdout = String::from_utf8(output.stdout).expect("UTF-8");
    let document = serde_json::from_str(&stdout)
        .unwrap_or_else(|e| panic!("{args:?}: {e}: {stdout:?} {}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code().expect("an exit code"), document)
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("writes");
    path.to_str().expect("UTF-8").to_owned()
}

const SCENARIO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/cli/scenario.yaml");

#[test]
fn the_built_in_scenario_never_mixes_and_shows_that_list_order_would() {
    let (code, report) = answer(&["simulate", "--output", "json"]);
    assert_eq!(code, 0);
    let pods = report["pods"].as_array().expect("pods");
    let names: Vec<_> = pods
        .iter()
        .map(|p| (p["name"].as_str(), p["devices"].as_array().map(Vec::len)))
        .collect();
    assert_eq!(
        names,
        [
            (Some("embedder"), Some(1)),
            (Some("llm-a"), Some(2)),
            (Some("llm-b"), Some(2))
        ]
    );
    for pod in pods {
        assert_eq!(pod["schedulerName"], "wattlane");
        for field in [
            "namespace",
            "name",
            "node",
            "class",
            "devices",
            "linkCost",
            "watts",
            "refused",
            "error",
        ] {
            assert!(pod.get(field).is_some(), "{field} is missing: {pod}");
        }
        for device in pod["devices"].as_array().expect("devices") {
            assert_eq!(device["class"], pod["class"]);
            for field in ["claim", "request", "driver", "pool", "device"] {
                assert!(
                    device[field].as_str().is_some_and(|t| !t.is_empty()),
                    "{field}: {device}"
                );
            }
        }
    }
    assert_eq!((&pods[0]["watts"], &pods[1]["watts"]), (&json!(300), &json!(1200)));
    assert_eq!(
        (&report["summary"]["mixedPods"], &report["summary"]["mixedByListOrder"]),
        (&json!(0), &json!(1))
    );
}

#[test]
fn explain_says_what_each_node_says_and_writes_nothing() {
    let (code, report) = answer(&[
        "explain",
        "--cluster",
        SCENARIO,
        "--pod",
        "models/llm-b",
        "--output",
        "json",
    ]);
    assert_eq!(code, 0);
    assert_eq!(report["pod"], "models/llm-b");
    let nodes = report["nodes"].as_array().expect("nodes");
    assert_eq!(nodes.len(), 2);
    for node in nodes {
        assert_eq!(node["fits"], true);
        let allocations = node["allocations"].as_object().expect("allocations");
        let results: Vec<_> = allocations
            .values()
            .flat_map(|r| r.as_array().expect("a list"))
            .collect();
        assert_eq!(results.len(), 2);
        assert!(
            results
                .iter()
                .all(|r| r["driver"] == "gpu.nvidia.com" && r["pool"] == node["node"])
        );
    }
    let scores: Vec<_> = nodes.iter().filter_map(|n| n["score"].as_u64()).collect();
    assert_eq!(scores.iter().filter(|s| **s == 10).count(), 1, "{scores:?}");
}

#[test]
fn a_no_is_one_and_what_cannot_be_used_is_two() {
    let folder = tempfile::tempdir().expect("a folder");
    let pod = |count: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: big, namespace: models}}\nspec: {{containers: [{{name: c, image: x, \
             resources: {{limits: {{nvidia.com/gpu: {count}}}}}}}]}}\n"
        )
    };
    let big = write(folder.path(), "big.yaml", &pod("9"));
    let (code, report) = answer(&["simulate", SCENARIO, &big, "--output", "json"]);
    assert_eq!(code, 1);
    let last = report["pods"].as_array().and_then(|p| p.last()).expect("pods");
    let refused = last["refused"].as_object().expect("refused");
    assert_eq!((refused.len(), &last["node"]), (2, &Value::Null));
    let (code, report) = answer(&[
        "explain",
        "--cluster",
        SCENARIO,
        &big,
        "--pod",
        "models/big",
        "--output",
        "json",
    ]);
    assert_eq!((code, &report["nodes"][0]["fits"]), (1, &json!(false)));
    assert!(
        report["nodes"][0]["reason"]
            .as_str()
            .is_some_and(|r| r.contains("9 asked")),
        "{report}"
    );

    let bad = write(folder.path(), "bad.yaml", "kind: Pod\n  apiVersion: [");
    let cut = write(folder.path(), "cut.json", "{\"kind\": \"Pod\", ");
    let wrong = write(
        folder.path(),
        "wrong.yaml",
        "apiVersion: wattlane.dev/v1alpha1\nkind: PlacementPolicy\nclasses: 7\n",
    );
    let unusable: [&[&str]; 8] = [
        &["simulate", "no-such-file.yaml"],
        &["simulate", &bad],
        &["simulate", &cut],
        &["simulate", "--policy", &wrong],
        &["explain", "--cluster", SCENARIO, "--pod", "models"],
        &["explain", "--cluster", SCENARIO, "--pod", "models/nobody"],
        &["check", "no-such-policy.yaml"],
        &["frobnicate"],
    ];
    for args in unusable {
        let output = wattlane(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
        assert!(!output.stderr.is_empty(), "{args:?}: no word of why");
    }
    let (code, report) = answer(&["check", &wrong, "--output", "json"]);
    assert_eq!((code, &report["valid"]), (1, &json!(false)));
    assert!(
        report["errors"][0]["path"].is_string() && report["errors"][0]["message"].is_string(),
        "{report}"
    );
}
