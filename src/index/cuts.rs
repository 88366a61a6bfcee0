//! From the counters of a pool to the cards that can be cut. Cards that are built alike share one table; a fleet has a
//! handful.

use std::collections::HashMap;
use std::sync::Arc;

use crate::model::{Device, Name};
use crate::partition::{Amounts, Shape, ShapeKey};
use crate::snapshot::{Card, Cuts, Pool};

/// Shapes kept before those that no pool has any more are forgotten.
const KEPT: usize = 256;
/// What a whole card is called among its profiles.
const WHOLE: &str = "whole";

#[derive(Default)]
pub(super) struct CutShapes {
    known: HashMap<ShapeKey, Arc<Shape>>,
}

impl CutShapes {
    fn shape(&mut self, key: ShapeKey) -> Arc<Shape> {
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let shape = Arc::new(Shape::new(&key));
        if self.known.len() >= KEPT {
            self.known.retain(|_, shape| Arc::strong_count(shape) > 1);
        }
        self.known.insert(key, shape.clone());
        shape
    }

    pub(super) fn cuts(&mut self, pool: &Pool) -> Cuts {
        if pool.counter_sets.is_empty() {
            return Cuts::default();
        }
        let mut cards = vec![];
        let mut of = vec![None; pool.devices.len()];
        for (set, counters) in pool.counter_sets.iter().enumerate() {
            // Of several sets: a rule between cards, and no card's own.
            let only = |d: &&(usize, &Device)| d.1.consumes.len() == 1 && d.1.consumes[0].counter_set == counters.name;
            let devices = pool.devices.iter().enumerate().map(|(i, d)| (i, &*d.device));
            let devices: Vec<(usize, &Device)> = devices.filter(|d| only(&d)).collect();
            let draws: Vec<Vec<i128>> = devices.iter().map(|(_, d)| draws(pool, set, d)).collect();
            let total: Vec<i128> = counters.counters.iter().map(|(_, q)| q.nanos().max(0)).collect();
            let units: Box<[i128]> = (0..total.len()).map(|c| unit(c, &total, &draws)).collect();
            let (Some(full), Some(amounts)) = (
                scaled(&total, &units),
                draws.iter().map(|d| scaled(d, &units)).collect::<Option<Vec<_>>>(),
            ) else {
                continue;
            };
            if devices.is_empty() || full.is_empty() {
                continue;
            }
            let named = devices.iter().zip(&amounts);
            let named: Vec<(Name, Amounts)> = named
                .map(|((_, d), amounts)| (called(d, amounts, &full), amounts.clone()))
                .collect();
            let shape = self.shape(ShapeKey::new(full, named.iter().cloned()));
            let card = u16::try_from(cards.len()).ok();
            for ((i, _), (name, amounts)) in devices.iter().zip(&named) {
                let cut = shape.cut(name, amounts).and_then(|cut| u16::try_from(cut).ok());
                of[*i] = card.zip(cut);
            }
            cards.push(Card::new(set, shape, units));
        }
        Cuts::new(cards, of)
    }
}

/// What the device draws of each counter of the set, in nanos.
fn draws(pool: &Pool, set: usize, device: &Device) -> Vec<i128> {
    let mut draws = vec![0; pool.counter_sets[set].counters.len()];
    for (at, amount) in pool.draws(device) {
        if let Some((_, counter)) = at.filter(|(s, _)| *s == set) {
            draws[counter] += amount.nanos().max(0);
        }
    }
    draws
}

/// The greatest amount that all draws of a counter, and what there is of it, are multiples of. 0: nobody draws of it.
fn unit(counter: usize, total: &[i128], draws: &[Vec<i128>]) -> i128 {
    let drawn = draws.iter().map(|d| d[counter]).fold(0, gcd);
    match drawn {
        0 => 0,
        drawn => gcd(drawn, total[counter]),
    }
}

fn gcd(mut a: i128, mut b: i128) -> i128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// In units, without the counters nobody draws of. None: more than a table holds.
fn scaled(amounts: &[i128], units: &[i128]) -> Option<Amounts> {
    let used = amounts.iter().zip(units).filter(|(_, unit)| **unit > 0);
    used.map(|(amount, unit)| u32::try_from(amount / unit).ok()).collect()
}

/// What the device is among its card's: its profile, else `whole` where it takes all there is, else what it takes.
fn called(device: &Device, amounts: &Amounts, full: &Amounts) -> Name {
    match device.profile() {
        Some(profile) if device.is_partition() => profile.clone(),
        _ if amounts == full => WHOLE.into(),
        Some(profile) => profile.clone(),
        None => device.consumes[0]
            .counters
            .iter()
            .map(|(name, amount)| format!("{name}={amount}"))
            .collect::<Vec<_>>()
            .join(",")
            .into(),
    }
}
