//! BENCH.md 4: pods through the real control plane, given their devices by the in-tree plugin and by wattlane, in turns.
//!
//! Owns the order of the runs and what is made of them. Each run starts the programs of its side, and ends them.

mod check;
mod page;
#[path = "../../../tests/shared/plane/mod.rs"]
mod plane;
mod side;
mod table;
mod wave;
mod world;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use self::plane::Plane;
use self::side::{Side, Sides};
use self::wave::Order;
use crate::options;
use crate::quality::Dice;
use crate::stats::Series;

pub(crate) use table::{CHARTS, table};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Nodes of eight cards.
    #[arg(long, default_value_t = 200, value_parser = options::within(1, 10_000))]
    nodes: usize,
    /// Pods of two cards with a claim template each.
    #[arg(long, default_value_t = 400, value_parser = options::within(1, 100_000))]
    pods: usize,
    /// Each side this many times, in turns.
    #[arg(long, default_value_t = 5, value_parser = options::runs())]
    runs: usize,
    #[arg(long, value_delimiter = ',', default_values_t = [Side::InTree, Side::Wattlane])]
    sides: Vec<Side>,
    /// Another `wattlane`, of an older build say, for the side `wattlane-other`.
    #[arg(long, value_name = "BINARY")]
    other: Option<PathBuf>,
    /// Creations that wait for the API server at one time.
    #[arg(long, default_value_t = 16, value_parser = options::within(1, 1000))]
    creators: usize,
    /// Pods that are bound and deleted before each run is timed.
    #[arg(long, default_value_t = 32, value_parser = options::within(0, 100_000))]
    warm_up: usize,
    /// Rolls which side goes first in each turn.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seconds after which a run that has not ended is an error.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    patience: u64,
}

/// The report, and all samples.
pub(crate) async fn run(args: &Args) -> anyhow::Result<(Value, Value)> {
    ensure!(
        args.pods.max(args.warm_up) * world::CARDS_A_POD <= args.nodes * crate::fixture::GPUS,
        "{} pods of {} cards do not fit on {} nodes of {}",
        args.pods.max(args.warm_up),
        world::CARDS_A_POD,
        args.nodes,
        crate::fixture::GPUS
    );
    ensure!(
        args.other.is_some() || !args.sides.contains(&Side::WattlaneOther),
        "the side wattlane-other needs --other BINARY"
    );
    let mut plane = Box::pin(Plane::start()).await?;
    let measured = Box::pin(measure(&mut plane, args)).await;
    if measured.is_err() {
        plane.report();
    }
    let (rows, raw) = measured?;
    let report = json!({"scenario": "loop", "nodes": args.nodes, "pods": args.pods, "runs": args.runs, "seed": args.seed,
        "creators": args.creators, "tls": "1.3, client certificate, HTTP/2", "rows": rows});
    Ok((report, raw.into()))
}

/// The rows of the report, and all samples.
async fn measure(plane: &mut Plane, args: &Args) -> anyhow::Result<(Vec<Value>, Vec<Value>)> {
    // Each side brings its own.
    plane.kill("kube-scheduler")?;
    world::build(plane, args.nodes, args.pods.max(args.warm_up)).await?;
    let mut sides = Sides::new(plane, args.other.clone()).await?;
    let mut dice = Dice::new(args.seed, 0);
    let (mut rows, mut raw) = (vec![], vec![]);
    for turn in 0..args.runs {
        let mut order = args.sides.clone();
        dice.shuffle(&mut order);
        for side in order {
            let name = format!("{side}-{turn}");
            let (row, samples) = Box::pin(one(plane, &mut sides, side, args, &name))
                .await
                .with_context(|| format!("run {} of {side}", turn + 1))?;
            eprintln!("{name}: {:.1} pods/s", row["podsPerSecond"].as_f64().unwrap_or(0.0));
            rows.push(row);
            raw.push(samples);
        }
    }
    Ok((rows, raw))
}

async fn one(
    plane: &mut Plane,
    sides: &mut Sides,
    side: Side,
    args: &Args,
    name: &str,
) -> anyhow::Result<(Value, Value)> {
    sides.start(plane, side).await?;
    let order = |name: String, pods: usize| Order {
        name,
        pods,
        scheduler: side.scheduler(),
        creators: args.creators,
        patience: Duration::from_secs(args.patience),
    };
    // Connections, compiled selectors, lists: as in a scheduler that has been at work.
    wave::play(plane, &order(format!("warm-{name}"), args.warm_up)).await?;
    wave::clear(plane).await?;
    let before = sides.look(plane, side).await?;
    let played = wave::play(plane, &order(name.to_owned(), args.pods)).await?;
    let after = sides.look(plane, side).await?;
    let found = check::read(&plane.client()).await?;
    // Not something to average over.
    ensure!(found.given_twice == 0, "{} devices were given twice", found.given_twice);
    ensure!(
        found.elsewhere == 0,
        "{} devices are not on their pod's node",
        found.elsewhere
    );
    ensure!(
        found.without == 0,
        "{} bound pods have not what they asked for",
        found.without
    );
    wave::clear(plane).await?;
    sides.stop(plane, side)?;
    let series = Series::new(played.latencies.clone(), played.took, 0);
    let row = json!({
        "side": side.to_string(), "run": name, "podsPerSecond": series.per_second(), "tookSeconds": played.took.as_secs_f64(),
        "createdSeconds": played.created.as_secs_f64(), "p50Ms": series.quantile(0.5), "p99Ms": series.quantile(0.99),
        "percentageOfNodesToScore": side.percentage(), "deviceGivenTwice": found.given_twice, "inside": after.since(&before),
    });
    let samples = json!({"side": side.to_string(), "run": name, "boundAfterMicros":
        played.latencies.iter().map(|d| d.as_micros() as u64).collect::<Vec<_>>(),
        "boundAtMicros": played.bound_at.iter().map(|d| d.as_micros() as u64).collect::<Vec<_>>()});
    Ok((row, samples))
}
