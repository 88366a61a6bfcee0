//! Devices that somebody holds and that are not where they are counted: of another pool of their driver, or of none any
//! more. What they overlap stays taken (`snapshot::Shadow`). A device is remembered as it was last published, for as long
//! as it is held; after a restart there is nothing to remember, and a pool whose cards can be cut is closed until such a
//! claim is gone.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::ledger::{Holder, Use};
use super::{Index, PoolKey};
use crate::model::{Device, Name, NodeScope};
use crate::snapshot::{ByCard, Drawn, Pool, PoolDevice, PoolHealth, PoolState, Shadow, Shadows};

/// Devices of a pool that are remembered though nobody is known to hold them: the watch of claims may be behind.
const KEPT: usize = 256;

#[derive(Default)]
pub(super) struct Absent {
    /// Published once, and not now.
    gone: HashMap<PoolKey, BTreeMap<Name, PoolDevice>>,
    /// By node: pools of which all is gone.
    away: HashMap<Name, BTreeSet<PoolKey>>,
    /// By pool: those in which devices of it have shadows.
    seen_in: HashMap<PoolKey, BTreeSet<PoolKey>>,
    /// Pools of which something is held that nobody can place: what.
    lost: HashMap<PoolKey, Name>,
}

impl Absent {
    pub(super) fn seen_in(&self, key: &PoolKey) -> impl Iterator<Item = &PoolKey> {
        self.seen_in.get(key).into_iter().flatten()
    }

    fn gone(&self, key: &PoolKey) -> impl Iterator<Item = &PoolDevice> {
        self.gone.get(key).into_iter().flat_map(BTreeMap::values)
    }
}

fn nodes<'a>(devices: impl Iterator<Item = &'a PoolDevice>) -> BTreeSet<Name> {
    let scopes = devices.map(|d| &d.scope);
    let named = scopes.filter_map(|scope| match scope {
        NodeScope::Node(name) => Some(name.clone()),
        _ => None,
    });
    named.collect()
}

impl Index {
    /// The pool was `old` and is `new` (None: it is not published): remembers what vanished.
    pub(super) fn note_vanished(&mut self, key: &PoolKey, old: Option<&Pool>, new: Option<&Pool>) {
        let there = |name: &Name| new.is_some_and(|new| new.by_name.contains_key(name));
        let mut gone = self.absent.gone.remove(key).unwrap_or_default();
        for node in nodes(gone.values()) {
            if let Some(keys) = self.absent.away.get_mut(&node) {
                keys.remove(key);
                if keys.is_empty() {
                    self.absent.away.remove(&node);
                }
            }
        }
        gone.retain(|name, _| !there(name));
        let old = old.into_iter().flat_map(|old| &old.devices);
        gone.extend(
            old.filter(|d| !there(&d.device.name))
                .map(|d| (d.device.name.clone(), d.clone())),
        );
        if gone.len() > KEPT || new.is_none() {
            let held: BTreeSet<&Name> = self
                .ledger
                .uses(key)
                .flat_map(|(_, uses)| uses)
                .map(|u| &u.device)
                .collect();
            gone.retain(|name, _| held.contains(name));
        }
        if gone.is_empty() {
            return;
        }
        if new.is_none() {
            for node in nodes(gone.values()) {
                self.absent.away.entry(node).or_default().insert(key.clone());
            }
        }
        self.absent.gone.insert(key.clone(), gone);
    }

    /// Of a pool that is not published only what is held is remembered.
    pub(super) fn forget_vanished(&mut self, key: &PoolKey) {
        if self.absent.gone.contains_key(key) {
            self.note_vanished(key, None, None);
        }
    }

    /// The other pools of the driver that may list the same cards: those of its nodes, and those of no single node.
    fn beside(&self, key: &PoolKey, devices: &[PoolDevice]) -> BTreeSet<PoolKey> {
        let mut beside: BTreeSet<PoolKey> = self.absent.seen_in(key).cloned().collect();
        if self.wide.contains(key) {
            beside.extend(self.pools.keys().chain(self.absent.gone.keys()).cloned());
        } else {
            let gone = self.absent.gone(key);
            for node in nodes(devices.iter().chain(gone)) {
                let here = self.local.get(&node).into_iter().chain(self.absent.away.get(&node));
                beside.extend(here.flatten().cloned());
            }
            beside.extend(self.wide.iter().cloned());
        }
        beside.retain(|other| other != key && other.driver == key.driver);
        beside
    }

    /// What the pool has to know of devices that are not in it; `pool` is not published yet.
    pub(super) fn shadows_in(&self, key: &PoolKey, pool: &Pool) -> Shadows {
        let beside = self.beside(key, &pool.devices);
        let mut shadows = Shadows::default();
        if beside.is_empty() && !self.absent.gone.contains_key(key) {
            return shadows;
        }
        let cards = ByCard::of(&pool.devices);
        for d in self.absent.gone(key) {
            let (drawn, whole) = drawn(pool, &d.device);
            let over = cards.overlapping(d, whole);
            // Of a card that is one by itself nothing else is made.
            let unplaced = !cards.tells(d) && (!whole || d.device.is_partition());
            if !over.is_empty() || !drawn.is_empty() || unplaced {
                let shadow = Shadow {
                    over: over.into_iter().collect(),
                    drawn,
                    published: false,
                    unplaced,
                };
                shadows.insert((key.name.clone(), d.device.name.clone()), shadow);
            }
        }
        for other in &beside {
            shadows.extend(self.shadows_of(other, &cards));
        }
        shadows
    }

    /// What another pool's devices, published or gone, overlap among these.
    fn shadows_of(&self, other: &PoolKey, cards: &ByCard<'_>) -> Shadows {
        let published = self.pool(other).into_iter().flat_map(|pool| &pool.devices);
        let all = published
            .map(|d| (d, true))
            .chain(self.absent.gone(other).map(|d| (d, false)));
        let shadows = all.filter_map(|(d, published)| {
            let over: Box<[u32]> = cards.overlapping(d, false).into_iter().collect();
            let shadow = Shadow {
                over,
                drawn: [].into(),
                published,
                unplaced: false,
            };
            (!shadow.over.is_empty()).then(|| ((other.name.clone(), d.device.name.clone()), shadow))
        });
        shadows.collect()
    }

    /// The pool changed: those beside it learn of it.
    pub(super) fn cast_shadows(&mut self, key: &PoolKey, old: Option<&Pool>) {
        let now = self.pool(key).map(|pool| (pool.devices.clone(), pool.shadows.clone()));
        let (devices, shadows) = now.unwrap_or_default();
        let was = old.map_or(&[][..], |old| &old.devices);
        let mut beside = self.beside(key, &devices);
        if !was.is_empty() {
            beside.extend(self.beside(key, was));
        }
        for (of, _) in shadows.keys().filter(|(of, _)| *of != key.name) {
            let of = PoolKey {
                driver: key.driver.clone(),
                name: of.clone(),
            };
            self.absent.seen_in.entry(of).or_default().insert(key.clone());
        }
        for other in beside {
            let Some(pool) = self.pool(&other) else { continue };
            let fresh = self.shadows_of(key, &ByCard::of(&pool.devices));
            let known = pool.shadows.iter().filter(|((of, _), _)| *of == key.name);
            if known.eq(fresh.iter()) {
                continue;
            }
            let mut shadows = pool.shadows.clone();
            shadows.retain(|(of, _), _| *of != key.name);
            let seen = !fresh.is_empty();
            shadows.extend(fresh);
            let pool = pool.with_shadows(shadows);
            if let Some(record) = self.pools.get(&other) {
                self.set_pool(record.ix, Some(PoolState::untouched(Arc::new(pool))));
            }
            let seen_in = self.absent.seen_in.entry(key.clone()).or_default();
            match seen {
                true => seen_in.insert(other.clone()),
                false => seen_in.remove(&other),
            };
            self.stale_holds.extend(self.ledger.holds(&other));
            self.stale_states.insert(other);
            self.loosened = true;
        }
        if self.absent.seen_in.get(key).is_some_and(BTreeSet::is_empty) {
            self.absent.seen_in.remove(key);
        }
    }

    /// What holders of other pools' devices take of this one.
    pub(super) fn uses_beside(&self, key: &PoolKey, pool: &Pool) -> Vec<(Holder, Vec<Use>)> {
        let others: BTreeSet<&Name> = pool
            .shadows
            .keys()
            .map(|(of, _)| of)
            .filter(|of| **of != key.name)
            .collect();
        let mut uses = vec![];
        for name in others {
            let other = PoolKey {
                driver: key.driver.clone(),
                name: name.clone(),
            };
            for (holder, held) in self.ledger.uses(&other) {
                let held = held.iter().map(|used| beside(used, name)).collect();
                uses.push((holder.clone(), held));
            }
        }
        uses
    }

    /// Says for the pool whether something is held of it that nobody can place; and to its nodes, where that is news.
    pub(super) fn settle_lost(&mut self, key: &PoolKey, pool: &Pool) {
        let words = self.unplaced(key, pool);
        if self.absent.lost.get(key) == words.as_ref() {
            return;
        }
        match words {
            Some(words) => self.absent.lost.insert(key.clone(), words),
            None => self.absent.lost.remove(key),
        };
        let local = self.pools.get(key).into_iter().flat_map(|record| record.scopes.local());
        self.stale_nodes.extend(local.cloned());
        if self.wide.contains(key) {
            self.touch_all();
        }
        self.loosened = true;
    }

    fn unplaced(&self, key: &PoolKey, pool: &Pool) -> Option<Name> {
        let mut held = self
            .ledger
            .uses(key)
            .flat_map(|(holder, uses)| uses.iter().map(move |u| (holder, u)));
        let (holder, used) = held.find(|(_, used)| {
            let shadow = || pool.shadows.get(&(key.name.clone(), used.device.clone()));
            let known = || {
                self.absent
                    .gone
                    .get(key)
                    .is_some_and(|gone| gone.contains_key(&used.device))
            };
            let placed = || known() && shadow().is_none_or(|s| !s.unplaced);
            !(pool.by_name.contains_key(&used.device) || placed())
        })?;
        // Of cards that nobody cuts each is its own: one that is not there is none of those that are.
        let cut = |d: &PoolDevice| !d.device.consumes.is_empty() || d.device.is_partition();
        if pool.counter_sets.is_empty() && !pool.devices.iter().any(cut) {
            return None;
        }
        let (Holder::Claim(claim) | Holder::Reservation(_, claim) | Holder::Hold(_, claim)) = holder;
        Some(format!("claim {claim} holds {}", used.device).into())
    }

    /// Why nothing of the pool is given. None: what is held of it is known.
    pub(super) fn lost(&self, key: &PoolKey) -> Option<PoolHealth> {
        self.absent.lost.get(key).cloned().map(PoolHealth::Lost)
    }

    pub(super) fn pool_gone(&mut self, key: &PoolKey) {
        self.absent.lost.remove(key);
    }
}

/// The use as it counts in another pool.
pub(super) fn beside(used: &Use, of: &Name) -> Use {
    Use {
        pool: Some(of.clone()),
        ..used.clone()
    }
}

/// What a device that is gone takes of the pool's counters, and whether that is all it took.
fn drawn(pool: &Pool, device: &Device) -> (Box<[Drawn]>, bool) {
    let mut whole = true;
    let drawn = pool.draws(device).filter_map(|(at, amount)| {
        whole &= at.is_some();
        at.map(|(set, counter)| (set, counter, amount))
    });
    (drawn.collect(), whole)
}
