//! `wattlane check`: what is wrong with a policy, or what its classes match in a cluster.
//!
//! Works on text and a snapshot; reading files, loading the cluster and ending the process are the caller's.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::Arc;

use serde::Serialize;

use crate::model::{Classifier, Labels, Name, NodeScope};
use crate::policy::{Policy, PolicyClassifier, PolicyError};
use crate::selector::Selectors;
use crate::snapshot::Snapshot;

/// One class, of the policy or derived from a product.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassReport {
    pub name: Name,
    /// Of the policy, else what the devices are known to draw. None: not known.
    pub watts: Option<u32>,
    /// `policy`, or `derived` from the product name.
    pub source: &'static str,
    /// None: no cluster was given.
    pub devices: Option<usize>,
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
}

/// Reads a policy as the service would, and counts what it matches where a cluster is given.
pub fn check(text: &str, snapshot: Option<&Snapshot>) -> Report {
    let policy = match Policy::read(text, &Selectors::new()) {
        Ok(policy) => Arc::new(policy),
        Err(errors) => {
            return Report {
                valid: false,
                errors,
                warnings: vec![],
                classes: vec![],
            };
        }
    };
    let mut classes: Vec<ClassReport> = policy
        .classes
        .iter()
        .map(|class| ClassReport {
            name: class.name.clone(),
            watts: class.watts,
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
    }
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
                    source: "derived",
                    devices: Some(0),
                }),
            };
            class.watts = class.watts.or(found.watts);
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
            return Ok(());
        }
        let width = self.classes.iter().map(|c| c.name.len()).max().unwrap_or(0).max(5);
        writeln!(out, "\n{:width$}  {:>6}  {:7}  DEVICES", "CLASS", "WATTS", "SOURCE")?;
        for class in &self.classes {
            let watts = class.watts.map_or_else(|| "?".to_owned(), |w| w.to_string());
            let devices = class.devices.map_or_else(|| "-".to_owned(), |n| n.to_string());
            writeln!(out, "{:width$}  {watts:>6}  {:7}  {devices}", class.name, class.source)?;
        }
        Ok(())
    }
}
