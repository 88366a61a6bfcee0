//! Wiring and supervision: builds the parts, connects them, and ends the process when a critical one ends.
//!
//! `Core` is everything but the network: what `explain` and `check` need. `net` puts the service around it.

mod audit;
mod logging;
mod net;
mod policy;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context as _, bail};
use arc_swap::ArcSwap;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admission::{self, Admitter, Skip, Swept};
use crate::binding::{self, Binder};
use crate::cluster::Cluster;
use crate::index::Index;
use crate::leader::{self, Leadership};
use crate::metrics::{Metrics, Readiness};
use crate::placement::{self, Context, Demand, Memo, Rules};
use crate::policy::{Policy, PolicyClassifier};
use crate::publish::{self, Fits, IndexHandle, Poke, Reader};
use crate::selector::Selectors;
use crate::server::Turns;
use crate::server::handlers::Handlers;
use crate::snapshot::{NodeEntry, Pool};

pub use logging::{LogArgs, LogFormat};
pub use net::{App, Kept, Net, TlsFiles, serve};
pub use policy::PolicySource;

/// How long a command waits for the first complete picture of the cluster.
const FIRST_PICTURE: Duration = Duration::from_secs(60);
/// A watch that is silent for longer is stale: a healthy one of the Kubernetes cluster shows life every minute.
const STALE_AFTER: Duration = Duration::from_secs(120);
/// How long a pod of a namespace that our watch has not shown yet waits at admission.
const ADMISSION_PATIENCE: Duration = Duration::from_millis(500);

/// A critical task: its name, and how it ended.
type Ended = (&'static str, anyhow::Result<()>);

/// The parts that decide, connected and fed. Cheap to clone.
#[derive(Clone)]
pub struct Core {
    pub reader: Reader,
    pub index: IndexHandle,
    pub selectors: Arc<Selectors>,
    pub policy: Arc<ArcSwap<Policy>>,
    pub cluster: Arc<dyn Cluster>,
    pub metrics: Arc<Metrics>,
    pub readiness: Arc<Readiness>,
    pub admitter: Arc<Admitter>,
    pub binder: Binder,
    /// None: there is one replica, which binds.
    pub leadership: Option<Leadership>,
    source: Arc<PolicySource>,
    tasks: Arc<Mutex<JoinSet<Ended>>>,
    /// Ends the tasks that look after themselves.
    stop: CancellationToken,
}

impl Core {
    /// Starts the index, the watches and what hangs on them, without waiting for a picture of the cluster. `ages`: a
    /// watch that is silent for long is a fault (files have no events to wait for).
    pub fn spawn(cluster: Arc<dyn Cluster>, source: PolicySource, ages: bool) -> anyhow::Result<Self> {
        let selectors = Arc::new(Selectors::new());
        let metrics = Arc::new(Metrics::new().context("metrics")?);
        let policy = Arc::new(ArcSwap::from_pointee(source.policy(&selectors, &metrics)?));
        cluster.tell_calls(metrics.clone());
        metrics.preset_skips(Skip::ALL.map(Skip::as_str));
        metrics.preset_swept(Swept::ALL.map(Swept::as_str));
        let readiness = Arc::new(Readiness::new(metrics.clone(), ages.then_some(STALE_AFTER)));
        let index = Index::new(Arc::new(PolicyClassifier::new(policy.load_full())));
        let running = publish::spawn(index, fits(selectors.clone(), policy.clone()));
        let (index, reader) = (running.index, running.reader);

        let mut tasks: JoinSet<Ended> = JoinSet::new();
        let task = running.task;
        tasks.spawn(async { ("index", task.await.map_err(Into::into)) });
        let watch = {
            let (cluster, index, readiness) = (cluster.clone(), index.clone(), readiness.clone());
            async move { cluster.watch(index, readiness).await }
        };
        tasks.spawn(async { ("watches", watch.await) });
        tasks.spawn(poke(cluster.clone(), running.pokes, metrics.clone()));
        let stop = CancellationToken::new();

        let (stats, seen) = (running.stats, reader.clone());
        let shared = (reader.clone(), selectors.clone(), policy.clone());
        // Counted anew only where something has changed since the last look.
        let counted = Mutex::new(None);
        metrics.on_render(move |metrics| {
            let (snapshot, policy) = (shared.0.load(), shared.2.load_full());
            let mut counted = counted.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let same = |(version, by): &(u64, Arc<Policy>)| *version == snapshot.version && Arc::ptr_eq(by, &policy);
            if counted.as_ref().is_some_and(same) {
                return;
            }
            *counted = Some((snapshot.version, policy.clone()));
            let rules = policy.rules();
            let context = Context {
                snapshot: &snapshot,
                selectors: &shared.1,
                rules: &rules,
            };
            metrics.sharing(placement::shares(context).filter_map(|share| {
                let left = share.left();
                let device = share.device?;
                let node = share.node.map_or_else(String::new, |node| node.to_string());
                Some((node, format!("{}/{}", device.driver, device.pool), left))
            }));
        });
        metrics.leadership(true, 0, 0, 0, 0);
        // As the shares.
        let counted = std::sync::atomic::AtomicU64::new(u64::MAX);
        metrics.on_render(move |metrics| {
            let snapshot = seen.load();
            if counted.swap(snapshot.version, std::sync::atomic::Ordering::Relaxed) != snapshot.version {
                let of = |node: &NodeEntry| {
                    let name = node.node.name.clone();
                    let fits = snapshot.fits(node).into_iter();
                    fits.map(move |(profile, count)| (name.clone(), profile, count))
                };
                metrics.partitions(snapshot.nodes().flat_map(|(_, node)| of(node)).collect());
                let shared = |node: &NodeEntry| {
                    let of_pool = |(pool, left): (&Pool, i128)| {
                        (
                            node.node.name.to_string(),
                            format!("{}/{}", pool.driver, pool.name),
                            left,
                        )
                    };
                    snapshot.shared_memory(node).map(of_pool).collect::<Vec<_>>()
                };
                metrics.shared_memory(snapshot.nodes().flat_map(|(_, node)| shared(node)));
            }
            metrics
                .snapshot_version
                .set(i64::try_from(seen.load().version).unwrap_or(i64::MAX));
            metrics.power(seen.load().power.domains().map(|d| {
                let name = format!("{}={}", d.budget.label, d.budget.value);
                (name, d.budget.watts, d.used.watts, d.used.unknown.is_none())
            }));
            metrics.published(stats.publications());
            let gauge = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
            metrics.reservations.set(gauge(stats.reservations()));
            metrics.refused_pods.set(gauge(stats.waiting()));
            metrics.holds.set(gauge(stats.holds()));
            stats
                .ended_holds()
                .for_each(|(how, count)| metrics.holds_ended(how, count));
        });
        let patience = if ages { ADMISSION_PATIENCE } else { Duration::ZERO };
        let admitter = Admitter::new(cluster.clone(), reader.clone(), policy.clone()).with_patience(patience);
        let binder = Binder::new(
            reader.clone(),
            index.clone(),
            selectors.clone(),
            cluster.clone(),
            binding::Limits::default(),
        );
        Ok(Self {
            reader,
            index,
            selectors,
            policy,
            cluster,
            metrics,
            readiness,
            admitter: Arc::new(admitter),
            binder,
            leadership: None,
            source: Arc::new(source),
            tasks: Arc::new(Mutex::new(tasks)),
            stop,
        })
    }

    /// One of several replicas: from now on it binds only while it is elected. Before `serve`.
    #[must_use]
    pub fn elected(mut self, settings: leader::Settings) -> Self {
        let (leadership, election) = leader::elect(self.cluster.clone(), settings);
        let shown = leadership.clone();
        self.metrics.on_render(move |metrics| {
            let s = shown.stats();
            metrics.leadership(
                shown.leads(),
                s.gained(),
                s.lost(),
                s.renew_failures(),
                s.label_failures(),
            );
        });
        self.binder = self.binder.led_by(leadership.clone());
        self.leadership = Some(leadership);
        self.tasks().spawn(async {
            election.await;
            ("election", Ok(()))
        });
        self
    }

    /// Follows the policy's file until the service stops.
    pub fn spawn_reload(&self) {
        let reload = policy::Reload {
            policy: self.policy.clone(),
            selectors: self.selectors.clone(),
            index: self.index.clone(),
            reader: self.reader.clone(),
            readiness: self.readiness.clone(),
            metrics: self.metrics.clone(),
        };
        let (source, stop) = (self.source.clone(), self.stop.clone());
        self.tasks().spawn(async move {
            let ended = stop.run_until_cancelled(reload.run(&source)).await;
            ("policy reload", ended.unwrap_or(Ok(())))
        });
    }

    /// Removes claim templates that nobody needs any more, until the service stops and while this replica leads.
    pub fn spawn_sweep(&self) {
        let (core, counted) = (self.clone(), self.metrics.clone());
        let may = move || core.leads() && core.readiness.missing().is_empty();
        let told = move |swept: Swept| counted.swept(swept.as_str());
        let sweep = admission::sweep(self.cluster.clone(), self.reader.clone(), may, told);
        self.supervise("template sweeper", sweep);
    }

    /// Makes shared claims anew that were deleted while pods wait for them, until the service stops and while this replica
    /// leads.
    pub fn spawn_remake(&self) {
        let (core, admitter) = (self.clone(), self.admitter.clone());
        let may = move || core.leads() && core.readiness.missing().is_empty();
        self.supervise("shared claims", async move { admission::remake(&admitter, may).await });
    }

    /// A critical task that never ends by itself, until the service stops.
    fn supervise(&self, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks().spawn(async move {
            // The end of the process is no fault of it.
            let _ = stop.run_until_cancelled(work).await;
            (name, Ok(()))
        });
    }

    fn tasks(&self) -> MutexGuard<'_, JoinSet<Ended>> {
        self.tasks.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// What answers requests; `deciding` filters and prioritizes at one time.
    pub fn handlers(&self, deciding: usize) -> Handlers {
        Handlers {
            reader: self.reader.clone(),
            index: self.index.clone(),
            selectors: self.selectors.clone(),
            policy: self.policy.clone(),
            binder: self.binder.clone(),
            admitter: self.admitter.clone(),
            metrics: self.metrics.clone(),
            readiness: self.readiness.clone(),
            turns: Turns::new(deciding),
        }
    }

    /// Whether this replica does what one of them has to do: bind, look after the cluster.
    pub fn leads(&self) -> bool {
        self.leadership.as_ref().is_none_or(Leadership::leads)
    }

    /// Starts, and waits until every kind has been listed once.
    ///
    /// # Errors
    /// Names what is missing when it takes more than a minute, or the task that ended.
    pub async fn start(cluster: Arc<dyn Cluster>, source: PolicySource) -> anyhow::Result<Self> {
        let core = Self::spawn(cluster, source, false)?;
        let deadline = tokio::time::Instant::now() + FIRST_PICTURE;
        while let Err(missing) = core.readiness.listed() {
            if let Some((name, result)) = core.ended() {
                result.with_context(|| name.to_owned())?;
                bail!("{name} ended");
            }
            if tokio::time::Instant::now() > deadline {
                bail!(
                    "no complete picture of the cluster after {} s: {missing}",
                    FIRST_PICTURE.as_secs()
                );
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        core.index.flush().await?;
        Ok(core)
    }

    /// The rules of the policy in force.
    pub fn rules(&self) -> Rules {
        self.policy.load().rules()
    }

    /// A critical task that has ended, if one has.
    fn ended(&self) -> Option<Ended> {
        self.tasks().try_join_next().map(|result| match result {
            Ok(ended) => ended,
            Err(e) => ("a critical task", Err(e.into())),
        })
    }
}

/// What the poke task asks: would some node take the pod? Again and again while devices come free, of nodes that are the same as
/// before but for one or two.
fn fits(selectors: Arc<Selectors>, policy: Arc<ArcSwap<Policy>>) -> Arc<Fits> {
    let kept = Mutex::new(Memo::default());
    Arc::new(move |snapshot, pod| {
        let rules = policy.load().rules();
        let snapshot = &*snapshot.as_seen_by(pod);
        let context = Context {
            snapshot,
            selectors: &selectors,
            rules: &rules,
        };
        let Ok(demand) = Demand::of(context, pod) else {
            return false;
        };
        let kept = || kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Taken out: what a panic leaves half changed is not put back.
        let mut memo = std::mem::take(&mut *kept());
        memo.renew(snapshot);
        let mut known = memo.about(context, &demand);
        let mut takes = |ix| known.check(context, &demand, ix).is_some_and(|verdict| verdict.is_ok());
        let fits = snapshot.nodes().any(|(ix, _)| takes(ix));
        *kept() = memo;
        fits
    })
}

/// Pokes one pod after the other: the API's own pace is the bound.
async fn poke(cluster: Arc<dyn Cluster>, mut pokes: mpsc::Receiver<Poke>, metrics: Arc<Metrics>) -> Ended {
    while let Some(poke) = pokes.recv().await {
        match cluster.poke(&poke.pod, &poke.uid).await {
            Ok(()) => {
                metrics.pokes.inc();
                tracing::debug!(pod = %poke.pod, "poked: it could fit now");
            }
            // It is gone, or the API is not well; the scheduler's own retry remains.
            Err(error) => tracing::debug!(pod = %poke.pod, %error, "not poked"),
        }
    }
    ("pokes", Ok(()))
}
