//! What one seed gives: a cluster, the pods that come and go, and the faults they meet.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::rng::Rng;
use super::targeted::Aim;
use wattlane::index::Kind;

/// Whole cards, halves of cards that share counters, and cards given in shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cards {
    Whole,
    Halves,
    Shares,
}

pub(crate) const SERVER: &str = "NVIDIA RTX PRO 6000 Blackwell Server Edition";
pub(crate) const MAX_Q: &str = "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition";

/// How often each thing goes wrong, in a thousand calls or events; 0: never.
#[derive(Clone, Debug, Default)]
pub(crate) struct Odds {
    pub(crate) lost_request: u64,
    pub(crate) lost_answer: u64,
    /// Executed long after the caller has been told that the connection is gone.
    pub(crate) late: u64,
    pub(crate) conflict: u64,
    pub(crate) throttled: u64,
    pub(crate) server_error: u64,
    pub(crate) slow_call: u64,
    pub(crate) doubled_event: u64,
    pub(crate) broken_watch: u64,
    pub(crate) stalled_watch: u64,
    pub(crate) slow_watches: bool,
    pub(crate) slow_keepers: bool,
    pub(crate) lost_extender_call: u64,
    /// The Service leads to a replica that is not the leader.
    pub(crate) wrong_replica: u64,
    /// The scheduler takes another node than the best.
    pub(crate) other_node: u64,
    /// A second bind of a pod, for another node.
    pub(crate) second_bind: u64,
    /// Bindings, and writes that free a claim, that a webhook of the API server forbids.
    pub(crate) refused_binding: u64,
    pub(crate) refused_undo: u64,
    /// Writes that free a claim and are lost or fail, whatever becomes of others.
    pub(crate) failed_undo: u64,
    /// Milliseconds, at most, between two events of a replica's watch of claims; 0: as other watches.
    pub(crate) trickle: u64,
}

/// Which replica: found out when it happens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whom {
    Nth(u64),
    /// The holder of the Lease, and another.
    Leader,
    Follower,
}

#[derive(Clone, Debug)]
pub(crate) enum Act {
    Create(usize),
    /// Any pod that is there, by a number taken modulo.
    Delete(u64),
    ForceDelete(u64),
    Finish(u64),
    Crash(Whom),
    /// Milliseconds.
    Freeze(Whom, u64),
    Thaw(usize),
    Partition(Whom, u64),
    /// A watch brings nothing for some milliseconds, and nobody is told.
    Stall(Whom, Kind, u64),
    /// Every watch of every client has to list again (the API server restarted, or compacted its log).
    Relist,
    RestartScheduler,
    /// A slice of a node is gone for some milliseconds: its driver restarts.
    DriverGone(u64, u64),
    DriverBack(Box<Value>),
}

/// What a node has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plant {
    pub(crate) cards: Cards,
    pub(crate) count: u64,
    /// Of each card.
    pub(crate) watts: u64,
}

pub(crate) struct Scenario {
    pub(crate) replicas: usize,
    /// Node `n<position>`.
    pub(crate) plants: Vec<Plant>,
    pub(crate) objects: Vec<Value>,
    pub(crate) pods: Vec<Value>,
    pub(crate) policy: String,
    /// Watts the domain `rack=a` may draw.
    pub(crate) budget: Option<u64>,
    /// Pods at a time on a shared claim of ours (`wl-share-`); None: there is none.
    pub(crate) slots: Option<u64>,
    pub(crate) odds: Odds,
    /// At which writes a replica is killed, or (true) hangs, with the write on its way.
    pub(crate) snaps: Vec<(u64, bool)>,
    /// At which writes to claims a replica hangs, and for how many milliseconds: with the answer on its way, and the
    /// next write not sent.
    pub(crate) hangs: Vec<(u64, u64)>,
    pub(crate) aim: Aim,
    /// By time in milliseconds.
    pub(crate) acts: Vec<(u64, Act)>,
    /// When faults end.
    pub(crate) calm_at: u64,
}

pub(crate) const NS: &str = "team";

impl Scenario {
    pub(crate) fn draw(seed: u64) -> Self {
        match Aim::of(seed) {
            Aim::Mix => Self::mix(seed),
            aim => aim.draw(seed),
        }
    }

    /// A bit of everything.
    fn mix(seed: u64) -> Self {
        let mut rng = Rng::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x5eed);
        let mut objects = vec![namespace()];
        objects.extend(classes());
        let nodes = *rng.pick(&[1, 2, 2, 3, 3, 4, 6]);
        let mut plants: Vec<Plant> = vec![];
        for n in 0..nodes {
            let kind = *rng.pick(&[Cards::Whole, Cards::Whole, Cards::Whole, Cards::Halves, Cards::Shares]);
            let count = rng.range(1, 8);
            let (product, draw) = *rng.pick(&[(SERVER, 600), (SERVER, 600), (MAX_Q, 300)]);
            objects.push(node(n));
            objects.push(slice(&format!("n{n}"), kind, count, product));
            plants.push(Plant {
                cards: kind,
                count,
                watts: draw,
            });
        }
        let watts: u64 = plants.iter().map(|p| p.count * p.watts).sum();
        let cards = plants.iter().map(|p| p.count).max().unwrap_or(1);
        let budget = rng.percent(25).then(|| watts * rng.range(40, 90) / 100);
        let mut policy = "apiVersion: wattlane.dev/v1alpha1\nkind: PlacementPolicy\n".to_owned();
        if let Some(budget) = budget {
            let _ = writeln!(policy, "power: [{{label: rack, budget: {budget}W}}]");
        }
        let mut slots = None;
        let most = if rng.percent(10) { 40 } else { 14 };
        let count = rng.range(3, most);
        let mut shared = vec![];
        if rng.percent(20) {
            objects.push(claim("common", "gpu", rng.range(1, 2)));
            shared.push("common".to_owned());
        }
        if rng.percent(30) {
            let (made_for, allowed) = (rng.range(2, 4), rng.range(2, 4));
            let _ = writeln!(
                policy,
                "namespaces: [{{match: {{}}, sharing: {{slots: {allowed}, strategy: time-slicing}}}}]"
            );
            slots = Some(made_for.min(allowed));
            shared.push(format!("wl-share-chat-x{made_for}-0123456789"));
            objects.push(claim(&shared[shared.len() - 1], "gpu", 1));
        }
        let pods = (0..count).map(|i| pod(&mut rng, i, &shared, cards)).collect::<Vec<_>>();
        for (class, counts) in [("gpu", 1..=4), ("half", 1..=2), ("share", 1..=1)] {
            objects.extend(counts.map(|n| template(class, n)));
        }
        let calm_at = rng.range(15, 60) * 1000;
        let replicas = *rng.pick(&[1, 2]);
        let mut snaps = vec![];
        if rng.percent(40) {
            let mut at = 0;
            for _ in 0..rng.range(1, 4) {
                at += rng.range(1, 25);
                snaps.push((at, rng.percent(30)));
            }
        }
        let acts = acts(&mut rng, count, replicas, nodes, calm_at);
        Self {
            replicas,
            plants,
            objects,
            pods,
            policy,
            budget,
            slots,
            odds: Odds::draw(&mut rng),
            snaps,
            hangs: vec![],
            aim: Aim::Mix,
            acts,
            calm_at,
        }
    }
}

impl Odds {
    /// Each fault is there in some schedules, rare in some of them and often in others.
    fn draw(rng: &mut Rng) -> Self {
        let mut odd = |share: u64, most: u64| match rng.percent(share) {
            true => rng.range(1, most),
            false => 0,
        };
        Self {
            lost_request: odd(40, 200),
            lost_answer: odd(40, 300),
            late: odd(50, 300),
            conflict: odd(40, 200),
            throttled: odd(30, 200),
            server_error: odd(40, 250),
            slow_call: odd(40, 250),
            doubled_event: odd(40, 300),
            broken_watch: odd(40, 60),
            stalled_watch: odd(40, 60),
            lost_extender_call: odd(30, 100),
            wrong_replica: odd(50, 200),
            other_node: odd(60, 600),
            second_bind: odd(50, 500),
            slow_watches: odd(35, 1) > 0,
            slow_keepers: odd(40, 1) > 0,
            refused_binding: odd(15, 150),
            refused_undo: odd(15, 300),
            failed_undo: odd(15, 300),
            trickle: odd(15, 1500),
        }
    }
}

fn acts(rng: &mut Rng, pods: u64, replicas: usize, nodes: u64, calm_at: u64) -> Vec<(u64, Act)> {
    let mut acts = vec![];
    let burst = rng.percent(50);
    for i in 0..pods {
        let at = match burst {
            true => rng.range(100, 3000),
            false => rng.below(calm_at * 6 / 10),
        };
        acts.push((at, Act::Create(usize::try_from(i).expect("few pods"))));
    }
    let some = |rng: &mut Rng, most: u64, make: &dyn Fn(&mut Rng) -> Act, acts: &mut Vec<(u64, Act)>| {
        for _ in 0..rng.below(most + 1) {
            let at = rng.range(500, calm_at - 1);
            acts.push((at, make(rng)));
        }
    };
    let churn = *rng.pick(&[0, 1, 2, 2]);
    some(rng, pods * churn / 5, &|r| Act::Delete(r.below(1000)), &mut acts);
    some(rng, pods * churn / 10, &|r| Act::ForceDelete(r.below(1000)), &mut acts);
    some(rng, pods * churn / 3, &|r| Act::Finish(r.below(1000)), &mut acts);
    if rng.percent(40) {
        some(rng, 3, &|r| Act::Crash(Whom::Nth(r.below(replicas as u64))), &mut acts);
    }
    if rng.percent(30) {
        some(
            rng,
            2,
            &|r| Act::Freeze(Whom::Nth(r.below(replicas as u64)), r.range(100, 25_000)),
            &mut acts,
        );
    }
    if rng.percent(30) {
        some(
            rng,
            2,
            &|r| Act::Partition(Whom::Nth(r.below(replicas as u64)), r.range(100, 30_000)),
            &mut acts,
        );
    }
    if rng.percent(25) {
        some(rng, 2, &|_| Act::Relist, &mut acts);
    }
    if rng.percent(20) {
        some(rng, 1, &|_| Act::RestartScheduler, &mut acts);
    }
    if rng.percent(20) {
        some(
            rng,
            2,
            &|r| Act::DriverGone(r.below(nodes), r.range(100, 10_000)),
            &mut acts,
        );
    }
    acts
}

pub(crate) fn namespace() -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS, "labels": {"wattlane.dev/enabled": "true"}}})
}

pub(crate) fn node(n: u64) -> Value {
    let name = format!("n{n}");
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name,
        "labels": {"rack": "a", "kubernetes.io/hostname": name}}})
}

pub(crate) fn classes() -> impl Iterator<Item = Value> {
    [("gpu", "gpu"), ("half", "mig"), ("share", "slot")].into_iter().map(|(name, kind)| {
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name},
            "spec": {"selectors": [{"cel": {"expression": format!("device.attributes['gpu.nvidia.com'].type == '{kind}'")}}]}})
    })
}

pub(crate) fn slice(node: &str, kind: Cards, count: u64, product: &str) -> Value {
    let mut devices = vec![];
    let mut sets = vec![];
    let slots = |card: u64, n: u64| json!([{"counterSet": format!("card-{card}"), "counters": {"slots": {"value": n.to_string()}}}]);
    for i in 0..count {
        let uuid = format!("GPU-{node}-{i}");
        let attributes = |kind: &str, uuid: Value| {
            let mut all = json!({"type": {"string": kind}, "productName": {"string": product}});
            if !uuid.is_null() {
                all["uuid"] = json!({"string": uuid});
            }
            all
        };
        match kind {
            Cards::Whole => {
                devices.push(json!({"name": format!("gpu-{i}"), "attributes": attributes("gpu", uuid.into())}))
            }
            Cards::Shares => devices.push(
                json!({"name": format!("slot-{i}"), "attributes": attributes("slot", uuid.into()),
                "allowMultipleAllocations": true, "capacity": {"memory": {"value": "80Gi"}}}),
            ),
            Cards::Halves => {
                sets.push(json!({"name": format!("card-{i}"), "counters": {"slots": {"value": "2"}}}));
                devices.push(json!({"name": format!("gpu-{i}"), "attributes": attributes("gpu", uuid.into()), "consumesCounters": slots(i, 2)}));
                for half in 0..2 {
                    let mut attributes = attributes("mig", format!("MIG-{node}-{i}-{half}").into());
                    attributes["parentUUID"] = json!({"string": format!("GPU-{node}-{i}")});
                    devices.push(json!({"name": format!("gpu-{i}-mig-{half}"), "attributes": attributes, "consumesCounters": slots(i, 1)}));
                }
            }
        }
    }
    let mut spec = json!({"driver": "gpu.nvidia.com", "nodeName": node, "devices": devices,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}});
    if !sets.is_empty() {
        spec["sharedCounters"] = sets.into();
    }
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": node}, "spec": spec})
}

fn wanted(class: &str, count: u64) -> Value {
    let mut exactly = json!({"deviceClassName": class, "count": count});
    if class == "share" {
        exactly["capacity"] = json!({"requests": {"memory": format!("{}Gi", 10 + 10 * count)}});
    }
    json!({"devices": {"requests": [{"name": "r", "exactly": exactly}]}})
}

fn claim(name: &str, class: &str, count: u64) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"namespace": NS, "name": name},
        "spec": wanted(class, count)})
}

pub(crate) fn template(class: &str, count: u64) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "spec": {"spec": wanted(class, count)},
        "metadata": {"namespace": NS, "name": format!("{class}-{count}")}})
}

fn pod(rng: &mut Rng, i: u64, shared: &[String], cards: u64) -> Value {
    let mut claims = vec![];
    for (n, name) in shared.iter().enumerate().filter(|_| rng.percent(30)) {
        claims.push(json!({"name": format!("s{n}"), "resourceClaimName": name}));
    }
    if claims.is_empty() || rng.percent(10) {
        let templates = if rng.percent(15) { 2 } else { 1 };
        for t in 0..templates {
            let class = *rng.pick(&["gpu", "gpu", "gpu", "half", "share"]);
            let most = match class {
                "gpu" => 4.min(cards),
                "half" => 2,
                _ => 1,
            };
            let count = if rng.percent(50) { 1 } else { rng.range(1, most) };
            claims.push(json!({"name": format!("c{t}"), "resourceClaimTemplateName": format!("{class}-{count}")}));
        }
    }
    let names: Vec<Value> = claims.iter().map(|c| json!({"name": c["name"]})).collect();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": NS, "name": format!("p{i}")},
        "spec": {"schedulerName": "wattlane", "resourceClaims": claims,
            "containers": [{"name": "c", "image": "x", "resources": {"claims": names}}]},
        "status": {"phase": "Pending"}})
}
