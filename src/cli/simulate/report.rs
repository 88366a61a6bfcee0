//! What `simulate` prints: one JSON document in the shape the command-line contract fixes, or a table.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;

use serde::Serialize;
use serde_json::Value;

use crate::cli::check::{DomainReport, domains};
use crate::cli::watts::{Watts, is_zero};
use crate::cli::{Output, classified, table};
use crate::model::DeviceId;
use crate::snapshot::Snapshot;

/// One device of a pod.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Placed {
    pub(super) claim: String,
    pub(super) request: String,
    pub(super) driver: String,
    pub(super) pool: String,
    pub(super) device: String,
    pub(super) class: Option<String>,
    pub(super) watts: Option<u32>,
    /// `measured`, `policy`, `table` or `unknown`.
    #[serde(rename = "wattsFrom")]
    pub(super) watts_from: &'static str,
    /// Held for admin access, which draws nothing.
    #[serde(skip)]
    pub(super) admin_access: bool,
    #[serde(skip)]
    pub(super) id: DeviceId,
}

impl Placed {
    /// The device with its class, without claim and request.
    pub(super) fn device(snapshot: &Snapshot, id: &DeviceId) -> Self {
        let classified = classified(snapshot, id);
        Self {
            driver: id.driver.to_string(),
            pool: id.pool.to_string(),
            device: id.device.to_string(),
            class: classified.and_then(|c| c.class.as_ref()).map(ToString::to_string),
            watts: classified.and_then(|c| c.watts),
            watts_from: classified.map_or("unknown", |c| c.origin.as_str()),
            id: id.clone(),
            ..Self::default()
        }
    }

    fn drawing(devices: &[Self]) -> impl Iterator<Item = &DeviceId> {
        devices.iter().filter(|d| !d.admin_access).map(|d| &d.id)
    }
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    namespace: String,
    name: String,
    pub(super) node: Option<String>,
    pub(super) scheduler_name: String,
    /// The one class of its devices; null: none, or several.
    class: Option<String>,
    pub(super) devices: Vec<Placed>,
    pub(super) link_cost: u32,
    #[serde(flatten)]
    watts: Watts,
    /// Node to reason, for each node that said no.
    pub(super) refused: BTreeMap<String, String>,
    pub(super) error: Option<String>,
    /// Why nobody made a claim of the cards it asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) left_alone: Option<String>,
    /// What admission warned of, and what Kubernetes would.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) warnings: Vec<String>,
    /// What list order would have given it, had it placed the pods before it too; and where.
    pub(super) list_order: Vec<Placed>,
    pub(super) list_order_node: Option<String>,
}

impl Row {
    pub(super) fn of(manifest: &Value) -> Self {
        let text = |field: &str| manifest["metadata"][field].as_str().unwrap_or_default().to_owned();
        Self {
            namespace: text("namespace"),
            name: text("name"),
            ..Self::default()
        }
    }

    fn classes(devices: &[Placed]) -> BTreeSet<&str> {
        devices.iter().filter_map(|d| d.class.as_deref()).collect()
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    pods: usize,
    placed: usize,
    nodes: usize,
    devices: usize,
    devices_taken: usize,
    /// What the cards draw that this run gave or gave a part of, each counted once; without those of unknown watts.
    watts: u64,
    /// Devices that this run gave and whose card's watts are not known.
    #[serde(skip_serializing_if = "is_zero")]
    unknown_watts: u32,
    /// Pods whose devices are of several classes.
    mixed_pods: usize,
    /// Pods that list order would have given devices of several classes.
    mixed_by_list_order: usize,
    /// The power domains with a budget after this run, by label and value.
    power_domains: Vec<DomainReport>,
}

#[derive(Debug, Serialize)]
pub(super) struct Report {
    pods: Vec<Row>,
    summary: Summary,
}

impl Report {
    pub(super) fn new(mut pods: Vec<Row>, snapshot: &Snapshot) -> Self {
        for row in &mut pods {
            row.watts = Watts::of(snapshot, Placed::drawing(&row.devices));
            let classes = Row::classes(&row.devices);
            row.class = if classes.len() == 1 {
                classes.first().map(ToString::to_string)
            } else {
                None
            };
        }
        let mixed = |devices: fn(&Row) -> &[Placed]| pods.iter().filter(|r| Row::classes(devices(r)).len() > 1).count();
        // A device that pods share is in several rows.
        let given: BTreeSet<&DeviceId> = pods.iter().flat_map(|row| Placed::drawing(&row.devices)).collect();
        let (watts, unknown_watts) = Watts::of(snapshot, given.into_iter()).of_cards();
        let summary = Summary {
            placed: pods.iter().filter(|r| r.node.is_some()).count(),
            nodes: snapshot.nodes().count(),
            devices: snapshot.pools.iter().flatten().map(|p| p.pool.devices.len()).sum(),
            devices_taken: snapshot
                .pools
                .iter()
                .flatten()
                .map(|p| p.taken.len() + p.shared.len())
                .sum(),
            watts,
            unknown_watts,
            mixed_pods: mixed(|r| &r.devices),
            mixed_by_list_order: mixed(|r| &r.list_order),
            pods: pods.len(),
            power_domains: domains(snapshot),
        };
        Self { pods, summary }
    }

    pub(super) fn all_placed(&self) -> bool {
        self.summary.placed == self.summary.pods
    }

    pub(super) fn print(&self, output: Output) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        match output {
            Output::Json => writeln!(out, "{}", serde_json::to_string(self)?)?,
            Output::Table => out.write_all(self.text().as_bytes())?,
        }
        Ok(())
    }

    fn text(&self) -> String {
        let names = |devices: &[Placed]| match devices {
            [] => "-".to_owned(),
            some => some.iter().map(|d| d.device.as_str()).collect::<Vec<_>>().join(" "),
        };
        let mut rows = vec![["POD", "NODE", "DEVICES", "WATTS", "CLASS", "LIST ORDER"].map(str::to_owned)];
        for row in &self.pods {
            let node = row.list_order_node.as_ref().filter(|n| Some(*n) != row.node.as_ref());
            let node = node.map(|n| format!("{n}: ")).unwrap_or_default();
            let mixed = match Row::classes(&row.list_order).len() {
                0 | 1 => String::new(),
                classes => format!(" ({classes} classes mixed)"),
            };
            let list_order = format!("{node}{}{mixed}", names(&row.list_order));
            rows.push([
                format!("{}/{}", row.namespace, row.name),
                row.node.clone().unwrap_or_else(|| "-".to_owned()),
                names(&row.devices),
                row.watts.to_string(),
                row.class.clone().unwrap_or_else(|| "-".to_owned()),
                list_order,
            ]);
        }
        let mut text = match self.pods.as_slice() {
            [] => "Nothing to place: no Pod of the files waits for a node.\n".to_owned(),
            _ => table(&rows),
        };
        for row in self.pods.iter().filter(|r| r.node.is_none() || r.left_alone.is_some()) {
            let error = match row.node {
                None => Some(row.error.as_deref().unwrap_or("not placed")),
                Some(_) => None,
            };
            let said: Vec<&str> = error.into_iter().chain(row.left_alone.as_deref()).collect();
            text += &format!("\n{}/{}: {}\n", row.namespace, row.name, said.join("; "));
            for (node, why) in &row.refused {
                text += &format!("  {node}: {why}\n");
            }
        }
        let s = &self.summary;
        let unknown = match s.unknown_watts {
            0 => String::new(),
            1 => ", without one device of unknown watts".to_owned(),
            n => format!(", without {n} devices of unknown watts"),
        };
        text += &format!(
            "\n{} of {} pods placed, {} of {} devices of {} nodes taken, {} W given in this run{unknown}.\n\
             Pods of mixed classes: {}; list order would have mixed {}.\n",
            s.placed, s.pods, s.devices_taken, s.devices, s.nodes, s.watts, s.mixed_pods, s.mixed_by_list_order
        );
        for d in &s.power_domains {
            text += &format!(
                "Power domain {}={}: {} of {} W drawn, {} W left.\n",
                d.label, d.value, d.used, d.budget, d.left
            );
        }
        text
    }
}
