//! One wattlane: the real core (index task, binder, handlers, pokes) in a process of its own. Its writes go through the
//! real calls of the Kubernetes cluster, over a client that ends in the simulated network; its watches are fed by it.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;
use tokio::sync::{Notify, mpsc, oneshot};
use wattlane::app::{Core, PolicySource};
use wattlane::cluster::kube::KubeCluster;
use wattlane::cluster::{Cluster, Lease, LeaseWrite, WatchStatus, WriteError};
use wattlane::index::{Change, Kind};
use wattlane::leader::{Settings, Timing};
use wattlane::model::{Allocation, Claim, Consumer, NamespacedName, Pod};
use wattlane::policy::{Policy, PolicyClassifier};
use wattlane::publish::IndexHandle;
use wattlane::selector::Selectors;
use wattlane::server::Service as _;
use wattlane::server::handlers::Handlers;
use wattlane::wire::{BindArgs, ExtenderArgs};

use super::host::{Feed, Out};
use super::process::{Outbox, Process};
use super::rules::{Answer, Request};

/// Where wattlane itself runs.
pub(crate) const SYSTEM: &str = "wattlane";

/// A call of the scheduler, as it arrives.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Filter(Arc<Vec<u8>>),
    Prioritize(Arc<Vec<u8>>),
    Bind(Arc<Vec<u8>>),
}

#[derive(Clone, Debug)]
pub(crate) enum Told {
    /// By position: whether the node fits.
    Fits(Vec<bool>),
    Scores(Vec<u8>),
    Bound,
    No(String),
}

pub(crate) struct Replica {
    pub(crate) process: Process,
    pub(crate) core: Core,
    asked: mpsc::UnboundedSender<(Ask, oneshot::Sender<Told>)>,
}

impl Replica {
    /// `elected`: its pod and a name of this life alone, where there are several replicas.
    pub(crate) fn start(now: u64, policy: &str, elected: Option<(NamespacedName, String)>) -> Self {
        let process = Process::new(now);
        let (asked, questions) = mpsc::unbounded_channel();
        let policy = Policy::read(policy, &Selectors::new()).unwrap_or_else(|e| panic!("{e:?}"));
        let outbox = process.outbox.clone();
        let core = process.block_on(async {
            let cluster = Arc::new(Networked {
                api: KubeCluster::over(kube::Client::new(service(outbox.clone()), "default")),
                outbox: outbox.clone(),
                relists: Arc::default(),
            });
            let mut core = Core::spawn(cluster, PolicySource::Default, false).expect("a core");
            if let Some((pod, identity)) = elected {
                core = core.elected(Settings {
                    lease: NamespacedName::new(SYSTEM, "wattlane"),
                    identity: identity.into(),
                    pod: Some(pod),
                    timing: Timing::default(),
                });
            }
            // As a reload of the policy does.
            core.policy.store(Arc::new(policy));
            let classifier = Arc::new(PolicyClassifier::new(core.policy.load_full()));
            core.index.set_classifier(classifier).await.expect("runs");
            tokio::spawn(serve(core.handlers(1), questions, outbox));
            core
        });
        Self { process, core, asked }
    }

    pub(crate) fn ask(&self, ask: Ask, reply: oneshot::Sender<Told>) {
        let _ = self.asked.send((ask, reply));
    }

    /// Reservations that wait for a watch, holds, and binds under way.
    pub(crate) fn busy(&self) -> [i64; 3] {
        self.core.metrics.render();
        let binds = i64::try_from(self.core.binder.running()).expect("few binds");
        [
            self.core.metrics.reservations.get(),
            self.core.metrics.holds.get(),
            binds,
        ]
    }
}

async fn serve(
    handlers: Handlers,
    mut questions: mpsc::UnboundedReceiver<(Ask, oneshot::Sender<Told>)>,
    outbox: Arc<Outbox>,
) {
    let handlers = Arc::new(handlers);
    while let Some((ask, reply)) = questions.recv().await {
        let (handlers, outbox) = (handlers.clone(), outbox.clone());
        tokio::spawn(async move {
            let told = told(&handlers, &ask).await;
            outbox.push(Out::Told { ask, told, reply });
        });
    }
}

async fn told(handlers: &Handlers, ask: &Ask) -> Told {
    match ask {
        Ask::Filter(body) => match handlers
            .filter(&ExtenderArgs::parse(body).expect("good arguments"))
            .await
        {
            Ok(verdicts) => Told::Fits(verdicts.iter().map(|v| v.is_none()).collect()),
            Err(e) => Told::No(format!("{e:?}")),
        },
        Ask::Prioritize(body) => match handlers
            .prioritize(&ExtenderArgs::parse(body).expect("good arguments"))
            .await
        {
            Ok(scores) => Told::Scores(scores),
            Err(e) => Told::No(format!("{e:?}")),
        },
        Ask::Bind(body) => match handlers.bind(&BindArgs::parse(body).expect("good arguments")).await {
            Ok(()) => Told::Bound,
            Err(e) => Told::No(e.message),
        },
    }
}

/// The way from the client to the network: a request out, an answer or a broken connection back.
fn service(
    outbox: Arc<Outbox>,
) -> impl tower::Service<http::Request<Body>, Response = http::Response<Body>, Error = io::Error, Future: Send>
+ Send
+ Clone
+ 'static {
    tower::service_fn(move |request: http::Request<Body>| {
        let outbox = outbox.clone();
        async move {
            let (head, body) = request.into_parts();
            let bytes = body.collect().await.map_err(io::Error::other)?.to_bytes();
            let request = Request {
                method: head.method.to_string(),
                path: head.uri.path().to_owned(),
                limit: limit(head.uri.query().unwrap_or_default()),
                body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
            };
            let answer: Option<Answer> = outbox.ask(|reply| Out::Api { request, reply }).await;
            let answer = answer.ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionReset))?;
            http::Response::builder()
                .status(answer.status)
                .body(Body::from(answer.body.to_string().into_bytes()))
                .map_err(io::Error::other)
        }
    })
}

/// What the server is told of how long the request is wanted, in milliseconds.
fn limit(query: &str) -> Option<u64> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix("timeout="))?;
    Some(
        value
            .strip_suffix("ms")
            .and_then(|ms| ms.parse().ok())
            .expect("milliseconds"),
    )
}

struct Networked {
    api: KubeCluster,
    outbox: Arc<Outbox>,
    relists: Arc<Relists>,
}

/// Lists on demand, which a new leader asks for. (The real ones are a part of the real watches.)
#[derive(Default)]
struct Relists {
    wanted: AtomicU64,
    asked: Notify,
    /// By kind, the newest demand that a list begun after it has answered.
    done: Mutex<BTreeMap<Kind, u64>>,
    told: Notify,
}

/// After a watch broke. (The real one draws it; here the network's own delays do.)
const AGAIN: Duration = Duration::from_millis(400);

async fn watch(
    kind: Kind,
    outbox: Arc<Outbox>,
    relists: Arc<Relists>,
    index: IndexHandle,
    status: Arc<dyn WatchStatus>,
) -> anyhow::Result<()> {
    loop {
        let begun = relists.wanted.load(Ordering::Relaxed);
        let (feed, mut events) = mpsc::unbounded_channel();
        outbox.push(Out::Watch { kind, feed });
        loop {
            let asked = relists.asked.notified();
            if relists.wanted.load(Ordering::Relaxed) > begun {
                break;
            }
            let event = tokio::select! {
                biased;
                () = asked => break,
                event = events.recv() => event,
            };
            let Some(event) = event else { break };
            match event {
                Feed::List(entries) => {
                    let objects = entries.iter().filter_map(|e| e.object.clone()).collect();
                    index.change(Change::Reset(kind, objects)).await?;
                    index.flush().await?;
                    relists.done.lock().expect("not poisoned").insert(kind, begun);
                    relists.told.notify_waiters();
                }
                Feed::Event(entry) => {
                    let change = match &entry.object {
                        Some(object) => Change::Upsert(object.clone()),
                        None => Change::Remove(kind, entry.key.clone()),
                    };
                    index.change(change).await?;
                }
            }
            status.alive(kind);
        }
        status.restarted(kind);
        tokio::time::sleep(AGAIN).await;
    }
}

#[async_trait]
impl Cluster for Networked {
    async fn watch(&self, index: IndexHandle, status: Arc<dyn WatchStatus>) -> anyhow::Result<()> {
        let one = |kind| {
            watch(
                kind,
                self.outbox.clone(),
                self.relists.clone(),
                index.clone(),
                status.clone(),
            )
        };
        let all = Kind::ALL.map(one);
        futures::future::try_join_all(all).await.map(drop)
    }

    async fn allocate(&self, claim: &Claim, allocation: &Allocation, pod: &Consumer) -> Result<Claim, WriteError> {
        self.api.allocate(claim, allocation, pod).await
    }

    async fn reserve(&self, claim: &Claim, pod: &Consumer, slots: Option<usize>) -> Result<Claim, WriteError> {
        self.api.reserve(claim, pod, slots).await
    }

    async fn unreserve(
        &self,
        claim: &NamespacedName,
        uid: &str,
        pod: &Consumer,
        deallocate: bool,
    ) -> Result<(), WriteError> {
        self.api.unreserve(claim, uid, pod, deallocate).await
    }

    async fn claim(&self, key: &NamespacedName) -> Result<Option<Claim>, WriteError> {
        self.api.claim(key).await
    }

    async fn pod(&self, key: &NamespacedName) -> Result<Option<Pod>, WriteError> {
        self.api.pod(key).await
    }

    async fn bind(&self, pod: &NamespacedName, uid: &str, node: &str) -> Result<(), WriteError> {
        self.api.bind(pod, uid, node).await
    }

    async fn ensure_claim(&self, claim: &Value) -> Result<(), WriteError> {
        self.api.ensure_claim(claim).await
    }

    async fn ensure_template(&self, template: &Value) -> Result<(), WriteError> {
        self.api.ensure_template(template).await
    }

    async fn poke(&self, pod: &NamespacedName, uid: &str) -> Result<(), WriteError> {
        self.api.poke(pod, uid).await
    }

    async fn lease(&self, key: &NamespacedName) -> Result<Option<Lease>, WriteError> {
        self.api.lease(key).await
    }

    async fn write_lease(&self, key: &NamespacedName, write: &LeaseWrite) -> Result<Lease, WriteError> {
        self.api.write_lease(key, write).await
    }

    async fn label_leader(&self, pod: &NamespacedName, leader: bool) -> Result<(), WriteError> {
        self.api.label_leader(pod, leader).await
    }

    async fn caught_up(&self) -> Result<(), WriteError> {
        let number = self.relists.wanted.fetch_add(1, Ordering::Relaxed) + 1;
        self.relists.asked.notify_waiters();
        loop {
            let told = self.relists.told.notified();
            {
                let done = self.relists.done.lock().expect("not poisoned");
                let listed = |kind| done.get(&kind).is_some_and(|n| *n >= number);
                if [Kind::Claim, Kind::Pod].into_iter().all(listed) {
                    return Ok(());
                }
            }
            told.await;
        }
    }
}
