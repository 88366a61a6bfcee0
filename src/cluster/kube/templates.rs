//! Makes a ResourceClaimTemplate of ours, once, whoever else makes it at the same moment.

use serde_json::{Value, json};

use super::api::{APPLY_PATCH, Api};
use super::{body, paths};
use crate::cluster::WriteError;
use crate::model::NamespacedName;

const FIELD_MANAGER: &str = "wattlane";

/// GET first: nearly always it is there, and a read is cheaper than a write. Then server-side apply without force.
pub(super) async fn ensure(api: &Api, template: &Value) -> Result<(), WriteError> {
    let key = NamespacedName::new(body::meta(template, "namespace"), body::meta(template, "name"));
    let path = paths::template(&key)?;
    match api.get(&path).await {
        Ok(found) => return same(&found, template, &key),
        Err(WriteError::NotFound(_)) => {}
        Err(e) => return Err(e),
    }
    let target = path.clone().query(&format!("fieldManager={FIELD_MANAGER}&force=false"));
    match api.patch(&target, APPLY_PATCH, template).await {
        Ok(written) => same(&written, template, &key),
        // Somebody made it in between: another replica the same, or a stranger something else.
        Err(e @ (WriteError::Conflict(_) | WriteError::Refused(_))) => match api.get(&path).await {
            Ok(found) => same(&found, template, &key),
            Err(_) => Err(e),
        },
        Err(e) => Err(e),
    }
}

fn same(found: &Value, wanted: &Value, key: &NamespacedName) -> Result<(), WriteError> {
    let refused = |what: &str| {
        Err(WriteError::Refused(format!(
            "ResourceClaimTemplate {key} exists {what}; delete it or rename it, wattlane makes its own under this name"
        )))
    };
    if !labelled_like(found, wanted) {
        return refused("without wattlane's labels");
    }
    if meaning(found) != meaning(wanted) {
        return refused("with other content");
    }
    Ok(())
}

/// All labels we would write are there with our values: that is how we know it for ours.
fn labelled_like(found: &Value, wanted: &Value) -> bool {
    let labels = |v: &Value| v.pointer("/metadata/labels").and_then(Value::as_object).cloned();
    let found = labels(found).unwrap_or_default();
    labels(wanted)
        .unwrap_or_default()
        .iter()
        .all(|(k, v)| found.get(k) == Some(v))
}

/// The spec with the API server's defaults filled in and empty parts left out, so that what was sent and what came
/// back compare equal exactly when they mean the same.
fn meaning(template: &Value) -> Value {
    let mut spec = template.get("spec").cloned().unwrap_or(Value::Null);
    if let Some(Value::Array(requests)) = spec.pointer_mut("/spec/devices/requests") {
        for request in requests {
            if let Some(exactly) = request.get_mut("exactly") {
                defaults(exactly);
            }
            if let Some(Value::Array(alternatives)) = request.get_mut("firstAvailable") {
                alternatives.iter_mut().for_each(defaults);
            }
        }
    }
    without_empty(spec)
}

/// k8s.io/kubernetes/pkg/apis/resource/v1/defaults.go
fn defaults(request: &mut Value) {
    let Some(request) = request.as_object_mut() else { return };
    let mode = request.entry("allocationMode").or_insert_with(|| json!("ExactCount"));
    if mode == "ExactCount" {
        request.entry("count").or_insert_with(|| json!(1));
    }
    if let Some(Value::Array(tolerations)) = request.get_mut("tolerations") {
        for toleration in tolerations.iter_mut().filter_map(Value::as_object_mut) {
            toleration.entry("operator").or_insert_with(|| json!("Equal"));
        }
    }
}

fn without_empty(value: Value) -> Value {
    let empty = |v: &Value| match v {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    };
    match value {
        Value::Object(map) => map
            .into_iter()
            .map(|(k, v)| (k, without_empty(v)))
            .filter(|(_, v)| !empty(v))
            .collect(),
        Value::Array(list) => list.into_iter().map(without_empty).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(spec: Value) -> Value {
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "t", "namespace": "ns", "labels": {"app.kubernetes.io/managed-by": "wattlane"}},
            "spec": {"spec": spec},
        })
    }

    fn check(found: &Value, wanted: &Value) -> Result<(), WriteError> {
        same(found, wanted, &NamespacedName::new("ns", "t"))
    }

    #[test]
    fn the_servers_defaults_and_empty_parts_do_not_count_as_a_difference() {
        let wanted = template(json!({"devices": {"requests": [
            {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}},
        ]}}));
        let mut found = template(json!({"devices": {"config": [], "requests": [
            {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 1}},
        ]}}));
        found["spec"]["metadata"] = json!({});
        found["metadata"]["resourceVersion"] = json!("5");
        assert_eq!(check(&found, &wanted), Ok(()));
    }

    #[test]
    fn other_content_or_a_strangers_template_is_refused() {
        let exactly = |e: Value| template(json!({"devices": {"requests": [{"name": "gpu", "exactly": e}]}}));
        let wanted = exactly(json!({"deviceClassName": "gpu.nvidia.com", "count": 2}));
        for other in [
            exactly(json!({"deviceClassName": "gpu.nvidia.com", "count": 1})),
            exactly(json!({"deviceClassName": "gpu.nvidia.com", "count": 2, "adminAccess": true})),
            exactly(json!({"deviceClassName": "gpu.nvidia.com", "allocationMode": "All"})),
            template(json!({"devices": {"requests": []}})),
        ] {
            assert!(matches!(check(&other, &wanted), Err(WriteError::Refused(_))), "{other}");
        }
        let mut unlabelled = wanted.clone();
        unlabelled["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "helm"});
        assert!(matches!(check(&unlabelled, &wanted), Err(WriteError::Refused(_))));
    }
}
