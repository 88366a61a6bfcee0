//! Small nodes against every possible choice: what is valid, and which valid choice is the best, is written down here
//! a second time, as plainly as it can be said.

use proptest::prelude::*;
use serde_json::{Value, json};

use std::sync::Arc;

use wattlane::placement::NamespaceLimits;

use super::world::{DRIVER, World, annotated};

const SLOTS: u32 = 4;

#[derive(Clone, Debug)]
struct Card {
    class: Option<&'static str>,
    watts: Option<u32>,
    board: Option<&'static str>,
    tainted: bool,
    /// Of the counter `slots` that all cards of the node share.
    slots: u32,
    memory: u32,
    shared: bool,
    /// Memory given as a share already; taken whole where the card is not shared.
    given: u32,
}

#[derive(Clone, Debug)]
struct Wanted {
    /// None: all.
    count: Option<usize>,
    tolerates: bool,
    memory: u32,
    board_x: bool,
}

#[derive(Clone, Debug)]
struct Ask {
    /// More than one: firstAvailable.
    alternatives: Vec<Wanted>,
    /// Of two claims.
    claim: usize,
}

#[derive(Clone, Debug)]
struct Case {
    cards: Vec<Card>,
    asks: Vec<Ask>,
    /// By claim: "match", "distinct" or nothing.
    constraints: [Option<&'static str>; 2],
    wish: Option<&'static str>,
    mix: bool,
    /// Of the node's power domain, in watts.
    budget: Option<u32>,
    /// Cards that a pod of the namespace may have.
    most: Option<u32>,
}

fn card() -> impl Strategy<Value = Card> {
    (
        prop::sample::select(vec![None, Some("a"), Some("a"), Some("b"), Some("b")]),
        prop::sample::select(vec![None, Some(300), Some(300), Some(600)]),
        prop::sample::select(vec![None, Some("x"), Some("x"), Some("y")]),
        prop::bool::weighted(0.15),
        prop::sample::select(vec![0, 0, 0, 1, 2]),
        1_u32..4,
        prop::bool::weighted(0.25),
        prop::sample::select(vec![0, 0, 0, 1]),
    )
        .prop_map(|(class, watts, board, tainted, slots, memory, shared, given)| Card {
            class,
            watts,
            board,
            tainted,
            slots,
            memory,
            shared,
            given,
        })
}

fn wanted() -> impl Strategy<Value = Wanted> {
    (
        prop::sample::select(vec![Some(1), Some(1), Some(2), Some(2), Some(3), None]),
        prop::bool::weighted(0.3),
        prop::sample::select(vec![0, 0, 0, 1, 2]),
        prop::bool::weighted(0.25),
    )
        .prop_map(|(count, tolerates, memory, board_x)| Wanted {
            count,
            tolerates,
            memory,
            board_x,
        })
}

fn case() -> impl Strategy<Value = Case> {
    let ask = (prop::collection::vec(wanted(), 1..3), 0_usize..2)
        .prop_map(|(alternatives, claim)| Ask { alternatives, claim });
    let constraint = || prop::sample::select(vec![None, None, Some("match"), Some("distinct")]);
    (
        prop::collection::vec(card(), 1..7),
        prop::collection::vec(ask, 1..4),
        [constraint(), constraint()],
        prop::sample::select(vec![None, None, None, Some("a")]),
        prop::bool::weighted(0.2),
        prop::sample::select(vec![None, None, None, Some(300), Some(600), Some(900), Some(1500)]),
        prop::sample::select(vec![None, None, None, Some(1), Some(2), Some(3)]),
    )
        .prop_map(|(cards, mut asks, constraints, wish, mix, budget, most)| {
            asks.sort_by_key(|a| a.claim);
            Case {
                cards,
                asks,
                constraints,
                wish,
                mix,
                budget,
                most,
            }
        })
}

// ---- the second saying of the rules

type Power = (u32, u32);

/// What others lose of the shared counter, what the choice draws, what rests it leaves of shared cards, and how empty the
/// counter was that it begins on.
type Cost = (u32, Power, u32, u32);

/// One choice: by ask, positions of cards, each once; a shared card may be in several asks.
type Choice = Vec<Vec<usize>>;

impl Card {
    fn taken(&self) -> bool {
        self.given > 0 && !self.shared
    }

    fn holds(&self) -> u32 {
        if self.shared { self.given.min(self.memory) } else { 0 }
    }

    fn takes(&self, wanted: &Wanted) -> u32 {
        if wanted.memory == 0 { self.memory } else { wanted.memory }
    }

    /// In thousandths, what is left of a shared card and what is taken rounded against whoever asks; each share by itself.
    fn rest(&self, wanted: &Wanted) -> u32 {
        let left = (self.memory - self.holds()) * 1000 / self.memory;
        let taken = (self.takes(wanted) * 1000).div_ceil(self.memory);
        if self.shared { left.saturating_sub(taken) } else { 0 }
    }

    /// Whoever has a share of it has turned it on.
    fn draws(&self) -> Option<u32> {
        if self.shared && self.given > 0 {
            Some(0)
        } else {
            self.watts
        }
    }

    fn can_serve(&self, wanted: &Wanted) -> bool {
        let fits = wanted.memory <= self.memory && (!self.shared || self.holds() + self.takes(wanted) <= self.memory);
        (!wanted.board_x || self.board == Some("x")) && fits
    }

    fn usable(&self, wanted: &Wanted) -> bool {
        self.can_serve(wanted) && !self.taken() && (!self.tainted || wanted.tolerates)
    }
}

impl Case {
    fn slots_left(&self) -> i64 {
        let used = self.cards.iter().filter(|c| c.given > 0).map(|c| i64::from(c.slots));
        i64::from(SLOTS) - used.sum::<i64>()
    }

    /// Every way one ask alone could be served.
    fn ways(&self, wanted: &Wanted) -> Vec<Vec<usize>> {
        let usable: Vec<usize> = (0..self.cards.len())
            .filter(|i| self.cards[*i].usable(wanted))
            .collect();
        let Some(count) = wanted.count else {
            let all: Vec<usize> = (0..self.cards.len())
                .filter(|i| self.cards[*i].can_serve(wanted))
                .collect();
            return if all.is_empty() || all != usable {
                vec![]
            } else {
                vec![all]
            };
        };
        let mut ways = vec![vec![]];
        for _ in 0..count {
            let mut longer = vec![];
            for way in ways {
                for i in &usable {
                    let last = way.last().copied();
                    if last.is_none_or(|l: usize| l < *i) {
                        longer.push([way.clone(), vec![*i]].concat());
                    }
                }
            }
            ways = longer;
        }
        ways
    }

    fn together(&self, alternatives: &[&Wanted], choice: &Choice) -> bool {
        let picks = || {
            choice
                .iter()
                .zip(alternatives)
                .flat_map(|(p, w)| p.iter().map(move |i| (*i, *w)))
        };
        let mut slots = 0;
        for (i, card) in self.cards.iter().enumerate() {
            let mine: Vec<_> = picks().filter(|(p, _)| *p == i).collect();
            let memory: u32 = mine.iter().map(|(_, w)| card.takes(w)).sum();
            if card.shared && card.holds() + memory > card.memory || !card.shared && mine.len() > 1 {
                return false;
            }
            if !mine.is_empty() && card.given == 0 {
                slots += i64::from(card.slots);
                if card.slots > 0 && slots > self.slots_left() {
                    return false;
                }
            }
        }
        [0, 1].iter().all(|claim| {
            let asks = self.asks.iter().zip(choice).filter(|(a, _)| a.claim == *claim);
            let boards: Vec<_> = asks.flat_map(|(_, p)| p.iter().map(|i| self.cards[*i].board)).collect();
            let distinct = (0..boards.len()).all(|i| !boards[..i].contains(&boards[i]));
            match self.constraints[*claim] {
                Some("match") => boards.iter().all(|b| b.is_some() && *b == boards[0]),
                Some(_) => boards.iter().all(Option::is_some) && distinct,
                None => true,
            }
        })
    }

    fn classes(&self, choice: &Choice) -> Vec<&str> {
        let mut classes: Vec<&str> = choice.iter().flatten().filter_map(|i| self.cards[*i].class).collect();
        classes.sort_unstable();
        classes.dedup();
        classes
    }

    /// Whether the choice is what the pod wished for.
    fn wished(&self, alternatives: &[&Wanted], choice: &Choice) -> bool {
        let Some(wish) = self.wish else { return true };
        // Whether what it speaks of are devices with classes, be they free or full.
        let classed = |w: &Wanted| {
            self.cards
                .iter()
                .any(|c| (!w.board_x || c.board == Some("x")) && c.class.is_some())
        };
        let anywhere = self.asks.iter().flat_map(|a| &a.alternatives).any(classed);
        anywhere
            && choice.iter().zip(alternatives).all(|(picks, w)| {
                picks
                    .iter()
                    .all(|i| self.cards[*i].class.map_or(!classed(w), |c| c == wish))
            })
    }

    /// Whether the budget bears it: what is in use counts already, and of unknown watts there may be none.
    fn affordable(&self, choice: &Choice) -> bool {
        let Some(budget) = self.budget else { return true };
        let sum = |cards: &mut dyn Iterator<Item = &Card>| cards.map(|c| c.watts).sum::<Option<u32>>();
        let chosen = |i: &usize| choice.iter().flatten().any(|c| c == i) && self.cards[*i].given == 0;
        let mut new = (0..self.cards.len()).filter(chosen).map(|i| &self.cards[i]);
        let Some(adds) = sum(&mut new) else { return false };
        let held = sum(&mut self.cards.iter().filter(|c| c.given > 0));
        adds == 0 || held.is_some_and(|held| held + adds <= budget)
    }

    /// Whether the pod may have so many cards.
    fn within(&self, choice: &Choice) -> bool {
        let mut cards: Vec<usize> = choice.iter().flatten().copied().collect();
        cards.sort_unstable();
        cards.dedup();
        self.most.is_none_or(|most| cards.len() <= most as usize)
    }

    /// What is left of the counter once so many slots are given: each amount that some card draws, as often as it still
    /// goes into what is left, by the part of the whole it is.
    fn worth(&self, left: u32) -> u32 {
        let mut draws: Vec<u32> = self.cards.iter().map(|c| c.slots).filter(|s| *s > 0).collect();
        draws.sort_unstable();
        draws.dedup();
        draws.iter().map(|s| left / s * (s * 1000 / SLOTS)).sum()
    }

    fn lost(&self, slots: u32) -> u32 {
        let left = u32::try_from(self.slots_left()).unwrap_or(0);
        self.worth(left) - self.worth(left - slots)
    }

    fn cost(&self, alternatives: &[&Wanted], choice: &Choice) -> Cost {
        let mut chosen: Vec<usize> = choice.iter().flatten().copied().collect();
        chosen.sort_unstable();
        chosen.dedup();
        let new = chosen.iter().map(|i| &self.cards[*i]).filter(|c| c.given == 0);
        let slots = new.map(|c| c.slots).sum();
        let vacant = match slots {
            0 => 0,
            _ => u32::try_from(self.slots_left()).unwrap_or(0) * 1000 / SLOTS,
        };
        let rests = choice.iter().zip(alternatives);
        let rests = rests.flat_map(|(picks, w)| picks.iter().map(|i| self.cards[*i].rest(w)));
        (self.lost(slots), self.power(choice), rests.sum(), vacant)
    }

    fn power(&self, choice: &Choice) -> Power {
        choice
            .iter()
            .flatten()
            .fold((0, 0), |(unknown, watts), i| match self.cards[*i].draws() {
                Some(w) => (unknown, watts + w),
                None => (unknown + 1, watts),
            })
    }

    /// Vectors of alternatives, the last ask changing fastest.
    fn vectors(&self) -> Vec<Vec<&Wanted>> {
        self.asks.iter().fold(vec![vec![]], |vectors, ask| {
            let longer = |v: Vec<_>| ask.alternatives.iter().map(move |a| [v.clone(), vec![a]].concat());
            vectors.into_iter().flat_map(longer).collect()
        })
    }

    /// The choices of the first alternatives that can be met, after the class rule; of those, the ones that cost least.
    fn best(&self) -> Option<(usize, Cost, Vec<Choice>)> {
        self.vectors().iter().enumerate().find_map(|(at, alternatives)| {
            let mut choices: Vec<Choice> = vec![vec![]];
            for wanted in alternatives {
                let ways = self.ways(wanted);
                let longer = |c: Choice| {
                    ways.iter()
                        .map(move |w| [c.clone(), vec![w.clone()]].concat())
                        .collect::<Vec<_>>()
                };
                choices = choices.into_iter().flat_map(longer).collect();
            }
            choices.retain(|c| self.together(alternatives, c) && self.wished(alternatives, c));
            choices.retain(|c| self.affordable(c) && self.within(c));
            let one: Vec<Choice> = choices.iter().filter(|c| self.classes(c).len() <= 1).cloned().collect();
            if !one.is_empty() {
                choices = one;
            } else if !self.mix {
                choices.clear();
            }
            let least = choices.iter().map(|c| self.cost(alternatives, c)).min()?;
            choices.retain(|c| self.cost(alternatives, c) == least);
            Some((at, least, choices))
        })
    }

    /// Cards of the class that could serve one of these alternatives if nothing else were asked.
    fn free_of(&self, alternatives: &[&Wanted], class: Option<&str>) -> usize {
        let alone = |c: &Card, w: &Wanted| {
            c.usable(w) && (c.given > 0 || c.slots == 0 || i64::from(c.slots) <= self.slots_left())
        };
        let of = self.cards.iter().filter(|c| c.class == class);
        of.filter(|c| alternatives.iter().any(|w| alone(c, w))).count()
    }

    // ---- the same case as a cluster

    fn world(&self) -> World {
        let mut world = World::new();
        world.rules.mix_classes = self.mix;
        if self.most.is_some() {
            world.namespace(json!({}));
            world.rules.allowed = Arc::new([NamespaceLimits {
                matches: [].into(),
                classes: None,
                most_cards: self.most,
                slots: None,
            }]);
        }
        world.labelled_node("n", json!({"rack": "n"}));
        if let Some(budget) = self.budget {
            world.budgets(&[("n", budget.into())]);
        }
        let devices: Vec<Value> = self.cards.iter().enumerate().map(|(i, card)| card.device(i)).collect();
        let pool = json!({"name": "n", "generation": 1, "resourceSliceCount": 2});
        world.slice("n", json!({"nodeName": "n", "pool": pool, "devices": devices}));
        world.slice(
            "n-counters",
            json!({"nodeName": "n", "pool": pool,
            "sharedCounters": [{"name": "card", "counters": {"slots": {"value": SLOTS.to_string()}}}]}),
        );
        for (i, card) in self.cards.iter().enumerate().filter(|(_, c)| c.given > 0) {
            let mut result = json!({"request": "r", "driver": DRIVER, "pool": "n", "device": format!("d{i}")});
            if card.shared {
                result["shareID"] = json!(format!("00000000-0000-4000-8000-00000000000{i}"));
                result["consumedCapacity"] = json!({"memory": card.holds().to_string()});
            }
            let allocation = json!({"allocation": {"devices": {"results": [result]}}});
            world.claim_with(&format!("held-{i}"), json!({"requests": []}), json!({}), allocation);
        }
        for claim in 0..2 {
            let asks = self.asks.iter().enumerate().filter(|(_, a)| a.claim == claim);
            let requests: Vec<Value> = asks.map(|(i, ask)| ask.request(i)).collect();
            let attribute = format!("{DRIVER}/board");
            let constraints = match self.constraints[claim] {
                Some("match") => json!([{"matchAttribute": attribute}]),
                Some(_) => json!([{"distinctAttribute": attribute}]),
                None => json!([]),
            };
            if !requests.is_empty() {
                world.claim(
                    &format!("c{claim}"),
                    json!({"requests": requests, "constraints": constraints}),
                );
            }
        }
        world
    }

    fn pod(&self) -> wattlane::model::Pod {
        let claims: Vec<&str> = ["c0", "c1"]
            .into_iter()
            .enumerate()
            .filter(|(i, _)| self.asks.iter().any(|a| a.claim == *i))
            .map(|(_, name)| name)
            .collect();
        annotated(
            "p",
            &claims,
            self.wish.map_or(json!({}), |w| json!({"wattlane.dev/class": w})),
        )
    }
}

impl Card {
    fn device(&self, i: usize) -> Value {
        let mut device = json!({"name": format!("d{i}"), "attributes": {}, "allowMultipleAllocations": self.shared,
            "capacity": {"memory": {"value": self.memory.to_string()}}});
        for (name, value) in [
            ("class", self.class.map(|c| json!({"string": c}))),
            ("watts", self.watts.map(|w| json!({"int": w}))),
            ("board", self.board.map(|b| json!({"string": b}))),
        ] {
            if let Some(value) = value {
                device["attributes"][name] = value;
            }
        }
        if self.tainted {
            device["taints"] = json!([{"key": "sick", "effect": "NoSchedule"}]);
        }
        if self.slots > 0 {
            let counters = json!({"slots": {"value": self.slots.to_string()}});
            device["consumesCounters"] = json!([{"counterSet": "card", "counters": counters}]);
        }
        device
    }
}

impl Ask {
    fn request(&self, i: usize) -> Value {
        let name = format!("r{i}");
        match self.alternatives.as_slice() {
            [one] => json!({"name": name, "exactly": one.json()}),
            many => {
                let list = many.iter().enumerate().map(|(j, w)| {
                    let mut sub = w.json();
                    sub["name"] = json!(format!("s{j}"));
                    sub
                });
                json!({"name": name, "firstAvailable": list.collect::<Vec<_>>()})
            }
        }
    }
}

impl Wanted {
    fn json(&self) -> Value {
        let mut exactly = json!({"deviceClassName": "gpu"});
        match self.count {
            Some(n) => exactly["count"] = json!(n),
            None => exactly["allocationMode"] = json!("All"),
        }
        if self.tolerates {
            exactly["tolerations"] = json!([{"key": "sick", "operator": "Exists"}]);
        }
        if self.memory > 0 {
            exactly["capacity"] = json!({"requests": {"memory": self.memory.to_string()}});
        }
        if self.board_x {
            let cel = format!("device.attributes['{DRIVER}'].?board.orValue('') == 'x'");
            exactly["selectors"] = json!([{"cel": {"expression": cel}}]);
        }
        exactly
    }
}

fn position(device: &str) -> usize {
    device
        .strip_prefix('d')
        .and_then(|n| n.parse().ok())
        .expect("a card of the case")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn place_finds_what_trying_everything_finds(case in case()) {
        let (world, pod) = (case.world(), case.pod());
        let (checked, placed) = (world.check(&pod, "n"), world.place(&pod, "n"));
        let Some((vector, least, choices)) = case.best() else {
            prop_assert!(placed.is_err(), "nothing is valid, but placed {:?}", placed);
            prop_assert_eq!(checked.err(), placed.err(), "check and place refuse in the same words");
            return Ok(());
        };
        prop_assert_eq!(&checked, &Ok(()), "one of {:?}", choices);
        let placed = placed.map_err(|r| TestCaseError::fail(format!("{r}: one of {choices:?}")))?;
        let alternatives = case.vectors().swap_remove(vector);

        // Read the choice back from the results, and see that it is one of the best.
        let results: Vec<_> = placed.claims.iter().flat_map(|c| &c.allocation.results).collect();
        let mut choice: Choice = vec![];
        for (i, (ask, wanted)) in case.asks.iter().zip(&alternatives).enumerate() {
            let at = ask.alternatives.iter().position(|a| std::ptr::eq(a, *wanted)).expect("its own");
            let name = if ask.alternatives.len() == 1 { format!("r{i}") } else { format!("r{i}/s{at}") };
            let mine = results.iter().filter(|r| *r.request == name);
            choice.push(mine.map(|r| position(&r.id.device)).collect());
        }
        prop_assert_eq!(choice.iter().map(Vec::len).sum::<usize>(), results.len(), "every result is of a request served");
        let sorted: Choice = choice.iter().map(|p| { let mut p = p.clone(); p.sort_unstable(); p }).collect();
        prop_assert!(choices.contains(&sorted), "{:?} with {:?} is none of {:?}, which cost {:?}",
            choice, case.cost(&alternatives, &choice), choices, least);
        let shares = results.iter().all(|r| r.share_id.is_some() == case.cards[position(&r.id.device)].shared);
        prop_assert!(shares, "exactly shared cards are given as shares");
        let watts: u32 = choice.iter().flatten().filter_map(|i| case.cards[*i].watts).sum();
        prop_assert_eq!(placed.watts, watts);
        let classes = case.classes(&choice);
        prop_assert_eq!(placed.class.as_deref(), if classes.len() == 1 { Some(classes[0]) } else { None });

        // Ties: the class of which least is free, then the first in the order of loss, watts and devices.
        if case.cards.iter().all(|c| c.class.is_some()) && classes.len() == 1 {
            let free = |c: &Choice| case.free_of(&alternatives, case.classes(c).first().copied());
            let fewest = choices.iter().map(free).min();
            prop_assert_eq!(Some(free(&choice)), fewest, "the smaller group is broken: {:?} of {:?}", choice, choices);
            let order = |c: &Choice| -> Vec<_> {
                c.iter().zip(&alternatives).flat_map(|(picks, wanted)| {
                    let mut keys: Vec<_> = picks.iter().map(|i| {
                        let card = &case.cards[*i];
                        let cut = (card.given == 0 && card.slots > 0).then(|| case.lost(card.slots));
                        (cut, card.draws().is_none(), card.draws(), card.rest(wanted), *i)
                    }).collect();
                    keys.sort_unstable();
                    keys
                }).collect()
            };
            let first = choices.iter().filter(|c| case.classes(c) == classes).map(order).min();
            prop_assert_eq!(Some(order(&choice)), first, "device order");
        }
    }
}
