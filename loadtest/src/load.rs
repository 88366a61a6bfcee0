//! What the scenarios over TLS share: their options, the client that asks again as soon as it is answered, and the columns
//! of a case.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::client::Connection;
use crate::plot;
use crate::scrape::Inside;
use crate::server::Server;
use crate::stats::Series;

#[derive(Debug, clap::Args)]
pub(crate) struct Common {
    /// Requests of each series, over all connections; a tenth more is sent first to warm up.
    #[arg(long, default_value_t = 1000)]
    pub(crate) requests: usize,
    /// Each series this many times, alternating with the others; the median run is reported, with the range.
    #[arg(long, default_value_t = 5)]
    pub(crate) runs: usize,
    /// Do not pin the server to core 1.
    #[arg(long)]
    no_pin: bool,
    /// Write every sample of every run here, as JSON.
    #[arg(long)]
    raw: Option<PathBuf>,
    /// Draw the table into this folder, as SVG.
    #[arg(long)]
    plot: Option<PathBuf>,
}

impl Common {
    pub(crate) fn core(&self) -> Option<usize> {
        (!self.no_pin).then_some(1)
    }

    /// Writes what was asked for beside the table, and puts how it was measured into the report. `rows` are those of
    /// `summary` with what names them; `label`: the name of a row in the plot. `goals`: milliseconds to draw a line at.
    pub(crate) fn report(
        &self,
        scenario: &str,
        (rows, raw): (&[Value], &[Value]),
        label: impl Fn(&Value) -> String,
        goals: &[f64],
    ) -> anyhow::Result<Value> {
        if let Some(path) = &self.raw {
            std::fs::write(path, serde_json::to_vec(raw)?).with_context(|| path.display().to_string())?;
        }
        if let Some(folder) = &self.plot {
            let bar = |row: &Value| {
                let at = |key: &str| row[key].as_f64().unwrap_or(0.0);
                plot::Bar::new(label(row), [at("p50Ms"), at("p99Ms"), at("p999Ms")])
            };
            let bars: Vec<_> = rows.iter().map(bar).collect();
            let title = format!("{scenario}: p50, p99, p99.9 as the client sees it, ms");
            plot::write(folder, scenario, &plot::bars(&title, &bars, goals))?;
        }
        Ok(
            json!({"scenario": scenario, "tls": "1.3, client certificate", "pinned": self.core().is_some(),
            "requests": self.requests, "runs": self.runs, "rows": rows}),
        )
    }
}

/// One series, as the client and as the server saw it.
pub(crate) struct Measured {
    pub(crate) series: Series,
    inside: Inside,
    /// What the server's threads ran for.
    cpu: Duration,
}

/// Each connection sends one request after the other, `count` over all of them; a tenth of that before, untimed. `send`
/// returns the bytes of the answer. `verb`: as the server's histogram calls it.
pub(crate) async fn measure(
    server: &Server,
    verb: &str,
    count: usize,
    connections: &mut [Connection],
    send: impl AsyncFn(&mut Connection) -> anyhow::Result<usize>,
) -> anyhow::Result<Measured> {
    ensure!(!connections.is_empty(), "no connections");
    closed_loop(count.div_ceil(10), connections, &send).await?;
    let (before, ran) = (Inside::scrape(server, verb).await?, server.cpu()?);
    let series = closed_loop(count, connections, &send).await?;
    Ok(Measured {
        cpu: server.cpu()?.saturating_sub(ran),
        inside: Inside::scrape(server, verb).await?.since(&before),
        series,
    })
}

async fn closed_loop(
    count: usize,
    connections: &mut [Connection],
    send: &impl AsyncFn(&mut Connection) -> anyhow::Result<usize>,
) -> anyhow::Result<Series> {
    let each = count.div_ceil(connections.len());
    let begun = Instant::now();
    let work = connections.iter_mut().map(async |connection| {
        let mut samples: Vec<Duration> = Vec::with_capacity(each);
        let mut bytes = 0;
        for _ in 0..each {
            let sent = Instant::now();
            bytes = send(connection).await?;
            samples.push(sent.elapsed());
        }
        anyhow::Ok((samples, bytes))
    });
    let (mut all, mut bytes) = (vec![], 0);
    for done in futures::future::join_all(work).await {
        let (samples, size) = done?;
        all.extend(samples);
        bytes = size;
    }
    Ok(Series::new(all, begun.elapsed(), bytes))
}

/// Of several runs of a case the one with the median p50, as a row (what names the case is in `case`); and all of them with their samples.
pub(crate) fn summary(case: Value, mut runs: Vec<Measured>) -> (Value, Value) {
    runs.sort_by(|a, b| a.series.quantile(0.5).total_cmp(&b.series.quantile(0.5)));
    let samples: Vec<_> = runs.iter().map(|run| run.series.json()).collect();
    let raw = json!({"case": case.clone(), "runs": samples});
    let mut row = case;
    if let Some(Measured { series, inside, cpu }) = runs.get(runs.len() / 2) {
        for (name, q) in [("p50Ms", 0.5), ("p99Ms", 0.99), ("p999Ms", 0.999)] {
            row[name] = series.quantile(q).into();
        }
        let end = |run: Option<&Measured>| run.map(|r| r.series.quantile(0.5));
        row["p50MsRange"] = json!([end(runs.first()), end(runs.last())]);
        row["perSecond"] = series.per_second().into();
        row["perCoreSecond"] = (series.len() as f64 / cpu.as_secs_f64().max(1e-9)).into();
        row["responseBytes"] = series.response_bytes.into();
        row["inside"] = inside.json();
    }
    (row, raw)
}

/// The heads of what `columns` writes.
pub(crate) fn heads() -> String {
    format!(
        "{:>9}{:>9}{:>10}  {:<15}{:>8}{:>8}{:>9}  inside: mean, p50, p99 ms\n",
        "p50 ms", "p99 ms", "p99.9 ms", "p50 range", "req/s", "/core", "bytes"
    )
}

pub(crate) fn columns(row: &Value) -> String {
    let range = format!("{}-{}", number(&row["p50MsRange"][0]), number(&row["p50MsRange"][1]));
    format!(
        "{:>9}{:>9}{:>10}  {:<15}{:>8.0}{:>8.0}{:>9}  {} ≤{} ≤{}\n",
        number(&row["p50Ms"]),
        number(&row["p99Ms"]),
        number(&row["p999Ms"]),
        range,
        row["perSecond"].as_f64().unwrap_or(0.0),
        row["perCoreSecond"].as_f64().unwrap_or(0.0),
        row["responseBytes"].to_string(),
        number(&row["inside"]["meanMs"]),
        number(&row["inside"]["p50MsAtMost"]),
        number(&row["inside"]["p99MsAtMost"]),
    )
}

pub(crate) fn number(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), |n| format!("{n:.3}"))
}

/// A median with its range.
pub(crate) fn spread(value: &Value) -> String {
    let [median, lowest, highest] = ["median", "lowest", "highest"].map(|key| number(&value[key]));
    format!("{median} ({lowest}-{highest})")
}

/// A cell of text without quotes.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(crate) fn rows(report: &Value) -> &[Value] {
    report["rows"].as_array().map(Vec::as_slice).unwrap_or_default()
}
