//! What one node has for each request of a demand: the devices that come into question and how many fell out at
//! which step. Everything that does not change during a search is decided here.

use std::collections::{BTreeMap, HashMap};

use super::capacity::consumption;
use super::demand::{Alternative, Demand, NewClaim};
use super::key::Chosen;
use super::matching::{failure, matching};
use super::power::Budget;
use super::words::{Shortage, Stages, unhealthy};
use super::{Context, Topology};
use crate::model::{
    AttributeValue, Bits, Constraint, Count, Device, Effect, Name, QualifiedName, Quantity, Reason, Refusal, Taint,
    Toleration,
};
use crate::snapshot::{NodeEntry, Pool, PoolDevice, PoolHealth, PoolState, Visible, Wiring};
use crate::topology::{Cards, Worth};

/// Devices that are looked at for one alternative for the price of one search step.
const LOOKED_PER_STEP: usize = 64;

#[derive(Debug)]
pub(super) struct View<'a> {
    pub(super) pools: Vec<&'a PoolState>,
    /// Those that match some request, in list order: pools by (driver, name), devices as published.
    pub(super) devices: Vec<Dev<'a>>,
    /// Wattage classes of `devices`; a class is its position here.
    pub(super) classes: Vec<&'a Name>,
    /// In the order of claims and requests.
    pub(super) requests: Vec<RequestView<'a>>,
    /// Constraints of all claims.
    pub(super) rules: Vec<Rule<'a>>,
    pub(super) wiring: Option<&'a Wiring>,
    /// Links count for this pod; else only what its choice breaks for others.
    pub(super) links_count: bool,
    /// The pod's cards must all reach each other.
    pub(super) cliques: bool,
    /// Cards that claims of the pod hold already.
    pub(super) held: Chosen,
    /// Free whole cards by wattage class: multi-GPU pods are of one class, so that groups are.
    free: Vec<Cards>,
    /// What power budgets leave the pod. None: no budget has a say.
    pub(super) budget: Option<Budget<'a>>,
    /// Driver and health of the first pool that yields nothing.
    unhealthy: Option<(&'a Name, &'a PoolHealth)>,
}

#[derive(Debug)]
pub(super) struct Dev<'a> {
    /// Position in `View::pools`.
    pub(super) pool: usize,
    /// Position in the pool.
    pub(super) at: usize,
    pub(super) info: &'a PoolDevice,
    pub(super) class: Option<usize>,
    pub(super) watts: Option<u32>,
    /// Its position among the node's wired cards.
    pub(super) card: Option<u8>,
    /// What it takes out of its pool's counters: (set, counter, amount in nanos).
    pub(super) counters: Vec<(usize, usize, i128)>,
    /// The same card under other names: positions in `View::devices`.
    pub(super) twins: Vec<usize>,
    /// Shares of it are given already, and so are its counters.
    pub(super) shared: bool,
    /// Devices of one kind are interchangeable in the search.
    pub(super) kind: usize,
}

#[derive(Debug)]
pub(super) struct RequestView<'a> {
    /// Which of the demand's new claims.
    pub(super) claim: usize,
    pub(super) offers: Vec<Offer<'a>>,
}

/// What the node has for one alternative of a request.
#[derive(Debug)]
pub(super) struct Offer<'a> {
    pub(super) alternative: &'a Alternative,
    /// How many are needed.
    pub(super) asked: usize,
    /// In list order.
    pub(super) candidates: Vec<Candidate>,
    /// Positions in `View::rules` that speak of it.
    pub(super) rules: Vec<usize>,
    /// Some device that matches, taken or not, has a wattage class.
    pub(super) classed: bool,
    stages: Stages,
    taint: Option<(&'a Name, &'a Taint)>,
}

#[derive(Debug)]
pub(super) struct Candidate {
    /// Position in `View::devices`.
    pub(super) dev: usize,
    /// What a share takes of each capacity; None: the device is given whole.
    pub(super) takes: Option<Box<[Quantity]>>,
    /// A selector failed on it: whoever comes to it must stop. Only in list order.
    pub(super) failed: bool,
}

#[derive(Debug)]
pub(super) struct Rule<'a> {
    pub(super) constraint: &'a Constraint,
    /// By position in `View::devices`.
    pub(super) values: Vec<Option<&'a AttributeValue>>,
}

/// What a view is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Wishes count, and devices on which a selector failed are not touched.
    Place,
    /// As the in-tree allocator would look at it.
    ListOrder,
}

impl<'a> View<'a> {
    /// The view, and whether a selector failed on a device the search could come to.
    pub(super) fn of(
        ctx: Context<'a>,
        demand: &'a Demand,
        node: &'a NodeEntry,
        purpose: Purpose,
    ) -> Result<(Self, bool), Refusal> {
        let claims: Vec<&NewClaim> = demand.new_claims().collect();
        let mut view = Self {
            pools: vec![],
            devices: vec![],
            classes: vec![],
            requests: vec![],
            rules: vec![],
            wiring: node.wiring.as_deref(),
            links_count: demand.topology(ctx) != Topology::None,
            cliques: demand.topology(ctx) == Topology::Required,
            held: Chosen::default(),
            free: vec![],
            budget: None,
            unhealthy: None,
        };
        for (claim, new) in claims.iter().enumerate() {
            for request in &new.requests {
                let offers = request.alternatives.iter().map(Offer::new).collect();
                view.requests.push(RequestView { claim, offers });
            }
        }
        let mut failed = false;
        for (at, (state, visible)) in ctx.snapshot.pools_of(node).enumerate() {
            if state.pool.health == PoolHealth::Complete {
                failed |= view.add_pool(demand, at, state, visible, purpose)?;
            } else if view.unhealthy.is_none() {
                view.unhealthy = Some((&state.pool.driver, &state.pool.health));
            }
        }
        let mut offers = view.requests.iter_mut().flat_map(|r| r.offers.iter_mut());
        let all = offers.any(|o| o.alternative.request.count == Count::All);
        if let (true, Some((driver, health))) = (all, view.unhealthy) {
            let words = format!("all devices asked, but {}", unhealthy(driver, health));
            return Err(Refusal::new(Reason::PoolIncomplete, words));
        }
        view.add_rules(&claims);
        view.add_cards(ctx, demand, node);
        if purpose == Purpose::Place {
            view.budget = Budget::of(ctx, node, &view.pools, &view.devices);
        }
        view.sort_into_kinds();
        Ok((view, failed))
    }

    fn add_pool(
        &mut self,
        demand: &Demand,
        of_node: usize,
        state: &'a PoolState,
        visible: &Visible,
        purpose: Purpose,
    ) -> Result<bool, Refusal> {
        let pool = &*state.pool;
        let at_pool = self.pools.len();
        let mut any_failed = false;
        // Positions in `devices` of the pool's devices that are there already.
        let mut positions: BTreeMap<usize, usize> = BTreeMap::new();
        let mut per_offer = vec![];
        for offer in self.requests.iter().flat_map(|r| &r.offers) {
            let verdicts = matching(offer.alternative, pool);
            let seen = |bits: &Bits| bits.iter().filter(|i| visible.sees(*i)).collect::<Vec<_>>();
            let (matches, failed) = (seen(&verdicts.matches), seen(&verdicts.failed));
            for i in &failed {
                // The in-tree allocator looks at selectors only of devices that are not in use, except to find "all".
                let all = offer.alternative.request.count == Count::All;
                if all {
                    return Err(failure(offer.alternative, pool, *i));
                }
                any_failed |= offer.alternative.request.admin_access || !state.taken.contains(*i);
            }
            positions.extend(matches.iter().chain(&failed).map(|i| (*i, 0)));
            per_offer.push((matches, failed));
        }
        if positions.is_empty() {
            return Ok(false);
        }
        self.pools.push(state);
        for (i, position) in &mut positions {
            *position = self.devices.len();
            let mut dev = self.device(state, at_pool, *i);
            dev.card = self.wiring.and_then(|w| w.card(of_node, *i));
            self.devices.push(dev);
        }
        for (i, others) in &pool.summary().twins {
            if let Some(position) = positions.get(&(*i as usize)) {
                let there = others.iter().filter_map(|o| positions.get(&(*o as usize)).copied());
                self.devices[*position].twins = there.collect();
            }
        }
        let offers = self.requests.iter_mut().flat_map(|r| r.offers.iter_mut());
        for (offer, (matches, failed)) in offers.zip(per_offer) {
            for i in matches {
                if let Some(dev) = positions.get(&i) {
                    offer.add(demand, state, *dev, &self.devices[*dev], purpose);
                }
            }
            if purpose == Purpose::ListOrder {
                let free = |i: &usize| offer.alternative.request.admin_access || !state.taken.contains(*i);
                let failed = failed.iter().filter(|i| free(i)).filter_map(|i| positions.get(i));
                offer.candidates.extend(failed.map(|dev| Candidate {
                    dev: *dev,
                    takes: None,
                    failed: true,
                }));
                offer.candidates.sort_by_key(|c| c.dev);
            }
        }
        Ok(any_failed)
    }

    fn device(&mut self, state: &'a PoolState, pool: usize, at: usize) -> Dev<'a> {
        let info = &state.pool.devices[at];
        let class = info.classified.class.as_ref().map(|class| {
            let known = self.classes.iter().position(|c| *c == class);
            known.unwrap_or_else(|| {
                self.classes.push(class);
                self.classes.len() - 1
            })
        });
        let at_index = u32::try_from(at).unwrap_or(u32::MAX);
        Dev {
            pool,
            at,
            info,
            class,
            watts: info.classified.watts,
            card: None,
            counters: counters_of(&state.pool, &info.device),
            twins: vec![],
            shared: info.device.allow_multiple && state.shared.contains_key(&at_index),
            kind: 0,
        }
    }

    /// What is free of the node's cards, and what the pod has of them.
    fn add_cards(&mut self, ctx: Context<'_>, demand: &Demand, node: &NodeEntry) {
        let Some(wiring) = self.wiring else { return };
        self.free = vec![0; self.classes.len() + 1];
        let mut broken = 0;
        for (pool, (state, _)) in ctx.snapshot.pools_of(node).enumerate() {
            for (at, card) in wiring.of_pool(pool) {
                let class = state.pool.devices.get(at).and_then(|d| d.classified.class.as_ref());
                let class = class.map(|class| self.classes.iter().position(|c| *c == class));
                // Of a class that no request can have: nothing of it can be broken.
                let Some(free) = self
                    .free
                    .get_mut(class.unwrap_or(Some(self.classes.len())).unwrap_or(usize::MAX))
                else {
                    continue;
                };
                *free |= 1 << card;
                if !state.is_whole(at) {
                    broken |= 1 << card;
                }
            }
        }
        // One name of a card is held, and so is the card.
        self.free.iter_mut().for_each(|free| *free &= !broken);
        for result in demand.existing().flat_map(|a| &a.results).filter(|r| !r.admin_access) {
            let mut pools = ctx.snapshot.pools_of(node).enumerate();
            let of = |s: &PoolState| s.pool.driver == result.id.driver && s.pool.name == result.id.pool;
            let Some((pool, (state, _))) = pools.find(|(_, (s, _))| of(s)) else {
                continue;
            };
            let Some(at) = state.pool.by_name.get(&result.id.device).map(|at| *at as usize) else {
                continue;
            };
            let classed = state.pool.devices.get(at).is_some_and(|d| d.classified.class.is_some());
            self.held = self.held.with(wiring.card(pool, at), classed);
        }
    }

    /// What others lose when these cards are given.
    pub(super) fn lost(&self, cards: Cards) -> Worth {
        let Some(wiring) = self.wiring else {
            return Worth::default();
        };
        self.free.iter().fold(Worth::default(), |sum, free| {
            sum.plus(wiring.shape.lost(*free, *free & cards))
        })
    }

    fn add_rules(&mut self, claims: &[&'a NewClaim]) {
        for (i, claim) in claims.iter().enumerate() {
            for constraint in &claim.claim.spec.constraints {
                let rule = self.rules.len();
                let mut named = self
                    .requests
                    .iter_mut()
                    .filter(|r| r.claim == i)
                    .flat_map(|r| r.offers.iter_mut());
                for offer in named
                    .by_ref()
                    .filter(|o| o.alternative.is_named_by(&constraint.requests))
                {
                    offer.rules.push(rule);
                }
                let name = &constraint.attribute;
                let values = self.devices.iter().map(|dev| {
                    let driver = &self.pools[dev.pool].pool.driver;
                    let domain = if name.domain.is_empty() { driver } else { &name.domain };
                    dev.info.device.attribute(domain, &name.name)
                });
                let values = values.collect();
                self.rules.push(Rule { constraint, values });
            }
        }
    }

    /// Devices are interchangeable when no request, rule or cost can tell them apart. Shares and counters always can.
    fn sort_into_kinds(&mut self) {
        let mut members: Vec<Vec<bool>> = vec![vec![]; self.devices.len()];
        for offer in self.requests.iter().flat_map(|r| &r.offers) {
            members.iter_mut().for_each(|m| m.push(false));
            for candidate in &offer.candidates {
                if let Some(last) = members[candidate.dev].last_mut() {
                    *last = !candidate.failed;
                }
            }
        }
        let mut kinds = HashMap::new();
        let uniform = self.wiring.is_some_and(|w| w.shape.is_uniform());
        for (i, dev) in self.devices.iter_mut().enumerate() {
            let unlike = dev.info.device.allow_multiple || !dev.counters.is_empty() || !dev.twins.is_empty();
            let values: Vec<_> = self.rules.iter().map(|r| r.values[i]).collect();
            let key = (
                unlike.then_some(i),
                dev.class,
                dev.watts,
                dev.card.map(|c| if uniform { 0 } else { c }),
                self.budget.as_ref().map(|b| b.kind(i)),
                std::mem::take(&mut members[i]),
                values,
            );
            let next = kinds.len();
            dev.kind = *kinds.entry(key).or_insert(next);
        }
    }

    /// Usable devices of the offer by wattage class.
    pub(super) fn by_class(&self, offer: &Offer<'_>) -> Vec<(Option<&'a Name>, u32)> {
        let mut counts: Vec<(Option<&Name>, u32)> = vec![];
        for candidate in &offer.candidates {
            let class = self.devices[candidate.dev].class.map(|c| self.classes[c]);
            match counts.iter_mut().find(|(c, _)| *c == class) {
                Some((_, n)) => *n += 1,
                None => counts.push((class, 1)),
            }
        }
        counts
    }

    /// What it took to look at every device for every alternative, in search steps.
    pub(super) fn looked(&self) -> u32 {
        let offers: usize = self.requests.iter().map(|r| r.offers.len()).sum();
        u32::try_from(offers.saturating_mul(self.devices.len()) / LOOKED_PER_STEP).unwrap_or(u32::MAX)
    }

    /// Why the offer alone has too few. None: it has enough.
    pub(super) fn shortage(&self, demand: &Demand, offer: &Offer<'a>, mix: bool) -> Option<Refusal> {
        Shortage {
            alternative: offer.alternative,
            asked: u32::try_from(offer.asked).unwrap_or(u32::MAX),
            all: offer.alternative.request.count == Count::All,
            stages: offer.stages,
            taint: offer.taint,
            unhealthy: self.unhealthy,
            by_class: &self.by_class(offer),
            wishes: &demand.wishes,
            mix,
        }
        .refusal()
    }
}

impl<'a> Offer<'a> {
    /// Whether it could be met if nothing else were asked.
    pub(super) fn possible(&self) -> bool {
        self.asked > 0 && self.candidates.len() >= self.asked
    }

    fn new(alternative: &'a Alternative) -> Self {
        let asked = match alternative.request.count {
            Count::Exactly(n) => n as usize,
            Count::All => 0,
        };
        Self {
            alternative,
            asked,
            candidates: vec![],
            rules: vec![],
            classed: false,
            stages: Stages::default(),
            taint: None,
        }
    }

    /// A device that matches goes through the steps that do not depend on what else is chosen.
    fn add(&mut self, demand: &Demand, state: &PoolState, position: usize, dev: &Dev<'a>, purpose: Purpose) {
        let wanted = &self.alternative.request;
        let device: &'a Device = &dev.info.device;
        let driver = &state.pool.driver;
        let admin = wanted.admin_access;
        let takes = consumption(driver, device, &wanted.capacity);
        let room = match &takes {
            Some(takes) if !device.allow_multiple || admin => Some(takes),
            Some(takes) => has_room(device, takes, state, dev.at).then_some(takes),
            None => None,
        };
        if self.alternative.whole && state.pool.summary().parts.contains(dev.at) {
            return;
        }
        let all = wanted.count == Count::All;
        self.classed |= dev.class.is_some();
        if all && room.is_none() {
            // As in the in-tree allocator, "all" means all that can serve the capacity asked for.
            return;
        }
        self.asked += usize::from(all);
        self.stages.matched += 1;
        let allowed = admin || demand.wishes.allow(dev.info.classified.class.as_ref());
        if purpose == Purpose::Place && !(allowed && demand.wishes.admit(driver, dev.info)) {
            return;
        }
        self.stages.wished += 1;
        if !admin && state.taken.contains(dev.at) {
            return;
        }
        self.stages.free += 1;
        if let Some(taint) = blocking_taint(device, &wanted.tolerations) {
            self.taint.get_or_insert((&device.name, taint));
            return;
        }
        self.stages.tolerated += 1;
        if !device.binding_conditions.is_empty() {
            return;
        }
        self.stages.supported += 1;
        let counted = admin || dev.shared || dev.counters.iter().all(|(s, c, n)| left(state, *s, *c) >= *n);
        let (Some(takes), true) = (room, counted) else {
            return;
        };
        self.stages.roomy += 1;
        self.candidates.push(Candidate {
            dev: position,
            takes: device.allow_multiple.then(|| takes.clone()),
            failed: false,
        });
    }
}

/// The first taint that keeps the device from whoever has only these tolerations.
pub(super) fn blocking_taint<'d>(device: &'d Device, tolerations: &[Toleration]) -> Option<&'d Taint> {
    device.taints.iter().find(|taint| {
        matches!(taint.effect, Effect::NoSchedule | Effect::NoExecute)
            && !tolerations.iter().any(|t| t.tolerates(taint))
    })
}

/// What is given of the device's capacities, in the device's order, in nanos.
pub(super) fn given(device: &Device, state: &PoolState, at: usize) -> Vec<i128> {
    let at = u32::try_from(at).unwrap_or(u32::MAX);
    let given: &[(QualifiedName, Quantity)] = state.shared.get(&at).map_or(&[], |v| v);
    let sum = |name: &QualifiedName| given.iter().filter(|(q, _)| q == name).map(|(_, v)| v.nanos()).sum();
    device.capacity.iter().map(|(name, _)| sum(name)).collect()
}

fn has_room(device: &Device, takes: &[Quantity], state: &PoolState, at: usize) -> bool {
    let given = given(device, state, at);
    let mut capacities = device.capacity.iter().zip(takes).zip(given);
    capacities.all(|(((_, capacity), takes), given)| takes.nanos() + given <= capacity.value.nanos())
}

/// What is left of a counter, in nanos.
pub(super) fn left(state: &PoolState, set: usize, counter: usize) -> i128 {
    let value = state.counters_left.get(set).and_then(|s| s.get(counter));
    value.map_or(0, |q| q.nanos())
}

/// A counter the pool does not have (it would be invalid) is an impossible one.
fn counters_of(pool: &Pool, device: &Device) -> Vec<(usize, usize, i128)> {
    let mut counters = vec![];
    for consumption in &device.consumes {
        let set = pool
            .counter_sets
            .binary_search_by(|s| s.name.cmp(&consumption.counter_set));
        for (name, amount) in &consumption.counters {
            let counter = set.ok().and_then(|s| {
                let set = pool.counter_sets.get(s)?;
                Some((s, set.counters.binary_search_by(|(n, _)| n.cmp(name)).ok()?))
            });
            let (set, counter) = counter.unwrap_or((usize::MAX, usize::MAX));
            counters.push((set, counter, amount.nanos()));
        }
    }
    counters
}
