//! `wattlane check`: what is wrong with a policy, or what its classes match in a cluster.
//!
//! Works on text and a snapshot; reading files, loading the cluster and ending the process are the caller's.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::Arc;

use serde::Serialize;

use crate::model::{Budget, Classifier, Labels, Name, NodeScope, WattOrigin};
use crate::policy::{Policy, PolicyClassifier, PolicyError};
use crate::selector::Selectors;
use crate::snapshot::{Domain, Snapshot};

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
    measured: BTreeSet<u32>,
    /// `policy`, or `derived` from the product name.
    pub source: &'static str,
    /// None: no cluster was given.
    pub devices: Option<usize>,
}

/// One power domain of the policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainReport {
    pub label: Name,
    pub value: Name,
    /// Watts, as those below.
    pub budget: u64,
    pub used: u64,
    /// 0 where something of unknown watts is in use.
    pub left: u64,
    pub nodes: usize,
    /// What is in use there of unknown watts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<Name>,
}

/// The answer, in the field names of its JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    pub valid: bool,
    pub errors: Vec<PolicyError>,
    /// Not wrong, but probably not meant: a class that nothing matches, a name nobody has.
    pub warnings: Vec<PolicyError>,
    /// The policy's classes in its order, then the derived ones by name.
    pub classes: Vec<ClassReport>,
    /// Those with a budget that the policy names or a node of the cluster is in, by label and value.
    #[serde(rename = "powerDomains")]
    pub domains: Vec<DomainReport>,
}

/// Reads a policy as the service would, and counts what it matches where a cluster is given, whose power domains are to
/// be those of the policy.
pub fn check(text: &str, snapshot: Option<&Snapshot>) -> Report {
    let policy = match Policy::read(text, &Selectors::new()) {
        Ok(policy) => Arc::new(policy),
        Err(errors) => {
            return Report {
                valid: false,
                errors,
                warnings: vec![],
                classes: vec![],
                domains: vec![],
            };
        }
    };
    let mut classes: Vec<ClassReport> = policy
        .classes
        .iter()
        .map(|class| ClassReport {
            name: class.name.clone(),
            watts: class.watts,
            watts_from: BTreeSet::new(),
            measured: BTreeSet::new(),
            source: "policy",
            devices: snapshot.map(|_| 0),
        })
        .collect();
    let mut warnings = vec![];
    if let Some(snapshot) = snapshot {
        let classifier = PolicyClassifier::new(policy.clone());
        count(&classifier, snapshot, &mut classes);
        warnings = doubts(&policy, &classifier, &classes);
    }
    Report {
        valid: true,
        errors: vec![],
        warnings,
        classes,
        domains: snapshot.map(domains).unwrap_or_default(),
    }
}

pub(super) fn domains(snapshot: &Snapshot) -> Vec<DomainReport> {
    let nodes = |of: &Budget| {
        let domains = snapshot.nodes().flat_map(|(_, n)| n.domains.iter());
        domains
            .filter_map(|ix| snapshot.power.domain(*ix))
            .filter(|d| d.budget == of)
            .count()
    };
    let report = |domain: Domain<'_>| DomainReport {
        label: domain.budget.label.clone(),
        value: domain.budget.value.clone(),
        budget: domain.budget.watts,
        used: domain.used.watts,
        left: domain.left(),
        nodes: nodes(domain.budget),
        unknown: domain.used.unknown.clone(),
    };
    let mut domains: Vec<_> = snapshot.power.domains().map(report).collect();
    domains.sort_by(|a, b| (&a.label, &a.value).cmp(&(&b.label, &b.value)));
    domains
}

fn count(classifier: &PolicyClassifier, snapshot: &Snapshot, classes: &mut Vec<ClassReport>) {
    let mut derived: BTreeMap<Name, ClassReport> = BTreeMap::new();
    let none = Labels::default();
    for state in snapshot.pools.iter().flatten() {
        for device in &state.pool.devices {
            let node = match &device.scope {
                NodeScope::Node(name) => snapshot.node_named(name).map(|entry| &entry.node),
                _ => None,
            };
            let (labels, annotations) = node.map_or((&none, &none), |n| (&n.labels, &n.annotations));
            let found = classifier.classify(&state.pool.driver, &device.device, labels, annotations);
            let Some(name) = found.class else { continue };
            let class = match classes.iter_mut().find(|c| c.name == name) {
                Some(class) => class,
                None => derived.entry(name.clone()).or_insert(ClassReport {
                    name,
                    watts: None,
                    watts_from: BTreeSet::new(),
                    measured: BTreeSet::new(),
                    source: "derived",
                    devices: Some(0),
                }),
            };
            class.watts = class.watts.or(found.watts);
            class.watts_from.insert(found.origin.as_str());
            if found.origin == WattOrigin::Measured && found.watts != class.watts {
                class.measured.extend(found.watts);
            }
            class.devices = class.devices.map(|n| n + 1);
        }
    }
    classes.extend(derived.into_values());
}

fn doubts(policy: &Policy, classifier: &PolicyClassifier, classes: &[ClassReport]) -> Vec<PolicyError> {
    let mut doubts = vec![];
    let mut say = |path: String, message: String| doubts.push(PolicyError { path, message });
    let failed: BTreeMap<&Name, u64> = classifier.errors().collect();
    for (i, class) in policy.classes.iter().enumerate() {
        if let Some(n) = failed.get(&class.name) {
            let message =
                format!("fails on {n} devices, which therefore are not of this class: ask for the driver first");
            say(format!("classes[{i}].match"), message);
        }
        for watts in classes
            .iter()
            .filter(|c| c.name == class.name)
            .flat_map(|c| &c.measured)
        {
            say(
                format!("classes[{i}].watts"),
                format!(
                    "some devices of class {} are limited to {watts} W, as measured on their nodes",
                    class.name
                ),
            );
        }
        if classes.iter().any(|c| c.name == class.name && c.devices == Some(0)) {
            say(
                format!("classes[{i}]"),
                format!("no device of this cluster is of class {}", class.name),
            );
        }
    }
    let known: BTreeSet<&Name> = classes.iter().map(|c| &c.name).collect();
    for (i, rule) in policy.namespaces.iter().enumerate() {
        let allowed = rule.allowed_classes.iter().flatten();
        let named: BTreeSet<&Name> = rule.default_class.iter().chain(allowed).collect();
        for class in named.difference(&known) {
            say(
                format!("namespaces[{i}]"),
                format!("no device of this cluster is of class {class}"),
            );
        }
    }
    doubts
}

impl Report {
    /// 0 valid, 1 not. Input that cannot be read at all (2) is noticed by whoever reads it.
    pub fn exit_code(&self) -> u8 {
        u8::from(!self.valid)
    }

    /// One JSON document and a newline.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        writeln!(out)
    }

    /// For people.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        if !self.valid {
            writeln!(out, "not valid, and refused as a whole:")?;
        }
        for error in &self.errors {
            writeln!(out, "  {error}")?;
        }
        if self.valid {
            writeln!(out, "valid")?;
        }
        for warning in &self.warnings {
            writeln!(out, "  warning: {warning}")?;
        }
        if self.classes.is_empty() {
            return self.write_domains(out);
        }
        let width = self.classes.iter().map(|c| c.name.len()).max().unwrap_or(0).max(5);
        writeln!(
            out,
            "\n{:width$}  {:>7}  {:7}  DEVICES  WATTS FROM",
            "CLASS", "WATTS", "SOURCE"
        )?;
        for class in &self.classes {
            let watts = class.watts.map_or_else(|| "unknown".to_owned(), |w| w.to_string());
            let devices = class.devices.map_or_else(|| "-".to_owned(), |n| n.to_string());
            let from = class.watts_from.iter().copied().collect::<Vec<_>>().join(", ");
            let line = format!(
                "{:width$}  {watts:>7}  {:7}  {devices:7}  {from}",
                class.name, class.source
            );
            writeln!(out, "{}", line.trim_end())?;
        }
        self.write_domains(out)
    }

    fn write_domains(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.domains.is_empty() {
            return Ok(());
        }
        let name = |d: &DomainReport| format!("{}={}", d.label, d.value);
        let width = self.domains.iter().map(|d| name(d).len()).max().unwrap_or(0).max(12);
        writeln!(
            out,
            "\n{:width$}  {:>9}  {:>9}  {:>9}  NODES",
            "POWER DOMAIN", "BUDGET W", "USED W", "LEFT W"
        )?;
        for domain in &self.domains {
            let DomainReport {
                budget,
                used,
                left,
                nodes,
                ..
            } = domain;
            write!(
                out,
                "{:width$}  {budget:>9}  {used:>9}  {left:>9}  {nodes}",
                name(domain)
            )?;
            match &domain.unknown {
                Some(words) => writeln!(out, "  {words}")?,
                None => writeln!(out)?,
            }
        }
        Ok(())
    }
}
