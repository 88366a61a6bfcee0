//! How the cards of a node are connected: finds its whole cards among the pools it sees, asks `topology` what is known
//! of them, and shares the tables between nodes that are built alike.

use std::collections::HashMap;
use std::sync::Arc;

use crate::model::{Device, Name, Node, NodeScope};
use crate::snapshot::{Pool, PoolState, Visible, Wiring};
use crate::topology::{Link, MOST_CARDS, Report, Shape, annotation, links};

/// Shapes kept before those that no node has any more are forgotten.
const KEPT: usize = 256;

#[derive(Default)]
pub(super) struct Shapes {
    known: HashMap<(Box<[Link]>, bool), Arc<Shape>>,
    /// Without their tables yet.
    cold: Vec<Arc<Shape>>,
}

impl Shapes {
    fn shape(&mut self, links: &[Link], bare: bool) -> Option<Arc<Shape>> {
        let key = (links.into(), bare);
        if let Some(known) = self.known.get(&key) {
            return Some(known.clone());
        }
        let shape = Arc::new(Shape::new(links, bare)?);
        if self.known.len() >= KEPT {
            self.known.retain(|_, shape| Arc::strong_count(shape) > 1);
        }
        self.known.insert(key, shape.clone());
        if !shape.is_warm() {
            self.cold.push(shape.clone());
        }
        Some(shape)
    }

    pub(super) fn take_cold(&mut self) -> Vec<Arc<Shape>> {
        std::mem::take(&mut self.cold)
    }

    /// None: less than two cards, more than tables hold, or nothing is known of any pair.
    pub(super) fn wiring(&mut self, node: &Node, pools: &[(&PoolState, &Visible)]) -> Option<Wiring> {
        let mut cards: Vec<(&Name, &Device)> = vec![];
        // By uuid: a card that is listed twice (for passthrough as well) is one.
        let mut listed: HashMap<&Name, usize> = HashMap::new();
        let mut places = vec![];
        for (state, visible) in pools {
            let pool = &*state.pool;
            let mut place = |i: usize| {
                let device = &*pool.devices[i].device;
                if !visible.sees(i) || !is_card(pool, i, &node.name) {
                    return None;
                }
                let next = cards.len();
                let card = match device.string(&pool.driver, "uuid") {
                    Some(uuid) => *listed.entry(uuid).or_insert(next),
                    None => next,
                };
                if card == next {
                    cards.push((&pool.driver, device));
                }
                Some(card)
            };
            places.push((0..pool.devices.len()).map(&mut place).collect::<Vec<_>>());
        }
        if !(2..=MOST_CARDS).contains(&cards.len()) {
            return None;
        }
        let known = links(&cards, &node.labels, report(node).as_ref())?;
        Some(Wiring::new(
            self.shape(&known.links, known.bare)?,
            known.source,
            &places,
        ))
    }
}

/// A whole card of the node itself: not a partition, not given in shares, not a NIC.
fn is_card(pool: &Pool, device: usize, node: &Name) -> bool {
    let of_node = |scope: &NodeScope| matches!(scope, NodeScope::Node(name) if name == node);
    let info = &pool.devices[device];
    info.classified.class.is_some() && of_node(&info.scope) && !pool.summary().parts.contains(device)
}

/// What a probe said of the node. One that cannot be read is as good as none; `explain` then names another source.
fn report(node: &Node) -> Option<Report> {
    annotation::decode(node.annotations.get(annotation::ANNOTATION)?).ok()
}
