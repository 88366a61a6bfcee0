//! A cluster as the library sees it (objects in, snapshots out) that pods come to and leave, placed by wattlane, in list
//! order, or as the measurement says. Knows nothing of what is good.

use std::sync::Arc;

use anyhow::{Context as _, anyhow, ensure};
use serde_json::{Value, json};
use wattlane::convert::{self, Object};
use wattlane::index::{Change, Index, Key, Kind, Reservation, ReservedClaim};
use wattlane::model::{Name, Pod};
use wattlane::placement::{self, Context, Demand, Fitting, Placement, Rank, Rules};
use wattlane::policy::{Policy, PolicyClassifier};
use wattlane::selector::Selectors;
use wattlane::snapshot::{Mix, NodeEntry, Snapshot};

use super::links::uuid;

const DRIVER: &str = "gpu.nvidia.com";
const NAMESPACE: &str = "bench";

/// Cards of one node, by their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) node: usize,
    pub(crate) cards: Vec<usize>,
}

pub(crate) struct World {
    index: Index,
    snapshot: Arc<Snapshot>,
    selectors: Selectors,
    rules: Rules,
    pods: usize,
}

/// Zero-padded, so that the order of names is that of numbers.
pub(crate) fn node_name(node: usize) -> String {
    format!("n-{node:05}")
}

pub(crate) fn card_name(card: usize) -> String {
    format!("gpu-{card}")
}

fn number(name: &str) -> anyhow::Result<usize> {
    let digits = name.rsplit('-').next().unwrap_or_default();
    digits.parse().with_context(|| format!("{name} is not a name of ours"))
}

impl World {
    /// An empty cluster under this policy.
    pub(crate) fn new(policy: &Value) -> anyhow::Result<Self> {
        let selectors = Selectors::new();
        let policy = Policy::read(&policy.to_string(), &selectors).map_err(|errors| anyhow!("{errors:?}"))?;
        let rules = policy.rules();
        let mut world = Self {
            index: Index::new(Arc::new(PolicyClassifier::new(Arc::new(policy)))),
            snapshot: Arc::default(),
            selectors,
            rules,
            pods: 0,
        };
        world.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}))?;
        world.apply(
            &json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": DRIVER},
            "spec": {"selectors": [{"cel": {"expression":
                "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"}}]}}),
        )?;
        world.apply(
            &json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "mig"},
            "spec": {"selectors": [{"cel": {"expression":
                "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'mig'"}}]}}),
        )?;
        Ok(world)
    }

    /// A node with cards of these products. `publish` when all nodes are there.
    pub(crate) fn node(
        &mut self,
        node: usize,
        labels: Value,
        annotations: Value,
        products: &[&str],
    ) -> anyhow::Result<()> {
        let name = node_name(node);
        let device = |(card, product): (usize, &&str)| {
            json!({"name": card_name(card), "attributes": {"type": {"string": "gpu"},
                "uuid": {"string": uuid(&name, card)}, "productName": {"string": product}}})
        };
        let devices: Vec<Value> = products.iter().enumerate().map(device).collect();
        self.local(
            node,
            &devices,
            json!({"metadata": {"labels": labels, "annotations": annotations}}),
        )
    }

    /// A node with a slice of these devices.
    fn local(&mut self, node: usize, devices: &[Value], mut object: Value) -> anyhow::Result<()> {
        let name = node_name(node);
        (object["apiVersion"], object["kind"]) = (json!("v1"), json!("Node"));
        (object["metadata"]["name"], object["metadata"]["uid"]) = (json!(name), json!(name));
        self.apply(&object)?;
        self.apply(
            &json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name},
            "spec": {"driver": DRIVER, "nodeName": name, "devices": devices,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1}}}),
        )
    }

    /// A node with cards of one product that are given in units, with consumable capacity.
    pub(crate) fn shared_node(
        &mut self,
        node: usize,
        product: &str,
        cards: usize,
        units: u32,
        allocatable: &Value,
    ) -> anyhow::Result<()> {
        let name = node_name(node);
        let device = |card| {
            json!({"name": card_name(card), "allowMultipleAllocations": true,
                "capacity": {"milli": {"value": units.to_string()}},
                "attributes": {"type": {"string": "gpu"}, "uuid": {"string": uuid(&name, card)},
                    "productName": {"string": product}}})
        };
        let devices: Vec<Value> = (0..cards).map(device).collect();
        self.local(
            node,
            &devices,
            json!({"metadata": {}, "status": {"allocatable": allocatable}}),
        )
    }

    /// A node with one card that can be cut, as its driver publishes it: devices, and the counters they draw from.
    pub(crate) fn cut_node(&mut self, node: usize, devices: &[Value], counters: &Value) -> anyhow::Result<()> {
        let name = node_name(node);
        self.apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name}}))?;
        let pool = json!({"name": name, "generation": 1, "resourceSliceCount": 2});
        for (part, content) in [("devices", &json!(devices)), ("sharedCounters", counters)] {
            self.apply(&json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": format!("{name}-{part}")},
                "spec": {"driver": DRIVER, "nodeName": name, "pool": pool, part: content}}))?;
        }
        Ok(())
    }

    /// What policy would say of the demand for partitions.
    pub(crate) fn demand_mix(&mut self, mix: impl Iterator<Item = (Name, u32)>) {
        self.rules.demand = mix.collect();
    }

    fn apply(&mut self, object: &Value) -> anyhow::Result<()> {
        let object = convert::object(object)?.context("a kind that is not kept")?;
        self.index.apply(Change::Upsert(object));
        Ok(())
    }

    pub(crate) fn publish(&mut self) {
        if let Some(snapshot) = self.index.publish() {
            self.snapshot = snapshot;
        }
    }

    fn context(&self) -> Context<'_> {
        Context {
            snapshot: &self.snapshot,
            selectors: &self.selectors,
            rules: &self.rules,
        }
    }

    /// A pod without annotations, with a claim for each number of cards.
    pub(crate) fn arrive(&mut self, counts: &[u32]) -> anyhow::Result<Pod> {
        let cards = |count: &u32| json!([{"name": "r", "exactly": {"deviceClassName": DRIVER, "count": count}}]);
        self.arrive_with(&counts.iter().map(cards).collect::<Vec<_>>(), &json!({}))
    }

    /// A pod with one claim of these requests.
    pub(crate) fn arrive_asking(&mut self, requests: &Value) -> anyhow::Result<Pod> {
        self.arrive_with(std::slice::from_ref(requests), &json!({}))
    }

    /// The same, or one without a claim, that asks for CPU and memory.
    pub(crate) fn arrive_needing(&mut self, requests: Option<&Value>, resources: &Value) -> anyhow::Result<Pod> {
        self.arrive_with(requests.map(std::slice::from_ref).unwrap_or_default(), resources)
    }

    fn arrive_with(&mut self, claims: &[Value], resources: &Value) -> anyhow::Result<Pod> {
        let pod = format!("p-{}", self.pods);
        self.pods += 1;
        for (i, requests) in claims.iter().enumerate() {
            self.apply(&json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                "metadata": {"name": format!("{pod}-{i}"), "namespace": NAMESPACE, "uid": format!("{pod}-{i}")},
                "spec": {"devices": {"requests": requests}}}))?;
        }
        self.publish();
        let claims: Vec<Value> = (0..claims.len())
            .map(|i| json!({"name": format!("c{i}"), "resourceClaimName": format!("{pod}-{i}")}))
            .collect();
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": pod, "namespace": NAMESPACE, "uid": pod},
            "spec": {"containers": [{"name": "c", "resources": resources}], "resourceClaims": claims}});
        Ok(convert::pod(&pod)?)
    }

    /// As the service does it: filter every node, score all that fit, place on the best. None: no node fits.
    pub(crate) fn ours(&self, pod: &Pod) -> anyhow::Result<Option<(usize, Placement)>> {
        let ctx = self.context();
        let demand = self.demand(pod)?;
        let fits = |(_, node): (_, &'_ Arc<NodeEntry>)| placement::check(ctx, &demand, node).is_ok();
        let nodes: Vec<&Arc<NodeEntry>> = self.snapshot.nodes().filter(|n| fits(*n)).map(|(_, n)| n).collect();
        let scores = placement::scores(ctx, &demand, &nodes);
        let Some((_, best)) = scores.iter().zip(&nodes).max_by_key(|(score, _)| **score) else {
            return Ok(None);
        };
        // Bind reads the pod anew.
        let node = number(&best.node.name)?;
        Ok(Some((node, self.place(pod, node)?)))
    }

    /// Of these nodes; None: it does not fit.
    pub(crate) fn ranks(&self, pod: &Pod, nodes: &[usize]) -> anyhow::Result<Vec<Option<Rank>>> {
        let (ctx, demand) = (self.context(), self.demand(pod)?);
        let rank = |node: &usize| {
            let ix = self.snapshot.node_ix(&node_name(*node));
            Ok(placement::rank(ctx, &demand, ix.context("a node that is not there")?))
        };
        nodes.iter().map(rank).collect()
    }

    /// The best devices of a node that has passed filter.
    pub(crate) fn place(&self, pod: &Pod, node: usize) -> anyhow::Result<Placement> {
        let entry = self.snapshot.node_named(&node_name(node));
        let placed = placement::place(
            self.context(),
            &self.demand(pod)?,
            entry.context("a node that is not there")?,
        );
        let placed = placed.map_err(|no| anyhow!("node {node} passed filter and is refused: {}", no.message))?;
        ensure!(!placed.cut, "a search was cut: the choice may not be the best");
        Ok(placed)
    }

    fn demand(&self, pod: &Pod) -> anyhow::Result<Demand> {
        Demand::of(self.context(), pod).map_err(|no| anyhow!("{}: {}", pod.key, no.message))
    }

    /// The first devices of the first of these nodes for which `accepts` is true.
    pub(crate) fn list_order(
        &self,
        pod: &Pod,
        nodes: impl Iterator<Item = usize>,
        accepts: impl Fn(&Given) -> bool,
    ) -> anyhow::Result<Option<Given>> {
        let demand = self.demand(pod)?;
        for node in nodes {
            let entry = self
                .snapshot
                .node_named(&node_name(node))
                .context("a node that is not there")?;
            let Some(devices) = placement::list_order(self.context(), &demand, entry) else {
                continue;
            };
            let cards = devices
                .iter()
                .map(|d| number(&d.device))
                .collect::<anyhow::Result<_>>()?;
            let given = Given { node, cards };
            if accepts(&given) {
                return Ok(Some(given));
            }
        }
        Ok(None)
    }

    /// Reserves and writes what wattlane chose.
    pub(crate) fn bind(&mut self, pod: &Pod, node: usize, placed: &Placement) -> anyhow::Result<Given> {
        let claims = placed.claims.iter().map(|c| ReservedClaim {
            claim: c.claim.key.clone(),
            uid: c.claim.uid.clone(),
            results: c.allocation.results.clone(),
        });
        self.index.reserve(Reservation {
            pod: pod.key.clone(),
            pod_uid: pod.uid.clone(),
            node: node_name(node).into(),
            claims: claims.collect(),
            slots: vec![],
        })?;
        let mut cards = vec![];
        for placed in &placed.claims {
            let mut claim = (*placed.claim).clone();
            claim.allocation = Some(placed.allocation.clone());
            self.index.apply(Change::Upsert(Object::Claim(claim)));
            for result in &placed.allocation.results {
                ensure!(
                    *result.id.pool == *node_name(node),
                    "a card of another node: {}",
                    result.id
                );
                cards.push(number(&result.id.device)?);
            }
        }
        self.publish();
        Ok(Given { node, cards })
    }

    /// The watch shows the pod on its node. Only what counts CPU and memory, or the mix of what is asked for, needs it.
    pub(crate) fn runs(&mut self, pod: &Pod, node: usize) {
        let pod = Pod {
            node_name: node_name(node).into(),
            ..pod.clone()
        };
        self.index.apply(Change::Upsert(Object::Pod(pod)));
        self.publish();
    }

    /// What pods ask for, as seen so far: the very same one until it has become another.
    pub(crate) fn mix(&self) -> &Arc<Mix> {
        &self.snapshot.mix
    }

    /// The extender's scores of nodes with these ranks.
    pub(crate) fn scores(&self, pod: &Pod, ranks: impl Iterator<Item = Option<Rank>>) -> anyhow::Result<Vec<u8>> {
        let demand = self.demand(pod)?;
        let (mut fitting, mut nodes) = (Fitting::default(), 0);
        for (at, rank) in (0..).zip(ranks) {
            // Ours are in the order of their names.
            if let Some(rank) = rank {
                fitting.add(rank, at, at);
            }
            nodes += 1;
        }
        Ok(match placement::has_say(self.context(), &demand) {
            true => fitting.scores(&demand, nodes),
            false => vec![0; nodes],
        })
    }

    /// Writes what somebody else chose, in the order of the pod's claims.
    pub(crate) fn give(&mut self, pod: &Pod, counts: &[u32], given: &Given) -> anyhow::Result<()> {
        let mut cards = given.cards.iter();
        for (name, count) in claims_of(pod).zip(counts) {
            let result = |card: &usize| json!({"request": "r", "driver": DRIVER, "pool": node_name(given.node), "device": card_name(*card)});
            let results: Vec<Value> = cards.by_ref().take(*count as usize).map(result).collect();
            self.apply(&json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                "metadata": {"name": name, "namespace": NAMESPACE, "uid": name},
                "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": DRIVER, "count": count}}]}},
                "status": {"allocation": {"devices": {"results": results}}}}))?;
        }
        self.publish();
        Ok(())
    }

    /// The pod is gone, or was refused: so are its claims.
    pub(crate) fn leave(&mut self, pod: &Pod) {
        for name in claims_of(pod) {
            self.index
                .apply(Change::Remove(Kind::Claim, Key::new(NAMESPACE, &**name)));
        }
        self.publish();
    }

    /// Watts that the index counts in each power domain, in no order.
    pub(crate) fn drawn(&self) -> u64 {
        self.snapshot.power.domains().map(|d| d.used.watts).sum()
    }
}

fn claims_of(pod: &Pod) -> impl Iterator<Item = &Name> {
    pod.claims.iter().filter_map(|c| c.claim_name())
}
