//! BENCH.md 2: one AdmissionReview over TLS, as kube-apiserver sends it when a ReplicaSet makes a pod.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::chart::Chart;
use crate::client::{Connection, Protocol, tls_config};
use crate::load::{self, Common, measure};
use crate::{fixture, options, server};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(long, value_delimiter = ',', default_values_t = [1, 64], value_parser = options::connections())]
    connections: Vec<usize>,
    #[command(flatten)]
    common: Common<1000>,
}

#[derive(Clone, Copy)]
struct Case {
    /// A pod that asks for cards; else one that opted out of everything.
    treated: bool,
    connections: usize,
    handshakes: Handshakes,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Handshakes {
    /// Connections are kept.
    Once,
    /// A connection for each review, and a whole handshake, as Go makes it without a cache of sessions.
    Each,
    /// The same, by a client that resumes its session.
    Resumed,
}

impl Case {
    fn body(self) -> Bytes {
        let mut pod = fixture::unadmitted();
        if !self.treated {
            pod["metadata"]["labels"]["wattlane.dev/webhook"] = "ignore".into();
        }
        fixture::review(&pod).into()
    }
}

fn cases(connections: &[usize]) -> Vec<Case> {
    let mut cases = vec![];
    for &connections in connections {
        use Handshakes::{Each, Once, Resumed};
        for (treated, handshakes) in [(true, Once), (false, Once), (true, Each), (true, Resumed)] {
            cases.push(Case {
                treated,
                connections,
                handshakes,
            });
        }
    }
    cases
}

/// The answer is right before it is timed.
fn check(case: Case, answer: &Bytes) -> anyhow::Result<()> {
    let value: Value = serde_json::from_slice(answer)?;
    ensure!(value["response"]["allowed"] == json!(true), "not allowed: {value:.300}");
    let patched = !value["response"]["patch"].is_null();
    ensure!(patched == case.treated, "patched: {patched}: {value:.300}");
    Ok(())
}

const PATH: &str = "/admission/mutate?timeout=5s";

/// The report, and all samples.
pub(crate) async fn run(args: &Args) -> anyhow::Result<(Value, Value)> {
    let common = &args.common;
    let folder = tempfile::tempdir()?;
    let pki = folder.path().join("pki");
    server::certificates(&pki).await?;
    let cluster = folder.path().join("cluster.json");
    fixture::write(8, &cluster)?;
    let server = server::start(server::Cluster::Files(&cluster), &pki, common.core()).await?;
    let resuming = tls_config(&pki, Protocol::Http2)?;
    let mut whole = rustls::ClientConfig::clone(&resuming);
    whole.resumption = rustls::client::Resumption::disabled();
    let whole = Arc::new(whole);
    let cases = cases(&args.connections);
    let mut results: Vec<Vec<load::Measured>> = cases.iter().map(|_| vec![]).collect();
    for _ in 0..common.runs {
        for (case, results) in cases.iter().zip(&mut results) {
            let body = case.body();
            let tls = match case.handshakes {
                Handshakes::Resumed => &resuming,
                _ => &whole,
            };
            let open = || Connection::open(server.address, tls.clone(), Protocol::Http2);
            let mut connections = vec![];
            for _ in 0..case.connections {
                connections.push(open().await?);
            }
            let first = connections.first_mut().context("no connections")?;
            check(*case, &first.post(PATH, body.clone()).await?)?;
            let send = async |connection: &mut Connection| {
                if case.handshakes != Handshakes::Once {
                    *connection = open().await?;
                }
                Ok(connection.post(PATH, body.clone()).await?.len())
            };
            results.push(measure(&server, "mutate", common.requests(), &mut connections, send).await?);
        }
    }
    let (mut table, mut raw) = (vec![], vec![]);
    for (case, results) in cases.iter().zip(results) {
        let pod = if case.treated { "treated" } else { "opted out" };
        let handshakes = match case.handshakes {
            Handshakes::Once => "once",
            Handshakes::Each => "each",
            Handshakes::Resumed => "resumed",
        };
        let case = json!({"pod": pod, "connections": case.connections, "handshakes": handshakes, "http": "2"});
        let (row, samples) = load::summary(case, &results);
        table.push(row);
        raw.push(samples);
    }
    Ok((common.report("admission", &table), raw.into()))
}

pub(crate) const CHARTS: &[Chart] = &load::charts(&["pod", "connections", "handshakes"]);

pub(crate) fn table(report: &Value) -> String {
    let names = [("pod", "pod"), ("conns", "connections"), ("handshakes", "handshakes")];
    load::lines(report, &names)
}
