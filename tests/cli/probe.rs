//! `wattlane probe` on captured text, and on a PATH with and without tools.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::{answer, wattlane, write};

const TOPO: &str = "\u{1b}[4m\tGPU0\tGPU1\tGPU2\tmlx5_0\tCPU Affinity\tNUMA Affinity\u{1b}[0m
GPU0\t X \tNV12\tSYS\tPIX\t0-7\t0
GPU1\tNV12\t X \t???\tSYS\t0-7\t0
GPU2\tSYS\tSYS\t X \tSYS\t8-15\t1
";
const QUERY: &str = "index, uuid, name, power.limit [W]
0, GPU-a, NVIDIA A100 80GB PCIe, 300.00 W
1, GPU-b, NVIDIA A100 80GB PCIe, 250.00 W
2, GPU-c, NVIDIA A100 80GB PCIe, [N/A]
";

#[test]
fn captured_text_as_the_contract_has_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (topo, query) = (write(folder.path(), "topo", TOPO), write(folder.path(), "query", QUERY));
    let (code, report) = answer(&["probe", "--topo", &topo, "--query", &query, "--output", "json"]);
    assert_eq!(code, 0);
    let device = |i: u32, uuid: &str, watts: Option<u32>, numa: u32| {
        let name = "NVIDIA A100 80GB PCIe";
        json!({"index": i, "uuid": uuid, "name": name, "powerLimitWatts": watts, "numaNode": numa})
    };
    let want = json!({
        "gpus": 3,
        "links": [["X", "NV12", "SYS"], ["NV12", "X", "?"], ["SYS", "?", "X"]],
        "groups": [[0, 1]],
        "cliques": [[0, 1]],
        "devices": [device(0, "GPU-a", Some(300), 0), device(1, "GPU-b", Some(250), 0), device(2, "GPU-c", None, 1)],
        "unknown": ["link 1-2: \"???\" one way, SYS the other"],
    });
    assert_eq!(report, want);

    let output = wattlane(&["probe", "--topo", &topo]);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(text.contains("connected by NVLink or XGMI: {0,1}"), "{text}");
}

#[test]
fn unusable_input_is_2() {
    let folder = tempfile::tempdir().expect("a folder");
    let garbage = write(folder.path(), "garbage", "no table here");
    for args in [
        vec!["probe", "--topo", &garbage],
        vec!["probe", "--topo", "/nowhere"],
        vec!["probe", "--topo", &garbage, "--publish"],
        vec!["probe", "--interval", "5m"],
    ] {
        let output = wattlane(&args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty());
    }
}

#[test]
fn the_tools_of_the_node() {
    let folder = tempfile::tempdir().expect("a folder");
    let probe = || {
        Command::new(env!("CARGO_BIN_EXE_wattlane"))
            .args(["probe", "--output", "json"])
            .env("PATH", folder.path())
            .output()
            .expect("runs")
    };
    assert_eq!(probe().status.code(), Some(2), "no tool");

    let tool = |script: &str| {
        let path = write(folder.path(), "nvidia-smi", &format!("#!/bin/sh\n{script}\n"));
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("executable");
    };
    tool(&format!(
        "case $1 in topo) echo broken >&2; exit 9;; *) echo '{QUERY}';; esac"
    ));
    let output = probe();
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["devices"][1]["powerLimitWatts"], 250);
    assert_eq!(report["links"][0], json!(["X", "?", "?"]), "limits without a matrix");
    assert!(String::from_utf8_lossy(&output.stderr).contains("broken"));

    tool("echo 'No devices were found'; exit 6");
    let output = probe();
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((output.status.code(), &report["gpus"]), (Some(0), &json!(0)));
}

#[test]
fn every_shared_capture_is_read_as_expected() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/topo");
    let Ok(expected) = std::fs::read_to_string(folder.join("expected.json")) else {
        return;
    };
    let expected: Value = serde_json::from_str(&expected).expect("JSON");
    let files = expected.as_object().expect("an object");
    assert!(files.len() >= 16);
    for (file, want) in files {
        let path = folder.join(file);
        let (code, report) = answer(&["probe", "--topo", path.to_str().expect("UTF-8"), "--output", "json"]);
        assert_eq!(code, 0, "{file}");
        for (ours, theirs) in [
            ("gpus", "gpus"),
            ("links", "gpu_matrix"),
            ("groups", "nvlink_components"),
            ("cliques", "nvlink_maximal_cliques"),
        ] {
            assert_eq!(report[ours], want[theirs], "{file}");
        }
        assert_eq!(report["unknown"], json!([]), "{file}");
        // Behind the NICs and the CPU affinity stands the NUMA affinity, where there is a column for it.
        for (i, device) in report["devices"].as_array().expect("devices").iter().enumerate() {
            let tail = want["row_tails"][format!("GPU{i}")].as_array().expect("a row");
            let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
            let cpus = tail
                .iter()
                .position(|c| text(c).starts_with(|c: char| c.is_ascii_digit()));
            let numa: Option<u64> = cpus.and_then(|at| text(tail.get(at + 1)?).parse().ok());
            assert_eq!(device["numaNode"], json!(numa), "{file} GPU{i}");
        }
    }
}
