//! Pods that hold devices nobody can name: a device plugin gave them their GPUs, and the API does not say which. On a
//! node where the driver publishes the same cards, none of them is given until such a pod is gone.
//!
//! What is kept is which pods those are; that they close a pool is said where the node's view of the pool is settled,
//! as another health of the pool, so that requests look at nothing they do not look at anyhow.

use std::collections::BTreeMap;

use super::{Index, Key, PoolKey};
use crate::model::{Name, Node, Pod, Quantity};
use crate::snapshot::PoolHealth;

/// The extended resources a pod was given without a claim, and how many of each.
type Given = Vec<(Name, usize)>;

#[derive(Default)]
pub(super) struct Holders {
    by_node: BTreeMap<Name, BTreeMap<Key, Given>>,
    /// How many pods were given each resource: most drivers are ruled out by these few names.
    resources: BTreeMap<Name, usize>,
}

impl Holders {
    fn set(&mut self, node: &Name, pod: &Key, given: Given) {
        for (resource, _) in &given {
            *self.resources.entry(resource.clone()).or_default() += 1;
        }
        let pods = self.by_node.entry(node.clone()).or_default();
        let old = match given.is_empty() {
            true => pods.remove(pod),
            false => pods.insert(pod.clone(), given),
        };
        if pods.is_empty() {
            self.by_node.remove(node);
        }
        for (resource, _) in old.into_iter().flatten() {
            if let Some(count) = self.resources.get_mut(&resource) {
                *count -= 1;
                if *count == 0 {
                    self.resources.remove(&resource);
                }
            }
        }
    }
}

/// Where the pod holds what.
fn held(pod: Option<&Pod>) -> Option<(&Name, Given)> {
    let pod = pod.filter(|p| p.holds())?;
    // More than any node has, where it is not a number.
    let count = |amount: &Quantity| {
        amount
            .as_integer()
            .and_then(|n| usize::try_from(n).ok())
            .unwrap_or(usize::MAX)
    };
    let given: Given = pod
        .unclaimed()
        .map(|(name, amount)| (name.clone(), count(amount)))
        .collect();
    (!given.is_empty()).then_some((&pod.node_name, given))
}

impl Index {
    /// The pod was `old` and is `new`: the nodes whose pools it closes or opens see them again.
    pub(super) fn note_holder(&mut self, key: &Key, old: Option<&Pod>, new: Option<&Pod>) {
        let (was, is) = (held(old), held(new));
        if was == is {
            return;
        }
        for (node, given) in was
            .iter()
            .map(|(node, _)| (*node, vec![]))
            .chain(is.iter().map(|(n, g)| (*n, g.clone())))
        {
            self.holders.set(node, key, given);
        }
        for (node, given) in was.into_iter().chain(is) {
            self.touch_held(node, &given);
        }
    }

    /// Which resources are whose cards is another matter now: a class or the policy changed.
    pub(super) fn touch_holders(&mut self) {
        self.stale_nodes.extend(self.holders.by_node.keys().cloned());
        let pools: Vec<PoolKey> = self.held_pools().cloned().collect();
        pools.iter().for_each(|pool| self.touch_power(pool));
        if !self.wide.is_empty() {
            self.touch_all();
        }
    }

    /// The node came, went, or has other labels: what it reaches of pools that are not a single node's is another matter.
    pub(super) fn touch_reach(&mut self, node: &Name) {
        if self.holders.by_node.contains_key(node) && !self.wide.is_empty() {
            self.touch_all();
        }
    }

    /// Pods come and go all the time; few ask for something that a driver of their node publishes as well.
    fn touch_held(&mut self, node: &Name, given: &[(Name, usize)]) {
        let closes = |pool: &&PoolKey| given.iter().any(|(resource, _)| self.may_hold(resource, &pool.driver));
        let wide = self.wide.iter().any(|pool| closes(&pool));
        let local = self.local.get(node).into_iter().flatten();
        let closed: Vec<PoolKey> = local.filter(closes).cloned().collect();
        if wide {
            self.touch_all();
        } else if !closed.is_empty() {
            self.stale_nodes.insert(node.clone());
        }
        closed.iter().for_each(|pool| self.touch_power(pool));
    }

    /// The pools of which something may be held unseen.
    pub(super) fn held_pools(&self) -> impl Iterator<Item = &PoolKey> {
        let nodes = self.holders.by_node.keys();
        nodes.filter_map(|node| self.local.get(node)).flatten()
    }

    /// How many cards of the pool are held unseen, at most. None of one that several nodes reach: which of its cards are
    /// a node's is not known.
    pub(super) fn unseen(&self, key: &PoolKey) -> usize {
        let Some(record) = self.pools.get(key).filter(|_| !self.wide.contains(key)) else {
            return 0;
        };
        let pods = record.scopes.local().filter_map(|node| self.holders.by_node.get(node));
        let given = pods.flat_map(|pods| pods.values().flatten());
        let held = given.filter(|(resource, _)| self.may_hold(resource, &key.driver));
        held.fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    pub(super) fn touch_all(&mut self) {
        let names = self.snapshot.nodes().map(|(_, n)| n.node.name.clone());
        self.stale_nodes.extend(names);
    }

    fn may_hold(&self, resource: &str, driver: &str) -> bool {
        let named = self.classifier.device_class(resource);
        self.snapshot.may_hold(resource, named.as_deref(), driver)
    }

    /// Why nothing of the pool is given to the node now. None: nobody holds it unseen.
    pub(super) fn closed(&self, key: &PoolKey, node: &Node) -> Option<PoolHealth> {
        let mut given = self.holders.resources.keys();
        if !given.any(|resource| self.may_hold(resource, &key.driver)) {
            return None;
        }
        if !self.wide.contains(key) {
            return self.holder(key, &node.name);
        }
        // Several nodes reach it: the cards that a pod on one of them holds are missing on the others as well.
        let record = self.pools.get(key)?;
        self.holders.by_node.keys().find_map(|name| {
            record.scopes.visible(&self.snapshot.node_named(name)?.node)?;
            self.holder(key, name)
        })
    }

    fn holder(&self, key: &PoolKey, node: &Name) -> Option<PoolHealth> {
        let pods = self.holders.by_node.get(node)?;
        let mut holding = pods.iter().filter_map(|(pod, given)| {
            let (resource, _) = given
                .iter()
                .find(|(resource, _)| self.may_hold(resource, &key.driver))?;
            Some((pod, resource))
        });
        let (pod, resource) = holding.next()?;
        let others = match holding.count() {
            0 => String::new(),
            n => format!(" (and {n} more)"),
        };
        let words = format!("pod {pod}{others} has {resource} from the device plugin");
        Some(PoolHealth::Held(words.into()))
    }
}
