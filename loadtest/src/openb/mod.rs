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

use crate::chart::Chart;
use crate::options;
use crate::quality::Dice;
use crate::stats::spread;
use crate::table::{rows, table as lines};
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
    #[arg(long, default_value_t = 10, value_parser = options::seeds())]
    seeds: u64,
    #[arg(long, default_value_t = 42, value_parser = clap::value_parser!(u64).range(0..=1_000_000_000))]
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
    let wanted = |policy: &str| args.only.as_ref().is_none_or(|only| policy.contains(&**only));
    ensure!(
        POLICIES.iter().any(|(policy, ..)| wanted(policy)),
        "no policy has {:?} in its name; there are {}",
        args.only.as_deref().unwrap_or_default(),
        POLICIES.map(|(policy, ..)| policy).join(", ")
    );
    let mut rows = vec![];
    for name in &args.pods {
        let trace = Trace::read(&args.openb, name)?;
        for (policy, by, ties) in &POLICIES {
            if !wanted(policy) {
                continue;
            }
            for ties in *ties {
                let seeds = args.first..args.first + args.seeds;
                let runs = seeds.map(|seed| filling(&trace, *by, *ties, args, seed));
                let runs: Vec<Vec<Point>> = runs.collect::<anyhow::Result<_>>()?;
                let over = |of: &dyn Fn(&Point) -> f64| -> Vec<Value> {
                    let at = |i: usize| spread(&runs.iter().map(|run| of(&run[i])).collect::<Vec<_>>());
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

const LINE: &[&str] = &["pods", "ties"];
// Numbers in paths are positions in `ARRIVED`.
pub(crate) const CHARTS: &[Chart] = &[
    Chart::spreads(
        "given out when 100 % have arrived, % of all",
        LINE,
        "policy",
        &[("", "givenPercent/4")],
    ),
    Chart::spreads("given out at 130 %", LINE, "policy", &[("", "givenPercent/5")]),
    Chart::spreads("kW when 80 % have arrived", LINE, "policy", &[("", "kilowatts/1")]),
    Chart::spreads("kW at 100 %", LINE, "policy", &[("", "kilowatts/4")]),
];

pub(crate) fn table(report: &Value) -> String {
    let columns = [
        ("given % at 95", "givenPercent/3", 2),
        ("given % at 100", "givenPercent/4", 2),
        ("given % at 130", "givenPercent/5", 2),
        ("kW at 50", "kilowatts/0", 0),
        ("kW at 80", "kilowatts/1", 0),
        ("kW at 90", "kilowatts/2", 0),
        ("kW at 100", "kilowatts/4", 0),
    ];
    let names = [("pods", "pods"), ("policy", "policy"), ("ties", "ties")];
    lines(rows(report), &names, &columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_of_the_percent_they_say() {
        let all = ARRIVED.map(|percent| spread(&[percent as f64]));
        let row = json!({"pods": "p", "policy": "w", "ties": "t", "givenPercent": all, "kilowatts": all});
        let out = table(&json!({"rows": [row]}));
        let (heads, values) = out.trim_end().split_once('\n').expect("two lines");
        let said = heads.split("at ").skip(1).filter_map(|h| h.split_whitespace().next());
        let shown = values.split_whitespace().skip(3).filter_map(|v| v.split('.').next());
        assert_eq!(said.collect::<Vec<_>>(), shown.collect::<Vec<_>>(), "{out}");
    }
}
