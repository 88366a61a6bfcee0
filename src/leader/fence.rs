//! The cluster as a leader sees it: reads as ever, writes only within a term, and none that could be executed after it.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use super::Term;
use crate::cluster::{Cluster, WatchStatus, WriteError, deadline};
use crate::model::{Allocation, Claim, Consumer, NamespacedName, Pod};
use crate::publish::IndexHandle;

/// One term's access to the cluster. A write that the term does not allow is `Refused` before it is sent.
pub struct Fence {
    inner: Arc<dyn Cluster>,
    term: Term,
}

impl Fence {
    pub fn new(inner: Arc<dyn Cluster>, term: Term) -> Self {
        Self { inner, term }
    }

    async fn write<T>(&self, call: impl Future<Output = Result<T, WriteError>> + Send) -> Result<T, WriteError> {
        let until = self
            .term
            .permit()
            .await
            .map_err(|e| WriteError::Refused(e.to_string()))?;
        deadline::within(until, call).await
    }
}

#[async_trait]
impl Cluster for Fence {
    async fn watch(&self, index: IndexHandle, status: Arc<dyn WatchStatus>) -> anyhow::Result<()> {
        self.inner.watch(index, status).await
    }

    async fn allocate(&self, claim: &Claim, allocation: &Allocation, pod: &Consumer) -> Result<Claim, WriteError> {
        self.write(self.inner.allocate(claim, allocation, pod)).await
    }

    async fn reserve(&self, claim: &Claim, pod: &Consumer, slots: Option<usize>) -> Result<Claim, WriteError> {
        self.write(self.inner.reserve(claim, pod, slots)).await
    }

    async fn unreserve(
        &self,
        claim: &NamespacedName,
        uid: &str,
        pod: &Consumer,
        deallocate: bool,
    ) -> Result<(), WriteError> {
        self.write(self.inner.unreserve(claim, uid, pod, deallocate)).await
    }

    async fn claim(&self, key: &NamespacedName) -> Result<Option<Claim>, WriteError> {
        self.inner.claim(key).await
    }

    async fn pod(&self, key: &NamespacedName) -> Result<Option<Pod>, WriteError> {
        self.inner.pod(key).await
    }

    async fn bind(&self, pod: &NamespacedName, uid: &str, node: &str) -> Result<(), WriteError> {
        self.write(self.inner.bind(pod, uid, node)).await
    }

    async fn ensure_template(&self, template: &Value) -> Result<(), WriteError> {
        self.write(self.inner.ensure_template(template)).await
    }

    async fn ensure_claim(&self, claim: &Value) -> Result<(), WriteError> {
        self.write(self.inner.ensure_claim(claim)).await
    }

    async fn poke(&self, pod: &NamespacedName, uid: &str) -> Result<(), WriteError> {
        self.write(self.inner.poke(pod, uid)).await
    }
}
