//! Pods: created, bound and deleted, with the claims that the claim controller makes for them.

use serde_json::{Map, Value, json};

use super::load;
use super::state::State;
use super::stored::StoredPod;
use crate::cluster::WriteError;
use crate::convert;
use crate::index::{Change, Key, Kind, Object};
use crate::model::{Claim, Name, NamespacedName, Pod, PodClaim, PodClaimSource};

/// Why a pod has not got its claims.
pub(super) enum NoClaim {
    /// There is no template to make it from.
    NoTemplate(String),
    /// Another object has the name.
    Taken(String),
}

impl State {
    pub(super) fn create_pod(&mut self, mut json: Value) -> Result<Pod, WriteError> {
        load::set_head(&mut json, Kind::Pod);
        let revision = self.next_revision();
        let pod = load::complete(Kind::Pod, &mut json, revision)
            .and_then(|()| convert::pod(&json))
            .map_err(|e| WriteError::Refused(e.to_string()))?;
        let key = pod.key.clone();
        if self.pods.contains_key(&key) {
            return Err(WriteError::Refused(format!("pod {key} already exists")));
        }
        self.live_namespace(&key)?;
        let made = self.missing_claims(&pod).map_err(|why| {
            let (NoClaim::NoTemplate(what) | NoClaim::Taken(what)) = why;
            WriteError::Refused(format!("pod {key}: {what}"))
        })?;
        self.store_pod(json, made)
    }

    /// Puts the pod into the cluster with the claims of its templates.
    pub(super) fn store_pod(&mut self, mut json: Value, claims: Vec<(Name, Claim)>) -> Result<Pod, WriteError> {
        let version = self.next_revision().to_string();
        json["metadata"]["resourceVersion"] = version.into();
        for (entry, claim) in claims {
            say_claim(&mut json, &entry, &claim.key.name);
            if self.claims.get(&claim.key) != Some(&claim) {
                self.put_claim(claim);
            }
        }
        let pod = convert::pod(&json).map_err(|e| WriteError::Refused(e.to_string()))?;
        self.note(Change::Upsert(Object::Pod(pod.clone())));
        self.pods.insert(pod.key.clone(), StoredPod::of(json));
        Ok(pod)
    }

    /// Whether the claim is stored as it is here, and the pod says its name.
    pub(super) fn has(&self, pod: &Pod, entry: &Name, claim: &Claim) -> bool {
        let said = |c: &PodClaim| c.name == *entry && c.claim_name() == Some(&claim.key.name);
        pod.claims.iter().any(said) && self.claims.get(&claim.key) == Some(claim)
    }

    /// The claims of the pod's templates by the pod's name for each: those that are there, and new ones. Nothing is
    /// stored yet, so that a pod is created with all of them or not at all.
    pub(super) fn missing_claims(&self, pod: &Pod) -> Result<Vec<(Name, Claim)>, NoClaim> {
        let mut claims: Vec<(Name, Claim)> = vec![];
        for entry in &pod.claims {
            let PodClaimSource::Template(template) = &entry.source else {
                continue;
            };
            let name = match &entry.generated {
                // Decided before: no claim is needed.
                Some(None) => continue,
                Some(Some(name)) => name.clone(),
                None => format!("{}-{}", pod.key.name, entry.name).into(),
            };
            let key = Key::new(pod.key.namespace.clone(), name);
            let same_name = claims.iter().map(|(_, c)| c).find(|c| c.key == key);
            if let Some(found) = self.claims.get(&key).or(same_name) {
                if same_name.is_some() || found.owner_pod.as_ref() != Some(&pod.uid) {
                    return Err(NoClaim::Taken(format!(
                        "its claim {} would be ResourceClaim {key}, which exists and is not this pod's",
                        entry.name
                    )));
                }
                claims.push((entry.name.clone(), found.clone()));
                continue;
            }
            let template_key = Key::new(pod.key.namespace.clone(), template.clone());
            let Some(template) = self.templates.get(&template_key) else {
                return Err(NoClaim::NoTemplate(format!(
                    "its claim {} needs ResourceClaimTemplate {template_key}, which does not exist",
                    entry.name
                )));
            };
            let made = Claim {
                // The pod's UID is new with every pod, and so is the claim's.
                uid: load::uid_of(&["ResourceClaim", &pod.uid, &entry.name]),
                key,
                resource_version: "".into(),
                deleting: false,
                protected: false,
                owner_pod: Some(pod.uid.clone()),
                managed: false,
                last_used: 0,
                spec: template.spec.clone(),
                allocation: None,
                allocated_at: None,
                conditions: vec![],
                reserved_for: vec![],
            };
            claims.push((entry.name.clone(), made));
        }
        Ok(claims)
    }

    pub(super) fn bind(&mut self, key: &NamespacedName, uid: &str, node: &str) -> Result<(), WriteError> {
        let Some((mut json, pod)) = self.pods.get(key).and_then(|found| Some((found.json(), found.pod()?))) else {
            return Err(WriteError::NotFound(format!("pod {key} not found")));
        };
        let conflict = |what: String| Err(WriteError::Conflict(format!("pod {key} {what}")));
        if &*pod.uid != uid {
            return conflict(format!("with UID {uid} is gone: another has its name"));
        }
        if &*pod.node_name == node {
            return Ok(());
        }
        if !pod.node_name.is_empty() {
            return conflict(format!("is already assigned to node {}", pod.node_name));
        }
        if pod.deleting {
            return conflict("is being deleted, cannot be assigned to a node".into());
        }
        if node.is_empty() {
            return Err(WriteError::Refused(format!(
                "pod {key}: a binding needs the name of a node"
            )));
        }
        json["spec"]["nodeName"] = node.into();
        self.store_pod(json, vec![]).map(drop)
    }

    pub(super) fn delete_pod(&mut self, key: &NamespacedName) -> Result<(), WriteError> {
        let Some(pod) = self.pods.remove(key).and_then(|stored| stored.pod()) else {
            return Err(WriteError::NotFound(format!("pod {key} not found")));
        };
        self.note(Change::Remove(Kind::Pod, key.clone()));
        let named = pod.claims.iter().filter_map(|c| c.claim_name());
        for name in named.chain(&pod.extended_resource_claim) {
            let key = Key::new(key.namespace.clone(), name.clone());
            let Some(claim) = self.claims.get(&key) else { continue };
            if claim.owner_pod.as_ref() == Some(&pod.uid) {
                self.remove_claim(&key);
            } else if claim.reserved_for.iter().any(|c| c.uid == pod.uid) {
                let uid = claim.uid.clone();
                self.unreserve(&key, &uid, &pod.uid, true);
            }
        }
        Ok(())
    }
}

/// Writes the claim's name where the claim controller does.
fn say_claim(pod: &mut Value, entry: &str, claim: &str) {
    let Some(pod) = pod.as_object_mut() else { return };
    let Some(status) = object(pod.entry("status").or_insert(Value::Null)) else {
        return;
    };
    let list = status.entry("resourceClaimStatuses").or_insert(Value::Null);
    if list.is_null() {
        *list = json!([]);
    }
    let Some(list) = list.as_array_mut() else { return };
    if list.iter().all(|s| s["name"] != entry) {
        list.push(json!({"name": entry, "resourceClaimName": claim}));
    }
}

/// The object, made where there is nothing yet.
fn object(value: &mut Value) -> Option<&mut Map<String, Value>> {
    if value.is_null() {
        *value = json!({});
    }
    value.as_object_mut()
}
