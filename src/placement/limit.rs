//! How many cards a pod of a namespace may hold. Admission counts what a pod asks for; here counts what it would get,
//! because a pod that admission never saw is placed too, and because some claims do not say how many (`All`) or of what
//! kind (a DeviceClass of somebody's own).
//!
//! A card counts once, however it is cut, as in the power domains (`snapshot/boards`); admin access does not count.

use std::collections::BTreeSet;

use super::Context;
use super::allowed::rule_for;
use super::demand::Demand;
use super::offer::{Candidate, Offer};
use super::search::Choice;
use super::solve::found;
use super::view::{Dev, View};
use crate::model::{DeviceId, Name, Reason, Refusal};
use crate::snapshot::{Draw, NodeEntry, PoolState};

/// What one pod's namespace says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    namespace: Name,
    pub(super) most: u32,
}

impl Limit {
    /// None: any number.
    ///
    /// # Errors
    /// The namespace is not known, so that nobody can say how many.
    pub(super) fn of(ctx: Context<'_>, namespace: &Name) -> Result<Option<Self>, Refusal> {
        let Some(rule) = rule_for(ctx, namespace, |rule| rule.most_cards.is_some()) else {
            let words = format!("namespace {namespace} is not known yet, and with it how many GPUs its pods may have");
            return Err(Refusal::new(Reason::NamespaceLimit, words));
        };
        Ok(rule.and_then(|rule| rule.most_cards).map(|most| Self {
            namespace: namespace.clone(),
            most,
        }))
    }

    /// The claims that are allocated already hold more.
    pub(super) fn held(&self, held: usize) -> Option<Refusal> {
        (held > self.most as usize).then(|| self.refusal("the pod's claims hold", held, 0))
    }

    fn refusal(&self, whose: &str, cards: usize, held: usize) -> Refusal {
        let gpus = if cards == 1 { "GPU" } else { "GPUs" };
        let held = if held == 0 {
            String::new()
        } else {
            format!(" ({held} of them held already)")
        };
        let words = format!(
            "{whose} {cards} {gpus}{held}; the policy of namespace {} allows {} a pod",
            self.namespace, self.most
        );
        Refusal::new(Reason::NamespaceLimit, words)
    }
}

/// The cards that claims of the pod hold already.
#[derive(Debug, Default)]
pub(super) struct Held<'a> {
    /// Position of the pool among the node's, and the card by its first device.
    cards: BTreeSet<(usize, u32)>,
    /// What nobody can say the card of: each counts as one, too many rather than too few.
    unknown: BTreeSet<&'a DeviceId>,
}

impl<'a> Held<'a> {
    pub(super) fn of(ctx: Context<'_>, demand: &'a Demand, node: &NodeEntry) -> Self {
        let mut held = Self::default();
        for result in demand.existing().flat_map(|a| &a.results).filter(|r| !r.admin_access) {
            let at = found(ctx, node, &result.id);
            match at.and_then(|(pool, state, at)| Some((pool, state.pool.boards().board(at)?))) {
                Some((_, (_, Draw::Nothing))) => {}
                Some((pool, (card, _))) => {
                    held.cards.insert((pool, card));
                }
                None => {
                    held.unknown.insert(&result.id);
                }
            }
        }
        held
    }

    pub(super) fn len(&self) -> usize {
        self.cards.len() + self.unknown.len()
    }
}

/// The limit one search keeps to.
#[derive(Debug)]
pub(super) struct CardLimit<'a> {
    limit: &'a Limit,
    held: usize,
    left: usize,
    /// By position in `View::devices`: its card. None: no card, or one that the pod has already.
    cards: Vec<Option<usize>>,
    /// By device: others may be of the same card.
    joined: Vec<bool>,
    /// How many cards there may be.
    size: usize,
}

impl<'a> CardLimit<'a> {
    /// None: whatever is chosen, it cannot be too much. `asked`: the most devices the pod may be given.
    pub(super) fn of(
        ctx: Context<'a>,
        demand: &'a Demand,
        node: &'a NodeEntry,
        (pools, devices): (&[&PoolState], &[Dev<'_>]),
        asked: usize,
    ) -> Option<Self> {
        let limit = demand.limit.as_ref()?;
        let held = Held::of(ctx, demand, node);
        let left = (limit.most as usize).saturating_sub(held.len());
        if asked <= left {
            return None;
        }
        // By pool of the view: where it is among the node's, and where its cards begin.
        let mut of_node = Vec::with_capacity(pools.len());
        let mut size = 0;
        for state in pools {
            let mut all = ctx.snapshot.pools_of(node);
            let at = all.position(|(s, _)| std::ptr::eq(&**s, *state));
            of_node.push((at.unwrap_or(usize::MAX), size));
            size += state.pool.devices.len();
        }
        let card = |dev: &Dev<'_>| {
            let (pool, first) = of_node[dev.pool];
            match pools[dev.pool].pool.boards().board(dev.at) {
                Some((_, Draw::Nothing)) => None,
                Some((card, _)) if held.cards.contains(&(pool, card)) => None,
                Some((card, _)) => Some(first + card as usize),
                None => Some(first + dev.at),
            }
        };
        let joined = |dev: &Dev<'_>| pools[dev.pool].pool.boards().joined.contains(dev.at);
        Some(Self {
            limit,
            held: held.len(),
            left,
            cards: devices.iter().map(card).collect(),
            joined: devices.iter().map(joined).collect(),
            size,
        })
    }

    /// Whether it adds a card, as long as no other device of the card is chosen.
    pub(super) fn counts(&self, dev: usize) -> bool {
        self.cards[dev].is_some()
    }

    /// Devices of one card are not interchangeable with others.
    pub(super) fn tells_apart(&self, dev: usize) -> bool {
        self.joined[dev]
    }

    /// Cards that an offer adds at least, beside whatever else is chosen: those that may be chosen twice add nothing.
    pub(super) fn least(&self, offer: &Offer<'_>) -> usize {
        if offer.alternative.request.admin_access {
            return 0;
        }
        let adds = |c: &&Candidate| self.cards[c.dev].is_some() && !self.joined[c.dev] && c.takes.is_none();
        let free_of_charge = offer.candidates.len() - offer.candidates.iter().filter(adds).count();
        offer.asked.saturating_sub(free_of_charge)
    }

    /// Whether so many cards more may be had.
    pub(super) fn affords(&self, cards: usize) -> bool {
        cards <= self.left
    }

    fn refusal(&self, more: usize) -> Refusal {
        self.limit.refusal("the pod asks for", self.held + more, self.held)
    }
}

/// What a search has chosen so far.
#[derive(Debug)]
pub(super) struct Tally<'v> {
    limit: &'v CardLimit<'v>,
    /// By card: devices chosen of it.
    chosen: Vec<u32>,
    cards: usize,
}

impl<'v> Tally<'v> {
    pub(super) fn new(limit: &'v CardLimit<'v>) -> Self {
        Self {
            limit,
            chosen: vec![0; limit.size],
            cards: 0,
        }
    }

    pub(super) fn fits(&self, candidate: &Candidate) -> bool {
        self.limit.cards[candidate.dev].is_none_or(|card| self.chosen[card] > 0 || self.cards < self.limit.left)
    }

    pub(super) fn take(&mut self, candidate: &Candidate) {
        if let Some(card) = self.limit.cards[candidate.dev] {
            self.cards += usize::from(self.chosen[card] == 0);
            self.chosen[card] += 1;
        }
    }

    /// Undoes the last `take` that is not undone.
    pub(super) fn give_back(&mut self, candidate: &Candidate) {
        if let Some(card) = self.limit.cards[candidate.dev] {
            self.chosen[card] -= 1;
            self.cards -= usize::from(self.chosen[card] == 0);
        }
    }
}

/// The refusal where the limit stands in the way of every alternative, whatever devices are chosen.
pub(super) fn always_over(view: &View<'_>) -> Option<Refusal> {
    let limit = view.limit.as_ref()?;
    let least = view.requests.iter().map(|request| {
        let possible = request.offers.iter().filter(|o| o.possible());
        possible.map(|o| limit.least(o)).min().unwrap_or(0)
    });
    let least = least.fold(0, usize::saturating_add);
    (!limit.affords(least)).then(|| limit.refusal(least))
}

/// The refusal where the limit stands in the way of this choice.
pub(super) fn over(view: &View<'_>, choice: &Choice) -> Option<Refusal> {
    let limit = view.limit.as_ref()?;
    let mut chosen = BTreeSet::new();
    for (request, (offer, picks)) in view.requests.iter().zip(choice.offers.iter().zip(&choice.picks)) {
        let offer = &request.offers[*offer];
        if !offer.alternative.request.admin_access {
            chosen.extend(picks.iter().filter_map(|pick| limit.cards[offer.candidates[*pick].dev]));
        }
    }
    (!limit.affords(chosen.len())).then(|| limit.refusal(chosen.len()))
}
