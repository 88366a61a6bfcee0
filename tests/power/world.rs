//! A cluster of racks with real product names under a policy in YAML, and what is needed to bind pods in it by hand.

use std::cell::RefCell;
use std::sync::Arc;

use serde_json::{Value, json};
use wattlane::convert;
use wattlane::index::{Change, Conflict, Index, Key, Kind, Reservation, ReservationId, ReservedClaim};
use wattlane::model::{Pod, Refusal};
use wattlane::placement::{self, Context, Demand, Memo, Placement, Rules};
use wattlane::policy::{Policy, PolicyClassifier};
use wattlane::selector::Selectors;
use wattlane::snapshot::Snapshot;

pub(crate) const DRIVER: &str = "gpu.nvidia.com";
pub(crate) const SERVER: &str = "NVIDIA RTX PRO 6000 Blackwell Server Edition";
pub(crate) const MAX_Q: &str = "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition";

pub(crate) struct World {
    pub(crate) index: Index,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) selectors: Selectors,
    pub(crate) rules: Rules,
    /// What one that has seen everything says, must be what is so.
    memo: RefCell<Memo>,
}

pub(crate) fn policy(power: &Value) -> Policy {
    let text = json!({"apiVersion": "wattlane.dev/v1alpha1", "kind": "PlacementPolicy", "power": power});
    Policy::read(&text.to_string(), &Selectors::new()).unwrap_or_else(|e| panic!("{e:?}"))
}

impl World {
    pub(crate) fn new(power: &Value) -> Self {
        let mut world = Self {
            index: Index::new(Arc::new(PolicyClassifier::new(Arc::new(policy(power))))),
            snapshot: Arc::default(),
            selectors: Selectors::new(),
            rules: Rules::default(),
            memo: RefCell::default(),
        };
        world.apply(json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
            "metadata": {"name": "gpu"}, "spec": {}}));
        world
    }

    /// As a reload of the policy does it.
    pub(crate) fn reload(&mut self, power: &Value) {
        self.index
            .set_classifier(Arc::new(PolicyClassifier::new(Arc::new(policy(power)))));
        self.publish();
    }

    pub(crate) fn apply(&mut self, object: Value) {
        let read = convert::object(&object).unwrap_or_else(|e| panic!("test object: {e}"));
        self.index.apply(Change::Upsert(read.expect("a kind that is kept")));
        self.publish();
    }

    pub(crate) fn remove(&mut self, kind: Kind, namespace: &str, name: &str) {
        self.index.apply(Change::Remove(kind, Key::new(namespace, name)));
        self.publish();
    }

    pub(crate) fn publish(&mut self) {
        if let Some(snapshot) = self.index.publish() {
            self.snapshot = snapshot;
        }
    }

    pub(crate) fn node(&mut self, name: &str, labels: Value) {
        self.node_with(name, labels, json!({}));
    }

    pub(crate) fn node_with(&mut self, name: &str, labels: Value, annotations: Value) {
        self.apply(json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "uid": name, "labels": labels, "annotations": annotations}}));
    }

    /// Cards of these products, `gpu-0` and so on.
    pub(crate) fn cards(&mut self, node: &str, products: &[&str]) {
        let device = |(i, product): (usize, &&str)| {
            json!({"name": format!("gpu-{i}"), "attributes": {"type": {"string": "gpu"},
                "uuid": {"string": format!("GPU-{node}-{i}")}, "productName": {"string": product}}})
        };
        let devices: Vec<Value> = products.iter().enumerate().map(device).collect();
        self.apply(
            json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": node},
            "spec": {"driver": DRIVER, "nodeName": node, "devices": devices,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}}}),
        );
    }

    pub(crate) fn claim(&mut self, name: &str, count: u32, results: &[(&str, &str)]) {
        let results: Vec<Value> = results
            .iter()
            .map(|(pool, device)| json!({"request": "r", "driver": DRIVER, "pool": pool, "device": device}))
            .collect();
        let mut claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "ns", "uid": name},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": count}}]}}});
        if !results.is_empty() {
            claim["status"] = json!({"allocation": {"devices": {"results": results}}});
        }
        self.apply(claim);
    }

    pub(crate) fn ctx<'a>(&'a self, snapshot: &'a Snapshot) -> Context<'a> {
        Context {
            snapshot,
            selectors: &self.selectors,
            rules: &self.rules,
        }
    }

    /// What the pod of one claim of the same name gets on the node, by a snapshot that may be old.
    pub(crate) fn place(&self, snapshot: &Snapshot, claim: &str, node: &str) -> Result<Placement, Refusal> {
        let ctx = self.ctx(snapshot);
        let demand = Demand::of(ctx, &pod(claim))?;
        let entry = snapshot.node_named(node).expect("a node of the test");
        let checked = placement::check(ctx, &demand, entry);
        let placed = placement::place(ctx, &demand, entry);
        let ix = snapshot.node_ix(node).expect("a node of the test");
        let mut memo = self.memo.borrow_mut();
        memo.renew(snapshot);
        let mut known = memo.about(ctx, &demand);
        assert_eq!(known.check(ctx, &demand, ix), Some(checked.as_ref().copied()));
        assert_eq!(known.rank(ctx, &demand, ix), placement::rank(ctx, &demand, ix));
        assert_eq!(
            checked.err(),
            placed.as_ref().err().cloned(),
            "check and place must agree"
        );
        placed
    }

    pub(crate) fn reserve(&mut self, placement: &Placement, node: &str) -> Result<ReservationId, Conflict> {
        let claims = placement.claims.iter().map(|c| ReservedClaim {
            claim: c.claim.key.clone(),
            uid: c.claim.uid.clone(),
            results: c.allocation.results.clone(),
        });
        let reservation = Reservation {
            pod: Key::new("ns", "p"),
            pod_uid: "p".into(),
            node: node.into(),
            claims: claims.collect(),
            slots: vec![],
        };
        let result = self.index.reserve(reservation);
        self.publish();
        result
    }

    /// Writes the allocation, as the watch then shows it.
    pub(crate) fn confirm(&mut self, placement: &Placement) {
        for placed in &placement.claims {
            let mut claim = (*placed.claim).clone();
            claim.allocation = Some(placed.allocation.clone());
            self.index.apply(Change::Upsert(convert::Object::Claim(claim)));
        }
        self.publish();
    }

    /// `label=value` with watts used and budget, sorted.
    pub(crate) fn domains(&self) -> Vec<(String, u64, u64)> {
        let name = |d: wattlane::snapshot::Domain<'_>| {
            (
                format!("{}={}", d.budget.label, d.budget.value),
                d.used.watts,
                d.budget.watts,
            )
        };
        let mut all: Vec<_> = self.snapshot.power.domains().map(name).collect();
        all.sort();
        all
    }
}

pub(crate) fn pod(claim: &str) -> Pod {
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": claim, "namespace": "ns", "uid": claim},
        "spec": {"containers": [{"name": "c"}], "resourceClaims": [{"name": "c", "resourceClaimName": claim}]}});
    convert::pod(&pod).unwrap_or_else(|e| panic!("test pod: {e}"))
}
