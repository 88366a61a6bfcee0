//! What kube-scheduler's own plugins would say before the extender is asked: the few rules that decide which
//! nodes a GPU pod may run on at all. Only for `simulate` and `explain` on files; with a real cluster the real
//! scheduler says it. CPU, memory, ports, volumes, pod affinity and spreading are not looked at.

use serde_json::Value;

use crate::convert;
use crate::model::{Name, Node, NodeSelector, NodeSelectorTerm, Requirement};
use crate::snapshot::Snapshot;

/// Why the node is out, in kube-scheduler's words.
pub(super) fn refuses(pod: &Value, node: &Node, snapshot: &Snapshot) -> Option<String> {
    affinity(pod, node)
        .map(str::to_owned)
        .or_else(|| missing_resource(pod, node, snapshot))
}

/// An extended resource that no device plugin of the node serves. One that a DeviceClass maps is left to DRA, as
/// kube-scheduler does.
fn missing_resource(pod: &Value, node: &Node, snapshot: &Snapshot) -> Option<String> {
    let asked = convert::pod(pod).map(|pod| pod.extended_resources).unwrap_or_default();
    let mapped = |name: &Name| snapshot.class_serving(name).is_some();
    let mut missing = asked
        .iter()
        .filter(|(name, amount)| !amount.is_zero() && !node.extended_resources.contains(name) && !mapped(name));
    missing.next().map(|(name, _)| format!("Insufficient {name}"))
}

fn affinity(pod: &Value, node: &Node) -> Option<&'static str> {
    let spec = &pod["spec"];
    let tolerations = spec["tolerations"].as_array().map(Vec::as_slice).unwrap_or_default();
    let tolerated = |key: &str, value: &str, effect: &str| {
        tolerations.iter().any(|t| {
            let text = |field: &str| t[field].as_str().unwrap_or_default();
            (text("effect").is_empty() || text("effect") == effect)
                && (text("key") == key || text("key").is_empty() && text("operator") == "Exists")
                && (text("operator") == "Exists" || text("value") == value)
        })
    };
    if node.unschedulable && !tolerated("node.kubernetes.io/unschedulable", "", "NoSchedule") {
        return Some("node(s) were unschedulable");
    }
    let blocks = |effect: &str| matches!(effect, "NoSchedule" | "NoExecute");
    if node.taints.iter().any(|(k, v, e)| blocks(e) && !tolerated(k, v, e)) {
        return Some("node(s) had untolerated taint(s)");
    }
    let labels = spec["nodeSelector"].as_object();
    let selected = labels.is_none_or(|wanted| {
        wanted.iter().all(|(k, v)| {
            node.labels
                .get(k.as_str())
                .is_some_and(|have| Some(&**have) == v.as_str())
        })
    });
    let required = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    if !selected || !(required.is_null() || node_selector(required).matches(node)) {
        return Some("node(s) didn't match Pod's node affinity/selector");
    }
    None
}

fn node_selector(value: &Value) -> NodeSelector {
    let list = |v: &Value| v.as_array().cloned().unwrap_or_default();
    let name = |v: &Value| Name::from(v.as_str().unwrap_or_default());
    let requirements = |v: &Value| {
        let requirement = |r: &Value| Requirement {
            key: name(&r["key"]),
            operator: name(&r["operator"]),
            values: list(&r["values"]).iter().map(name).collect(),
        };
        list(v).iter().map(requirement).collect()
    };
    let term = |t: &Value| NodeSelectorTerm {
        expressions: requirements(&t["matchExpressions"]),
        fields: requirements(&t["matchFields"]),
    };
    NodeSelector {
        terms: list(&value["nodeSelectorTerms"]).iter().map(term).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::{Node, Snapshot, refuses};

    fn node() -> Node {
        Node {
            name: "n1".into(),
            uid: "u".into(),
            labels: Arc::new([("zone".into(), "a".into())].into()),
            annotations: Arc::default(),
            extended_resources: vec![],
            allocatable: None,
            unschedulable: false,
            taints: vec![("gpu".into(), "yes".into(), "NoSchedule".into())],
        }
    }

    #[test]
    fn the_schedulers_own_rules_come_first() {
        let tolerates = json!([{"key": "gpu", "operator": "Exists"}]);
        let affinity = |zone: &str| {
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]}}})
        };
        let cases = [
            (json!({}), Some("node(s) had untolerated taint(s)")),
            (
                json!({"tolerations": [{"key": "gpu", "value": "no"}]}),
                Some("node(s) had untolerated taint(s)"),
            ),
            (
                json!({"tolerations": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}),
                None,
            ),
            (json!({"tolerations": tolerates, "nodeSelector": {"zone": "a"}}), None),
            (
                json!({"tolerations": tolerates, "nodeSelector": {"zone": "b"}}),
                Some("node(s) didn't match Pod's node affinity/selector"),
            ),
            (json!({"tolerations": tolerates, "affinity": affinity("a")}), None),
            (
                json!({"tolerations": tolerates, "affinity": affinity("b")}),
                Some("node(s) didn't match Pod's node affinity/selector"),
            ),
        ];
        for (spec, expected) in cases {
            assert_eq!(
                refuses(&json!({"spec": spec}), &node(), &Snapshot::default()).as_deref(),
                expected,
                "{spec}"
            );
        }
        let mut cordoned = node();
        cordoned.unschedulable = true;
        let tolerated = json!({"spec": {"tolerations": tolerates}});
        assert_eq!(
            refuses(&tolerated, &cordoned, &Snapshot::default()).as_deref(),
            Some("node(s) were unschedulable")
        );
    }
}
