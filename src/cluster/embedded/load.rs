//! From files to the first state: sorts objects by kind, gives them the identity an API server would have given, and
//! holds back the pods that wait for a node.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::doubts::Doubts;
use super::pods::NoClaim;
use super::state::State;
use super::stored::{Specs, StoredPod};
use super::{Embedded, Skipped, assume};
use crate::cluster::strict;
use crate::convert::{self, ConvertError};
use crate::index::{Key, Kind, Object};
use crate::model::Name;

#[derive(Default)]
pub(super) struct Loader {
    state: State,
    pending: Vec<Value>,
    /// Pods on nodes, in file order: their claims can be looked at when everything is read.
    running: Vec<StoredPod>,
    specs: Specs,
    /// What tells another pod of the same name from the same pod once more.
    pods: HashMap<Key, u64>,
    /// What is odd in manifests.
    odd: Vec<String>,
    skipped: BTreeMap<String, Skipped>,
    hasher: RandomState,
}

impl Loader {
    pub(super) fn take(&mut self, file: &Path, mut value: Value) -> anyhow::Result<()> {
        let Some(kind) = convert::kind(&value) else {
            let text = |field: &str| value[field].as_str().unwrap_or_default();
            let name = format!("{} {}", text("apiVersion"), text("kind"));
            let first = || Skipped {
                count: 0,
                file: file.to_owned(),
            };
            self.skipped.entry(name).or_insert_with(first).count += 1;
            return Ok(());
        };
        if kind == Kind::Pod {
            return self.take_pod(value);
        }
        // Written by hand, as far as one can tell: what is out of a cluster has a UID. Pods are looked at when they are created.
        if value.pointer("/metadata/uid").is_none() {
            let name = convert::describe(kind, &value);
            let odd = strict::doubts(kind, &value);
            self.odd.extend(odd.iter().map(|what| format!("{name}: {what}")));
        }
        if matches!(kind, Kind::Node | Kind::Claim | Kind::Template) {
            // What is wrong with it is said, with its name, below.
            let _ = complete(kind, &mut value, 0);
        }
        let Some(object) = convert::object(&value)? else {
            return Ok(());
        };
        self.state.seen_revision(revision(&value));
        let (key, state) = (object.key(), &mut self.state);
        let twice = match object {
            Object::Claim(new) => differs(state.claims.insert(key.clone(), new.clone()), &new),
            Object::Template(new) => differs(state.templates.insert(key.clone(), new.clone()), &new),
            Object::Namespace(new) => {
                let new = assume::named(new);
                differs(state.namespaces.insert(key.clone(), new.clone()), &new)
            }
            new => differs(state.others.insert((kind, key.clone()), new.clone()), &new),
        };
        if twice {
            return Err(defined_twice(kind, &key));
        }
        Ok(())
    }

    fn take_pod(&mut self, mut value: Value) -> anyhow::Result<()> {
        set_namespace(&mut value);
        let Some(Object::Pod(pod)) = convert::object(&value)? else {
            return Ok(());
        };
        self.state.seen_revision(revision(&value));
        let content = self.hasher.hash_one(&value);
        match self.pods.get(&pod.key) {
            Some(found) if *found == content => return Ok(()),
            Some(_) => return Err(defined_twice(Kind::Pod, &pod.key)),
            None => {}
        }
        self.pods.insert(pod.key, content);
        if pod.node_name.is_empty() && !pod.finished {
            self.pending.push(value);
        } else {
            trim(&mut value);
            complete(Kind::Pod, &mut value, 0)?;
            self.running.push(StoredPod::sharing(value, &mut self.specs));
        }
        Ok(())
    }

    /// `empty`: files without an object.
    pub(super) fn finish(self, empty: &[PathBuf]) -> anyhow::Result<Embedded> {
        let Self {
            mut state,
            pending,
            running,
            pods,
            odd,
            skipped,
            ..
        } = self;
        // Claims without a version of their own get one now: newer than all that is in the files.
        let unversioned = state.claims.values().filter(|c| c.resource_version.is_empty());
        let unversioned: Vec<_> = unversioned.cloned().collect();
        for claim in unversioned {
            state.put_claim(claim);
        }
        let mut assumptions = assume::fill_in(&mut state, pods.keys());
        let mut without_claims = vec![];
        let mut doubts = Doubts::new(&state, empty, odd);
        for stored in running {
            let pod = stored
                .pod()
                .context("a pod of the files cannot be read a second time")?;
            doubts.on_node(&pod);
            let claims = match state.missing_claims(&pod) {
                // It holds nothing any more, and what it held may be gone.
                _ if pod.finished => vec![],
                Ok(claims) => claims,
                Err(NoClaim::Taken(what)) => bail!("pod {}: {what}", pod.key),
                Err(NoClaim::NoTemplate(_)) => {
                    without_claims.push(pod.key.clone());
                    vec![]
                }
            };
            if claims.iter().all(|(entry, claim)| state.has(&pod, entry, claim)) {
                state.pods.insert(pod.key, stored);
                continue;
            }
            state
                .store_pod(stored.json(), claims)
                .with_context(|| format!("pod {}", pod.key))?;
        }
        if let Some(first) = without_claims.first() {
            assumptions.push(format!(
                "pods on nodes with claims that are not in the files: {} (the first is {first}); \
                 they are taken to hold no device of those claims",
                without_claims.len()
            ));
        }
        Ok(Embedded::new(state, pending, assumptions, doubts.said(), skipped))
    }
}

/// Takes out of a pod that is on its node what nobody will ask for: it is most of it, and there are tens of thousands.
fn trim(pod: &mut Value) {
    let keep = |value: Option<&mut Value>, wanted: &[&str]| {
        if let Some(fields) = value.and_then(Value::as_object_mut) {
            fields.retain(|field, _| wanted.contains(&field.as_str()));
        }
    };
    if let Some(meta) = metadata(pod) {
        for field in ["managedFields", "generateName", "selfLink", "generation"] {
            meta.remove(field);
        }
        for field in ["annotations", "labels"] {
            if let Some(entries) = meta.get_mut(field).and_then(Value::as_object_mut) {
                entries.retain(|key, _| convert::is_read(key));
            }
        }
        if let Some(owners) = meta.get_mut("ownerReferences").and_then(Value::as_array_mut) {
            owners.retain(|owner| owner["kind"] == "DaemonSet");
        }
        let is_empty =
            |value: &Value| value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty);
        meta.retain(|_, value| !is_empty(value));
    }
    for list in ["/spec/containers", "/spec/initContainers"] {
        let containers = pod.pointer_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            keep(Some(container), &["name", "resources", "restartPolicy"]);
        }
    }
    let spec = [
        "schedulerName",
        "nodeName",
        "nodeSelector",
        "affinity",
        "tolerations",
        "resourceClaims",
        "containers",
        "initContainers",
        "overhead",
        "schedulingGates",
    ];
    keep(pod.get_mut("spec"), &spec);
    keep(
        pod.get_mut("status"),
        &["phase", "resourceClaimStatuses", "extendedResourceClaimStatus"],
    );
}

/// Whether something else was there before.
fn differs<T: PartialEq>(old: Option<T>, new: &T) -> bool {
    old.is_some_and(|old| old != *new)
}

fn defined_twice(kind: Kind, key: &Key) -> anyhow::Error {
    let name = if kind.namespaced() {
        key.to_string()
    } else {
        key.name.to_string()
    };
    anyhow::anyhow!(
        "{} {name} is there twice, with different content: remove one",
        kind.as_str()
    )
}

fn revision(object: &Value) -> u64 {
    let text = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    text.and_then(|t| t.parse().ok()).unwrap_or(0)
}

/// apiVersion and kind, which a client need not send.
pub(super) fn set_head(object: &mut Value, kind: Kind) {
    if let Some(fields) = object.as_object_mut() {
        fields.entry("apiVersion").or_insert_with(|| "v1".into());
        fields.entry("kind").or_insert_with(|| kind.as_str().into());
    }
}

fn metadata(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.get_mut("metadata")?.as_object_mut()
}

fn set_namespace(object: &mut Value) {
    if let Some(meta) = metadata(object)
        && meta.get("namespace").and_then(Value::as_str).is_none_or(str::is_empty)
    {
        meta.insert("namespace".into(), "default".into());
    }
}

/// Namespace and UID, where the object has none. `revision` tells pods of one name apart; 0 for those of files.
pub(super) fn complete(kind: Kind, object: &mut Value, revision: u64) -> Result<(), ConvertError> {
    let missing = |path: &str| ConvertError {
        object: kind.as_str().into(),
        path: path.into(),
        message: "missing: every object needs a name".into(),
    };
    if kind.namespaced() {
        set_namespace(object);
    }
    let key = convert::key(kind, object).ok_or_else(|| missing("metadata.name"))?;
    if kind == Kind::Pod && !object.get("spec").is_some_and(Value::is_object) {
        return Err(ConvertError {
            object: format!("Pod {key}"),
            path: "spec".into(),
            message: "missing, or not an object".into(),
        });
    }
    let meta = metadata(object).ok_or_else(|| missing("metadata"))?;
    if meta.get("uid").and_then(Value::as_str).is_none_or(str::is_empty) {
        meta.insert("uid".into(), (*uid(kind, &key, revision)).into());
    }
    Ok(())
}

/// A made-up UID: the same in every run.
pub(super) fn uid(kind: Kind, key: &Key, revision: u64) -> Name {
    uid_of(&[kind.as_str(), &key.namespace, &key.name, &revision.to_string()])
}

pub(super) fn uid_of(parts: &[&str]) -> Name {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.as_bytes());
        // No name holds it, so that ("a", "bc") is not ("ab", "c").
        hash.update([0]);
    }
    let hex: String = hash.finalize().iter().take(16).map(|b| format!("{b:02x}")).collect();
    format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
    .into()
}
