//! The Kubernetes API as a `Cluster`: client and wiring. Watches are in `watch`, the writes in a file
//! for each kind of object, the JSON of several in `body`.

mod api;
mod body;
#[cfg(test)]
mod body_tests;
mod claims;
#[cfg(test)]
mod claims_tests;
mod client;
mod events;
mod feed;
mod lease;
mod lenient;
mod paths;
mod raw;
mod relist;
mod secrets;
mod templates;
mod watch;
#[cfg(test)]
mod watch_tests;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use async_trait::async_trait;
use http::header::{HeaderValue, USER_AGENT};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::api::Api;
use self::relist::Relists;
use super::{CallStatus, Cluster, Event, Lease, LeaseWrite, WatchStatus, WriteError};
use crate::index::Kind;
use crate::model::{Allocation, Claim, ClaimTemplate, Consumer, NamespacedName, Pod};
use crate::publish::IndexHandle;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// For one read or write, waits after 429 included. The API server gives up a write after 60 s; a caller of ours has
/// long gone by then.
const CALL_DEADLINE: Duration = Duration::from_secs(10);

/// A cluster behind a Kubernetes API server. Connections are pooled (HTTP/1.1, which is what the client speaks); there
/// is no client-side rate limit, since the API server has its own and says when to wait.
pub struct KubeCluster {
    config: kube::Config,
    api: Api,
    relists: Relists,
}

impl KubeCluster {
    /// Reads the configuration: the kubeconfig given, else `$KUBECONFIG` or `~/.kube/config`, else the pod's
    /// ServiceAccount. Does not talk to the API server: one that is down is waited for by the watches.
    pub async fn connect(kubeconfig: Option<&Path>) -> anyhow::Result<Self> {
        // The client would panic without a provider. An error here means main has installed one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut config = match kubeconfig {
            Some(path) => {
                let file = Kubeconfig::read_from(path)
                    .with_context(|| format!("cannot read kubeconfig {}", path.display()))?;
                kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                    .await
                    .with_context(|| format!("kubeconfig {} cannot be used", path.display()))?
            }
            None => kube::Config::infer().await.context(
                "no cluster to connect to: give a kubeconfig, set KUBECONFIG, or run in a pod with a ServiceAccount",
            )?,
        };
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        // Ours: the default waits up to 1000 s, and treats 503 as "not written", which it need not be.
        config.default_retry = false;
        let agent = concat!("wattlane/", env!("CARGO_PKG_VERSION"));
        config.headers.push((USER_AGENT, HeaderValue::from_static(agent)));
        let client = client::of(config.clone()).context("cannot set up the client for the Kubernetes API")?;
        Ok(Self {
            config,
            api: Api::new(client, CALL_DEADLINE),
            relists: Relists::default(),
        })
    }

    /// Over a client of the caller's, whatever answers it: the calls are ours, the way to the API is not. Watches are
    /// not for such a cluster, since each has a connection of its own.
    pub fn over(client: kube::Client) -> Self {
        Self {
            config: kube::Config::new(http::Uri::from_static("http://localhost")),
            api: Api::new(client, CALL_DEADLINE),
            relists: Relists::default(),
        }
    }

    /// Sets one annotation of a node, or removes it; writes nothing else of it. One that is so already is not written
    /// again by the API server.
    ///
    /// # Errors
    /// As of any write: no such node, not allowed, no answer.
    pub async fn annotate_node(&self, node: &str, key: &str, value: Option<&str>) -> Result<(), WriteError> {
        let patch = json!({"metadata": {"annotations": {key: value}}});
        let path = paths::node(node)?;
        self.api.patch(&path, api::MERGE_PATCH, &patch).await.map(drop)
    }
}

#[async_trait]
impl Cluster for KubeCluster {
    async fn watch(&self, index: IndexHandle, status: Arc<dyn WatchStatus>) -> anyhow::Result<()> {
        let mut watches = JoinSet::new();
        for kind in Kind::ALL {
            let relist = self.relists.of(kind);
            let run = watch::run(kind, self.config.clone(), index.clone(), status.clone(), relist);
            watches.spawn(async move { (kind, run.await) });
        }
        // None of them ends on trouble with the API: the first to end is the end of all (dropping the set aborts them).
        match watches.join_next().await {
            Some(Ok((kind, Err(e)))) => Err(e.context(format!("the watch of {} ended", kind.as_str()))),
            Some(Ok((kind, Ok(())))) => anyhow::bail!("the watch of {} ended", kind.as_str()),
            Some(Err(e)) => Err(anyhow::Error::new(e).context("a watch panicked")),
            None => anyhow::bail!("no watch was started"),
        }
    }

    fn tell_calls(&self, to: Arc<dyn CallStatus>) {
        self.api.tell(to);
    }

    async fn allocate(&self, claim: &Claim, allocation: &Allocation, pod: &Consumer) -> Result<Claim, WriteError> {
        claims::allocate(&self.api, claim, allocation, pod).await
    }

    async fn reserve(&self, claim: &Claim, pod: &Consumer, slots: Option<usize>) -> Result<Claim, WriteError> {
        claims::reserve(&self.api, claim, pod, slots).await
    }

    async fn unreserve(
        &self,
        claim: &NamespacedName,
        uid: &str,
        pod: &Consumer,
        deallocate: bool,
    ) -> Result<(), WriteError> {
        claims::unreserve(&self.api, claim, uid, pod, deallocate).await
    }

    async fn claim(&self, key: &NamespacedName) -> Result<Option<Claim>, WriteError> {
        claims::claim(&self.api, key).await
    }

    async fn pod(&self, key: &NamespacedName) -> Result<Option<Pod>, WriteError> {
        claims::pod(&self.api, key).await
    }

    async fn bind(&self, pod: &NamespacedName, uid: &str, node: &str) -> Result<(), WriteError> {
        claims::bind(&self.api, pod, uid, node).await
    }

    async fn ensure_template(&self, template: &Value) -> Result<(), WriteError> {
        templates::ensure(&self.api, template).await
    }

    async fn remove_template(&self, template: &ClaimTemplate) -> Result<(), WriteError> {
        templates::remove(&self.api, template).await
    }

    async fn ensure_claim(&self, claim: &Value) -> Result<(), WriteError> {
        templates::ensure_claim(&self.api, claim).await
    }

    async fn remove_claim(&self, claim: &Claim) -> Result<(), WriteError> {
        templates::remove_claim(&self.api, claim).await
    }

    async fn poke(&self, pod: &NamespacedName, uid: &str) -> Result<(), WriteError> {
        // Only has to differ from last time.
        let n = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_millis());
        let path = paths::pod(pod)?;
        self.api
            .patch(&path, api::MERGE_PATCH, &body::poke(uid, n))
            .await
            .map(drop)
    }

    async fn lease(&self, key: &NamespacedName) -> Result<Option<Lease>, WriteError> {
        lease::read(&self.api, key).await
    }

    async fn write_lease(&self, key: &NamespacedName, write: &LeaseWrite) -> Result<Lease, WriteError> {
        lease::write(&self.api, key, write).await
    }

    async fn caught_up(&self) -> Result<(), WriteError> {
        self.relists.caught_up().await
    }

    async fn label_leader(&self, pod: &NamespacedName, leader: bool) -> Result<(), WriteError> {
        lease::label(&self.api, pod, leader).await
    }

    async fn event(&self, event: &Event) -> Result<(), WriteError> {
        events::write(&self.api, event).await
    }

    async fn lift_gate(&self, pod: &NamespacedName, uid: &str) -> Result<(), WriteError> {
        let path = paths::pod(pod)?;
        let patched = self.api.patch(&path, api::STRATEGIC_PATCH, &body::lift_gate(uid)).await;
        patched.map(drop)
    }
}
