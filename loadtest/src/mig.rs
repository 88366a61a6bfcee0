//! Partitions that come and go on A100 cards: how many asks are met by where each is put. wattlane, with and without
//! being told what is asked for, against five plain policies, on the same arrivals.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wattlane::model::{Name, Pod};
use wattlane::partition::{PRODUCTS, Product, Profile};

use crate::chart::Chart;
use crate::options;
use crate::quality::Dice;
use crate::quality::world::{Given, World};
use crate::stats::spread;
use crate::table::{rows, table as lines};

const PRODUCT: &str = "a100-80gb";
/// What is asked for, in the order of `MIXES`.
const ASKED: [&str; 6] = ["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"];
/// How often each is asked for, as weights.
const MIXES: [(&str, [u32; 6]); 3] = [
    ("uniform", [1, 1, 1, 1, 1, 1]),
    ("small-heavy", [12, 4, 8, 3, 2, 1]),
    ("big-heavy", [1, 1, 1, 3, 3, 4]),
];
const RIVALS: [(&str, Rival); 5] = [
    ("random", Rival::Random),
    ("worst fit", Rival::Worst),
    ("first fit", Rival::First),
    ("best fit", Rival::Best),
    ("greedy fragmentation", Rival::Fragmentation),
];
/// A partition stays this long in the mean; the unit of time.
const STAY: f64 = 1.0;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Nodes with one card each.
    #[arg(long, default_value_t = 100, value_parser = options::count())]
    cards: usize,
    /// Seeds 1 to this.
    #[arg(long, default_value_t = 20, value_parser = options::seeds())]
    seeds: u64,
    /// Compute slices asked for, by those there are.
    #[arg(long, value_delimiter = ',', default_values_t = [0.85, 1.0])]
    loads: Vec<f64>,
    /// Asks that are counted; half as many come before.
    #[arg(long, default_value_t = 2000, value_parser = options::within(2, 1_000_000))]
    asks: usize,
}

#[derive(Clone, Copy, Debug)]
enum Rival {
    Random,
    Worst,
    First,
    Best,
    Fragmentation,
}

#[derive(Clone, Copy, Debug)]
enum Chooser {
    Rival(Rival),
    /// `told`: policy names the mix.
    Wattlane {
        told: bool,
    },
}

/// One place for a partition.
#[derive(Clone, Copy, Debug)]
struct Cut {
    /// Position in `ASKED`.
    asked: usize,
    /// Memory slices, as bits.
    slices: u16,
    compute: u8,
}

/// What is taken of a card.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Card {
    slices: u16,
    compute: u8,
}

impl Card {
    fn takes(self, cut: Cut, all: u8) -> bool {
        self.slices & cut.slices == 0 && self.compute + cut.compute <= all
    }

    fn with(self, cut: Cut) -> Self {
        Self {
            slices: self.slices | cut.slices,
            compute: self.compute + cut.compute,
        }
    }
}

/// The card and its places, with how many of each profile fit by occupancy, counted by trying.
struct Model {
    product: &'static Product,
    cuts: Vec<Cut>,
}

impl Model {
    fn new() -> anyhow::Result<Self> {
        let product = PRODUCTS
            .iter()
            .find(|p| p.id == PRODUCT)
            .context("the product is not in the table")?;
        let mut cuts = vec![];
        for (asked, name) in ASKED.iter().enumerate() {
            let profile = product.profile(name).context("the profile is not in the table")?;
            cuts.extend(profile.starts.iter().map(|start| Cut {
                asked,
                slices: ((1 << profile.memory_slices) - 1) << start,
                compute: profile.compute_slices,
            }));
        }
        Ok(Self { product, cuts })
    }

    fn profile(&self, asked: usize) -> Option<&'static Profile> {
        self.product.profile(ASKED[asked])
    }

    /// The most of one profile beside what is there.
    fn most(&self, card: Card, asked: usize, from: usize) -> u32 {
        let open = self.cuts.iter().enumerate().skip(from);
        let open = open.filter(|(_, c)| c.asked == asked && card.takes(**c, self.product.compute_slices));
        open.map(|(i, cut)| 1 + self.most(card.with(*cut), asked, i + 1))
            .max()
            .unwrap_or(0)
    }

    /// Free memory slices that an ask of the mix could not use, in the mean.
    fn fragmentation(&self, card: Card, mix: &[u32; 6]) -> f64 {
        let free = u32::from(self.product.memory_slices) - card.slices.count_ones();
        let unusable = mix.iter().enumerate().map(|(asked, weight)| {
            let size = self.profile(asked).map_or(0, |p| u32::from(p.memory_slices));
            let usable = self.most(card, asked, 0) * size;
            f64::from(*weight) * f64::from(free.saturating_sub(usable))
        });
        unusable.sum::<f64>() / f64::from(mix.iter().sum::<u32>())
    }

    /// Node and place. None: the ask fits nowhere.
    fn choose(
        &self,
        rival: Rival,
        cards: &[Card],
        asked: usize,
        mix: &[u32; 6],
        dice: &mut Dice,
    ) -> Option<(usize, usize)> {
        let fits = |(_, cut): &(usize, &Cut), card: &Card| {
            cut.asked == asked && card.takes(**cut, self.product.compute_slices)
        };
        let places = cards.iter().enumerate().flat_map(|(node, card)| {
            let cuts = self.cuts.iter().enumerate().filter(move |c| fits(c, card));
            cuts.map(move |(at, _)| (node, at))
        });
        let used = |node: usize| cards[node].slices.count_ones();
        match rival {
            Rival::Random => dice.pick(&places.collect::<Vec<_>>()),
            Rival::First => places.min(),
            Rival::Worst => places.min_by_key(|(node, at)| (used(*node), *node, *at)),
            Rival::Best => places.min_by_key(|(node, at)| (Reverse(used(*node)), *node, *at)),
            Rival::Fragmentation => {
                let cost = |(node, at): (usize, usize)| {
                    let (card, after) = (cards[node], cards[node].with(self.cuts[at]));
                    let grows = self.fragmentation(after, mix) - self.fragmentation(card, mix);
                    (grows, Reverse(used(node)))
                };
                let costs = places.map(|place| (cost(place), place));
                let order = |a: &(f64, Reverse<u32>), b: &(f64, Reverse<u32>)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
                costs.min_by(|a, b| order(&a.0, &b.0)).map(|(_, place)| place)
            }
        }
    }

    /// A cluster of such cards as the NVIDIA driver publishes them; device `mig-<i>` is place i.
    fn world(&self, args: &Args, mix: Option<&[u32; 6]>) -> anyhow::Result<World> {
        let mut world = World::new(&json!({"apiVersion": "wattlane.dev/v1alpha1", "kind": "PlacementPolicy"}))?;
        if let Some(mix) = mix {
            world.demand_mix(ASKED.iter().zip(mix).map(|(name, n)| (Name::from(*name), *n)));
        }
        let counters = |slices: u16, compute: u8| {
            let mut counters = json!({"compute": {"value": compute.to_string()}});
            for slice in (0..self.product.memory_slices).filter(|s| slices >> s & 1 == 1) {
                counters[format!("memory-slice-{slice}")] = json!({"value": "1"});
            }
            counters
        };
        let device = |(i, cut): (usize, &Cut)| {
            json!({"name": format!("mig-{i}"),
                "attributes": {"type": {"string": "mig"}, "profile": {"string": ASKED[cut.asked]},
                    "productName": {"string": self.product.names[0]}},
                "consumesCounters": [{"counterSet": "card", "counters": counters(cut.slices, cut.compute)}]})
        };
        let devices: Vec<Value> = self.cuts.iter().enumerate().map(device).collect();
        let all = counters(u16::MAX, self.product.compute_slices);
        for node in 0..args.cards {
            world.cut_node(node, &devices, &json!([{"name": "card", "counters": all}]))?;
        }
        world.publish();
        Ok(world)
    }
}

/// Of what was counted.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    asks: u32,
    met: u32,
    compute_asked: u32,
    compute_met: u32,
}

struct Running {
    pod: Option<Pod>,
    node: usize,
    cut: Cut,
}

fn exponential(dice: &mut Dice, mean: f64) -> f64 {
    let sides = 1 << 30;
    let part = (dice.roll(sides) as f64 + 0.5) / f64::from(sides as u32);
    -mean * part.ln()
}

fn simulate(
    model: &Model,
    args: &Args,
    seed: u64,
    load: f64,
    mix: &[u32; 6],
    chooser: Chooser,
) -> anyhow::Result<Count> {
    let mut world = match chooser {
        Chooser::Wattlane { told } => Some(model.world(args, told.then_some(mix))?),
        Chooser::Rival(_) => None,
    };
    let (mut arrivals, mut rolls) = (Dice::new(seed, 1), Dice::new(seed, 2));
    let by_weight: Vec<usize> = mix
        .iter()
        .enumerate()
        .flat_map(|(asked, n)| vec![asked; *n as usize])
        .collect();
    let compute = |asked: usize| model.profile(asked).map_or(0, |p| u32::from(p.compute_slices));
    let mean = by_weight.iter().map(|a| f64::from(compute(*a))).sum::<f64>() / by_weight.len() as f64;
    let slices = args.cards as f64 * f64::from(model.product.compute_slices);
    // Little's law: what comes in a unit of time stays for one.
    let apart = STAY * mean / (load * slices);
    let mut cards = vec![Card::default(); args.cards];
    let mut running: Vec<Option<Running>> = vec![];
    let mut ends: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let ticks = |time: f64| (time * 1e9) as u64;
    let (mut now, mut count) = (0.0, Count::default());
    for n in 0..args.asks + args.asks / 2 {
        now += exponential(&mut arrivals, apart);
        let stays = exponential(&mut arrivals, STAY);
        let asked = arrivals.pick(&by_weight).unwrap_or_default();
        while ends.peek().is_some_and(|Reverse((at, _))| *at <= ticks(now)) {
            let Some(Reverse((_, which))) = ends.pop() else { break };
            let Some(gone) = running[which].take() else { continue };
            let card = &mut cards[gone.node];
            card.slices &= !gone.cut.slices;
            card.compute -= gone.cut.compute;
            if let (Some(world), Some(pod)) = (&mut world, &gone.pod) {
                world.leave(pod);
            }
        }
        let (mut pod, mut place) = (None, None);
        match (chooser, &mut world) {
            (Chooser::Rival(rival), _) => place = model.choose(rival, &cards, asked, mix, &mut rolls),
            (_, Some(world)) => {
                let cel = format!("device.attributes['gpu.nvidia.com'].profile == '{}'", ASKED[asked]);
                let arrived = world.arrive_asking(&json!([{"name": "r", "exactly":
                    {"deviceClassName": "mig", "selectors": [{"cel": {"expression": cel}}]}}]))?;
                match world.ours(&arrived)? {
                    Some((node, placed)) => {
                        let Given { node, cards } = world.bind(&arrived, node, &placed)?;
                        place = cards.first().map(|at| (node, *at));
                        pod = Some(arrived);
                    }
                    None => world.leave(&arrived),
                }
            }
            (Chooser::Wattlane { .. }, None) => {}
        }
        let counts = n >= args.asks / 2;
        count.asks += u32::from(counts);
        count.compute_asked += if counts { compute(asked) } else { 0 };
        let Some((node, at)) = place else { continue };
        let cut = *model.cuts.get(at).context("a place that is not there")?;
        ensure!(cut.asked == asked, "another profile than asked");
        ensure!(
            cards[node].takes(cut, model.product.compute_slices),
            "partitions of one card overlap"
        );
        cards[node] = cards[node].with(cut);
        ends.push(Reverse((ticks(now + stays), running.len())));
        running.push(Some(Running { pod, node, cut }));
        count.met += u32::from(counts);
        count.compute_met += if counts { compute(asked) } else { 0 };
    }
    Ok(count)
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Value> {
    ensure!(
        args.loads.iter().all(|l| *l > 0.0 && *l <= 10.0),
        "--loads are parts of what there is, above 0"
    );
    let model = Model::new()?;
    let rivals = RIVALS.map(|(name, rival)| (name, Chooser::Rival(rival)));
    let ours =
        [("wattlane", false), ("wattlane, mix told", true)].map(|(name, told)| (name, Chooser::Wattlane { told }));
    let mut rows = vec![];
    for load in &args.loads {
        for (mix, weights) in &MIXES {
            for (policy, chooser) in rivals.iter().chain(&ours) {
                let counts = (1..=args.seeds).map(|seed| simulate(&model, args, seed, *load, weights, *chooser));
                let counts: Vec<Count> = counts.collect::<anyhow::Result<_>>()?;
                let percent = |met: u32, of: u32| 100.0 * f64::from(met) / f64::from(of);
                let met: Vec<f64> = counts.iter().map(|c| percent(c.met, c.asks)).collect();
                let compute: Vec<f64> = counts.iter().map(|c| percent(c.compute_met, c.compute_asked)).collect();
                rows.push(json!({"load": load, "mix": mix, "policy": policy,
                    "metPercent": spread(&met), "computeMetPercent": spread(&compute)}));
            }
        }
    }
    Ok(
        json!({"scenario": "mig", "product": PRODUCT, "cards": args.cards, "seeds": args.seeds, "asks": args.asks, "rows": rows}),
    )
}

pub(crate) const CHARTS: &[Chart] = &[Chart::spreads(
    "% of the asks that were met",
    &["mix", "load"],
    "policy",
    &[("", "metPercent")],
)];

pub(crate) fn table(report: &Value) -> String {
    let names = [("load", "load"), ("mix", "mix"), ("policy", "policy")];
    let columns = [
        ("asks met %", "metPercent", 1),
        ("compute slices met %", "computeMetPercent", 1),
    ];
    lines(rows(report), &names, &columns)
}

#[cfg(test)]
mod tests {
    use super::{Args, Card, Chooser, MIXES, Model, Rival, simulate};

    #[test]
    fn an_empty_card_holds_what_its_maker_says() {
        let model = Model::new().expect("the table has it");
        let most: Vec<u32> = (0..6).map(|asked| model.most(Card::default(), asked, 0)).collect();
        assert_eq!(most, [7, 4, 3, 2, 1, 1]);
        assert!(
            model.fragmentation(Card::default(), &MIXES[0].1) > 0.0,
            "not every slice serves a 3g or a 2g"
        );
    }

    #[test]
    fn where_there_is_room_for_all_every_policy_meets_every_ask() {
        let args = Args {
            cards: 40,
            seeds: 1,
            loads: vec![0.05],
            asks: 60,
        };
        let model = Model::new().expect("the table has it");
        for chooser in [Chooser::Rival(Rival::First), Chooser::Wattlane { told: true }] {
            let count = simulate(&model, &args, 1, 0.05, &MIXES[0].1, chooser).expect("runs");
            assert_eq!((count.asks, count.met), (60, 60), "{chooser:?}");
        }
    }
}
