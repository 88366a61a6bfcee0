//! Links through the command line: a node as its probe and its driver describe it.

use serde_json::{Value, json};
use wattlane::topology::{Link, Report, ReportedCard, annotation};

use super::answer;

/// Two quads of a hybrid cube mesh, as a probe reports them.
fn mesh() -> String {
    let rows = [
        "XNNNNSSS", "NXNNSNSS", "NNXNSSNS", "NNNXSSSN", "NSSSXNNN", "SNSSNXNN", "SSNSNNXN", "SSSNNNNX",
    ];
    let link = |c| match c {
        'N' => Link::NvLink(1),
        'S' => Link::Sys,
        _ => Link::Unknown,
    };
    let card = |i| ReportedCard {
        uuid: Some(format!("GPU-{i}").into()),
        ..ReportedCard::default()
    };
    let report = Report {
        cards: (0..8).map(card).collect(),
        links: rows.iter().flat_map(|r| r.chars()).map(link).collect(),
    };
    annotation::encode(&report).expect("a report")
}

/// A node of eight cards of which the first two are held, and a pod for four.
fn cluster(report: &str, wish: &str) -> String {
    let device = |i: usize| {
        json!({"name": format!("gpu-{i}"), "attributes": {"uuid": {"string": format!("GPU-{i}")},
        "type": {"string": "gpu"}, "productName": {"string": "Tesla V100-SXM2-32GB"}}})
    };
    let held =
        |i: usize| json!({"request": "r", "driver": "gpu.nvidia.com", "pool": "dgx", "device": format!("gpu-{i}")});
    let objects = [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml", "labels": {"wattlane.dev/enabled": "true"}}}),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "dgx", "uid": "dgx",
            "annotations": {annotation::ANNOTATION: report}}}),
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "dgx"},
            "spec": {"driver": "gpu.nvidia.com", "nodeName": "dgx", "pool": {"name": "dgx", "generation": 1,
            "resourceSliceCount": 1}, "devices": (0..8).map(device).collect::<Vec<_>>()}}),
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "old", "namespace": "ml",
            "uid": "old"}, "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.nvidia.com",
            "count": 2}}]}}, "status": {"allocation": {"devices": {"results": [held(0), held(1)]}}}}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "llm", "namespace": "ml",
            "annotations": {"wattlane.dev/topology": wish}}, "spec": {"containers": [{"name": "c", "image": "x",
            "resources": {"limits": {"nvidia.com/gpu": "4"}}}]}}),
    ];
    json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string()
}

fn explain(report: &str, wish: &str) -> (i32, Value) {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("cluster.json");
    std::fs::write(&file, cluster(report, wish)).expect("a file");
    let file = file.to_str().expect("a plain name");
    let (code, report) = answer(&["explain", "--cluster", file, "--pod", "ml/llm", "--output", "json"]);
    (code, report["nodes"][0].clone())
}

#[test]
fn the_quad_of_a_mesh_is_found_by_its_probe() {
    for wish in ["preferred", "required"] {
        let (code, node) = explain(&mesh(), wish);
        let results = node["allocations"]
            .as_object()
            .expect("claims")
            .values()
            .next()
            .expect("one")
            .as_array();
        let mut devices: Vec<_> = results
            .expect("results")
            .iter()
            .map(|r| r["device"].as_str().expect("a name"))
            .collect();
        devices.sort_unstable();
        assert_eq!(
            (code, devices.as_slice()),
            (0, ["gpu-4", "gpu-5", "gpu-6", "gpu-7"].as_slice()),
            "{wish}"
        );
        assert_eq!((&node["linkCost"], &node["linkSource"]), (&json!(6), &json!("probe")));
    }
}

#[test]
fn a_report_that_cannot_be_read_is_said_and_promises_nothing() {
    let (code, node) = explain("{\"v\":9}", "preferred");
    assert_eq!(
        (code, &node["linkCost"], &node["linkSource"]),
        (0, &json!(24), &Value::Null)
    );
    assert!(
        node["reportError"].as_str().is_some_and(|e| e.contains("version 9")),
        "{node}"
    );
    let (code, node) = explain("", "required");
    assert_eq!((code, &node["fits"]), (1, &json!(false)));
    assert_eq!(
        node["reason"],
        "topology required: how its cards are connected is not known (or they are more than 16)"
    );
}
