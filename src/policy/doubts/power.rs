//! Power domains that no node is in, and budgets that let nothing be given. A slip here limits nothing, or everything,
//! without a word.

use std::collections::{BTreeMap, BTreeSet};

use super::{Doubts, offer};
use crate::model::alike::hint;
use crate::model::{Labels, Name};
use crate::policy::{Policy, PowerDomain};
use crate::snapshot::{NodeEntry, Snapshot};

/// Where no node is known nothing can be said.
pub(super) fn doubts(doubts: &mut Doubts, policy: &Policy, snapshot: &Snapshot) {
    let nodes: Vec<&NodeEntry> = snapshot.nodes().map(|(_, entry)| &**entry).collect();
    if nodes.is_empty() {
        return;
    }
    for (i, domain) in policy.power.iter().enumerate() {
        let label = &domain.label;
        let values: BTreeSet<&Name> = nodes.iter().filter_map(|n| n.node.labels.get(label)).collect();
        if values.is_empty() {
            let message = format!("no node of this cluster has the label {label}, so nothing is limited");
            doubts.say(format!("power[{i}].label"), message + &meant(&nodes, label));
            continue;
        }
        for value in domain.budgets.keys().filter(|value| !values.contains(value)) {
            let there = offer(values.iter().copied(), "");
            doubts.say(
                format!("power[{i}].budgets[{:?}]", &**value),
                format!("no node of this cluster has {label}={value}; {there}"),
            );
        }
        too_small(doubts, i, domain, &dearest(domain, &nodes, snapshot));
    }
}

fn meant(nodes: &[&NodeEntry], label: &str) -> String {
    let labels = nodes
        .iter()
        .map(|n| &n.node.labels)
        .flat_map(|labels: &Labels| labels.keys());
    let labels: BTreeSet<&str> = labels.map(|key| &**key).collect();
    hint(labels, label).unwrap_or_default()
}

/// What the card that draws most does, by the domain's value.
fn dearest<'s>(domain: &PowerDomain, nodes: &[&'s NodeEntry], snapshot: &'s Snapshot) -> BTreeMap<&'s Name, u32> {
    let mut dearest = BTreeMap::new();
    for entry in nodes {
        let Some(value) = entry.node.labels.get(&domain.label) else {
            continue;
        };
        for (state, visible) in snapshot.pools_of(entry) {
            let seen = (0..state.pool.devices.len()).filter(|device| visible.sees(*device));
            let watts = seen.filter_map(|device| state.pool.boards().board(device)?.1.watts());
            if let Some(watts) = watts.max() {
                let most = dearest.entry(value).or_insert(watts);
                *most = watts.max(*most);
            }
        }
    }
    dearest
}

/// 0 W is no slip: nothing is to be given there.
fn too_small(doubts: &mut Doubts, i: usize, domain: &PowerDomain, dearest: &BTreeMap<&Name, u32>) {
    // One budget for many domains is said once.
    let mut said = false;
    for (value, watts) in dearest {
        let own = domain.budgets.get(*value);
        let Some(budget) = own.copied().or(domain.budget) else {
            continue;
        };
        if budget == 0 || budget >= u64::from(*watts) || (own.is_none() && std::mem::replace(&mut said, true)) {
            continue;
        }
        let path = match own {
            Some(_) => format!("power[{i}].budgets[{:?}]", &***value),
            None => format!("power[{i}].budget"),
        };
        let label = &domain.label;
        let message = format!(
            "{budget} W are less than one card of {label}={value} draws ({watts} W), so such a card is never given; \
             is a unit like kW missing?"
        );
        doubts.say(path, message);
    }
}
