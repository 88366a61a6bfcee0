//! The corpus of tests/admission through `simulate`: every pod is placed, or told why not.

#[path = "../admission/world.rs"]
mod world;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use wattlane::admission::{Decision, Request, decide};

use crate::{answer, write};

fn refusal(pod: &Value) -> Option<String> {
    let request = Request {
        namespace: pod["metadata"]["namespace"].as_str().expect("a namespace"),
        operation: "CREATE",
        object: pod,
    };
    match decide(&world::snapshot(), &world::policy(), &request) {
        Decision::Refuse(refused) => Some(refused.message),
        _ => None,
    }
}

#[test]
fn every_pod_of_the_corpus_is_placed_or_refused_with_words() {
    let folder = tempfile::tempdir().expect("a folder");
    let pods: Vec<Value> = world::pods()
        .into_iter()
        .map(|mut pod| {
            (pod["apiVersion"], pod["kind"]) = (json!("v1"), json!("Pod"));
            pod
        })
        .collect();
    let objects = world::objects().into_iter().chain(pods.iter().cloned());
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects.collect::<Vec<_>>()});
    let cluster = write(folder.path(), "cluster.json", &list.to_string());
    let policy = write(folder.path(), "policy.yaml", world::POLICY);

    let (code, report) = answer(&["simulate", &cluster, "--policy", &policy, "--output", "json"]);
    assert_eq!(code, 1, "some of them cannot be placed");
    let rows = report["pods"].as_array().expect("pods");
    let rows: BTreeMap<&str, &Value> = rows.iter().map(|r| (r["name"].as_str().expect("named"), r)).collect();
    let mut placed = 0;
    for pod in pods.iter().filter(|p| p["spec"]["nodeName"].is_null()) {
        let name = pod["metadata"]["name"].as_str().expect("named");
        let row = rows.get(name).unwrap_or_else(|| panic!("{name} is missing"));
        let error = row["error"].as_str();
        match (refusal(pod), row["node"].as_str(), error) {
            // How much still fits has changed with those placed before.
            (Some(words), None, Some(error)) => {
                let fixed = |text: &str| text.split(" offers ").next().map(str::to_owned);
                assert_eq!(fixed(error), fixed(&words), "{name}");
            }
            (None, Some(_), None) => placed += 1,
            // Named in the pod and not in the world: what the claim controller would wait for.
            (None, None, Some(error)) if error.contains("which does not exist") => {
                assert!(pod["spec"]["resourceClaims"].is_array(), "{name}: {error}");
            }
            (None, None, Some(error)) => {
                assert!(error.starts_with("no node "), "{name}: {error}");
                let reasons = row["refused"].as_object().expect("reasons");
                assert_eq!(reasons.len(), 6, "{name}: {reasons:?}");
                assert!(
                    reasons.values().all(|r| r.as_str().is_some_and(|r| r.len() > 10)),
                    "{name}: {reasons:?}"
                );
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    assert!(placed > 15, "{placed}");
}
