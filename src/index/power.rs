//! The sum of what is drawn of every power domain, kept as it changes: each pool's part is taken out and put in again
//! when what is held of the pool, the pool, or a node's domains change.
//!
//! What counts is what is held in the ledger, by whomever: each card once, with its whole watts, however small the part
//! of it that is held. A held device that is not published (its driver restarts, the card has failed) still draws power:
//! it counts what it was last seen with; one never seen counts as the dearest card of its pool; where nothing is
//! published of the pool either, its watts are unknown, in the domains of the node its pool is named after, as drivers
//! name them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::ledger::Holder;
use super::{HoldId, Index, NodeIx, PoolKey, Reservation, settle};
use crate::model::{Budget, Name, NodeScope};
use crate::snapshot::{Domain, DomainIx, Draw, NodeEntry, Pool, Use};

#[derive(Default)]
pub(super) struct Domains {
    /// By label and value.
    positions: HashMap<(Name, Name), DomainIx>,
    /// By position: nodes in the domain, and one more where the policy names it. None: free.
    members: Vec<u32>,
    free: Vec<DomainIx>,
    named: Vec<DomainIx>,
    parts: HashMap<PoolKey, Part>,
    /// The pools whose part falls on a node's domains.
    by_node: HashMap<Name, BTreeSet<PoolKey>>,
    /// By position: what is in use there of unknown watts.
    unknown: Vec<BTreeSet<Name>>,
}

/// Where the cards of a pool draw their power.
#[derive(Clone, Debug, PartialEq)]
enum Feed {
    Node(Name),
    /// Every node that reaches the pool.
    Wide,
}

/// What is known of a held device.
#[derive(Clone, Debug)]
struct Held {
    /// The first device of its card.
    card: Name,
    draw: Draw,
    feed: Feed,
}

/// What one pool draws.
#[derive(Default)]
struct Part {
    held: BTreeMap<Name, Held>,
    cards: BTreeSet<Name>,
    watts: BTreeMap<DomainIx, u64>,
    unknown: Vec<(DomainIx, Name)>,
    /// Cards that a hold alone has something of: what they draw, and where.
    of_holds: BTreeMap<Name, (HoldId, u64, Vec<DomainIx>)>,
}

impl Domains {
    /// No domain has a budget, and none had: nothing to add up.
    fn idle(&self) -> bool {
        self.positions.is_empty() && self.parts.is_empty()
    }
}

impl Index {
    /// What is held of the pool has changed, or the pool.
    pub(super) fn touch_power(&mut self, key: &PoolKey) {
        if !self.domains.idle() {
            self.stale_power.insert(key.clone());
        }
    }

    /// The domains of a node have changed, or what the node reaches.
    pub(super) fn touch_power_of(&mut self, node: &Name) {
        if self.domains.idle() {
            return;
        }
        let parts = self.domains.by_node.get(node).into_iter().flatten();
        self.stale_power.extend(parts.chain(&self.wide).cloned());
    }

    /// After a change of policy: the domains of every node, and everything that is held.
    pub(super) fn reset_domains(&mut self) {
        let named = self.classifier.named_budgets();
        let named: Vec<DomainIx> = named.into_iter().map(|b| self.enter(b)).collect();
        for old in std::mem::replace(&mut self.domains.named, named) {
            self.leave(old);
        }
        let nodes: Vec<(NodeIx, Arc<_>)> = self.snapshot.nodes().map(|(ix, n)| (ix, n.clone())).collect();
        for (ix, entry) in nodes {
            let domains = self.enter_node(&entry.node.labels);
            entry.domains.iter().for_each(|old| self.leave(*old));
            if domains != entry.domains {
                let entry = NodeEntry::clone(&entry);
                self.set_node(ix, NodeEntry { domains, ..entry });
            }
        }
        if !self.domains.idle() {
            let all = self.ledger.pools().chain(self.domains.parts.keys()).chain(&self.wide);
            let all: Vec<PoolKey> = all.chain(self.held_pools()).cloned().collect();
            self.stale_power.extend(all);
        }
    }

    /// Each is to be left once.
    pub(super) fn enter_node(&mut self, labels: &crate::model::Labels) -> Arc<[DomainIx]> {
        let budgets = self.classifier.budgets(labels);
        budgets.into_iter().map(|b| self.enter(b)).collect()
    }

    fn enter(&mut self, budget: Budget) -> DomainIx {
        let key = (budget.label.clone(), budget.value.clone());
        if self.domains.idle() {
            // The first budget: nothing was added up so far.
            let all = self.ledger.pools().chain(&self.wide).chain(self.held_pools());
            self.stale_power.extend(all.cloned().collect::<Vec<_>>());
        }
        let domains = &mut self.domains;
        let ix = *domains.positions.entry(key).or_insert_with(|| {
            domains.free.pop().unwrap_or_else(|| {
                domains.members.push(0);
                domains.unknown.push(BTreeSet::new());
                let last = domains.members.len() - 1;
                DomainIx(u32::try_from(last).expect("fewer domains than 2^32: each has a node or a line of the policy"))
            })
        });
        domains.members[ix.0 as usize] += 1;
        let power = &mut self.snapshot.power;
        let there = power.budgets.get(ix.0 as usize).and_then(Option::as_ref);
        if there.is_none_or(|b| **b != budget) {
            settle::put(Arc::make_mut(&mut power.budgets), ix.0, Some(Arc::new(budget)));
            self.changed = true;
        }
        let uses = Arc::make_mut(&mut power.uses);
        if uses.len() <= ix.0 as usize {
            uses.resize(ix.0 as usize + 1, Use::default());
        }
        ix
    }

    /// The last to leave frees the position. What is drawn there goes when the parts that fell on it are settled.
    pub(super) fn leave(&mut self, ix: DomainIx) {
        let domains = &mut self.domains;
        let members = &mut domains.members[ix.0 as usize];
        *members -= 1;
        if *members > 0 {
            return;
        }
        let budgets = Arc::make_mut(&mut self.snapshot.power.budgets);
        if let Some(budget) = budgets.get_mut(ix.0 as usize).and_then(Option::take) {
            domains.positions.remove(&(budget.label.clone(), budget.value.clone()));
            domains.free.push(ix);
        }
        self.changed = true;
    }

    pub(super) fn settle_power(&mut self, key: &PoolKey) {
        let old = self.domains.parts.remove(key).unwrap_or_default();
        let new = self.part(key, &old.held, &BTreeSet::new());
        self.stale_holds.extend(self.ledger.holds(key));
        self.settle_wide(key);
        if old.watts != new.watts || old.unknown != new.unknown {
            self.move_use(&old, &new);
        }
        for (node, there) in [(nodes(&old), false), (nodes(&new), true)] {
            for node in node {
                let of = self.domains.by_node.entry(node.clone()).or_default();
                if there {
                    of.insert(key.clone());
                } else {
                    of.remove(key);
                }
                if of.is_empty() {
                    self.domains.by_node.remove(&node);
                }
            }
        }
        if !new.held.is_empty() {
            self.domains.parts.insert(key.clone(), new);
        }
    }

    /// From what the part drew to what it draws.
    fn move_use(&mut self, old: &Part, new: &Part) {
        let uses = Arc::make_mut(&mut self.snapshot.power.uses);
        // Wrapping: in the middle of a batch another pool's part may still stand at a position.
        for (ix, watts) in &old.watts {
            let used = &mut uses[ix.0 as usize].watts;
            *used = used.wrapping_sub(*watts);
        }
        for (ix, watts) in &new.watts {
            let used = &mut uses[ix.0 as usize].watts;
            *used = used.wrapping_add(*watts);
        }
        let unknown = &mut self.domains.unknown;
        for (ix, words) in &old.unknown {
            unknown[ix.0 as usize].remove(words);
        }
        for (ix, words) in &new.unknown {
            unknown[ix.0 as usize].insert(words.clone());
        }
        for (ix, _) in old.unknown.iter().chain(&new.unknown) {
            uses[ix.0 as usize].unknown = unknown[ix.0 as usize].first().cloned();
        }
        let less = |(ix, watts): (&DomainIx, &u64)| new.watts.get(ix).is_none_or(|now| now < watts);
        self.loosened |= old.watts.iter().any(less) || new.unknown.len() < old.unknown.len();
        self.changed = true;
    }

    /// Without these holds.
    fn part(&self, key: &PoolKey, before: &BTreeMap<Name, Held>, lifted: &BTreeSet<HoldId>) -> Part {
        let mut part = Part::default();
        for (holder, uses) in self.ledger.uses(key) {
            let hold = match holder {
                Holder::Hold(id, _) if lifted.contains(id) => continue,
                Holder::Hold(id, _) => Some(*id),
                _ => None,
            };
            for used in uses {
                let counted = self.count(key, &used.device, before, &mut part);
                let Some(id) = hold else { continue };
                let Some(card) = part.held.get(&used.device).map(|held| held.card.clone()) else {
                    continue;
                };
                if let Some((Draw::Watts(watts), domains)) = counted {
                    part.of_holds.insert(card, (id, watts.into(), domains));
                } else if part.of_holds.get(&card).is_some_and(|(first, ..)| *first != id) {
                    part.of_holds.remove(&card);
                }
            }
        }
        self.count_unseen(key, before, &mut part);
        part
    }

    /// What domains count of a pool for one hold alone.
    pub(super) fn drawn_by(&self, key: &PoolKey, hold: HoldId) -> Vec<(DomainIx, u64)> {
        let part = self.domains.parts.get(key);
        let cards = part.into_iter().flat_map(|part| part.of_holds.values());
        let own = cards.filter(|(id, ..)| *id == hold);
        own.flat_map(|(_, watts, domains)| domains.iter().map(|d| (*d, *watts)))
            .collect()
    }

    /// What pods hold that nobody can name counts as the dearest cards that are left.
    fn count_unseen(&self, key: &PoolKey, before: &BTreeMap<Name, Held>, part: &mut Part) {
        let mut left = self.unseen(key);
        let Some(pool) = self.pool(key).filter(|_| left > 0) else {
            return;
        };
        let draw = |at: usize| pool.boards().board(at).map_or(Draw::Nothing, |(_, draw)| draw);
        let mut devices: Vec<usize> = (0..pool.devices.len()).collect();
        devices.sort_by_key(|at| std::cmp::Reverse(draw(*at)));
        for at in devices {
            if left == 0 {
                break;
            }
            let counted = self.count(key, &pool.devices[at].device.name, before, part);
            left -= usize::from(counted.is_some());
        }
    }

    /// Adds a held device to the part, and says what that adds to which domains: nothing, where its card counts already.
    fn count(
        &self,
        key: &PoolKey,
        device: &Name,
        before: &BTreeMap<Name, Held>,
        part: &mut Part,
    ) -> Option<(Draw, Vec<DomainIx>)> {
        if part.held.contains_key(device) {
            return None;
        }
        let held = self.held(key, device, before);
        let (draw, feed, card) = (held.draw, held.feed.clone(), held.card.clone());
        part.held.insert(device.clone(), held);
        if draw == Draw::Nothing || !part.cards.insert(card) {
            return None;
        }
        let domains = self.fed_by(key, &feed);
        for ix in &domains {
            match draw {
                Draw::Nothing => {}
                Draw::Watts(watts) => *part.watts.entry(*ix).or_default() += u64::from(watts),
                Draw::Unknown => {
                    let published = self.pool(key).is_some_and(|pool| pool.by_name.contains_key(device));
                    let device = format!("{}/{}/{device}", key.driver, key.name);
                    let words = if published {
                        format!("watts of device {device}, in use, unknown: give its class watts in the policy")
                    } else {
                        format!("watts of device {device}, in use and not published, unknown")
                    };
                    part.unknown.push((*ix, words.into()));
                }
            }
        }
        Some((draw, domains))
    }

    fn held(&self, key: &PoolKey, device: &Name, before: &BTreeMap<Name, Held>) -> Held {
        let pool = self.pool(key);
        if let Some((pool, at)) = pool.and_then(|pool| Some((pool, *pool.by_name.get(device)? as usize)))
            && let Some((first, draw)) = pool.boards().board(at)
        {
            let first = pool.devices.get(first as usize).unwrap_or(&pool.devices[at]);
            return Held {
                card: first.device.name.clone(),
                draw,
                feed: feed(&pool.devices[at].scope),
            };
        }
        if let Some(seen) = before.get(device) {
            return seen.clone();
        }
        let mut scopes = pool.into_iter().flat_map(|pool| &pool.devices).map(|d| feed(&d.scope));
        Held {
            card: device.clone(),
            draw: pool.map_or(Draw::Unknown, |pool| pool.boards().dearest()),
            feed: scopes.next().unwrap_or_else(|| Feed::Node(key.name.clone())),
        }
    }

    pub(super) fn pool(&self, key: &PoolKey) -> Option<&Pool> {
        let record = self.pools.get(key)?;
        self.snapshot.pool(record.ix).map(|state| &*state.pool)
    }

    /// Each domain once, ascending.
    fn fed_by(&self, key: &PoolKey, feed: &Feed) -> Vec<DomainIx> {
        let domains = |name: &Name| self.snapshot.node_named(name).map_or(&[][..], |n| &n.domains);
        let mut all = match feed {
            Feed::Node(name) => domains(name).to_vec(),
            Feed::Wide => {
                // Of a pool that is away nobody knows who reaches it: it may be anyone.
                let scopes = self.pools.get(key).map(|record| &record.scopes);
                let nodes = self.snapshot.nodes().map(|(_, entry)| entry);
                let reach = nodes.filter(|n| scopes.is_none_or(|s| s.visible(&n.node).is_some()));
                reach.flat_map(|n| n.domains.iter().copied()).collect()
            }
        };
        all.sort_unstable();
        all.dedup();
        all
    }

    /// What placement has to know of a pool that several nodes reach.
    fn settle_wide(&mut self, key: &PoolKey) {
        let Some(record) = self.pools.get(key) else { return };
        let ix = record.ix;
        let counted = self.wide.contains(key) && self.pool(key).is_some_and(|p| p.boards().dearest() != Draw::Nothing);
        let domains = if counted { self.fed_by(key, &Feed::Wide) } else { vec![] };
        let wide = &mut self.snapshot.power.wide;
        if wide.get(&ix).map_or(&[][..], |d| d) != domains.as_slice() {
            let wide = Arc::make_mut(wide);
            if domains.is_empty() {
                wide.remove(&ix);
            } else {
                wide.insert(ix, domains.into());
            }
            self.changed = true;
        }
    }

    /// Whether every domain can feed what the reservation adds once these holds are gone; in words for a log and a
    /// bind's error.
    pub(super) fn affords(&self, reservation: &Reservation, lifted: &BTreeSet<HoldId>) -> Result<(), String> {
        if self.domains.idle() {
            return Ok(());
        }
        let mut parts: BTreeMap<PoolKey, Part> = BTreeMap::new();
        let mut relief: BTreeMap<DomainIx, u64> = BTreeMap::new();
        for key in self.holds.pools(lifted) {
            let Some(now) = self.domains.parts.get(&key) else {
                continue;
            };
            let bare = self.part(&key, &now.held, lifted);
            for (ix, watts) in &now.watts {
                let rest = bare.watts.get(ix).copied().unwrap_or_default();
                *relief.entry(*ix).or_default() += watts.saturating_sub(rest);
            }
            parts.insert(key, bare);
        }
        let mut added: BTreeMap<DomainIx, u64> = BTreeMap::new();
        let results = reservation.claims.iter().flat_map(|c| &c.results);
        for result in results.filter(|r| !r.admin_access) {
            let key = PoolKey::of(&result.id);
            let part = parts.entry(key.clone()).or_insert_with(|| {
                let now = self.domains.parts.get(&key);
                now.map_or_else(Part::default, |now| Part {
                    held: now.held.clone(),
                    cards: now.cards.clone(),
                    ..Part::default()
                })
            });
            let Some((draw, domains)) = self.count(&key, &result.id.device, &BTreeMap::new(), part) else {
                continue;
            };
            for ix in domains {
                let Draw::Watts(watts) = draw else {
                    return Err(format!(
                        "watts of device {} unknown: give its class watts in the policy",
                        result.id
                    ));
                };
                *added.entry(ix).or_default() += u64::from(watts);
            }
        }
        for (ix, watts) in added {
            if let Some(domain) = self.snapshot.power.domain(ix) {
                let relief = relief.get(&ix).copied().unwrap_or_default();
                let used = Use {
                    watts: domain.used.watts.saturating_sub(relief),
                    unknown: domain.used.unknown.clone(),
                };
                let domain = Domain { used: &used, ..domain };
                if watts > domain.left() {
                    return Err(domain.short_of(watts));
                }
            }
        }
        Ok(())
    }
}

fn feed(scope: &NodeScope) -> Feed {
    match scope {
        NodeScope::Node(name) => Feed::Node(name.clone()),
        _ => Feed::Wide,
    }
}

fn nodes(part: &Part) -> BTreeSet<Name> {
    let feeds = part.held.values().filter_map(|h| match &h.feed {
        Feed::Node(name) => Some(name.clone()),
        Feed::Wide => None,
    });
    feeds.collect()
}
