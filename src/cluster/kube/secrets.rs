//! Secrets and webhook configurations of the API server. What the API server says of them is in errors alone, not in the log of
//! calls: it may quote the token in a path, or what is in a Secret.

use async_trait::async_trait;
use serde_json::Value;

use super::{KubeCluster, api, body, paths};
use crate::cluster::WriteError;
use crate::cluster::secrets::CertStore;
use crate::model::NamespacedName;

#[async_trait]
impl CertStore for KubeCluster {
    async fn secret(&self, key: &NamespacedName) -> Result<Value, WriteError> {
        self.api.discreet().get(&paths::secret(key)?).await
    }

    async fn put_secret(&self, secret: &Value) -> Result<(), WriteError> {
        let key = NamespacedName::new(body::meta(secret, "namespace"), body::meta(secret, "name"));
        let target = paths::secret(&key)?;
        if body::meta(secret, "resourceVersion").is_empty() {
            self.api.discreet().post(&target.collection(), secret).await.map(drop)
        } else {
            self.api.discreet().put(&target, secret).await.map(drop)
        }
    }

    async fn webhooks(&self, name: &str) -> Result<Value, WriteError> {
        self.api.discreet().get(&paths::webhooks(name)?).await
    }

    async fn patch_webhooks(&self, name: &str, patch: &Value) -> Result<Value, WriteError> {
        let target = paths::webhooks(name)?;
        self.api.discreet().patch(&target, api::JSON_PATCH, patch).await
    }
}

impl KubeCluster {
    /// The namespace of the kubeconfig's context, or of the pod.
    pub fn namespace(&self) -> &str {
        &self.config.default_namespace
    }
}
