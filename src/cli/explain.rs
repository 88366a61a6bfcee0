//! `wattlane explain`: what each node says to one pod, and what it would get there; or (`summary`) what still fits of each
//! profile, or (`fit`) what holds a model of a size. Writes nothing to a cluster.

mod fit;
mod summary;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use serde::Serialize;
use serde_json::Value;

use super::pending::Created;
use super::slots::Slots;
use super::watts::Watts;
use super::{ClusterArg, Output, load_policy, standin, table, unclaimed};
use crate::app::Core;
use crate::cluster::embedded::Embedded;
use crate::convert::{allocation_json, result_json};
use crate::model::{Allocation, Name, NamespacedName, Pod, Refusal};
use crate::placement::{self, Context, Demand, Placement};
use crate::snapshot::{NodeEntry, Snapshot};
use crate::topology::annotation::{self, ANNOTATION};

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("question").args(["pod", "summary", "fit"]).required(true))]
pub(super) struct Args {
    /// The pod, as NAMESPACE/NAME.
    #[arg(long, value_name = "NS/NAME")]
    pod: Option<String>,
    /// What still fits of each partition profile on each node.
    #[arg(long)]
    summary: bool,
    /// Which partitions and cards hold a model whose weights are this large (like 14Gi).
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    fit: Option<fit::Size>,
    /// What a model needs beside its weights (KV cache, activations): a part of them (20%) or a size (4Gi).
    // A `requires` is forgotten where what it requires conflicts with what is there.
    #[arg(long, conflicts_with_all = ["pod", "summary"], default_value = "20%", allow_hyphen_values = true)]
    margin: fit::Margin,
    #[command(flatten)]
    cluster: ClusterArg,
    /// Placement policy (YAML).
    #[arg(long)]
    policy: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

pub(super) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let policy = load_policy(args.policy.as_deref());
    let Some(pod) = &args.pod else {
        let (core, _) = args.cluster.core(policy).await?;
        core.index.flush().await?;
        let snapshot = core.reader.load();
        return match args.fit {
            Some(size) => fit::Report::of(&snapshot, size, args.margin).print(args.output),
            None => summary::Report::of(&snapshot).print(args.output),
        };
    };
    let (namespace, name) = pod.split_once('/').context("--pod takes NAMESPACE/NAME")?;
    let key = NamespacedName::new(namespace, name);
    let (core, embedded) = args.cluster.core(policy).await?;
    let created = match &embedded {
        Some(embedded) => create(&core, embedded, &key).await?,
        None => Created::default(),
    };
    let mut answer = Report {
        pod: pod.clone(),
        error: created.refused,
        warnings: created.warnings,
        ..Report::default()
    };
    if answer.error.is_some() {
        return answer.print(args.output);
    }
    let raw = embedded.and_then(|e| e.pod_json(namespace, name));
    core.index.flush().await?;
    let found = core
        .cluster
        .pod(&key)
        .await?
        .with_context(|| format!("there is no pod {key}"))?;
    report(&core, &found, raw.as_ref(), &mut answer);
    answer.print(args.output)
}

/// Creates the pod, where it is one that waits to be created.
async fn create(core: &Core, embedded: &Embedded, key: &NamespacedName) -> anyhow::Result<Created> {
    let is_it = |p: &Value| {
        p["metadata"]["namespace"].as_str() == Some(&key.namespace) && p["metadata"]["name"].as_str() == Some(&key.name)
    };
    match embedded.pending().into_iter().find(is_it) {
        Some(pod) => super::pending::create(core, embedded, pod).await,
        None => Ok(Created::default()),
    }
}

fn report(core: &Core, pod: &Pod, raw: Option<&Value>, into: &mut Report) {
    let snapshot = core.reader.load();
    let rules = core.rules();
    let context = Context {
        snapshot: &snapshot,
        selectors: &core.selectors,
        rules: &rules,
    };
    let demand = Demand::of(context, pod);
    let mut entries: Vec<&Arc<NodeEntry>> = snapshot.nodes().map(|(_, entry)| entry).collect();
    entries.sort_by(|a, b| a.node.name.cmp(&b.node.name));

    let answer = |entry: &NodeEntry| -> Result<Placement, String> {
        if let Some(why) = raw.and_then(|raw| standin::refuses(raw, &entry.node, &snapshot)) {
            return Err(why);
        }
        let demand = demand.as_ref().map_err(Refusal::to_string)?;
        placement::check(context, demand, entry).map_err(|r| r.to_string())?;
        placement::place(context, demand, entry).map_err(|r| r.to_string())
    };
    let answers: Vec<_> = entries.iter().map(|e| answer(e)).collect();
    let fitting: Vec<&Arc<NodeEntry>> = entries
        .iter()
        .zip(&answers)
        .filter(|(_, a)| a.is_ok())
        .map(|(e, _)| *e)
        .collect();
    let scores = demand
        .as_ref()
        .map(|d| placement::scores(context, d, &fitting))
        .unwrap_or_default();
    let scores: BTreeMap<&str, u8> = fitting.iter().map(|e| &*e.node.name).zip(scores).collect();

    let nodes = entries.iter().zip(&answers).map(|(entry, answer)| {
        let node = entry.node.name.to_string();
        let link_source = entry.wiring.as_ref().map(|w| w.source.as_str());
        let report = entry.node.annotations.get(ANNOTATION);
        let report_error = report.and_then(|text| annotation::decode(text).err());
        match answer {
            Ok(placement) => Answer {
                score: scores.get(&*node).copied(),
                node,
                fits: true,
                reason: None,
                link_cost: Some(placement.cost.links),
                link_source,
                report_error,
                watts: Some(watts(&snapshot, placement)),
                class: placement.class.as_ref().map(ToString::to_string),
                cut: placement.cut,
                allocations: by_claim(placement, |a| a.results.iter().map(result_json).collect()),
                config: by_claim(placement, |a| allocation_json(a)["devices"]["config"].take()),
                node_selectors: by_claim(placement, |a| allocation_json(a)["nodeSelector"].take()),
            },
            Err(reason) => Answer {
                node,
                reason: Some(reason.clone()),
                link_source,
                report_error,
                ..Answer::default()
            },
        }
    });
    into.nodes = nodes.collect();
    into.shared = Slots::of(core, context, pod);
    into.left_alone = unclaimed::why(core, &snapshot, pod);
    into.bound_to = (!pod.node_name.is_empty()).then(|| pod.node_name.clone());
}

fn watts(snapshot: &Snapshot, placement: &Placement) -> Watts {
    let results = placement.claims.iter().flat_map(|c| &c.allocation.results);
    Watts::of(snapshot, results.filter(|r| !r.admin_access).map(|r| &r.id))
}

/// By ResourceClaim, a part of what it gets in the shape of the API; claims that have nothing there are left out.
fn by_claim(placement: &Placement, part: impl Fn(&Allocation) -> Value) -> BTreeMap<String, Value> {
    let parts = placement
        .claims
        .iter()
        .map(|c| (c.claim.key.name.to_string(), part(&c.allocation)));
    parts.filter(|(_, part)| !part.is_null()).collect()
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    node: String,
    fits: bool,
    reason: Option<String>,
    /// 0 to 10, among the nodes that fit.
    score: Option<u8>,
    link_cost: Option<u32>,
    /// Who says how the node's cards are connected; None: nobody does.
    link_source: Option<&'static str>,
    /// The node carries a probe's report that cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    report_error: Option<String>,
    #[serde(flatten)]
    watts: Option<Watts>,
    class: Option<String>,
    /// The step limit ended the search: there may be a better choice.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cut: bool,
    /// Results.
    allocations: BTreeMap<String, Value>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    config: BTreeMap<String, Value>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    node_selectors: BTreeMap<String, Value>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    pod: String,
    /// Admission refused the pod: no node was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Its node, which it has already.
    #[serde(skip_serializing_if = "Option::is_none")]
    bound_to: Option<Name>,
    /// Why nobody made a claim of the cards it asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_alone: Option<String>,
    /// What admission warned of, and what Kubernetes would.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    /// Claims of the pod that others may share.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    shared: Vec<Slots>,
    nodes: Vec<Answer>,
}

impl Report {
    /// 0 when some node fits, else 1.
    fn print(&self, output: Output) -> anyhow::Result<ExitCode> {
        let mut out = std::io::stdout().lock();
        match output {
            Output::Json => writeln!(out, "{}", serde_json::to_string(self)?)?,
            Output::Table => out.write_all(self.text().as_bytes())?,
        }
        Ok(ExitCode::from(u8::from(!self.nodes.iter().any(|n| n.fits))))
    }

    fn text(&self) -> String {
        if let Some(error) = &self.error {
            return format!("{}: refused at admission: {error}\n", self.pod);
        }
        let mut rows = vec![["NODE", "FITS", "SCORE", "LINK COST", "WATTS", "ANSWER"].map(str::to_owned)];
        let number = |n: Option<u32>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
        for node in &self.nodes {
            let answer = match &node.reason {
                Some(reason) => reason.clone(),
                None => {
                    let devices: Vec<_> = node
                        .allocations
                        .values()
                        .filter_map(Value::as_array)
                        .flatten()
                        .filter_map(|d| d["device"].as_str())
                        .collect();
                    let class = node.class.as_deref().map(|c| format!(" ({c})")).unwrap_or_default();
                    let cut = if node.cut { "; the search was cut short" } else { "" };
                    format!(
                        "{}{class}{cut}",
                        if devices.is_empty() {
                            "no devices".to_owned()
                        } else {
                            devices.join(" ")
                        }
                    )
                }
            };
            let answer = match &node.report_error {
                Some(error) => format!("{answer}; the probe's report cannot be read: {error}"),
                None => answer,
            };
            rows.push([
                node.node.clone(),
                if node.fits { "yes" } else { "no" }.to_owned(),
                number(node.score.map(u32::from)),
                match (node.link_cost, node.link_source) {
                    (Some(cost), Some(source)) => format!("{cost} ({source})"),
                    (cost, _) => number(cost),
                },
                node.watts.as_ref().map_or_else(|| "-".to_owned(), Watts::to_string),
                answer,
            ]);
        }
        let bound = self.bound_to.iter().map(|node| format!("is bound to {node}"));
        let head = bound
            .chain(self.left_alone.clone())
            .chain(self.shared.iter().map(Slots::line));
        let head: String = head.map(|line| format!("{line}\n")).collect();
        let nodes = match self.nodes.as_slice() {
            [] => "no Node to ask\n".to_owned(),
            _ => table(&rows),
        };
        format!("{}\n{head}\n{nodes}", self.pod)
    }
}
