//! Secrets and webhook configurations of the API server. What is in a Secret is in no error and no log line: those
//! name the object.

use async_trait::async_trait;
use serde_json::Value;

use super::{KubeCluster, api, body, paths};
use crate::cluster::WriteError;
use crate::cluster::secrets::CertStore;
use crate::model::NamespacedName;

#[async_trait]
impl CertStore for KubeCluster {
    async fn secret(&self, key: &NamespacedName) -> Result<Value, WriteError> {
        self.api.get(&paths::secret(key)?).await
    }

    async fn put_secret(&self, secret: &Value) -> Result<(), WriteError> {
        let key = NamespacedName::new(body::meta(secret, "namespace"), body::meta(secret, "name"));
        let target = paths::secret(&key)?;
        if body::meta(secret, "resourceVersion").is_empty() {
            self.api.post(&target.collection(), secret).await.map(drop)
        } else {
            self.api.put(&target, secret).await.map(drop)
        }
    }

    async fn webhooks(&self, name: &str) -> Result<Value, WriteError> {
        self.api.get(&paths::webhooks(name)?).await
    }

    async fn patch_webhooks(&self, name: &str, patch: &Value) -> Result<Value, WriteError> {
        let target = paths::webhooks(name)?;
        self.api.patch(&target, api::JSON_PATCH, patch).await
    }
}

impl KubeCluster {
    /// The namespace of the kubeconfig's context, or of the pod.
    pub fn namespace(&self) -> &str {
        &self.config.default_namespace
    }
}
