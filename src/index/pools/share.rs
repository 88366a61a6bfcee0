//! A pool that is incomplete, or lists a device twice, as one node sees it: its own slices may be whole and consistent.
//!
//! As in-tree: the slices that reach the node, if they are as many as the pool should have, else all of them; and device
//! names must be unique among those that reach the node. Not as in-tree, which may take an old generation for the pool
//! that way: only the newest is ever looked at.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use super::{counter_fault, reaches};
use crate::model::{Bits, Name, Node, NodeScope, Slice};
use crate::snapshot::{Pool, PoolHealth};

#[derive(Debug, PartialEq)]
pub(super) struct Parts {
    slices: Vec<Part>,
    /// Of the devices, by position in the pool.
    names: Vec<Name>,
}

#[derive(Debug, PartialEq)]
struct Part {
    scope: NodeScope,
    devices: Range<usize>,
    /// Counters count for every node.
    counters: bool,
    /// How many slices it says the pool has.
    count: i64,
}

impl Parts {
    /// None: nobody may use any part of the pool. So it is where counters do not add up, or where devices of one name
    /// are more than present or absent, since what is held of them could not be told apart.
    pub(super) fn of(pool: &Pool, slices: &[&Arc<Slice>]) -> Option<Self> {
        let twice = |i: usize| {
            pool.by_name
                .get(&pool.devices[i].device.name)
                .is_none_or(|first| *first as usize != i)
        };
        let doubles: HashSet<&Name> = (0..pool.devices.len())
            .filter(|i| twice(*i))
            .map(|i| &pool.devices[i].device.name)
            .collect();
        let plain = |d: &crate::model::Device| !d.allow_multiple && d.consumes.is_empty();
        let mut unclear = pool.devices.iter().filter(|d| doubles.contains(&d.device.name));
        if counter_fault(pool).is_some() || unclear.any(|d| !plain(&d.device)) {
            return None;
        }
        let mut at = 0;
        let parts = slices.iter().map(|slice| {
            let devices = at..at + slice.devices.len();
            at = devices.end;
            Part {
                scope: slice.nodes.clone(),
                devices,
                counters: !slice.counter_sets.is_empty(),
                count: slice.slice_count,
            }
        });
        Some(Self {
            slices: parts.collect(),
            names: pool.devices.iter().map(|d| d.device.name.clone()).collect(),
        })
    }

    /// None: as for everybody else. `seen`: the devices that reach the node.
    pub(super) fn health(&self, node: &Node, seen: &Bits) -> Option<PoolHealth> {
        let relevant = |part: &&Part| {
            part.counters || reaches(&part.scope, node) || part.devices.clone().any(|i| seen.contains(i))
        };
        let own: Vec<&Part> = self.slices.iter().filter(relevant).collect();
        let whole = |parts: &[&Part]| parts.iter().all(|p| usize::try_from(p.count) == Ok(parts.len()));
        let all: Vec<&Part> = self.slices.iter().collect();
        if !whole(&own) && !whole(&all) {
            return None;
        }
        let mut names = HashSet::new();
        let devices = own.iter().filter(|p| !p.counters).flat_map(|p| p.devices.clone());
        let mut twice = devices.map(|i| &self.names[i]).filter(|name| !names.insert(*name));
        Some(match twice.next() {
            Some(name) => PoolHealth::Invalid(format!("device {name} is listed twice").into()),
            None => PoolHealth::Complete,
        })
    }
}
