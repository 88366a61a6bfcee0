//! Which card of a node a share is taken from: of those that draw as little the one by which least is lost to whoever comes next.

use super::Context;
use super::demand::Demand;
use super::search::Choice;
use super::vacancy::{Part, Vacancy, left};
use super::view::{Dev, View};
use crate::model::Quantity;
use crate::snapshot::NodeEntry;
use crate::snapshot::mix::{CARD, thousandths};

/// Puts the candidates that are shares in the order of what is lost by them; where that is the same, or nothing is known of CPU or of what pods ask for,
/// the fuller card first.
pub(super) fn order(ctx: Context<'_>, demand: &Demand, node: &NodeEntry, view: &mut View<'_>) {
    let offers = || view.requests.iter().flat_map(|r| &r.offers);
    if offers().all(|o| o.candidates.iter().all(|c| c.takes.is_none())) {
        return;
    }
    let vacancy = (!ctx.rules.spread)
        .then(|| Vacancy::of(ctx, node, ctx.snapshot.node_ix(&node.node.name)?))
        .flatten();
    let before = vacancy.map_or(0, |v| v.before(ctx));
    let mut all: Vec<u32> = vec![];
    for offer in offers() {
        let mut known: Vec<(Part, (i64, u16))> = vec![];
        let prices: Vec<(i64, u16)> = offer
            .candidates
            .iter()
            .map(|candidate| {
                let dev = &view.devices[candidate.dev];
                let Some(takes) = candidate
                    .takes
                    .as_deref()
                    .filter(|_| !offer.alternative.request.admin_access)
                else {
                    return (0, 0);
                };
                let part = part(view, dev, Some(takes));
                // Cards that are alike are many.
                if let Some((_, price)) = known.iter().find(|(p, _)| *p == part) {
                    return *price;
                }
                let price = vacancy.map_or(0, |v| v.price(ctx, demand, before, std::iter::once(part), 0));
                let price = (price, part.0.saturating_sub(part.1));
                known.push((part, price));
                price
            })
            .collect();
        let least = prices.iter().map(|(price, _)| *price).min().unwrap_or(0);
        let dear = |(price, rest): &(i64, u16)| {
            let above = price.saturating_sub(least).saturating_mul(i64::from(CARD) + 1);
            u32::try_from(above.saturating_add(i64::from(*rest))).unwrap_or(u32::MAX)
        };
        all.extend(prices.iter().map(dear));
    }
    let offers = view.requests.iter_mut().flat_map(|r| &mut r.offers);
    let candidates = offers.flat_map(|o| &mut o.candidates);
    candidates.zip(all).for_each(|(candidate, dear)| candidate.dear = dear);
}

/// What is left of the card, and what is taken of that.
fn part(view: &View<'_>, dev: &Dev<'_>, takes: Option<&[Quantity]>) -> Part {
    let left = left(view.pools[dev.pool], dev.at);
    let taken = takes.map_or(left, |takes| {
        let capacities = dev.info.device.capacity.iter().zip(takes);
        let each = capacities
            .map(|((_, all), takes)| CARD - thousandths(all.value.nanos() - takes.nanos(), all.value.nanos()));
        each.max().unwrap_or(CARD)
    });
    (left, taken)
}

/// What a choice takes of whole cards and of those that are shared.
pub(super) fn parts(view: &View<'_>, choice: &Choice) -> Vec<Part> {
    let chosen = view.requests.iter().zip(choice.offers.iter().zip(&choice.picks));
    let chosen = chosen.flat_map(|(request, (offer, picks))| {
        let offer = &request.offers[*offer];
        let running = picks.iter().filter(|_| !offer.alternative.request.admin_access);
        running.map(|pick| &offer.candidates[*pick])
    });
    let cards = chosen.filter_map(|candidate| {
        let dev = &view.devices[candidate.dev];
        // A NIC is no card, and partitions have a table of their own.
        (dev.class.is_some() && dev.counters.is_empty()).then(|| part(view, dev, candidate.takes.as_deref()))
    });
    cards.collect()
}
