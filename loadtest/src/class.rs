//! Whether pods of several cards get cards of one wattage on nodes that have several: wattlane against list order, pods
//! without any annotation. What a card is, is known here from how the node was made, not asked of wattlane.

use anyhow::ensure;
use serde_json::{Value, json};
use wattlane::model::Pod;
use wattlane::topology::Link;

use crate::chart::Chart;
use crate::options;
use crate::quality::Dice;
use crate::quality::links::{CARDS, report};
use crate::quality::world::{Given, World, node_name};
use crate::stats::spread;
use crate::table::{rows, table as lines};

const SERVER: &str = "NVIDIA RTX PRO 6000 Blackwell Server Edition";
const MAX_Q: &str = "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition";

/// Cards each claim of a pod asks for: of one container, and of several.
const PODS: [&[u32]; 8] = [&[1], &[2], &[2], &[3], &[4], &[1, 1], &[2, 2], &[1, 2]];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(long, default_value_t = 60, value_parser = options::count())]
    nodes: usize,
    /// Seeds 1 to this.
    #[arg(long, default_value_t = 20, value_parser = options::seeds())]
    seeds: u64,
    /// Percent of all cards that are in use while it is measured.
    #[arg(long, default_value_t = 85, value_parser = options::within(1, 99))]
    level: usize,
    /// So many pods go once the level is reached, and others come for them.
    #[arg(long, default_value_t = 600, value_parser = options::within(0, 1_000_000))]
    churn: usize,
}

/// A node with cards of two wattages, from one to seven of the second anywhere among the eight.
struct Machine {
    products: [&'static str; CARDS],
    watts: [u32; CARDS],
    /// The limits were set on the node, and only a probe tells; it tells the links too.
    probed: bool,
}

impl Machine {
    /// In turns: two products; the same with links that tie cards of different wattage together; one product with two
    /// limits.
    fn roll(node: usize, dice: &mut Dice) -> Self {
        let mut order: [usize; CARDS] = std::array::from_fn(|c| c);
        dice.shuffle(&mut order);
        let lower = 1 + dice.roll(CARDS - 1);
        let is_lower = |card: usize| order[..lower].contains(&card);
        let capped = node % 3 == 2;
        Self {
            products: std::array::from_fn(|c| if is_lower(c) && !capped { MAX_Q } else { SERVER }),
            watts: std::array::from_fn(|c| if is_lower(c) { 300 } else { 600 }),
            probed: !node.is_multiple_of(3),
        }
    }

    fn annotations(&self, node: &str) -> anyhow::Result<Value> {
        if !self.probed {
            return Ok(json!({}));
        }
        let link = |a: usize, b: usize| match (a / 2 == b / 2, a / 4 == b / 4) {
            (true, _) => Link::NvLink(4),
            (_, true) => Link::Node,
            _ => Link::Sys,
        };
        report(node, link, |c| Some(self.watts[c]))
    }

    fn is_mix(&self, given: &Given) -> bool {
        let mut watts = given.cards.iter().map(|c| self.watts[*c]);
        let first = watts.next();
        watts.any(|w| Some(w) != first)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    /// Pods of several cards that were placed, and those of them that got several wattages.
    multi: usize,
    mixed: usize,
    placed: usize,
    refused: usize,
    filled: f64,
}

fn simulate(args: &Args, seed: u64, ours: bool) -> anyhow::Result<Count> {
    let mut made = Dice::new(seed, 3);
    let machines: Vec<Machine> = (0..args.nodes).map(|n| Machine::roll(n, &mut made)).collect();
    let mut world = World::new(&json!({"apiVersion": "wattlane.dev/v1alpha1", "kind": "PlacementPolicy"}))?;
    for (node, machine) in machines.iter().enumerate() {
        world.node(
            node,
            json!({}),
            machine.annotations(&node_name(node))?,
            &machine.products,
        )?;
    }
    world.publish();

    let mut free = vec![[true; CARDS]; args.nodes];
    let (mut arrivals, mut departures) = (Dice::new(seed, 1), Dice::new(seed, 2));
    let mut running: Vec<(Pod, Given)> = vec![];
    let (mut count, mut used, mut gone) = (Count::default(), 0, 0);
    let cards = args.nodes * CARDS;
    // Every turn something comes or goes. Where pods are refused the level may never be reached: then turns end it.
    for _ in 0..cards + 20 * args.churn {
        if 100 * used >= args.level * cards {
            if gone == args.churn {
                break;
            }
            let (pod, given) = running.swap_remove(departures.roll(running.len()));
            world.leave(&pod);
            used -= given.cards.len();
            given.cards.iter().for_each(|c| free[given.node][*c] = true);
            gone += 1;
            continue;
        }
        let wanted = arrivals.pick(&PODS).unwrap_or_default();
        let asked: u32 = wanted.iter().sum();
        let pod = world.arrive(wanted)?;
        let enough = (0..args.nodes).filter(|n| free[*n].iter().filter(|f| **f).count() >= asked as usize);
        let given = match ours {
            true => match world.ours(&pod)? {
                Some((node, placed)) => Some(world.bind(&pod, node, &placed)?),
                None => None,
            },
            false => {
                let given = world.list_order(&pod, enough, |_| true)?;
                if let Some(given) = &given {
                    world.give(&pod, wanted, given)?;
                }
                given
            }
        };
        let Some(given) = given else {
            world.leave(&pod);
            count.refused += 1;
            // Something has to go, or nothing would ever fit again.
            if !running.is_empty() && gone < args.churn {
                let (pod, given) = running.swap_remove(departures.roll(running.len()));
                world.leave(&pod);
                used -= given.cards.len();
                given.cards.iter().for_each(|c| free[given.node][*c] = true);
                gone += 1;
            }
            continue;
        };
        for card in &given.cards {
            ensure!(
                std::mem::take(&mut free[given.node][*card]),
                "a card given twice: {given:?}"
            );
        }
        ensure!(given.cards.len() == asked as usize, "{asked} cards wanted: {given:?}");
        used += given.cards.len();
        count.placed += 1;
        count.multi += usize::from(asked > 1);
        count.mixed += usize::from(machines[given.node].is_mix(&given));
        running.push((pod, given));
    }
    count.filled = used as f64 / cards as f64;
    Ok(count)
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Value> {
    let mut rows = vec![];
    for (name, ours) in [("wattlane", true), ("list order", false)] {
        let counts = (1..=args.seeds).map(|seed| simulate(args, seed, ours));
        let counts: Vec<Count> = counts.collect::<anyhow::Result<_>>()?;
        let of = |f: &dyn Fn(&Count) -> f64| spread(&counts.iter().map(f).collect::<Vec<_>>());
        rows.push(json!({
            "policy": name,
            "multi": of(&|c| c.multi as f64),
            "mixed": of(&|c| c.mixed as f64),
            "mixedPercent": of(&|c| 100.0 * c.mixed as f64 / c.multi as f64),
            "placed": of(&|c| c.placed as f64),
            "refused": of(&|c| c.refused as f64),
            "filledPercent": of(&|c| 100.0 * c.filled),
        }));
    }
    Ok(
        json!({"scenario": "class", "nodes": args.nodes, "seeds": args.seeds, "level": args.level, "churn": args.churn,
        "rows": rows}),
    )
}

pub(crate) const CHARTS: &[Chart] = &[
    Chart::spreads(
        "% of the pods of several cards that got several wattages",
        &["policy"],
        "",
        &[("", "mixedPercent")],
    ),
    Chart::spreads("pods refused", &["policy"], "", &[("", "refused")]),
];

pub(crate) fn table(report: &Value) -> String {
    let columns = [
        ("pods of several cards", "multi", 0),
        ("mixed", "mixed", 0),
        ("mixed %", "mixedPercent", 1),
        ("all pods", "placed", 0),
        ("refused", "refused", 0),
        ("filled %", "filledPercent", 1),
    ];
    lines(rows(report), &[("policy", "policy")], &columns)
}

#[cfg(test)]
mod tests {
    use super::{CARDS, Machine};
    use crate::quality::Dice;
    use crate::quality::world::Given;

    #[test]
    fn every_machine_has_both_wattages_and_sees_a_mix() {
        let mut dice = Dice::new(1, 3);
        for node in 0..30 {
            let machine = Machine::roll(node, &mut dice);
            let given = |cards: Vec<usize>| Given { node, cards };
            assert!(machine.is_mix(&given((0..CARDS).collect())), "{:?}", machine.watts);
            let low: Vec<usize> = (0..CARDS).filter(|c| machine.watts[*c] == 300).collect();
            assert!(!machine.is_mix(&given(low)));
            // Only a probe tells one product's limits apart.
            let one_product = machine.products.iter().all(|p| *p == machine.products[0]);
            assert!(!one_product || machine.probed);
        }
    }
}
