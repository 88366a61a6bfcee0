//! Claims that pods share, as the API server takes and deletes them.

use serde_json::Value;

use super::load;
use super::state::State;
use crate::cluster::{WriteError, used_lately};
use crate::convert;
use crate::index::{Kind, Object};
use crate::model::{Claim, PodClaimSource};

impl State {
    pub(super) fn ensure_claim(&mut self, claim: &Value) -> Result<(), WriteError> {
        let wanted = match convert::object(claim) {
            Ok(Some(Object::Claim(claim))) => claim,
            Ok(_) => return Err(WriteError::Refused("this is not a ResourceClaim".into())),
            Err(e) => return Err(WriteError::Refused(e.to_string())),
        };
        let key = wanted.key.clone();
        if let Some(found) = self.claim(&key) {
            if !found.managed || found.spec != wanted.spec {
                let what = if found.managed {
                    "with other content"
                } else {
                    "without wattlane's labels"
                };
                return Err(WriteError::Refused(format!(
                    "ResourceClaim {key} exists {what}; delete it or rename it, wattlane makes its own under this name"
                )));
            }
            if !used_lately(found.last_used, wanted.last_used) {
                let mut noted = found.clone();
                noted.last_used = wanted.last_used;
                self.put_claim(noted);
            }
            return Ok(());
        }
        self.live_namespace(&key)?;
        let uid = load::uid(Kind::Claim, &key, self.next_revision());
        self.put_claim(Claim { uid, ..wanted });
        Ok(())
    }

    pub(super) fn remove_shared(&mut self, seen: &Claim) -> Result<(), WriteError> {
        let key = &seen.key;
        let Some(found) = self.claim(key) else { return Ok(()) };
        let conflict = |what: &str| Err(WriteError::Conflict(format!("ResourceClaim {key} {what}")));
        if (&found.uid, &found.resource_version) != (&seen.uid, &seen.resource_version) {
            return conflict("has been modified");
        }
        if self.names(&key.namespace, &PodClaimSource::Claim(key.name.clone())) {
            return conflict("is named by a pod");
        }
        self.remove_claim(&key.clone());
        Ok(())
    }
}
