//! What counts as a card: one that is listed twice is one, a share or a partition is none.

use std::fmt::Write as _;

use serde_json::Value;

use super::{answer, write};

const NODE: &str = "
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: gpu.nvidia.com
  nodeName: n
  pool: {name: n, generation: 1, resourceSliceCount: 1}
  devices:
";

/// A claim of the pod's own for one device of the class, and the pod.
fn own_claim(name: &str, class: &str) -> String {
    format!(
        "---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: {name}, namespace: team}}\nspec: {{devices: \
         {{requests: [{{name: r, exactly: {{deviceClassName: {class}}}}}]}}}}\n---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, \
         namespace: team}}\nspec: {{resourceClaims: [{{name: c, resourceClaimName: {name}}}], containers: [{{name: c, image: x, \
         resources: {{claims: [{{name: c}}]}}}}]}}\n"
    )
}

fn plain(name: &str, count: u32) -> String {
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: team}}\nspec: {{containers: [{{name: c, image: x, \
         resources: {{limits: {{nvidia.com/gpu: {count}}}}}}}]}}\n"
    )
}

/// By pod: its devices, or what node `n` says.
fn simulate(text: &str) -> Vec<Result<Vec<String>, String>> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = write(folder.path(), "cluster.yaml", text);
    let (_, report) = answer(&["simulate", &file, "--output", "json"]);
    let devices = |pod: &Value| {
        let names = pod["devices"].as_array().expect("devices").iter();
        names
            .map(|d| d["device"].as_str().expect("a name").to_owned())
            .collect()
    };
    let pods = report["pods"].as_array().expect("pods").iter();
    pods.map(|pod| match pod["node"].as_str() {
        Some(_) => Ok(devices(pod)),
        None => Err(pod["refused"]["n"].as_str().unwrap_or("no word from n").to_owned()),
    })
    .collect()
}

#[test]
fn a_card_that_is_listed_twice_is_given_once() {
    let mut text = NODE.to_owned();
    for (name, kind) in [("gpu-0", "gpu"), ("gpu-vfio-0", "vfio")] {
        let _ = writeln!(
            text,
            "  - {{name: {name}, attributes: {{type: {{string: {kind}}}, uuid: {{string: GPU-0}}}}}}"
        );
    }
    let (gpu, vfio) = (own_claim("a", "gpu.nvidia.com"), own_claim("b", "vfio.gpu.nvidia.com"));
    let taken = |answers: &[Result<Vec<String>, String>]| answers.iter().filter(|a| a.is_ok()).count();
    for order in [[&gpu, &vfio], [&vfio, &gpu]] {
        let answers = simulate(&format!("{text}{}{}", order[0], order[1]));
        assert_eq!(taken(&answers), 1, "{answers:?}");
        assert!(
            answers[0].is_ok() && answers[1].as_ref().is_err_and(|w| w.contains("0 of 1")),
            "{answers:?}"
        );
    }
    // Nor within one pod.
    let both = "---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: both, namespace: team}\nspec: {devices: {requests: \
                [{name: r, exactly: {deviceClassName: gpu.nvidia.com}}, {name: q, exactly: {deviceClassName: vfio.gpu.nvidia.com}}]}}\n---\n\
                apiVersion: v1\nkind: Pod\nmetadata: {name: both, namespace: team}\nspec: {resourceClaims: [{name: c, resourceClaimName: both}], \
                containers: [{name: c, image: x, resources: {claims: [{name: c}]}}]}\n";
    let answers = simulate(&format!("{text}{both}"));
    assert!(answers[0].as_ref().is_err_and(|w| w.contains("compete")), "{answers:?}");
}

#[test]
fn a_plain_request_gets_whole_cards_or_nothing() {
    let shared = "  - {name: shared, allowMultipleAllocations: true, attributes: {type: {string: gpu}}, capacity: {memory: {value: 80Gi, \
                  requestPolicy: {default: 10Gi}}}}\n";
    let whole = "  - {name: whole, attributes: {type: {string: gpu}}}\n";
    let text = format!("{NODE}{shared}{}{}", plain("p", 1), own_claim("own", "gpu.nvidia.com"));
    let answers = simulate(&text);
    assert!(
        answers[0]
            .as_ref()
            .is_err_and(|w| w.contains("no whole gpu.nvidia.com device")),
        "{answers:?}"
    );
    assert_eq!(
        answers[1],
        Ok(vec!["shared".to_owned()]),
        "a claim of its own may ask for a share"
    );
    let answers = simulate(&format!("{NODE}{shared}{whole}{}{}", plain("p", 1), plain("q", 1)));
    assert_eq!(answers[0], Ok(vec!["whole".to_owned()]));
    assert!(answers[1].is_err(), "{answers:?}");
}
