//! The path of admission and the caBundle: what of the configuration is good, what the Secret is to remember of it, and what is
//! put in. The path goes first: until there is a caBundle nobody can ask by any path, so none but ours is ever asked.

use std::time::Duration;

use serde_json::Value;

use super::{Conflict, Keeper, objects};
use crate::certs::Ending;
use crate::certs::keyring::Keyring;
use crate::certs::rotation::Cause;

/// The webhook configuration, as a look has found it.
pub(super) enum Found {
    /// Nobody calls us by it.
    NotRegistered,
    Unreadable,
    There(Value),
}

impl Found {
    pub(super) fn there(&self) -> Option<&Value> {
        match self {
            Self::There(webhooks) => Some(webhooks),
            _ => None,
        }
    }

    /// What API servers can be asking by. None: unknown.
    fn asked(&self) -> Option<Vec<String>> {
        match self {
            Self::NotRegistered => Some(vec![]),
            Self::Unreadable => None,
            Self::There(webhooks) => objects::asked(webhooks),
        }
    }

    pub(super) fn unasked(&self) -> bool {
        self.asked().is_some_and(|asked| asked.is_empty())
    }

    fn hashes(&self) -> Option<Vec<Ending>> {
        let mut hashes = vec![];
        for ending in self.asked()? {
            let hash = Ending::of(&ending);
            if !hashes.contains(&hash) {
                hashes.push(hash);
            }
        }
        Some(hashes)
    }
}

impl Keeper {
    /// Tells the server which paths of admission are good.
    pub(super) fn see(&mut self, now: Duration, found: &Found, ring: &Keyring) {
        self.door.heard(ring.recent());
        match (found, found.hashes()) {
            (Found::There(webhooks), Some(asked)) => self.door.see(now, objects::version(webhooks), &asked),
            (Found::NotRegistered, _) => self.door.gone(),
            _ => {}
        }
        let registered = !matches!(found, Found::NotRegistered);
        if !registered && self.registered != Some(false) {
            let name = &*self.settings.webhooks;
            tracing::warn!(
                name,
                "there is no such MutatingWebhookConfiguration: nobody is let in for admission by it"
            );
        }
        match found {
            Found::Unreadable => {}
            _ => self.registered = Some(registered),
        }
        let paths = self.tls.paths();
        let elsewhere = found.there().is_some_and(|w| objects::endings(w).is_none());
        // Never read, nor by anybody before: whether it is ours, and by which path it is asked, nobody knows.
        let never = self.registered.is_none() && ring.recent().is_empty();
        if elsewhere || never {
            return paths.any();
        }
        let tokens = [ring.token(), ring.next_token()].into_iter().flatten();
        let tokens = tokens.map(|t| Ending::of(t.as_str()));
        paths.only(self.door.good().iter().copied().chain(tokens));
    }

    /// What the Secret is to say of the configuration, before that is changed: a replica that begins after it has been goes by
    /// this.
    pub(super) fn note(&self, now: Duration, found: &Found, ring: &mut Keyring) {
        let Some(asked) = found.hashes() else { return };
        let mut recent = match ring.recent() {
            // At the beginning, and where the Secret was emptied.
            [] => self.door.good().to_vec(),
            recent => recent.to_vec(),
        };
        if self.door.settled(now) {
            recent.clear();
        }
        // Not registered: as it is.
        let ours = found.there().and(ring.token()).map(|t| Ending::of(t.as_str()));
        for ending in asked.into_iter().chain(ours) {
            if !recent.contains(&ending) {
                recent.push(ending);
            }
        }
        ring.note(recent);
    }

    pub(super) async fn publish(
        &mut self,
        webhooks: &Value,
        ring: &Keyring,
        faults: &mut Vec<String>,
    ) -> Result<(), Conflict> {
        let bundle = ring.bundle();
        if bundle.is_empty() {
            return Ok(());
        }
        if let Err(why) = objects::ours_to_change(webhooks) {
            faults.push(self.failed("bundle", why));
            return Ok(());
        }
        let mut after = webhooks.clone();
        if let Some(token) = ring.token() {
            let was = self.path_in_place.as_ref() == Some(token);
            let patch = objects::path_patch(webhooks, token);
            // A path that is refused does not cost the caBundle.
            if let Some(new) = self.amend("path", webhooks, patch, was, faults).await? {
                self.path_in_place = Some(token.clone());
                after = new;
            }
        }
        let was = self.in_place.as_ref() == Some(&bundle);
        let patch = objects::bundle_patch(&after, &bundle);
        if let Some(new) = self.amend("bundle", &after, patch, was, faults).await? {
            self.in_place = Some(bundle);
            after = new;
        }
        // API servers may ask by it from now on, whatever came of it.
        self.see((self.clock.steady)(), &Found::There(after), ring);
        Ok(())
    }

    /// The webhook configuration as it is after the patch; None: it could not be written. `was`: what is put in was found
    /// there at the last look.
    async fn amend(
        &self,
        action: &'static str,
        webhooks: &Value,
        patch: Option<Value>,
        was: bool,
        faults: &mut Vec<String>,
    ) -> Result<Option<Value>, Conflict> {
        let Some(patch) = patch else {
            return Ok(Some(webhooks.clone()));
        };
        let mut after = Value::Null;
        let written = self.store.patch_webhooks(&self.settings.webhooks, &patch).await;
        if !self.outcome(action, written.map(|new| after = new), "", faults)? {
            return Ok(None);
        }
        if was {
            self.count(action, Cause::Healed);
            tracing::warn!(
                action,
                "somebody had changed the webhook configuration; it is ours again"
            );
        } else {
            self.count(action, Cause::Due);
            tracing::info!(action, "the webhook configuration was written");
        }
        Ok(Some(after))
    }
}
