//! A cluster in memory, out of files: stands in for the API server and its claim controller where it matters to
//! placement. What is checked on a write is what the API server checks; what is never written is not kept.
//!
//! Here are the doors: locking, and telling the index. `state` holds the objects and the rules of each write, `pods`
//! those of pods and the claims made for them, `stored` keeps their text, `load` reads files, `assume` fills in what they left
//! out, `doubts` says what is odd.

mod assume;
mod doubts;
mod load;
mod pods;
mod shares;
mod state;
mod stored;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use tokio::sync::Notify;

use self::load::Loader;
use self::state::State;
use super::{Cluster, Lease, LeaseWrite, WatchStatus, WriteError, files};
use crate::index::{Change, Kind};
use crate::model::{Allocation, Claim, ClaimTemplate, Consumer, NamespacedName, Pod};
use crate::publish::{Closed, IndexHandle};

/// How often the watches say that they are alive.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);

pub struct Embedded {
    state: Mutex<State>,
    /// Held while changes are sent, so that the index sees them in the order in which they were made.
    index: tokio::sync::Mutex<Option<IndexHandle>>,
    /// Something may have been left unsent by a caller that was dropped.
    unsent: Notify,
    pending: Vec<Value>,
    assumptions: Vec<String>,
    doubts: Vec<String>,
    skipped: BTreeMap<String, Skipped>,
}

/// Objects of a kind that is not used here.
#[derive(Debug, PartialEq, Eq)]
pub struct Skipped {
    pub count: usize,
    /// Where the first of them is.
    pub file: PathBuf,
}

impl Embedded {
    /// The cluster of these files and folders.
    ///
    /// # Errors
    /// A file that cannot be read, an object of a kind we keep that does not convert (also an API version that is not
    /// read any more), and two different objects of one name: with the place and the object.
    pub fn load(paths: &[PathBuf]) -> anyhow::Result<Self> {
        let mut loader = Loader::default();
        let empty = files::each_object(paths, &mut |path, object| loader.take(path, object))?;
        loader.finish(&empty)
    }

    /// The cluster of one text, YAML or JSON. `name` stands for the file in errors.
    ///
    /// # Errors
    /// As [`Embedded::load`].
    pub fn from_yaml(name: &str, text: &str) -> anyhow::Result<Self> {
        let mut loader = Loader::default();
        files::text_objects(name, text, &mut |object| loader.take(Path::new(name), object))?;
        loader.finish(&[])
    }

    fn new(
        state: State,
        pending: Vec<Value>,
        assumptions: Vec<String>,
        doubts: Vec<String>,
        skipped: BTreeMap<String, Skipped>,
    ) -> Self {
        Self {
            state: Mutex::new(state),
            index: tokio::sync::Mutex::new(None),
            unsent: Notify::new(),
            pending,
            assumptions,
            doubts,
            skipped,
        }
    }

    /// The files' pods that wait for a node, in the order of the files, each with its namespace. They are not in the
    /// cluster until they are created.
    pub fn pending(&self) -> Vec<Value> {
        self.pending.clone()
    }

    /// What the files left out and how it was filled in: a sentence each.
    pub fn assumptions(&self) -> &[String] {
        &self.assumptions
    }

    /// What of the files is probably not meant so: a sentence each.
    pub fn doubts(&self) -> &[String] {
        &self.doubts
    }

    /// Objects of kinds that are not used here, by `apiVersion kind`.
    pub fn skipped(&self) -> &BTreeMap<String, Skipped> {
        &self.skipped
    }

    /// Creates the pod, and at once the claims of its templates. The index has been told when this returns.
    ///
    /// # Errors
    /// `Refused`: it cannot be read, its name is taken, its namespace or a template does not exist, or another object
    /// has the name of a claim it needs.
    pub async fn create_pod(&self, pod: Value) -> Result<Pod, WriteError> {
        self.write(|state| state.create_pod(pod)).await
    }

    /// Deletes the pod with the claims made for it, and takes it out of the others, as the claim controller does.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn delete_pod(&self, namespace: &str, name: &str) -> Result<(), WriteError> {
        let key = NamespacedName::new(namespace, name);
        self.write(|state| state.delete_pod(&key)).await
    }

    /// The pod as the API would show it now: with its UID, its node and the names of its claims.
    pub fn pod_json(&self, namespace: &str, name: &str) -> Option<Value> {
        self.state().pod_json(&NamespacedName::new(namespace, name))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing here panics half way through a write; should it, what is there is still the best there is.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn write<T>(&self, change: impl FnOnce(&mut State) -> Result<T, WriteError>) -> Result<T, WriteError> {
        let result = change(&mut self.state());
        // For `watch`, should this future be dropped while it waits for the index.
        self.unsent.notify_one();
        // An index that has ended ends the process; the write itself was made.
        let _ = self.tell().await;
        result
    }

    /// Sends what the index has not been told yet. Before `watch` that is nothing: it starts with all there is.
    async fn tell(&self) -> Result<(), Closed> {
        let index = self.index.lock().await;
        let Some(index) = &*index else { return Ok(()) };
        loop {
            // Taken out only when sent: whoever is dropped in between leaves it to the next.
            let Some(next) = self.state().unsent().front().cloned() else {
                return Ok(());
            };
            index.change(next).await?;
            self.state().unsent().pop_front();
        }
    }
}

#[async_trait]
impl Cluster for Embedded {
    async fn watch(&self, index: IndexHandle, status: Arc<dyn WatchStatus>) -> anyhow::Result<()> {
        {
            let mut current = self.index.lock().await;
            let everything = self.state().start_watch();
            for (kind, objects) in everything {
                index.change(Change::Reset(kind, objects)).await?;
                status.alive(kind);
            }
            *current = Some(index);
        }
        loop {
            self.tell().await?;
            // Either way it is time to look again.
            let _ = tokio::time::timeout(SIGN_OF_LIFE, self.unsent.notified()).await;
            Kind::ALL.into_iter().for_each(|kind| status.alive(kind));
        }
    }

    async fn allocate(&self, claim: &Claim, allocation: &Allocation, pod: &Consumer) -> Result<Claim, WriteError> {
        self.write(|state| state.allocate(claim, allocation, pod)).await
    }

    async fn reserve(&self, claim: &Claim, pod: &Consumer, slots: Option<usize>) -> Result<Claim, WriteError> {
        self.write(|state| state.reserve(claim, pod, slots)).await
    }

    async fn unreserve(
        &self,
        claim: &NamespacedName,
        uid: &str,
        pod: &Consumer,
        deallocate: bool,
    ) -> Result<(), WriteError> {
        self.write(|state| {
            state.unreserve(claim, uid, &pod.uid, deallocate);
            Ok(())
        })
        .await
    }

    async fn claim(&self, key: &NamespacedName) -> Result<Option<Claim>, WriteError> {
        Ok(self.state().claim(key).cloned())
    }

    async fn pod(&self, key: &NamespacedName) -> Result<Option<Pod>, WriteError> {
        Ok(self.state().pod(key))
    }

    async fn bind(&self, pod: &NamespacedName, uid: &str, node: &str) -> Result<(), WriteError> {
        self.write(|state| state.bind(pod, uid, node)).await
    }

    async fn ensure_template(&self, template: &Value) -> Result<(), WriteError> {
        self.write(|state| state.ensure_template(template)).await
    }

    async fn remove_template(&self, template: &ClaimTemplate) -> Result<(), WriteError> {
        self.write(|state| state.remove_template(template)).await
    }

    async fn ensure_claim(&self, claim: &Value) -> Result<(), WriteError> {
        self.write(|state| state.ensure_claim(claim)).await
    }

    async fn remove_claim(&self, claim: &Claim) -> Result<(), WriteError> {
        self.write(|state| state.remove_shared(claim)).await
    }

    /// Nobody schedules again here: whoever created a pod tries it when they like.
    async fn poke(&self, _: &NamespacedName, _: &str) -> Result<(), WriteError> {
        Ok(())
    }

    async fn lease(&self, key: &NamespacedName) -> Result<Option<Lease>, WriteError> {
        Ok(self.state().lease(key).cloned())
    }

    async fn write_lease(&self, key: &NamespacedName, write: &LeaseWrite) -> Result<Lease, WriteError> {
        self.state().write_lease(key, write)
    }

    async fn caught_up(&self) -> Result<(), WriteError> {
        let closed = |e: Closed| WriteError::Unknown(e.to_string());
        self.tell().await.map_err(closed)?;
        let index = self.index.lock().await.clone();
        match index {
            Some(index) => index.flush().await.map_err(closed),
            None => Err(WriteError::Unknown("nobody watches yet".to_owned())),
        }
    }
}
