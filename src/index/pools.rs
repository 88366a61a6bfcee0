//! From ResourceSlices to a pool: newest generation, completeness, validity, classes, and who reaches it.
//!
//! Source of the rules: k8s.io/dynamic-resource-allocation/structured/internal. There completeness and validity are a
//! matter of one node: its own slices, or all of the pool's. Here they are the pool's, and only where it fails does a
//! node look at its own part (`share`). Identity is always the pool's: devices of one name are one device.

mod share;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::PoolKey;
use crate::model::{Bits, Classified, CounterSet, Device, Name, Node, NodeScope, Slice, TaintRule};
use crate::snapshot::{Cuts, MaskCache, Pool, PoolDevice, PoolHealth, PoolIx, Shadows};

/// A pool as the index keeps it.
pub(super) struct Record {
    pub(super) ix: PoolIx,
    /// By name: the order in which the in-tree allocator tries them.
    pub(super) slices: BTreeMap<Name, Arc<Slice>>,
    pub(super) scopes: Scopes,
}

/// Which devices each distinct scope covers. A slice's scope is there even where the slice has no device,
/// so that a pool that cannot be read is still seen, with the reason, by its node.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Scopes {
    list: Vec<(NodeScope, Bits)>,
    devices: usize,
    /// None: what the pool is, it is for every node.
    share: Option<share::Parts>,
}

impl Scopes {
    fn add(&mut self, positions: &mut HashMap<NodeScope, usize>, scope: &NodeScope, device: Option<usize>) {
        if matches!(scope, NodeScope::Nowhere | NodeScope::PerDevice) {
            return;
        }
        let i = *positions.entry(scope.clone()).or_insert_with(|| {
            self.list.push((scope.clone(), Bits::new(self.devices)));
            self.list.len() - 1
        });
        if let Some(device) = device {
            self.list[i].1.insert(device);
        }
    }

    /// The nodes that are named.
    pub(super) fn local(&self) -> impl Iterator<Item = &Name> {
        self.list.iter().filter_map(|(scope, _)| match scope {
            NodeScope::Node(name) => Some(name),
            _ => None,
        })
    }

    /// Whether nodes reach it that are not named.
    pub(super) fn wide(&self) -> bool {
        self.list.iter().any(|(scope, _)| !matches!(scope, NodeScope::Node(_)))
    }

    /// What the node sees (None: nothing): which devices, None for all of them; and the pool's health for this node,
    /// where it is not the pool's own.
    pub(super) fn visible(&self, node: &Node) -> Option<(Option<Arc<Bits>>, Option<PoolHealth>)> {
        let mut seen = self.list.iter().filter(|(scope, _)| reaches(scope, node));
        let (_, first) = seen.next()?;
        let mut bits = first.clone();
        for (_, more) in seen {
            more.iter().for_each(|i| bits.insert(i));
        }
        let health = self.share.as_ref().and_then(|parts| parts.health(node, &bits));
        Some(((bits.len() < self.devices).then(|| Arc::new(bits)), health))
    }
}

fn reaches(scope: &NodeScope, node: &Node) -> bool {
    match scope {
        NodeScope::Node(name) => *name == node.name,
        NodeScope::All => true,
        NodeScope::Selector(selector) => selector.matches(node),
        NodeScope::PerDevice | NodeScope::Nowhere => false,
    }
}

/// Whether an administrator's taint rule can be about devices of the pool.
pub(super) fn is_about(rule: &TaintRule, key: &PoolKey) -> bool {
    rule.driver.as_ref().is_none_or(|d| *d == key.driver) && rule.pool.as_ref().is_none_or(|p| *p == key.name)
}

/// The device with the taints of the rules that are about it, behind its own.
fn tainted(device: &Arc<Device>, rules: &[&TaintRule]) -> Arc<Device> {
    let about = |r: &&&TaintRule| r.device.as_ref().is_none_or(|d| *d == device.name);
    let added: Vec<_> = rules.iter().filter(about).map(|r| r.taint.clone()).collect();
    if added.is_empty() {
        return device.clone();
    }
    let mut device = Device::clone(device);
    device.taints = device.taints.iter().cloned().chain(added).collect();
    Arc::new(device)
}

pub(super) fn assemble(
    key: &PoolKey,
    slices: &BTreeMap<Name, Arc<Slice>>,
    rules: &[&TaintRule],
    classify: impl Fn(&Device, &NodeScope) -> Classified,
) -> (Pool, Scopes) {
    let generation = slices.values().map(|s| s.generation).max().unwrap_or(0);
    let current: Vec<&Arc<Slice>> = slices.values().filter(|s| s.generation == generation).collect();
    let mut devices = vec![];
    let mut counter_sets: Vec<CounterSet> = vec![];
    for slice in &current {
        devices.extend(slice.devices.iter().map(|device| {
            let scope = match &slice.nodes {
                NodeScope::PerDevice => device.nodes.clone().unwrap_or(NodeScope::Nowhere),
                nodes => nodes.clone(),
            };
            PoolDevice {
                classified: classify(device, &scope),
                device: tainted(device, rules),
                scope,
            }
        }));
        counter_sets.extend(slice.counter_sets.iter().cloned());
    }
    counter_sets.sort_by(|a, b| a.name.cmp(&b.name));
    let mut by_name = BTreeMap::new();
    for (i, d) in (0u32..).zip(&devices) {
        // Of two with one name the first: the pool is invalid then, but what is allocated still counts.
        by_name.entry(d.device.name.clone()).or_insert(i);
    }
    let mut scopes = Scopes {
        devices: devices.len(),
        ..Default::default()
    };
    let mut positions = HashMap::new();
    for slice in &current {
        scopes.add(&mut positions, &slice.nodes, None);
    }
    for (i, d) in devices.iter().enumerate() {
        scopes.add(&mut positions, &d.scope, Some(i));
    }
    let mut pool = Pool {
        driver: key.driver.clone(),
        name: key.name.clone(),
        generation,
        health: PoolHealth::Complete,
        devices,
        by_name,
        counter_sets,
        cuts: Cuts::default(),
        masks: MaskCache::default(),
        shadows: Shadows::default(),
        summary: std::sync::OnceLock::new(),
        boards: std::sync::OnceLock::new(),
    };
    pool.health = health(&pool, &current);
    if pool.health != PoolHealth::Complete && current.iter().all(|s| s.unsupported.is_none()) {
        scopes.share = share::Parts::of(&pool, &current);
    }
    (pool, scopes)
}

fn health(pool: &Pool, current: &[&Arc<Slice>]) -> PoolHealth {
    if let Some(why) = current.iter().find_map(|s| s.unsupported.clone()) {
        return PoolHealth::Invalid(why);
    }
    let have = current.len();
    // Slices that disagree are a driver in the middle of an update.
    if let Some(slice) = current.iter().find(|s| usize::try_from(s.slice_count) != Ok(have)) {
        return PoolHealth::Incomplete {
            have: u32::try_from(have).unwrap_or(u32::MAX),
            want: u32::try_from(slice.slice_count.max(0)).unwrap_or(u32::MAX),
        };
    }
    match fault(pool) {
        Some(why) => PoolHealth::Invalid(why.into()),
        None => PoolHealth::Complete,
    }
}

fn fault(pool: &Pool) -> Option<String> {
    if pool.by_name.len() < pool.devices.len() {
        let twice = (0u32..)
            .zip(&pool.devices)
            .find(|(i, d)| pool.by_name[&d.device.name] != *i)?;
        return Some(format!("device {} is listed twice", twice.1.device.name));
    }
    counter_fault(pool)
}

fn counter_fault(pool: &Pool) -> Option<String> {
    if let Some(pair) = pool.counter_sets.windows(2).find(|p| p[0].name == p[1].name) {
        return Some(format!("counter set {} is listed twice", pair[0].name));
    }
    for device in &pool.devices {
        for consumption in &device.device.consumes {
            let (device, set) = (&device.device.name, &consumption.counter_set);
            let Ok(i) = pool.counter_sets.binary_search_by(|s| s.name.cmp(set)) else {
                return Some(format!(
                    "device {device} uses the counter set {set}, which does not exist"
                ));
            };
            let known = &pool.counter_sets[i].counters;
            for (counter, _) in &consumption.counters {
                if known.binary_search_by(|(n, _)| n.cmp(counter)).is_err() {
                    return Some(format!(
                        "device {device} uses the counter {set}/{counter}, which does not exist"
                    ));
                }
            }
        }
    }
    None
}

/// Equal in all that slices and rules say; what it has beside that is not looked at.
pub(super) fn same(a: &Pool, b: &Pool) -> bool {
    a.generation == b.generation
        && a.health == b.health
        && a.counter_sets == b.counter_sets
        && a.devices.len() == b.devices.len()
        && a.devices.iter().zip(&b.devices).all(|(a, b)| {
            a.classified == b.classified
                && a.scope == b.scope
                && (Arc::ptr_eq(&a.device, &b.device) || a.device == b.device)
        })
}
