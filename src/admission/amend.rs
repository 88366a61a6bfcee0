//! Edits a copy of the pod. Everything is added where it is missing; what the pod says itself is never replaced, with
//! two documented exceptions: the extended resource that a claim replaces goes, and so does the default scheduler.

use serde_json::{Map, Value, json};

use super::plan::Plan;
use super::refuse::{Refused, shown};
use super::{ADMITTED, CLASS};
use crate::model::Name;
use crate::policy::{HAMI_AMOUNTS, PodPatch};

/// Version of the treatment, for people and for `audit`.
const TREATMENT: &str = "v1";

/// What is to be done to a pod.
pub(super) struct Edits<'a> {
    pub(super) plan: &'a Plan,
    /// None: the pod names one of ours.
    pub(super) scheduler: Option<&'a Name>,
    pub(super) class: Option<&'a Name>,
    pub(super) runtime_class: Option<&'a Name>,
    /// What comes first wins where two say something.
    pub(super) patches: &'a [&'a PodPatch],
}

/// The pod as it should be.
pub(super) fn amend(pod: &Value, edits: &Edits<'_>) -> Result<Value, Refused> {
    let mut pod = pod.clone();
    let metadata = object_at(&mut pod, "metadata")?;
    add_missing(metadata, "annotations", [(ADMITTED, TREATMENT)])?;
    if let Some(class) = edits.class {
        let annotations = object_in(metadata, "annotations")?;
        // Blank counts as not said.
        let said = annotations.get(CLASS).and_then(Value::as_str);
        if said.is_none_or(|v| v.trim().is_empty()) {
            annotations.insert(CLASS.into(), json!(&**class));
        }
    }
    for patch in edits.patches {
        add_missing(metadata, "annotations", texts(&patch.annotations))?;
        add_missing(metadata, "labels", texts(&patch.labels))?;
    }
    let spec = object_at(&mut pod, "spec")?;
    if let Some(scheduler) = edits.scheduler {
        spec.insert("schedulerName".into(), json!(&**scheduler));
    }
    if let Some(class) = edits.runtime_class {
        spec.insert("runtimeClassName".into(), json!(&**class));
    }
    claims(spec, edits.plan)?;
    for patch in edits.patches {
        add_missing(spec, "nodeSelector", texts(&patch.node_selector))?;
        for toleration in &patch.tolerations {
            let have = list_in(spec, "tolerations")?;
            if !have.contains(toleration) {
                have.push(toleration.clone());
            }
        }
    }
    if let Some(size) = edits.patches.iter().find_map(|p| p.shared_memory.as_ref()) {
        shared_memory(spec, edits.plan, size)?;
    }
    Ok(pod)
}

fn claims(spec: &mut Map<String, Value>, plan: &Plan) -> Result<(), Refused> {
    for claim in &plan.claims {
        let entry = json!({"name": claim.name, "resourceClaimTemplateName": &*claim.template.name()});
        list_in(spec, "resourceClaims")?.push(entry);
    }
    for (claims, ask) in &plan.served {
        let resources = object_in(container(spec, ask.list, ask.at)?, "resources")?;
        for which in ["limits", "requests"] {
            if let Some(Value::Object(amounts)) = resources.get_mut(which) {
                amounts.remove(&*ask.resource);
                // Nobody serves these beside a claim: kept, they would leave the pod pending for ever.
                if ask.resource.starts_with("nvidia.com/") {
                    amounts.retain(|k, _| !HAMI_AMOUNTS.contains(&k.as_str()));
                }
            }
        }
        let named = claims.iter().map(|c| json!({"name": plan.claims[*c].name}));
        list_in(resources, "claims")?.extend(named);
    }
    Ok(())
}

/// Containers of several devices exchange data through shared memory, of which a container has 64 MiB by default.
fn shared_memory(spec: &mut Map<String, Value>, plan: &Plan, size: &Name) -> Result<(), Refused> {
    let is_shm = |mount: &Value| is_dev_shm(mount["mountPath"].as_str().unwrap_or_default());
    let source = json!({"medium": "Memory", "sizeLimit": &**size});
    let mut volume = None;
    for (_, ask) in plan.served.iter().filter(|(_, ask)| ask.count > 1) {
        let mounts = list_in(container(spec, ask.list, ask.at)?, "volumeMounts")?;
        if mounts.iter().any(is_shm) {
            continue;
        }
        let name = match &volume {
            Some(name) => name,
            None => {
                let name = shm_volume(list_in(spec, "volumes")?, &source);
                volume.get_or_insert(name)
            }
        };
        let mount = json!({"name": name, "mountPath": "/dev/shm"});
        list_in(container(spec, ask.list, ask.at)?, "volumeMounts")?.push(mount);
    }
    Ok(())
}

/// However it is spelt: the kubelet and the runtime clean the path.
fn is_dev_shm(path: &str) -> bool {
    let mut parts: Vec<&str> = vec![];
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts == ["dev", "shm"]
}

/// The name of the volume, which an earlier call may have made. Containers of a pod share /dev/shm without us, too.
fn shm_volume(volumes: &mut Vec<Value>, source: &Value) -> String {
    let mut n = 0_usize;
    loop {
        let name = match n {
            0 => "wl-shm".to_owned(),
            n => format!("wl-shm-{n}"),
        };
        // Ends: every round meets another volume of a finite list.
        match volumes.iter().find(|v| v["name"] == *name) {
            Some(volume) if volume["emptyDir"] == *source => return name,
            Some(_) => n += 1,
            None => {
                volumes.push(json!({"name": name, "emptyDir": source}));
                return name;
            }
        }
    }
}

fn texts(map: &std::collections::BTreeMap<Name, Name>) -> impl Iterator<Item = (&str, &str)> {
    map.iter().map(|(k, v)| (&**k, &**v))
}

/// Adds what is not there. Touches nothing, not even an absent map, when there is nothing to add.
fn add_missing<'a>(
    parent: &mut Map<String, Value>,
    key: &str,
    entries: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<(), Refused> {
    for (k, v) in entries {
        object_in(parent, key)?.entry(k).or_insert_with(|| json!(v));
    }
    Ok(())
}

fn container<'a>(
    spec: &'a mut Map<String, Value>,
    list: &str,
    at: usize,
) -> Result<&'a mut Map<String, Value>, Refused> {
    let found = spec.get_mut(list).and_then(|l| l.get_mut(at));
    found.and_then(Value::as_object_mut).ok_or_else(|| wrong(list))
}

fn object_at<'a>(parent: &'a mut Value, key: &str) -> Result<&'a mut Map<String, Value>, Refused> {
    object_in(parent.as_object_mut().ok_or_else(|| wrong("the pod"))?, key)
}

fn object_in<'a>(parent: &'a mut Map<String, Value>, key: &str) -> Result<&'a mut Map<String, Value>, Refused> {
    let slot = parent.entry(key).or_insert(Value::Null);
    if slot.is_null() {
        *slot = Value::Object(Map::new());
    }
    slot.as_object_mut().ok_or_else(|| wrong(key))
}

fn list_in<'a>(parent: &'a mut Map<String, Value>, key: &str) -> Result<&'a mut Vec<Value>, Refused> {
    let slot = parent.entry(key).or_insert(Value::Null);
    if slot.is_null() {
        *slot = Value::Array(vec![]);
    }
    slot.as_array_mut().ok_or_else(|| wrong(key))
}

/// Cannot happen to a pod that the API server decoded; refused rather than guessed.
fn wrong(what: &str) -> Refused {
    Refused::new(400, format!("not a pod: {} has the wrong type", shown(what)))
}

#[cfg(test)]
mod tests {
    use super::is_dev_shm;

    #[test]
    fn one_path_in_all_spellings() {
        for path in [
            "/dev/shm",
            "/dev/shm/",
            "/dev//shm",
            "//dev/./shm",
            "/dev/x/../shm",
            "/../dev/shm",
            "dev/shm",
        ] {
            assert!(is_dev_shm(path), "{path}");
        }
        for path in ["", "/", "/dev", "/dev/shm/x", "/dev/shmem", "/dev/shm/..", "/x/dev/shm"] {
            assert!(!is_dev_shm(path), "{path}");
        }
    }
}
