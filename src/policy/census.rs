//! What the rules of a policy are about in a cluster: devices by class, namespaces by rule.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use super::failing::{Failing, Seen};
use super::{Policy, PolicyClassifier};
use crate::model::{Classifier, Labels, Name, NodeScope, WattOrigin};
use crate::snapshot::Snapshot;

/// One class, of the policy or derived from a product.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassReport {
    pub name: Name,
    /// Of the policy, else what the devices are known to draw. None: not known.
    pub watts: Option<u32>,
    /// Where the watts of its devices come from: `measured`, `policy`, `table`, `unknown`; several where they differ.
    #[serde(rename = "wattsFrom")]
    pub watts_from: BTreeSet<&'static str>,
    /// Watts measured on devices of the class that are not the class's own.
    #[serde(skip)]
    pub(super) measured: BTreeSet<u32>,
    /// `policy`, or `derived` from the product name.
    pub source: &'static str,
    /// None: no cluster was given.
    pub devices: Option<usize>,
}

impl ClassReport {
    fn new(name: Name, source: &'static str, devices: Option<usize>) -> Self {
        Self {
            name,
            watts: None,
            watts_from: BTreeSet::new(),
            measured: BTreeSet::new(),
            source,
            devices,
        }
    }
}

/// One rule for namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceReport {
    #[serde(rename = "match")]
    pub matches: BTreeMap<Name, Name>,
    pub default_class: Option<Name>,
    /// None: every class.
    pub allowed_classes: Option<Vec<Name>>,
    pub max_gpus_per_pod: Option<u32>,
    /// How its pods may share a device, in words. None: they may not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sharing: Option<String>,
    /// Namespaces for which it is the first that matches, opted in or not. None: no cluster was given.
    pub namespaces: Option<usize>,
}

/// What there is, by the rules of a policy.
pub struct Census {
    /// The policy's classes in its order, then the derived ones by name.
    pub classes: Vec<ClassReport>,
    /// In the order of the policy.
    pub namespaces: Vec<NamespaceReport>,
    /// Classes whose `match` failed on devices.
    pub(super) failed: BTreeMap<Name, Failing>,
}

impl Census {
    /// Classifies every device anew: the snapshot may still have the classes of another policy.
    pub fn of(policy: &Arc<Policy>, snapshot: Option<&Snapshot>) -> Self {
        let mut census = Self {
            classes: vec![],
            namespaces: namespaces(policy, snapshot),
            failed: BTreeMap::new(),
        };
        for class in &policy.classes {
            let mut report = ClassReport::new(class.name.clone(), "policy", snapshot.map(|_| 0));
            report.watts = class.watts;
            census.classes.push(report);
        }
        if let Some(snapshot) = snapshot {
            let classifier = PolicyClassifier::quiet(policy.clone());
            census.count(&classifier, snapshot);
            let failing = |(name, n): (&Name, u64)| (name.clone(), Failing::of(policy, name, n, devices(snapshot)));
            census.failed = classifier.errors().map(failing).collect();
        }
        census
    }

    fn count(&mut self, classifier: &PolicyClassifier, snapshot: &Snapshot) {
        let mut derived: BTreeMap<Name, ClassReport> = BTreeMap::new();
        for seen in devices(snapshot) {
            let found = classifier.classify(&seen.pool.driver, seen.device, &seen.labels, &seen.annotations);
            let Some(name) = found.class else { continue };
            let class = match self.classes.iter_mut().find(|c| c.name == name) {
                Some(class) => class,
                None => derived
                    .entry(name.clone())
                    .or_insert_with(|| ClassReport::new(name, "derived", Some(0))),
            };
            class.watts = class.watts.or(found.watts);
            class.watts_from.insert(found.origin.as_str());
            if found.origin == WattOrigin::Measured && found.watts != class.watts {
                class.measured.extend(found.watts);
            }
            class.devices = class.devices.map(|n| n + 1);
        }
        self.classes.extend(derived.into_values());
    }
}

fn devices(snapshot: &Snapshot) -> impl Iterator<Item = Seen<'_>> {
    let pools = snapshot.pools.iter().flatten().map(|state| &*state.pool);
    let devices = pools.flat_map(|pool| pool.devices.iter().map(move |device| (pool, device)));
    devices.map(|(pool, device)| {
        let node = match &device.scope {
            NodeScope::Node(name) => snapshot.node_named(name).map(|entry| &entry.node),
            _ => None,
        };
        let labels = |of: fn(&crate::model::Node) -> &Labels| node.map(|n| of(n).clone()).unwrap_or_default();
        Seen {
            pool,
            device: &device.device,
            labels: labels(|n| &n.labels),
            annotations: labels(|n| &n.annotations),
        }
    })
}

fn namespaces(policy: &Policy, snapshot: Option<&Snapshot>) -> Vec<NamespaceReport> {
    let report = |rule: &super::NamespaceRule| NamespaceReport {
        matches: rule.matches.clone(),
        default_class: rule.default_class.clone(),
        allowed_classes: rule.allowed_classes.clone(),
        max_gpus_per_pod: rule.max_gpus_per_pod,
        sharing: rule.sharing.as_ref().map(super::Sharing::words),
        namespaces: snapshot.map(|s| {
            let all = s.namespaces.iter();
            let first = all.filter_map(|(_, n)| policy.namespace_rule(&n.labels));
            first.filter(|first| std::ptr::eq(*first, rule)).count()
        }),
    };
    policy.namespaces.iter().map(report).collect()
}
