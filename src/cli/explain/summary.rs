//! What still fits of each partition profile, on each node and in all.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::ExitCode;

use serde::Serialize;

use super::super::{Output, table};
use super::fit::gib;
use crate::model::Name;
use crate::snapshot::Snapshot;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    node: String,
    /// By profile, how many of it alone still fit; `whole`: cards that can be cut, and are not.
    profiles: BTreeMap<String, u32>,
    /// Memory left on cards that are given in shares, in GiB. None: there is no such card.
    #[serde(skip_serializing_if = "Option::is_none")]
    shared_memory_left_gi_b: Option<f64>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    nodes: Vec<Node>,
    total: BTreeMap<String, u32>,
    /// Nodes without a partition, or a card that can be cut.
    without_partitions: usize,
}

impl Report {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let mut report = Self {
            nodes: vec![],
            total: BTreeMap::new(),
            without_partitions: 0,
        };
        for (_, entry) in snapshot.nodes() {
            let fits: BTreeMap<Name, u32> = snapshot.fits(entry);
            let shared = snapshot.shared_memory(entry).map(|(_, left)| left);
            let shared = shared.reduce(|sum, left| sum + left);
            if fits.is_empty() && shared.is_none() {
                report.without_partitions += 1;
                continue;
            }
            for (profile, count) in &fits {
                let total = report.total.entry(profile.to_string()).or_default();
                *total = total.saturating_add(*count);
            }
            report.nodes.push(Node {
                node: entry.node.name.to_string(),
                shared_memory_left_gi_b: shared.map(gib),
                profiles: fits.into_iter().map(|(p, n)| (p.to_string(), n)).collect(),
            });
        }
        report.nodes.sort_by(|a, b| a.node.cmp(&b.node));
        report
    }

    pub(super) fn print(&self, output: Output) -> anyhow::Result<ExitCode> {
        let mut out = std::io::stdout().lock();
        match output {
            Output::Json => writeln!(out, "{}", serde_json::to_string(self)?)?,
            Output::Table => out.write_all(self.text().as_bytes())?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn text(&self) -> String {
        let mut rows = vec![["NODE", "PROFILE", "STILL FIT"].map(str::to_owned)];
        let mut add = |node: &str, profiles: &BTreeMap<String, u32>| {
            for (profile, count) in profiles {
                rows.push([node.to_owned(), profile.clone(), count.to_string()]);
            }
        };
        self.nodes.iter().for_each(|n| add(&n.node, &n.profiles));
        if self.nodes.len() > 1 {
            add("(all)", &self.total);
        }
        for (node, left) in self
            .nodes
            .iter()
            .filter_map(|n| Some((&n.node, n.shared_memory_left_gi_b?)))
        {
            rows.push([node.clone(), "shared (memory)".to_owned(), format!("{left} GiB")]);
        }
        let others = match self.without_partitions {
            0 => String::new(),
            1 => "\n1 other node has no partitions.\n".to_owned(),
            n => format!("\n{n} other nodes have no partitions.\n"),
        };
        match self.nodes.as_slice() {
            [] => "No card of this cluster is cut, or can be by its driver.\n".to_owned(),
            _ => format!("{}{others}", table(&rows)),
        }
    }
}
