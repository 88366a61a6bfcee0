//! Pods that name one group: where its members run or are sent to, what they hold, and how far a node is from them.

use std::collections::HashMap;

use super::Context;
use super::solve::found;
use crate::model::{Name, NamespacedName, Node, Pod};

pub(super) use crate::model::GROUP;

/// Members that are looked at: one request does not pay for a group of any size.
const MEMBERS: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Group {
    /// Members that have a node, or are sent to one.
    placed: u32,
    /// How many are on each node.
    nodes: HashMap<Name, u32>,
    /// By label of `Rules::nearness`: how many have each value.
    labels: Vec<(Name, HashMap<Name, u32>)>,
    /// The one wattage class of what they hold. None: nothing yet, or several.
    pub(super) class: Option<Name>,
}

impl Group {
    /// None: the pod names none.
    pub(super) fn of(ctx: Context<'_>, pod: &Pod) -> Option<Self> {
        let key = NamespacedName::new(pod.key.namespace.clone(), pod.annotation(GROUP)?);
        let mut group = Self {
            labels: ctx.rules.nearness.iter().map(|l| (l.clone(), HashMap::new())).collect(),
            ..Self::default()
        };
        let mut classes: Vec<&Name> = vec![];
        let members = ctx
            .snapshot
            .groups
            .get(&key)
            .into_iter()
            .flat_map(|members| members.iter());
        for member in members.filter(|m| **m != pod.key).take(MEMBERS) {
            let Some(member) = ctx.snapshot.pods.get(member).filter(|m| !m.finished && !m.deleting) else {
                continue;
            };
            // One that is on its way to a node is as good as there: members come one right after the other.
            let hold = ctx.snapshot.hold_of(member).filter(|_| member.node_name.is_empty());
            let node = hold.map_or(&member.node_name, |hold| &hold.node);
            let Some(entry) = ctx.snapshot.node_named(node) else {
                continue;
            };
            group.add(&entry.node);
            let mut see = |id| {
                if let Some((_, state, at)) = found(ctx, entry, id) {
                    let class = state.pool.devices[at].classified.class.as_ref();
                    classes.extend(class.filter(|c| !classes.contains(c)));
                }
            };
            hold.iter().flat_map(|hold| &hold.devices).for_each(&mut see);
            for claim in member.claims.iter().filter_map(|c| c.claim_name()) {
                let found = ctx.snapshot.claim(&member.claim_key(claim));
                let allocation = found.and_then(|c| c.allocation.as_ref());
                let held = allocation
                    .into_iter()
                    .flat_map(|a| &a.results)
                    .filter(|r| !r.admin_access);
                held.for_each(|r| see(&r.id));
            }
        }
        if let [one] = classes.as_slice() {
            group.class = Some((*one).clone());
        }
        Some(group)
    }

    fn add(&mut self, node: &Node) {
        self.placed += 1;
        *self.nodes.entry(node.name.clone()).or_default() += 1;
        for (label, values) in &mut self.labels {
            if let Some(value) = node.labels.get(label) {
                *values.entry(value.clone()).or_default() += 1;
            }
        }
    }

    /// For each member one for every level (node, then each label) it does not share with the node: 0 is the node all of
    /// them are on.
    pub(super) fn distance(&self, node: &Node) -> u32 {
        let here = self.nodes.get(&node.name).copied().unwrap_or(0);
        self.labels.iter().fold(self.placed - here, |sum, (label, values)| {
            let near = node.labels.get(label).and_then(|v| values.get(v)).copied().unwrap_or(0);
            // On the same node they are at the same place, labelled or not.
            sum + self.placed - near.max(here)
        })
    }
}
