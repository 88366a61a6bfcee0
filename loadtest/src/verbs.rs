//! BENCH.md 1: filter and prioritize over TLS, as kube-scheduler sends them.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::chart::Chart;
use crate::client::{Connection, Protocol, tls_config};
use crate::fixture::{self, Fit};
use crate::load::{self, Common, Measured, measure};
use crate::{options, server};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Node counts, one server each; 8 at least, since the one node where "one fits" is number 7.
    #[arg(long, value_delimiter = ',', default_values_t = [500, 1213, 5000], value_parser = options::nodes())]
    nodes: Vec<usize>,
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16], value_parser = options::connections())]
    connections: Vec<usize>,
    #[command(flatten)]
    common: Common<1000>,
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

    pub(crate) fn path(self) -> String {
        format!("/extender/{}", self.verb)
    }
}

fn cases(connections: &[usize]) -> Vec<Case> {
    let mut cases = vec![];
    for &connections in connections {
        for protocol in [Protocol::Http1, Protocol::Http2] {
            for (verb, fit) in ASKED {
                cases.push(Case {
                    verb,
                    fit,
                    connections,
                    protocol,
                });
            }
        }
    }
    cases
}

/// What is asked of a cluster.
pub(crate) const ASKED: [(&str, Fit); 4] = [
    ("filter", Fit::All),
    ("filter", Fit::One),
    ("filter", Fit::None),
    ("prioritize", Fit::All),
];

pub(crate) fn body(fit: Fit, nodes: usize) -> Bytes {
    fixture::asked(fit, nodes).into()
}

/// The answer names the nodes that fit, no other, and each once.
pub(crate) fn check(case: Case, nodes: usize, answer: &[u8]) -> anyhow::Result<()> {
    let value: Value = serde_json::from_slice(answer)?;
    let (fit, all) = (fixture::fitting(case.fit, nodes), fixture::fitting(Fit::All, nodes));
    if case.verb == "prioritize" {
        let scores = value.as_array().context("no list of scores")?;
        let hosts = each_once(scores.iter().map(|s| &s["Host"]))?;
        ensure!(hosts == all, "{} of {nodes} nodes have a score", hosts.len());
        let best: Vec<_> = scores.iter().filter(|s| s["Score"] == json!(10)).collect();
        let [best] = best[..] else {
            anyhow::bail!("{} nodes are the best, not one", best.len());
        };
        ensure!(
            best["Host"].as_str().is_some_and(|host| fit.contains(host)),
            "the best score is that of {}, where the pod does not fit",
            best["Host"]
        );
        return Ok(());
    }
    let passed = each_once(value["NodeNames"].as_array().into_iter().flatten())?;
    ensure!(
        passed == fit,
        "{} nodes passed, {} fit; the first that should not have or is missing: {:?}; {:.300}",
        passed.len(),
        fit.len(),
        passed.symmetric_difference(&fit).next(),
        value.to_string()
    );
    let refused = value["FailedAndUnresolvableNodes"].as_object();
    let refused: BTreeSet<String> = refused.into_iter().flatten().map(|(name, _)| name.clone()).collect();
    ensure!(
        refused.is_disjoint(&passed) && refused.len() == nodes - fit.len() && refused.is_subset(&all),
        "{} nodes refused, {} expected",
        refused.len(),
        nodes - fit.len()
    );
    Ok(())
}

fn each_once<'v>(names: impl Iterator<Item = &'v Value>) -> anyhow::Result<BTreeSet<String>> {
    let mut set = BTreeSet::new();
    for name in names {
        let name = name.as_str().context("a name that is no text")?;
        ensure!(set.insert(name.to_owned()), "{name} is there twice");
    }
    Ok(set)
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

/// One series, and once more the same: whose answer has to be right, with whatever goes on meanwhile going on.
pub(crate) async fn series(
    server: &server::Server,
    case: Case,
    nodes: usize,
    requests: usize,
    connections: &mut [Connection],
) -> anyhow::Result<Measured> {
    let (body, path) = (body(case.fit, nodes), case.path());
    let send = async |c: &mut Connection| Ok(c.post(&path, body.clone()).await?.len());
    let measured = measure(server, case.verb, requests, connections, send).await?;
    let first = connections.first_mut().context("no connections")?;
    let answer = first.post(&path, body.clone()).await?;
    check(case, nodes, &answer).with_context(|| format!("{} {}", case.verb, case.fit.name()))?;
    Ok(measured)
}

/// The report, and all samples.
pub(crate) async fn run(args: &Args) -> anyhow::Result<(Value, Value)> {
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
        let mut results: Vec<Vec<Measured>> = cases.iter().map(|_| vec![]).collect();
        for _ in 0..common.runs {
            for (case, results) in cases.iter().zip(&mut results) {
                let mut connections = open(&server, &pki, *case).await?;
                results.push(series(&server, *case, nodes, common.requests(), &mut connections).await?);
            }
        }
        for (case, results) in cases.iter().zip(results) {
            let (row, samples) = load::summary(case.json(nodes), &results);
            table.push(row);
            raw.push(samples);
        }
    }
    let mut report = common.report("verbs", &table);
    report["readyAfterSeconds"] = ready.into();
    Ok((report, raw.into()))
}

pub(crate) const CHARTS: &[Chart] = &load::charts(&["verb", "nodes", "fit", "connections", "http"]);

pub(crate) fn table(report: &Value) -> String {
    let names = [
        ("verb", "verb"),
        ("nodes", "nodes"),
        ("fit", "fit"),
        ("conns", "connections"),
        ("http", "http"),
    ];
    load::lines(report, &names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::node_name;

    fn right(verb: &'static str, fit: Fit, answer: Value) -> bool {
        let case = Case {
            verb,
            fit,
            connections: 1,
            protocol: Protocol::Http2,
        };
        check(case, 8, answer.to_string().as_bytes()).is_ok()
    }

    fn filtered(passed: &[usize], refused: &[usize]) -> Value {
        let names: Vec<_> = passed.iter().map(|i| node_name(*i)).collect();
        let refused: serde_json::Map<_, _> = refused.iter().map(|i| (node_name(*i), "why".into())).collect();
        json!({"NodeNames": names, "FailedAndUnresolvableNodes": refused})
    }

    #[test]
    fn a_filter_answer_is_right_only_with_the_right_nodes() {
        let all = [0, 1, 2, 3, 4, 5, 6, 7];
        assert!(right("filter", Fit::All, filtered(&all, &[])));
        assert!(right("filter", Fit::None, filtered(&[], &all)));
        assert!(right("filter", Fit::One, filtered(&[7], &all[..7])));
        // As many, and others.
        assert!(!right("filter", Fit::One, filtered(&[3], &[0, 1, 2, 4, 5, 6, 7])));
        assert!(!right("filter", Fit::One, filtered(&[7], &[8, 1, 2, 3, 4, 5, 6])));
        assert!(!right("filter", Fit::All, filtered(&[0, 1, 2, 3, 4, 5, 6, 6], &[])));
        assert!(!right("filter", Fit::All, filtered(&all[1..], &[0])));
        assert!(!right("filter", Fit::None, filtered(&[], &all[1..])));
    }

    #[test]
    fn the_best_score_is_one_and_of_a_node_that_fits() {
        let scores = |best: &[usize], nodes: usize| -> Value {
            let score = |i| if best.contains(&i) { 10 } else { 3 };
            (0..nodes)
                .map(|i| json!({"Host": node_name(i), "Score": score(i)}))
                .collect()
        };
        assert!(right("prioritize", Fit::All, scores(&[2], 8)));
        assert!(right("prioritize", Fit::One, scores(&[7], 8)));
        assert!(!right("prioritize", Fit::One, scores(&[2], 8)));
        assert!(!right("prioritize", Fit::All, scores(&[2, 3], 8)));
        assert!(!right("prioritize", Fit::All, scores(&[], 8)));
        assert!(!right("prioritize", Fit::All, scores(&[2], 7)));
    }
}
