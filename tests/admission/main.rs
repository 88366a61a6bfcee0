//! Admission from outside: golden decisions for a corpus of pods, and what must hold for every pod.

mod properties;
mod runtime;
mod shares;
mod skips;
mod sweep;
mod world;

use serde_json::{Value, json};
use wattlane::admission::{Decision, Request, decide};

/// Those of the corpus, and those that no API server would let through.
fn all_pods() -> Vec<Value> {
    let odd: Vec<Value> = serde_saphyr::from_multiple(include_str!("odd.yaml")).expect("YAML");
    world::pods().into_iter().chain(odd).collect()
}

fn request(pod: &Value) -> Request<'_> {
    Request {
        namespace: pod["metadata"]["namespace"].as_str().expect("corpus pods name one"),
        operation: "CREATE",
        object: pod,
    }
}

fn shown(decision: &Decision, namespace: &str) -> Value {
    match decision {
        Decision::LeaveAlone { reason, warnings, .. } => json!({"leaveAlone": reason.as_str(), "warnings": warnings}),
        Decision::Refuse(refused) => json!({"code": refused.code, "refused": refused.message}),
        Decision::Patch {
            ops,
            templates,
            shared,
            warnings,
        } => {
            let templates: Vec<_> = templates.iter().map(|t| t.object(namespace)).collect();
            let shared: Vec<_> = shared.iter().map(|s| s.object(namespace)).collect();
            let mut shown = json!({"patch": ops, "templates": templates, "warnings": warnings});
            if !shared.is_empty() {
                shown["shared"] = json!(shared);
            }
            shown
        }
    }
}

#[test]
fn golden_decisions() {
    let (snapshot, policy) = (world::snapshot(), world::policy());
    for pod in all_pods() {
        let request = request(&pod);
        let name = pod["metadata"]["name"].as_str().expect("named");
        let decision = shown(&decide(&snapshot, &policy, &request), request.namespace);
        insta::with_settings!({prepend_module_to_snapshot => false, omit_expression => true}, {
            insta::assert_json_snapshot!(name, decision);
        });
    }
}

#[test]
fn the_corpus_is_treated_once() {
    let (snapshot, policy) = (world::snapshot(), world::policy());
    let mut patched = 0;
    for mut pod in all_pods() {
        if let Decision::Patch { ops, .. } = decide(&snapshot, &policy, &request(&pod)) {
            json_patch::patch(&mut pod, &ops).expect("the patch applies");
            let again = decide(&snapshot, &policy, &request(&pod));
            assert_eq!(
                shown(&again, "ml")["leaveAlone"],
                "already_treated",
                "{}: {again:?}",
                pod["metadata"]["name"]
            );
            patched += 1;
        }
    }
    assert!(patched > 55, "{patched}");
}
