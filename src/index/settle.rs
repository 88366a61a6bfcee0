//! Bringing the snapshot up to date with what changed: pools first, then what is taken of them, then
//! what nodes see of them, then what is drawn of the power domains, then holds. Only what was marked is looked at.

use std::sync::Arc;

use super::{Index, NodeIx, PoolIx, PoolKey, pools, usage};
use crate::model::{Labels, Name, NodeScope, TaintRule};
use crate::snapshot::{NodeEntry, PoolHealth, PoolState, Visible};

impl Index {
    pub(super) fn settle(&mut self) {
        while let Some(key) = self.stale_pools.pop_first() {
            self.settle_pool(&key);
        }
        let beside = self.stale_states.iter().flat_map(|key| self.absent.seen_in(key));
        let beside: Vec<PoolKey> = beside.cloned().collect();
        self.stale_states.extend(beside);
        while let Some(key) = self.stale_states.pop_first() {
            self.settle_state(&key);
        }
        while let Some(name) = self.stale_nodes.pop_first() {
            self.settle_node(&name);
        }
        while let Some(key) = self.stale_power.pop_first() {
            self.settle_power(&key);
        }
        while let Some(id) = self.stale_holds.pop_first() {
            self.settle_hold(id);
        }
        while let Some(key) = self.stale_shares.pop_first() {
            self.settle_share(&key);
        }
        self.settle_mix();
    }

    fn settle_pool(&mut self, key: &PoolKey) {
        self.touch_power(key);
        self.stale_holds.extend(self.ledger.holds(key));
        let Some(record) = self.pools.get(key) else { return };
        if record.slices.is_empty() {
            let ix = record.ix;
            let old = self.snapshot.pool(ix).map(|state| state.pool.clone());
            self.note_vanished(key, old.as_deref(), None);
            self.link(key, pools::Scopes::default());
            self.pools.remove(key);
            self.set_pool(ix, None);
            if self.snapshot.power.wide.contains_key(&ix) {
                Arc::make_mut(&mut self.snapshot.power.wide).remove(&ix);
            }
            self.free_pools.push(ix);
            self.pool_gone(key);
            self.cast_shadows(key, old.as_deref());
            return;
        }
        let (ix, snapshot) = (record.ix, &self.snapshot);
        let rules: Vec<&TaintRule> = self.taint_rules.values().filter(|r| pools::is_about(r, key)).collect();
        let (mut fresh, scopes) = pools::assemble(key, &record.slices, &rules, |device, scope| {
            let node = match scope {
                NodeScope::Node(name) => snapshot.node_named(name),
                _ => None,
            };
            let none = Labels::default();
            let (labels, annotations) = node.map_or((&none, &none), |n| (&n.node.labels, &n.node.annotations));
            self.classifier.classify(&key.driver, device, labels, annotations)
        });
        if scopes != record.scopes {
            self.link(key, scopes);
        }
        let old = self.snapshot.pool(ix).map(|state| state.pool.clone());
        if old.as_ref().is_none_or(|old| !pools::same(old, &fresh)) {
            fresh.cuts = self.cut_shapes.cuts(&fresh);
            self.note_vanished(key, old.as_deref(), Some(&fresh));
            fresh.shadows = self.shadows_in(key, &fresh);
            self.set_pool(ix, Some(PoolState::untouched(Arc::new(fresh))));
            self.stale_states.insert(key.clone());
            // What its cards are joined by may be another matter now.
            self.stale_nodes
                .extend(self.pools.get(key).into_iter().flat_map(|r| r.scopes.local()).cloned());
            self.loosened = true;
            self.cast_shadows(key, old.as_deref());
        }
    }

    fn settle_state(&mut self, key: &PoolKey) {
        self.touch_power(key);
        // A pool that is not published has no state; what is held of it waits in the ledger.
        let Some((ix, old)) = self
            .pools
            .get(key)
            .and_then(|r| Some((r.ix, self.snapshot.pool(r.ix)?)))
        else {
            return self.forget_vanished(key);
        };
        let pool = old.pool.clone();
        let beside = self.uses_beside(key, &pool);
        let beside = beside.iter().map(|(holder, uses)| (holder, uses));
        let new = usage::counted(pool.clone(), self.ledger.uses(key).chain(beside));
        if **old != new {
            self.loosened |= usage::freed(old, &new);
            self.set_pool(ix, Some(new));
        }
        self.settle_lost(key, &pool);
    }

    fn settle_node(&mut self, name: &Name) {
        let Some((ix, entry)) = self
            .snapshot
            .node_ix(name)
            .and_then(|ix| Some((ix, self.snapshot.node(ix)?)))
        else {
            return;
        };
        let mut visible: Vec<Visible> = vec![];
        let local = self.local.get(name).into_iter().flatten();
        let mut keys: Vec<&PoolKey> = local.chain(&self.wide).collect();
        keys.sort();
        keys.dedup();
        for key in keys {
            let Some(record) = self.pools.get(key) else { continue };
            if let Some((devices, health)) = record.scopes.visible(&entry.node) {
                // Whatever the pool's own health is, or becomes: both are in the way.
                let health = match health {
                    None | Some(PoolHealth::Complete) => {
                        self.closed(key, &entry.node).or_else(|| self.lost(key)).or(health)
                    }
                    own => own,
                };
                visible.push(Visible {
                    pool: record.ix,
                    devices,
                    health,
                });
            }
        }
        let states: Vec<_> = visible
            .iter()
            .filter_map(|v| Some((&**self.snapshot.pool(v.pool)?, v)))
            .collect();
        let wiring = match states.len() == visible.len() {
            true => self.shapes.wiring(&entry.node, &states),
            // Positions in it are positions among the node's pools.
            false => None,
        };
        if entry.pools != visible || entry.wiring.as_deref() != wiring.as_ref() {
            let entry = NodeEntry {
                pools: visible,
                wiring: wiring.map(Arc::new),
                ..(**entry).clone()
            };
            self.set_node(ix, entry);
            self.loosened = true;
        }
    }

    /// Gives the pool other scopes, and marks every node that sees it differently now.
    fn link(&mut self, key: &PoolKey, scopes: pools::Scopes) {
        let Some(record) = self.pools.get_mut(key) else { return };
        let old = std::mem::replace(&mut record.scopes, scopes);
        for name in old.local() {
            self.stale_nodes.insert(name.clone());
            if let Some(keys) = self.local.get_mut(name) {
                keys.remove(key);
                if keys.is_empty() {
                    self.local.remove(name);
                }
            }
        }
        for name in record.scopes.local() {
            self.stale_nodes.insert(name.clone());
            self.local.entry(name.clone()).or_default().insert(key.clone());
        }
        if old.wide() || record.scopes.wide() {
            let names = self.snapshot.nodes().map(|(_, n)| n.node.name.clone());
            self.stale_nodes.extend(names);
        }
        if record.scopes.wide() {
            self.wide.insert(key.clone());
        } else {
            self.wide.remove(key);
        }
    }

    pub(super) fn set_pool(&mut self, ix: PoolIx, state: Option<PoolState>) {
        self.snapshot.pools.put(ix.0, state.map(Arc::new));
        self.changed = true;
    }

    pub(super) fn set_node(&mut self, ix: NodeIx, entry: NodeEntry) {
        self.snapshot.nodes.put(ix.0, Some(Arc::new(entry)));
        self.changed = true;
    }
}

/// Puts it at its position, growing the list to it.
pub(super) fn put<T: Clone>(list: &mut Vec<Option<T>>, ix: u32, value: Option<T>) {
    let ix = ix as usize;
    if list.len() <= ix {
        list.resize(ix + 1, None);
    }
    list[ix] = value;
}
