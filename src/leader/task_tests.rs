//! The election in virtual time, over a Lease store that can be slow, deaf or cut off for one replica.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::{Fence, Leadership, Settings, Term, Timing, elect};
use crate::cluster::{Cluster, Lease, LeaseWrite, WatchStatus, WriteError, deadline};
use crate::model::{Allocation, Claim, Consumer, NamespacedName, Pod};
use crate::publish::IndexHandle;

const S: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Store {
    lease: Option<Lease>,
    version: u64,
    /// Pods with the label.
    labelled: BTreeMap<NamespacedName, bool>,
    /// Who bound what, and under which limit.
    binds: Vec<(&'static str, Instant)>,
}

/// What one replica sees of the API.
#[derive(Clone)]
struct Api {
    name: &'static str,
    store: Arc<Mutex<Store>>,
    /// Cut off: nothing is answered.
    cut: watch::Sender<bool>,
    /// The cache can be brought up to date.
    fresh: watch::Sender<bool>,
    latency: Duration,
    label_fails: Arc<AtomicUsize>,
}

impl Api {
    fn new(name: &'static str, store: &Arc<Mutex<Store>>) -> Self {
        Self {
            name,
            store: store.clone(),
            cut: watch::Sender::new(false),
            fresh: watch::Sender::new(true),
            latency: Duration::from_millis(20),
            label_fails: Arc::default(),
        }
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().expect("not poisoned")
    }

    async fn reach(&self) {
        sleep(self.latency).await;
        let _ = self.cut.subscribe().wait_for(|cut| !*cut).await;
    }
}

fn unused<T>() -> Result<T, WriteError> {
    Err(WriteError::Refused("not part of this test".into()))
}

#[async_trait]
impl Cluster for Api {
    async fn watch(&self, _: IndexHandle, _: Arc<dyn WatchStatus>) -> anyhow::Result<()> {
        anyhow::bail!("not part of this test")
    }
    async fn allocate(&self, _: &Claim, _: &Allocation, _: &Consumer) -> Result<Claim, WriteError> {
        unused()
    }
    async fn reserve(&self, _: &Claim, _: &Consumer) -> Result<Claim, WriteError> {
        unused()
    }
    async fn unreserve(&self, _: &NamespacedName, _: &str, _: &Consumer, _: bool) -> Result<(), WriteError> {
        unused()
    }
    async fn claim(&self, _: &NamespacedName) -> Result<Option<Claim>, WriteError> {
        unused()
    }
    async fn pod(&self, _: &NamespacedName) -> Result<Option<Pod>, WriteError> {
        unused()
    }
    async fn ensure_template(&self, _: &serde_json::Value) -> Result<(), WriteError> {
        unused()
    }
    async fn poke(&self, _: &NamespacedName, _: &str) -> Result<(), WriteError> {
        unused()
    }

    async fn bind(&self, _: &NamespacedName, _: &str, _: &str) -> Result<(), WriteError> {
        self.reach().await;
        let limit = deadline::limit().expect("a leader's write has a limit");
        self.store().binds.push((self.name, limit));
        Ok(())
    }

    async fn lease(&self, _: &NamespacedName) -> Result<Option<Lease>, WriteError> {
        self.reach().await;
        Ok(self.store().lease.clone())
    }

    async fn write_lease(&self, _: &NamespacedName, write: &LeaseWrite) -> Result<Lease, WriteError> {
        self.reach().await;
        let mut store = self.store();
        if write.replaces != store.lease.as_ref().map(|l| l.version.clone()) {
            return Err(WriteError::Conflict("changed".into()));
        }
        store.version += 1;
        let lease = Lease {
            version: store.version.to_string().into(),
            holder: write.holder.clone(),
            duration: write.duration,
            transitions: write.transitions,
        };
        store.lease = Some(lease.clone());
        Ok(lease)
    }

    async fn caught_up(&self) -> Result<(), WriteError> {
        self.reach().await;
        let _ = self.fresh.subscribe().wait_for(|fresh| *fresh).await;
        Ok(())
    }

    async fn label_leader(&self, pod: &NamespacedName, leader: bool) -> Result<(), WriteError> {
        self.reach().await;
        let fails = |n: usize| n.checked_sub(1);
        if self
            .label_fails
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fails)
            .is_ok()
        {
            return Err(WriteError::Refused("no".into()));
        }
        let mut store = self.store();
        if leader {
            store.labelled.clear();
        }
        store.labelled.insert(pod.clone(), leader);
        Ok(())
    }
}

struct Replica {
    api: Api,
    leadership: Leadership,
    task: JoinHandle<()>,
}

impl Replica {
    fn start(name: &'static str, store: &Arc<Mutex<Store>>) -> Self {
        Self::start_with(Api::new(name, store))
    }

    fn start_with(api: Api) -> Self {
        let settings = Settings {
            lease: NamespacedName::new("system", "wattlane"),
            identity: api.name.into(),
            pod: Some(NamespacedName::new("system", api.name)),
            timing: Timing::default(),
        };
        let (leadership, run) = elect(Arc::new(api.clone()), settings);
        Self {
            api,
            leadership,
            task: tokio::spawn(run),
        }
    }

    async fn leads_within(&self, limit: Duration) -> Duration {
        let begun = Instant::now();
        let mut standing = self.leadership.standing.clone();
        let leads = standing.wait_for(|s| s.leads().is_some());
        let waited = timeout(limit, leads).await;
        waited.expect("it leads in time").expect("the election runs");
        begun.elapsed()
    }

    fn why_not(&self) -> String {
        match self.leadership.term() {
            Ok(_) => "it leads".to_owned(),
            Err(no) => no.to_string(),
        }
    }

    fn labelled(&self) -> bool {
        let pod = NamespacedName::new("system", self.api.name);
        self.api.store().labelled.get(&pod).copied().unwrap_or(false)
    }

    fn fence(&self, term: Term) -> Fence {
        Fence::new(Arc::new(self.api.clone()), term)
    }
}

async fn bind(fence: &Fence) -> Result<(), WriteError> {
    fence.bind(&NamespacedName::new("ns", "p"), "u", "n").await
}

async fn two() -> (Replica, Replica) {
    let store = Arc::default();
    let a = Replica::start("a", &store);
    a.leads_within(S).await;
    let b = Replica::start("b", &store);
    sleep(3 * S).await;
    (a, b)
}

#[tokio::test(start_paused = true)]
async fn the_first_leads_the_second_says_who_does() {
    let (a, b) = two().await;
    assert!(a.leadership.leads() && a.labelled());
    assert_eq!(b.why_not(), "not the leader; a is, or was until now");
    assert!(!b.labelled());
    sleep(300 * S).await;
    assert!(a.leadership.leads() && !b.leadership.leads());
    assert_eq!((a.leadership.stats().gained(), a.leadership.stats().lost()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_killed_leader_is_followed_within_lease_and_retry() {
    let (a, b) = two().await;
    a.task.abort();
    let took = b.leads_within(60 * S).await;
    assert!(took <= 11 * S + Duration::from_millis(100), "{took:?}");
    assert!(took >= 8 * S, "sooner than the old one could have ended: {took:?}");
    sleep(S).await;
    assert!(b.labelled() && !a.labelled(), "the dead one's label is taken off");
}

#[tokio::test(start_paused = true)]
async fn one_that_resigns_is_followed_at_the_next_look() {
    let (a, b) = two().await;
    a.leadership.resign().await;
    assert!(!a.leadership.leads() && !a.labelled());
    assert_eq!(
        a.api.store().lease.as_ref().map(|l| l.holder.to_string()),
        Some(String::new())
    );
    let took = b.leads_within(60 * S).await;
    assert!(took <= S + Duration::from_millis(200), "{took:?}");
    a.task.await.expect("the election ends by itself");
}

#[tokio::test(start_paused = true)]
async fn cut_off_it_stops_before_the_other_begins_and_comes_back_as_a_follower() {
    let (a, b) = two().await;
    let term = a.leadership.term().expect("a leads");
    a.api.cut.send_replace(true);
    let cut = Instant::now();
    term.over().await;
    let stopped = cut.elapsed();
    assert!(stopped <= 6 * S, "{stopped:?}");
    assert!(term.is_over() && !b.leadership.leads());
    b.leads_within(10 * S).await;
    assert!(cut.elapsed() - stopped >= 3 * S, "somebody's clock may run faster");
    a.api.cut.send_replace(false);
    sleep(5 * S).await;
    assert_eq!(a.why_not(), "not the leader; b is, or was until now");
    assert!(a.leadership.stats().renew_failures() > 0);
    assert_eq!(a.leadership.stats().lost(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_write_waits_for_the_renewal_is_cut_off_with_its_term_and_not_sent_after_it() {
    let (a, b) = two().await;
    let fence = a.fence(a.leadership.term().expect("a leads"));
    bind(&fence).await.expect("bound");
    a.api.cut.send_replace(true);
    let cut = Instant::now();
    // Sent, and never answered: given up when the term ends, not later.
    let sent = bind(&fence).await;
    assert!(matches!(sent, Err(WriteError::Unknown(_))), "{sent:?}");
    assert!(cut.elapsed() <= 6 * S);
    let late = bind(&fence).await;
    assert!(
        matches!(&late, Err(WriteError::Refused(m)) if m.contains("not sent")),
        "{late:?}"
    );
    b.leads_within(20 * S).await;
    a.api.cut.send_replace(false);
    let late = bind(&fence).await;
    assert!(matches!(late, Err(WriteError::Refused(_))), "{late:?}");
    let binds = a.api.store().binds.clone();
    assert_eq!(binds.len(), 1);
    assert!(
        binds[0].1 <= cut + 6 * S,
        "its limit is the end of the term as known then"
    );
}

#[tokio::test(start_paused = true)]
async fn short_of_time_a_write_is_not_begun_until_the_lease_is_renewed() {
    let (a, _b) = two().await;
    let term = a.leadership.term().expect("a leads");
    a.api.cut.send_replace(true);
    sleep(Duration::from_millis(4_500)).await;
    let permit = term.permit();
    tokio::pin!(permit);
    assert!(
        futures::poll!(&mut permit).is_pending(),
        "less than two seconds are left"
    );
    a.api.cut.send_replace(false);
    let until = permit.await.expect("renewed just in time");
    assert!(until - Instant::now() > 2 * S);
    assert!(!term.is_over());
}

#[tokio::test(start_paused = true)]
async fn elected_is_not_leading_before_the_cache_is_as_new_as_the_last_write() {
    let (a, b) = two().await;
    b.api.fresh.send_replace(false);
    a.task.abort();
    sleep(60 * S).await;
    assert!(b.why_not().starts_with("becoming the leader"), "{}", b.why_not());
    assert!(!b.labelled(), "nobody is sent to it yet");
    b.api.fresh.send_replace(true);
    b.leads_within(S).await;
    assert_eq!(b.leadership.stats().gained(), 1, "one term, renewed all the while");
}

#[tokio::test(start_paused = true)]
async fn what_was_proven_in_one_term_proves_nothing_in_the_next() {
    let store = Arc::default();
    let a = Replica::start("a", &store);
    a.leads_within(S).await;
    let old = a.leadership.term().expect("leads");
    a.api.fresh.send_replace(false);
    a.api.cut.send_replace(true);
    old.over().await;
    a.api.cut.send_replace(false);
    sleep(20 * S).await;
    assert!(a.why_not().starts_with("becoming the leader"), "{}", a.why_not());
    a.api.fresh.send_replace(true);
    a.leads_within(S).await;
    assert!(old.is_over(), "a bind of the old term does not come back to life");
    assert!(matches!(bind(&a.fence(old)).await, Err(WriteError::Refused(_))));
}

/// By a person, or by a write of ours from before the term that was executed late.
#[tokio::test(start_paused = true)]
async fn a_label_that_was_taken_off_comes_back() {
    let (a, _) = two().await;
    a.api.store().labelled.clear();
    sleep(11 * S).await;
    assert!(a.labelled());
}

#[tokio::test(start_paused = true)]
async fn a_label_that_cannot_be_set_is_tried_again_and_counted() {
    let api = Api::new("a", &Arc::default());
    api.label_fails.store(5, Ordering::Relaxed);
    let a = Replica::start_with(api);
    a.leads_within(S).await;
    sleep(20 * S).await;
    assert!(a.labelled());
    assert_eq!(a.leadership.stats().label_failures(), 5);
}
