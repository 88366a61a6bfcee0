//! What newcomers hand in: misspelt, empty, for other nodes, for a namespace without the label, or with a flag too many. Each is
//! told what is wrong.

use super::{SCENARIO, answer, wattlane, write};

const POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: llm-0, namespace: models}
spec:
  containers: [{name: c, image: x, resources: {limits: {nvidia.com/gpu: 2}}}]
";

/// Exit code, and all that is said on stdout and stderr.
fn says(args: &[&str]) -> (i32, String) {
    let output = wattlane(args);
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code().expect("an exit code"),
        String::from_utf8(text).expect("UTF-8"),
    )
}

/// The objects of the scenario but its pods, without those that `without` names.
fn cluster(without: &[&str]) -> String {
    let text = std::fs::read_to_string(SCENARIO).expect("reads");
    let kept = |object: &&str| !object.contains("kind: Pod") && without.iter().all(|w| !object.contains(w));
    text.split("\n---\n").filter(kept).collect::<Vec<_>>().join("\n---\n")
}

/// A simulation of the pod in the cluster, and an explanation, say the same.
fn both_say(cluster: &str, pod: &str, expected: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    let cluster = write(folder.path(), "cluster.yaml", cluster);
    let pod_file = write(folder.path(), "pod.yaml", pod);
    let explain = ["explain", "--cluster", &cluster, &pod_file, "--pod", "models/llm-0"];
    for args in [&["simulate", &cluster, &pod_file][..], &explain] {
        let (_, text) = says(args);
        for words in expected {
            assert!(text.contains(words), "{args:?}: no {words:?} in {text}");
        }
    }
}

#[test]
fn a_field_that_kubernetes_does_not_know_is_named() {
    for (right, wrong, said) in [
        (
            "limits:",
            "limit:",
            "Pod models/llm-0: spec.containers[0].resources.limit: Kubernetes 1.36 has no such field; did you mean limits?",
        ),
        (
            "resources:",
            "resorces:",
            "Pod models/llm-0: spec.containers[0].resorces: Kubernetes 1.36 has no such field; did you mean resources?",
        ),
        (
            "containers:",
            "nodeSelektor: {a: b}\n  containers:",
            "Pod models/llm-0: spec.nodeSelektor: Kubernetes 1.36 has no such field; did you mean nodeSelector?",
        ),
        (
            "containers:",
            "container:",
            "Pod models/llm-0: spec.container: Kubernetes 1.36 has no such field; did you mean containers?",
        ),
        (
            "containers:",
            "container:",
            "spec.containers: a pod needs at least one container",
        ),
    ] {
        both_say(&cluster(&[]), &POD.replace(right, wrong), &[said]);
    }
    let template = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {name: t, namespace: models}\nspec: {spec: {devices: \
                    {requests: [{name: r, exactly: {deviceClassName: gpu.nvidia.com, cout: 2}}]}}}\n---\n";
    let said = "ResourceClaimTemplate models/t: spec.spec.devices.requests[0].exactly.cout: Kubernetes 1.36 has no such field; did you mean count?";
    both_say(&cluster(&[]), &format!("{template}{POD}"), &[said]);
    let folder = tempfile::tempdir().expect("a folder");
    let pod = write(folder.path(), "pod.yaml", &POD.replace("limits:", "limit:"));
    let (_, report) = answer(&["simulate", SCENARIO, &pod, "--output", "json"]);
    let warning = |report: &serde_json::Value| {
        report["warnings"][0]
            .as_str()
            .is_some_and(|w| w.contains("resources.limit: "))
    };
    assert!(
        warning(&report["pods"][3]) && report["pods"][0].get("warnings").is_none(),
        "{report}"
    );
    let explain = [
        "explain",
        "--cluster",
        SCENARIO,
        &pod,
        "--pod",
        "models/llm-0",
        "--output",
        "json",
    ];
    let (_, report) = answer(&explain);
    assert!(warning(&report), "{report}");
}

#[test]
fn where_the_webhook_leaves_a_pod_alone_that_is_said() {
    let ends = "wattlane's webhook leaves the pod alone, and nobody made a claim of nvidia.com/gpu";
    let label = "wattlane.dev/enabled: \"true\"";
    let unlabelled = "namespace models is not labelled wattlane.dev/enabled=true";
    let ignored = POD.replace(
        "namespace: models",
        "namespace: models, labels: {wattlane.dev/webhook: ignore}",
    );
    let theirs = POD.replace("spec:", "spec:\n  schedulerName: volcano");
    let unserved = cluster(&[]).replace("metadata: {name: gpu.nvidia.com}", "metadata: {name: other}");
    let cases = [
        (
            cluster(&[]).replace(label, "wattlane.dev/enabeld: \"true\""),
            POD,
            unlabelled,
            ends,
        ),
        (
            cluster(&[]).replace(label, "wattlane.dev/enabled: \"yes\""),
            POD,
            "enabled=\"yes\", which must be \"true\"",
            ends,
        ),
        (
            cluster(&[]),
            &ignored,
            "the pod says wattlane.dev/webhook: ignore",
            ends,
        ),
        (cluster(&[]), &theirs, "the pod names the scheduler volcano", ends),
        (
            unserved,
            POD,
            "this cluster has no DeviceClass gpu.nvidia.com",
            "nobody made a claim of nvidia.com/gpu",
        ),
    ];
    for (cluster, pod, why, ends) in cases {
        both_say(&cluster, pod, &[why, ends, "Insufficient nvidia.com/gpu"]);
    }
}

#[test]
fn nothing_to_look_at_is_not_taken_for_a_good_answer() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| write(folder.path(), name, text);
    let empty = file("empty.yaml", "");
    let list = file(
        "list.json",
        "{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": []}",
    );
    let nodes = file("cluster.yaml", &cluster(&[]));
    let no_nodes = file("nodeless.yaml", &cluster(&["kind: Node\n", "ResourceSlice"]));
    let pods = file("pods.yaml", &POD.replace("kind: Pod", "kind: Pods"));
    let pod = file("pod.yaml", POD);
    let bound = file("bound.yaml", &POD.replace("spec:", "spec:\n  nodeName: mixed-1"));
    let astray = file("astray.yaml", &POD.replace("spec:", "spec:\n  nodeName: mixed-l"));
    let slice = file("slice.yaml", &cluster(&["metadata: {name: nvlink-8, labels"]));
    let cases: [(&[&str], i32, &str); 11] = [
        (&["audit", "--cluster", &empty, &list], 2, "no Kubernetes object in "),
        (
            &["audit", "--cluster", &nodes, &empty],
            0,
            "empty.yaml: no Kubernetes object in this file",
        ),
        (
            &["audit", "--cluster", &nodes, &list],
            0,
            "looked at 2 nodes, 0 claims, 0 pods",
        ),
        (&["simulate", &nodes, &pods], 0, "not looked at: v1 Pods (1, in "),
        (
            &["simulate", &nodes, &pods],
            0,
            "Nothing to place: no Pod of the files waits for a node.",
        ),
        (&["simulate", &no_nodes, &pod], 1, "models/llm-0: no Node in the files"),
        (
            &["explain", "--cluster", &no_nodes, &pod, "--pod", "models/llm-0"],
            1,
            "no Node in the files",
        ),
        (
            &["simulate", &nodes, &astray],
            0,
            "pods whose spec.nodeName is no Node of the files: 1 (the first is models/llm-0, on mixed-l)",
        ),
        (
            &["simulate", &slice, &pod],
            0,
            "is no Node of the files: 1 (the first is nvlink-8-gpu.nvidia.com, of nvlink-8)",
        ),
        (
            &["explain", "--cluster", &nodes, &bound, "--pod", "models/llm-0"],
            1,
            "is bound to mixed-1",
        ),
        (
            &["explain", "--cluster", &nodes, &astray, "--pod", "models/llm-0"],
            1,
            "is bound to mixed-l",
        ),
    ];
    for (args, code, words) in cases {
        let (found, text) = says(args);
        assert!(
            found == code && text.contains(words),
            "{args:?}: {found}: no {words:?} in {text}"
        );
    }
    let (_, text) = says(&["simulate", &nodes, &pod]);
    assert!(
        !text.contains("no Node") && !text.contains("no Kubernetes object"),
        "{text}"
    );
}

#[test]
fn flags_say_what_they_take() {
    let cases: [(&[&str], &str); 9] = [
        (
            &["explain", "--cluster", SCENARIO],
            "--pod <NS/NAME>|--summary|--fit <SIZE>",
        ),
        (
            &[
                "explain",
                "--cluster",
                SCENARIO,
                "--pod",
                "models/llm-a",
                "--margin",
                "10%",
            ],
            "cannot be used with",
        ),
        (
            &["explain", "--cluster", SCENARIO, "--summary", "--margin", "10%"],
            "cannot be used with",
        ),
        (
            &["explain", "--cluster", SCENARIO, "--fit", "-1Gi"],
            "write a size with its unit",
        ),
        (
            &["explain", "--cluster", SCENARIO, "--fit", "1Gi", "--margin", "-5%"],
            "write a part of the weights",
        ),
        (&["certs", "--out", "/nowhere", "--days", "-1"], "-1 is not in 0"),
        (&["serve", "--audit-every", "-1"], "-1 is not in 1"),
        (&["probe", "--publish", "--interval", "-5s"], "invalid value '-5s'"),
        (&["serve", "--tls-secret", "s", "--tls-key", "k"], "cannot be used with"),
    ];
    for (args, words) in cases {
        let (code, text) = says(args);
        assert!(
            code == 2 && text.contains(words),
            "{args:?}: {code}: no {words:?} in {text}"
        );
    }
}

const POLICY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/base/policy.yaml");

#[test]
fn a_policy_is_read_out_of_its_config_map_and_checked_against_several_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let bare = write(
        folder.path(),
        "bare.yaml",
        "apiVersion: v1\nkind: ConfigMap\ndata: {policy.yml: x}\n",
    );
    let cases: [(&[&str], i32, &str); 6] = [
        (&["check", POLICY], 0, "valid"),
        (
            &["check", POLICY, "--cluster", SCENARIO, SCENARIO],
            0,
            "h100-80gb-hbm3-700w",
        ),
        // As it was when --cluster took one file at a time.
        (&["check", "--cluster", SCENARIO, POLICY], 0, "h100-80gb-hbm3-700w"),
        (&["check", "--cluster", SCENARIO], 2, "which policy?"),
        (
            &["check", &bare],
            1,
            "this is a ConfigMap without data[\"policy.yaml\"]",
        ),
        (&["simulate", "--policy", POLICY], 0, "3 of 3 pods placed"),
    ];
    for (args, code, words) in cases {
        let (found, text) = says(args);
        assert!(
            found == code && text.contains(words),
            "{args:?}: {found}: no {words:?} in {text}"
        );
    }
}
