//! The parts of Kubernetes that make, free and delete: the claim controller and the garbage collector of
//! kube-controller-manager, and the kubelet as far as it ends pods. Each acts some time after what it acts on.

use std::sync::Arc;

use serde_json::{Value, json};
use wattlane::index::{Kind, Object};
use wattlane::model::{Claim, NamespacedName, Pod};

use super::rng::Rng;
use super::rules::{self, FINALIZER, consumers, finalizers, is_deleting};
use super::store::{Entry, Store, text};

#[derive(Clone, Debug)]
pub(crate) enum Duty {
    /// Make the claims of a pod's templates, one step a call.
    Make(NamespacedName),
    /// Bring one claim's reservations, allocation and finalizer to what is true.
    Sync(NamespacedName),
    /// The kubelet has stopped a pod that is being deleted.
    Stopped(NamespacedName, String),
}

/// What an event makes the keepers do, and after how many milliseconds.
pub(crate) fn duties(store: &Store, entry: &Entry, slow: bool, rng: &mut Rng) -> Vec<(u64, Duty)> {
    let soon = |rng: &mut Rng| match slow && rng.percent(20) {
        true => rng.range(500, 8000),
        false => rng.range(5, 150),
    };
    match (entry.kind, &entry.object) {
        (Kind::Pod, Some(Object::Pod(pod))) => {
            let mut due = vec![];
            if lacks_names(pod) && !pod.deleting {
                due.push((soon(rng), Duty::Make(entry.key.clone())));
            }
            if pod.deleting && !pod.node_name.is_empty() {
                due.push((
                    rng.range(50, 3000),
                    Duty::Stopped(entry.key.clone(), pod.uid.to_string()),
                ));
            }
            if pod.finished {
                due.extend(named(store, pod).map(|claim| (soon(rng), Duty::Sync(claim))));
            }
            due
        }
        (Kind::Pod, None) => {
            let uid = entry
                .old
                .as_ref()
                .map(|old| text(old, "/metadata/uid").to_owned())
                .unwrap_or_default();
            let about =
                |c: &&Claim| c.owner_pod.as_deref() == Some(&*uid) || c.reserved_for.iter().any(|r| *r.uid == *uid);
            let claims: Vec<_> = store.claims().filter(about).map(|c| c.key.clone()).collect();
            claims.into_iter().map(|claim| (soon(rng), Duty::Sync(claim))).collect()
        }
        (Kind::Claim, Some(_)) if step(store, &entry.key).is_some() => vec![(soon(rng), Duty::Sync(entry.key.clone()))],
        _ => vec![],
    }
}

/// Does it; true: there is more of it to do.
pub(crate) fn perform(store: &mut Store, duty: &Duty) -> bool {
    match duty {
        Duty::Make(pod) => make(store, pod),
        Duty::Sync(claim) => match step(store, claim) {
            None => false,
            Some(Step::Write(raw)) => {
                store.put(raw);
                step(store, claim).is_some()
            }
            Some(Step::Unfinalized(raw)) if is_deleting(&raw) && finalizers(&raw).is_empty() => {
                store.remove(Kind::Claim, claim);
                false
            }
            Some(Step::Unfinalized(raw)) => {
                store.put(raw);
                step(store, claim).is_some()
            }
            Some(Step::Delete) => {
                rules::delete(store, Kind::Claim, claim);
                step(store, claim).is_some()
            }
        },
        Duty::Stopped(key, uid) => {
            if store.pod(key).is_some_and(|p| *p.uid == **uid) {
                store.remove(Kind::Pod, key);
            }
            false
        }
    }
}

fn lacks_names(pod: &Pod) -> bool {
    pod.claims.iter().any(|c| c.claim_name().is_none())
}

fn named<'a>(store: &'a Store, pod: &'a Pod) -> impl Iterator<Item = NamespacedName> + 'a {
    let names = pod.claims.iter().filter_map(|c| c.claim_name());
    let keys = names.map(|name| NamespacedName::new(pod.key.namespace.clone(), name.clone()));
    keys.filter(|key| store.claim(key).is_some())
}

/// First the claims, then (a call later) their names in the pod's status, as two writes to the API are.
fn make(store: &mut Store, key: &NamespacedName) -> bool {
    let Some(pod) = store.pod(key).filter(|p| !p.deleting && lacks_names(p)).cloned() else {
        return false;
    };
    let raw = Arc::clone(store.raw(Kind::Pod, key).expect("the pod is there"));
    let mut statuses = vec![];
    let mut made = false;
    for (i, entry) in raw["spec"]["resourceClaims"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        let template = text(entry, "/resourceClaimTemplateName");
        if template.is_empty() {
            continue;
        }
        let name = format!("{}-{}-{i}", key.name, pod.uid);
        statuses.push(json!({"name": entry["name"], "resourceClaimName": name}));
        if store
            .claim(&NamespacedName::new(key.namespace.clone(), name.as_str()))
            .is_some()
        {
            continue;
        }
        let template = NamespacedName::new(key.namespace.clone(), template);
        let template = store
            .raw(Kind::Template, &template)
            .expect("a template of the scenario");
        let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"namespace": &*key.namespace, "name": name, "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": &*key.name, "uid": &*pod.uid, "controller": true}]},
            "spec": template["spec"]["spec"]});
        store.create(claim);
        made = true;
    }
    if !made {
        let mut named = Value::clone(&raw);
        named["status"]["resourceClaimStatuses"] = statuses.into();
        store.put(named);
    }
    made
}

enum Step {
    Write(Value),
    Unfinalized(Value),
    Delete,
}

/// The next write `syncClaim` of the claim controller (or the collector of what has lost its owner) makes, if any.
fn step(store: &Store, key: &NamespacedName) -> Option<Step> {
    let raw = store.raw(Kind::Claim, key)?;
    let claim = store.claim(key)?;
    let alive = |uid: &str| store.pods().any(|p| &*p.uid == uid && !p.finished);
    let reserved = consumers(raw);
    let valid: Vec<&Value> = raw["status"]["reservedFor"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|c| alive(text(c, "/uid")))
        .collect();
    let protected = finalizers(raw).contains(&FINALIZER);
    let allocated = !raw["status"]["allocation"].is_null();
    if valid.len() < reserved.len() {
        let mut new = Value::clone(raw);
        let status = new["status"].as_object_mut()?;
        if valid.is_empty() {
            status.remove("reservedFor");
            // Without the finalizer it is not the controller's to free.
            if protected {
                status.remove("allocation");
                status.remove("devices");
            }
        } else {
            status.insert("reservedFor".to_owned(), json!(valid));
        }
        return Some(Step::Write(new));
    }
    let owner_gone = claim.owner_pod.as_ref().is_some_and(|owner| !alive(owner));
    if owner_gone && !is_deleting(raw) && valid.is_empty() {
        return Some(Step::Delete);
    }
    // Never reserved, or freed a step ago.
    if is_deleting(raw) && valid.is_empty() && protected {
        let mut new = Value::clone(raw);
        if allocated {
            new["status"].as_object_mut()?.remove("allocation");
            return Some(Step::Write(new));
        }
        unprotect(&mut new);
        return Some(Step::Unfinalized(new));
    }
    // Freed by the controller itself: it takes the finalizer with it.
    None
}

fn unprotect(raw: &mut Value) {
    if let Some(metadata) = raw["metadata"].as_object_mut() {
        metadata.remove("finalizers");
    }
}
