//! What the scenarios over TLS share: their options, the client that asks again as soon as it is answered, and the columns
//! of a case.

use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::{Value, json};

use crate::chart::{Chart, Shown};
use crate::client::Connection;
use crate::options;
use crate::scrape::Inside;
use crate::server::Server;
use crate::stats::{Series, spread};
use crate::table::{rows, table};

/// `REQUESTS`: how many by default. (As a default value of clap it would be one for all scenarios: clap keeps that in a static,
/// of which a generic function has one for all its types.)
#[derive(Debug, clap::Args)]
pub(crate) struct Common<const REQUESTS: usize> {
    /// Requests of each series, over all connections; a tenth more is sent first to warm up.
    /// 1,000, or 3,000 where something else happens beside them.
    #[arg(long, value_parser = options::count())]
    requests: Option<usize>,
    /// Each series this many times, alternating with the others; medians are reported, with the range.
    #[arg(long, default_value_t = 5, value_parser = options::runs())]
    pub(crate) runs: usize,
    /// Do not pin the server to core 1.
    #[arg(long)]
    no_pin: bool,
}

impl<const REQUESTS: usize> Common<REQUESTS> {
    pub(crate) fn core(&self) -> Option<usize> {
        (!self.no_pin).then_some(1)
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.unwrap_or(REQUESTS)
    }

    /// How it was measured, and the rows.
    pub(crate) fn report(&self, scenario: &str, rows: &[Value]) -> Value {
        json!({"scenario": scenario, "tls": "1.3, client certificate", "pinned": self.core().is_some(),
            "requests": self.requests(), "runs": self.runs, "rows": rows})
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

/// All runs of a case as a row (what names the case is in `case`), and with their samples.
pub(crate) fn summary(case: Value, runs: &[Measured]) -> (Value, Value) {
    let samples: Vec<_> = runs.iter().map(|run| run.series.json()).collect();
    let raw = json!({"case": case.clone(), "runs": samples});
    let over_runs = |of: &dyn Fn(&Measured) -> f64| spread(&runs.iter().map(of).collect::<Vec<_>>());
    let mut row = case;
    for (name, q) in [("p50Ms", 0.5), ("p99Ms", 0.99), ("p999Ms", 0.999)] {
        row[name] = over_runs(&|run| run.series.quantile(q));
    }
    row["perSecond"] = over_runs(&|run| run.series.per_second());
    row["perCoreSecond"] = over_runs(&|run| run.series.len() as f64 / run.cpu.as_secs_f64().max(1e-9));
    row["responseBytes"] = runs.last().map(|run| run.series.response_bytes).into();
    let inside = runs.iter().fold(Inside::default(), |sum, run| sum.plus(&run.inside));
    row["inside"] = inside.json();
    (row, raw)
}

/// The same client alone and beside something, in turns: two rows, of which the second has the ratios within each turn.
pub(crate) fn pair(named: [Value; 2], [alone, beside]: &[Vec<Measured>; 2]) -> [(Value, Value); 2] {
    let ratio = |q: f64| {
        let turns = alone.iter().zip(beside);
        spread(
            &turns
                .map(|(a, b)| b.series.quantile(q) / a.series.quantile(q))
                .collect::<Vec<_>>(),
        )
    };
    let [first, second] = named;
    let (first, mut second) = (summary(first, alone), summary(second, beside));
    second.0["ratio"] = json!({"p50": ratio(0.5), "p99": ratio(0.99)});
    [first, second]
}

/// A line a row, named by these fields.
pub(crate) fn lines(report: &Value, names: &[(&str, &str)]) -> String {
    let columns = [
        ("p50 ms", "p50Ms", 3),
        ("p99 ms", "p99Ms", 3),
        ("p99.9 ms", "p999Ms", 3),
        ("req/s", "perSecond/median", 0),
        ("/core", "perCoreSecond/median", 0),
        ("bytes", "responseBytes", 0),
        ("inside: mean ms", "inside/meanMs", 3),
        ("p50 ≤", "inside/p50MsAtMost", 3),
        ("p99 ≤", "inside/p99MsAtMost", 3),
    ];
    table(rows(report), names, &columns)
}

/// The ratios of `pair`.
pub(crate) fn ratios(report: &Value, names: &[(&str, &str)]) -> String {
    let rows = rows(report).iter().filter(|r| !r["ratio"].is_null());
    table(rows, names, &[("p50", "ratio/p50", 2), ("p99", "ratio/p99", 2)])
}

/// As the client sees it, and inside the server. No goals: those are of the server, and of some rows only.
pub(crate) const fn charts(line: &'static [&'static str]) -> [Chart; 2] {
    [
        rising(
            "as the client sees it, ms: p50, thick to p99, thin to p99.9",
            line,
            ["p50Ms/median", "p99Ms/median", "p999Ms/median"],
        ),
        rising(
            "inside the server, ms: mean, thick to the upper bound of the bucket that holds p99",
            line,
            ["inside/meanMs", "inside/p99MsAtMost", "inside/p99MsAtMost"],
        ),
    ]
}

const fn rising(title: &'static str, line: &'static [&'static str], paths: [&'static str; 3]) -> Chart {
    Chart {
        shown: Shown::Rising(paths),
        ..Chart::spreads(title, line, "", &[]).logarithmic()
    }
}

/// Of a table of pairs; `turn` names both rows of one.
pub(crate) const fn paired_charts(line: &'static [&'static str], turn: &'static [&'static str]) -> [Chart; 3] {
    let [client, inside] = charts(line);
    let values = &[("p50", "ratio/p50"), ("p99", "ratio/p99")];
    let title = "beside or under what is told / alone, within each turn: median and range";
    [client, inside, Chart::spreads(title, turn, "", values)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_middle_of_an_even_number_of_runs_and_the_ratio_of_turns() {
        let run = |ms: u64| Measured {
            series: Series::new(vec![Duration::from_millis(ms); 10], Duration::from_secs(1), 7),
            inside: Inside::default(),
            cpu: Duration::from_secs(2),
        };
        let runs = [vec![run(10), run(20)], vec![run(20), run(60)]];
        let [(alone, raw), (beside, _)] = pair([json!({"who": "a"}), json!({"who": "b"})], &runs);
        assert_eq!(
            alone["p50Ms"],
            json!({"median": 15.0, "least": 10.0, "most": 20.0, "samples": [10.0, 20.0]})
        );
        assert_eq!(
            (&alone["perSecond"]["median"], &alone["perCoreSecond"]["median"]),
            (&json!(10.0), &json!(5.0))
        );
        assert!(alone["ratio"].is_null());
        assert_eq!(
            (&beside["who"], &beside["ratio"]["p99"]["median"]),
            (&json!("b"), &json!(2.5))
        );
        assert_eq!(raw["runs"][1]["samplesMicros"][0], 20_000);
    }
}
