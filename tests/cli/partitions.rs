//! What still fits, and what holds a model of a size: one card that can be cut, one in partitions, one that is whole.

use serde_json::{Value, json};

use super::{answer, wattlane, write};

/// Two slices of eight memory slices cut into halves or used whole; a static half; an H100 whose driver cuts nothing.
const CLUSTER: &str = "
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: counters}
spec:
  driver: gpu.nvidia.com
  nodeName: cut
  pool: {name: cut, generation: 1, resourceSliceCount: 2}
  sharedCounters: [{name: gpu-0, counters: {memory-slice-0: {value: '1'}, memory-slice-1: {value: '1'}}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: devices}
spec:
  driver: gpu.nvidia.com
  nodeName: cut
  pool: {name: cut, generation: 1, resourceSliceCount: 2}
  devices:
  - name: gpu-0
    attributes: {type: {string: gpu}, productName: {string: NVIDIA X}}
    capacity: {memory: {value: 40Gi}}
    consumesCounters: [{counterSet: gpu-0, counters: {memory-slice-0: {value: '1'}, memory-slice-1: {value: '1'}}}]
  - name: mig-0
    attributes: {type: {string: mig}, profile: {string: 1g.20gb}, productName: {string: NVIDIA X}}
    capacity: {memory: {value: 20Gi}}
    consumesCounters: [{counterSet: gpu-0, counters: {memory-slice-0: {value: '1'}, memory-slice-1: {value: '0'}}}]
  - name: mig-1
    attributes: {type: {string: mig}, profile: {string: 1g.20gb}, productName: {string: NVIDIA X}}
    capacity: {memory: {value: 20Gi}}
    consumesCounters: [{counterSet: gpu-0, counters: {memory-slice-0: {value: '0'}, memory-slice-1: {value: '1'}}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: plain}
spec:
  driver: gpu.nvidia.com
  nodeName: plain
  pool: {name: plain, generation: 1, resourceSliceCount: 1}
  devices:
  - name: gpu-0
    attributes: {type: {string: gpu}, productName: {string: NVIDIA H100 80GB HBM3}}
    capacity: {memory: {value: 81559Mi}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: held, namespace: team}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: mig.nvidia.com}}]}}
status: {allocation: {devices: {results: [{request: r, driver: gpu.nvidia.com, pool: cut, device: mig-1}]}}}
";

fn explain(args: &[&str]) -> (i32, Value) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = write(folder.path(), "cluster.yaml", CLUSTER);
    let fixed = ["explain", "--cluster", &file, "--output", "json"];
    answer(&fixed.iter().chain(args).copied().collect::<Vec<_>>())
}

#[test]
fn the_summary_says_what_still_fits() {
    let (code, report) = explain(&["--summary"]);
    let cut = json!({"1g.20gb": 1, "whole": 0});
    assert_eq!(
        (code, report),
        (
            0,
            json!({"nodes": [{"node": "cut", "profiles": cut}], "total": cut, "withoutPartitions": 1})
        )
    );
}

#[test]
fn a_model_of_a_size() {
    let (code, report) = explain(&["--fit", "14Gi"]);
    let row = |product: &str, profile: &str, if_cut: bool| -> Value {
        let rows = report["fits"].as_array().expect("rows");
        let is_it = |r: &&Value| r["product"] == product && r["profile"] == profile && r["ifCut"] == if_cut;
        rows.iter().find(is_it).cloned().unwrap_or_default()
    };
    assert_eq!(code, 0);
    assert_eq!(
        (&report["weightsGiB"], &report["marginGiB"], &report["neededGiB"]),
        (&json!(14.0), &json!(2.8), &json!(16.8))
    );
    let half = row("NVIDIA X", "1g.20gb", false);
    assert_eq!(
        (&half["now"], &half["empty"], &half["perCard"]),
        (&json!(1), &json!(2), &json!(2))
    );
    assert_eq!(
        (&half["bandwidthShare"], &half["bandwidthSum"]),
        (&json!(0.5), &json!("2 x 1/2 = 2/2"))
    );
    assert_eq!(row("NVIDIA X", "whole", false)["now"], 0, "its card is begun");
    let cut = row("NVIDIA H100 80GB HBM3", "2g.20gb", true);
    assert_eq!(
        (&cut["now"], &cut["bandwidthSum"]),
        (&json!(3), &json!("3 x 2/8 = 6/8"))
    );
    assert_eq!(row("NVIDIA H100 80GB HBM3", "1g.10gb", true), Value::Null, "too small");
    assert_eq!(row("NVIDIA H100 80GB HBM3", "whole", false)["now"], 1);

    // 20 GiB are enough without a margin, and not with one of a byte more.
    let (_, report) = explain(&["--fit", "20Gi", "--margin", "0"]);
    let has_half = |report: &Value| {
        let rows = report["fits"].as_array().expect("rows");
        rows.iter()
            .any(|r| r["product"] == "NVIDIA X" && r["profile"] == "1g.20gb")
    };
    assert!(has_half(&report));
    let (_, report) = explain(&["--fit", "20Gi", "--margin", "1Mi"]);
    assert!(!has_half(&report));
    let (code, report) = explain(&["--fit", "200Gi"]);
    assert_eq!((code, &report["fits"]), (1, &json!([])));
}

/// A node whose cards a device plugin may have given away, and a card that is given in shares.
const CLOSED_AND_SHARED: &str = "
apiVersion: v1
kind: Pod
metadata: {name: unclaimed, namespace: other, uid: u}
spec: {nodeName: plain, containers: [{name: c, resources: {limits: {nvidia.com/gpu: '1'}}}]}
status: {phase: Running}
---
apiVersion: v1
kind: Node
metadata: {name: plain}
---
apiVersion: v1
kind: Node
metadata: {name: shares}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: shares}
spec:
  driver: gpu.nvidia.com
  nodeName: shares
  pool: {name: shares, generation: 1, resourceSliceCount: 1}
  devices:
  - name: gpu-0
    allowMultipleAllocations: true
    attributes: {type: {string: gpu}, productName: {string: NVIDIA L40S}}
    capacity: {memory: {value: 45Gi, requestPolicy: {default: 1Gi, validRange: {min: 1Gi}}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: part, namespace: team}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu.nvidia.com, capacity: {requests: {memory: 20Gi}}}}]}}
status: {allocation: {devices: {results: [{request: r, driver: gpu.nvidia.com, pool: shares, device: gpu-0,
  shareID: 0a0d1f3e-59a7-4d63-8f1c-6a1f6a4a3a11, consumedCapacity: {memory: 20Gi}}]}}}
";

#[test]
fn what_nobody_can_be_given_is_not_counted_and_parts_of_shared_cards_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = write(
        folder.path(),
        "cluster.yaml",
        &format!("{CLUSTER}---{CLOSED_AND_SHARED}"),
    );
    let (_, report) = answer(&[
        "explain",
        "--cluster",
        &file,
        "--output",
        "json",
        "--fit",
        "10Gi",
        "--margin",
        "0",
    ]);
    let rows = report["fits"].as_array().expect("rows");
    let counts = |product: &str, profile: &str| {
        let row = rows.iter().find(|r| r["product"] == product && r["profile"] == profile);
        row.map(|r| (r["now"].as_u64(), r["empty"].as_u64()))
    };
    let h100 = counts("NVIDIA H100 80GB HBM3", "whole");
    assert_eq!(h100, Some((Some(0), Some(1))), "{report}");
    assert_eq!(
        counts("NVIDIA L40S", "shared (wattlane.dev/share)"),
        Some((Some(2), Some(4))),
        "{report}"
    );
}

#[test]
fn the_summary_has_what_is_left_of_shared_cards() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = write(folder.path(), "cluster.yaml", CLOSED_AND_SHARED);
    let (_, report) = answer(&["explain", "--cluster", &file, "--output", "json", "--summary"]);
    assert_eq!(
        report["nodes"],
        json!([{"node": "shares", "profiles": {}, "sharedMemoryLeftGiB": 25.0}])
    );
}

/// Cut by hand, and the driver publishes no counters: the product table knows the profile of one of the two products.
const STATIC: &str = "
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: static}
spec:
  driver: gpu.nvidia.com
  nodeName: static
  pool: {name: static, generation: 1, resourceSliceCount: 1}
  devices:
  - name: mig-0
    attributes: {type: {string: mig}, profile: {string: 3g.40gb}, parentUUID: {string: GPU-a}, productName: {string: NVIDIA H100 80GB HBM3}}
    capacity: {memory: {value: 40Gi}}
  - name: mig-1
    attributes: {type: {string: mig}, profile: {string: 3g.40gb}, parentUUID: {string: GPU-b}, productName: {string: NVIDIA X}}
    capacity: {memory: {value: 40Gi}}
";

#[test]
fn a_bandwidth_that_nobody_knows_is_not_all_of_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = write(folder.path(), "cluster.yaml", STATIC);
    let shown = wattlane(&["explain", "--cluster", &file, "--fit", "14Gi"]).stdout;
    let shown = String::from_utf8(shown).expect("UTF-8");
    let ends = |product: &str| {
        shown
            .lines()
            .find(|l| l.starts_with(product))
            .and_then(|l| l.rsplit("  ").next())
    };
    assert_eq!(ends("NVIDIA H100 80GB HBM3"), Some("1 x 4/8 = 4/8"), "{shown}");
    assert_eq!(ends("NVIDIA X"), Some("?"), "{shown}");
}

#[test]
fn a_cluster_without_partitions_has_no_other_nodes() {
    let shown = wattlane(&["explain", "--cluster", super::SCENARIO, "--summary"]).stdout;
    let shown = String::from_utf8(shown).expect("UTF-8");
    assert_eq!(shown, "No card of this cluster is cut, or can be by its driver.\n");
}

#[test]
fn one_question_at_a_time() {
    for args in [
        &["explain"][..],
        &["explain", "--summary", "--fit", "1Gi"],
        &["explain", "--pod", "a/b", "--summary"],
        &["explain", "--fit", "much"],
        &["explain", "--fit", "1Gi", "--margin", "-1%"],
    ] {
        assert_eq!(wattlane(args).status.code(), Some(2), "{args:?}");
    }
}

/// Two partitions of one card: it draws once what it draws.
#[test]
fn a_card_in_parts_is_counted_once() {
    let (slices, _held) = CLUSTER.rsplit_once("---\n").expect("several documents");
    let mut text = slices.replace("NVIDIA X", "NVIDIA H100 80GB HBM3");
    let class = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "mig.nvidia.com"},
        "spec": {"selectors": [{"cel": {"expression": "device.attributes['gpu.nvidia.com'].type == 'mig'"}}]}});
    text += &format!("---\n{class}\n");
    for name in ["a", "b"] {
        let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name, "namespace": "team"},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "mig.nvidia.com"}}]}}});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "team"},
            "spec": {"schedulerName": "wattlane", "containers": [{"name": "c", "resources": {"claims": [{"name": "gpu"}]}}],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": name}]}});
        text += &format!("---\n{claim}\n---\n{pod}\n");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = write(folder.path(), "cluster.yaml", &text);
    let (code, report) = answer(&["simulate", &file, "--output", "json"]);
    assert_eq!((code, &report["summary"]["placed"]), (0, &json!(2)), "{report}");
    assert_eq!(report["summary"]["watts"], 700);
}
