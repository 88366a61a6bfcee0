//! From chosen devices to allocations as the API wants them: results, configuration, node selector, share ids.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::demand::{Alternative, ClaimDemand, Demand, NewClaim};
use super::offer::Candidate;
use super::search::Choice;
use super::solve::found;
use super::view::{Dev, View};
use super::{ClaimPlacement, Context, Cost, Placement};
use crate::model::{
    AllocatedConfig, Allocation, ConfigSource, DeviceId, DeviceResult, Name, NodeScope, NodeSelector, NodeSelectorTerm,
    Refusal,
};
use crate::snapshot::NodeEntry;

/// The chosen devices, in the order of requests, with the alternative they serve.
pub(super) fn devices<'v>(view: &'v View<'_>, choice: &'v Choice) -> impl Iterator<Item = (&'v Alternative, DeviceId)> {
    picked(view, choice).map(|(_, alternative, dev, _)| (alternative, id(view, dev)))
}

fn picked<'v, 'a>(
    view: &'v View<'a>,
    choice: &'v Choice,
) -> impl Iterator<Item = (usize, &'a Alternative, &'v Dev<'a>, &'v Candidate)> {
    let requests = view.requests.iter().zip(choice.offers.iter().zip(&choice.picks));
    requests.flat_map(move |(request, (offer, picks))| {
        let offer = &request.offers[*offer];
        picks.iter().map(move |pick| {
            let candidate = &offer.candidates[*pick];
            (
                request.claim,
                offer.alternative,
                &view.devices[candidate.dev],
                candidate,
            )
        })
    })
}

fn id(view: &View<'_>, dev: &Dev<'_>) -> DeviceId {
    let pool = &view.pools[dev.pool].pool;
    DeviceId {
        driver: pool.driver.clone(),
        pool: pool.name.clone(),
        device: dev.info.device.name.clone(),
    }
}

pub(super) fn placement(
    ctx: Context<'_>,
    demand: &Demand,
    node: &NodeEntry,
    view: &View<'_>,
    choice: &Choice,
    cut: bool,
) -> Result<Placement, Refusal> {
    let mut tally = Tally::default();
    for result in demand.existing().flat_map(|a| &a.results).filter(|r| !r.admin_access) {
        // A device that is not published any more has no class we could know.
        if let Some((_, state, at)) = found(ctx, node, &result.id) {
            let classified = &state.pool.devices[at].classified;
            tally.add(classified.class.as_ref(), classified.watts);
        }
    }
    for (_, alternative, dev, _) in picked(view, choice) {
        if !alternative.request.admin_access {
            tally.add(dev.info.classified.class.as_ref(), dev.watts);
        }
    }
    let mut new = 0;
    let mut claims = vec![];
    for claim in &demand.claims {
        claims.push(match claim {
            ClaimDemand::Existing(held) => ClaimPlacement {
                claim: held.claim.clone(),
                allocation: held.allocation.clone(),
                existing: true,
                slots: demand.slots(&held.claim),
            },
            ClaimDemand::New(claim) => {
                let allocation = allocation(demand, claim, new, node, view, choice);
                new += 1;
                ClaimPlacement {
                    claim: claim.claim.clone(),
                    allocation: Arc::new(allocation),
                    existing: false,
                    slots: demand.slots(&claim.claim),
                }
            }
        });
    }
    let class = match tally.classes.as_slice() {
        [one] => Some(one.clone()),
        _ => None,
    };
    Ok(Placement {
        claims,
        cost: Cost {
            links: choice.key.cost,
            lost: choice.key.big + choice.key.pairs,
        },
        class,
        watts: tally.watts,
        unknown_watts: tally.unknown,
        cut,
    })
}

#[derive(Default)]
struct Tally {
    classes: Vec<Name>,
    watts: u32,
    unknown: u32,
}

impl Tally {
    fn add(&mut self, class: Option<&Name>, watts: Option<u32>) {
        self.classes
            .extend(class.filter(|c| !self.classes.contains(c)).cloned());
        match watts {
            Some(watts) => self.watts = self.watts.saturating_add(watts),
            None => self.unknown += 1,
        }
    }
}

fn allocation(
    demand: &Demand,
    claim: &NewClaim,
    position: usize,
    node: &NodeEntry,
    view: &View<'_>,
    choice: &Choice,
) -> Allocation {
    let mine: Vec<_> = picked(view, choice).filter(|(of, ..)| *of == position).collect();
    let result = |(i, (_, alternative, dev, candidate)): (usize, &(usize, &Alternative, &Dev<'_>, &Candidate))| {
        let device = &dev.info.device;
        let wanted = &alternative.request;
        // For admin access too, as in-tree: the driver is told what it is about to look at; nobody counts it.
        let share = candidate.takes.as_ref();
        let capacities = device.capacity.iter().map(|(name, capacity)| capacity.spelled(name));
        DeviceResult {
            request: alternative.name.clone(),
            id: id(view, dev),
            admin_access: wanted.admin_access,
            tolerations: wanted.tolerations.clone(),
            binding_conditions: device.binding_conditions.to_vec(),
            binding_failure_conditions: device.binding_failure_conditions.to_vec(),
            share_id: share.map(|_| share_id(&demand.pod_uid, &claim.claim.uid, i)),
            consumed_capacity: share
                .map(|takes| capacities.zip(takes.iter().copied()).collect())
                .unwrap_or_default(),
        }
    };
    Allocation {
        results: mine.iter().enumerate().map(result).collect(),
        config: config(claim, mine.iter().map(|(_, alternative, ..)| *alternative)),
        node_selector: node_selector(node, mine.iter().map(|(_, _, dev, _)| *dev)).map(Arc::new),
    }
}

/// The configuration of each class once, with the requests it covers, in the order of requests; then the claim's own,
/// as far as it speaks of a request that was served.
fn config<'a>(claim: &NewClaim, served: impl Iterator<Item = &'a Alternative>) -> Vec<AllocatedConfig> {
    let mut alternatives: Vec<&Alternative> = vec![];
    for alternative in served {
        if !alternatives.iter().any(|a| a.name == alternative.name) {
            alternatives.push(alternative);
        }
    }
    let mut config = vec![];
    for (i, first) in alternatives.iter().enumerate() {
        let class = &first.class;
        if alternatives[..i].iter().any(|a| a.class.name == class.name) {
            continue;
        }
        let requests: Vec<Name> = alternatives
            .iter()
            .filter(|a| a.class.name == class.name)
            .map(|a| a.name.clone())
            .collect();
        config.extend(class.config.iter().map(|(driver, parameters)| AllocatedConfig {
            source: ConfigSource::FromClass,
            requests: requests.clone(),
            driver: driver.clone(),
            parameters: parameters.clone(),
        }));
    }
    let own = claim.claim.spec.config.iter();
    let own = own.filter(|c| alternatives.iter().any(|a| a.is_named_by(&c.requests)));
    config.extend(own.map(|c| AllocatedConfig {
        source: ConfigSource::FromClaim,
        requests: c.requests.clone(),
        driver: c.driver.clone(),
        parameters: c.parameters.clone(),
    }));
    config
}

/// The node, when a device is local to it; else everything the devices' selectors demand together; else none.
fn node_selector<'a>(node: &NodeEntry, devices: impl Iterator<Item = &'a Dev<'a>>) -> Option<NodeSelector> {
    let mut merged = NodeSelectorTerm::default();
    let mut selected = false;
    for dev in devices {
        match &dev.info.scope {
            NodeScope::All if !dev.info.device.binds_to_node => {}
            NodeScope::Selector(selector) if !dev.info.device.binds_to_node => {
                selected = true;
                // The API takes exactly one term in a slice's selector.
                for term in &selector.terms {
                    let new = |have: &[_], r: &&_| !have.contains(*r);
                    let expressions: Vec<_> = term
                        .expressions
                        .iter()
                        .filter(|r| new(&merged.expressions, r))
                        .cloned()
                        .collect();
                    let fields: Vec<_> = term.fields.iter().filter(|r| new(&merged.fields, r)).cloned().collect();
                    merged.expressions.extend(expressions);
                    merged.fields.extend(fields);
                }
            }
            // Local, bound to it, or of a scope that should not have been chosen: the narrowest answer.
            _ => return Some(NodeSelector::for_node(&node.node.name)),
        }
    }
    selected.then(|| NodeSelector { terms: vec![merged] })
}

/// A UUID (version 8: made of what it names). The same placement computed twice has the same ids, and no two shares
/// of one device can have the same: pod, claim and position together are unique.
fn share_id(pod: &Name, claim: &Name, position: usize) -> Name {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, pod, claim, position).hash(&mut hasher);
        hasher.finish()
    };
    let (a, b) = (half(1), half(2));
    let text = format!(
        "{:08x}-{:04x}-8{:03x}-{:04x}-{:012x}",
        a >> 32,
        (a >> 16) & 0xffff,
        a & 0x0fff,
        0x8000 | (b >> 50),
        b & 0xffff_ffff_ffff
    );
    text.into()
}
