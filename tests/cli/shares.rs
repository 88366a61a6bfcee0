//! Pods that share a card, in a plan: `simulate` places so many and no more, `explain` says who has the slots.

use serde_json::Value;

use super::{answer, wattlane, write};

const CLUSTER: &str = "
{apiVersion: v1, kind: Namespace, metadata: {name: team, labels: {wattlane.dev/enabled: 'true'}}}
---
{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: gpu.nvidia.com}, spec: {}}
---
{apiVersion: v1, kind: Node, metadata: {name: n}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: gpu.nvidia.com
  nodeName: n
  pool: {name: n, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0, attributes: {type: {string: gpu}}}, {name: gpu-1, attributes: {type: {string: gpu}}}]
";

const POLICY: &str = "
apiVersion: wattlane.dev/v1alpha1
kind: PlacementPolicy
namespaces: [{match: {}, sharing: {slots: 2, strategy: time-slicing}}]
";

fn pod(name: &str, share: &str) -> String {
    format!(
        "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: team, annotations: {{wattlane.dev/share: '{share}'}}}}, \
         spec: {{containers: [{{name: c, image: x, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]}}}}\n"
    )
}

#[test]
fn a_share_is_full_when_it_is_and_another_has_a_card_of_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let pods = [
        pod("a", "chat"),
        pod("b", "chat"),
        pod("c", "chat"),
        pod("d", "other"),
        pod("e", "third"),
    ];
    let file = write(folder.path(), "cluster.yaml", &format!("{CLUSTER}{}", pods.concat()));
    let policy = write(folder.path(), "policy.yaml", POLICY);
    let (_, report) = answer(&["simulate", &file, "--policy", &policy, "--output", "json"]);
    let rows = report["pods"].as_array().expect("pods");
    let device = |row: &Value| row["devices"][0]["device"].as_str().map(str::to_owned);
    assert_eq!(device(&rows[0]), device(&rows[1]));
    assert!(device(&rows[0]).is_some(), "{report}");
    let full = rows[2]["refused"]["n"].as_str().expect("refused");
    assert!(
        full.starts_with("all 2 slots of claim wl-share-chat-x2-") && full.ends_with("are taken, by a, b"),
        "{full}"
    );
    assert!(
        device(&rows[3]).is_some_and(|d| Some(d) != device(&rows[0])),
        "{report}"
    );
    assert!(
        rows[4]["refused"]["n"].as_str().is_some_and(|no| no.contains("0 of 2")),
        "{report}"
    );
}

#[test]
fn explain_says_what_a_slot_is_and_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = write(folder.path(), "cluster.yaml", &format!("{CLUSTER}{}", pod("a", "chat")));
    let policy = write(folder.path(), "policy.yaml", POLICY);
    let args = ["explain", "--pod", "team/a", "--cluster", &file, "--policy", &policy];
    let (code, report) = answer(&[&args[..], &["--output", "json"]].concat());
    assert_eq!(code, 0, "{report}");
    let shared = &report["shared"][0];
    assert_eq!((&shared["slots"], &shared["left"]), (&2.into(), &2.into()), "{report}");
    let text = String::from_utf8(wattlane(&args).stdout).expect("text");
    assert!(
        text.contains(": 2 of 2 slots left") && text.contains("time-slicing isolates nothing"),
        "{text}"
    );
}

#[test]
fn devices_with_consumable_capacity_are_shared_by_what_is_asked_of_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let card = |name: &str| {
        format!(
            "{{name: {name}, allowMultipleAllocations: true, attributes: {{type: {{string: gpu}}}}, capacity: {{memory: {{value: 96Gi}}}}}}"
        )
    };
    let cluster = CLUSTER
        .replace("{name: gpu-0, attributes: {type: {string: gpu}}}", &card("gpu-0"))
        .replace("{name: gpu-1, attributes: {type: {string: gpu}}}", &card("gpu-1"));
    let pods: Vec<String> = ["a", "b", "c", "d", "e"]
        .map(|name| pod(name, "x").replace("annotations: {", "annotations: {wattlane.dev/memory: 40Gi, "))
        .into();
    let file = write(folder.path(), "cluster.yaml", &format!("{cluster}{}", pods.concat()));
    let policy = write(folder.path(), "policy.yaml", POLICY);
    let (_, report) = answer(&["simulate", &file, "--policy", &policy, "--output", "json"]);
    let rows = report["pods"].as_array().expect("pods");
    let devices: Vec<_> = rows.iter().map(|r| r["devices"][0]["device"].as_str()).collect();
    // Two of 40Gi on each card of 96Gi, and the fifth on none.
    let on = |card: &str| devices.iter().filter(|d| **d == Some(card)).count();
    assert_eq!((on("gpu-0"), on("gpu-1"), devices[4]), (2, 2, None), "{report}");
}
