//! How near the cards of a pod are, and what is left for the next: eight-card nodes filled with churn, by wattlane, in list
//! order, and by the nearest set of plain sums. Everything that is reported is reckoned from the matrices (`links`).

use std::sync::Arc;

use anyhow::ensure;
use serde_json::{Value, json};
use wattlane::model::Pod;

use crate::chart::Chart;
use crate::options;
use crate::quality::Dice;
use crate::quality::links::{CARDS, Kind, Reckoning, Set, cards_of};
use crate::quality::world::{Given, World, node_name};
use crate::stats::spread;
use crate::table::{rows, table as lines};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(long, default_value_t = 500, value_parser = options::count())]
    nodes: usize,
    /// Seeds 1 to this.
    #[arg(long, default_value_t = 5, value_parser = options::seeds())]
    seeds: u64,
    /// Percent of all cards that are in use while it is measured, ascending.
    #[arg(long, value_delimiter = ',', default_value = "50,60,70,80,90,95")]
    levels: Vec<usize>,
    /// At each level so many times a tenth of the pods goes at once, and others come until the level is reached again.
    #[arg(long, default_value_t = 20, value_parser = options::runs())]
    churn: usize,
    #[arg(long, value_delimiter = ',', default_value = "mixed,nvswitch,cube-mesh,pcie")]
    fleets: Vec<Fleet>,
    #[arg(long, value_delimiter = ',', default_value = "2,4,1-8")]
    pods: Vec<Sizes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Fleet {
    /// A third of each kind, in turns.
    Mixed,
    #[value(name = "nvswitch")]
    NvSwitch,
    CubeMesh,
    Pcie,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Sizes {
    #[value(name = "2")]
    Two,
    #[value(name = "4")]
    Four,
    /// Of 20 pods: 8 of one card, 6 of 2, 4 of 4, 2 of 8.
    #[value(name = "1-8")]
    Any,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    Ours,
    ListOrder,
    /// The first node with enough cards, its nearest set.
    SumFirst,
    /// The node whose nearest set is nearest, the first of equal ones.
    SumBest,
}

impl Fleet {
    fn kind(self, node: usize) -> Kind {
        match self {
            Self::Mixed => Kind::ALL[node % 3],
            Self::NvSwitch => Kind::NvSwitch,
            Self::CubeMesh => Kind::CubeMesh,
            Self::Pcie => Kind::Pcie,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Mixed => "mixed",
            Self::NvSwitch => "nvswitch",
            Self::CubeMesh => "cube-mesh",
            Self::Pcie => "pcie",
        }
    }
}

impl Sizes {
    fn roll(self, dice: &mut Dice) -> u32 {
        match (self, dice.roll(20)) {
            (Self::Two, _) => 2,
            (Self::Four, _) => 4,
            (Self::Any, 0..8) => 1,
            (Self::Any, 8..14) => 2,
            (Self::Any, 14..18) => 4,
            (Self::Any, _) => 8,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Two => "2",
            Self::Four => "4",
            Self::Any => "1-8",
        }
    }
}

impl Policy {
    const ALL: [Self; 4] = [Self::Ours, Self::ListOrder, Self::SumFirst, Self::SumBest];

    fn name(self) -> &'static str {
        match self {
            Self::Ours => "wattlane",
            Self::ListOrder => "list order",
            Self::SumFirst => "sum, first node",
            Self::SumBest => "sum, best node",
        }
    }
}

/// Sums over pods of one size: link cost chosen, the least on the node they went to, the least on any node; their pairs; the
/// most that one pod was above its node's least, as a ratio.
#[derive(Clone, Copy, Debug, Default)]
struct Links {
    chosen: u64,
    least_here: u64,
    least_anywhere: u64,
    pairs: u64,
    worst: f64,
}

impl Links {
    fn plus(self, other: Self) -> Self {
        Self {
            chosen: self.chosen + other.chosen,
            least_here: self.least_here + other.least_here,
            least_anywhere: self.least_anywhere + other.least_anywhere,
            pairs: self.pairs + other.pairs,
            worst: self.worst.max(other.worst),
        }
    }
}

/// One level of one run.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    refused: usize,
    /// Of pods of 2, 4 and 8 cards that came during the churn.
    links: [Links; 3],
    /// Sums over the rounds of churn, each looked at when the level was reached again: share of the cards in use, shares
    /// of nodes (of a kind that has such a group at all) with a free group, share of the free cards that could be given
    /// out four by four.
    rounds: usize,
    filled: f64,
    keep_four: f64,
    keep_eight: f64,
    in_fours: f64,
}

struct Fill<'a> {
    world: World,
    fleet: Fleet,
    policy: Policy,
    reckonings: &'a [Reckoning; 3],
    free: Vec<Set>,
    used: usize,
    running: Vec<(Arc<Pod>, Given)>,
    level: Level,
}

fn position(kind: Kind) -> usize {
    match kind {
        Kind::NvSwitch => 0,
        Kind::CubeMesh => 1,
        Kind::Pcie => 2,
    }
}

impl<'a> Fill<'a> {
    fn new(args: &Args, fleet: Fleet, policy: Policy, reckonings: &'a [Reckoning; 3]) -> anyhow::Result<Self> {
        // The default policy: nodes are packed, links count for every pod of several cards, classes are not mixed.
        let mut world = World::new(&json!({"apiVersion": "wattlane.dev/v1alpha1", "kind": "PlacementPolicy"}))?;
        for node in 0..args.nodes {
            let kind = fleet.kind(node);
            let annotations = kind.annotations(&node_name(node))?;
            world.node(node, json!({}), annotations, &[kind.product(); CARDS])?;
        }
        world.publish();
        Ok(Self {
            world,
            fleet,
            policy,
            reckonings,
            free: vec![(1 << CARDS) - 1; args.nodes],
            used: 0,
            running: vec![],
            level: Level::default(),
        })
    }

    fn of(&self, node: usize) -> &'a Reckoning {
        &self.reckonings[position(self.fleet.kind(node))]
    }

    fn cost_of_nearest(&self, node: usize, k: u32) -> Option<u32> {
        let of = self.of(node);
        of.nearest(self.free[node], k).map(|set| of.cost(set))
    }

    /// Cards that are not free would be a fault of whoever chose them, and end the run.
    fn arrive(&mut self, k: u32) -> anyhow::Result<bool> {
        let pod = self.world.arrive(&[k])?;
        let enough: Vec<usize> = (0..self.free.len())
            .filter(|n| self.free[*n].count_ones() >= k)
            .collect();
        let nearest_of = |node: usize| {
            let set = self.of(node).nearest(self.free[node], k)?;
            Some(Given {
                node,
                cards: cards_of(set).collect(),
            })
        };
        let given = match self.policy {
            Policy::Ours => match self.world.ours(&pod)? {
                Some((node, placed)) => {
                    let given = self.world.bind(&pod, node, &placed)?;
                    let cost = self.of(node).cost(set_of(&given));
                    ensure!(
                        placed.cost.links == cost,
                        "wattlane says {} of a set of {cost}",
                        placed.cost.links
                    );
                    Some(given)
                }
                None => {
                    ensure!(enough.is_empty(), "{k} cards are free on a node, and wattlane refuses");
                    None
                }
            },
            Policy::ListOrder => self.world.list_order(&pod, enough.iter().copied(), |_| true)?,
            Policy::SumFirst => enough.first().and_then(|n| nearest_of(*n)),
            Policy::SumBest => {
                let best = enough.iter().min_by_key(|n| self.cost_of_nearest(**n, k));
                best.and_then(|n| nearest_of(*n))
            }
        };
        let Some(given) = given else {
            self.world.leave(&pod);
            self.level.refused += 1;
            return Ok(false);
        };
        if self.policy != Policy::Ours {
            self.world.give(&pod, &[k], &given)?;
        }
        self.count(&given, &enough);
        let set = set_of(&given);
        ensure!(
            given.cards.len() == k as usize && set.count_ones() == k && set & !self.free[given.node] == 0,
            "cards given twice: {given:?}"
        );
        self.free[given.node] &= !set;
        self.used += given.cards.len();
        self.running.push((Arc::new(pod), given));
        Ok(true)
    }

    /// Before the cards are taken.
    fn count(&mut self, given: &Given, enough: &[usize]) {
        let k = given.cards.len() as u32;
        let Some(here) = self.cost_of_nearest(given.node, k).filter(|_| k > 1) else {
            return;
        };
        let anywhere = enough
            .iter()
            .filter_map(|n| self.cost_of_nearest(*n, k))
            .min()
            .unwrap_or(here);
        let chosen = self.of(given.node).cost(set_of(given));
        let sum = &mut self.level.links[(k.ilog2() as usize).clamp(1, 3) - 1];
        sum.chosen += u64::from(chosen);
        sum.least_here += u64::from(here);
        sum.least_anywhere += u64::from(anywhere);
        sum.pairs += u64::from(k * (k - 1) / 2);
        sum.worst = sum.worst.max(f64::from(chosen) / f64::from(here));
    }

    fn leave(&mut self, at: usize) {
        let (pod, given) = self.running.swap_remove(at);
        self.world.leave(&pod);
        self.free[given.node] |= set_of(&given);
        self.used -= given.cards.len();
    }

    /// What is free now.
    fn look(&mut self) {
        let all = (1 << CARDS) - 1;
        let nodes = 0..self.free.len();
        let share = |groups: &dyn Fn(&Reckoning, Set) -> u8| {
            let able = nodes.clone().filter(|n| groups(self.of(*n), all) > 0);
            let (keep, able) = able.fold((0, 0), |(keep, able), n| {
                (keep + usize::from(groups(self.of(n), self.free[n]) > 0), able + 1)
            });
            keep as f64 / f64::from(able)
        };
        let (four, eight) = (share(&Reckoning::fours), share(&Reckoning::eights));
        let fours: usize = nodes.map(|n| usize::from(self.of(n).fours(self.free[n]))).sum();
        let cards = self.free.len() * CARDS;
        let level = &mut self.level;
        level.rounds += 1;
        level.filled += self.used as f64 / cards as f64;
        level.keep_four += four;
        level.keep_eight += eight;
        level.in_fours += (4 * fours) as f64 / (cards - self.used) as f64;
    }
}

fn set_of(given: &Given) -> Set {
    given.cards.iter().fold(0, |set, card| set | 1 << card)
}

/// Arrivals in a row without success after which a level counts as reached.
const PATIENCE: usize = 40;

/// All policies see the same pods come; which pods go is rolled over those that run, so it differs once pods are refused.
fn simulate(args: &Args, mut fill: Fill<'_>, sizes: Sizes, seed: u64) -> anyhow::Result<Vec<Level>> {
    let (mut arrivals, mut departures) = (Dice::new(seed, 1), Dice::new(seed, 2));
    let mut levels = vec![];
    for percent in &args.levels {
        let target = fill.free.len() * CARDS * percent / 100;
        let mut up_to = |fill: &mut Fill<'_>| -> anyhow::Result<()> {
            let mut refused = 0;
            while fill.used < target && refused < PATIENCE {
                refused = if fill.arrive(sizes.roll(&mut arrivals))? {
                    0
                } else {
                    refused + 1
                };
            }
            Ok(())
        };
        up_to(&mut fill)?;
        // Only what comes during the churn counts: before it, the cluster was emptier.
        fill.level = Level::default();
        for _ in 0..args.churn {
            for _ in 0..fill.running.len() / 10 {
                let goes = departures.roll(fill.running.len());
                fill.leave(goes);
            }
            up_to(&mut fill)?;
            fill.look();
        }
        levels.push(fill.level);
    }
    Ok(levels)
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Value> {
    ensure!(
        args.levels.is_sorted() && args.levels.iter().all(|l| (1..100).contains(l)),
        "--levels are ascending percents below 100"
    );
    let least = args
        .levels
        .iter()
        .min()
        .map_or(0, |level| level * args.nodes * CARDS / 100);
    ensure!(least > 0, "the lowest of --levels is less than one card of --nodes");
    let reckonings = Kind::ALL.map(Reckoning::of);
    let mut rows = vec![];
    for fleet in &args.fleets {
        for sizes in &args.pods {
            let mut runs = vec![];
            for policy in Policy::ALL {
                let by_seed: Vec<Vec<Level>> = (1..=args.seeds)
                    .map(|seed| simulate(args, Fill::new(args, *fleet, policy, &reckonings)?, *sizes, seed))
                    .collect::<anyhow::Result<_>>()?;
                runs.push((policy, by_seed));
            }
            for (at, percent) in args.levels.iter().enumerate() {
                for (policy, by_seed) in &runs {
                    let of = |f: &dyn Fn(&Level) -> f64| {
                        spread(&by_seed.iter().map(|levels| f(&levels[at])).collect::<Vec<_>>())
                    };
                    let ratio = |a: u64, b: u64| a as f64 / b as f64;
                    let all = |l: &Level| l.links.into_iter().fold(Links::default(), Links::plus);
                    rows.push(json!({
                        "fleet": fleet.name(), "pods": sizes.name(), "level": percent, "policy": policy.name(),
                        "filledPercent": of(&|l| 100.0 * l.filled / l.rounds as f64),
                        "twoToLeastOnNode": of(&|l| ratio(l.links[0].chosen, l.links[0].least_here)),
                        "fourToLeastOnNode": of(&|l| ratio(l.links[1].chosen, l.links[1].least_here)),
                        "worstPodToLeastOnNode": of(&|l| if all(l).pairs > 0 { all(l).worst } else { f64::NAN }),
                        "chosenToLeastAnywhere": of(&|l| ratio(all(l).chosen, all(l).least_anywhere)),
                        "twoCostOfAPair": of(&|l| ratio(l.links[0].chosen, l.links[0].pairs)),
                        "fourCostOfAPair": of(&|l| ratio(l.links[1].chosen, l.links[1].pairs)),
                        "costOfAPair": of(&|l| ratio(all(l).chosen, all(l).pairs)),
                        "keepFourPercent": of(&|l| 100.0 * l.keep_four / l.rounds as f64),
                        "keepEightPercent": of(&|l| 100.0 * l.keep_eight / l.rounds as f64),
                        "freeInFoursPercent": of(&|l| 100.0 * l.in_fours / l.rounds as f64),
                        "refused": of(&|l| l.refused as f64),
                    }));
                }
            }
        }
    }
    Ok(json!({"scenario": "topology", "nodes": args.nodes, "seeds": args.seeds, "churn": args.churn, "rows": rows}))
}

const LINE: &[&str] = &["fleet", "pods", "level"];
pub(crate) const CHARTS: &[Chart] = &[
    Chart::spreads(
        "link cost of the worst pod / least on its node",
        LINE,
        "policy",
        &[("", "worstPodToLeastOnNode")],
    ),
    Chart::spreads(
        "link cost of a pair of one pod's cards",
        LINE,
        "policy",
        &[("", "costOfAPair")],
    ),
    Chart::spreads(
        "% of nodes that keep four free cards that reach each other",
        LINE,
        "policy",
        &[("", "keepFourPercent")],
    ),
    Chart::spreads(
        "% of nodes that keep eight",
        LINE,
        "policy",
        &[("", "keepEightPercent")],
    ),
    Chart::spreads(
        "% of the free cards that could be given out as such fours",
        LINE,
        "policy",
        &[("", "freeInFoursPercent")],
    ),
];

pub(crate) fn table(report: &Value) -> String {
    let names = [
        ("fleet", "fleet"),
        ("pods", "pods"),
        ("level", "level"),
        ("policy", "policy"),
    ];
    let columns = [
        ("2 / least", "twoToLeastOnNode", 2),
        ("4 / least", "fourToLeastOnNode", 2),
        ("worst / least", "worstPodToLeastOnNode", 2),
        ("/ anywhere", "chosenToLeastAnywhere", 2),
        ("2 a pair", "twoCostOfAPair", 2),
        ("4 a pair", "fourCostOfAPair", 2),
        ("all a pair", "costOfAPair", 2),
        ("keep 4 %", "keepFourPercent", 1),
        ("keep 8 %", "keepEightPercent", 1),
        ("free in 4s %", "freeInFoursPercent", 1),
        ("refused", "refused", 0),
        ("filled %", "filledPercent", 1),
    ];
    lines(rows(report), &names, &columns)
}
