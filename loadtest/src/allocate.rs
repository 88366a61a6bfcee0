//! One decision on one node: wattlane and the in-tree allocator of Kubernetes on the same documents, in turns. The
//! in-tree side is the oracle's timing mode (tests/oracle), built from the modules kube-scheduler is built from.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::chart::Chart;
use crate::options;
use crate::prepared::Prepared;
use crate::prepared::case::Case;
use crate::prepared::shapes::shapes;
use crate::stats::spread;
use crate::table::{rows, table as lines};

/// How long the in-tree allocator may think about one case; kube-scheduler's own limit is 10 s.
const TIMEOUT: &str = "60s";
/// Runs of one side in one round, whatever `--millis` says.
const RUNS: (u64, u64) = (3, 100_000);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rounds: each times both sides of every shape once, one after the other.
    #[arg(long, default_value_t = 7, value_parser = options::runs())]
    rounds: usize,
    /// About how long one side of one shape runs in a round (at least three times).
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    millis: u64,
    /// The in-tree allocator, as tests/oracle/build makes it [default: target/oracle/oracle].
    #[arg(long)]
    oracle: Option<PathBuf>,
}

/// Mean nanoseconds of one run, by round.
#[derive(Default)]
struct Ours {
    demand: Vec<f64>,
    check: Vec<f64>,
    place: Vec<f64>,
}

#[derive(Default)]
struct InTree {
    allocate: Vec<f64>,
    whole: Vec<f64>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Value> {
    ensure!(
        !cfg!(debug_assertions),
        "times of a debug build say nothing: build with --release"
    );
    let oracle = match &args.oracle {
        Some(path) => path.clone(),
        None => beside_our_build().context("no target directory: give --oracle")?,
    };
    let shapes: Vec<_> = shapes()
        .into_iter()
        .map(|(name, case)| (name, Prepared::of(&case), case))
        .collect();
    let mut times: Vec<(Ours, InTree)> = shapes.iter().map(|_| Default::default()).collect();
    let mut runs = vec![];
    for (name, prepared, case) in &shapes {
        let (fits, took) = agree(&oracle, prepared, case).with_context(|| (*name).to_owned())?;
        runs.push((fits, (args.millis * 1_000_000 / took.max(1)).clamp(RUNS.0, RUNS.1)));
    }
    for _ in 0..args.rounds {
        for (((name, prepared, case), (ours, theirs)), (_, in_tree)) in shapes.iter().zip(&mut times).zip(&runs) {
            let timing = &ask(&oracle, case, *in_tree).with_context(|| (*name).to_owned())?["timing"];
            let ns = |field: &str| {
                timing[field]
                    .as_f64()
                    .with_context(|| format!("{name}: no {field} in {timing}"))
            };
            theirs.allocate.push(ns("allocateMeanNs")?);
            theirs.whole.push(ns("wholeMeanNs")?);
            ours.measure(prepared, Duration::from_millis(args.millis));
        }
    }
    let rows = shapes
        .iter()
        .zip(&times)
        .zip(&runs)
        .map(|(((name, ..), (ours, theirs)), (fits, in_tree))| {
            let by_round = |f: &dyn Fn(usize) -> f64| (0..args.rounds).map(f).collect::<Vec<_>>();
            let ratio = by_round(&|i| theirs.allocate[i] / ours.place[i]);
            let whole = by_round(&|i| theirs.allocate[i] / (ours.demand[i] + ours.check[i] + ours.place[i]));
            json!({"shape": name, "fits": fits, "inTreeRunsARound": in_tree,
            "inTreeAllocateNs": spread(&theirs.allocate), "inTreeWholeNs": spread(&theirs.whole),
            "demandNs": spread(&ours.demand), "checkNs": spread(&ours.check), "placeNs": spread(&ours.place),
            "ratio": spread(&ratio), "ratioWhole": spread(&whole)})
        });
    Ok(json!({"scenario": "allocate", "rounds": args.rounds, "millis": args.millis, "rows": rows.collect::<Vec<_>>()}))
}

/// `target/oracle/oracle`, where this program is `target/release/wattlane-loadtest`.
fn beside_our_build() -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.parent()?.parent()?.join("oracle/oracle"))
}

/// The case in the timing mode of the oracle.
fn ask(oracle: &Path, case: &Case, runs: u64) -> anyhow::Result<Value> {
    let mut child = Command::new(oracle)
        .args(["-timeout", TIMEOUT, "-repeat", &runs.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("{}: run tests/oracle/build first", oracle.display()))?;
    let mut input = child.stdin.take().context("no pipe to the oracle")?;
    writeln!(input, "{}", case.doc)?;
    drop(input); // the end of the cases
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "the oracle ended with {}", output.status);
    let answer: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(
        answer["error"].is_null(),
        "the in-tree allocator failed: {}",
        answer["error"]
    );
    Ok(answer)
}

/// Both say the same before anything is timed: whether it fits, and about how many ns the in-tree allocator takes.
fn agree(oracle: &Path, prepared: &Prepared, case: &Case) -> anyhow::Result<(bool, u64)> {
    let answer = ask(oracle, case, 3)?;
    let theirs = answer["fits"].as_bool().context("no answer")?;
    let demand = prepared.demand();
    let (check, place) = (prepared.check(&demand), prepared.place(&demand));
    ensure!(
        check.is_ok() == theirs && place.is_ok() == theirs,
        "in-tree: fits {theirs}; wattlane: {check:?}, {place:?}"
    );
    Ok((
        theirs,
        answer["timing"]["allocateMeanNs"].as_u64().context("no timing")?,
    ))
}

impl Ours {
    /// Each run reads the pod, checks and places it; timed apart.
    fn measure(&mut self, prepared: &Prepared, during: Duration) {
        let began = Instant::now();
        let (mut sums, mut runs) = ([Duration::ZERO; 3], 0_u32);
        while runs < 3 || began.elapsed() < during {
            let start = Instant::now();
            let demand = prepared.demand();
            let read = Instant::now();
            let check = prepared.check(&demand);
            let checked = Instant::now();
            let place = prepared.place(&demand);
            let placed = Instant::now();
            std::hint::black_box((check.is_ok(), place.is_ok()));
            for (sum, took) in sums.iter_mut().zip([read - start, checked - read, placed - checked]) {
                *sum += took;
            }
            runs += 1;
        }
        let [demand, check, place] = sums.map(|sum| sum.as_nanos() as f64 / f64::from(runs));
        self.demand.push(demand);
        self.check.push(check);
        self.place.push(place);
    }
}

pub(crate) const CHARTS: &[Chart] = &[
    Chart::spreads(
        "mean ns of one decision: median and range of the rounds",
        &["shape"],
        "",
        &[
            ("in-tree", "inTreeAllocateNs"),
            ("demand", "demandNs"),
            ("check", "checkNs"),
            ("place", "placeNs"),
        ],
    )
    .logarithmic(),
    Chart::spreads(
        "in-tree / wattlane within each round",
        &["shape"],
        "",
        &[("place", "ratio"), ("demand + check + place", "ratioWhole")],
    )
    .logarithmic(),
];

pub(crate) fn table(report: &Value) -> String {
    let columns = [
        ("in-tree ns", "inTreeAllocateNs", 0),
        ("demand", "demandNs/median", 0),
        ("check", "checkNs/median", 0),
        ("place", "placeNs", 0),
        ("ratio", "ratio", 1),
        ("whole", "ratioWhole/median", 1),
    ];
    lines(rows(report), &[("shape", "shape"), ("fits", "fits")], &columns)
}
