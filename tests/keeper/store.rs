//! An API server as far as certificates go: two Secrets and a webhook configuration, with resourceVersions. It can be
//! down, and it can lose the answer to a write that it did.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use wattlane::certs::trust;
use wattlane::cluster::WriteError;
use wattlane::cluster::secrets::CertStore;
use wattlane::model::NamespacedName;

pub(crate) struct Store(Mutex<State>);

pub(crate) struct State {
    pub(crate) secrets: BTreeMap<String, Value>,
    pub(crate) webhooks: Option<Value>,
    version: u64,
    pub(crate) down: bool,
    /// The next write is done, and its answer lost.
    pub(crate) deaf: bool,
    pub(crate) writes: u64,
    /// Every patch is refused, in its own words.
    pub(crate) quoting: bool,
}

/// The Secrets of the manifests, empty, and a configuration with two webhooks.
impl Default for Store {
    fn default() -> Self {
        let secret = |name: &str| {
            let secret = json!({"metadata": {"namespace": "ns", "name": name, "resourceVersion": "1"}});
            (name.to_owned(), secret)
        };
        let hook = |name: &str| json!({"name": name, "clientConfig": {"url": "https://x"}});
        Self(Mutex::new(State {
            secrets: BTreeMap::from([secret("certs"), secret("client")]),
            webhooks: Some(json!({"metadata": {"name": "wattlane", "resourceVersion": "1"},
                "webhooks": [hook("a"), hook("b")]})),
            version: 1,
            down: false,
            deaf: false,
            writes: 0,
            quoting: false,
        }))
    }
}

impl State {
    pub(crate) fn stamp(&mut self) -> Value {
        self.version += 1;
        self.version.to_string().into()
    }

    fn up(&self) -> Result<(), WriteError> {
        if self.down {
            return Err(WriteError::Unknown("no answer".into()));
        }
        Ok(())
    }

    fn written(&mut self) -> Result<(), WriteError> {
        self.writes += 1;
        if std::mem::take(&mut self.deaf) {
            return Err(WriteError::Unknown("the answer was lost".into()));
        }
        Ok(())
    }
}

impl Store {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("not poisoned")
    }

    /// As somebody else would: a key of a Secret, None: gone.
    pub(crate) fn meddle(&self, secret: &str, key: &str, value: Option<&[u8]>) {
        let mut state = self.state();
        let version = state.stamp();
        let secret = state.secrets.get_mut(secret).expect("there");
        secret["metadata"]["resourceVersion"] = version;
        match value {
            Some(bytes) => secret["data"][key] = STANDARD.encode(bytes).into(),
            None => drop(secret["data"].as_object_mut().expect("data").remove(key)),
        }
    }

    pub(crate) fn text(&self, secret: &str, key: &str) -> String {
        let state = self.state();
        let encoded = state.secrets[secret]["data"][key]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        String::from_utf8(STANDARD.decode(encoded).expect("base64")).expect("UTF-8")
    }

    /// The caBundle of a webhook.
    pub(crate) fn bundle(&self, at: usize) -> Vec<CertificateDer<'static>> {
        let state = self.state();
        let hooks = state.webhooks.as_ref().expect("registered");
        let encoded = hooks["webhooks"][at]["clientConfig"]["caBundle"]
            .as_str()
            .unwrap_or_default();
        trust::authorities(&STANDARD.decode(encoded).expect("base64"))
    }

    pub(crate) fn reset_bundle(&self, at: usize) {
        let mut state = self.state();
        let version = state.stamp();
        let hooks = state.webhooks.as_mut().expect("registered");
        hooks["metadata"]["resourceVersion"] = version;
        hooks["webhooks"][at]["clientConfig"]["caBundle"] = "".into();
    }
}

impl Store {
    pub(crate) fn url(&self, at: usize) -> String {
        let state = self.state();
        let hooks = state.webhooks.as_ref().expect("registered");
        hooks["webhooks"][at]["clientConfig"]["url"]
            .as_str()
            .expect("an address")
            .to_owned()
    }

    pub(crate) fn reset_path(&self, at: usize, path: &str) {
        let mut state = self.state();
        let version = state.stamp();
        let hooks = state.webhooks.as_mut().expect("registered");
        hooks["metadata"]["resourceVersion"] = version;
        hooks["webhooks"][at]["clientConfig"]["url"] = format!("https://x{path}").into();
    }
}

fn missing() -> WriteError {
    WriteError::NotFound("not found".into())
}

#[async_trait]
impl CertStore for Store {
    async fn secret(&self, key: &NamespacedName) -> Result<Value, WriteError> {
        // Others get their turn between any two calls.
        tokio::task::yield_now().await;
        let state = self.state();
        state.up()?;
        state.secrets.get(&*key.name).cloned().ok_or_else(missing)
    }

    async fn put_secret(&self, secret: &Value) -> Result<(), WriteError> {
        tokio::task::yield_now().await;
        let mut state = self.state();
        state.up()?;
        let name = secret["metadata"]["name"].as_str().expect("named").to_owned();
        let version = &secret["metadata"]["resourceVersion"];
        match state.secrets.get(&name) {
            None if version.is_null() => return Err(WriteError::Refused("forbidden".into())),
            None => return Err(missing()),
            Some(there) if there["metadata"]["resourceVersion"] != *version => {
                return Err(WriteError::Conflict("changed".into()));
            }
            Some(_) => {}
        }
        let mut secret = secret.clone();
        secret["metadata"]["resourceVersion"] = state.stamp();
        state.secrets.insert(name, secret);
        state.written()
    }

    async fn webhooks(&self, _: &str) -> Result<Value, WriteError> {
        tokio::task::yield_now().await;
        let state = self.state();
        state.up()?;
        state.webhooks.clone().ok_or_else(missing)
    }

    async fn patch_webhooks(&self, _: &str, patch: &Value) -> Result<(), WriteError> {
        tokio::task::yield_now().await;
        let mut state = self.state();
        state.up()?;
        if state.quoting {
            return Err(WriteError::Refused(format!("invalid: {patch}")));
        }
        let there = state.webhooks.clone().ok_or_else(missing)?;
        let mut after = there.clone();
        let patch: json_patch::Patch = serde_json::from_value(patch.clone()).expect("RFC 6902");
        json_patch::patch(&mut after, &patch).map_err(|e| WriteError::Refused(e.to_string()))?;
        if after["metadata"]["resourceVersion"] != there["metadata"]["resourceVersion"] {
            return Err(WriteError::Conflict("changed".into()));
        }
        after["metadata"]["resourceVersion"] = state.stamp();
        state.webhooks = Some(after);
        state.written()
    }
}
