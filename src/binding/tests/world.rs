//! A cluster in memory whose every call can fail in every way, before or after it took effect, or take effect long
//! after it failed. Two claims, two devices a node; whoever gives a device twice is written down.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::cluster::{Cluster, WatchStatus, WriteError};
use crate::index::{Change, Object};
use crate::model::{Allocation, Claim, Consumer, DeviceCondition, DeviceId, Name, NamespacedName, Pod};
use crate::publish::IndexHandle;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Allocate,
    Reserve,
    Unreserve,
    ReadClaim,
    ReadPod,
    Bind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Refused,
    ConflictBefore,
    ConflictAfter,
    /// The object has really been deleted.
    Gone,
    UnknownBefore,
    UnknownAfter,
    /// Not answered, and it takes effect 20 s later, if its preconditions still hold.
    UnknownLate,
}

/// The next `times` calls of a step fail.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trouble {
    pub(super) step: Step,
    pub(super) fault: Fault,
    pub(super) times: u32,
}

pub(super) struct State {
    version: u64,
    pub(super) claims: BTreeMap<NamespacedName, Claim>,
    pub(super) pods: BTreeMap<NamespacedName, Pod>,
    pub(super) given_twice: Vec<String>,
    /// The watch of each replica.
    feeds: Vec<mpsc::UnboundedSender<Change>>,
    start: Instant,
}

impl State {
    fn touch_claim(&mut self, key: &NamespacedName) -> Claim {
        self.version += 1;
        let claim = self.claims.get_mut(key).expect("just looked at");
        claim.resource_version = self.version.to_string().into();
        let claim = claim.clone();
        self.tell(Change::Upsert(Object::Claim(claim.clone())));
        claim
    }

    fn claim(&mut self, key: &NamespacedName, uid: &str) -> Result<&mut Claim, WriteError> {
        let found = self.claims.get_mut(key).filter(|c| &*c.uid == uid);
        found.ok_or_else(|| WriteError::NotFound("no such claim".to_owned()))
    }

    fn allocate(&mut self, claim: &Claim, allocation: &Allocation, pod: &Consumer) -> Result<Claim, WriteError> {
        let taken: Vec<DeviceId> = self.devices();
        let now = self.now();
        let found = self.claim(&claim.key, &claim.uid)?;
        if found.resource_version != claim.resource_version || found.allocation.is_some() {
            return Err(WriteError::Conflict("the claim was changed".to_owned()));
        }
        found.allocation = Some(Arc::new(allocation.clone()));
        found.allocated_at = Some(now);
        found.reserved_for.push(pod.clone());
        for device in allocation.results.iter().map(|r| &r.id).filter(|d| taken.contains(d)) {
            self.given_twice.push(format!("{device} to {}", claim.key));
        }
        Ok(self.touch_claim(&claim.key))
    }

    fn reserve(&mut self, claim: &Claim, pod: &Consumer, slots: Option<usize>) -> Result<Claim, WriteError> {
        let found = self.claim(&claim.key, &claim.uid)?;
        if found.allocation != claim.allocation {
            return Err(WriteError::Conflict("no longer allocated so".to_owned()));
        }
        if found.reserved_for.contains(pod) {
            return Ok(found.clone());
        }
        if slots.is_some_and(|most| found.reserved_for.len() >= most) {
            return Err(WriteError::Conflict(format!(
                "all slots of ResourceClaim {} are taken",
                claim.key
            )));
        }
        found.reserved_for.push(pod.clone());
        Ok(self.touch_claim(&claim.key))
    }

    fn unreserve(&mut self, key: &NamespacedName, uid: &str, pod: &Consumer, deallocate: bool) {
        let Ok(found) = self.claim(key, uid) else { return };
        let before = found.clone();
        found.reserved_for.retain(|c| c != pod);
        if deallocate && found.reserved_for.is_empty() {
            found.allocation = None;
            found.conditions.clear();
        }
        if *found != before {
            self.touch_claim(key);
        }
    }

    fn bind(&mut self, key: &NamespacedName, uid: &str, node: &str) -> Result<(), WriteError> {
        let found = self.pods.get_mut(key).filter(|p| &*p.uid == uid);
        let found = found.ok_or_else(|| WriteError::NotFound("no such pod".to_owned()))?;
        match &*found.node_name {
            "" => found.node_name = node.into(),
            bound if bound == node => return Ok(()),
            _ => return Err(WriteError::Conflict("bound elsewhere".to_owned())),
        }
        let pod = found.clone();
        self.tell(Change::Upsert(Object::Pod(pod)));
        Ok(())
    }

    fn version_of(&self, claim: &NamespacedName) -> Option<Name> {
        self.claims.get(claim).map(|c| c.resource_version.clone())
    }

    fn tell(&self, change: Change) {
        for feed in &self.feeds {
            let _ = feed.send(change.clone());
        }
    }

    /// Another replica's watch: it begins with a list.
    pub(super) fn watched_by(&mut self, feed: mpsc::UnboundedSender<Change>) {
        for claim in self.claims.values() {
            let _ = feed.send(Change::Upsert(Object::Claim(claim.clone())));
        }
        for pod in self.pods.values() {
            let _ = feed.send(Change::Upsert(Object::Pod(pod.clone())));
        }
        self.feeds.push(feed);
    }

    pub(super) fn devices(&self) -> Vec<DeviceId> {
        let allocations = self.claims.values().filter_map(|c| c.allocation.as_ref());
        allocations
            .flat_map(|a| a.results.iter().map(|r| r.id.clone()))
            .collect()
    }

    pub(super) fn add_claim(&mut self, claim: Claim) {
        let key = claim.key.clone();
        self.claims.insert(key.clone(), claim);
        self.touch_claim(&key);
    }

    pub(super) fn add_pod(&mut self, pod: Pod) {
        self.tell(Change::Upsert(Object::Pod(pod.clone())));
        self.pods.insert(pod.key.clone(), pod);
    }

    /// What a driver does: it reports on every device of the claim.
    pub(super) fn report(&mut self, key: &NamespacedName, kind: &str, holds: bool, words: &str) {
        let claim = self.claims.get_mut(key).expect("the claim is there");
        let results = claim.allocation.clone().expect("the claim is allocated");
        claim.conditions = results
            .results
            .iter()
            .map(|r| DeviceCondition {
                device: r.id.clone(),
                share_id: r.share_id.clone(),
                kind: kind.into(),
                holds,
                words: words.into(),
            })
            .collect();
        self.touch_claim(key);
    }

    fn now(&self) -> i64 {
        1_000_000 + i64::try_from(self.start.elapsed().as_secs()).expect("a short test")
    }

    fn delete_claim(&mut self, key: &NamespacedName) {
        self.claims.remove(key);
        self.tell(Change::Remove(crate::index::Kind::Claim, key.clone()));
    }

    fn delete_pod(&mut self, key: &NamespacedName) {
        self.pods.remove(key);
        self.tell(Change::Remove(crate::index::Kind::Pod, key.clone()));
    }
}

#[derive(Clone)]
pub(super) struct World {
    state: Arc<Mutex<State>>,
    troubles: Arc<Mutex<Vec<Trouble>>>,
    /// How long each call takes.
    pub(super) latency: Duration,
}

impl World {
    pub(super) fn new(feed: mpsc::UnboundedSender<Change>, troubles: &[Trouble], latency: Duration) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                version: 0,
                claims: BTreeMap::new(),
                pods: BTreeMap::new(),
                given_twice: vec![],
                feeds: vec![feed],
                start: Instant::now(),
            })),
            troubles: Arc::new(Mutex::new(troubles.to_vec())),
            latency,
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("not poisoned")
    }

    pub(super) fn fail(&self, trouble: Trouble) {
        self.troubles.lock().expect("not poisoned").push(trouble);
    }

    /// Nothing fails any more.
    pub(super) fn heal(&self) {
        self.troubles.lock().expect("not poisoned").clear();
    }

    /// Seconds since an epoch, in virtual time.
    pub(super) fn now(&self) -> i64 {
        self.state().now()
    }

    /// No more trouble.
    pub(super) fn calm(&self) {
        self.troubles.lock().expect("not poisoned").clear();
    }

    fn fault(&self, step: Step) -> Option<Fault> {
        let mut troubles = self.troubles.lock().expect("not poisoned");
        let hit = troubles.iter_mut().find(|t| t.step == step && t.times > 0)?;
        hit.times -= 1;
        Some(hit.fault)
    }

    /// One call: `effect` is what the API does, `delete` removes the object it is about.
    async fn call<T: Send + 'static>(
        &self,
        step: Step,
        effect: impl FnOnce(&mut State) -> Result<T, WriteError> + Send + 'static,
        delete: impl FnOnce(&mut State) + Send,
    ) -> Result<T, WriteError> {
        sleep(self.latency).await;
        let text = || format!("{step:?} made to fail");
        match self.fault(step) {
            None => effect(&mut self.state()),
            Some(Fault::Refused) => Err(WriteError::Refused(text())),
            Some(Fault::ConflictBefore) => Err(WriteError::Conflict(text())),
            Some(Fault::ConflictAfter) => {
                let _ = effect(&mut self.state());
                Err(WriteError::Conflict(text()))
            }
            Some(Fault::Gone) => {
                delete(&mut self.state());
                effect(&mut self.state())
            }
            Some(Fault::UnknownBefore) => Err(WriteError::Unknown(text())),
            Some(Fault::UnknownAfter) => {
                let _ = effect(&mut self.state());
                Err(WriteError::Unknown(text()))
            }
            Some(Fault::UnknownLate) => {
                let world = self.clone();
                tokio::spawn(async move {
                    sleep(Duration::from_secs(20)).await;
                    let _ = effect(&mut world.state());
                });
                Err(WriteError::Unknown(text()))
            }
        }
    }
}

#[async_trait]
impl Cluster for World {
    async fn watch(&self, _: IndexHandle, _: Arc<dyn WatchStatus>) -> anyhow::Result<()> {
        anyhow::bail!("the test feeds the index")
    }

    async fn allocate(&self, claim: &Claim, allocation: &Allocation, pod: &Consumer) -> Result<Claim, WriteError> {
        let (c, a, p) = (claim.clone(), allocation.clone(), pod.clone());
        self.call(
            Step::Allocate,
            move |s| s.allocate(&c, &a, &p),
            |s| s.delete_claim(&claim.key),
        )
        .await
    }

    async fn reserve(&self, claim: &Claim, pod: &Consumer, slots: Option<usize>) -> Result<Claim, WriteError> {
        let (c, p) = (claim.clone(), pod.clone());
        self.call(
            Step::Reserve,
            move |s| s.reserve(&c, &p, slots),
            |s| s.delete_claim(&claim.key),
        )
        .await
    }

    async fn unreserve(
        &self,
        claim: &NamespacedName,
        uid: &str,
        pod: &Consumer,
        deallocate: bool,
    ) -> Result<(), WriteError> {
        let (c, u, p) = (claim.clone(), uid.to_owned(), pod.clone());
        let read = self.state().version_of(claim);
        let effect = move |s: &mut State| {
            if s.version_of(&c) != read {
                return Err(WriteError::Conflict("the claim was changed".to_owned()));
            }
            s.unreserve(&c, &u, &p, deallocate);
            Ok(())
        };
        self.call(Step::Unreserve, effect, |s| s.delete_claim(claim)).await
    }

    async fn claim(&self, key: &NamespacedName) -> Result<Option<Claim>, WriteError> {
        let k = key.clone();
        self.call(
            Step::ReadClaim,
            move |s| Ok(s.claims.get(&k).cloned()),
            |s| s.delete_claim(key),
        )
        .await
    }

    async fn pod(&self, key: &NamespacedName) -> Result<Option<Pod>, WriteError> {
        let k = key.clone();
        self.call(
            Step::ReadPod,
            move |s| Ok(s.pods.get(&k).cloned()),
            |s| s.delete_pod(key),
        )
        .await
    }

    async fn bind(&self, pod: &NamespacedName, uid: &str, node: &str) -> Result<(), WriteError> {
        let (k, u, n) = (pod.clone(), uid.to_owned(), node.to_owned());
        self.call(Step::Bind, move |s| s.bind(&k, &u, &n), |s| s.delete_pod(pod))
            .await
    }

    async fn ensure_template(&self, _: &serde_json::Value) -> Result<(), WriteError> {
        Err(WriteError::Refused("bind makes no templates".to_owned()))
    }

    async fn poke(&self, _: &NamespacedName, _: &str) -> Result<(), WriteError> {
        Err(WriteError::Refused("bind pokes nobody".to_owned()))
    }
}
