//! The Lease of the election, and the label on the pod that holds it.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::api::{Api, MERGE_PATCH};
use super::{body, paths};
use crate::cluster::{LEADER_LABEL, Lease, LeaseWrite, WriteError};
use crate::model::{Name, NamespacedName};

pub(super) async fn read(api: &Api, key: &NamespacedName) -> Result<Option<Lease>, WriteError> {
    match api.get(&paths::lease(key)?).await {
        Ok(doc) => Ok(Some(to_lease(&doc))),
        Err(WriteError::NotFound(_)) => Ok(None),
        Err(e) => Err(e),
    }
}

/// A merge patch, so that labels others put on it stay; the resourceVersion in it is a precondition. A POST has its
/// own: that there is none.
pub(super) async fn write(api: &Api, key: &NamespacedName, write: &LeaseWrite) -> Result<Lease, WriteError> {
    let body = body_of(key, write, &Timestamp::now());
    let written = match &write.replaces {
        Some(_) => api.patch(&paths::lease(key)?, MERGE_PATCH, &body).await?,
        None => api.post(&paths::leases(&key.namespace)?, &body).await?,
    };
    Ok(to_lease(&written))
}

fn body_of(key: &NamespacedName, write: &LeaseWrite, now: &Timestamp) -> Value {
    let now = format!("{now:.6}");
    let mut spec = json!({
        "holderIdentity": &*write.holder,
        "leaseDurationSeconds": write.duration.as_secs().max(1),
        "leaseTransitions": write.transitions,
        "renewTime": now,
    });
    if write.acquired {
        spec["acquireTime"] = json!(now);
    }
    let metadata = match &write.replaces {
        Some(version) => json!({"resourceVersion": &**version}),
        None => json!({"namespace": &*key.namespace, "name": &*key.name}),
    };
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec})
}

/// What is missing reads as "nobody, for no time": such a Lease is free.
fn to_lease(doc: &Value) -> Lease {
    let spec = |field: &str| doc.get("spec").and_then(|s| s.get(field));
    let number = |field: &str| {
        let n = spec(field).and_then(Value::as_u64).unwrap_or(0);
        u32::try_from(n).unwrap_or(u32::MAX)
    };
    Lease {
        version: body::meta(doc, "resourceVersion").into(),
        holder: spec("holderIdentity").and_then(Value::as_str).unwrap_or("").into(),
        duration: std::time::Duration::from_secs(number("leaseDurationSeconds").into()),
        transitions: number("leaseTransitions"),
    }
}

/// Ours first: two pods with the label are better than none.
pub(super) async fn label(api: &Api, pod: &NamespacedName, leader: bool) -> Result<(), WriteError> {
    set_label(api, pod, leader).await?;
    if !leader {
        return Ok(());
    }
    let labelled = api
        .get(&paths::labelled_pods(&pod.namespace, LEADER_LABEL, "true")?)
        .await?;
    let names = labelled.get("items").and_then(Value::as_array).into_iter().flatten();
    for name in names.map(|p| body::meta(p, "name")).filter(|n| *n != &*pod.name) {
        // A leader that died could not take it off itself.
        set_label(
            api,
            &NamespacedName::new(pod.namespace.clone(), Name::from(name)),
            false,
        )
        .await?;
    }
    Ok(())
}

async fn set_label(api: &Api, pod: &NamespacedName, leader: bool) -> Result<(), WriteError> {
    let value = leader.then_some("true");
    let patch = json!({"metadata": {"labels": {LEADER_LABEL: value}}});
    match api.patch(&paths::pod(pod)?, MERGE_PATCH, &patch).await {
        Err(WriteError::NotFound(_)) if !leader => Ok(()),
        other => other.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_written_reads_as_it_was_meant() {
        let key = NamespacedName::new("system", "wattlane");
        let mut write = LeaseWrite {
            replaces: None,
            holder: "a".into(),
            duration: Duration::from_secs(15),
            transitions: 2,
            acquired: true,
        };
        let now = Timestamp::from_microsecond(1_700_000_000_000_001).expect("a time");
        let made = body_of(&key, &write, &now);
        assert_eq!(
            made,
            json!({
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"namespace": "system", "name": "wattlane"},
                "spec": {
                    "holderIdentity": "a",
                    "leaseDurationSeconds": 15,
                    "leaseTransitions": 2,
                    "renewTime": "2023-11-14T22:13:20.000001Z",
                    "acquireTime": "2023-11-14T22:13:20.000001Z",
                },
            })
        );
        write.replaces = Some("7".into());
        write.acquired = false;
        let mut patched = body_of(&key, &write, &now);
        assert_eq!(patched["metadata"], json!({"resourceVersion": "7"}), "the precondition");
        assert!(patched["spec"].get("acquireTime").is_none());
        patched["metadata"]["resourceVersion"] = json!("8");
        let read = to_lease(&patched);
        assert_eq!((&*read.version, &*read.holder, read.transitions), ("8", "a", 2));
        assert_eq!(read.duration, write.duration);
        let empty = to_lease(&json!({"metadata": {"resourceVersion": "1"}}));
        assert_eq!((&*empty.holder, empty.duration), ("", Duration::ZERO));
    }
}
