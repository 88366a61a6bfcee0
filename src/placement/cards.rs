//! The wired cards of one node, as a view has them: what is free of each class, and what a choice would break.

use super::Context;
use super::demand::Demand;
use super::solve::found;
use super::view::View;
use crate::snapshot::NodeEntry;
use crate::topology::{Cards, Worth};

impl View<'_> {
    /// What is free of the node's cards, and what the pod has of them.
    pub(super) fn add_cards(&mut self, ctx: Context<'_>, demand: &Demand, node: &NodeEntry) {
        let Some(wiring) = self.wiring else { return };
        self.free = vec![0; self.classes.len() + 1];
        let mut broken = 0;
        for (pool, (state, _)) in ctx.snapshot.pools_of(node).enumerate() {
            for (at, card) in wiring.of_pool(pool) {
                let class = state.pool.devices.get(at).and_then(|d| d.classified.class.as_ref());
                let of = match class {
                    None => Some(self.classes.len()),
                    Some(class) => self.classes.iter().position(|c| *c == class),
                };
                // Of a class that no request can have: nothing of it can be broken.
                let Some(free) = of.and_then(|of| self.free.get_mut(of)) else {
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
            let Some((pool, state, at)) = found(ctx, node, &result.id) else {
                continue;
            };
            let classed = state.pool.devices[at].classified.class.is_some();
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
}
