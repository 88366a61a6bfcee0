//! BENCH.md 6: the client of `verbs` alone and beside others who send bodies that are large, cut off or slow, in turns; and
//! whether each of those was refused as it should be.

use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::Value;

use crate::abuse::{Abuse, Abusers};
use crate::chart::Chart;
use crate::client::Protocol;
use crate::fixture::{self, Fit};
use crate::load::{self, Common};
use crate::stats::spread;
use crate::table::{section, table as lines};
use crate::verbs::{self, Case};
use crate::{options, server};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// 8 at least, as in verbs.
    #[arg(long, default_value_t = 5000, value_parser = options::nodes())]
    nodes: usize,
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Abuse::Large, Abuse::Truncated, Abuse::Slow])]
    abuse: Vec<Abuse>,
    /// Bodies of each kind, at most; those who send them share the client's core.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    abuse_per_second: u32,
    /// Connections with a slow body, half of them to each door.
    #[arg(long, default_value_t = 32, value_parser = options::within(2, 512))]
    slow: usize,
    #[command(flatten)]
    common: Common<3000>,
}

/// Before each series: what the one before left in work is done.
const SETTLE: Duration = Duration::from_millis(300);

/// The report, and all samples.
pub(crate) async fn run(args: &Args) -> anyhow::Result<(Value, Value)> {
    let common = &args.common;
    let folder = tempfile::tempdir()?;
    let (pki, cluster) = (folder.path().join("pki"), folder.path().join("cluster.json"));
    server::certificates(&pki).await?;
    fixture::write(args.nodes, &cluster)?;
    // Not a line for each body that it refuses.
    let command = server::serve(server::Cluster::Files(&cluster), common.core(), "error")?;
    let server = server::spawn(command, &pki).await?;
    let abusers = Abusers::start(server.address, &pki, args.abuse_per_second, args.slow)?;
    let case = Case {
        verb: "filter",
        fit: Fit::All,
        connections: 1,
        protocol: Protocol::Http2,
    };
    // Alone, and beside them; how many of them were sent a second.
    let mut results: Vec<_> = args.abuse.iter().map(|_| ([vec![], vec![]], vec![])).collect();
    for run in 0..common.runs {
        for (abuse, (results, rates)) in args.abuse.iter().zip(&mut results) {
            let mut connections = verbs::open(&server, &pki, case).await?;
            // Who comes first changes.
            for beside in [run % 2 == 1, run % 2 == 0] {
                abusers.tell(beside.then_some(*abuse));
                tokio::time::sleep(SETTLE).await;
                let (sent, begun) = (abusers.sent(), Instant::now());
                let measured = verbs::series(&server, case, args.nodes, common.requests(), &mut connections).await?;
                if beside {
                    rates.push((abusers.sent() - sent) as f64 / begun.elapsed().as_secs_f64());
                }
                results[usize::from(beside)].push(measured);
            }
            abusers.tell(None);
        }
    }
    if args.abuse.contains(&Abuse::Slow) {
        abusers.finish_slow().await;
    }
    let answers = abusers.judge(&args.abuse)?;

    let (mut table, mut raw) = (vec![], vec![]);
    for (abuse, (results, rates)) in args.abuse.iter().zip(&results) {
        ensure!(
            rates.iter().any(|rate| *rate > 0.0),
            "no {} body was sent while it was measured: give more --requests or --abuse-per-second",
            abuse.name()
        );
        let named = ["alone", "beside"].map(|how| {
            let mut named = case.json(args.nodes);
            named["abuse"] = abuse.name().into();
            named["measured"] = how.into();
            named
        });
        for (mut row, samples) in load::pair(named, results) {
            if row["measured"] == "beside" {
                row["abuseSentPerSecond"] = spread(rates);
            }
            table.push(row);
            raw.push(samples);
        }
    }
    let mut report = common.report("bodies", &table);
    report["abusePerSecond"] = args.abuse_per_second.into();
    report["slowConnections"] = args.slow.into();
    report["answers"] = answers.into();
    Ok((report, raw.into()))
}

pub(crate) const CHARTS: &[Chart] = &load::paired_charts(&["abuse", "measured"], &["abuse"]);

pub(crate) fn table(report: &Value) -> String {
    let abuse = ("bodies", "abuse");
    let rows = section(report, "rows");
    let beside = rows.iter().filter(|row| !row["abuseSentPerSecond"].is_null());
    format!(
        "{}\nbeside / alone, median of the turns (range)\n{}\nsent a second while it was measured: bodies, of slow ones pieces\n{}\n{}",
        load::lines(report, &[abuse, ("measured", "measured")]),
        load::ratios(report, &[abuse]),
        lines(beside, &[abuse], &[("sent/s", "abuseSentPerSecond", 0)]),
        lines(
            section(report, "answers"),
            &[("body", "body"), ("answer", "answer")],
            &[("times", "count", 0)]
        )
    )
}
