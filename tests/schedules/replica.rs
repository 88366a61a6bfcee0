//! One wattlane: the real core (index task, binder, handlers, pokes) in a process of its own. Its writes go through the
//! real calls of the Kubernetes cluster, over a client that ends in the simulated network; its watches are fed by it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use wattlane::app::{Core, PolicySource};
use wattlane::cluster::kube::KubeCluster;
use wattlane::cluster::{Cluster, WatchStatus, WriteError};
use wattlane::index::{Change, Kind};
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
    pub(crate) fn start(now: u64, policy: &str) -> Self {
        let process = Process::new(now);
        let (asked, questions) = mpsc::unbounded_channel();
        let policy = Policy::read(policy, &Selectors::new()).unwrap_or_else(|e| panic!("{e:?}"));
        let outbox = process.outbox.clone();
        let core = process.block_on(async {
            let cluster = Arc::new(Networked {
                api: KubeCluster::over(kube::Client::new(service(outbox.clone()), "default")),
                outbox: outbox.clone(),
            });
            let core = Core::spawn(cluster, PolicySource::Default, false).expect("a core");
            // As a reload of the policy does.
            core.policy.store(Arc::new(policy));
            let classifier = Arc::new(PolicyClassifier::new(core.policy.load_full()));
            core.index.set_classifier(classifier).await.expect("runs");
            tokio::spawn(serve(handlers(&core), questions, outbox));
            core
        });
        Self { process, core, asked }
    }

    pub(crate) fn ask(&self, ask: Ask, reply: oneshot::Sender<Told>) {
        let _ = self.asked.send((ask, reply));
    }

    /// Reservations that wait for a watch, and binds under way.
    pub(crate) fn busy(&self) -> (i64, usize) {
        self.core.metrics.render();
        (self.core.metrics.reservations.get(), self.core.binder.running())
    }
}

fn handlers(core: &Core) -> Handlers {
    Handlers {
        reader: core.reader.clone(),
        index: core.index.clone(),
        selectors: core.selectors.clone(),
        policy: core.policy.clone(),
        binder: core.binder.clone(),
        admitter: core.admitter.clone(),
        metrics: core.metrics.clone(),
        readiness: core.readiness.clone(),
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
            Ok(verdicts) => Told::Fits(verdicts.iter().map(Option::is_none).collect()),
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

struct Networked {
    api: KubeCluster,
    outbox: Arc<Outbox>,
}

/// After a watch broke. (The real one draws it; here the network's own delays do.)
const AGAIN: Duration = Duration::from_millis(400);

async fn watch(
    kind: Kind,
    outbox: Arc<Outbox>,
    index: IndexHandle,
    status: Arc<dyn WatchStatus>,
) -> anyhow::Result<()> {
    loop {
        let (feed, mut events) = mpsc::unbounded_channel();
        outbox.push(Out::Watch { kind, feed });
        while let Some(event) = events.recv().await {
            match event {
                Feed::List(entries) => {
                    let objects = entries.iter().filter_map(|e| e.object.clone()).collect();
                    index.change(Change::Reset(kind, objects)).await?;
                    index.flush().await?;
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
        let all = Kind::ALL.map(|kind| watch(kind, self.outbox.clone(), index.clone(), status.clone()));
        futures::future::try_join_all(all).await.map(drop)
    }

    async fn allocate(&self, claim: &Claim, allocation: &Allocation, pod: &Consumer) -> Result<Claim, WriteError> {
        self.api.allocate(claim, allocation, pod).await
    }

    async fn reserve(&self, claim: &Claim, pod: &Consumer) -> Result<Claim, WriteError> {
        self.api.reserve(claim, pod).await
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

    async fn ensure_template(&self, template: &Value) -> Result<(), WriteError> {
        self.api.ensure_template(template).await
    }

    async fn poke(&self, pod: &NamespacedName, uid: &str) -> Result<(), WriteError> {
        self.api.poke(pod, uid).await
    }
}
