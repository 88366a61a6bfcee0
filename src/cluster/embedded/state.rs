//! The objects, and what the API server and the claim controller check and do when claims and templates are written.
//! Synchronous; knows no index, only the list of changes it has not been told yet.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::Value;

use super::stored::StoredPod;
use crate::cluster::{Lease, LeaseWrite, WriteError, used_lately};
use crate::convert;
use crate::index::{Change, Key, Kind, Object};
use crate::model::{Allocation, Claim, ClaimTemplate, Consumer, Name, Namespace, NamespacedName, Pod, PodClaimSource};

/// AllocationResultsMaxSize and ResourceClaimReservedForMaxSize of k8s.io/api/resource/v1.
const MAX_RESULTS: usize = 32;
const MAX_CONSUMERS: usize = 256;

#[derive(Default)]
pub(super) struct State {
    /// The newest resourceVersion; one row for all objects, as in etcd.
    revision: u64,
    pub(super) pods: BTreeMap<Key, StoredPod>,
    pub(super) claims: BTreeMap<Key, Claim>,
    pub(super) templates: BTreeMap<Key, ClaimTemplate>,
    pub(super) namespaces: BTreeMap<Key, Namespace>,
    /// Of the kinds that nothing here writes.
    pub(super) others: BTreeMap<(Kind, Key), Object>,
    leases: BTreeMap<Key, Lease>,
    /// No file had a Namespace: those that are used exist and are opted in.
    pub(super) any_namespace: bool,
    watched: bool,
    unsent: VecDeque<Change>,
}

impl State {
    pub(super) fn next_revision(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }

    /// Versions given from now on are newer than this one.
    pub(super) fn seen_revision(&mut self, revision: u64) {
        // A file may hold any number; half the range is left for ours.
        self.revision = self.revision.max(revision.min(u64::MAX / 2));
    }

    /// Everything, kind by kind; what is changed after this is noted for the index.
    pub(super) fn start_watch(&mut self) -> Vec<(Kind, Vec<Object>)> {
        self.watched = true;
        self.unsent.clear();
        let objects = |kind| match kind {
            Kind::Pod => {
                let pods = self.pods.values().filter_map(StoredPod::pod);
                pods.filter(Pod::counts).map(Object::Pod).collect()
            }
            Kind::Claim => self.claims.values().cloned().map(Object::Claim).collect(),
            Kind::Template => self.templates.values().cloned().map(Object::Template).collect(),
            Kind::Namespace => self.namespaces.values().cloned().map(Object::Namespace).collect(),
            other => {
                let of_kind = self.others.iter().filter(|((kind, _), _)| *kind == other);
                of_kind.map(|(_, object)| object.clone()).collect()
            }
        };
        Kind::ALL.map(|kind| (kind, objects(kind))).into()
    }

    pub(super) fn unsent(&mut self) -> &mut VecDeque<Change> {
        &mut self.unsent
    }

    pub(super) fn note(&mut self, change: Change) {
        if self.watched {
            self.unsent.push_back(change);
        }
    }

    pub(super) fn claim(&self, key: &Key) -> Option<&Claim> {
        self.claims.get(key)
    }

    pub(super) fn pod(&self, key: &Key) -> Option<Pod> {
        self.pods.get(key)?.pod()
    }

    pub(super) fn lease(&self, key: &Key) -> Option<&Lease> {
        self.leases.get(key)
    }

    pub(super) fn write_lease(&mut self, key: &Key, write: &LeaseWrite) -> Result<Lease, WriteError> {
        if write.replaces.as_ref() != self.leases.get(key).map(|l| &l.version) {
            return Err(WriteError::Conflict(format!("Lease {key} has been modified")));
        }
        let lease = Lease {
            version: self.next_revision().to_string().into(),
            holder: write.holder.clone(),
            duration: write.duration,
            transitions: write.transitions,
        };
        self.leases.insert(key.clone(), lease.clone());
        Ok(lease)
    }

    pub(super) fn pod_json(&self, key: &Key) -> Option<Value> {
        self.pods.get(key).map(StoredPod::json)
    }

    /// Stores the claim under a new resourceVersion.
    pub(super) fn put_claim(&mut self, mut claim: Claim) -> Claim {
        claim.resource_version = self.next_revision().to_string().into();
        self.claims.insert(claim.key.clone(), claim.clone());
        self.note(Change::Upsert(Object::Claim(claim.clone())));
        claim
    }

    pub(super) fn remove_claim(&mut self, key: &Key) {
        if self.claims.remove(key).is_some() {
            self.note(Change::Remove(Kind::Claim, key.clone()));
        }
    }

    /// The claim of that name and UID, as it is now.
    fn same_claim(&self, claim: &Claim) -> Result<Claim, WriteError> {
        let key = &claim.key;
        let Some(found) = self.claims.get(key) else {
            return Err(WriteError::NotFound(format!("ResourceClaim {key} not found")));
        };
        if found.uid != claim.uid {
            return Err(WriteError::Conflict(format!(
                "ResourceClaim {key} with UID {} is gone: another has its name",
                claim.uid
            )));
        }
        Ok(found.clone())
    }

    pub(super) fn allocate(
        &mut self,
        claim: &Claim,
        allocation: &Allocation,
        pod: &Consumer,
    ) -> Result<Claim, WriteError> {
        let mut found = self.same_claim(claim)?;
        let key = found.key.clone();
        let refused = |what: String| Err(WriteError::Refused(format!("ResourceClaim {key}: {what}")));
        if found.resource_version != claim.resource_version {
            return Err(WriteError::Conflict(format!(
                "ResourceClaim {key} has been modified: it is at version {}, not {}",
                found.resource_version, claim.resource_version
            )));
        }
        if found.deleting {
            return refused("it is being deleted".into());
        }
        if found.allocation.as_deref().is_some_and(|have| have != allocation) {
            return refused("status.allocation is immutable once set".into());
        }
        let n = allocation.results.len();
        if n > MAX_RESULTS {
            return refused(format!("an allocation holds at most {MAX_RESULTS} devices, not {n}"));
        }
        found.allocation = Some(Arc::new(allocation.clone()));
        found.protected = true;
        if found.has_binding_conditions() {
            found.allocated_at = Some(jiff::Timestamp::now().as_second());
        }
        add_consumer(&mut found, pod)?;
        Ok(self.put_claim(found))
    }

    pub(super) fn reserve(&mut self, claim: &Claim, pod: &Consumer, slots: Option<usize>) -> Result<Claim, WriteError> {
        let mut found = self.same_claim(claim)?;
        // The devices the pod was placed on: a claim can be freed and given again between two reads.
        let devices = |c: &Claim| c.allocation.as_ref().map(|a| a.results.clone());
        if found.allocation.is_none() || devices(&found) != devices(claim) {
            return Err(WriteError::Conflict(format!(
                "ResourceClaim {} is no longer allocated as it was",
                found.key
            )));
        }
        if found.reserved_for.iter().any(|c| c.uid == pod.uid) {
            return Ok(found);
        }
        if slots.is_some_and(|most| found.reserved_for.len() >= most) {
            return Err(WriteError::Conflict(format!(
                "all slots of ResourceClaim {} are taken",
                claim.key
            )));
        }
        if found.deleting {
            let what = format!("ResourceClaim {} is being deleted: nobody new may use it", found.key);
            return Err(WriteError::Refused(what));
        }
        add_consumer(&mut found, pod)?;
        Ok(self.put_claim(found))
    }

    pub(super) fn unreserve(&mut self, key: &NamespacedName, uid: &str, pod_uid: &str, deallocate: bool) {
        let Some(found) = self.claims.get(key).filter(|c| &*c.uid == uid) else {
            return;
        };
        let mut left = found.clone();
        left.reserved_for.retain(|c| &*c.uid != pod_uid);
        if deallocate && left.reserved_for.is_empty() {
            left.allocation = None;
            left.allocated_at = None;
            left.conditions.clear();
            left.protected = false;
        }
        if left != *found {
            self.put_claim(left);
        }
    }

    pub(super) fn ensure_template(&mut self, template: &Value) -> Result<(), WriteError> {
        let wanted = match convert::object(template) {
            Ok(Some(Object::Template(template))) => template,
            Ok(_) => return Err(WriteError::Refused("this is not a ResourceClaimTemplate".into())),
            Err(e) => return Err(WriteError::Refused(e.to_string())),
        };
        let key = wanted.key.clone();
        if let Some(found) = self.templates.get(&key) {
            // Our labels are how we know it for ours.
            let ours = wanted.labels.iter().all(|(k, v)| found.labels.get(k) == Some(v));
            if !ours || (&found.spec, found.marks_claims) != (&wanted.spec, wanted.marks_claims) {
                return Err(WriteError::Refused(format!(
                    "ResourceClaimTemplate {key} exists {}; delete it or rename it, wattlane makes its own under this name",
                    if ours {
                        "with other content"
                    } else {
                        "without wattlane's labels"
                    }
                )));
            }
            if !used_lately(found.last_used, wanted.last_used) {
                self.put_template(ClaimTemplate {
                    last_used: wanted.last_used,
                    ..found.clone()
                });
            }
            return Ok(());
        }
        self.live_namespace(&key)?;
        let uid = super::load::uid(Kind::Template, &key, self.next_revision());
        self.put_template(ClaimTemplate { uid, ..wanted });
        Ok(())
    }

    /// Whether a pod of the namespace names it.
    pub(super) fn names(&self, namespace: &Name, source: &PodClaimSource) -> bool {
        let pods = self.pods.iter().filter(|(key, _)| key.namespace == *namespace);
        let mut pods = pods.filter_map(|(_, stored)| stored.pod());
        pods.any(|pod| pod.claims.iter().any(|claim| claim.source == *source))
    }

    fn put_template(&mut self, mut template: ClaimTemplate) {
        template.resource_version = self.next_revision().to_string().into();
        self.templates.insert(template.key.clone(), template.clone());
        self.note(Change::Upsert(Object::Template(template)));
    }

    pub(super) fn remove_template(&mut self, seen: &ClaimTemplate) -> Result<(), WriteError> {
        let key = &seen.key;
        let Some(found) = self.templates.get(key) else {
            return Ok(());
        };
        let conflict = |what: &str| Err(WriteError::Conflict(format!("ResourceClaimTemplate {key} {what}")));
        if (&found.uid, &found.resource_version) != (&seen.uid, &seen.resource_version) {
            return conflict("has been modified");
        }
        if self.names(&key.namespace, &PodClaimSource::Template(key.name.clone())) {
            return conflict("is named by a pod");
        }
        self.templates.remove(key);
        self.note(Change::Remove(Kind::Template, key.clone()));
        Ok(())
    }

    /// Nothing is created in a namespace that does not exist or is going away.
    pub(super) fn live_namespace(&mut self, object: &Key) -> Result<(), WriteError> {
        let key = Key::new("", object.namespace.clone());
        if self.any_namespace && !self.namespaces.contains_key(&key) {
            let assumed = super::assume::namespace(&key.name);
            self.namespaces.insert(key.clone(), assumed.clone());
            self.note(Change::Upsert(Object::Namespace(assumed)));
        }
        match self.namespaces.get(&key) {
            Some(namespace) if !namespace.deleting => Ok(()),
            Some(_) => Err(WriteError::Refused(format!(
                "namespace {} is being terminated: nothing new is created in it",
                key.name
            ))),
            None => Err(WriteError::Refused(format!(
                "namespace {} not found: add a Namespace object, or leave all of them out",
                key.name
            ))),
        }
    }
}

fn add_consumer(claim: &mut Claim, pod: &Consumer) -> Result<(), WriteError> {
    if claim.reserved_for.iter().any(|c| c.uid == pod.uid) {
        return Ok(());
    }
    if claim.reserved_for.len() >= MAX_CONSUMERS {
        let what = format!(
            "ResourceClaim {}: at most {MAX_CONSUMERS} pods share a claim",
            claim.key
        );
        return Err(WriteError::Refused(what));
    }
    claim.reserved_for.push(pod.clone());
    Ok(())
}
