//! CPU and memory that pods leave on their nodes, and how often what is asked for: what placement prefers by. Of a pod that has nothing
//! to do with devices its node and what it asks for are kept, and nothing else.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::{Index, Key, NodeIx, PoolKey};
use crate::model::{Claim, Count, DeviceResult, Name, Pod, RequestKind, Room};
use crate::snapshot::mix::{Ask, CARD, Mix, thousandths};

/// The mix is counted anew when so many pods came or went, and as many as a part of those it was counted from.
const FEW: usize = 8;
const PART: usize = 4;

#[derive(Default)]
pub(super) struct Rooms {
    /// Of pods that hold something of their node.
    pods: HashMap<Key, (Name, Room)>,
    /// By node, in thousandths of a core and MiB.
    spent: HashMap<Name, (u64, u64)>,
    /// Pods of which the mix may know nothing.
    changes: usize,
    counted: usize,
}

impl Rooms {
    pub(super) fn pods(&self) -> impl Iterator<Item = &Key> {
        self.pods.keys()
    }
}

impl Index {
    /// The pod has become `now`. None: it is gone.
    pub(super) fn room_of_pod(&mut self, key: &Key, now: Option<&Pod>) {
        let holds = now.filter(|p| p.holds());
        let old = self.rooms.pods.get(key);
        let same = match (old, holds) {
            (Some((node, room)), Some(pod)) => *node == pod.node_name && *room == pod.room,
            (None, None) => true,
            _ => false,
        };
        if same {
            return;
        }
        if let Some((node, room)) = self.rooms.pods.remove(key) {
            if let Some((cpu, memory)) = self.rooms.spent.get_mut(&node) {
                *cpu = cpu.saturating_sub(u64::from(room.cpu));
                *memory = memory.saturating_sub(u64::from(room.memory));
            }
            self.settle_room(&node);
        }
        if let Some(pod) = holds {
            let (cpu, memory) = self.rooms.spent.entry(pod.node_name.clone()).or_default();
            *cpu += u64::from(pod.room.cpu);
            *memory += u64::from(pod.room.memory);
            self.rooms.pods.insert(key.clone(), (pod.node_name.clone(), pod.room));
            self.settle_room(&pod.node_name);
        }
        let known = self.snapshot.pods.get(key).map(|old| &**old);
        let devices = now.or(known).is_some_and(|p| !p.claims.is_empty());
        self.rooms.changes += usize::from(devices);
    }

    /// The node came, changed, or has other pods.
    pub(super) fn settle_room(&mut self, name: &Name) {
        let spent = self.rooms.spent.get(name).copied().unwrap_or_default();
        // Names of nodes come and go for ever.
        if spent == (0, 0) {
            self.rooms.spent.remove(name);
        }
        let Some(ix) = self.snapshot.node_ix(name) else {
            return;
        };
        let left = |all: u32, spent: u64| u32::try_from(u64::from(all).saturating_sub(spent)).unwrap_or(0);
        let all = self.snapshot.node(ix).and_then(|n| n.node.allocatable);
        let room = all.map(|all| Room {
            cpu: left(all.cpu, spent.0),
            memory: left(all.memory, spent.1),
        });
        self.set_room(ix, room);
    }

    pub(super) fn set_room(&mut self, ix: NodeIx, room: Option<Room>) {
        if self.snapshot.rooms.get(ix.0).copied() == room {
            return;
        }
        self.snapshot.rooms.put(ix.0, room);
        self.changed = true;
    }

    /// Counts the mix anew where it has become another.
    pub(super) fn settle_mix(&mut self) {
        if self.rooms.changes < FEW.max(self.rooms.counted / PART) {
            return;
        }
        let mut counts: BTreeMap<Ask, u32> = BTreeMap::new();
        let mut counted = 0;
        let pods = self.snapshot.pods.iter().map(|(_, pod)| pod);
        for ask in pods.filter_map(|pod| self.ask_of(pod)) {
            *counts.entry(ask).or_default() += 1;
            counted += 1;
        }
        (self.rooms.changes, self.rooms.counted) = (0, counted);
        let mix = Mix::of(&counts);
        if *self.snapshot.mix != mix {
            self.snapshot.mix = Arc::new(mix);
            self.changed = true;
        }
    }

    /// What it has of cards. Of those that wait only what several whole cards are wanted for: that cannot be a part, and it is
    /// what waits longest. None: nothing, partitions, or a claim that it shares with others.
    fn ask_of(&self, pod: &Pod) -> Option<Ask> {
        if pod.finished {
            return None;
        }
        let mut ask = Ask {
            cards: 0,
            milli: 0,
            room: pod.room,
        };
        for name in pod.claims.iter().filter_map(|c| c.claim_name()) {
            let claim = self.snapshot.claims.get(&pod.claim_key(name))?;
            match &claim.allocation {
                Some(allocation) if claim.share().is_none() => {
                    for result in allocation.results.iter().filter(|r| !r.admin_access) {
                        let Some(milli) = self.part_of(result)? else { continue };
                        ask.cards += 1;
                        ask.milli = ask.milli.max(milli);
                    }
                }
                Some(_) => return None,
                None => {
                    let cards = several(claim)?;
                    (ask.cards, ask.milli) = (ask.cards.saturating_add(cards), CARD);
                }
            }
        }
        (ask.cards > 0).then_some(ask)
    }

    /// What it is of a card, in thousandths; none: it is no card. None: it is a partition, or not published.
    #[allow(clippy::option_option, reason = "the doc comment says which is which")]
    fn part_of(&self, result: &DeviceResult) -> Option<Option<u16>> {
        let ix = self.pools.get(&PoolKey::of(&result.id))?.ix;
        let pool = &self.snapshot.pool(ix)?.pool;
        let found = pool.devices.get(*pool.by_name.get(&result.id.device)? as usize)?;
        if found.classified.class.is_none() {
            return Some(None);
        }
        if !found.device.consumes.is_empty() || found.device.is_partition() {
            return None;
        }
        if result.share_id.is_none() {
            return Some(Some(CARD));
        }
        let parts = found.device.capacity.iter().filter_map(|(name, capacity)| {
            let taken = result.consumed_capacity.iter().find(|(n, _)| n.name == name.name)?;
            let (taken, all) = (taken.1.nanos(), capacity.value.nanos());
            Some(CARD - thousandths(all.saturating_sub(taken), all))
        });
        Some(Some(parts.max().unwrap_or(CARD).clamp(1, CARD)))
    }
}

/// Whole cards of a claim that asks for several at once.
fn several(claim: &Claim) -> Option<u16> {
    let [request] = claim.spec.requests.as_slice() else {
        return None;
    };
    let RequestKind::Exactly(wanted) = &request.kind else {
        return None;
    };
    match wanted.count {
        Count::Exactly(n @ 2..) if wanted.capacity.is_empty() && !wanted.admin_access => u16::try_from(n).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::index::{Change, Kind};
    use crate::model::Unclassified;

    /// As with an autoscaler: a node, its pods, its pods gone, the node gone; or the node first.
    #[test]
    fn nothing_is_kept_of_nodes_that_came_and_went() {
        let mut index = Index::new(Arc::new(Unclassified));
        let object = |value| crate::convert::object(&value).expect("readable").expect("known");
        for i in 0..20 {
            let name = format!("n{i}");
            let meta = json!({"name": name, "namespace": "ns", "uid": name});
            let spec = json!({"nodeName": name, "containers": [{"name": "c", "resources": {"requests": {"cpu": 1}}}]});
            index.apply(Change::Upsert(object(
                json!({"apiVersion": "v1", "kind": "Node", "metadata": meta,
                "status": {"allocatable": {"cpu": 4, "memory": "1Gi"}}}),
            )));
            index.apply(Change::Upsert(object(
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}),
            )));
            assert_eq!(index.rooms.spent.len(), 1);
            let mut gone = [
                Change::Remove(Kind::Pod, Key::new("ns", name.as_str())),
                Change::Remove(Kind::Node, Key::new("", name.as_str())),
            ];
            gone.rotate_left(i % 2);
            gone.into_iter().for_each(|change| index.apply(change));
            index.publish();
            assert_eq!((index.rooms.spent.len(), index.rooms.pods.len()), (0, 0), "{i}");
        }
    }
}
