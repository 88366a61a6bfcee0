//! What must hold after every single write to the API, judged from the stored objects alone.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use wattlane::index::Kind;
use wattlane::model::{Claim, DeviceResult, NamespacedName};

use super::rules::{FINALIZER, consumers, finalizers};
use super::scenario::{Cards, Plant};
use super::store::{Entry, Store, text};

/// Of a card that is given in shares.
const MEMORY: u64 = 80 << 30;

pub(crate) struct Checks {
    pub(crate) plants: Vec<Plant>,
    pub(crate) budget: Option<u64>,
    pub(crate) slots: Option<u64>,
}

impl Checks {
    pub(crate) fn after(&self, store: &Store, entry: &Entry) -> Result<(), String> {
        match entry.kind {
            Kind::Claim => {
                self.claim(store, entry)?;
                self.devices(store)
            }
            Kind::Pod => pod(store, entry),
            _ => Ok(()),
        }
    }

    fn claim(&self, store: &Store, entry: &Entry) -> Result<(), String> {
        let key = &entry.key;
        let now = entry.raw.as_deref().unwrap_or(&Value::Null);
        let before = entry.old.as_deref().unwrap_or(&Value::Null);
        let allocation = |v: &Value| v["status"]["allocation"]["devices"]["results"].clone();
        if !allocation(now).is_null() && !finalizers(now).contains(&FINALIZER) {
            return Err(format!("claim {key} is allocated without its finalizer"));
        }
        let lost = !allocation(before).is_null() && allocation(before) != allocation(now);
        for uid in consumers(before) {
            let running = store
                .pods()
                .find(|p| *p.uid == *uid && !p.finished && !p.node_name.is_empty());
            if let Some(pod) = running.filter(|_| lost || !consumers(now).contains(&uid)) {
                return Err(format!("claim {key} lost its devices under pod {}", pod.key));
            }
        }
        let Some(claim) = store.claim(key) else { return Ok(()) };
        let Some(allocation) = &claim.allocation else {
            return Ok(());
        };
        let users = claim.reserved_for.len() as u64;
        if let Some(slots) = self.slots.filter(|slots| claim.share().is_some() && users > *slots) {
            return Err(format!("claim {key} has {slots} slots and {users} pods"));
        }
        let count = now["spec"]["devices"]["requests"][0]["exactly"]["count"].as_u64();
        if count != Some(allocation.results.len() as u64) {
            return Err(format!(
                "claim {key} wants {count:?} devices and has {:?}",
                allocation.results
            ));
        }
        let node = node_of(claim).ok_or_else(|| format!("claim {key} has devices of several nodes"))?;
        let elsewhere = |uid: &str| {
            store
                .pods()
                .find(|p| &*p.uid == uid && !p.node_name.is_empty() && *p.node_name != *node)
        };
        match claim.reserved_for.iter().find_map(|c| elsewhere(&c.uid)) {
            Some(pod) => Err(format!(
                "claim {key} has devices of {node}, and its pod {} runs on {}",
                pod.key, pod.node_name
            )),
            None => Ok(()),
        }
    }

    /// No device twice, no counter and no capacity overdrawn, no budget passed.
    fn devices(&self, store: &Store) -> Result<(), String> {
        let mut whole: BTreeMap<(&str, &str), &NamespacedName> = BTreeMap::new();
        let mut slots: BTreeMap<(&str, u64), u64> = BTreeMap::new();
        let mut memory: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        let mut cards: BTreeSet<(&str, u64)> = BTreeSet::new();
        for (claim, result) in results(store) {
            let device = (&*result.id.pool, &*result.id.device);
            let card = (device.0, card_of(device.1));
            cards.insert(card);
            match self.plant(device.0).cards {
                Cards::Shares => {
                    let took = memory.entry(device).or_default();
                    *took += consumed(store, claim, device);
                    if *took > MEMORY || result.share_id.is_none() {
                        return Err(format!(
                            "{device:?} gives {took} bytes, the last to claim {}",
                            claim.key
                        ));
                    }
                }
                kind => {
                    if let Some(other) = whole.insert(device, &claim.key) {
                        return Err(format!(
                            "DEVICE TWICE: {device:?} is given to {other} and to {}",
                            claim.key
                        ));
                    }
                    let took = slots.entry(card).or_default();
                    *took += if device.1.contains("mig") { 1 } else { 2 };
                    if kind == Cards::Halves && *took > 2 {
                        return Err(format!(
                            "card {card:?} gives {took} slots of 2, the last to claim {}",
                            claim.key
                        ));
                    }
                }
            }
        }
        let watts: u64 = cards.iter().map(|(node, _)| self.plant(node).watts).sum();
        match self.budget {
            Some(budget) if watts > budget => Err(format!("{watts} W are given of {budget} W: {cards:?}")),
            _ => Ok(()),
        }
    }

    pub(crate) fn plant(&self, node: &str) -> Plant {
        let n = node.strip_prefix('n').and_then(|n| n.parse::<usize>().ok());
        self.plants[n.expect("a node of the scenario")]
    }

    /// Whole cards of a node that nobody holds.
    pub(crate) fn free_cards(&self, store: &Store, node: &str) -> u64 {
        let plant = self.plant(node);
        let held: BTreeSet<u64> = results(store)
            .filter(|(_, r)| *r.id.pool == *node)
            .map(|(_, r)| card_of(&r.id.device))
            .collect();
        match plant.cards {
            Cards::Shares => 0,
            _ => plant.count - held.len() as u64,
        }
    }
}

fn pod(store: &Store, entry: &Entry) -> Result<(), String> {
    let key = &entry.key;
    let node = entry.raw.as_ref().map_or("", |raw| text(raw, "/spec/nodeName"));
    let was = entry.old.as_ref().map_or("", |raw| text(raw, "/spec/nodeName"));
    let Some(pod) = store.pod(key).filter(|_| !node.is_empty() && was.is_empty()) else {
        return Ok(());
    };
    for entry in &pod.claims {
        let name = entry
            .claim_name()
            .ok_or_else(|| format!("pod {key} is bound before its claims are named"))?;
        let claim = store.claim(&NamespacedName::new(key.namespace.clone(), name.clone()));
        let claim = claim.ok_or_else(|| format!("pod {key} is bound without its claim {name}"))?;
        if claim.owner_pod.as_ref().is_some_and(|owner| *owner != pod.uid) {
            return Err(format!("pod {key} is bound with another pod's claim {name}"));
        }
        if claim.allocation.is_none() || !claim.reserved_for.iter().any(|c| c.uid == pod.uid) {
            return Err(format!(
                "pod {key} is bound, and its claim {name} is not allocated to it"
            ));
        }
        if node_of(claim) != Some(node) {
            return Err(format!(
                "pod {key} is bound to {node}, and its claim {name} has devices of {:?}",
                node_of(claim)
            ));
        }
    }
    Ok(())
}

/// The one node whose devices the claim has. Pools are named after their node.
fn node_of(claim: &Claim) -> Option<&str> {
    let results = &claim.allocation.as_ref()?.results;
    let first = &*results.first()?.id.pool;
    results.iter().all(|r| *r.id.pool == *first).then_some(first)
}

fn results(store: &Store) -> impl Iterator<Item = (&Claim, &DeviceResult)> {
    let claims = store.claims();
    claims.flat_map(|c| c.allocation.iter().flat_map(|a| &a.results).map(move |r| (c, r)))
}

/// `gpu-3`, `gpu-3-mig-1`, `slot-3`.
fn card_of(device: &str) -> u64 {
    let number = device.split('-').nth(1).and_then(|n| n.parse().ok());
    number.expect("a device of the scenario")
}

/// Bytes, from the words of the API.
fn consumed(store: &Store, claim: &Claim, device: (&str, &str)) -> u64 {
    let raw = store.raw(Kind::Claim, &claim.key).expect("the claim is there");
    let results = raw["status"]["allocation"]["devices"]["results"].as_array();
    let same = |r: &&Value| text(r, "/pool") == device.0 && text(r, "/device") == device.1;
    let amount = |r: &Value| {
        let amounts = r["consumedCapacity"].as_object()?;
        let text = amounts.values().next()?.as_str()?;
        match text.strip_suffix("Gi") {
            Some(n) => n.parse::<u64>().ok().map(|n| n << 30),
            None => text.parse().ok(),
        }
    };
    // Something else than expected counts as all of it: the run fails and says so.
    results
        .into_iter()
        .flatten()
        .filter(same)
        .map(|r| amount(r).unwrap_or(MEMORY + 1))
        .sum()
}
