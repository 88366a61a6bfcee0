//! Where certificates are kept and given out: Secrets, and the caBundle of a webhook configuration. Objects as the
//! API has them; who writes says what it read (resourceVersion), so that of two writers one is told.

use async_trait::async_trait;
use serde_json::Value;

use super::WriteError;
use crate::model::NamespacedName;

#[async_trait]
pub trait CertStore: Send + Sync + 'static {
    async fn secret(&self, key: &NamespacedName) -> Result<Value, WriteError>;

    /// Replaces the Secret that was read, by its resourceVersion; makes it where it has none.
    async fn put_secret(&self, secret: &Value) -> Result<(), WriteError>;

    /// A MutatingWebhookConfiguration.
    async fn webhooks(&self, name: &str) -> Result<Value, WriteError>;

    /// RFC 6902. With the resourceVersion in it, a change by somebody else is a conflict. Returns what is there then.
    async fn patch_webhooks(&self, name: &str, patch: &Value) -> Result<Value, WriteError>;
}
