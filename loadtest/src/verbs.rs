//! BENCH.md 1: filter and prioritize over TLS, as kube-scheduler sends them.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::client::{Connection, Protocol, tls_config};
use crate::fixture::{self, Fit};
use crate::scrape::Inside;
use crate::server;
use crate::stats::Series;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Node counts, one server each.
    #[arg(long, value_delimiter = ',', default_values_t = [500, 1213, 5000])]
    nodes: Vec<usize>,
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16])]
    connections: Vec<usize>,
    /// Requests of each series, over all connections; a tenth more is sent first to warm up.
    #[arg(long, default_value_t = 1000)]
    requests: usize,
    /// Each series this many times, alternating with the others; the median run is reported, with the range.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Do not pin the server to core 1.
    #[arg(long)]
    no_pin: bool,
    /// Write every sample of every run here, as JSON.
    #[arg(long)]
    raw: Option<std::path::PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Case {
    verb: &'static str,
    fit: Fit,
    connections: usize,
    protocol: Protocol,
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

/// What kube-scheduler sends with nodeCacheCapable: capitals, `Nodes: null`.
fn body(fit: Fit, nodes: usize) -> anyhow::Result<Bytes> {
    let names: Vec<_> = (0..nodes).map(fixture::node_name).collect();
    Ok(serde_json::to_vec(&json!({"Pod": fixture::pod(fit), "Nodes": null, "NodeNames": names}))?.into())
}

/// The answer is right before it is timed.
fn check(case: Case, nodes: usize, answer: &Bytes) -> anyhow::Result<()> {
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

async fn series(case: Case, count: usize, body: &Bytes, connections: &mut [Connection]) -> anyhow::Result<Series> {
    let path = format!("/extender/{}", case.verb);
    let each = count.div_ceil(connections.len());
    let begun = Instant::now();
    let work = connections.iter_mut().map(|connection| async {
        let mut samples = Vec::with_capacity(each);
        let mut bytes = 0;
        for _ in 0..each {
            let sent = Instant::now();
            bytes = connection.post(&path, body.clone()).await?.len();
            samples.push(sent.elapsed());
        }
        anyhow::Ok((samples, bytes))
    });
    let mut all: Vec<Duration> = vec![];
    let mut bytes = 0;
    for done in all_at_once(work).await {
        let (samples, size) = done?;
        all.extend(samples);
        bytes = size;
    }
    Ok(Series::new(all, begun.elapsed(), bytes))
}

/// Runs all at once on this thread (tokio's current-thread runtime: the client has one core).
pub(crate) async fn all_at_once<F: Future>(work: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut pinned: Vec<_> = work.map(|f| (Box::pin(f), None)).collect();
    std::future::poll_fn(|cx| {
        let mut waiting = false;
        for (future, output) in &mut pinned {
            if output.is_none() {
                match future.as_mut().poll(cx) {
                    std::task::Poll::Ready(value) => *output = Some(value),
                    std::task::Poll::Pending => waiting = true,
                }
            }
        }
        if waiting {
            std::task::Poll::Pending
        } else {
            std::task::Poll::Ready(())
        }
    })
    .await;
    pinned.into_iter().filter_map(|(_, output)| output).collect()
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<Value> {
    let folder = tempfile::tempdir()?;
    let pki = folder.path().join("pki");
    server::certificates(&pki).await?;
    let mut rows = vec![];
    let mut raw = vec![];
    for &nodes in &args.nodes {
        let cluster = folder.path().join(format!("cluster-{nodes}.json"));
        fixture::write(nodes, &cluster)?;
        let server = server::start(&cluster, &pki, (!args.no_pin).then_some(1)).await?;
        let cases = cases(&args.connections);
        let mut results: Vec<Vec<(Series, Value)>> = cases.iter().map(|_| vec![]).collect();
        for run in 0..args.runs {
            for (case, results) in cases.iter().zip(&mut results) {
                let tls = tls_config(&pki, case.protocol)?;
                let mut connections = vec![];
                for _ in 0..case.connections {
                    connections.push(Connection::open(server.address, tls.clone(), case.protocol).await?);
                }
                let body = body(case.fit, nodes)?;
                if run == 0 {
                    let first = connections[0]
                        .post(&format!("/extender/{}", case.verb), body.clone())
                        .await?;
                    check(*case, nodes, &first).with_context(|| format!("{} {}", case.verb, case.fit.name()))?;
                }
                series(*case, args.requests.div_ceil(10), &body, &mut connections).await?;
                let before = Inside::scrape(&server, case.verb).await?;
                let series = series(*case, args.requests, &body, &mut connections).await?;
                let inside = Inside::scrape(&server, case.verb).await?.since(&before);
                results.push((series, inside.json()));
            }
        }
        for (case, mut results) in cases.iter().zip(results) {
            results.sort_by(|(a, _), (b, _)| a.quantile(0.5).total_cmp(&b.quantile(0.5)));
            let (median, inside) = &results[results.len() / 2];
            let protocol = if case.protocol == Protocol::Http1 { "1.1" } else { "2" };
            rows.push(json!({
                "verb": case.verb, "nodes": nodes, "fit": case.fit.name(), "connections": case.connections, "http": protocol,
                "p50Ms": median.quantile(0.5), "p99Ms": median.quantile(0.99), "p999Ms": median.quantile(0.999),
                "p50MsRange": [results[0].0.quantile(0.5), results[results.len() - 1].0.quantile(0.5)],
                "readyAfterSeconds": server.ready_after.as_secs_f64(), "inside": inside,
                "perSecond": median.per_second(), "responseBytes": median.response_bytes,
            }));
            raw.push(
                json!({"verb": case.verb, "nodes": nodes, "fit": case.fit.name(), "connections": case.connections,
                "http": protocol, "runs": results.iter().map(|(s, _)| s.json()).collect::<Vec<_>>()}),
            );
        }
    }
    if let Some(path) = &args.raw {
        std::fs::write(path, serde_json::to_vec(&raw)?).with_context(|| path.display().to_string())?;
    }
    Ok(
        json!({"scenario": "verbs", "tls": "1.3, client certificate", "pinned": !args.no_pin,
        "requests": args.requests, "runs": args.runs, "rows": rows}),
    )
}

pub(crate) fn table(report: &Value) -> String {
    let mut out = format!(
        "{:<11}{:>6}  {:<5}{:>5} {:>5}{:>10}{:>10}{:>10}  {:<17}{:>9}{:>10}  inside: mean, p50, p99 ms\n",
        "verb", "nodes", "fit", "conns", "http", "p50 ms", "p99 ms", "p99.9 ms", "p50 range", "req/s", "bytes"
    );
    let text = |v: &Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
    for row in report["rows"].as_array().map(Vec::as_slice).unwrap_or_default() {
        let range = format!("{}-{}", number(&row["p50MsRange"][0]), number(&row["p50MsRange"][1]));
        out += &format!(
            "{:<11}{:>6}  {:<5}{:>5} {:>5}{:>10}{:>10}{:>10}  {:<17}{:>9.0}{:>10}  {} ≤{} ≤{}\n",
            text(&row["verb"]),
            text(&row["nodes"]),
            text(&row["fit"]),
            text(&row["connections"]),
            text(&row["http"]),
            number(&row["p50Ms"]),
            number(&row["p99Ms"]),
            number(&row["p999Ms"]),
            range,
            row["perSecond"].as_f64().unwrap_or(0.0),
            text(&row["responseBytes"]),
            number(&row["inside"]["meanMs"]),
            number(&row["inside"]["p50MsAtMost"]),
            number(&row["inside"]["p99MsAtMost"]),
        );
    }
    out
}

pub(crate) fn number(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), |n| format!("{n:.3}"))
}
