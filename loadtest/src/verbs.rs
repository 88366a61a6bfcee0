//! BENCH.md 1: filter and prioritize over TLS, as kube-scheduler sends them.

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::client::{Connection, Protocol, tls_config};
use crate::fixture::{self, Fit};
use crate::load::{self, Common, measure, rows, text};
use crate::server;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Node counts, one server each.
    #[arg(long, value_delimiter = ',', default_values_t = [500, 1213, 5000])]
    nodes: Vec<usize>,
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16])]
    connections: Vec<usize>,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) verb: &'static str,
    pub(crate) fit: Fit,
    pub(crate) connections: usize,
    pub(crate) protocol: Protocol,
}

impl Case {
    /// What tells it from others, for a row.
    pub(crate) fn json(self, nodes: usize) -> Value {
        let http = if self.protocol == Protocol::Http1 { "1.1" } else { "2" };
        json!({"verb": self.verb, "nodes": nodes, "fit": self.fit.name(), "connections": self.connections, "http": http})
    }
}

fn cases(connections: &[usize]) -> Vec<Case> {
    let mut cases = vec![];
    for &connections in connections {
        for protocol in [Protocol::Http1, Protocol::Http2] {
            for fit in Fit::ALL {
                cases.push(Case {
                    verb: "filter",
                    fit,
                    connections,
                    protocol,
                });
            }
            cases.push(Case {
                verb: "prioritize",
                fit: Fit::All,
                connections,
                protocol,
            });
        }
    }
    cases
}

pub(crate) fn body(fit: Fit, nodes: usize) -> Bytes {
    fixture::asked(fit, nodes).into()
}

/// The answer is right before it is timed.
pub(crate) fn check(case: Case, nodes: usize, answer: &Bytes) -> anyhow::Result<()> {
    let value: Value = serde_json::from_slice(answer)?;
    if case.verb == "prioritize" {
        let scores = value.as_array().context("no list of scores")?;
        let best = scores.iter().filter(|s| s["Score"] == json!(10)).count();
        ensure!(
            scores.len() == nodes && best == 1,
            "{} scores, {best} of them best",
            scores.len()
        );
        return Ok(());
    }
    let passed = value["NodeNames"].as_array().map_or(0, Vec::len);
    let expected = match case.fit {
        Fit::All => nodes,
        Fit::One => 1,
        Fit::None => 0,
    };
    ensure!(
        passed == expected,
        "{passed} nodes passed, {expected} expected: {:.300}",
        value.to_string()
    );
    let refused = value["FailedAndUnresolvableNodes"]
        .as_object()
        .map_or(0, serde_json::Map::len);
    ensure!(
        refused == nodes - expected,
        "{refused} nodes refused, {} expected",
        nodes - expected
    );
    Ok(())
}

/// Opened anew for each series.
pub(crate) async fn open(
    server: &server::Server,
    pki: &std::path::Path,
    case: Case,
) -> anyhow::Result<Vec<Connection>> {
    let tls = tls_config(pki, case.protocol)?;
    let mut connections = vec![];
    for _ in 0..case.connections {
        connections.push(Connection::open(server.address, tls.clone(), case.protocol).await?);
    }
    Ok(connections)
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<Value> {
    let common = &args.common;
    let folder = tempfile::tempdir()?;
    let pki = folder.path().join("pki");
    server::certificates(&pki).await?;
    let (mut table, mut raw, mut ready) = (vec![], vec![], serde_json::Map::new());
    for &nodes in &args.nodes {
        let cluster = folder.path().join(format!("cluster-{nodes}.json"));
        fixture::write(nodes, &cluster)?;
        let server = server::start(server::Cluster::Files(&cluster), &pki, common.core()).await?;
        ready.insert(nodes.to_string(), server.ready_after.as_secs_f64().into());
        let cases = cases(&args.connections);
        let mut results: Vec<Vec<load::Measured>> = cases.iter().map(|_| vec![]).collect();
        for run in 0..common.runs {
            for (case, results) in cases.iter().zip(&mut results) {
                let mut connections = open(&server, &pki, *case).await?;
                let (body, path) = (body(case.fit, nodes), format!("/extender/{}", case.verb));
                if run == 0 {
                    let first = connections.first_mut().context("no connections")?;
                    let answer = first.post(&path, body.clone()).await?;
                    check(*case, nodes, &answer).with_context(|| format!("{} {}", case.verb, case.fit.name()))?;
                }
                let send = async |c: &mut Connection| Ok(c.post(&path, body.clone()).await?.len());
                results.push(measure(&server, case.verb, common.requests, &mut connections, send).await?);
            }
        }
        for (case, results) in cases.iter().zip(results) {
            let (row, samples) = load::summary(case.json(nodes), results);
            table.push(row);
            raw.push(samples);
        }
    }
    let mut report = common.report("verbs", (&table, &raw), |row| label(row).join(" "), &[0.4, 1.0])?;
    report["readyAfterSeconds"] = ready.into();
    Ok(report)
}

/// What names a row: verb, nodes, fit, connections, HTTP.
pub(crate) fn label(row: &Value) -> [String; 5] {
    ["verb", "nodes", "fit", "connections", "http"].map(|key| text(&row[key]))
}

pub(crate) fn table(report: &Value) -> String {
    let name = |[verb, nodes, fit, connections, http]: [&str; 5]| {
        format!("{verb:<11}{nodes:>6}  {fit:<5}{connections:>5} {http:>5}")
    };
    let mut out = name(["verb", "nodes", "fit", "conns", "http"]) + &load::heads();
    for row in rows(report) {
        out += &name(label(row).each_ref().map(String::as_str));
        out += &load::columns(row);
    }
    out
}
