//! Partitions that extended resources name: in which words, from which class, and who serves them in a cluster.
//!
//! Admission claims by it, and the audit tells by it whose a pod is that admission never saw: the two must not differ.

use super::Policy;
use crate::model::Name;
use crate::snapshot::Snapshot;

/// Device plugins write `1g.10gb.me` for `1g.10gb+me`, since names of resources have no `+`.
pub fn spelled(profile: &str) -> Name {
    match profile.split_once("gb.") {
        Some((size, rest)) => format!("{size}gb+{rest}").into(),
        None => profile.into(),
    }
}

/// The cards and the profile that an extended resource names: `nvidia.com/mig-3g.40gb`, `amd.com/cpx_nps4`.
pub fn named_by(resource: &str) -> Option<(&'static str, Name)> {
    if let Some(profile) = resource.strip_prefix("nvidia.com/mig-") {
        return Some(("nvidia.com/gpu", spelled(profile)));
    }
    let (compute, memory) = resource.strip_prefix("amd.com/")?.split_once("_nps")?;
    let modes = ["spx", "dpx", "tpx", "qpx", "cpx"];
    let legal = modes.contains(&compute) && matches!(memory.as_bytes(), [b'1'..=b'8']);
    legal.then(|| ("amd.com/gpu", format!("{compute}_nps{memory}").into()))
}

/// Who serves a resource that names a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server<'a> {
    /// It is claimed from the class.
    Class(&'a Name),
    /// The class that policy has for it, if any, is not there: the request stays for the device plugin.
    NoClass(Option<&'a Name>),
    /// No driver publishes such a device, and nodes have it from the plugin: they have not moved to a driver yet.
    Plugin,
    /// Neither.
    Nobody,
}

impl<'a> Server<'a> {
    pub fn of(snapshot: &Snapshot, policy: &'a Policy, resource: &str, (cards, profile): (&str, &Name)) -> Self {
        let class = policy.partition_class(resource, cards);
        let Some(class) = class.filter(|class| snapshot.classes.contains_key(*class)) else {
            return Self::NoClass(class);
        };
        let mut pools = snapshot.pools.iter().flatten().map(|state| &state.pool);
        let offered = pools.any(|pool| {
            let mut kinds = pool.summary().kinds.iter();
            kinds.any(|k| k.profile.as_ref() == Some(profile)) && snapshot.may_hold(cards, Some(class), &pool.driver)
        });
        if offered {
            return Self::Class(class);
        }
        let on = |name: &Name| &**name == resource;
        match snapshot.nodes().any(|(_, n)| n.node.extended_resources.iter().any(on)) {
            true => Self::Plugin,
            false => Self::Nobody,
        }
    }
}

impl Policy {
    /// The DeviceClass of partitions that are asked for under the resource: the one for that very resource, where it
    /// names a profile, else the one for partitions of its cards.
    pub fn partition_class(&self, resource: &str, cards: &str) -> Option<&Name> {
        let own = self.defaults.device_classes.get(resource).filter(|_| resource != cards);
        own.or_else(|| self.defaults.partition_classes.get(cards))
    }
}
