//! Every real-shaped slice of ../shared, where it exists: loaded, asked for one whole device, answered.

use std::path::Path;

use serde_json::Value;

use super::{answer, write};

/// A pod that asks for one device of any class the drivers' charts install.
fn pod(class: &str) -> String {
    format!(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: one, namespace: team}}\nspec: {{devices: {{requests: \
         [{{name: r, exactly: {{deviceClassName: {class}}}}}]}}}}\n---\napiVersion: v1\nkind: Pod\nmetadata: {{name: p, namespace: \
         team}}\nspec: {{resourceClaims: [{{name: c, resourceClaimName: one}}], containers: [{{name: c, image: x, resources: {{claims: \
         [{{name: c}}]}}}}]}}\n"
    )
}

#[test]
fn simulate_and_explain_answer_on_every_real_slice() {
    let slices = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/resourceslices");
    let Ok(entries) = std::fs::read_dir(&slices) else {
        eprintln!("skipped: {} is not here", slices.display());
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let mut files = 0;
    let mut nowhere = vec![];
    for path in entries
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "yaml"))
    {
        files += 1;
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        let class = match name.split('-').next() {
            Some("amd") => "gpu.amd.com",
            Some("example") => "gpu.example.com",
            _ => "gpu.nvidia.com",
        };
        let (slice, pod) = (
            path.to_str().expect("UTF-8"),
            write(folder.path(), "pod.yaml", &pod(class)),
        );
        let (_, report) = answer(&["simulate", slice, &pod, "--output", "json"]);
        let row = &report["pods"][0];
        assert!(
            report["summary"]["devices"].as_u64().is_some_and(|n| n > 0),
            "{name}: {report}"
        );
        let (code, explained) = answer(&[
            "explain",
            "--cluster",
            slice,
            &pod,
            "--pod",
            "team/p",
            "--output",
            "json",
        ]);
        // The two must say the same.
        assert_eq!(code == 0, row["node"].is_string(), "{name}: {row} {explained}");
        match row["node"].as_str() {
            Some(_) => assert_eq!(row["devices"].as_array().map(Vec::len), Some(1), "{name}: {row}"),
            None => {
                let reasons = row["refused"].as_object().expect("refused");
                assert!(
                    !reasons.is_empty() && reasons.values().all(|r| r.as_str().is_some_and(|t| !t.is_empty())),
                    "{name}: {row}"
                );
                nowhere.push((name, reasons.values().next().cloned().unwrap_or(Value::Null)));
            }
        }
    }
    assert!(files >= 25, "{files} files");
    // What is refused is refused for what the file is about, not for what we cannot read.
    assert!(nowhere.len() <= 3, "{nowhere:#?}");
}
