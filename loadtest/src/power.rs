//! What a filling cluster draws, with and without the watts objective and in list order; and whether a hard budget holds,
//! and what it leaves room for. Draw is the sum of class watts of the cards that pods hold: no idle draw, no CPU, no
//! memory, every card given whole. Added up here from the allocations and from how the nodes were made.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wattlane::model::Pod;

use crate::chart::Chart;
use crate::options;
use crate::quality::Dice;
use crate::quality::world::{Given, World};
use crate::stats::spread;
use crate::table::{section, table as lines};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seeds 1 to this.
    #[arg(long, default_value_t = 5, value_parser = options::seeds())]
    seeds: u64,
    /// Budget of each rack in percent of what all its cards draw.
    #[arg(long, default_value_t = 80, value_parser = clap::value_parser!(u64).range(1..=100))]
    budget: u64,
    /// Under the budget, once as many cards were asked for as there are, so many pods go, and others come for them.
    #[arg(long, default_value_t = 500, value_parser = options::within(0, 1_000_000))]
    churn: usize,
    /// Nodes of the openb trace; nodes of our own where the file is not there.
    #[arg(long, default_value = "../shared/data/openb/openb_node_list_gpu_node.csv")]
    openb: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Product {
    class: &'static str,
    name: &'static str,
    watts: u64,
}

const fn product(class: &'static str, name: &'static str, watts: u64) -> Product {
    Product { class, name, watts }
}

/// Ours: of no product here is anything known of its links, so that links decide nothing.
const SERVER: Product = product("server-600w", "NVIDIA RTX PRO 6000 Blackwell Server Edition", 600);
const L40S: Product = product("l40s-350w", "NVIDIA L40S", 350);
const MAX_Q: Product = product(
    "maxq-300w",
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
    300,
);

/// The trace's models by what a card in use draws (arXiv 2412.17484); V100 of both sizes draw the same and are two classes.
const OPENB: [Product; 7] = [
    product("t4", "T4", 70),
    product("a10", "A10", 150),
    product("g2", "G2", 150),
    product("p100", "P100", 250),
    product("v100m16", "V100M16", 300),
    product("v100m32", "V100M32", 300),
    product("g3", "G3", 400),
];

/// Nodes of one rack, in the fleets of ours and of the trace.
const RACK: usize = 12;
const OPENB_RACK: usize = 24;
const NODES: usize = 120;

struct Fleet {
    name: &'static str,
    products: Vec<Product>,
    /// By node.
    cards: Vec<Vec<Product>>,
    rack: Vec<usize>,
}

impl Fleet {
    /// Eight cards a node, in turns: 600 W only, 350 W only, 300 W only, 600 W and 300 W in any order.
    fn synthetic(dice: &mut Dice) -> Self {
        let node = |n: usize, dice: &mut Dice| match n % 4 {
            0 => vec![SERVER; 8],
            1 => vec![L40S; 8],
            2 => vec![MAX_Q; 8],
            _ => {
                let lower = 1 + dice.roll(7);
                let mut cards: Vec<Product> = (0..8).map(|c| if c < lower { MAX_Q } else { SERVER }).collect();
                dice.shuffle(&mut cards);
                cards
            }
        };
        let cards = (0..NODES).map(|n| node(n, dice)).collect();
        Self::racked("mixed wattage", vec![SERVER, L40S, MAX_Q], cards, RACK, dice)
    }

    /// None: the trace is not here.
    fn openb(path: &Path, dice: &mut Dice) -> anyhow::Result<Option<Self>> {
        if !path.exists() {
            return Ok(None);
        }
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let node = |line: &str| {
            let mut fields = line.split(',').skip(3);
            let count: usize = fields.next()?.parse().ok()?;
            let model = fields.next()?.trim();
            Some(vec![*OPENB.iter().find(|p| p.name == model)?; count])
        };
        let lines = text.lines().skip(1).filter(|l| !l.is_empty());
        let cards = lines.map(|line| node(line).with_context(|| format!("{}: {line}", path.display())));
        let cards = cards.collect::<anyhow::Result<_>>()?;
        Ok(Some(Self::racked(
            "openb nodes",
            OPENB.to_vec(),
            cards,
            OPENB_RACK,
            dice,
        )))
    }

    /// Nodes stand in racks in no order.
    fn racked(
        name: &'static str,
        products: Vec<Product>,
        cards: Vec<Vec<Product>>,
        size: usize,
        dice: &mut Dice,
    ) -> Self {
        let mut rack: Vec<usize> = (0..cards.len()).map(|n| n / size).collect();
        dice.shuffle(&mut rack);
        Self {
            name,
            products,
            cards,
            rack,
        }
    }

    fn racks(&self) -> usize {
        self.rack.iter().max().map_or(0, |r| r + 1)
    }

    fn count(&self) -> usize {
        self.cards.iter().map(Vec::len).sum()
    }

    fn watts(&self, given: &Given) -> u64 {
        given.cards.iter().map(|c| self.cards[given.node][*c].watts).sum()
    }

    /// Watts of every card of these racks, the least first.
    fn ascending(&self, of: impl Fn(usize) -> bool) -> Vec<u64> {
        let nodes = self.cards.iter().zip(&self.rack).filter(|(_, rack)| of(**rack));
        let mut watts: Vec<u64> = nodes.flat_map(|(cards, _)| cards.iter().map(|p| p.watts)).collect();
        watts.sort_unstable();
        watts
    }

    fn budgets(&self, percent: u64) -> Vec<u64> {
        let peak = |rack: usize| self.ascending(|r| r == rack).iter().sum::<u64>();
        (0..self.racks()).map(|rack| peak(rack) * percent / 100).collect()
    }

    /// Most cards that could be in use within these budgets, whatever pods ask for.
    fn most_within(&self, budgets: &[u64]) -> usize {
        let of = |(rack, budget): (usize, &u64)| {
            let mut left = *budget;
            let mut fits = |watts: &u64| {
                let fits = *watts <= left;
                left -= if fits { *watts } else { 0 };
                fits
            };
            self.ascending(|r| r == rack).iter().filter(|w| fits(w)).count()
        };
        budgets.iter().enumerate().map(of).sum()
    }

    /// Blind: one figure for all classes, so that watts decide nothing and classes are what they are.
    fn world(&self, blind: bool, budgets: Option<&[u64]>) -> anyhow::Result<World> {
        let class = |p: &Product| {
            json!({"name": p.class, "watts": if blind { 100 } else { p.watts },
                "match": format!("device.attributes['gpu.nvidia.com'].productName == '{}'", p.name)})
        };
        let mut policy = json!({"apiVersion": "wattlane.dev/v1alpha1", "kind": "PlacementPolicy",
            "classes": self.products.iter().map(class).collect::<Vec<_>>()});
        if let Some(budgets) = budgets {
            let named: serde_json::Map<String, Value> = budgets
                .iter()
                .enumerate()
                .map(|(r, w)| (format!("r{r}"), json!(w)))
                .collect();
            policy["power"] = json!([{"label": "rack", "budgets": named}]);
        }
        let mut world = World::new(&policy)?;
        for (node, (cards, rack)) in self.cards.iter().zip(&self.rack).enumerate() {
            let products: Vec<&str> = cards.iter().map(|p| p.name).collect();
            world.node(node, json!({"rack": format!("r{rack}")}), json!({}), &products)?;
        }
        world.publish();
        Ok(world)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    Ours,
    /// Without the watts objective.
    Blind,
    ListOrder,
    /// The first node where what list order takes is within the budget.
    ListOrderWithin,
}

impl Policy {
    fn name(self) -> &'static str {
        match self {
            Self::Ours => "wattlane",
            Self::Blind => "wattlane, blind to watts",
            Self::ListOrder => "list order",
            Self::ListOrderWithin => "list order within the budget",
        }
    }
}

struct Fill<'a> {
    fleet: &'a Fleet,
    policy: Policy,
    world: World,
    budgets: Option<&'a [u64]>,
    free: Vec<Vec<bool>>,
    /// By rack.
    drawn: Vec<u64>,
    used: usize,
    asked: usize,
    running: Vec<(Pod, Given)>,
    refused: usize,
    /// Arrivals after which their rack drew more than its budget.
    violations: usize,
}

impl<'a> Fill<'a> {
    fn new(fleet: &'a Fleet, policy: Policy, budgets: Option<&'a [u64]>) -> anyhow::Result<Self> {
        Ok(Self {
            fleet,
            policy,
            world: fleet.world(policy == Policy::Blind, budgets)?,
            budgets,
            free: fleet.cards.iter().map(|cards| vec![true; cards.len()]).collect(),
            drawn: vec![0; fleet.racks()],
            used: 0,
            asked: 0,
            running: vec![],
            refused: 0,
            violations: 0,
        })
    }

    fn left(&self, rack: usize) -> u64 {
        self.budgets
            .map_or(u64::MAX, |b| b[rack].saturating_sub(self.drawn[rack]))
    }

    fn arrive(&mut self, k: u32) -> anyhow::Result<()> {
        self.asked += k as usize;
        let pod = self.world.arrive(&[k])?;
        let within = self.policy == Policy::ListOrderWithin;
        let given = match self.policy {
            Policy::Ours | Policy::Blind => match self.world.ours(&pod)? {
                Some((node, placed)) => Some(self.world.bind(&pod, node, &placed)?),
                None => None,
            },
            Policy::ListOrder | Policy::ListOrderWithin => {
                // Nodes that cannot do are not asked: only to save time.
                let could = |node: &usize| {
                    let free = self.free[*node]
                        .iter()
                        .zip(&self.fleet.cards[*node])
                        .filter(|(free, _)| **free);
                    let (count, least) = free.fold((0, u64::MAX), |(n, least), (_, p)| (n + 1, least.min(p.watts)));
                    count >= k && (!within || u64::from(k).saturating_mul(least) <= self.left(self.fleet.rack[*node]))
                };
                let nodes = (0..self.free.len()).filter(could);
                let accepts =
                    |given: &Given| !within || self.fleet.watts(given) <= self.left(self.fleet.rack[given.node]);
                let given = self.world.list_order(&pod, nodes, accepts)?;
                if let Some(given) = &given {
                    self.world.give(&pod, &[k], given)?;
                }
                given
            }
        };
        let Some(given) = given else {
            self.world.leave(&pod);
            self.refused += 1;
            return Ok(());
        };
        for card in &given.cards {
            ensure!(
                std::mem::take(&mut self.free[given.node][*card]),
                "a card given twice: {given:?}"
            );
        }
        ensure!(given.cards.len() == k as usize, "{k} cards wanted: {given:?}");
        let rack = self.fleet.rack[given.node];
        self.drawn[rack] += self.fleet.watts(&given);
        self.used += given.cards.len();
        self.violations += usize::from(self.budgets.is_some_and(|b| self.drawn[rack] > b[rack]));
        self.running.push((pod, given));
        Ok(())
    }

    fn leave(&mut self, at: usize) {
        let (pod, given) = self.running.swap_remove(at);
        self.world.leave(&pod);
        given.cards.iter().for_each(|c| self.free[given.node][*c] = true);
        self.drawn[self.fleet.rack[given.node]] -= self.fleet.watts(&given);
        self.used -= given.cards.len();
    }

    fn up_to(&mut self, percent: usize, arrivals: &mut Dice) -> anyhow::Result<()> {
        while 100 * self.asked < percent * self.fleet.count() {
            self.arrive(size(arrivals))?;
        }
        Ok(())
    }

    fn kilowatts(&self) -> f64 {
        self.drawn.iter().sum::<u64>() as f64 / 1000.0
    }
}

/// Of 20 pods: 12 of one card, 4 of 2, 2 of 4, 2 of 8.
fn size(dice: &mut Dice) -> u32 {
    match dice.roll(20) {
        0..12 => 1,
        12..16 => 2,
        16..18 => 4,
        _ => 8,
    }
}

/// Percent of the cards asked for, refused pods included.
const ARRIVED: [usize; 4] = [50, 80, 90, 100];

/// Without a budget: kW and cards in use at each of `ARRIVED`, and the least that so many cards can draw.
fn filling(fleet: &Fleet, policy: Policy, seed: u64) -> anyhow::Result<Vec<[f64; 3]>> {
    let (mut fill, mut arrivals) = (Fill::new(fleet, policy, None)?, Dice::new(seed, 1));
    let ascending = fleet.ascending(|_| true);
    let mut points = vec![];
    for percent in ARRIVED {
        fill.up_to(percent, &mut arrivals)?;
        let least: u64 = ascending[..fill.used].iter().sum();
        points.push([fill.kilowatts(), fill.used as f64, least as f64 / 1000.0]);
    }
    Ok(points)
}

#[derive(Clone, Copy, Debug, Default)]
struct Kept {
    placed: usize,
    kilowatts: f64,
    violations: usize,
    refused: usize,
    /// Cards in use when the churn has ended.
    after: usize,
    /// The most that a rack drew at 100 % and after the churn, of its budget.
    fullest: f64,
}

fn budgeted(args: &Args, fleet: &Fleet, policy: Policy, budgets: &[u64], seed: u64) -> anyhow::Result<Kept> {
    let (mut arrivals, mut departures) = (Dice::new(seed, 1), Dice::new(seed, 2));
    let mut fill = Fill::new(fleet, policy, Some(budgets))?;
    fill.up_to(100, &mut arrivals)?;
    let fullest = |fill: &Fill<'_>| {
        let racks = fill
            .drawn
            .iter()
            .zip(budgets)
            .map(|(drawn, budget)| *drawn as f64 / *budget as f64);
        racks.fold(0.0, f64::max)
    };
    let mut kept = Kept {
        placed: fill.used,
        kilowatts: fill.kilowatts(),
        refused: fill.refused,
        fullest: fullest(&fill),
        ..Kept::default()
    };
    for _ in 0..args.churn {
        let goes = departures.roll(fill.running.len());
        if goes < fill.running.len() {
            fill.leave(goes);
        }
        for _ in 0..2 {
            fill.arrive(size(&mut arrivals))?;
        }
    }
    kept.after = fill.used;
    kept.fullest = kept.fullest.max(fullest(&fill));
    kept.violations = fill.violations;
    let sum: u64 = fill.drawn.iter().sum();
    ensure!(
        fill.world.drawn() == sum,
        "the index counts {} W, there are {sum}",
        fill.world.drawn()
    );
    Ok(kept)
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Value> {
    let mut fleets: Vec<Vec<Fleet>> = vec![];
    let seeds: Vec<u64> = (1..=args.seeds).collect();
    fleets.push(seeds.iter().map(|s| Fleet::synthetic(&mut Dice::new(*s, 3))).collect());
    let traced = seeds.iter().map(|s| Fleet::openb(&args.openb, &mut Dice::new(*s, 3)));
    if let Some(traced) = traced.collect::<anyhow::Result<Option<Vec<_>>>>()? {
        fleets.push(traced);
    }
    let (mut draws, mut budgets) = (vec![], vec![]);
    for by_seed in &fleets {
        let each = || by_seed.iter().zip(&seeds);
        let Some(first) = by_seed.first() else { continue };
        for policy in [Policy::Ours, Policy::Blind, Policy::ListOrder] {
            let runs: Vec<_> = each()
                .map(|(f, s)| filling(f, policy, *s))
                .collect::<anyhow::Result<_>>()?;
            for (at, percent) in ARRIVED.iter().enumerate() {
                let of = |f: &dyn Fn(&[f64; 3]) -> f64| {
                    spread(&runs.iter().map(|points| f(&points[at])).collect::<Vec<_>>())
                };
                draws.push(
                    json!({"fleet": first.name, "policy": policy.name(), "arrivedPercent": percent,
                    "kW": of(&|p| p[0]), "cards": of(&|p| p[1]), "toLeast": of(&|p| p[0] / p[2])}),
                );
            }
        }
        for policy in [Policy::Ours, Policy::ListOrderWithin, Policy::ListOrder] {
            let runs: Vec<(Kept, usize, u64)> = each()
                .map(|(fleet, seed)| {
                    let budgets = fleet.budgets(args.budget);
                    let kept = budgeted(args, fleet, policy, &budgets, *seed)?;
                    Ok((kept, fleet.most_within(&budgets), budgets.iter().sum()))
                })
                .collect::<anyhow::Result<_>>()?;
            let of = |f: &dyn Fn(&Kept, f64, f64) -> f64| {
                let all = runs
                    .iter()
                    .map(|(kept, most, budget)| f(kept, *most as f64, *budget as f64 / 1000.0));
                spread(&all.collect::<Vec<_>>())
            };
            budgets.push(json!({"fleet": first.name, "policy": policy.name(),
                "cards": of(&|k, _, _| k.placed as f64),
                "toMostPercent": of(&|k, most, _| 100.0 * k.placed as f64 / most),
                "kW": of(&|k, _, _| k.kilowatts), "budgetKW": of(&|_, _, budget| budget),
                "refused": of(&|k, _, _| k.refused as f64), "cardsAfterChurn": of(&|k, _, _| k.after as f64),
                "fullestRackPercent": of(&|k, _, _| 100.0 * k.fullest), "violations": of(&|k, _, _| k.violations as f64)}));
        }
    }
    Ok(
        json!({"scenario": "power", "seeds": args.seeds, "budgetPercent": args.budget, "churn": args.churn,
        "draw": draws, "budget": budgets}),
    )
}

const DRAW: &[&str] = &["fleet", "arrivedPercent"];
pub(crate) const CHARTS: &[Chart] = &[
    Chart::spreads("without a budget, by % arrived: kW", DRAW, "policy", &[("", "kW")]).of("draw"),
    Chart::spreads(
        "without a budget, by % arrived: kW / the least for so many cards",
        DRAW,
        "policy",
        &[("", "toLeast")],
    )
    .of("draw"),
    Chart::spreads(
        "hard budget: cards in use, % of the most within it",
        &["fleet"],
        "policy",
        &[("", "toMostPercent")],
    )
    .of("budget"),
    Chart::spreads(
        "hard budget: the fullest rack, % of its budget",
        &["fleet"],
        "policy",
        &[("", "fullestRackPercent")],
    )
    .of("budget"),
];

pub(crate) fn table(report: &Value) -> String {
    let (fleet, policy) = (("fleet", "fleet"), ("policy", "policy"));
    let draw = [
        ("kW", "kW", 1),
        ("cards in use", "cards", 0),
        ("kW / least for so many", "toLeast", 3),
    ];
    let budget = [
        ("cards at 100 %", "cards", 0),
        ("% of most", "toMostPercent", 1),
        ("kW", "kW", 1),
        ("budget kW", "budgetKW", 1),
        ("refused", "refused", 0),
        ("cards after churn", "cardsAfterChurn", 0),
        ("fullest rack %", "fullestRackPercent", 1),
        ("violations", "violations", 0),
    ];
    let arrived = ("arrived %", "arrivedPercent");
    format!(
        "without a budget\n{}\nhard budget\n{}",
        lines(section(report, "draw"), &[fleet, policy, arrived], &draw),
        lines(section(report, "budget"), &[fleet, policy], &budget)
    )
}

#[cfg(test)]
mod tests {
    use super::{Fleet, MAX_Q, Product, SERVER};
    use crate::quality::Dice;
    use crate::quality::world::Given;

    #[test]
    fn budgets_and_what_fits() {
        let cards: Vec<Vec<Product>> = vec![vec![SERVER, MAX_Q], vec![MAX_Q, SERVER]];
        let fleet = Fleet {
            name: "two",
            products: vec![SERVER, MAX_Q],
            cards,
            rack: vec![0, 1],
        };
        assert_eq!(
            fleet.watts(&Given {
                node: 1,
                cards: vec![0, 1]
            }),
            900
        );
        assert_eq!(fleet.budgets(80), [720, 720]);
        // Of 300 W and 600 W only the first is within 720 W.
        assert_eq!(fleet.most_within(&[720, 720]), 2);
        assert_eq!(fleet.most_within(&[900, 299]), 2);
    }

    #[test]
    fn a_fleet_of_ours() {
        let fleet = Fleet::synthetic(&mut Dice::new(1, 3));
        assert_eq!((fleet.count(), fleet.racks()), (960, 10));
        let mixed = fleet.cards.iter().filter(|c| c.contains(&SERVER) && c.contains(&MAX_Q));
        assert_eq!(mixed.count(), 30);
    }
}
