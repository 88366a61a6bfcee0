//! BENCH.md 3: the client of `verbs` alone and while the cluster changes all the time, in turns; and how long an event takes
//! to be in a published snapshot.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tokio::io::AsyncBufReadExt as _;

use crate::apiserver::ApiServer;
use crate::client::{Connection, Protocol};
use crate::fixture::Fit;
use crate::load::{self, Common, measure, number, rows, text};
use crate::population::Population;
use crate::stats::{Series, median_and_range};
use crate::verbs::{self, Case};
use crate::{server, watched};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    population: Population,
    /// Events a second.
    #[arg(long, default_value_t = 1000)]
    rate: u32,
    #[arg(long, default_value_t = 1)]
    connections: usize,
    #[command(flatten)]
    common: Common,
}

/// Of all events the first are not counted: caches of the time without them.
const SETTLE: Duration = Duration::from_millis(300);

pub(crate) async fn run(args: &Args) -> anyhow::Result<Value> {
    let common = &args.common;
    let folder = tempfile::tempdir()?;
    let (pki, kubeconfig) = (folder.path().join("pki"), folder.path().join("kubeconfig"));
    server::certificates(&pki).await?;
    let population = args.population;
    let api = ApiServer::start(population, args.rate)?;
    api.write_kubeconfig(&kubeconfig)?;
    let mut command = server::pinned(&std::env::current_exe()?, common.core());
    command.arg("watched").arg("--kubeconfig").arg(&kubeconfig);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = server::spawn(command, &pki).await?;
    let stdout = server.child.stdout.take().context("no stdout")?;
    let mut lines = tokio::io::BufReader::new(stdout).lines();
    let lists = api.lists();

    let case = |verb, fit| Case {
        verb,
        fit,
        connections: args.connections,
        protocol: Protocol::Http2,
    };
    let cases = [
        case("filter", Fit::All),
        case("filter", Fit::None),
        case("prioritize", Fit::All),
    ];
    // Alone, and under events.
    let mut results = cases.map(|_| [vec![], vec![]]);
    let (mut published, mut rates) = (vec![], vec![]);
    for run in 0..common.runs {
        for (case, results) in cases.iter().zip(&mut results) {
            let mut connections = verbs::open(&server, &pki, *case).await?;
            let (body, path) = (
                verbs::body(case.fit, population.nodes),
                format!("/extender/{}", case.verb),
            );
            let send = async |c: &mut Connection| Ok(c.post(&path, body.clone()).await?.len());
            // Who comes first changes.
            for churn in [run % 2 == 1, run % 2 == 0] {
                api.feed(churn);
                tokio::time::sleep(SETTLE).await;
                watched::ask(&mut server.child, &mut lines).await?;
                let (sent, begun) = (api.sent(), Instant::now());
                let measured = measure(&server, case.verb, common.requests, &mut connections, send).await?;
                if churn {
                    rates.push((api.sent() - sent) as f64 / begun.elapsed().as_secs_f64());
                    published.extend(watched::ask(&mut server.child, &mut lines).await?);
                }
                results[usize::from(churn)].push(measured);
                // The answer is right in the middle of it, too.
                let first = connections.first_mut().context("no connections")?;
                verbs::check(*case, population.nodes, &first.post(&path, body.clone()).await?)?;
            }
        }
    }
    // Without requests: what the way itself takes.
    api.feed(true);
    tokio::time::sleep(SETTLE).await;
    watched::ask(&mut server.child, &mut lines).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let quiet = watched::ask(&mut server.child, &mut lines).await?;
    api.feed(false);
    ensure!(
        api.lists() == lists,
        "a watch was lost and listed again meanwhile: what was measured is not what it says"
    );

    let (mut table, mut raw) = (vec![], vec![]);
    for (case, results) in cases.iter().zip(results) {
        let ratio = |q: f64| {
            let [alone, churn] = &results;
            let pairs = alone.iter().zip(churn);
            median_and_range(
                pairs
                    .map(|(a, c)| c.series.quantile(q) / a.series.quantile(q))
                    .collect(),
            )
        };
        let ratios = json!({"p50": ratio(0.5), "p99": ratio(0.99)});
        for (events, results) in [0, args.rate].into_iter().zip(results) {
            let mut named = case.json(population.nodes);
            named["eventsPerSecond"] = events.into();
            let (mut row, samples) = load::summary(named, results);
            if events > 0 {
                row["ratio"] = ratios.clone();
            }
            table.push(row);
            raw.push(samples);
        }
    }
    let mut report = common.report("churn", (&table, &raw), |row| label(row).join(" "), &[])?;
    let spread = |micros: &[u64]| {
        let samples: Vec<_> = micros.iter().map(|us| Duration::from_micros(*us)).collect();
        let series = Series::new(samples, Duration::ZERO, 0);
        json!({"events": series.len(), "p50Ms": series.quantile(0.5), "p99Ms": series.quantile(0.99), "p999Ms": series.quantile(0.999)})
    };
    report["pods"] = population.pods.into();
    report["eventToSnapshot"] = json!({"underRequests": spread(&published), "alone": spread(&quiet)});
    report["eventsPerSecondSent"] = median_and_range(rates);
    Ok(report)
}

fn label(row: &Value) -> [String; 3] {
    ["verb", "fit", "eventsPerSecond"].map(|key| text(&row[key]))
}

pub(crate) fn table(report: &Value) -> String {
    let name = |[verb, fit, events]: [&str; 3]| format!("{verb:<11}{fit:<5}{events:>9}");
    let mut out = name(["verb", "fit", "events/s"]) + &load::heads();
    for row in rows(report) {
        out += &name(label(row).each_ref().map(String::as_str));
        out += &load::columns(row);
    }
    out += "\nunder events / alone, median of the pairs (range)\n";
    let of = load::spread;
    for row in rows(report).iter().filter(|r| !r["ratio"].is_null()) {
        let ([verb, fit, _], ratio) = (label(row), &row["ratio"]);
        out += &format!(
            "{verb:<11}{fit:<5} p50 {}   p99 {}\n",
            of(&ratio["p50"]),
            of(&ratio["p99"])
        );
    }
    out += &format!(
        "\nevents sent a second while measured: {}\n",
        of(&report["eventsPerSecondSent"])
    );
    for (name, key) in [("under requests", "underRequests"), ("without requests", "alone")] {
        let spread = &report["eventToSnapshot"][key];
        out += &format!(
            "from an event to the published snapshot, {name}: p50 {}, p99 {}, p99.9 {} ms ({} events)\n",
            number(&spread["p50Ms"]),
            number(&spread["p99Ms"]),
            number(&spread["p999Ms"]),
            spread["events"]
        );
    }
    out
}
