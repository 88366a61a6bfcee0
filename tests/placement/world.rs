//! A cluster for placement tests: Kubernetes JSON through `convert` into an `Index`, and one call a question.
//!
//! Device classes and watts are read off the devices' own attributes `class` and `watts`, so that a test says what
//! it means without a product table between.

use std::sync::Arc;

use serde_json::{Value, json};
use wattlane::convert;
use wattlane::index::{Change, Index};
use wattlane::model::{
    AttributeValue, Budget, Classified, Classifier, Device, DeviceId, Labels, Name, Pod, Refusal, WattOrigin,
};
use wattlane::placement::{self, Context, Demand, Placement, Rules};
use wattlane::selector::Selectors;
use wattlane::snapshot::{NodeEntry, Snapshot, Wiring};
use wattlane::topology::{Link, LinkSource, Shape};

pub(crate) const DRIVER: &str = "gpu.nvidia.com";

#[derive(Default)]
struct ByAttribute {
    budgets: Vec<Budget>,
}

impl Classifier for ByAttribute {
    fn classify(&self, driver: &Name, device: &Device, _: &Labels, _: &Labels) -> Classified {
        let watts = match device.attribute(driver, "watts") {
            Some(AttributeValue::Int(w)) => u32::try_from(*w).ok(),
            _ => None,
        };
        Classified {
            class: device.string(driver, "class").cloned(),
            watts,
            origin: WattOrigin::Policy,
            board: match device.attribute(driver, "board") {
                Some(AttributeValue::Int(w)) => u32::try_from(*w).ok(),
                _ => watts,
            },
        }
    }

    fn budgets(&self, labels: &Labels) -> Vec<Budget> {
        let of = |b: &&Budget| labels.get(&b.label) == Some(&b.value);
        self.budgets.iter().filter(of).cloned().collect()
    }
}

pub(crate) struct World {
    index: Index,
    pub(crate) snapshot: Arc<Snapshot>,
    selectors: Selectors,
    pub(crate) rules: Rules,
}

impl World {
    /// With one DeviceClass, `gpu`, that every device is of.
    pub(crate) fn new() -> Self {
        let mut world = Self {
            index: Index::new(Arc::new(ByAttribute::default())),
            snapshot: Arc::default(),
            selectors: Selectors::new(),
            rules: Rules::default(),
        };
        world.class("gpu", json!({}));
        world
    }

    pub(crate) fn apply(&mut self, object: Value) {
        let read = convert::object(&object).unwrap_or_else(|e| panic!("test object: {e}"));
        self.change(Change::Upsert(read.expect("a kind that is kept")));
    }

    pub(crate) fn change(&mut self, change: Change) {
        self.index.apply(change);
        if let Some(snapshot) = self.index.publish() {
            self.snapshot = snapshot;
        }
    }

    pub(crate) fn class(&mut self, name: &str, spec: Value) {
        self.apply(json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
            "metadata": {"name": name}, "spec": spec}));
    }

    /// A node and, where it has devices, its pool of the same name in one complete slice.
    pub(crate) fn node(&mut self, name: &str, devices: &[Value]) {
        self.labelled_node(name, json!({}));
        if !devices.is_empty() {
            self.slice(name, json!({"nodeName": name, "devices": devices}));
        }
    }

    pub(crate) fn labelled_node(&mut self, name: &str, labels: Value) {
        self.apply(
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name, "labels": labels}}),
        );
    }

    /// Slice `name` of pool `name`; whatever `spec` names wins over what is usual.
    pub(crate) fn slice(&mut self, name: &str, spec: Value) {
        let mut whole = json!({"driver": DRIVER,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1}});
        for (key, value) in spec.as_object().expect("a spec") {
            whole[key] = value.clone();
        }
        self.apply(json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
            "metadata": {"name": name}, "spec": whole}));
    }

    /// Power domains by label value of `rack`, in watts; all others have none.
    pub(crate) fn budgets(&mut self, budgets: &[(&str, u64)]) {
        let budget = |(value, watts): &(&str, u64)| Budget {
            label: "rack".into(),
            value: (*value).into(),
            watts: *watts,
        };
        self.index.set_classifier(Arc::new(ByAttribute {
            budgets: budgets.iter().map(budget).collect(),
        }));
        if let Some(snapshot) = self.index.publish() {
            self.snapshot = snapshot;
        }
    }

    pub(crate) fn namespace(&mut self, labels: Value) {
        self.apply(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": labels}}));
    }

    pub(crate) fn claim(&mut self, name: &str, devices: Value) {
        self.claim_with(name, devices, json!({}), json!({}));
    }

    pub(crate) fn claim_with(&mut self, name: &str, devices: Value, metadata: Value, status: Value) {
        let mut meta = json!({"name": name, "namespace": "default", "uid": format!("uid-{name}")});
        for (key, value) in metadata.as_object().expect("metadata") {
            meta[key] = value.clone();
        }
        self.apply(json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": meta, "spec": {"devices": devices}, "status": status}));
    }

    pub(crate) fn demand(&self, pod: &Pod) -> Result<Demand, Refusal> {
        Demand::of(self.ctx(), pod)
    }

    pub(crate) fn ctx(&self) -> Context<'_> {
        Context {
            snapshot: &self.snapshot,
            selectors: &self.selectors,
            rules: &self.rules,
        }
    }

    pub(crate) fn entry(&self, node: &str) -> &Arc<NodeEntry> {
        self.snapshot.node_named(node).expect("a node of the test")
    }

    pub(crate) fn check(&self, pod: &Pod, node: &str) -> Result<(), Refusal> {
        placement::check(self.ctx(), &self.demand(pod)?, self.entry(node))
    }

    pub(crate) fn place(&self, pod: &Pod, node: &str) -> Result<Placement, Refusal> {
        placement::place(self.ctx(), &self.demand(pod)?, self.entry(node))
    }

    pub(crate) fn scores(&self, pod: &Pod, nodes: &[&str]) -> Vec<u8> {
        let demand = self.demand(pod).expect("a pod that can be read");
        let entries: Vec<_> = nodes.iter().map(|n| self.entry(n)).collect();
        placement::scores(self.ctx(), &demand, &entries)
    }

    pub(crate) fn list_order(&self, pod: &Pod, node: &str) -> Option<Vec<String>> {
        let demand = self.demand(pod).ok()?;
        let ids = placement::list_order(self.ctx(), &demand, self.entry(node))?;
        Some(ids.iter().map(|id| id.device.to_string()).collect())
    }

    /// Names of the devices it gets, by claim; and that check and place agree that it gets them.
    pub(crate) fn devices(&self, pod: &Pod, node: &str) -> Vec<String> {
        let checked = self.check(pod, node);
        let placed = self.place(pod, node).unwrap_or_else(|r| panic!("refused: {r}"));
        assert_eq!(checked, Ok(()), "placed, so check must agree");
        ids(&placed).map(|id| id.device.to_string()).collect()
    }

    /// `reason: words` of the refusal, after seeing that check and place give the same.
    pub(crate) fn refused(&self, pod: &Pod, node: &str) -> String {
        let checked = self.check(pod, node).expect_err("check must refuse");
        let placed = self.place(pod, node).expect_err("place must refuse");
        assert_eq!(checked, placed);
        format!("{}: {}", checked.reason.as_str(), checked.message)
    }

    /// Writes the allocations into the claims, as bind does.
    pub(crate) fn commit(&mut self, placement: &Placement) {
        for placed in &placement.claims {
            let mut claim = (*placed.claim).clone();
            claim.allocation = Some(placed.allocation.clone());
            self.change(Change::Upsert(convert::Object::Claim(claim)));
        }
    }

    /// Connects the node's devices, in the order of its one pool. The index does not know: to be done last.
    pub(crate) fn wire(&mut self, node: &str, links: &[Link]) {
        let cards = (1..17).find(|n| n * n == links.len()).expect("a square");
        self.wire_cards(node, links, (0..cards).map(Some).collect());
    }

    /// The same where not every device is a card: `places` has the card of each, if it is one.
    pub(crate) fn wire_cards(&mut self, node: &str, links: &[Link], places: Vec<Option<usize>>) {
        let mut snapshot = (*self.snapshot).clone();
        let ix = snapshot.node_ix(node).expect("a node of the test");
        let cards = (1..17).find(|n| n * n == links.len()).expect("a square");
        let mut off_diagonal = (0..links.len()).filter(|i| i / cards != i % cards).map(|i| links[i]);
        let bare = off_diagonal.all(|l| l != Link::Unknown);
        let shape = Arc::new(Shape::new(links, bare).expect("a square"));
        let mut entry = (**snapshot.node(ix).expect("its entry")).clone();
        entry.wiring = Some(Arc::new(Wiring::new(shape, LinkSource::Probe, &[places])));
        snapshot.nodes.put(ix.0, Some(Arc::new(entry)));
        self.snapshot = Arc::new(snapshot);
    }

    /// Allocates devices of a pool to a claim of nobody's.
    pub(crate) fn take(&mut self, pool: &str, devices: &[&str]) {
        let results: Vec<_> = devices
            .iter()
            .map(|d| json!({"request": "r", "driver": DRIVER, "pool": pool, "device": d}))
            .collect();
        let name = format!("held-{pool}-{}", devices.join("-"));
        let status = json!({"allocation": {"devices": {"results": results}}});
        self.claim_with(&name, ask(1), json!({}), status);
    }

    /// The classes of the devices a placement gives, each once.
    pub(crate) fn classes(&self, placement: &Placement) -> Vec<Name> {
        let mut classes: Vec<Name> = vec![];
        for id in ids(placement) {
            let mut pools = self.snapshot.pools.iter().flatten();
            let state = pools
                .find(|s| s.pool.driver == id.driver && s.pool.name == id.pool)
                .expect("its pool");
            let at = state.pool.by_name[&id.device] as usize;
            classes.extend(state.pool.devices[at].classified.class.clone());
        }
        classes.sort();
        classes.dedup();
        classes
    }
}

pub(crate) fn ids(placement: &Placement) -> impl Iterator<Item = &DeviceId> {
    placement
        .claims
        .iter()
        .flat_map(|c| &c.allocation.results)
        .map(|r| &r.id)
}

/// A device with a wattage class.
pub(crate) fn gpu(name: &str, class: &str, watts: u32) -> Value {
    json!({"name": name, "attributes": {"class": {"string": class}, "watts": {"int": watts}}})
}

/// `value` with the fields of `more` over it, objects merged.
pub(crate) fn with(mut value: Value, more: Value) -> Value {
    fn merge(into: &mut Value, more: Value) {
        match (into, more) {
            (Value::Object(into), Value::Object(more)) => {
                for (key, value) in more {
                    merge(into.entry(key).or_insert(Value::Null), value);
                }
            }
            (into, more) => *into = more,
        }
    }
    merge(&mut value, more);
    value
}

/// Two 600 W and two 300 W cards, the large ones first in list order.
pub(crate) fn mixed() -> Vec<Value> {
    vec![
        gpu("gpu-0", "big", 600),
        gpu("gpu-1", "small", 300),
        gpu("gpu-2", "big", 600),
        gpu("gpu-3", "small", 300),
    ]
}

/// A claim spec with one request, `r`.
pub(crate) fn ask(count: u32) -> Value {
    asking(json!({"count": count}))
}

pub(crate) fn asking(exactly: Value) -> Value {
    json!({"requests": [request("r", exactly)]})
}

/// A request of class `gpu` unless it says otherwise.
pub(crate) fn request(name: &str, exactly: Value) -> Value {
    json!({"name": name, "exactly": with(json!({"deviceClassName": "gpu"}), exactly)})
}

/// A pod that uses the claims by name.
pub(crate) fn pod(name: &str, claims: &[&str]) -> Pod {
    annotated(name, claims, json!({}))
}

pub(crate) fn annotated(name: &str, claims: &[&str], annotations: Value) -> Pod {
    let claims: Vec<_> = claims
        .iter()
        .map(|c| json!({"name": c, "resourceClaimName": c}))
        .collect();
    pod_of(json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "annotations": annotations},
        "spec": {"containers": [{"name": "c"}], "resourceClaims": claims}}))
}

pub(crate) fn pod_of(object: Value) -> Pod {
    convert::pod(&object).unwrap_or_else(|e| panic!("test pod: {e}"))
}
