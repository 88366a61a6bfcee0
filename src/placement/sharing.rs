//! Which card of a node a share is taken from: the one by which least is lost to those who come next, and least is drawn.

use super::Context;
use super::demand::Demand;
use super::search::Choice;
use super::vacancy::{Part, Vacancy, left, thousandths};
use super::view::{Dev, View};
use crate::model::Quantity;
use crate::snapshot::{NodeEntry, mix::CARD};

/// Puts the candidates that are shares in the order of their price. Where nothing is known of CPU or of what pods ask for, a
/// card in use is cheaper than one that is not, and of two in use the fuller one.
pub(super) fn order(ctx: Context<'_>, demand: &Demand, node: &NodeEntry, view: &mut View<'_>) {
    let offers = || view.requests.iter().flat_map(|r| &r.offers);
    if offers().all(|o| o.candidates.iter().all(|c| c.takes.is_none())) {
        return;
    }
    let vacancy = (!ctx.rules.spread)
        .then(|| Vacancy::of(ctx, node, ctx.snapshot.node_ix(&node.node.name)?))
        .flatten();
    let before = vacancy.map_or(0, |v| v.before(ctx));
    let mut places: Vec<u32> = vec![];
    for offer in offers() {
        let mut known: Vec<(Part, u32, (i64, u16))> = vec![];
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
                let watts = if dev.shared { 0 } else { dev.watts.unwrap_or(0) };
                // Cards that are alike are many.
                if let Some((.., price)) = known.iter().find(|(p, w, _)| *p == part && *w == watts) {
                    return *price;
                }
                let price = match &vacancy {
                    Some(vacancy) => vacancy.price(ctx, demand, before, std::iter::once(part), u64::from(watts)),
                    None => i64::from(watts),
                };
                let rest = part.0.saturating_sub(part.1);
                let price = (price, if ctx.rules.spread { CARD - rest } else { rest });
                known.push((part, watts, price));
                price
            })
            .collect();
        let mut sorted = prices.clone();
        sorted.sort_unstable();
        sorted.dedup();
        let place = |price| sorted.binary_search(price).unwrap_or_default();
        places.extend(prices.iter().map(|p| u32::try_from(place(p)).unwrap_or(u32::MAX)));
    }
    let offers = view.requests.iter_mut().flat_map(|r| &mut r.offers);
    let candidates = offers.flat_map(|o| &mut o.candidates);
    candidates
        .zip(places)
        .for_each(|(candidate, place)| candidate.dear = place);
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
