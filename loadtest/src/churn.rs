//! BENCH.md 3: the client of `verbs` alone and while the cluster changes all the time, in turns; and how long an event takes
//! to be in a published snapshot.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tokio::io::AsyncBufReadExt as _;

use crate::apiserver::ApiServer;
use crate::chart::Chart;
use crate::client::Protocol;
use crate::load::{self, Common};
use crate::population::Population;
use crate::stats::{Series, spread};
use crate::table::{show, table as lines};
use crate::verbs::{self, Case};
use crate::{options, server, watched};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    population: Population,
    /// Events a second.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    rate: u32,
    #[arg(long, default_value_t = 1, value_parser = options::connections())]
    connections: usize,
    #[command(flatten)]
    common: Common<3000>,
}

/// Of all events the first are not counted: caches of the time without them.
const SETTLE: Duration = Duration::from_millis(300);

/// Of the events that were asked for so many percent have to be sent: else it is not that rate that was measured.
const REACHED: f64 = 80.0;

/// The report, and all samples.
pub(crate) async fn run(args: &Args) -> anyhow::Result<(Value, Value)> {
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

    let cases = verbs::ASKED.map(|(verb, fit)| Case {
        verb,
        fit,
        connections: args.connections,
        protocol: Protocol::Http2,
    });
    // Alone, and under events.
    let mut results = cases.map(|_| [vec![], vec![]]);
    let (mut published, mut rates) = (vec![], vec![]);
    for run in 0..common.runs {
        for (case, results) in cases.iter().zip(&mut results) {
            let mut connections = verbs::open(&server, &pki, *case).await?;
            // Who comes first changes.
            for churn in [run % 2 == 1, run % 2 == 0] {
                api.feed(churn);
                tokio::time::sleep(SETTLE).await;
                watched::ask(&mut server.child, &mut lines).await?;
                let (sent, begun) = (api.sent(), Instant::now());
                let measured = verbs::series(&server, *case, population.nodes, common.requests(), &mut connections)
                    .await
                    .with_context(|| match churn {
                        true => format!(
                            "at {} events a second; a lower --rate leaves the server more time",
                            args.rate
                        ),
                        false => "without events".to_owned(),
                    })?;
                if churn {
                    rates.push((api.sent() - sent) as f64 / begun.elapsed().as_secs_f64());
                    published.extend(watched::ask(&mut server.child, &mut lines).await?);
                }
                results[usize::from(churn)].push(measured);
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

    ensure!(
        !published.is_empty() && !quiet.is_empty(),
        "no event was seen while it was measured: give more --requests, or another --rate"
    );
    let sent = spread(&rates);
    ensure!(
        sent["median"]
            .as_f64()
            .is_some_and(|n| n * 100.0 >= REACHED * f64::from(args.rate)),
        "{} events a second were asked for and {} were sent: give a lower --rate",
        args.rate,
        show(&sent, 0)
    );
    let (mut table, mut raw) = (vec![], vec![]);
    for (case, results) in cases.iter().zip(&results) {
        let named = [0, args.rate].map(|events| {
            let mut named = case.json(population.nodes);
            named["eventsPerSecond"] = events.into();
            named
        });
        for (row, samples) in load::pair(named, results) {
            table.push(row);
            raw.push(samples);
        }
    }
    let mut report = common.report("churn", &table);
    let percentiles = |micros: &[u64]| {
        let samples: Vec<_> = micros.iter().map(|us| Duration::from_micros(*us)).collect();
        let series = Series::new(samples, Duration::ZERO, 0);
        json!({"events": series.len(), "p50Ms": series.quantile(0.5), "p99Ms": series.quantile(0.99), "p999Ms": series.quantile(0.999)})
    };
    report["pods"] = population.pods.into();
    report["eventToSnapshot"] = json!({"underRequests": percentiles(&published), "alone": percentiles(&quiet)});
    report["eventsPerSecondSent"] = sent;
    Ok((report, raw.into()))
}

pub(crate) const CHARTS: &[Chart] = &load::paired_charts(&["verb", "fit", "eventsPerSecond"], &["verb", "fit"]);

pub(crate) fn table(report: &Value) -> String {
    let (verb, fit) = (("verb", "verb"), ("fit", "fit"));
    let mut ways = vec![];
    for (name, key) in [("under requests", "underRequests"), ("without requests", "alone")] {
        let mut way = report["eventToSnapshot"][key].clone();
        way["way"] = name.into();
        ways.push(way);
    }
    let columns = [
        ("p50 ms", "p50Ms", 3),
        ("p99 ms", "p99Ms", 3),
        ("p99.9 ms", "p999Ms", 3),
        ("events", "events", 0),
    ];
    format!(
        "{}\nunder events / alone, median of the turns (range)\n{}\nevents sent a second while measured: {}\n\n{}",
        load::lines(report, &[verb, fit, ("events/s", "eventsPerSecond")]),
        load::ratios(report, &[verb, fit]),
        show(&report["eventsPerSecondSent"], 0),
        lines(&ways, &[("from an event to the published snapshot", "way")], &columns)
    )
}
