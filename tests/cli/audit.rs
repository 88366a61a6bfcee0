//! `wattlane audit` on files: the contract of its answer.

use serde_json::json;

use super::{SCENARIO, answer, wattlane, write};

const CLUSTER: &str = "
apiVersion: v1
kind: Node
metadata: {name: n}
---
apiVersion: v1
kind: Namespace
metadata: {name: team, labels: {wattlane.dev/enabled: 'true'}}
---
apiVersion: v1
kind: Namespace
metadata: {name: plain}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: n}
spec:
  driver: gpu.nvidia.com
  nodeName: n
  pool: {name: n, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}, {name: gpu-1}]
";

fn claim(name: &str) -> String {
    format!(
        "---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: {name}, namespace: team, uid: {name}, finalizers: \
         [resource.kubernetes.io/delete-protection]}}\nspec: {{devices: {{requests: [{{name: r, exactly: {{deviceClassName: gpu.nvidia.com}}}}]}}}}\nstatus:\n  reservedFor: [{{resource: \
         pods, name: {name}, uid: {name}}}]\n  allocation: {{devices: {{results: [{{request: r, driver: gpu.nvidia.com, pool: n, \
         device: gpu-0}}]}}}}\n"
    )
}

fn pod(namespace: &str, name: &str, meta: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: {namespace}{meta}}}\nspec: {{containers: [{{name: c, image: \
         x, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]{spec}}}\n"
    )
}

fn holder(name: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: team, uid: {name}}}\nspec: {{schedulerName: wattlane, \
         nodeName: n, containers: [{{name: c, image: x}}], resourceClaims: [{{name: g, resourceClaimName: {name}}}]}}\n"
    )
}

#[test]
fn a_cluster_in_order_and_one_that_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = [CLUSTER, &claim("a"), &holder("a")].concat();
    let good = write(folder.path(), "good.yaml", &good);
    let (code, report) = answer(&["audit", "--cluster", &good, "--output", "json"]);
    let looked_at = json!({"nodes": 1, "claims": 1, "pods": 1});
    assert_eq!((code, report), (0, json!({"findings": [], "lookedAt": looked_at})));
    let (code, _) = answer(&["audit", "--cluster", SCENARIO, "--output", "json"]);
    assert_eq!(code, 0, "pods that are not created yet went past nobody");

    let bad = [
        CLUSTER,
        &claim("a"),
        &holder("a"),
        &claim("b"),
        &pod("plain", "old", "", ", nodeName: n"),
        &pod("team", "missed", ", uid: missed", ""),
    ]
    .concat();
    let bad = write(folder.path(), "bad.yaml", &bad);
    let (code, report) = answer(&["audit", "--cluster", &bad, "--output", "json"]);
    assert_eq!(code, 1);
    let findings = report["findings"].as_array().expect("findings");
    let found: Vec<_> = findings
        .iter()
        .map(|f| (f["kind"].as_str(), f["object"].as_str()))
        .collect();
    assert_eq!(
        found,
        [
            (Some("device-given-twice"), Some("Device gpu.nvidia.com/n/gpu-0")),
            (Some("unknown-holder"), Some("Pod plain/old")),
            (Some("allocation-without-pod"), Some("ResourceClaim team/b")),
            (Some("pod-untreated"), Some("Pod team/missed")),
        ]
    );
    for finding in findings {
        assert!(finding["message"].as_str().is_some_and(|m| m.len() > 40), "{finding}");
        assert_eq!(finding.as_object().map(serde_json::Map::len), Some(3));
    }
    let shown = wattlane(&["audit", "--cluster", &bad]);
    assert_eq!(shown.status.code(), Some(1));
    let text = String::from_utf8(shown.stdout).expect("UTF-8");
    assert!(text.starts_with("KIND ") && text.lines().count() == 7, "{text}");
    assert!(
        text.ends_with("looked at 1 nodes, 2 claims, 3 pods that have to do with devices\n"),
        "{text}"
    );

    // A pod that could go there is told why it cannot.
    let wanted = write(folder.path(), "wanted.yaml", &pod("team", "new", "", ""));
    let (_, report) = answer(&[
        "explain",
        "--cluster",
        &bad,
        &wanted,
        "--pod",
        "team/new",
        "--output",
        "json",
    ]);
    let reason = report["nodes"][0]["reason"].as_str().unwrap_or_default();
    assert!(
        reason.contains("pod plain/old has nvidia.com/gpu from the device plugin"),
        "{report}"
    );
}

#[test]
fn what_cannot_be_read_is_no_answer() {
    for args in [
        &["audit", "--cluster", "no-such-file.yaml"],
        &["audit", "--policy", "no-such-policy.yaml"],
    ] {
        assert_eq!(wattlane(args).status.code(), Some(2), "{args:?}");
    }
}
