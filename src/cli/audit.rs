//! `wattlane audit`: what is wrong in a cluster now, as a table or as JSON. One look, which writes nothing.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;

use super::{ClusterArg, Output, load_policy, table};
use crate::app::Core;
use crate::audit::{self, Finding};
use crate::cluster::embedded::Embedded;
use crate::convert;
use crate::index::{Change, Object};
use crate::snapshot::Snapshot;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    cluster: ClusterArg,
    /// Placement policy (YAML): power budgets, and which resources are devices.
    #[arg(long)]
    policy: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// Exit code 1: there are findings.
pub(super) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let policy = load_policy(args.policy.as_deref());
    let (core, embedded) = args.cluster.core(policy).await?;
    if let Some(embedded) = &embedded {
        show_waiting(&core, embedded).await?;
    }
    let snapshot = core.reader.load();
    let findings = audit::audit(&snapshot, &core.policy.load());
    let looked_at = LookedAt::of(&snapshot);
    let mut out = std::io::stdout().lock();
    match args.output {
        Output::Json => serde_json::to_writer(&mut out, &document(&findings, &looked_at))?,
        Output::Table if findings.is_empty() => writeln!(out, "no findings\n{looked_at}")?,
        Output::Table => writeln!(out, "{}\n{looked_at}", rows(&findings))?,
    }
    if args.output == Output::Json {
        out.write_all(b"\n")?;
    }
    Ok(ExitCode::from(u8::from(!findings.is_empty())))
}

/// The files' pods that wait for a node, as they are: they were created in some cluster, which shows in their UID. Those
/// without one are manifests, and have not been through anything.
async fn show_waiting(core: &Core, embedded: &Embedded) -> anyhow::Result<()> {
    for pod in embedded
        .pending()
        .iter()
        .filter(|pod| pod["metadata"]["uid"].is_string())
    {
        let pod = convert::pod(pod)?;
        core.index.change(Change::Upsert(Object::Pod(pod))).await?;
    }
    Ok(core.index.flush().await?)
}

/// No findings in nothing say nothing.
#[derive(Debug, serde::Serialize)]
struct LookedAt {
    nodes: usize,
    claims: usize,
    /// Those that ask for devices, or have some.
    pods: usize,
}

impl LookedAt {
    fn of(snapshot: &Snapshot) -> Self {
        Self {
            nodes: snapshot.nodes().count(),
            claims: snapshot.claims.iter().count(),
            pods: snapshot.pods.iter().count(),
        }
    }
}

impl std::fmt::Display for LookedAt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { nodes, claims, pods } = self;
        write!(
            f,
            "looked at {nodes} nodes, {claims} claims, {pods} pods that have to do with devices"
        )
    }
}

fn document(findings: &[Finding], looked_at: &LookedAt) -> serde_json::Value {
    let one = |f: &Finding| json!({"kind": f.kind.as_str(), "object": f.object, "message": f.message});
    json!({"findings": findings.iter().map(one).collect::<Vec<_>>(), "lookedAt": looked_at})
}

fn rows(findings: &[Finding]) -> String {
    let head = ["KIND", "OBJECT", "MESSAGE"].map(str::to_owned);
    let row = |f: &Finding| [f.kind.as_str().to_owned(), f.object.clone(), f.message.clone()];
    table(
        &std::iter::once(head)
            .chain(findings.iter().map(row))
            .collect::<Vec<_>>(),
    )
}
