//! Taking objects in and out, kind by kind: each compares with what was there, and marks what else it touches.

use std::collections::{BTreeMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use super::ledger::Holder;
use super::{Change, Index, Key, Kind, NodeIx, Object, PoolIx, PoolKey, pools};
use crate::model::{Claim, Name, NamespacedName, Node, Pod, Slice, TaintRule};
use crate::snapshot::{NodeEntry, ShardMap};

impl Index {
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Upsert(Object::Claim(claim)) => {
                let old = self.snapshot.claims.get(&claim.key);
                if old.is_none_or(|old| !is_older(&claim, old)) {
                    self.upsert(Object::Claim(claim));
                }
            }
            Change::Upsert(object) => self.upsert(object),
            Change::Remove(kind, key) => self.remove(kind, &key),
            Change::Reset(kind, objects) => {
                let listed: HashSet<Key> = objects.iter().map(Object::key).collect();
                let unread = self.unread.keys(kind);
                for key in self.keys(kind).into_iter().chain(unread) {
                    if !listed.contains(&key) {
                        self.remove(kind, &key);
                    }
                }
                for object in objects.into_iter().filter(|o| o.kind() == kind) {
                    self.upsert(object);
                }
            }
        }
    }

    fn upsert(&mut self, object: Object) {
        if !matches!(object, Object::Unreadable(_)) {
            self.read_again(object.kind(), &object.key());
        }
        let snapshot = &mut self.snapshot;
        let changed = match object {
            Object::Node(node) => return self.upsert_node(node),
            Object::Slice(slice) => return self.upsert_slice(slice),
            Object::Claim(claim) => return self.upsert_claim(claim),
            Object::Pod(pod) => {
                self.room_of_pod(&pod.key, Some(&pod));
                return self.set_pod(&pod.key.clone(), Some(pod).filter(Pod::matters));
            }
            Object::Namespace(o) => insert(&mut snapshot.namespaces, o.name.clone(), o),
            Object::Template(o) => insert(&mut snapshot.templates, o.key.clone(), o),
            Object::Class(o) => {
                let changed = insert(&mut snapshot.classes, o.name.clone(), o);
                self.loosened |= changed;
                if changed {
                    self.touch_holders();
                }
                changed
            }
            Object::TaintRule(rule) => return self.set_taint_rule(&rule.name.clone(), Some(rule)),
            Object::RuntimeClass(name) => snapshot.runtime_classes.insert(name, ()).is_none(),
            Object::Unreadable(object) => return self.set_unread(object),
        };
        self.changed |= changed;
    }

    pub(super) fn remove(&mut self, kind: Kind, key: &Key) {
        self.read_again(kind, key);
        let snapshot = &mut self.snapshot;
        let changed = match kind {
            Kind::Node => return self.remove_node(&key.name),
            Kind::Slice => return self.remove_slice(&key.name),
            Kind::Claim => return self.remove_claim(key),
            Kind::Pod => {
                self.room_of_pod(key, None);
                return self.set_pod(key, None);
            }
            Kind::Namespace => snapshot.namespaces.remove(&key.name).is_some(),
            Kind::Template => snapshot.templates.remove(key).is_some(),
            Kind::Class => {
                let changed = snapshot.classes.remove(&key.name).is_some();
                if changed {
                    self.touch_holders();
                }
                changed
            }
            Kind::RuntimeClass => snapshot.runtime_classes.remove(&key.name).is_some(),
            Kind::TaintRule => return self.set_taint_rule(&key.name, None),
        };
        self.changed |= changed;
    }

    fn set_pod(&mut self, key: &Key, pod: Option<Pod>) {
        let before = self.snapshot.pods.get(key).cloned();
        self.note_holder(key, before.as_deref(), pod.as_ref());
        self.shares_of_pod(key, before.as_deref(), pod.as_ref());
        let group = |pod: Option<&Pod>| {
            let name = pod?.annotation(crate::model::GROUP)?;
            Some(NamespacedName::new(key.namespace.clone(), name))
        };
        self.hold_of_pod(key, pod.as_ref());
        let (pods, groups) = (&mut self.snapshot.pods, &mut self.snapshot.groups);
        let (old, new) = (group(pods.get(key).map(|p| &**p)), group(pod.as_ref()));
        if old != new {
            let mut edit = |group: Option<NamespacedName>, join: bool| {
                let Some(group) = group else { return };
                let mut members = groups.get(&group).map_or_else(Vec::new, |m| (**m).clone());
                match (members.binary_search(key), join) {
                    (Err(at), true) => members.insert(at, key.clone()),
                    (Ok(at), false) => drop(members.remove(at)),
                    _ => {}
                }
                match members.is_empty() {
                    true => drop(groups.remove(&group)),
                    false => drop(groups.insert(group, Arc::new(members))),
                }
            };
            edit(old, false);
            edit(new, true);
        }
        self.changed |= match pod {
            Some(pod) => insert(pods, key.clone(), pod),
            None => pods.remove(key).is_some(),
        };
    }

    fn keys(&self, kind: Kind) -> Vec<Key> {
        let cluster = |name: &Name| Key::new("", name.clone());
        let s = &self.snapshot;
        match kind {
            Kind::Node => s.node_index.iter().map(|(k, _)| cluster(k)).collect(),
            Kind::Slice => self.slice_pools.keys().map(cluster).collect(),
            Kind::Claim => s.claims.iter().map(|(k, _)| k.clone()).collect(),
            Kind::Pod => {
                let others = self.rooms.pods().filter(|k| s.pods.get(*k).is_none());
                s.pods.iter().map(|(k, _)| k).chain(others).cloned().collect()
            }
            Kind::Namespace => s.namespaces.iter().map(|(k, _)| cluster(k)).collect(),
            Kind::Template => s.templates.iter().map(|(k, _)| k.clone()).collect(),
            Kind::Class => s.classes.iter().map(|(k, _)| cluster(k)).collect(),
            Kind::RuntimeClass => s.runtime_classes.iter().map(|(k, ())| cluster(k)).collect(),
            Kind::TaintRule => self.taint_rules.keys().map(cluster).collect(),
        }
    }

    fn upsert_node(&mut self, node: Node) {
        let name = node.name.clone();
        let (ix, old) = match self.snapshot.node_ix(&name).map(|ix| (ix, self.snapshot.node(ix))) {
            Some((_, Some(old))) if *old.node == node => return,
            Some((ix, old)) => (ix, old.cloned()),
            None => {
                let next = self.snapshot.nodes.len();
                let next = NodeIx(u32::try_from(next).expect("fewer than 2^32 nodes"));
                (self.free_nodes.pop().unwrap_or(next), None)
            }
        };
        let domains = self.enter_node(&node.labels);
        let left = old.iter().flat_map(|o| o.domains.iter());
        left.for_each(|old| self.leave(*old));
        let entry = NodeEntry {
            node: Arc::new(node),
            pools: old.as_ref().map_or_else(Vec::new, |o| o.pools.clone()),
            wiring: old.and_then(|o| o.wiring.clone()),
            domains,
        };
        self.set_node(ix, entry);
        self.snapshot.node_index.insert(name.clone(), ix);
        self.settle_room(&name);
        self.loosened = true;
        self.touch_node(name);
    }

    fn remove_node(&mut self, name: &Name) {
        let Some(ix) = self.snapshot.node_index.remove(name) else {
            return;
        };
        let left = self.snapshot.node(ix).map(|n| n.domains.clone());
        left.iter().flat_map(|l| l.iter()).for_each(|old| self.leave(*old));
        self.snapshot.nodes.put(ix.0, None);
        self.set_room(ix, None);
        self.free_nodes.push(ix);
        self.changed = true;
        self.touch_node(name.clone());
    }

    /// Labels decide what a node sees and how its devices are classed.
    fn touch_node(&mut self, name: Name) {
        if let Some(local) = self.local.get(&name) {
            self.stale_pools.extend(local.iter().cloned());
        }
        self.touch_power_of(&name);
        self.touch_reach(&name);
        self.stale_nodes.insert(name);
    }

    fn upsert_slice(&mut self, slice: Slice) {
        let key = PoolKey {
            driver: slice.driver.clone(),
            name: slice.pool.clone(),
        };
        match self.slice_pools.get(&slice.name) {
            Some(pool) if *pool != key => self.remove_slice(&slice.name.clone()),
            Some(pool) => {
                let old = self.pools.get(pool).and_then(|r| r.slices.get(&slice.name));
                if old.is_some_and(|old| **old == slice) {
                    return;
                }
            }
            None => {}
        }
        self.slice_pools.insert(slice.name.clone(), key.clone());
        if !self.pools.contains_key(&key) {
            let ix = self.free_pools.pop().unwrap_or_else(|| {
                self.pool_slots += 1;
                PoolIx(self.pool_slots - 1)
            });
            let record = pools::Record {
                ix,
                slices: BTreeMap::new(),
                scopes: pools::Scopes::default(),
            };
            self.pools.insert(key.clone(), record);
        }
        if let Some(record) = self.pools.get_mut(&key) {
            record.slices.insert(slice.name.clone(), Arc::new(slice));
        }
        self.stale_pools.insert(key);
    }

    fn remove_slice(&mut self, name: &Name) {
        let Some(key) = self.slice_pools.remove(name) else {
            return;
        };
        if let Some(record) = self.pools.get_mut(&key) {
            record.slices.remove(name);
        }
        self.stale_pools.insert(key);
    }

    /// Pools that the rule speaks of, or spoke of, are assembled again.
    fn set_taint_rule(&mut self, name: &Name, rule: Option<TaintRule>) {
        let old = self.taint_rules.remove(name);
        if old != rule {
            let all = self.pools.keys();
            let touched = all.filter(|key| old.iter().chain(&rule).any(|r| pools::is_about(r, key)));
            self.stale_pools.extend(touched.cloned());
        }
        if let Some(rule) = rule {
            self.taint_rules.insert(name.clone(), rule);
        }
    }

    fn upsert_claim(&mut self, claim: Claim) {
        let key = claim.key.clone();
        let old = self.snapshot.claims.get(&key).cloned();
        if old.as_ref().is_some_and(|old| **old == claim) {
            return;
        }
        let (was, is) = (
            old.as_ref().and_then(|o| o.allocation.as_ref()),
            claim.allocation.as_ref(),
        );
        if was != is {
            self.recount(&key, old.as_deref(), Some(&claim));
        }
        // Pods that share a claim can be where it now has its devices, and may have fitted nowhere before.
        self.loosened |= was.is_none() && is.is_some() && claim.owner_pod.is_none();
        // And so can those whose claim was bound to a device that is gone.
        self.loosened |= was.is_some() && is.is_none();
        // A pod that was refused because a device failed can try again.
        self.loosened |= old.as_ref().is_some_and(|old| old.conditions != claim.conditions);
        // A slot is free.
        let left = |old: &Arc<Claim>| old.reserved_for.iter().any(|c| !claim.reserved_for.contains(c));
        self.loosened |= claim.share().is_some() && old.as_ref().is_some_and(left);
        self.confirm(&key, Some(&claim));
        self.hold_of_claim(&key, Some(&claim));
        self.confirm_slots(&key, Some(&claim));
        self.snapshot.claims.insert(key, Arc::new(claim));
        self.changed = true;
    }

    fn remove_claim(&mut self, key: &Key) {
        let Some(old) = self.snapshot.claims.remove(key) else {
            return;
        };
        self.recount(key, Some(&old), None);
        self.confirm(key, None);
        self.hold_of_claim(key, None);
        self.confirm_slots(key, None);
        self.changed = true;
    }

    /// Moves the ledger from what the claim held to what it holds.
    fn recount(&mut self, key: &Key, old: Option<&Claim>, new: Option<&Claim>) {
        let holder = Holder::Claim(key.clone());
        if let Some(was) = old.and_then(|o| o.allocation.as_ref()) {
            self.stale_states.extend(self.ledger.drop(&holder, &was.results));
        }
        if let Some(is) = new.and_then(|n| n.allocation.as_ref()) {
            self.stale_states.extend(self.ledger.put(&holder, &is.results));
        }
    }
}

/// Returns whether that changed anything.
fn insert<K: Hash + Eq + Clone, V: PartialEq>(map: &mut ShardMap<K, Arc<V>>, key: K, value: V) -> bool {
    if map.get(&key).is_some_and(|old| **old == value) {
        return false;
    }
    map.insert(key, Arc::new(value));
    true
}

/// An event that was overtaken: what a bind wrote may reach us by two ways. (A relist is taken as it
/// is, or a restored cluster would never be believed.)
fn is_older(new: &Claim, old: &Claim) -> bool {
    let number = |c: &Claim| c.resource_version.parse::<u64>().ok();
    new.uid == old.uid && number(new).zip(number(old)).is_some_and(|(new, old)| new < old)
}
