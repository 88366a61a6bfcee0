//! Ten thousand arrivals and departures with binds that race: no budget is ever passed because of us.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use wattlane::index::{Kind, ReservationId};
use wattlane::placement::Placement;

use super::splitmix::SplitMix;
use super::world::{MAX_Q, SERVER, World};

const NODES: usize = 12;
const CARDS: usize = 8;
const RACKS: u64 = 4;
/// Racks that the policy does not name: each is a domain only while a node is in it.
const OTHERS: u64 = 6;
const ROOMS: u64 = 2;

/// Numbers that are the same on every run.
struct Dice(SplitMix);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0.below(sides)
    }

    fn pick<T: Clone>(&mut self, list: &[T]) -> Option<T> {
        let at = self.roll(u64::try_from(list.len().max(1)).expect("fits"));
        list.get(usize::try_from(at).expect("fits")).cloned()
    }
}

/// A bind between its choice and its end.
struct Bind {
    node: String,
    placement: Placement,
    /// None: not reserved yet.
    id: Option<ReservationId>,
}

/// The cluster as the test knows it, kept without the index.
#[derive(Default)]
struct Truth {
    /// Labels by node.
    labels: BTreeMap<String, (u64, u64)>,
    /// Budgets the policy names, by `rack=…` or `room=…`, and that of other racks.
    named: BTreeMap<String, u64>,
    others: u64,
    /// Devices held: by claim, of whichever writer.
    held: BTreeMap<String, Vec<(String, String)>>,
}

impl Truth {
    fn budgets(&self) -> BTreeMap<String, u64> {
        let mut budgets = self.named.clone();
        for (rack, _) in self.labels.values() {
            budgets.entry(format!("rack=r{rack}")).or_insert(self.others);
        }
        budgets
    }

    fn used(&self) -> BTreeMap<String, u64> {
        let mut used: BTreeMap<String, u64> = self.budgets().into_keys().map(|d| (d, 0)).collect();
        let mut seen = std::collections::BTreeSet::new();
        for (node, device) in self.held.values().flatten() {
            if !seen.insert((node, device)) {
                continue;
            }
            let (rack, room) = self.labels[node];
            for domain in [format!("rack=r{rack}"), format!("room=m{room}")] {
                if let Some(sum) = used.get_mut(&domain) {
                    *sum += u64::from(watts(node, device));
                }
            }
        }
        used
    }
}

fn product(node: usize, card: usize) -> &'static str {
    if (node + card).is_multiple_of(2) { SERVER } else { MAX_Q }
}

fn watts(node: &str, device: &str) -> u32 {
    let number = |text: &str| text.rsplit('-').next().and_then(|n| n.parse().ok()).expect("a number");
    if product(number(node), number(device)) == SERVER {
        600
    } else {
        300
    }
}

fn power(dice: &mut Dice, truth: &mut Truth) -> Value {
    let racks: BTreeMap<String, u64> = (0..RACKS)
        .map(|r| (format!("r{r}"), 1500 + 300 * dice.roll(16)))
        .collect();
    let rooms: BTreeMap<String, u64> = (0..ROOMS)
        .map(|r| (format!("m{r}"), 4000 + 300 * dice.roll(30)))
        .collect();
    let all = racks.iter().map(|(r, w)| (format!("rack={r}"), *w));
    truth.named = all
        .chain(rooms.iter().map(|(r, w)| (format!("room={r}"), *w)))
        .collect();
    truth.others = 1500 + 300 * dice.roll(8);
    json!([{"label": "rack", "budget": truth.others, "budgets": racks}, {"label": "room", "budget": "4kW", "budgets": rooms}])
}

fn relabel(world: &mut World, truth: &mut Truth, node: &str, rack: u64, room: u64) {
    world.node(node, json!({"rack": format!("r{rack}"), "room": format!("m{room}")}));
    truth.labels.insert(node.to_owned(), (rack, room));
}

fn devices(placement: &Placement) -> Vec<(String, String)> {
    let results = placement.claims.iter().flat_map(|c| &c.allocation.results);
    results
        .map(|r| (r.id.pool.to_string(), r.id.device.to_string()))
        .collect()
}

#[test]
fn ten_thousand_arrivals_and_departures_never_pass_a_budget() {
    let (mut dice, mut truth) = (Dice(SplitMix::new(42)), Truth::default());
    let first = power(&mut dice, &mut truth);
    let mut world = World::new(&first);
    let nodes: Vec<String> = (0..NODES).map(|n| format!("n-{n}")).collect();
    for (n, node) in nodes.iter().enumerate() {
        let n = u64::try_from(n).expect("fits");
        relabel(&mut world, &mut truth, node, n % RACKS, n % ROOMS);
        let cards: Vec<&str> = (0..CARDS)
            .map(|c| product(usize::try_from(n).expect("fits"), c))
            .collect();
        world.cards(node, &cards);
    }
    let mut binds: Vec<Bind> = vec![];
    let (mut arrivals, mut departures, mut bound, mut over, mut conflicts) = (0, 0, 0, 0, 0);
    while arrivals < 10_000 {
        match dice.roll(100) {
            0..40 => {
                // A pod comes and is placed; its devices are reserved some time later, when others have been.
                let claim = format!("c-{arrivals}");
                arrivals += 1;
                world.claim(&claim, u32::try_from(1 + dice.roll(3)).expect("fits"), &[]);
                let node = dice.pick(&nodes).expect("a node");
                match world.place(&world.snapshot, &claim, &node) {
                    Ok(placement) => binds.push(Bind {
                        node,
                        placement,
                        id: None,
                    }),
                    Err(refusal) => {
                        over += usize::from(refusal.message.contains("power domain"));
                        world.remove(Kind::Claim, "ns", &claim);
                    }
                }
            }
            40..78 if !binds.is_empty() => {
                // One of the binds that are under way takes its next step.
                let at = usize::try_from(dice.roll(u64::try_from(binds.len()).expect("fits"))).expect("fits");
                let claim = binds[at].placement.claims[0].claim.key.name.to_string();
                let Some(id) = binds[at].id else {
                    let Bind { node, placement, .. } = &binds[at];
                    match world.reserve(placement, node) {
                        Ok(id) => {
                            truth.held.insert(claim, devices(placement));
                            let (used, budgets) = (truth.used(), truth.budgets());
                            let (rack, room) = truth.labels[node];
                            for domain in [format!("rack=r{rack}"), format!("room=m{room}")] {
                                assert!(
                                    used[&domain] <= budgets[&domain],
                                    "{domain}: {} of {} W after arrival {arrivals}",
                                    used[&domain],
                                    budgets[&domain]
                                );
                            }
                            binds[at].id = Some(id);
                        }
                        Err(conflict) => {
                            conflicts += usize::from(conflict.0.contains("power domain"));
                            binds.swap_remove(at);
                            world.remove(Kind::Claim, "ns", &claim);
                        }
                    }
                    continue;
                };
                let bind = binds.swap_remove(at);
                if dice.roll(5) == 0 {
                    // The write failed.
                    world.index.release(id);
                    world.publish();
                    truth.held.remove(&claim);
                    world.remove(Kind::Claim, "ns", &claim);
                } else {
                    world.confirm(&bind.placement);
                    bound += 1;
                }
            }
            78..92 => {
                // A pod that runs, whosoever it is, goes.
                let under_way = |c: &&String| !binds.iter().any(|b| *b.placement.claims[0].claim.key.name == ***c);
                let running: Vec<String> = truth.held.keys().filter(under_way).cloned().collect();
                if let Some(claim) = dice.pick(&running) {
                    world.remove(Kind::Claim, "ns", &claim);
                    truth.held.remove(&claim);
                    departures += 1;
                }
            }
            92..96 => {
                // Somebody else allocates, with no regard to anything; also what is taken already.
                let node = dice.pick(&nodes).expect("a node");
                let device = format!("gpu-{}", dice.roll(u64::try_from(CARDS).expect("fits")));
                let claim = format!("other-{}", dice.roll(1 << 40));
                world.claim(&claim, 1, &[(&node, &device)]);
                truth.held.insert(claim, vec![(node, device)]);
            }
            96..98 => {
                let node = dice.pick(&nodes).expect("a node");
                let (rack, room) = (dice.roll(RACKS + OTHERS), dice.roll(ROOMS));
                relabel(&mut world, &mut truth, &node, rack, room);
            }
            98 => {
                let next = power(&mut dice, &mut truth);
                world.reload(&next);
            }
            99 => {
                // The driver of a node goes away and comes back: what is held draws on.
                let node = dice.pick(&nodes).expect("a node");
                let n: usize = node.rsplit('-').next().and_then(|n| n.parse().ok()).expect("a number");
                world.remove(Kind::Slice, "", &node);
                compare(&world, &truth);
                let cards: Vec<&str> = (0..CARDS).map(|c| product(n, c)).collect();
                world.cards(&node, &cards);
            }
            _ => {}
        }
        compare(&world, &truth);
    }
    // The run has to have met what it is about.
    assert!(bound > 2000 && departures > 1500, "{bound} bound, {departures} gone");
    assert!(over > 1000 && conflicts > 100, "{over} refused, {conflicts} raced");
}

/// The sums of the snapshot are those of the objects, added up from nothing.
fn compare(world: &World, truth: &Truth) {
    let domains = world.domains();
    let used: BTreeMap<String, u64> = domains.iter().map(|(d, used, _)| (d.clone(), *used)).collect();
    let budgets: BTreeMap<String, u64> = domains.into_iter().map(|(d, _, budget)| (d, budget)).collect();
    assert_eq!(used, truth.used());
    assert_eq!(budgets, truth.budgets());
}
