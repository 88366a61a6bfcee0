//! What the API server does with a request, and what it refuses: the rules of kube-apiserver 1.36 as far as a scheduler
//! meets them (registry strategies and validation of core/v1 pods, resource.k8s.io/v1 claims, coordination/v1 leases).

use serde_json::{Value, json};
use wattlane::index::Kind;
use wattlane::model::NamespacedName;

use super::store::{Store, text};

pub(crate) const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Milliseconds from its arrival within which it is carried out, or never.
    pub(crate) limit: Option<u64>,
    pub(crate) body: Value,
}

#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl Answer {
    fn ok(body: &Value) -> Self {
        Self {
            status: 200,
            body: body.clone(),
        }
    }

    pub(crate) fn no(status: u16, message: &str) -> Self {
        Self {
            status,
            body: json!({"kind": "Status", "status": "Failure", "code": status, "message": message}),
        }
    }
}

pub(crate) fn answer(store: &mut Store, request: &Request) -> Answer {
    let parts: Vec<&str> = request
        .path
        .split('/')
        .skip_while(|p| *p != "namespaces")
        .skip(1)
        .collect();
    let (namespace, kind, rest) = match parts.as_slice() {
        [namespace, kind, rest @ ..] => (*namespace, *kind, rest),
        _ => return Answer::no(404, "the server could not find the requested resource"),
    };
    let key = NamespacedName::new(
        namespace,
        rest.first().copied().unwrap_or(text(&request.body, "/metadata/name")),
    );
    match (request.method.as_str(), kind, rest) {
        // Only ever asked for by the leader's label.
        ("GET", "pods", []) => leaders(store),
        ("GET", "pods", [_]) => read(store, Kind::Pod, &key),
        ("GET", "resourceclaims", [_]) => read(store, Kind::Claim, &key),
        ("POST", "pods", [_, "binding"]) => bind(store, &key, &request.body),
        ("PATCH", "pods", [_]) => patch_pod(store, &key, &request.body),
        ("PATCH", "resourceclaims", [_]) => patch_claim(store, &key, &request.body),
        ("PUT", "resourceclaims", [_]) => put_claim(store, &key, &request.body),
        ("PUT", "resourceclaims", [_, "status"]) => put_claim_status(store, &key, &request.body),
        (method, "leases", _) => lease(store, method, &key, &request.body),
        _ => panic!("{} {} is not simulated", request.method, request.path),
    }
}

fn leaders(store: &Store) -> Answer {
    let leads = |raw: &&std::sync::Arc<Value>| text(raw, "/metadata/labels/wattlane.dev~1leader") == "true";
    let items: Vec<&Value> = store
        .all(Kind::Pod)
        .map(|(_, raw)| raw)
        .filter(leads)
        .map(|raw| &**raw)
        .collect();
    Answer::ok(&json!({"kind": "PodList", "items": items}))
}

fn read(store: &Store, kind: Kind, key: &NamespacedName) -> Answer {
    match store.raw(kind, key) {
        Some(raw) => Answer::ok(raw),
        None => Answer::no(404, &format!("{} {key} not found", kind.as_str())),
    }
}

fn bind(store: &mut Store, key: &NamespacedName, binding: &Value) -> Answer {
    let Some(pod) = store.raw(Kind::Pod, key) else {
        return Answer::no(404, &format!("pods {key} not found"));
    };
    let uid = text(binding, "/metadata/uid");
    if !uid.is_empty() && uid != text(pod, "/metadata/uid") {
        return Answer::no(409, "Precondition failed: UID in precondition");
    }
    if is_deleting(pod) {
        return Answer::no(409, "pod is being deleted, cannot be assigned to a host");
    }
    let node = text(pod, "/spec/nodeName");
    if !node.is_empty() {
        return Answer::no(409, &format!("pod is already assigned to node {node:?}"));
    }
    let mut pod = Value::clone(pod);
    pod["spec"]["nodeName"] = binding["target"]["name"].clone();
    store.put(pod);
    Answer {
        status: 201,
        body: json!({"kind": "Status", "status": "Success"}),
    }
}

/// A merge patch of metadata.
fn patch_pod(store: &mut Store, key: &NamespacedName, patch: &Value) -> Answer {
    let Some(pod) = store.raw(Kind::Pod, key) else {
        return Answer::no(404, &format!("pods {key} not found"));
    };
    let uid = text(patch, "/metadata/uid");
    if !uid.is_empty() && uid != text(pod, "/metadata/uid") {
        return Answer::no(409, "Precondition failed: UID in precondition");
    }
    let mut pod = Value::clone(pod);
    for (name, value) in patch["metadata"]["labels"].as_object().into_iter().flatten() {
        // A poke carries the time, and that of this machine's clock is no part of a schedule.
        pod["metadata"]["labels"][name] = match name.as_str() {
            "wattlane.dev/poked" => pod["metadata"]["resourceVersion"].clone(),
            _ => value.clone(),
        };
        if value.is_null()
            && let Some(labels) = pod["metadata"]["labels"].as_object_mut()
        {
            labels.remove(name);
        }
    }
    Answer::ok(&store.put(pod))
}

/// The preconditions every PUT of an existing object has.
fn preconditions(old: &Value, new: &Value) -> Result<(), Answer> {
    for (field, words) in [
        ("/metadata/uid", "UID in precondition"),
        ("/metadata/resourceVersion", "the object has been modified"),
    ] {
        let wanted = text(new, field);
        if !wanted.is_empty() && wanted != text(old, field) {
            return Err(Answer::no(409, &format!("Operation cannot be fulfilled: {words}")));
        }
    }
    Ok(())
}

/// A strategic merge patch that adds finalizers.
fn patch_claim(store: &mut Store, key: &NamespacedName, patch: &Value) -> Answer {
    let Some(old) = store.raw(Kind::Claim, key) else {
        return Answer::no(404, &format!("resourceclaims {key} not found"));
    };
    let mut new = Value::clone(old);
    let before = finalizers(old);
    let added: Vec<&str> = finalizers(patch).into_iter().filter(|f| !before.contains(f)).collect();
    new["metadata"]["finalizers"] = json!([before, added].concat());
    for field in ["uid", "resourceVersion"] {
        new["metadata"][field] = patch["metadata"][field].clone();
    }
    put_claim(store, key, &new)
}

fn put_claim(store: &mut Store, key: &NamespacedName, body: &Value) -> Answer {
    let Some(old) = store.raw(Kind::Claim, key).cloned() else {
        return Answer::no(404, &format!("resourceclaims {key} not found"));
    };
    if let Err(no) = preconditions(&old, body) {
        return no;
    }
    if old["spec"] != body["spec"] {
        return Answer::no(422, "spec: Invalid value: field is immutable");
    }
    let (before, after) = (finalizers(&old), finalizers(body));
    if is_deleting(&old) && after.iter().any(|f| !before.contains(f)) {
        return Answer::no(
            422,
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted",
        );
    }
    // The main resource drops what is written to the status.
    let mut new = Value::clone(&old);
    let metadata = new["metadata"].as_object_mut().expect("an object has metadata");
    match after.is_empty() {
        true => drop(metadata.remove("finalizers")),
        false => drop(metadata.insert("finalizers".to_owned(), json!(after))),
    }
    if is_deleting(&new) && after.is_empty() {
        store.remove(Kind::Claim, key);
        return Answer::ok(&new);
    }
    Answer::ok(&store.put(new))
}

fn put_claim_status(store: &mut Store, key: &NamespacedName, body: &Value) -> Answer {
    let Some(old) = store.raw(Kind::Claim, key).cloned() else {
        return Answer::no(404, &format!("resourceclaims {key} not found"));
    };
    if let Err(no) = preconditions(&old, body) {
        return no;
    }
    let mut new = Value::clone(&old);
    new["status"] = body.get("status").cloned().unwrap_or_else(|| json!({}));
    let (was, is) = (&old["status"]["allocation"], &new["status"]["allocation"]);
    if !was.is_null() && !is.is_null() && was != is {
        return Answer::no(422, "status.allocation: Invalid value: field is immutable once set");
    }
    let (before, after) = (consumers(&old), consumers(&new));
    if !after.is_empty() && is.is_null() {
        return Answer::no(
            422,
            "status.reservedFor: Forbidden: may not be specified when `allocated` is not set",
        );
    }
    if is_deleting(&old) && after.iter().any(|c| !before.contains(c)) {
        return Answer::no(
            422,
            "status.reservedFor: Forbidden: new entries may not be added while `deletionTimestamp` is set",
        );
    }
    let twice = (1..after.len()).any(|i| after[..i].contains(&after[i]));
    if twice || after.len() > 256 {
        return Answer::no(422, "status.reservedFor: Duplicate value, or too many");
    }
    Answer::ok(&store.put(new))
}

fn lease(store: &mut Store, method: &str, key: &NamespacedName, body: &Value) -> Answer {
    match (method, store.lease(key)) {
        ("GET", Some(lease)) => Answer::ok(lease),
        ("POST", Some(_)) => Answer::no(409, "leases already exists"),
        ("POST", None) => Answer {
            status: 201,
            body: store.put_lease(key, body.clone()),
        },
        ("PATCH", Some(old)) => match preconditions(old, body) {
            Err(no) => no,
            Ok(()) => {
                let mut new = old.clone();
                for (field, value) in body["spec"].as_object().into_iter().flatten() {
                    new["spec"][field] = value.clone();
                }
                Answer::ok(&store.put_lease(key, new))
            }
        },
        (_, None) => Answer::no(404, &format!("leases {key} not found")),
        _ => panic!("{method} of a lease is not simulated"),
    }
}

pub(crate) fn is_deleting(raw: &Value) -> bool {
    !text(raw, "/metadata/deletionTimestamp").is_empty()
}

pub(crate) fn finalizers(raw: &Value) -> Vec<&str> {
    let list = raw["metadata"]["finalizers"].as_array();
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

pub(crate) fn consumers(raw: &Value) -> Vec<&str> {
    let list = raw["status"]["reservedFor"].as_array();
    list.into_iter().flatten().map(|c| text(c, "/uid")).collect()
}

/// DELETE without grace: what has a finalizer is marked, everything else is gone.
pub(crate) fn delete(store: &mut Store, kind: Kind, key: &NamespacedName) {
    let Some(old) = store.raw(kind, key).cloned() else {
        return;
    };
    match finalizers(&old).is_empty() {
        true => store.remove(kind, key),
        false => mark_deleted(store, kind, key),
    }
}

pub(crate) fn mark_deleted(store: &mut Store, kind: Kind, key: &NamespacedName) {
    let Some(old) = store.raw(kind, key).filter(|old| !is_deleting(old)) else {
        return;
    };
    let mut new = Value::clone(old);
    new["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    store.put(new);
}
