//! The names of a snapshot's nodes, in one piece of memory and in order: requests name nodes by the thousand, and each
//! would otherwise be three pointers away.

use super::{NodeIx, Snapshot};

#[derive(Debug, Default)]
pub struct Names {
    /// All names, one behind the other, in order.
    text: String,
    /// Where each ends in `text`.
    ends: Vec<u32>,
    /// By position in the order.
    nodes: Vec<NodeIx>,
    /// Position in the order and one more, from where the hash points on; 0: free. A power of two, at most half full.
    table: Vec<u32>,
    /// By position: which one was asked for after it the last time. Callers come back with the same order, or nearly.
    next: Vec<u32>,
}

impl Names {
    /// More than four thousand million bytes of names do not go in: then there are none.
    pub fn of(snapshot: &Snapshot) -> Self {
        let mut all: Vec<(&str, NodeIx)> = snapshot.nodes().map(|(ix, n)| (&*n.node.name, ix)).collect();
        all.sort_unstable();
        let mut names = Self::default();
        let bytes: usize = all.iter().map(|(name, _)| name.len()).sum();
        if u32::try_from(bytes).is_err() {
            return names;
        }
        names.text.reserve(bytes);
        names.table = vec![0; (all.len() * 2).next_power_of_two()];
        let mask = names.table.len() - 1;
        for (position, (name, ix)) in (0..).zip(all) {
            names.text.push_str(name);
            names.ends.push(u32::try_from(names.text.len()).unwrap_or(u32::MAX));
            names.nodes.push(ix);
            names.next.push(position + 1);
            let mut slot = hash(name.as_bytes()) & mask;
            while names.table[slot] != 0 {
                slot = (slot + 1) & mask;
            }
            names.table[slot] = position + 1;
        }
        names
    }

    /// For the names of one request, one after the other.
    pub fn walk(&mut self) -> Walk<'_> {
        Walk {
            names: self,
            last: None,
        }
    }

    /// The position of a name in the order of names. `last`: the one found before it in this request.
    fn find(&mut self, name: &[u8], last: Option<u32>) -> Option<u32> {
        let guess = match last {
            Some(last) => *self.next.get(last as usize)?,
            None => 0,
        };
        if self.is(guess, name) {
            return Some(guess);
        }
        let mask = self.table.len().checked_sub(1)?;
        let mut slot = hash(name) & mask;
        // Ends: half of the slots are free.
        while let Some(position) = self.table[slot].checked_sub(1) {
            if self.is(position, name) {
                if let Some(last) = last {
                    self.next[last as usize] = position;
                }
                return Some(position);
            }
            slot = (slot + 1) & mask;
        }
        None
    }

    fn is(&self, position: u32, name: &[u8]) -> bool {
        let at = position as usize;
        let Some(end) = self.ends.get(at) else { return false };
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.text.as_bytes()[start as usize..*end as usize] == *name
    }
}

/// See `Names::walk`.
#[derive(Debug)]
pub struct Walk<'a> {
    names: &'a mut Names,
    last: Option<u32>,
}

impl Walk<'_> {
    /// The node of that name, and its place in the order of all names. None: there is none.
    #[inline]
    pub fn find(&mut self, name: &[u8]) -> Option<(u32, NodeIx)> {
        let position = self.names.find(name, self.last)?;
        self.last = Some(position);
        Some((position, *self.names.nodes.get(position as usize)?))
    }
}

/// Not for names that an enemy chooses: those of nodes are an administrator's, and the scheduler asks for them.
fn hash(name: &[u8]) -> usize {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut words = name.chunks_exact(8);
    let step = |hash: u64, word: u64| (hash.rotate_left(5) ^ word).wrapping_mul(ODD);
    let whole = words.by_ref().fold(name.len() as u64, |hash, word| {
        step(hash, word.try_into().map_or(0, u64::from_le_bytes))
    });
    let rest = words
        .remainder()
        .iter()
        .fold(0, |rest, byte| rest << 8 | u64::from(*byte));
    let hash = step(whole, rest);
    (hash ^ hash >> 32) as usize
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::model::Node;
    use crate::snapshot::NodeEntry;

    fn snapshot(names: &[String]) -> Snapshot {
        let entry = |name: &String| {
            Arc::new(NodeEntry {
                node: Arc::new(Node {
                    name: name.as_str().into(),
                    uid: "".into(),
                    labels: Arc::default(),
                    annotations: Arc::default(),
                    extended_resources: vec![],
                    allocatable: None,
                    unschedulable: false,
                    taints: vec![],
                }),
                pools: vec![],
                wiring: None,
                domains: Arc::new([]),
            })
        };
        // Every other position is free.
        let nodes = names.iter().flat_map(|name| [None, Some(entry(name))]);
        Snapshot {
            nodes: nodes.collect(),
            ..Snapshot::default()
        }
    }

    proptest! {
        #[test]
        fn each_name_is_found_wherever_it_is_asked_for(
            names in proptest::collection::btree_set("[a-c]{0,12}|node-[0-9]{1,3}", 0..60),
            asked in proptest::collection::vec((any::<prop::sample::Index>(), "[a-c]{0,3}"), 0..200),
        ) {
            let order: Vec<String> = names.into_iter().collect();
            let snapshot = snapshot(&order);
            let mut found = Names::of(&snapshot);
            let mut walk = found.walk();
            for (index, other) in asked {
                let wanted = if order.is_empty() { &other } else { index.get(&order) };
                for name in [wanted, &other] {
                    let seen = walk.find(name.as_bytes());
                    prop_assert_eq!(seen.map(|(place, _)| place as usize), order.iter().position(|n| n == name));
                    let node = seen.and_then(|(_, ix)| snapshot.node(ix));
                    prop_assert_eq!(node.map(|n| &*n.node.name), seen.map(|_| name.as_str()));
                }
            }
        }
    }
}
