//! The sequences of calls that allocate, reserve and undo a ResourceClaim, and bind a pod. One attempt each: what an
//! `Unknown` means is for `binding` to find out.

use jiff::{Timestamp, Unit};
use serde_json::Value;

use super::api::{self, Api};
use super::{body, paths};
use crate::cluster::WriteError;
use crate::convert;
use crate::model::{Allocation, Claim, Consumer, NamespacedName, Pod};

/// Reads again after a 409 where the write is a small edit of whatever is there.
const EDIT_ATTEMPTS: usize = 5;

pub(super) async fn allocate(
    api: &Api,
    claim: &Claim,
    allocation: &Allocation,
    pod: &Consumer,
) -> Result<Claim, WriteError> {
    let path = paths::claim(&claim.key)?;
    // The finalizer goes first: the status endpoint drops metadata, and an allocation must never be without it. As a
    // patch of the version that is known it needs no read before it, and what it answers is the document for the status.
    let unprotected = !claim.protected && !claim.resource_version.is_empty();
    let mut doc = match unprotected {
        true => {
            let patch = body::protect(&claim.uid, &claim.resource_version);
            api.patch(&path, api::STRATEGIC_PATCH, &patch).await?
        }
        false => as_known(api.get(&path).await?, claim)?,
    };
    // The resourceVersion in the document is the precondition.
    body::set_allocation(&mut doc, allocation, pod, &now());
    let written = api.put(&path.status(), &doc).await?;
    to_claim(&written)
}

pub(super) async fn reserve(
    api: &Api,
    claim: &Claim,
    pod: &Consumer,
    slots: Option<usize>,
) -> Result<Claim, WriteError> {
    let path = paths::claim(&claim.key)?;
    let mut last = WriteError::Conflict(String::new());
    for _ in 0..EDIT_ATTEMPTS {
        let mut doc = api.get(&path).await?;
        same_object(&doc, &claim.key, &claim.uid)?;
        let found = to_claim(&doc)?;
        // The devices the pod was placed on, or none: a claim can be freed and given again between two reads.
        if found.allocation.as_ref().map(|a| &a.results) != claim.allocation.as_ref().map(|a| &a.results) {
            let what = format!("ResourceClaim {} is no longer allocated as it was", claim.key);
            return Err(WriteError::Conflict(what));
        }
        if !body::add_consumer(&mut doc, pod) {
            return Ok(found);
        }
        // The write has the version of this read as its precondition: nobody comes in between.
        if slots.is_some_and(|most| found.reserved_for.len() >= most) {
            return Err(WriteError::Conflict(format!(
                "all slots of ResourceClaim {} are taken",
                claim.key
            )));
        }
        match api.put(&path.status(), &doc).await {
            Ok(written) => return to_claim(&written),
            // Pods that share a claim add themselves at the same time.
            Err(e @ WriteError::Conflict(_)) => last = e,
            Err(e) => return Err(e),
        }
    }
    Err(last)
}

pub(super) async fn unreserve(
    api: &Api,
    key: &NamespacedName,
    uid: &str,
    pod: &Consumer,
    deallocate: bool,
) -> Result<(), WriteError> {
    let path = paths::claim(key)?;
    let mut last = WriteError::Conflict(String::new());
    // Two writes at most, and each may meet a conflict.
    for _ in 0..2 * EDIT_ATTEMPTS {
        let mut doc = match api.get(&path).await {
            Err(WriteError::NotFound(_)) => return Ok(()),
            other => other?,
        };
        if body::meta(&doc, "uid") != uid {
            return Ok(());
        }
        let target = match body::undo(&mut doc, pod, deallocate) {
            body::Undo::Nothing => return Ok(()),
            body::Undo::Status => path.status(),
            body::Undo::Finalizer => path.clone(),
        };
        match api.put(&target, &doc).await {
            Ok(_) => {}
            Err(WriteError::NotFound(_)) => return Ok(()),
            Err(e @ WriteError::Conflict(_)) => last = e,
            Err(e) => return Err(e),
        }
    }
    Err(last)
}

pub(super) async fn bind(api: &Api, pod: &NamespacedName, uid: &str, node: &str) -> Result<(), WriteError> {
    let path = paths::pod(pod)?;
    let refused = match api.post(&path.binding(), &body::binding(pod, uid, node)).await {
        Ok(_) => return Ok(()),
        Err(e @ WriteError::Conflict(_)) => e,
        Err(e) => return Err(e),
    };
    // 409 says "bound already" (perhaps by an earlier call of ours whose answer was lost) or "another UID".
    let doc = api.get(&path).await?;
    if body::meta(&doc, "uid") != uid {
        return Err(WriteError::NotFound(format!(
            "pod {pod} with UID {uid} is gone: another has its name"
        )));
    }
    match doc.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or("") {
        bound if bound == node => Ok(()),
        "" => Err(refused),
        other => Err(WriteError::Conflict(format!("pod {pod} is bound to node {other}"))),
    }
}

pub(super) async fn claim(api: &Api, key: &NamespacedName) -> Result<Option<Claim>, WriteError> {
    match api.get(&paths::claim(key)?).await {
        Ok(doc) => to_claim(&doc).map(Some),
        Err(WriteError::NotFound(_)) => Ok(None),
        Err(e) => Err(e),
    }
}

pub(super) async fn pod(api: &Api, key: &NamespacedName) -> Result<Option<Pod>, WriteError> {
    let doc = match api.get(&paths::pod(key)?).await {
        Ok(doc) => doc,
        Err(WriteError::NotFound(_)) => return Ok(None),
        Err(e) => return Err(e),
    };
    match convert::pod(&doc) {
        Ok(pod) => Ok(Some(pod)),
        Err(e) => Err(WriteError::Unknown(format!(
            "pod {key} cannot be read: {}",
            e.without_object()
        ))),
    }
}

/// The document, if it is the version that is known.
fn as_known(doc: Value, claim: &Claim) -> Result<Value, WriteError> {
    same_object(&doc, &claim.key, &claim.uid)?;
    let (version, known) = (body::meta(&doc, "resourceVersion"), &claim.resource_version);
    if version != &**known {
        let what = format!("ResourceClaim {} is at version {version}, not {known}", claim.key);
        return Err(WriteError::Conflict(what));
    }
    Ok(doc)
}

fn same_object(doc: &Value, key: &NamespacedName, uid: &str) -> Result<(), WriteError> {
    if body::meta(doc, "uid") == uid {
        return Ok(());
    }
    let what = format!("ResourceClaim {key} with UID {uid} is gone: another has its name");
    Err(WriteError::NotFound(what))
}

/// An answer that cannot be read leaves open what was written.
fn to_claim(doc: &Value) -> Result<Claim, WriteError> {
    convert::claim(doc).map_err(|e| {
        let what = e.without_object();
        WriteError::Unknown(format!(
            "the ResourceClaim the API answered with cannot be read: {what}"
        ))
    })
}

/// As the API server writes times: whole seconds, UTC.
fn now() -> String {
    let now = Timestamp::now();
    now.round(Unit::Second).unwrap_or(now).to_string()
}
