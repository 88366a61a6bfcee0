//! What one node has for each request of a demand: the devices that come into question and how many fell out at
//! which step. Everything that does not change during a search is decided here.

use super::demand::{Alternative, Demand, NewClaim};
use super::key::Chosen;
use super::limit::CardLimit;
use super::matching::{Matching, failure, matching};
use super::offer::{Candidate, Offer, counters_of};
use super::power::Budget;
use super::quick::Place;
use super::slots::Slots;
use super::words::{Shortage, unhealthy, unhealthy_reason};
use super::{Context, Topology};
use crate::model::{AttributeValue, Constraint, Count, Name, Refusal, node_mode};
use crate::snapshot::{NodeEntry, PoolDevice, PoolHealth, PoolState, Visible, Wiring};
use crate::topology::Cards;

/// Devices that are looked at for one alternative for the price of one search step.
const LOOKED_PER_STEP: usize = 64;

#[derive(Debug, Default)]
pub(super) struct View<'a> {
    pub(super) pools: Vec<&'a PoolState>,
    /// Those that match some request, in list order: pools by (driver, name), those with binding conditions last, devices as published.
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
    pub(super) free: Vec<Cards>,
    /// The cards that its devices are cut from.
    pub(super) slots: Slots<'a>,
    /// What power budgets leave the pod. None: no budget has a say.
    pub(super) budget: Option<Budget<'a>>,
    /// How many cards the pod may still be given. None: more than it asks for.
    pub(super) limit: Option<CardLimit<'a>>,
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
    /// The mode of the node that it needs: position in `Summary::modes` of its pool.
    pub(super) mode: Option<usize>,
    /// Devices of one kind are interchangeable in the search.
    pub(super) kind: usize,
}

#[derive(Debug)]
pub(super) struct RequestView<'a> {
    /// Which of the demand's new claims.
    pub(super) claim: usize,
    pub(super) offers: Vec<Offer<'a>>,
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
            requests: Vec::with_capacity(claims.iter().map(|c| c.requests.len()).sum()),
            wiring: node.wiring.as_deref(),
            links_count: demand.topology(ctx) != Topology::None,
            cliques: demand.topology(ctx) == Topology::Required,
            ..Self::default()
        };
        for (claim, new) in claims.iter().enumerate() {
            for request in &new.requests {
                let offers = request.alternatives.iter().map(Offer::new).collect();
                view.requests.push(RequestView { claim, offers });
            }
        }
        let mut failed = false;
        let mut pools: Vec<_> = ctx.snapshot.pools_of(node).enumerate().collect();
        // As in-tree, those whose devices have to be waited for come last.
        pools.sort_by_key(|(_, (state, visible))| state.pool.summary().waiting.iter().any(|i| visible.sees(i)));
        for (at, (state, visible)) in pools {
            let health = visible.health(&state.pool);
            if *health == PoolHealth::Complete {
                failed |= view.add_pool(demand, at, state, visible, purpose)?;
            } else if view.unhealthy.is_none() {
                view.unhealthy = Some((&state.pool.driver, health));
            }
        }
        view.join_pools();
        let mut offers = view.requests.iter_mut().flat_map(|r| r.offers.iter_mut());
        let all = offers.any(|o| o.alternative.request.count == Count::All);
        if let (true, Some((driver, health))) = (all, view.unhealthy) {
            let words = format!("all devices asked, but {}", unhealthy(driver, health));
            return Err(Refusal::new(unhealthy_reason(health), words));
        }
        view.add_rules(&claims);
        view.add_cards(ctx, demand, node);
        if purpose == Purpose::Place {
            view.budget = Budget::of(ctx, node, &view.pools, &view.devices);
            if demand.limit.is_some() {
                let asked = view.most_asked();
                view.limit = CardLimit::of(ctx, demand, node, (&view.pools, &view.devices), asked);
            }
        }
        view.slots = Slots::of(&view, &ctx.rules.demand);
        view.sort_into_kinds();
        Ok((view, failed))
    }

    /// Nothing but devices that are chosen already, for one request and in the order given, as `result` reads them.
    pub(super) fn of_chosen(
        ctx: Context<'a>,
        alternative: &'a Alternative,
        node: &'a NodeEntry,
        chosen: &[Place],
    ) -> Self {
        let mut view = Self {
            pools: Vec::with_capacity(1),
            devices: Vec::with_capacity(chosen.len()),
            ..Self::default()
        };
        let mut offer = Offer::new(alternative);
        offer.candidates.reserve_exact(chosen.len());
        let mut last = None;
        for (of_node, at) in chosen {
            let Some(state) = node.pools.get(*of_node).and_then(|v| ctx.snapshot.pool(v.pool)) else {
                continue;
            };
            if last != Some(*of_node) {
                last = Some(*of_node);
                view.pools.push(state);
            }
            offer.candidates.push(Candidate {
                dev: view.devices.len(),
                takes: None,
                failed: false,
                dear: 0,
            });
            let dev = view.device(state, view.pools.len() - 1, *at);
            view.devices.push(dev);
        }
        view.requests.push(RequestView {
            claim: 0,
            offers: vec![offer],
        });
        view
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
        let (at_pool, first) = (self.pools.len(), self.devices.len());
        let mut any_failed = false;
        let words = pool.devices.len().div_ceil(64);
        let offers = || self.requests.iter().flat_map(|r| &r.offers);
        // By offer, then by word.
        let mut looked = vec![Matching::default(); offers().count() * words];
        for (i, offer) in offers().enumerate() {
            let wanted = &offer.alternative.request;
            let looked = &mut looked[i * words..][..words];
            matching(offer.alternative, pool, visible, looked);
            for (n, word) in looked.iter().enumerate().filter(|(_, word)| word.failed != 0) {
                // The in-tree allocator looks at selectors only of devices that are not in use, except to find "all".
                if wanted.count == Count::All {
                    let device = n * 64 + word.failed.trailing_zeros() as usize;
                    return Err(failure(offer.alternative, pool, device));
                }
                any_failed |= wanted.admin_access || word.failed & !state.taken.word(n) != 0;
            }
        }
        for n in 0..words {
            let of_word = looked.iter().skip(n).step_by(words);
            let mut some = of_word.fold(0, |some, word| some | word.matches | word.failed);
            self.devices.reserve(some.count_ones() as usize);
            while some != 0 {
                let at = n * 64 + some.trailing_zeros() as usize;
                some &= some - 1;
                let mut dev = self.device(state, at_pool, at);
                dev.card = self.wiring.and_then(|w| w.card(of_node, at));
                self.devices.push(dev);
            }
        }
        if self.devices.len() == first {
            return Ok(false);
        }
        self.pools.push(state);
        for (at, others) in &pool.summary().twins {
            let added = &self.devices[first..];
            let position = |at: &u32| added.binary_search_by_key(&(*at as usize), |d| d.at).ok();
            if let Some(dev) = position(at) {
                let there = others.iter().filter_map(|o| Some(first + position(o)?)).collect();
                self.devices[first + dev].twins = there;
            }
        }
        let offers = self.requests.iter_mut().flat_map(|r| r.offers.iter_mut());
        for (i, offer) in offers.enumerate() {
            let looked = &looked[i * words..][..words];
            let most = looked.iter().map(|word| word.matches.count_ones() as usize).sum();
            offer.candidates.reserve(most);
            for (position, dev) in self.devices.iter().enumerate().skip(first) {
                let (word, bit) = (looked[dev.at / 64], 1 << (dev.at % 64));
                if word.matches & bit != 0 {
                    offer.add(demand, state, position, dev, purpose);
                } else if word.failed & bit != 0 && purpose == Purpose::ListOrder {
                    offer.add_failed(state, position, dev);
                }
            }
        }
        Ok(any_failed)
    }

    /// Twins that other pools of their driver list.
    fn join_pools(&mut self) {
        for (here, state) in self.pools.iter().enumerate() {
            for ((of, name), shadow) in state.pool.shadows.iter().filter(|(_, shadow)| shadow.published) {
                let same = |s: &PoolState| s.pool.driver == state.pool.driver && s.pool.name == *of;
                let there = self.pools.iter().position(|s| same(s));
                let at = |pool: usize, at: u32| {
                    let is = |d: &Dev<'_>| d.pool == pool && d.at == at as usize;
                    self.devices.iter().position(is)
                };
                let other = there.and_then(|pool| at(pool, *self.pools[pool].pool.by_name.get(name)?));
                let Some(other) = other else { continue };
                let over: Vec<usize> = shadow.over.iter().filter_map(|over| at(here, *over)).collect();
                for dev in over {
                    self.devices[dev].twins.push(other);
                }
            }
        }
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
            mode: state.pool.mode(at),
            kind: 0,
        }
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
        let offers = self.requests.iter().flat_map(|r| &r.offers);
        let width = offers.clone().count();
        // By device, then by offer: whether it is a candidate.
        let mut members = vec![false; self.devices.len() * width];
        for (n, offer) in offers.enumerate() {
            for candidate in offer.candidates.iter().filter(|c| !c.failed) {
                members[candidate.dev * width + n] = true;
            }
        }
        let uniform = self.wiring.is_some_and(|w| w.shape.is_uniform());
        let card = |dev: &Dev<'_>| dev.card.map(|c| if uniform { 0 } else { c });
        let likeness = self.devices.iter().enumerate().map(|(i, dev)| {
            let one_card = self.limit.as_ref().is_some_and(|limit| limit.tells_apart(i));
            let unlike =
                dev.info.device.allow_multiple || !dev.counters.is_empty() || !dev.twins.is_empty() || one_card;
            let budget = self.budget.as_ref().map(|b| b.kind(i));
            (unlike.then_some(i), dev.class, dev.watts, card(dev), budget, dev.mode)
        });
        let likeness: Vec<_> = likeness.collect();
        let key = |i: usize| (&likeness[i], &members[i * width..][..width]);
        let values = |i: usize| self.rules.iter().map(move |r| r.values[i]);
        let by_kind = |a: usize, b: usize| key(a).cmp(&key(b)).then_with(|| values(a).cmp(values(b)));
        if !self.slots.is_empty() {
            let mut slots = std::mem::take(&mut self.slots);
            slots.sort_cards(|i| {
                let dev = &self.devices[i];
                let alone = (dev.info.device.allow_multiple || !dev.twins.is_empty()).then_some(i);
                let watts = self.budget.as_ref().map(|b| b.kind(i).0);
                let counts = self.limit.as_ref().is_some_and(|limit| limit.counts(i));
                let sees = (
                    dev.class,
                    dev.watts,
                    card(dev),
                    &members[i * width..][..width],
                    watts,
                    counts,
                    alone,
                    dev.mode,
                );
                (sees, values(i).collect::<Vec<_>>())
            });
            self.slots = slots;
        }
        // Sorted rather than hashed, and not even that where devices are alike or in order already: mostly they are.
        let mut kinds = vec![0; self.devices.len()];
        let in_order = (1..kinds.len()).all(|i| {
            let order = by_kind(i - 1, i);
            kinds[i] = kinds[i - 1] + usize::from(order.is_lt());
            order.is_le()
        });
        if !in_order {
            let mut order: Vec<usize> = (0..kinds.len()).collect();
            order.sort_unstable_by(|a, b| by_kind(*a, *b));
            kinds[order[0]] = 0;
            for pair in order.windows(2) {
                kinds[pair[1]] = kinds[pair[0]] + usize::from(by_kind(pair[0], pair[1]).is_lt());
            }
        }
        self.devices
            .iter_mut()
            .zip(kinds)
            .for_each(|(dev, kind)| dev.kind = kind);
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

    /// The most devices that the pod may be given to run on.
    fn most_asked(&self) -> usize {
        let most = self.requests.iter().map(|request| {
            let running = request.offers.iter().filter(|o| !o.alternative.request.admin_access);
            running.map(|o| o.asked).max().unwrap_or(0)
        });
        most.fold(0, usize::saturating_add)
    }

    /// What it took to look at every device for every alternative, in search steps.
    pub(super) fn looked(&self) -> u32 {
        let offers: usize = self.requests.iter().map(|r| r.offers.len()).sum();
        u32::try_from(offers.saturating_mul(self.devices.len()) / LOOKED_PER_STEP).unwrap_or(u32::MAX)
    }

    /// The attribute in which what is chosen of one node agrees. None: no device here needs a mode.
    pub(super) fn mode(&self) -> Option<&'static str> {
        let of_mode = self.devices.iter().find(|dev| dev.mode.is_some())?;
        node_mode(&self.pools[of_mode.pool].pool.driver)
    }

    /// Why the offer alone has too few. None: it has enough.
    pub(super) fn shortage(&self, demand: &Demand, offer: &Offer<'a>, mix: bool) -> Option<Refusal> {
        Shortage {
            alternative: offer.alternative,
            asked: u32::try_from(offer.asked).unwrap_or(u32::MAX),
            all: offer.alternative.request.count == Count::All,
            stages: offer.stages,
            taint: offer.taint,
            mode: offer.mode,
            unhealthy: self.unhealthy,
            by_class: &self.by_class(offer),
            wishes: &demand.wishes,
            mix,
        }
        .refusal()
    }
}
