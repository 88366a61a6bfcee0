//! ResourceClaimTemplates of ours, and claims that pods share: made once, whoever else makes them at the same moment; marked as in use; removed when
//! nobody names them.

use serde_json::{Value, json};

use super::api::{APPLY_PATCH, Api, MERGE_PATCH};
use super::paths::Target;
use super::{body, paths};
use crate::cluster::{TEMPLATE_REFRESH, WriteError, used_lately};
use crate::convert::{self, TEMPLATE_LAST_USED};
use crate::model::{Claim, ClaimTemplate, NamespacedName};

const FIELD_MANAGER: &str = "wattlane";
/// Another replica does the same at the same moment at most now and then.
const ATTEMPTS: usize = 3;
/// Pods asked for at a time: their manifests must fit into one answer.
const PODS_A_PAGE: usize = 200;
const MOST_PAGES: usize = 500;

/// GET first: nearly always it is there, and a read is cheaper than a write. Then server-side apply without force.
pub(super) async fn ensure(api: &Api, template: &Value) -> Result<(), WriteError> {
    make(api, template, paths::template).await
}

/// The same for a claim.
pub(super) async fn ensure_claim(api: &Api, claim: &Value) -> Result<(), WriteError> {
    make(api, claim, paths::claim).await
}

type Path = fn(&NamespacedName) -> Result<Target, WriteError>;

async fn make(api: &Api, template: &Value, path: Path) -> Result<(), WriteError> {
    let key = NamespacedName::new(body::meta(template, "namespace"), body::meta(template, "name"));
    let path = path(&key)?;
    let target = path.clone().query(&format!("fieldManager={FIELD_MANAGER}&force=false"));
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let written = match api.get(&path).await {
            Ok(found) => {
                same(&found, template, &key)?;
                let Some(patch) = refresh(&found, template) else {
                    return Ok(());
                };
                api.patch(&path, MERGE_PATCH, &patch).await
            }
            Err(WriteError::NotFound(_)) => match (api.patch(&target, APPLY_PATCH, template).await, last) {
                (Ok(written), _) => return same(&written, template, &key),
                // Twice, and nobody else made it: the API does not want it.
                (Err(e @ WriteError::Refused(_)), Some(WriteError::Refused(_))) => return Err(e),
                (Err(e), _) => Err(e),
            },
            Err(e) => return Err(e),
        };
        match written {
            Ok(_) => return Ok(()),
            // Somebody made, changed or removed it in between: another replica the same, or a stranger something else.
            Err(e @ (WriteError::Conflict(_) | WriteError::Refused(_) | WriteError::NotFound(_))) => last = Some(e),
            Err(e) => return Err(e),
        }
    }
    Err(last.unwrap_or_else(|| WriteError::Conflict(format!("{} changes all the time", path.what))))
}

/// The patch that notes the use, if that is due. As it was read: one that is removed meanwhile is not touched.
fn refresh(found: &Value, wanted: &Value) -> Option<Value> {
    let used = |object: &Value| match object["kind"].as_str() {
        Some("ResourceClaim") => convert::claim(object).map(|c| c.last_used),
        _ => convert::template(object).map(|t| t.last_used),
    };
    let now = used(wanted).unwrap_or_default();
    // Unreadable: never used.
    let noted = used(found).map_or(now < TEMPLATE_REFRESH, |said| used_lately(said, now));
    (!noted).then(|| {
        json!({"metadata": {
            "uid": body::meta(found, "uid"),
            "resourceVersion": body::meta(found, "resourceVersion"),
            "annotations": {TEMPLATE_LAST_USED: wanted["metadata"]["annotations"][TEMPLATE_LAST_USED]},
        }})
    })
}

pub(super) async fn remove(api: &Api, template: &ClaimTemplate) -> Result<(), WriteError> {
    let key = &template.key;
    if let Some(pod) = names_it(api, key).await? {
        return Err(WriteError::Conflict(format!(
            "ResourceClaimTemplate {key} is named by pod {pod}"
        )));
    }
    let options = json!({"preconditions": {"uid": &*template.uid, "resourceVersion": &*template.resource_version}});
    delete(api, &paths::template(key)?, &options).await
}

/// One that is allocated is freed by the claim controller before it goes: nobody uses it.
pub(super) async fn remove_claim(api: &Api, claim: &Claim) -> Result<(), WriteError> {
    let key = &claim.key;
    if !claim.reserved_for.is_empty() {
        return Err(WriteError::Conflict(format!("ResourceClaim {key} is in use")));
    }
    if let Some(pod) = names_it(api, key).await? {
        return Err(WriteError::Conflict(format!(
            "ResourceClaim {key} is named by pod {pod}"
        )));
    }
    let options = json!({"preconditions": {"uid": &*claim.uid, "resourceVersion": &*claim.resource_version}});
    delete(api, &paths::claim(key)?, &options).await
}

async fn delete(api: &Api, target: &Target, options: &Value) -> Result<(), WriteError> {
    match api.delete(target, options).await {
        Err(WriteError::NotFound(_)) => Ok(()),
        other => other,
    }
}

/// A pod that names the template or claim: whatever else is in it, read as it is. A name of the one kind is none of the other.
async fn names_it(api: &Api, key: &NamespacedName) -> Result<Option<String>, WriteError> {
    let pods = paths::pods(&key.namespace)?;
    let mut next = String::new();
    for _ in 0..MOST_PAGES {
        let page = api
            .get(&pods.clone().query(&format!("limit={PODS_A_PAGE}{next}")))
            .await?;
        let items = page["items"].as_array().map_or(&[][..], Vec::as_slice);
        let names = |pod: &Value| {
            let claims = pod["spec"]["resourceClaims"].as_array();
            let named = |c: &Value| c["resourceClaimTemplateName"] == *key.name || c["resourceClaimName"] == *key.name;
            claims.is_some_and(|c| c.iter().any(named))
        };
        if let Some(pod) = items.iter().find(|p| names(p)) {
            return Ok(Some(body::meta(pod, "name").to_owned()));
        }
        match page["metadata"]["continue"].as_str() {
            None | Some("") => return Ok(None),
            // Base64url: nothing in it needs escaping, and what does is not from an API server.
            Some(token) if token.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_=".contains(&b)) => {
                next = format!("&continue={token}");
            }
            Some(_) => break,
        }
    }
    let why = format!("the Pods of namespace {} could not be looked through", key.namespace);
    Err(WriteError::Unknown(why))
}

fn same(found: &Value, wanted: &Value, key: &NamespacedName) -> Result<(), WriteError> {
    let kind = wanted["kind"].as_str().unwrap_or("object");
    let refused = |what: &str| {
        Err(WriteError::Refused(format!(
            "{kind} {key} exists {what}; delete it or rename it, wattlane makes its own under this name"
        )))
    };
    if !labelled_like(found, wanted) {
        return refused("without wattlane's labels");
    }
    if meaning(found) != meaning(wanted) {
        return refused("with other content");
    }
    if !body::meta(found, "deletionTimestamp").is_empty() {
        return Err(WriteError::Conflict(format!(
            "{kind} {key} is being deleted: try again when it is gone"
        )));
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
    // A template has the spec of its claims in its own.
    let at = match spec.get("spec") {
        Some(_) => "/spec/devices/requests",
        None => "/devices/requests",
    };
    if let Some(Value::Array(requests)) = spec.pointer_mut(at) {
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
    fn a_use_is_noted_anew_when_it_is_old_or_still_to_come() {
        let used = |at: &str| {
            let mut template = template(json!({}));
            template["metadata"]["annotations"] = json!({TEMPLATE_LAST_USED: at});
            template
        };
        let now = used("2027-01-15T08:00:00Z");
        for (at, due) in [
            ("2027-01-15T07:31:00Z", false),
            ("2027-01-15T07:30:00Z", true),
            ("2027-01-15T08:05:00Z", false),
            ("9999-01-01T00:00:00Z", true),
        ] {
            assert_eq!(refresh(&used(at), &now).is_some(), due, "{at}");
        }
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
            {
                let mut marking = wanted.clone();
                marking["spec"]["metadata"] = json!({"labels": {"a": "b"}});
                marking
            },
        ] {
            assert!(matches!(check(&other, &wanted), Err(WriteError::Refused(_))), "{other}");
        }
        let mut unlabelled = wanted.clone();
        unlabelled["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "helm"});
        assert!(matches!(check(&unlabelled, &wanted), Err(WriteError::Refused(_))));
    }
}
