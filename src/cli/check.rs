//! `wattlane check`: what is wrong with a policy, or what its classes match in a cluster.
//!
//! Works on text and a snapshot; reading files, loading the cluster and ending the process are the caller's.

use std::io::{self, Write};
use std::sync::Arc;

use serde::Serialize;

use super::table;
use crate::model::{Budget, Name};
use crate::policy::{self, Census, ClassReport, NamespaceReport, Policy, PolicyError};
use crate::selector::Selectors;
use crate::snapshot::{Domain, Snapshot};

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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    pub valid: bool,
    pub errors: Vec<PolicyError>,
    /// Not wrong, but probably not meant: a class that nothing matches, a name nobody has.
    pub warnings: Vec<PolicyError>,
    /// The policy's classes in its order, then the derived ones by name.
    pub classes: Vec<ClassReport>,
    /// The policy's rules for namespaces in its order: the first that matches holds.
    pub namespaces: Vec<NamespaceReport>,
    /// Those with a budget that the policy names or a node of the cluster is in, by label and value.
    #[serde(rename = "powerDomains")]
    pub domains: Vec<DomainReport>,
}

/// Reads a policy as the service would, and counts what it matches where a cluster is given, whose power domains are to
/// be those of the policy.
pub fn check(text: &str, snapshot: Option<&Snapshot>) -> Report {
    let mut report = Report::default();
    let policy = match Policy::read(text, &Selectors::new()) {
        Ok(policy) => Arc::new(policy),
        Err(errors) => {
            report.errors = errors;
            return report;
        }
    };
    let census = Census::of(&policy, snapshot);
    report.valid = true;
    report.warnings = policy::doubts(&policy, &census, snapshot);
    report.classes = census.classes;
    report.namespaces = census.namespaces;
    report.domains = snapshot.map(domains).unwrap_or_default();
    report
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
        self.write_classes(out)?;
        self.write_namespaces(out)?;
        self.write_domains(out)
    }

    fn write_classes(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.classes.is_empty() {
            return Ok(());
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
        Ok(())
    }

    fn write_namespaces(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.namespaces.is_empty() {
            return Ok(());
        }
        let or = |text: Option<String>, none: &str| text.unwrap_or_else(|| none.to_owned());
        let list = |names: &[Name]| names.iter().map(|n| &**n).collect::<Vec<_>>().join(",");
        let row = |rule: &NamespaceReport| {
            let labels: Vec<_> = rule.matches.iter().map(|(k, v)| format!("{k}={v}")).collect();
            [
                or(Some(labels.join(",")).filter(|l| !l.is_empty()), "(all)"),
                or(rule.namespaces.map(|n| n.to_string()), "-"),
                or(rule.default_class.as_ref().map(ToString::to_string), "-"),
                or(rule.allowed_classes.as_deref().map(list), "(all)"),
                or(rule.max_gpus_per_pod.map(|n| n.to_string()), "-"),
            ]
        };
        let head = [
            "NAMESPACES WITH",
            "NUMBER",
            "DEFAULT CLASS",
            "ALLOWED CLASSES",
            "MOST GPUS A POD",
        ];
        let rows = self.namespaces.iter().map(row);
        let rows: Vec<_> = std::iter::once(head.map(str::to_owned)).chain(rows).collect();
        write!(out, "\n{}", table(&rows))
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
