//! What is legal in a policy and probably not meant: names that the cluster does not have, rules that are never reached,
//! sizes that do nothing. `wattlane check` prints them, the service logs them.

mod power;

use std::collections::BTreeSet;

use super::census::Census;
use super::{Defaults, Policy, PolicyError, SHARING_DRIVER, Strategy};
use crate::model::{Name, Quantity};
use crate::snapshot::Snapshot;

/// Names offered where one is missing.
const MOST_OFFERED: usize = 8;
/// What a container has without a policy.
const USUAL_SHM: i64 = 64 << 20;
/// More than the memory of a node, so probably a slip of the unit.
const HUGE_SHM: i64 = 4 << 40;

struct Doubts(Vec<PolicyError>);

impl Doubts {
    fn say(&mut self, path: impl Into<String>, message: impl Into<String>) {
        let (path, message) = (path.into(), message.into());
        self.0.push(PolicyError { path, message });
    }
}

/// Everything doubtful in a policy, and, where a cluster is given, in what it says about that.
pub fn doubts(policy: &Policy, census: &Census, snapshot: Option<&Snapshot>) -> Vec<PolicyError> {
    let mut doubts = Doubts(vec![]);
    unreached(&mut doubts, policy);
    sizes(&mut doubts, policy);
    if let Some(snapshot) = snapshot {
        classes(&mut doubts, policy, census);
        runtimes(&mut doubts, policy, snapshot);
        device_classes(&mut doubts, policy, snapshot);
        for_nobody(&mut doubts, policy, snapshot);
        demand_mix(&mut doubts, policy, snapshot);
        power::doubts(&mut doubts, policy, snapshot);
    }
    sharing(&mut doubts, policy, census, snapshot);
    doubts.0
}

/// As far as it can be decided: a rule asks for all labels that an earlier one asks for, and perhaps for more; a class has
/// the text of an earlier one, or comes after one for all devices.
fn unreached(doubts: &mut Doubts, policy: &Policy) {
    for (j, class) in policy.classes.iter().enumerate() {
        let text = class.selector.text();
        let takes_all = |earlier: &str| earlier == "true" || earlier == text;
        if let Some(i) = policy.classes[..j].iter().position(|c| takes_all(c.selector.text())) {
            doubts.say(
                format!("classes[{j}]"),
                format!("is never reached: classes[{i}] comes first and matches all that it does"),
            );
        }
    }
    for (j, rule) in policy.namespaces.iter().enumerate() {
        let covers = |earlier: &super::NamespaceRule| {
            let mut labels = earlier.matches.iter();
            labels.all(|(key, value)| rule.matches.get(key) == Some(value))
        };
        if let Some(i) = policy.namespaces[..j].iter().position(covers) {
            doubts.say(
                format!("namespaces[{j}]"),
                format!("is never reached: namespaces[{i}] comes first and matches all that it does"),
            );
        }
    }
}

/// The patches of the policy with their paths.
fn patches(policy: &Policy) -> impl Iterator<Item = (String, &super::PodPatch)> {
    let classes = policy.classes.iter().enumerate();
    let namespaces = policy.namespaces.iter().enumerate();
    classes
        .map(|(i, c)| (format!("classes[{i}].patch"), &c.patch))
        .chain(namespaces.map(|(i, n)| (format!("namespaces[{i}].patch"), &n.patch)))
}

fn sizes(doubts: &mut Doubts, policy: &Policy) {
    for (path, patch) in patches(policy) {
        let size = patch.shared_memory.as_ref();
        let Some(size) = size.and_then(|s| Some((s, s.parse::<Quantity>().ok()?))) else {
            continue;
        };
        let why = match size {
            (_, bytes) if bytes.as_integer().is_none() && !bytes.is_capped() => "is no whole number of bytes",
            (_, bytes) if bytes <= Quantity::from_integer(USUAL_SHM) => {
                "is not more than the 64Mi that a container has anyway; is a unit like Gi missing?"
            }
            (_, bytes) if bytes > Quantity::from_integer(HUGE_SHM) => "is more than the memory of a node",
            _ => continue,
        };
        doubts.say(format!("{path}.sharedMemory"), format!("{} {why}", size.0));
    }
}

fn classes(doubts: &mut Doubts, policy: &Policy, census: &Census) {
    for (i, class) in policy.classes.iter().enumerate() {
        if let Some(failing) = census.failed.get(&class.name) {
            doubts.say(format!("classes[{i}].match"), failing.words());
        }
        let Some(report) = census.classes.iter().find(|c| c.name == class.name) else {
            continue;
        };
        for watts in &report.measured {
            doubts.say(
                format!("classes[{i}].watts"),
                format!(
                    "some devices of class {} are limited to {watts} W, as measured on their nodes",
                    class.name
                ),
            );
        }
        if report.devices == Some(0) {
            doubts.say(
                format!("classes[{i}]"),
                format!("no device of this cluster is of class {}", class.name),
            );
        }
    }
    let known: BTreeSet<&Name> = census.classes.iter().map(|c| &c.name).collect();
    for (i, rule) in policy.namespaces.iter().enumerate() {
        let allowed = rule.allowed_classes.iter().flatten();
        let named: BTreeSet<&Name> = rule.default_class.iter().chain(allowed).collect();
        for class in named.difference(&known) {
            doubts.say(
                format!("namespaces[{i}]"),
                format!("no device of this cluster is of class {class}"),
            );
        }
    }
}

/// Names there are, for somebody who wrote another. `nothing`: what is said where there is no such thing at all.
fn offer<'a>(names: impl Iterator<Item = &'a Name>, nothing: &str) -> String {
    let mut names: Vec<&str> = names.map(|n| &**n).collect();
    names.sort_unstable();
    let more = names.len().saturating_sub(MOST_OFFERED);
    names.truncate(MOST_OFFERED);
    match (names.as_slice(), more) {
        ([], _) => nothing.to_owned(),
        (_, 0) => format!("there is {}", names.join(", ")),
        _ => format!("there is {} and {more} more", names.join(", ")),
    }
}

fn runtimes(doubts: &mut Doubts, policy: &Policy, snapshot: &Snapshot) {
    let defaults = policy.defaults.runtime_classes.iter();
    let defaults = defaults.map(|(resource, name)| {
        let path = match policy.defaults.one_runtime.contains(resource) {
            true => "defaults.runtimeClassName".to_owned(),
            false => format!("defaults.runtimeClassNames[{:?}]", &**resource),
        };
        (path, name, format!("pods with {resource}"))
    });
    let patches = patches(policy).filter_map(|(at, patch)| {
        let name = patch.runtime_class_name.as_ref()?;
        Some((format!("{at}.runtimeClassName"), name, "its pods".to_owned()))
    });
    for (path, name, pods) in defaults.chain(patches) {
        if !snapshot.runtime_classes.contains_key(name) {
            let there = offer(snapshot.runtime_classes.iter().map(|(name, ())| name), "");
            let what = match snapshot.runtime_classes.is_empty() {
                // So are files in which nobody wrote them down.
                true => format!(
                    "no RuntimeClass is known here: if the cluster has no {name}, {pods} are refused by its API server"
                ),
                false => format!("this cluster has no RuntimeClass {name}, so {pods} are refused; {there}"),
            };
            doubts.say(path, what);
        }
    }
}

/// A misspelt label restricts nobody. Where no namespace is known nothing can be said.
fn for_nobody(doubts: &mut Doubts, policy: &Policy, snapshot: &Snapshot) {
    for (i, rule) in policy.namespaces.iter().enumerate() {
        let mut namespaces = snapshot.namespaces.iter().map(|(_, namespace)| &namespace.labels);
        let has_all = |labels: &crate::model::Labels| rule.matches.iter().all(|(k, v)| labels.get(k) == Some(v));
        if snapshot.namespaces.is_empty() || namespaces.any(has_all) {
            continue;
        }
        let wanted: Vec<String> = rule.matches.iter().map(|(k, v)| format!("{k}={v}")).collect();
        doubts.say(
            format!("namespaces[{i}].match"),
            format!("no namespace of this cluster has {}", wanted.join(" and ")),
        );
    }
}

/// A weight for what nobody can ask for moves nothing.
fn demand_mix(doubts: &mut Doubts, policy: &Policy, snapshot: &Snapshot) {
    let pools = snapshot.pools.iter().flatten().map(|state| &state.pool);
    let shapes = pools
        .clone()
        .flat_map(|pool| &pool.cuts.cards)
        .flat_map(|card| card.shape.profiles());
    let plain = pools
        .flat_map(|pool| &pool.summary().kinds)
        .filter_map(|kind| kind.profile.as_ref());
    let known: BTreeSet<&Name> = shapes.chain(plain).collect();
    for (profile, _) in policy.placement.demand_mix.iter().filter(|(p, _)| !known.contains(p)) {
        let there = offer(
            known.iter().copied(),
            "it has no partitions, and no driver that cuts cards",
        );
        doubts.say(
            format!("placement.demandMix[{:?}]", &**profile),
            format!("no device of this cluster is a {profile}; {there}"),
        );
    }
}

/// Of the pairs that are there without a policy nothing is said: a cluster need not have cards of both vendors.
fn device_classes(doubts: &mut Doubts, policy: &Policy, snapshot: &Snapshot) {
    let usual = Defaults::default().device_classes;
    for (resource, class) in &policy.defaults.device_classes {
        if usual.get(resource) == Some(class) || snapshot.classes.contains_key(class) {
            continue;
        }
        let instead = match snapshot.class_for(resource, Some(class)) {
            Some(other) => format!("{}, which says it serves {resource}, is used instead", other.name),
            None => {
                let there = offer(
                    snapshot.classes.iter().map(|(name, _)| name),
                    "it has no DeviceClass at all",
                );
                format!("{resource} is left to the device plugin; {there}")
            }
        };
        doubts.say(
            format!("defaults.deviceClasses[{:?}]", &**resource),
            format!("this cluster has no DeviceClass {class}: {instead}"),
        );
    }
    let usual = Defaults::default().partition_classes;
    for (resource, class) in &policy.defaults.partition_classes {
        if usual.get(resource) != Some(class) && !snapshot.classes.contains_key(class) {
            let there = offer(
                snapshot.classes.iter().map(|(name, _)| name),
                "it has no DeviceClass at all",
            );
            doubts.say(
                format!("defaults.partitionClasses[{:?}]", &**resource),
                format!("this cluster has no DeviceClass {class}: partitions of {resource} are not claimed; {there}"),
            );
        }
    }
}

/// A slot that nobody can take, or that promises what nobody keeps.
fn sharing(doubts: &mut Doubts, policy: &Policy, census: &Census, snapshot: Option<&Snapshot>) {
    let rules = policy.namespaces.iter().enumerate();
    for (i, sharing) in rules.filter_map(|(i, rule)| Some((i, rule.sharing.as_ref()?))) {
        let at = format!("namespaces[{i}].sharing");
        if sharing.memory_per_slot.is_some() && sharing.strategy != Strategy::Mps {
            doubts.say(
                format!("{at}.memoryPerSlot"),
                "time-slicing limits no memory: it counts on devices with consumable capacity only",
            );
        }
        let Some(snapshot) = snapshot else { continue };
        if let Some(class) = &sharing.class
            && !census.classes.iter().any(|c| c.name == *class && c.devices != Some(0))
        {
            doubts.say(
                format!("{at}.class"),
                format!("no device of this cluster is of class {class}"),
            );
        }
        let pools = || snapshot.pools.iter().flatten().map(|state| &state.pool);
        // Of any class: the snapshot may still have those of another policy.
        let pools_of_driver = pools().filter(|pool| &*pool.driver == SHARING_DRIVER);
        let kinds = pools_of_driver.flat_map(|pool| &pool.summary().kinds);
        let cards = kinds.filter(|k| !k.partition).filter_map(|k| k.memory);
        if let (Some(promised), Some(largest)) = (sharing.promised().map(Quantity::from_integer), cards.max())
            && promised > largest
        {
            doubts.say(
                format!("{at}.memoryPerSlot"),
                format!(
                    "{} slots of {} are more than the {largest} bytes of the largest card: pods that ask for a slot are refused",
                    sharing.slots,
                    sharing.memory_per_slot.as_deref().unwrap_or_default()
                ),
            );
        }
        let shareable =
            pools().any(|pool| &*pool.driver == SHARING_DRIVER || pool.devices.iter().any(|d| d.device.is_shared()));
        // As admission asks it.
        let claimed = |(resource, class): (&Name, &Name)| {
            let class = snapshot.class_for(resource, Some(class));
            class.is_some_and(|class| snapshot.may_hold(resource, Some(&class.name), SHARING_DRIVER))
        };
        if !policy.defaults.device_classes.iter().any(claimed) {
            doubts.say(
                at.as_str(),
                format!(
                    "this cluster has no DeviceClass to claim a device of {SHARING_DRIVER} from, the driver with a sharing \
                     configuration: pods that ask for a slot are refused unless their devices have consumable capacity"
                ),
            );
        } else if !shareable {
            doubts.say(
                at,
                format!(
                    "no driver of this cluster can share a device: {SHARING_DRIVER} publishes none, and no other device has \
                     consumable capacity"
                ),
            );
        }
    }
}
