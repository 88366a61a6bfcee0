//! Bind against a cluster that fails in every way; what counts is the state at the end.
//!
//! The index here is a small one of the test's own (claims, pods, reservations, and the rule that a reservation ends
//! when the watch shows the allocation), and so is the placement: first free device of the node.

mod faults;
mod give_back;
mod leadership;
mod ready;
mod shares;
mod single;
mod world;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use self::world::{Trouble, World};
use super::{BindError, BindOutcome, BindRequest, Binder, Limits};
use crate::index::{Change, Conflict, Kind, Object, Reservation, ReservationId};
use crate::model::{
    Allocation, Claim, Consumer, DeviceId, DeviceResult, Name, NamespacedName, NodeSelector, Pod, PodClaim,
    PodClaimSource, Reason, Refusal,
};
use crate::placement::{ClaimPlacement, Rules};
use crate::publish::{IndexHandle, Message, Reader};
use crate::selector::Selectors;
use crate::snapshot::{Hold, HoldId, Snapshot};

const DEVICES: [&str; 2] = ["gpu-0", "gpu-1"];

struct Setup {
    world: World,
    binder: Binder,
    reserved: Arc<Mutex<BTreeMap<u64, Reservation>>>,
}

impl Setup {
    /// `lag`: how late the watch is. `latency`: how long an API call takes.
    fn new(troubles: &[Trouble], lag: Duration, latency: Duration) -> Self {
        let (feed, events) = mpsc::unbounded_channel();
        Self::over(World::new(feed, troubles, latency), events, lag)
    }

    /// Another replica of the same cluster.
    fn another(&self, lag: Duration) -> Self {
        let (feed, events) = mpsc::unbounded_channel();
        self.world.state().watched_by(feed);
        Self::over(self.world.clone(), events, lag)
    }

    fn over(world: World, mut events: mpsc::UnboundedReceiver<Change>, lag: Duration) -> Self {
        let (tx, rx) = mpsc::channel(16);
        let reserved = Arc::<Mutex<BTreeMap<u64, Reservation>>>::default();
        let (version_tx, version) = watch::channel(0);
        let current = Arc::new(ArcSwap::from_pointee(Snapshot::default()));
        tokio::spawn(index(rx, current.clone(), version_tx, reserved.clone()));
        let to_index = tx.clone();
        tokio::spawn(async move {
            while let Some(change) = events.recv().await {
                let tx = to_index.clone();
                // In order, each `lag` after it happened: timers of one length keep the order.
                tokio::spawn(async move {
                    sleep(lag).await;
                    let _ = tx.send(Message::Change(change)).await;
                });
            }
        });
        let clock = world.clone();
        let mut binder = Binder::new(
            Reader { current, version },
            IndexHandle { tx },
            Arc::new(Selectors::new()),
            Arc::new(world.clone()),
            Limits::default(),
        );
        let shared = Arc::get_mut(&mut binder.shared).expect("not shared yet");
        shared.clock = Box::new(move || clock.now());
        shared.planner = Box::new(|snapshot, _, _, pod, node| first_free(snapshot, pod, node));
        Self {
            world,
            binder,
            reserved,
        }
    }

    /// A pod with two claims of its own, one device each.
    fn add_pod(&self, name: &str) -> Pod {
        let claims: Vec<Name> = (0..2).map(|i| format!("{name}-{i}").into()).collect();
        let mut state = self.world.state();
        for claim in &claims {
            state.add_claim(new_claim(claim));
        }
        let pod = new_pod(name, &claims);
        state.add_pod(pod.clone());
        pod
    }

    async fn bind(&self, pod: &Pod, node: &str) -> Result<BindOutcome, BindError> {
        self.binder.bind(Arc::new(Rules::default()), request(pod, node)).await
    }

    fn node_of(&self, pod: &Pod) -> Option<Name> {
        self.world.state().pods.get(&pod.key).map(|p| p.node_name.clone())
    }

    /// What is wrong with the state now that nothing is under way. `stuck`: the API refused an undo, which may leave
    /// an allocation, but then it must not look free.
    fn wrong(&self, pods: &[Pod], stuck: bool) -> Vec<String> {
        let state = self.world.state();
        let mut wrong = state.given_twice.clone();
        for pod in pods {
            let bound = state.pods.get(&pod.key).is_some_and(|p| !p.node_name.is_empty());
            for claim in pod.claims.iter().filter_map(PodClaim::claim_name) {
                let Some(claim) = state.claims.get(&NamespacedName::new("ns", claim.clone())) else {
                    continue;
                };
                let ours = claim.reserved_for.iter().any(|c| c.uid == pod.uid);
                if bound && !(ours && claim.allocation.is_some()) {
                    wrong.push(format!("{} is bound without {}", pod.key, claim.key));
                }
                if !bound && !stuck && (ours || claim.allocation.is_some()) {
                    wrong.push(format!("{} is not bound and holds {}", pod.key, claim.key));
                }
            }
        }
        let reserved = self.reserved.lock().expect("not poisoned").len();
        if reserved > 0 && !stuck {
            wrong.push(format!("{reserved} reservations left"));
        }
        if self.binder.shared.flights.len() > 0 || self.binder.running() > 0 {
            wrong.push("something is still under way".to_owned());
        }
        wrong
    }
}

fn request(pod: &Pod, node: &str) -> BindRequest {
    BindRequest {
        pod: pod.key.clone(),
        uid: pod.uid.clone(),
        node: node.into(),
    }
}

fn new_claim(name: &Name) -> Claim {
    Claim {
        key: NamespacedName::new("ns", name.clone()),
        uid: format!("uid-of-{name}").into(),
        resource_version: "0".into(),
        ..Claim::default()
    }
}

fn new_pod(name: &str, claims: &[Name]) -> Pod {
    let claim = |n: &Name| PodClaim {
        name: n.clone(),
        source: PodClaimSource::Claim(n.clone()),
        generated: None,
    };
    Pod {
        key: NamespacedName::new("ns", name),
        uid: format!("uid-of-{name}").into(),
        created: 0,
        labels: Arc::default(),
        annotations: Arc::default(),
        scheduler_name: "wattlane".into(),
        node_name: "".into(),
        finished: false,
        deleting: false,
        claims: claims.iter().map(claim).collect(),
        extended_resources: vec![],
        room: Default::default(),
        extended_resource_claim: None,
        claimed_resources: vec![],
        fixed: false,
        gated: false,
    }
}

fn consumer(pod: &Pod) -> Consumer {
    Consumer {
        resource: "pods".into(),
        name: pod.key.name.clone(),
        uid: pod.uid.clone(),
    }
}

fn allocation(node: &str, device: &str) -> Allocation {
    let result = DeviceResult {
        request: "gpu".into(),
        id: DeviceId {
            driver: "gpu.nvidia.com".into(),
            pool: node.into(),
            device: device.into(),
        },
        // A node whose devices are attached on demand.
        binding_conditions: if node.starts_with("fabric") {
            vec!["Attached".into()]
        } else {
            vec![]
        },
        binding_failure_conditions: vec!["AttachFailed".into()],
        ..DeviceResult::default()
    };
    Allocation {
        results: vec![result],
        config: vec![],
        node_selector: Some(Arc::new(NodeSelector::for_node(&node.into()))),
    }
}

fn first_free(snapshot: &Snapshot, pod: &Pod, node: &Name) -> Result<Vec<ClaimPlacement>, Refusal> {
    let mut taken: Vec<Name> = vec![];
    for (_, claim) in snapshot.claims.iter() {
        let results = claim.allocation.iter().flat_map(|a| &a.results);
        taken.extend(results.filter(|r| r.id.pool == *node).map(|r| r.id.device.clone()));
    }
    let mut placed = vec![];
    for name in pod.claims.iter().filter_map(PodClaim::claim_name) {
        let Some(claim) = snapshot.claim(&NamespacedName::new("ns", name.clone())) else {
            return Err(Refusal::new(Reason::ClaimMissing, "no claim yet"));
        };
        let allocation = match &claim.allocation {
            Some(a) if a.results.iter().all(|r| r.id.pool == *node) => a.clone(),
            Some(_) => return Err(Refusal::new(Reason::AllocatedElsewhere, "allocated elsewhere")),
            None => {
                let free = DEVICES.iter().find(|d| !taken.iter().any(|t| &&**t == *d));
                let Some(free) = free else {
                    return Err(Refusal::new(Reason::NotEnoughFree, "all taken"));
                };
                taken.push((*free).into());
                Arc::new(allocation(node, free))
            }
        };
        placed.push(ClaimPlacement {
            slots: claim.share().map(|s| s.slots as usize),
            claim: claim.clone(),
            existing: claim.allocation.is_some(),
            allocation,
        });
    }
    Ok(placed)
}

async fn index(
    mut rx: mpsc::Receiver<Message>,
    current: Arc<ArcSwap<Snapshot>>,
    version: watch::Sender<u64>,
    reserved: Arc<Mutex<BTreeMap<u64, Reservation>>>,
) {
    let mut snapshot = Snapshot::default();
    let mut next = 0;
    while let Some(message) = rx.recv().await {
        let mut reserved = reserved.lock().expect("not poisoned");
        match message {
            Message::Change(change) => apply(&mut snapshot, &mut reserved, change),
            Message::Reserve(reservation, answer) => {
                next += 1;
                let result = match clash(&snapshot, &reserved, &reservation) {
                    Some(what) => Err(Conflict(what)),
                    None => {
                        reserved.insert(next, reservation);
                        Ok(ReservationId(next))
                    }
                };
                let _ = answer.send(result);
            }
            Message::Release(id) => {
                reserved.remove(&id.0);
            }
            // The watch here leaves nothing out.
            Message::Written(..) => {}
            Message::Flush(answer) => {
                let _ = answer.send(());
            }
            // It takes nothing here; what counts is which one is dropped.
            Message::Hold(wanted, answer) => {
                next += 1;
                let id = HoldId(next);
                let claims = || wanted.claims.iter().map(|c| c.claim.clone());
                let hold = Arc::new(Hold {
                    id,
                    pod_uid: wanted.pod_uid.clone(),
                    node: wanted.node.clone(),
                    devices: [].into(),
                    claims: claims().collect(),
                    pools: [].into(),
                    watts: [].into(),
                });
                claims().for_each(|claim| _ = snapshot.holds.insert(claim, hold.clone()));
                let _ = answer.send(Ok(id));
            }
            Message::DropHold(id) => {
                let all = snapshot.holds.iter().filter(|(_, hold)| hold.id == id);
                let claims: Vec<_> = all.map(|(claim, _)| claim.clone()).collect();
                claims.iter().for_each(|claim| _ = snapshot.holds.remove(claim));
            }
            Message::Classifier(_) | Message::Refused(..) => {}
        }
        snapshot.version += 1;
        current.store(Arc::new(snapshot.clone()));
        version.send_replace(snapshot.version);
    }
}

fn apply(snapshot: &mut Snapshot, reserved: &mut BTreeMap<u64, Reservation>, change: Change) {
    match change {
        Change::Upsert(Object::Claim(claim)) => {
            if claim.allocation.is_some() {
                for reservation in reserved.values_mut() {
                    reservation.claims.retain(|c| c.uid != claim.uid);
                }
                reserved.retain(|_, r| !r.claims.is_empty());
            }
            snapshot.claims.insert(claim.key.clone(), Arc::new(claim));
        }
        Change::Upsert(Object::Pod(pod)) => {
            snapshot.pods.insert(pod.key.clone(), Arc::new(pod));
        }
        Change::Remove(Kind::Claim, key) => {
            snapshot.claims.remove(&key);
        }
        Change::Remove(Kind::Pod, key) => {
            snapshot.pods.remove(&key);
        }
        other => panic!("not used here: {other:?}"),
    }
}

fn clash(snapshot: &Snapshot, reserved: &BTreeMap<u64, Reservation>, wanted: &Reservation) -> Option<Name> {
    for claim in &wanted.claims {
        let held = reserved.values().flat_map(|r| &r.claims);
        if held.clone().any(|c| c.uid == claim.uid) {
            return Some("the claim is reserved".into());
        }
        if snapshot.claim(&claim.claim).is_none_or(|c| c.allocation.is_some()) {
            return Some("the claim is gone or allocated".into());
        }
        let given = snapshot.claims.iter().filter_map(|(_, c)| c.allocation.as_ref());
        let mut devices = held
            .flat_map(|c| &c.results)
            .chain(given.flat_map(|a| &a.results))
            .map(|r| &r.id);
        if devices.any(|d| claim.results.iter().any(|r| r.id == *d)) {
            return Some("a device is taken".into());
        }
    }
    None
}
