//! From asks to claims of the pod: who gets a claim of its own, and who shares.
//!
//! Containers that run side by side (sidecars and ordinary ones) each have a claim for each ask, so that nobody sees
//! another's devices. An init container runs alone before the ordinary ones and gives its devices back to the pod when
//! it ends, so it uses the claim of an ordinary container, or of an earlier init container, that holds exactly as many
//! devices of the same DeviceClass; where there is none it has its own. Nobody gets fewer, or other, devices than asked.

use std::collections::BTreeSet;

use super::ask::Ask;
use super::pod::{Phase, Pod};
use super::template::Template;

/// A claim the pod gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    /// The pod's own name for it.
    pub(super) name: String,
    pub(super) template: Template,
}

/// Which claim serves which ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) claims: Vec<Claim>,
    /// Positions in `claims` with the ask they serve, in the order of the asks.
    pub(super) served: Vec<(usize, Ask)>,
}

impl Plan {
    /// Devices in all claims.
    pub(super) fn devices(&self) -> u32 {
        self.claims.iter().fold(0, |n, c| n.saturating_add(c.template.count))
    }
}

/// Asks without a DeviceClass are not planned.
pub(super) fn plan(pod: Pod<'_>, asks: &[Ask]) -> Plan {
    let mut plan = Plan::default();
    let wanted = |ask: &Ask| {
        Some(Template {
            device_class: ask.device_class.clone()?,
            count: ask.count,
        })
    };
    let mut templates: Vec<(Phase, Template)> = vec![];
    let mut serves: Vec<Option<usize>> = vec![None; asks.len()];
    // Those who may lend first, those who may borrow afterwards.
    let alone = |ask: &Ask| ask.phase == Phase::Init;
    let order = (0..asks.len())
        .filter(|i| !alone(&asks[*i]))
        .chain((0..asks.len()).filter(|i| alone(&asks[*i])));
    for i in order {
        let ask = &asks[i];
        let Some(template) = wanted(ask) else {
            continue;
        };
        let used_here: BTreeSet<usize> = (0..asks.len())
            .filter(|j| (asks[*j].list, asks[*j].at) == (ask.list, ask.at))
            .filter_map(|j| serves[j])
            .collect();
        let lender = templates.iter().enumerate().position(|(claim, (owner, t))| {
            alone(ask) && *owner != Phase::Sidecar && *t == template && !used_here.contains(&claim)
        });
        serves[i] = Some(lender.unwrap_or_else(|| {
            templates.push((ask.phase, template));
            templates.len() - 1
        }));
    }
    // Numbered in the order in which the manifest first uses them.
    let mut position: Vec<Option<usize>> = vec![None; templates.len()];
    let mut names = fresh_names(pod);
    for (ask, claim) in asks.iter().zip(serves).filter_map(|(a, s)| Some((a, s?))) {
        let at = *position[claim].get_or_insert_with(|| {
            plan.claims.push(Claim {
                name: names.next().unwrap_or_default(),
                template: templates[claim].1.clone(),
            });
            plan.claims.len() - 1
        });
        plan.served.push((at, ask.clone()));
    }
    plan
}

/// `wl-gpu-0`, `wl-gpu-1`, … without those the pod uses already.
fn fresh_names(pod: Pod<'_>) -> impl Iterator<Item = String> {
    let taken: BTreeSet<String> = pod
        .spec_list("resourceClaims")
        .iter()
        .filter_map(|c| c["name"].as_str().map(str::to_owned))
        .collect();
    (0_u32..)
        .map(|n| format!("wl-gpu-{n}"))
        .filter(move |name| !taken.contains(name))
}
