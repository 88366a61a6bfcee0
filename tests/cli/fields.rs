//! `wattlane explain` on files with everything an allocation can hold: each field in the shape of the API.

use serde_json::{Value, json};

use super::{answer, write};

/// Fields that only some devices or requests have, all at once: a share of a fabric device that is tainted.
const CLUSTER: &str = r#"
apiVersion: v1
kind: Node
metadata: {name: n, labels: {zone: z1}}
---
apiVersion: v1
kind: Namespace
metadata: {name: team, labels: {resource.kubernetes.io/admin-access: "true"}}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: fabric}
spec:
  config: [{opaque: {driver: fabric.example.com, parameters: {mode: class}}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: fabric.example.com
  nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [z1]}]}]}
  pool: {name: rack, generation: 1, resourceSliceCount: 1}
  devices:
  - name: f0
    allowMultipleAllocations: true
    capacity: {memory: {value: 16Gi, requestPolicy: {default: 4Gi}}}
    bindingConditions: [Attached]
    bindingFailureConditions: [AttachFailed]
    taints: [{key: example.com/old, value: very, effect: NoExecute}]
---
apiVersion: resource.k8s.io/v1beta2
kind: DeviceTaintRule
metadata: {name: repair}
spec:
  deviceSelector: {device: f0}
  taint: {key: example.com/repair, effect: NoSchedule}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: share, namespace: team}
spec:
  devices:
    requests:
    - name: r
      firstAvailable:
      - name: big
        deviceClassName: fabric
        count: 2
      - name: small
        deviceClassName: fabric
        tolerations: [{key: example.com/old, value: very, effect: NoExecute, tolerationSeconds: 60}, {key: example.com/repair, operator: Exists}]
    config: [{requests: [r], opaque: {driver: fabric.example.com, parameters: {mode: claim}}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: look, namespace: team}
spec:
  devices: {requests: [{name: l, exactly: {deviceClassName: fabric, adminAccess: true, tolerations: [{operator: Exists}]}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: team}
spec:
  resourceClaims: [{name: a, resourceClaimName: share}, {name: b, resourceClaimName: look}]
  containers: [{name: c, image: x, resources: {claims: [{name: a}, {name: b}]}}]
"#;

fn explain(text: &str) -> (i32, Value) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = write(folder.path(), "cluster.yaml", text);
    let (code, mut report) = answer(&["explain", "--cluster", &file, "--pod", "team/p", "--output", "json"]);
    (code, report["nodes"][0].take())
}

#[test]
fn every_field_of_an_allocation_is_shown() {
    let (code, mut node) = explain(CLUSTER);
    assert_eq!(code, 0, "{node}");
    let share = node["allocations"]["share"][0]["shareID"].take();
    assert_eq!(share.as_str().map(str::len), Some(36), "a UUID: {share}");
    assert_eq!(
        node["allocations"]["share"],
        json!([{
            "request": "r/small", "driver": "fabric.example.com", "pool": "rack", "device": "f0", "shareID": null,
            "consumedCapacity": {"memory": "4Gi"},
            "bindingConditions": ["Attached"], "bindingFailureConditions": ["AttachFailed"],
            "tolerations": [
                {"key": "example.com/old", "operator": "Equal", "value": "very", "effect": "NoExecute", "tolerationSeconds": 60},
                {"key": "example.com/repair", "operator": "Exists"},
            ],
        }])
    );
    let look = &node["allocations"]["look"][0];
    assert_eq!((&look["adminAccess"], &look["request"]), (&json!(true), &json!("l")));
    assert_eq!(
        node["config"]["share"],
        json!([
            {"source": "FromClass", "requests": ["r/small"], "opaque": {"driver": "fabric.example.com", "parameters": {"mode": "class"}}},
            {"source": "FromClaim", "requests": ["r"], "opaque": {"driver": "fabric.example.com", "parameters": {"mode": "claim"}}},
        ])
    );
    let zone = json!({"key": "zone", "operator": "In", "values": ["z1"]});
    assert_eq!(
        node["nodeSelectors"]["share"],
        json!({"nodeSelectorTerms": [{"matchExpressions": [zone]}]})
    );
}

/// From files, too, a taint of an administrator counts.
#[test]
fn a_taint_rule_in_the_files_keeps_pods_away() {
    let untolerated = CLUSTER.replace(", {key: example.com/repair, operator: Exists}", "");
    let plain = untolerated.replace("count: 2", "count: 1").replace(
        "    taints: [{key: example.com/old, value: very, effect: NoExecute}]\n",
        "",
    );
    let (code, node) = explain(&plain);
    assert_eq!(code, 1);
    assert!(
        node["reason"]
            .as_str()
            .is_some_and(|r| r.contains("example.com/repair")),
        "{node}"
    );
}
