//! The parts that decide, in this process and on one thread: from a request's body to its answer, without a network.

#[path = "../../src/fixture.rs"]
#[allow(dead_code, reason = "the load test writes files from it")]
pub(crate) mod fixture;

use std::sync::Arc;

use serde_json::json;
use tokio::runtime::Runtime;
use wattlane::app::{Core, PolicySource};
use wattlane::cluster::embedded::Embedded;
use wattlane::convert::{self, Object};
use wattlane::index::{Change, Index};
use wattlane::model::{NodeScope, Slice};
use wattlane::policy::{Policy, PolicyClassifier};
use wattlane::selector::Selectors;
use wattlane::server::Service as _;
use wattlane::server::handlers::Handlers;
use wattlane::snapshot::Snapshot;
use wattlane::wire::{AdmissionRequest, ExtenderArgs, extender};

use self::fixture::{Fit, node_name};

pub(crate) struct Served {
    runtime: Runtime,
    // Its tasks run on the runtime.
    _core: Core,
    handlers: Handlers,
    body: Vec<u8>,
}

/// Node and slice `i`. The devices of nodes alike are shared: to count instructions they need not be many.
fn machine(i: usize, like: &Slice) -> [Change; 2] {
    let name = node_name(i);
    let node = convert::node(&json!({"metadata": {"name": name}})).expect("a node");
    let slice = Slice {
        name: format!("{name}-gpu.nvidia.com").into(),
        pool: name.as_str().into(),
        nodes: NodeScope::Node(name.as_str().into()),
        ..like.clone()
    };
    [Object::Node(node), Object::Slice(slice)].map(Change::Upsert)
}

/// What makes a cluster of so many nodes with eight cards each.
pub(crate) fn cluster(nodes: usize) -> Vec<Change> {
    // Node 7 has other cards than all others.
    let [usual, other] = [0, 7].map(|i| convert::slice(&fixture::slice(i)).expect("a slice"));
    let like = |i| if i == 7 { &other } else { &usual };
    (0..nodes).flat_map(|i| machine(i, like(i))).collect()
}

impl Served {
    pub(crate) fn new(nodes: usize, body: Vec<u8>) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let (core, handlers) = runtime.block_on(async {
            let text = json!({"apiVersion": "v1", "kind": "List", "items": fixture::objects()}).to_string();
            let few = Arc::new(Embedded::from_yaml("bench", &text).expect("a cluster"));
            let core = Core::start(few, PolicySource::Default).await.expect("starts");
            for change in cluster(nodes) {
                core.index.change(change).await.expect("the index runs");
            }
            core.index.flush().await.expect("the index runs");
            let handlers = core.handlers(1);
            (core, handlers)
        });
        Self {
            runtime,
            _core: core,
            handlers,
            body,
        }
    }

    pub(crate) fn filter(&self) -> Vec<u8> {
        self.runtime.block_on(async {
            let args = ExtenderArgs::parse(&self.body).expect("arguments");
            let verdicts = self.handlers.filter(&args).await.expect("verdicts");
            extender::filter_result(&args, &verdicts)
        })
    }

    pub(crate) fn prioritize(&self) -> Vec<u8> {
        self.runtime.block_on(async {
            let args = ExtenderArgs::parse(&self.body).expect("arguments");
            let scores = self.handlers.prioritize(&args).await.expect("scores");
            extender::prioritize_result(&args, &scores)
        })
    }

    pub(crate) fn admit(&self) -> Vec<u8> {
        self.runtime.block_on(async {
            let request = AdmissionRequest::parse(&self.body).expect("a review");
            let uid = request.uid.clone();
            self.handlers.admit(request).await.encode(&uid)
        })
    }
}

/// The index alone, with a reader that has its last snapshot.
pub(crate) struct Fed {
    index: Index,
    _read: Arc<Snapshot>,
    event: Option<Change>,
}

impl Fed {
    /// The next event: a claim was given two cards of a node.
    pub(crate) fn new(nodes: usize) -> Self {
        let policy = json!({"apiVersion": "wattlane.dev/v1alpha1", "kind": "PlacementPolicy"}).to_string();
        let policy = Policy::read(&policy, &Selectors::new()).expect("a policy");
        let mut index = Index::new(Arc::new(PolicyClassifier::new(Arc::new(policy))));
        cluster(nodes).into_iter().for_each(|change| index.apply(change));
        let event = |name: &str, node: &str, version: &str| {
            let result = |device| json!({"request": "gpu", "driver": "gpu.nvidia.com", "pool": node, "device": device});
            let claim = convert::claim(&json!({
                "metadata": {"name": name, "namespace": "bench", "uid": name, "resourceVersion": version},
                "spec": {"devices": {"requests": [Fit::All.request()]}},
                "status": {"allocation": {"devices": {"results": [result("gpu-0"), result("gpu-1")]}}}}));
            Change::Upsert(Object::Claim(claim.expect("a claim")))
        };
        index.publish();
        index.apply(event("before", &node_name(1), "1"));
        Self {
            _read: index.publish().expect("something changed"),
            event: Some(event("now", &node_name(nodes / 2), "2")),
            index,
        }
    }

    pub(crate) fn next(&mut self) -> Option<Arc<Snapshot>> {
        self.index.apply(self.event.take()?);
        self.index.publish()
    }
}
