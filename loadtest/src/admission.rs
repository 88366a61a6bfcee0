//! BENCH.md 2: one AdmissionReview over TLS, as kube-apiserver sends it when a ReplicaSet makes a pod.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::client::{Connection, Protocol, tls_config};
use crate::scrape::Inside;
use crate::stats::Series;
use crate::verbs::{all_at_once, number};
use crate::{fixture, server};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(long, value_delimiter = ',', default_values_t = [1, 64])]
    connections: Vec<usize>,
    /// Reviews of each series, over all connections; a tenth more is sent first to warm up.
    #[arg(long, default_value_t = 2000)]
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

#[derive(Clone, Copy)]
struct Case {
    /// A pod that asks for cards; else one that opted out of everything.
    treated: bool,
    connections: usize,
    /// A connection for each review.
    handshakes: bool,
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
        for (treated, handshakes) in [(true, false), (false, false), (true, true)] {
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

pub(crate) async fn run(args: &Args) -> anyhow::Result<Value> {
    let folder = tempfile::tempdir()?;
    let pki = folder.path().join("pki");
    server::certificates(&pki).await?;
    let cluster = folder.path().join("cluster.json");
    fixture::write(8, &cluster)?;
    let server = server::start(&cluster, &pki, (!args.no_pin).then_some(1)).await?;
    let tls = tls_config(&pki, Protocol::Http2)?;
    let open = || Connection::open(server.address, tls.clone(), Protocol::Http2);
    let cases = cases(&args.connections);
    let mut results: Vec<Vec<(Series, Value)>> = cases.iter().map(|_| vec![]).collect();
    for _ in 0..args.runs {
        for (case, results) in cases.iter().zip(&mut results) {
            let body = case.body();
            let mut connections = vec![];
            for _ in 0..case.connections {
                connections.push(open().await?);
            }
            let first = connections.first_mut().context("no connections")?;
            check(*case, &first.post("/admission/mutate?timeout=5s", body.clone()).await?)?;
            let mut series = None;
            for count in [args.requests.div_ceil(10), args.requests] {
                let each = count.div_ceil(connections.len());
                let before = Inside::scrape(&server, "mutate").await?;
                let begun = Instant::now();
                let work = connections.iter_mut().map(|connection| async {
                    let mut samples: Vec<Duration> = Vec::with_capacity(each);
                    let mut bytes = 0;
                    for _ in 0..each {
                        let sent = Instant::now();
                        if case.handshakes {
                            *connection = open().await?;
                        }
                        bytes = connection
                            .post("/admission/mutate?timeout=5s", body.clone())
                            .await?
                            .len();
                        samples.push(sent.elapsed());
                    }
                    anyhow::Ok((samples, bytes))
                });
                let (mut all, mut bytes) = (vec![], 0);
                for done in all_at_once(work).await {
                    let (samples, size) = done?;
                    all.extend(samples);
                    bytes = size;
                }
                let took = begun.elapsed();
                let inside = Inside::scrape(&server, "mutate").await?.since(&before);
                series = Some((Series::new(all, took, bytes), inside.json()));
            }
            results.extend(series);
        }
    }
    let (mut rows, mut raw) = (vec![], vec![]);
    for (case, mut results) in cases.iter().zip(results) {
        results.sort_by(|(a, _), (b, _)| a.quantile(0.5).total_cmp(&b.quantile(0.5)));
        let (median, inside) = &results[results.len() / 2];
        let mut row = json!({
            "pod": if case.treated { "treated" } else { "opted out" }, "connections": case.connections,
            "newHandshakes": case.handshakes,
        });
        raw.push(json!({"case": row.clone(), "runs": results.iter().map(|(s, _)| s.json()).collect::<Vec<_>>()}));
        let range = [results[0].0.quantile(0.5), results[results.len() - 1].0.quantile(0.5)];
        row["p50Ms"] = median.quantile(0.5).into();
        row["p99Ms"] = median.quantile(0.99).into();
        row["p999Ms"] = median.quantile(0.999).into();
        row["p50MsRange"] = json!(range);
        row["perSecond"] = median.per_second().into();
        row["responseBytes"] = median.response_bytes.into();
        row["inside"] = inside.clone();
        rows.push(row);
    }
    if let Some(path) = &args.raw {
        std::fs::write(path, serde_json::to_vec(&raw)?).with_context(|| path.display().to_string())?;
    }
    Ok(
        json!({"scenario": "admission", "tls": "1.3, client certificate", "http": 2, "pinned": !args.no_pin,
        "requests": args.requests, "runs": args.runs, "rows": rows}),
    )
}

pub(crate) fn table(report: &Value) -> String {
    let mut out = format!(
        "{:<11}{:>6} {:<12}{:>9}{:>9}{:>10}  {:<15}{:>8}  inside: mean, p50, p99 ms\n",
        "pod", "conns", "handshakes", "p50 ms", "p99 ms", "p99.9 ms", "p50 range", "req/s"
    );
    for row in report["rows"].as_array().map(Vec::as_slice).unwrap_or_default() {
        let range = format!("{}-{}", number(&row["p50MsRange"][0]), number(&row["p50MsRange"][1]));
        out += &format!(
            "{:<11}{:>6} {:<12}{:>9}{:>9}{:>10}  {:<15}{:>8.0}  {} ≤{} ≤{}\n",
            row["pod"].as_str().unwrap_or_default(),
            row["connections"].to_string(),
            if row["newHandshakes"] == json!(true) {
                "each"
            } else {
                "once"
            },
            number(&row["p50Ms"]),
            number(&row["p99Ms"]),
            number(&row["p999Ms"]),
            range,
            row["perSecond"].as_f64().unwrap_or(0.0),
            number(&row["inside"]["meanMs"]),
            number(&row["inside"]["p50MsAtMost"]),
            number(&row["inside"]["p99MsAtMost"]),
        );
    }
    out
}
