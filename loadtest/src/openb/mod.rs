//! The inflation experiment of "Beware of Fragmentation" (FGD, USENIX ATC'23) on its trace: pods come until they have asked
//! for more than all cards, none leaves, and what fits nowhere is dropped. How much of the cards is given out, and what
//! the machines draw, by policy and by how the scheduler breaks ties.

mod fgd;
mod fleet;
mod ours;
mod rivals;
mod trace;

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::quality::{Dice, columns, over_seeds, show};
use fleet::Room;
use rivals::Rival;
use trace::Trace;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory of the trace.
    #[arg(long, default_value = "../shared/data/openb")]
    openb: PathBuf,
    /// Lists of pods: openb_pod_list_<name>.csv.
    #[arg(long, value_delimiter = ',', default_values_t = ["default".to_owned(), "multigpu50".to_owned()])]
    pods: Vec<String>,
    /// From `--first` on.
    #[arg(long, default_value_t = 10)]
    seeds: u64,
    #[arg(long, default_value_t = 42)]
    first: u64,
    /// Draw each pod from the whole trace, instead of going through it once in any order first.
    #[arg(long)]
    redrawn: bool,
    /// Only policies whose name has this in it.
    #[arg(long)]
    only: Option<String>,
}

/// How the scheduler chooses among nodes of one best score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ties {
    Random,
    First,
}

#[derive(Clone, Copy, Debug)]
enum Policy {
    Rival(Rival),
    Wattlane,
}

const POLICIES: [(&str, Policy, &[Ties]); 6] = [
    ("random", Policy::Rival(Rival::Random), &[Ties::Random]),
    ("first fit", Policy::Rival(Rival::First), &[Ties::First]),
    ("best fit", Policy::Rival(Rival::Best), &BOTH),
    ("FGD", Policy::Rival(Rival::Fgd), &BOTH),
    ("FGD + power 0.1", Policy::Rival(Rival::FgdPower), &BOTH),
    ("wattlane", Policy::Wattlane, &BOTH),
];
const BOTH: [Ties; 2] = [Ties::Random, Ties::First];

/// Percent of the capacity asked for at which it is looked, refused pods included.
const ARRIVED: [u64; 6] = [50, 80, 90, 95, 100, 130];
/// Those at which the table has what is given out, and what is drawn.
const GIVEN_AT: [u64; 3] = [95, 100, 130];
const DRAWN_AT: [u64; 4] = [50, 80, 90, 100];

#[derive(Clone, Copy, Debug, Default)]
struct Point {
    given_percent: f64,
    kilowatts: f64,
    refused: usize,
}

fn filling(trace: &Trace, policy: Policy, ties: Ties, args: &Args, seed: u64) -> anyhow::Result<Vec<Point>> {
    let (mut arrivals, mut dice) = (Dice::new(seed, 1), Dice::new(seed, 2));
    let last = ARRIVED.iter().copied().max().unwrap_or_default();
    let mut rooms: Vec<Room<'_>> = trace.machines.iter().map(Room::new).collect();
    let (mut rival, mut ours) = match policy {
        Policy::Rival(rival) => (Some(rivals::Chooser::new(rival, ties, trace)), None),
        Policy::Wattlane => (None, Some(ours::Ours::new(ties, trace)?)),
    };
    let (mut asked, mut given, mut refused, mut points) = (0, 0, 0, vec![]);
    for pod in trace.arrivals(last, args.redrawn, &mut arrivals) {
        let shape = &trace.shapes[pod];
        asked += shape.units();
        let chosen = match (&mut rival, &mut ours) {
            (Some(rival), _) => rival.choose(&rooms, pod, &mut dice),
            (_, Some(ours)) => ours.choose(&rooms, pod, &mut dice)?,
            _ => None,
        };
        match chosen {
            Some((node, cards)) => {
                let room = rooms.get_mut(node).context("a node that is not there")?;
                ensure!(
                    room.take(shape, &cards),
                    "what is taken was given: node {node}, cards {cards:?}"
                );
                given += shape.units();
            }
            None => refused += 1,
        }
        while ARRIVED
            .get(points.len())
            .is_some_and(|at| asked * 100 >= at * trace.capacity())
        {
            points.push(Point {
                given_percent: 100.0 * given as f64 / trace.capacity() as f64,
                kilowatts: rooms.iter().map(Room::watts).sum::<u64>() as f64 / 1000.0,
                refused,
            });
        }
    }
    ensure!(
        points.len() == ARRIVED.len(),
        "the pods ended before they had asked for all"
    );
    Ok(points)
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Value> {
    ensure!(args.seeds > 0 && !args.pods.is_empty(), "nothing to measure");
    let mut rows = vec![];
    for name in &args.pods {
        let trace = Trace::read(&args.openb, name)?;
        for (policy, by, ties) in &POLICIES {
            if args.only.as_ref().is_some_and(|only| !policy.contains(&**only)) {
                continue;
            }
            for ties in *ties {
                let seeds = args.first..args.first.saturating_add(args.seeds);
                let runs = seeds.map(|seed| filling(&trace, *by, *ties, args, seed));
                let runs: Vec<Vec<Point>> = runs.collect::<anyhow::Result<_>>()?;
                let over = |of: &dyn Fn(&Point) -> f64| -> Vec<Value> {
                    let at = |i: usize| over_seeds(&runs.iter().map(|run| of(&run[i])).collect::<Vec<_>>());
                    (0..ARRIVED.len()).map(at).collect()
                };
                rows.push(
                    json!({"pods": trace.name, "policy": policy, "ties": format!("{ties:?}").to_lowercase(),
                    "givenPercent": over(&|p| p.given_percent), "kilowatts": over(&|p| p.kilowatts),
                    "refused": over(&|p| p.refused as f64)}),
                );
            }
        }
    }
    Ok(
        json!({"scenario": "openb", "seeds": args.seeds, "firstSeed": args.first, "redrawn": args.redrawn,
        "arrivedPercent": ARRIVED, "rows": rows}),
    )
}

pub(crate) fn table(report: &Value) -> String {
    let at = |percent: &u64| ARRIVED.iter().position(|a| a == percent).unwrap_or_default();
    let mut head: Vec<String> = ["pods", "policy", "ties"].map(String::from).to_vec();
    head.extend(GIVEN_AT.iter().map(|p| format!("given % at {p}")));
    head.extend(DRAWN_AT.iter().map(|p| format!("kW at {p}")));
    let mut rows = vec![head];
    for row in report["rows"].as_array().map(Vec::as_slice).unwrap_or_default() {
        let mut cells: Vec<String> = ["pods", "policy", "ties"]
            .map(|k| row[k].as_str().unwrap_or("?").to_owned())
            .to_vec();
        cells.extend(GIVEN_AT.iter().map(|p| show(&row["givenPercent"][at(p)], 2)));
        cells.extend(DRAWN_AT.iter().map(|p| show(&row["kilowatts"][at(p)], 0)));
        rows.push(cells);
    }
    columns(&rows, 3)
}
