//! The wattage class of a pod: named by it, or by its namespace, and known to somebody.

use std::collections::BTreeSet;

use super::pod::Pod;
use super::refuse::{Refused, list, shown};
use super::{CLASS, wish};
use crate::model::Name;
use crate::model::alike::closest;
use crate::policy::{NamespaceRule, Policy};
use crate::snapshot::Snapshot;

/// The class the pod is to have, if any. `converted`: the pod's devices are claimed by us, so the namespace's default
/// applies. A pod that brings its own claims, or chooses cards in HAMi's words, gets the default only where the
/// namespace is restricted to some classes.
pub(super) fn choose(
    snapshot: &Snapshot,
    policy: &Policy,
    rule: Option<&NamespaceRule>,
    pod: Pod<'_>,
    converted: bool,
) -> Result<Option<Name>, Refused> {
    let restricted = rule.is_some_and(|r| r.allowed_classes.is_some());
    let default = rule
        .filter(|_| restricted || converted && !wish::chooses_cards(pod))
        .and_then(|r| r.default_class.clone());
    let Some(class) = pod.annotation(CLASS).map(Name::from).or(default) else {
        return Ok(None);
    };
    if let Some(rule) = rule.filter(|r| !r.allows(&class)) {
        let allowed = closest(rule.allowed_classes.clone().unwrap_or_default(), &class);
        return Err(Refused::new(
            403,
            format!(
                "{CLASS}: this namespace may not use {}; allowed here: {}",
                shown(&class),
                list(&allowed)
            ),
        ));
    }
    if is_known(snapshot, policy, &class) {
        return Ok(Some(class));
    }
    let known: Vec<Name> = known(snapshot, policy)
        .into_iter()
        .filter(|c| rule.is_none_or(|r| r.allows(c)))
        .collect();
    let offer = match known.as_slice() {
        [] => "no device of this cluster has a class".to_owned(),
        _ => format!("there is: {}", list(&closest(known, &class))),
    };
    Err(Refused::new(
        422,
        format!("{CLASS}: no device has the class {}; {offer}", shown(&class)),
    ))
}

/// The classes devices have.
fn of_devices(snapshot: &Snapshot) -> impl Iterator<Item = &Name> {
    let pools = snapshot.pools.iter().flatten();
    let devices = pools.flat_map(|p| &p.pool.devices);
    devices.filter_map(|d| d.classified.class.as_ref())
}

/// The operator's classes count even while no node has such a device: one may be on its way.
fn is_known(snapshot: &Snapshot, policy: &Policy, class: &Name) -> bool {
    policy.class(class).is_some() || of_devices(snapshot).any(|c| c == class)
}

fn known(snapshot: &Snapshot, policy: &Policy) -> BTreeSet<Name> {
    let classes = policy.classes.iter().map(|c| &c.name);
    classes.chain(of_devices(snapshot)).cloned().collect()
}
