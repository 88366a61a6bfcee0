//! Which RuntimeClass a pod gets: that of its class, else of its namespace, else of the vendor of its devices.

use serde_json::{Value, json};
use wattlane::admission::{Decision, Request, decide};
use wattlane::policy::Policy;
use wattlane::selector::Selectors;

use super::world;

/// What the pod has in the end, or the words of a refusal.
fn runtime(defaults: &str, mut pod: Value) -> Result<Option<String>, String> {
    let text = format!("apiVersion: wattlane.dev/v1alpha1\nkind: PlacementPolicy\ndefaults: {defaults}\n");
    let policy = Policy::read(&text, &Selectors::new()).expect("valid");
    let request = Request {
        namespace: "ml",
        operation: "CREATE",
        object: &pod.clone(),
    };
    match decide(&world::snapshot(), &policy, &request) {
        Decision::Refuse(refused) => Err(refused.message),
        Decision::Patch { ops, .. } => {
            json_patch::patch(&mut pod, &ops).expect("the patch applies");
            Ok(pod["spec"]["runtimeClassName"].as_str().map(str::to_owned))
        }
        left @ Decision::LeaveAlone { .. } => panic!("{left:?}"),
    }
}

fn pod(limits: Value) -> Value {
    json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]}})
}

#[test]
fn the_default_is_of_the_vendor() {
    let nvidia = || pod(json!({"nvidia.com/gpu": "1"}));
    let amd = || pod(json!({"amd.com/gpu": "1"}));
    let both = || pod(json!({"nvidia.com/gpu": "1", "amd.com/gpu": "1"}));
    let some = |name: &str| Ok(Some(name.to_owned()));
    let one = "{runtimeClassName: nvidia}";
    assert_eq!(runtime(one, nvidia()), some("nvidia"));
    assert_eq!(runtime(one, amd()), Ok(None));
    assert_eq!(runtime(one, both()), some("nvidia"));
    let each = "{runtimeClassName: nvidia, runtimeClassNames: {amd.com/gpu: runc}}";
    assert_eq!(runtime(each, nvidia()), some("nvidia"));
    assert_eq!(runtime(each, amd()), some("runc"));
    let words = runtime(each, both()).expect_err("one pod, two runtimes");
    assert!(
        words.contains("nvidia") && words.contains("runc") && words.contains("set runtimeClassName"),
        "{words}"
    );
    let mut says_so = both();
    says_so["spec"]["runtimeClassName"] = json!("nvidia-legacy");
    assert_eq!(runtime(each, says_so), some("nvidia-legacy"));
    // Another resource that is NVIDIA's by its DeviceClass, and one that says otherwise.
    let shared = "{runtimeClassName: nvidia, deviceClasses: {example.com/card: gpu.nvidia.com}}";
    assert_eq!(runtime(shared, pod(json!({"example.com/card": "1"}))), some("nvidia"));
    let other = "{runtimeClassName: nvidia, runtimeClassNames: {nvidia.com/gpu: nvidia-legacy}}";
    assert_eq!(runtime(other, nvidia()), some("nvidia-legacy"));
}
