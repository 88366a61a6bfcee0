//! Power budgets and watts as the commands show them.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{answer, wattlane, write};

const POLICY: &str = "
apiVersion: wattlane.dev/v1alpha1
kind: PlacementPolicy
power:
- {label: rack, budget: 1kW, budgets: {spare: 5kW}}
";

/// A node of rack `a` with two 600 W cards and one of a product that does not determine watts.
const CLUSTER: &str = "
apiVersion: v1
kind: Node
metadata: {name: n, uid: n, labels: {rack: a}}
---
apiVersion: v1
kind: Node
metadata: {name: free, uid: free}
---
apiVersion: v1
kind: Namespace
metadata: {name: team, labels: {wattlane.dev/enabled: 'true'}}
";

fn slice(node: &str, products: &[&str]) -> String {
    let mut text = format!(
        "---\napiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {{name: {node}}}\nspec:\n  driver: gpu.nvidia.com\n  \
         nodeName: {node}\n  pool: {{name: {node}, generation: 1, resourceSliceCount: 1}}\n  devices:\n"
    );
    for (i, product) in products.iter().enumerate() {
        let _ = writeln!(
            text,
            "  - {{name: gpu-{i}, attributes: {{type: {{string: gpu}}, uuid: {{string: GPU-{node}-{i}}}, productName: {{string: {product}}}}}}}"
        );
    }
    text
}

fn pod(name: &str, class: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: team, annotations: {{wattlane.dev/class: {class}}}}}\nspec: \
         {{containers: [{{name: c, image: x, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]}}\n"
    )
}

const SERVER: &str = "NVIDIA RTX PRO 6000 Blackwell Server Edition";
const CLASS: &str = "rtx-pro-6000-blackwell-server-edition-600w";

#[test]
fn a_node_over_budget_says_so_everywhere() {
    let folder = tempfile::tempdir().expect("a folder");
    let policy = write(folder.path(), "policy.yaml", POLICY);
    let pods: String = ["a", "b"].map(|name| pod(name, CLASS)).concat();
    let text = [CLUSTER, &slice("n", &[SERVER, SERVER, "NVIDIA GH200 480GB"]), &pods].concat();
    let cluster = write(folder.path(), "cluster.yaml", &text);

    let (code, report) = answer(&["simulate", &cluster, "--policy", &policy, "--output", "json"]);
    assert_eq!(code, 1);
    assert_eq!(
        (&report["pods"][0]["node"], &report["pods"][0]["watts"]),
        (&json!("n"), &json!(600))
    );
    assert_eq!(report["pods"][0]["devices"][0]["wattsFrom"], "table");
    assert_eq!(
        report["pods"][1]["refused"]["n"],
        "power domain rack=a: budget 1 kW, 400 W left, 600 W needed"
    );
    assert_eq!(
        report["summary"]["powerDomains"],
        json!([
            {"label": "rack", "value": "a", "budget": 1000, "used": 600, "left": 400, "nodes": 1},
            {"label": "rack", "value": "spare", "budget": 5000, "used": 0, "left": 5000, "nodes": 0},
        ])
    );
    let (_, same) = answer(&["simulate", &cluster, "--output", "json"]);
    assert_eq!(same["pods"][1]["node"], "n", "without a budget it fits");

    // One card is held in the files: what the policy makes of it.
    let held = "---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: held, namespace: team, uid: held}\nspec: \
         {devices: {requests: [{name: r, exactly: {deviceClassName: gpu.nvidia.com}}]}}\nstatus: {allocation: {devices: {results: \
         [{request: r, driver: gpu.nvidia.com, pool: n, device: gpu-0}]}}}\n";
    let held = write(folder.path(), "held.yaml", &[&text, held].concat());
    let (code, report) = answer(&["check", &policy, "--cluster", &held, "--output", "json"]);
    assert_eq!(code, 0, "{report}");
    assert_eq!(report["powerDomains"][0]["used"], 600);
    let shown = String::from_utf8(wattlane(&["check", &policy, "--cluster", &held]).stdout).expect("UTF-8");
    assert!(
        shown.contains("rack=a             1000        600        400  1"),
        "{shown}"
    );
    assert!(
        shown.contains("unknown  derived  1        unknown"),
        "watts nobody knows: {shown}"
    );
    let explain = ["explain", "--pod", "team/a", "--cluster", &held, "--policy", &policy];
    let shown = String::from_utf8(wattlane(&explain).stdout).expect("UTF-8");
    assert!(
        shown.contains("power domain rack=a: budget 1 kW, 400 W left, 600 W needed"),
        "{shown}"
    );
}

#[test]
fn unknown_watts_are_printed_as_unknown() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = [CLUSTER, &slice("n", &["NVIDIA GH200 480GB"]), &pod("a", "gh200-480gb")].concat();
    let cluster = write(folder.path(), "cluster.yaml", &text);
    let explain = ["explain", "--pod", "team/a", "--cluster", &cluster];
    let shown = String::from_utf8(wattlane(&explain).stdout).expect("UTF-8");
    let row = shown.lines().find(|l| l.starts_with("n ")).expect("the node");
    assert!(row.contains("unknown") && !row.contains(" 0  gpu"), "{row}");
    let (_, report) = answer(&[&explain[..], &["--output", "json"]].concat());
    let node = report["nodes"]
        .as_array()
        .expect("nodes")
        .iter()
        .find(|n| n["node"] == "n")
        .expect("the node");
    assert_eq!((&node["watts"], &node["unknownWatts"]), (&Value::Null, &json!(1)));
    let shown = String::from_utf8(wattlane(&["simulate", &cluster]).stdout).expect("UTF-8");
    assert!(
        shown.lines().any(|l| l.starts_with("team/a") && l.contains("unknown")),
        "{shown}"
    );
    let policy = write(folder.path(), "policy.yaml", POLICY);
    let (_, report) = answer(&["simulate", &cluster, "--policy", &policy, "--output", "json"]);
    assert_eq!(
        report["pods"][0]["refused"]["n"],
        "watts of device gpu-0 unknown: give its class watts in the policy"
    );
}

/// Two partitions of one card, a whole card of unknown watts, and nothing said twice.
#[test]
fn rows_and_summary_of_simulate_agree_about_watts() {
    let folder = tempfile::tempdir().expect("a folder");
    let parts: String = (0..2)
        .map(|i| {
            format!(
                "  - {{name: mig-{i}, attributes: {{type: {{string: mig}}, profile: {{string: 3g.40gb}}, parentUUID: {{string: GPU-h}}, \
                 productName: {{string: NVIDIA H100 80GB HBM3}}}}}}\n"
            )
        })
        .collect();
    let asks = |name: &str, what: &str, n: u32| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: team}}\nspec: \
             {{containers: [{{name: c, image: x, resources: {{limits: {{{what}: {n}}}}}}}]}}\n"
        )
    };
    let pods = [
        asks("a", "nvidia.com/mig-3g.40gb", 1),
        asks("b", "nvidia.com/mig-3g.40gb", 1),
        asks("c", "nvidia.com/gpu", 2),
    ];
    let unknown = slice("n", &["NVIDIA GH200 480GB", "NVIDIA GH200 480GB"]);
    let text = [CLUSTER, &unknown, &parts, &pods.concat()].concat();
    let cluster = write(folder.path(), "cluster.yaml", &text);
    let (code, report) = answer(&["simulate", &cluster, "--output", "json"]);
    assert_eq!(code, 0, "{report}");
    for (pod, want) in [
        (0, (Value::Null, json!(1), json!(700))),
        (2, (Value::Null, json!(2), Value::Null)),
    ] {
        let row = &report["pods"][pod];
        let got = ["watts", "unknownWatts", "cardWatts"].map(|field| row[field].clone());
        assert_eq!(got, [want.0, want.1, want.2], "{row}");
    }
    let summary = &report["summary"];
    assert_eq!((&summary["watts"], &summary["unknownWatts"]), (&json!(700), &json!(2)));
    let shown = String::from_utf8(wattlane(&["simulate", &cluster]).stdout).expect("UTF-8");
    for words in [
        "mig-0      part of 700",
        "gpu-0 gpu-1  unknown",
        "700 W given in this run, without 2 devices of unknown watts.",
    ] {
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(squeezed(&shown).contains(&squeezed(words)), "{words}: {shown}");
    }
}

/// A slip that limits nothing, or everything, says nothing else.
#[test]
fn check_doubts_domains_without_nodes_and_budgets_below_a_card() {
    let folder = tempfile::tempdir().expect("a folder");
    let cluster = write(
        folder.path(),
        "cluster.yaml",
        &[CLUSTER, &slice("n", &[SERVER])].concat(),
    );
    for (power, want) in [
        ("{label: rack, budget: 20kW}", vec![]),
        ("{label: rack, budgets: {a: 600}}", vec![]),
        ("{label: rack, budget: 0}", vec![]),
        (
            "{label: rak, budget: 20}",
            vec![
                "power[0].label: no node of this cluster has the label rak, so nothing is limited; did you mean rack?",
            ],
        ),
        (
            "{label: rack, budget: 20}",
            vec![
                "power[0].budget: 20 W are less than one card of rack=a draws (600 W), so such a card is never given; is a unit like kW missing?",
            ],
        ),
        (
            "{label: rack, budget: 20kW, budgets: {a: 12, b: 12}}",
            vec![
                "power[0].budgets[\"b\"]: no node of this cluster has rack=b; there is a",
                "power[0].budgets[\"a\"]: 12 W are less than one card of rack=a draws (600 W), so such a card is never given; is a unit like kW missing?",
            ],
        ),
    ] {
        let text = format!("apiVersion: wattlane.dev/v1alpha1\nkind: PlacementPolicy\npower:\n- {power}\n");
        let policy = write(folder.path(), "policy.yaml", &text);
        let (code, report) = answer(&["check", &policy, "--cluster", &cluster, "--output", "json"]);
        let warnings = report["warnings"].as_array().expect("warnings").iter();
        let text = |w: &Value| {
            format!(
                "{}: {}",
                w["path"].as_str().unwrap_or_default(),
                w["message"].as_str().unwrap_or_default()
            )
        };
        assert_eq!(
            (code, warnings.map(text).collect::<Vec<_>>()),
            (0, want.iter().map(|w| (*w).to_owned()).collect()),
            "{power}"
        );
    }
}
