//! The common shape (one claim, one request of so many whole devices, no constraints) from bit masks: a few words a
//! node, nothing allocated. Steps aside for a node where a device is more than present or absent.

use super::demand::{Alternative, ClaimDemand, Demand, Meant};
use super::key::{Chosen, Key, Power};
use super::offer::blocking_taint;
use super::power;
use super::score::Best;
use super::search::Choice;
use super::view::View;
use super::words::{Shortage, Stages, unlinked};
use super::{Context, Placement, Topology, result};
use crate::model::{Count, Name, Reason, Refusal, Taint};
use crate::snapshot::{Domain, NodeEntry, Pool, PoolHealth, PoolState, Visible, Wiring};
use crate::topology::{Cards, Grade};

/// Kinds of device (class, watts) on one node that are counted apart; with more, `solve` decides.
const KINDS: usize = 12;

/// Position of a pool among the node's, and of a device in it.
pub(super) type Place = (usize, usize);

#[derive(Clone, Copy, Debug)]
struct Kind<'a> {
    class: Option<&'a Name>,
    watts: Option<u32>,
    usable: u32,
    /// Those of the usable that are wired, and all free ones of the class that are. Only where links are looked at.
    cards: Cards,
    free: Cards,
}

/// What one node has for the demand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tally<'a> {
    alternative: &'a Alternative,
    asked: u32,
    mix: bool,
    topology: Topology,
    wiring: Option<&'a Wiring>,
    /// Links are looked at: to choose, or because the pod demands them.
    links: bool,
    stages: Stages,
    taint: Option<(&'a Name, &'a Taint)>,
    unhealthy: Option<(&'a Name, &'a PoolHealth)>,
    kinds: [Kind<'a>; KINDS],
    len: usize,
    /// Some device that matches, taken or not, has a wattage class.
    classed: bool,
    /// The node's tightest power domain. None: no budget.
    limit: Option<Domain<'a>>,
    /// A usable device that has a class but no watts.
    unknown: Option<&'a Name>,
}

/// None: not the common shape, or a node that needs a closer look. `rank`: `best` will be asked, not only the verdict.
pub(super) fn tally<'a>(ctx: Context<'a>, demand: &'a Demand, node: &'a NodeEntry, rank: bool) -> Option<Tally<'a>> {
    let (alternative, asked) = common_shape(demand)?;
    let topology = demand.topology(ctx);
    let mut tally = Tally {
        alternative,
        asked,
        topology,
        wiring: node.wiring.as_deref(),
        links: rank || (topology == Topology::Required && asked > 1),
        mix: demand.wishes.mix.unwrap_or(ctx.rules.mix_classes),
        stages: Stages::default(),
        taint: None,
        unhealthy: None,
        kinds: [Kind {
            class: None,
            watts: None,
            usable: 0,
            cards: 0,
            free: 0,
        }; KINDS],
        len: 0,
        classed: false,
        limit: power::limit(ctx, node),
        unknown: None,
    };
    for (at, (state, visible)) in ctx.snapshot.pools_of(node).enumerate() {
        let health = visible.health(&state.pool);
        if *health == PoolHealth::Complete {
            // What it draws falls on more domains than the node's.
            if ctx.snapshot.power.wide.contains_key(&visible.pool) {
                return None;
            }
            tally.add(demand, at, state, visible)?;
        } else {
            tally.unhealthy.get_or_insert((&state.pool.driver, health));
        }
    }
    // Not counted, or of unknown watts; and what is not counted would be best to take first, which is not what is cheapest.
    let uncounted = |k: &Kind<'_>| k.class.is_none() && k.watts.is_none();
    if tally.limit.is_some() && tally.usable().any(uncounted) {
        return None;
    }
    if tally.links {
        tally.is_plain().then_some(())?;
        tally.wire(ctx, node)?;
    }
    Some(tally)
}

pub(super) fn common_shape(demand: &Demand) -> Option<(&Alternative, u32)> {
    let [ClaimDemand::New(claim)] = demand.claims.as_slice() else {
        return None;
    };
    let [request] = claim.requests.as_slice() else {
        return None;
    };
    let [alternative] = request.alternatives.as_slice() else {
        return None;
    };
    let wanted = &alternative.request;
    let Count::Exactly(asked @ 1..) = wanted.count else {
        return None;
    };
    let plain = !wanted.admin_access && wanted.capacity.is_empty() && claim.claim.spec.constraints.is_empty();
    // Each device is one card at most: where no more are asked than may be had, nothing is to be counted.
    let within = demand.limit.as_ref().is_none_or(|limit| asked <= limit.most);
    (plain && within && demand.wishes.any_device()).then_some((alternative, asked))
}

impl<'a> Tally<'a> {
    fn add(&mut self, demand: &Demand, of_node: usize, state: &'a PoolState, visible: &Visible) -> Option<()> {
        let pool = &*state.pool;
        let size = pool.devices.len();
        let summary = pool.summary();
        for word in 0..size.div_ceil(64) {
            let alive = self.matching(pool, visible.word(word, size), word)?;
            if alive == 0 {
                continue;
            }
            if alive & summary.special.word(word) != 0 {
                return None;
            }
            // Parts of a card count as the card, and only once.
            if self.limit.is_some() && alive & (summary.parts.word(word) | pool.boards().joined.word(word)) != 0 {
                return None;
            }
            self.count(demand, of_node, state, word, alive)?;
        }
        Some(())
    }

    /// Those of 64 devices that the selectors accept. None: one of them gave no answer.
    fn matching(&self, pool: &Pool, mut alive: u64, word: usize) -> Option<u64> {
        for selector in &self.alternative.selectors {
            if alive == 0 {
                break;
            }
            alive = selector.of(pool, |verdicts| {
                let answered = alive & verdicts.failed.word(word) == 0;
                answered.then(|| alive & verdicts.matches.word(word))
            })?;
        }
        if self.alternative.meant == Meant::Cards {
            alive &= !pool.summary().parts.word(word);
        }
        Some(alive)
    }

    /// Counts the matching devices of one word.
    fn count(&mut self, demand: &Demand, of_node: usize, state: &'a PoolState, word: usize, alive: u64) -> Option<()> {
        let summary = state.pool.summary();
        let mut allowed = alive;
        if demand.wishes.allowed.is_some() {
            let barred = summary.groups.iter().filter(|g| !demand.wishes.allow(g.class.as_ref()));
            allowed &= !barred.fold(0, |bits, g| bits | g.devices.word(word));
        }
        let free = allowed & !state.taken.word(word);
        let mut usable = free;
        let mut tainted = free & summary.tainted.word(word);
        while tainted != 0 {
            let bit = tainted.trailing_zeros();
            tainted &= tainted - 1;
            let device = &state.pool.devices.get(word * 64 + bit as usize)?.device;
            if let Some(taint) = blocking_taint(device, &self.alternative.request.tolerations) {
                self.taint.get_or_insert((&device.name, taint));
                usable &= !(1 << bit);
            }
        }
        let s = &mut self.stages;
        s.matched += alive.count_ones();
        s.free += free.count_ones();
        s.tolerated += usable.count_ones();
        s.wished += allowed.count_ones();
        s.agreed = s.free;
        s.roomy = s.tolerated;
        for group in &summary.groups {
            let of_group = alive & group.devices.word(word);
            if of_group == 0 {
                continue;
            }
            self.classed |= group.class.is_some();
            let n = (of_group & usable).count_ones();
            if n > 0 && group.class.is_some() && group.watts.is_none() {
                let at = word * 64 + (of_group & usable).trailing_zeros() as usize;
                self.unknown = self.unknown.or(state.pool.devices.get(at).map(|d| &d.device.name));
            }
            let wiring = self.wiring.filter(|_| self.links && n > 0);
            // Also where nothing of it is left: of equal classes the one that is listed first is taken.
            let kind = self.kind(group.class.as_ref(), group.watts)?;
            kind.usable += n;
            kind.cards |= wiring.map_or(0, |w| w.cards_of_word(of_node, word, of_group & usable));
        }
        Some(())
    }

    /// Whether links are a matter of one kind of card and one table.
    fn is_plain(&self) -> bool {
        if self.wiring.is_none() && self.topology != Topology::Required {
            return true;
        }
        let partly = self.usable().any(|k| k.cards != 0 && k.cards.count_ones() != k.usable);
        // Several kinds that one pod may hold, or that one class is made of.
        let several = self.usable().nth(1).is_some() && (self.mix || self.usable().any(|k| k.class.is_none()));
        let uneven = self
            .usable()
            .any(|k| self.usable().filter(|other| other.class == k.class).nth(1).is_some());
        !(partly || several || uneven)
    }

    /// Kinds of which something is left.
    fn usable(&self) -> impl Iterator<Item = &Kind<'a>> {
        self.kinds[..self.len].iter().filter(|k| k.usable > 0)
    }

    /// Adds what is free of each class, whoever may have it.
    fn wire(&mut self, ctx: Context<'a>, node: &'a NodeEntry) -> Option<()> {
        let Some(wiring) = self.wiring else { return Some(()) };
        let kinds = &mut self.kinds[..self.len];
        for (at, (state, _)) in ctx.snapshot.pools_of(node).enumerate() {
            for (device, card) in wiring.of_pool(at) {
                let class = state.pool.devices.get(device)?.classified.class.as_ref();
                let of_class = kinds.iter_mut().filter(|k| k.class == class);
                of_class.for_each(|kind| kind.free |= 1 << card);
            }
        }
        for (at, (state, _)) in ctx.snapshot.pools_of(node).enumerate() {
            let broken = wiring.of_pool(at).filter(|(device, _)| !state.is_whole(*device));
            let broken: Cards = broken.fold(0, |set, (_, card)| set | 1 << card);
            kinds.iter_mut().for_each(|k| k.free &= !broken);
        }
        Some(())
    }

    fn kind(&mut self, class: Option<&'a Name>, watts: Option<u32>) -> Option<&mut Kind<'a>> {
        let known = self.kinds[..self.len]
            .iter()
            .position(|k| k.class == class && k.watts == watts);
        let at = known.unwrap_or(self.len);
        if at == self.len {
            self.len += 1;
        }
        let kind = self.kinds.get_mut(at)?;
        (kind.class, kind.watts) = (class, watts);
        Some(kind)
    }

    /// What the best choice on this node costs, and how many usable devices it leaves. None: it does not fit.
    pub(super) fn best(&self, demand: &Demand) -> Option<Best> {
        let (key, ..) = self.choose(demand)?;
        Some(Best {
            preference: 0,
            key,
            left: self.stages.roomy - self.asked,
        })
    }

    pub(super) fn asked(&self) -> u32 {
        self.asked
    }

    /// The best choice, written out. None: it does not fit, or it is for `solve` to say which.
    pub(super) fn place(
        &self,
        ctx: Context<'a>,
        demand: &Demand,
        node: &'a NodeEntry,
    ) -> Option<Result<Placement, Refusal>> {
        let (key, devices) = self.devices(ctx, demand, node)?;
        let view = View::of_chosen(ctx, self.alternative, node, &devices);
        let choice = Choice {
            key,
            offers: vec![0],
            picks: vec![(0..devices.len()).collect()],
        };
        Some(result::placement(ctx, demand, node, &view, &choice, false))
    }

    /// The devices of the best choice, as positions of pool and device, where they are all of one kind. None: it does not
    /// fit, or it is for `solve` to say which.
    fn devices(&self, ctx: Context<'a>, demand: &Demand, node: &'a NodeEntry) -> Option<(Key, Vec<Place>)> {
        let (key, class) = self.choose(demand)?;
        let class = class?;
        let mut admitted = self.usable().filter(|k| k.class == class || k.class.is_none());
        let kind = admitted.next().filter(|k| k.class == class)?;
        if admitted.next().is_some() || demand.wishes.allowed.is_some() {
            return None;
        }
        let set = self.set(kind).map(|(set, _)| set);
        let mut devices = Vec::with_capacity(self.asked as usize);
        for (of_node, (state, visible)) in ctx.snapshot.pools_of(node).enumerate() {
            let (pool, size) = (&*state.pool, state.pool.devices.len());
            if *visible.health(pool) != PoolHealth::Complete {
                continue;
            }
            let group = pool
                .summary()
                .groups
                .iter()
                .find(|g| g.class.as_ref() == kind.class && g.watts == kind.watts);
            let Some(group) = group else { continue };
            for word in 0..size.div_ceil(64) {
                let free = visible.word(word, size) & group.devices.word(word) & !state.taken.word(word);
                let mut left = self.matching(pool, free, word)?;
                while left != 0 && devices.len() < self.asked as usize {
                    let (bit, at) = (left & left.wrapping_neg(), word * 64 + left.trailing_zeros() as usize);
                    left &= left - 1;
                    let tolerations = &self.alternative.request.tolerations;
                    let tainted = pool.summary().tainted.word(word) & bit != 0
                        && blocking_taint(&pool.devices[at].device, tolerations).is_some();
                    let chosen = || match (set, self.wiring.and_then(|w| w.card(of_node, at))) {
                        (Some(set), Some(card)) => set >> card & 1 == 1,
                        (set, _) => set.is_none(),
                    };
                    if !tainted && chosen() {
                        devices.push((of_node, at));
                    }
                }
            }
        }
        (devices.len() == self.asked as usize).then_some((key, devices))
    }

    /// The cost of the best choice, and its class where that is what was chosen by.
    fn choose(&self, demand: &Demand) -> Option<(Key, Option<Option<&'a Name>>)> {
        let kinds = &self.kinds[..self.len];
        let wish = demand.wishes.class.as_ref();
        if wish.is_some() && !self.classed {
            return None;
        }
        // One pass a class, and one without any; by permission, all together if no single class will do.
        // Watts nobody knows are not given where there is a budget.
        let known = |k: &Kind<'_>| self.limit.is_none() || k.watts.is_some() || k.class.is_none();
        let within = |power: &Power| {
            self.limit
                .is_none_or(|l| power.watts() <= l.left() || power.watts() == 0)
        };
        let passes = kinds.iter().map(|k| k.class).chain([None]);
        let one = passes
            .filter(|class| wish.is_none() || *class == wish)
            .filter_map(|class| {
                let of_class = |k: &Kind<'_>| k.class == class;
                let power = self.cheapest(kinds, |k| {
                    known(k) && (of_class(k) || (k.class.is_none() && wish.is_none()))
                });
                let power = power.filter(within)?;
                let free: u32 = kinds.iter().filter(|k| of_class(k)).map(|k| k.usable).sum();
                Some((self.key(self.usable().find(|k| of_class(k)), power)?, free, class))
            })
            .min_by_key(|(key, free, _)| (*key, *free));
        let any = || {
            let allowed = self.mix && wish.is_none();
            let power = allowed.then(|| self.cheapest(kinds, known)).flatten().filter(within)?;
            // Of several kinds, where links would tell them apart, `is_plain` has stepped aside.
            self.key(self.usable().next(), power)
        };
        let one = one.map(|(key, _, class)| (key, Some(class)));
        one.or_else(|| Some((any()?, None)))
    }

    /// The cost of the best cards of one kind. None: those the pod demands are not among them.
    fn key(&self, kind: Option<&Kind<'_>>, power: Power) -> Option<Key> {
        let unlinked = Key {
            power,
            ..Key::default()
        };
        if !self.links {
            return Some(unlinked);
        }
        let counts = self.topology != Topology::None;
        let required = self.topology == Topology::Required;
        let (Some(_), Some(kind)) = (self.wiring, kind.filter(|k| k.cards != 0)) else {
            let unwired = if kind.is_some_and(|k| k.class.is_some()) {
                self.asked
            } else {
                0
            };
            let chosen = Chosen {
                others: self.asked,
                unwired,
                ..Chosen::default()
            };
            let near = if counts { chosen.near(None) } else { unlinked.near };
            return (!required || chosen.is_clique(None)).then_some(unlinked.linked(near));
        };
        let (_, grade) = self.set(kind)?;
        let key = Key {
            big: grade.big,
            pairs: grade.pairs,
            ..unlinked
        };
        Some(if counts { key.linked(grade.near) } else { key })
    }

    /// The best cards of one kind, where it is wired.
    fn set(&self, kind: &Kind<'_>) -> Option<(Cards, Grade)> {
        let shape = &self.wiring.filter(|_| kind.cards != 0)?.shape;
        match self.topology {
            Topology::Required => shape.nearest_clique(kind.free, kind.cards, self.asked),
            Topology::Preferred => shape.nearest(kind.free, kind.cards, self.asked),
            Topology::None => shape.least_lost(kind.free, kind.cards, self.asked),
        }
    }

    /// The least that `asked` devices among the admitted kinds draw.
    fn cheapest(&self, kinds: &[Kind<'_>], admit: impl Fn(&Kind<'_>) -> bool) -> Option<Power> {
        let (mut left, mut power) = (self.asked, Power::default());
        let mut below: Option<(bool, Option<u32>)> = None;
        // Selection by ascending watts, unknown last: a dozen kinds at most.
        for _ in 0..kinds.len() {
            let rank = |k: &Kind<'_>| (k.watts.is_none(), k.watts);
            let open = kinds.iter().filter(|k| admit(k) && below.is_none_or(|b| rank(k) > b));
            let next = open.map(rank).min()?;
            let of_rank = kinds.iter().filter(|k| admit(k) && rank(k) == next);
            let take = of_rank.map(|k| k.usable).sum::<u32>().min(left);
            power = power.plus(next.1, take);
            left -= take;
            if left == 0 {
                return Some(power);
            }
            below = Some(next);
        }
        None
    }

    /// Some: without its budget the node would do.
    fn over_budget(&self, demand: &Demand) -> Option<Refusal> {
        let limit = self.limit?;
        let key = Self { limit: None, ..*self }.best(demand)?.key;
        if key.power.unknown() > 0
            && let Some(device) = self.unknown
        {
            return Some(power::unknown(device));
        }
        Some(power::refusal(&limit, key.power.watts()))
    }

    pub(super) fn verdict(&self, demand: &Demand) -> Result<(), Refusal> {
        if self.best(demand).is_some() {
            return Ok(());
        }
        if let Some(refusal) = self.over_budget(demand) {
            return Err(refusal);
        }
        if self.links && self.topology == Topology::Required {
            let anywhere = Self {
                topology: Topology::Preferred,
                ..*self
            };
            if anywhere.best(demand).is_some() {
                return Err(unlinked(self.asked, &self.alternative.class.name, self.wiring));
            }
        }
        let kinds = &self.kinds[..self.len];
        let mut by_class = [(None, 0); KINDS];
        let mut len = 0;
        for kind in kinds {
            let known = by_class[..len]
                .iter()
                .position(|c: &(Option<&Name>, u32)| c.0 == kind.class);
            let at = known.unwrap_or(len);
            len = len.max(at + 1);
            by_class[at] = (kind.class, by_class[at].1 + kind.usable);
        }
        let refusal = demand.texts.refusal(&Shortage {
            alternative: self.alternative,
            asked: self.asked,
            all: false,
            stages: self.stages,
            taint: self.taint,
            mode: None,
            unhealthy: self.unhealthy,
            by_class: &by_class[..len],
            wishes: &demand.wishes,
            mix: self.mix,
        });
        Err(refusal.unwrap_or_else(|| Refusal::new(Reason::NotEnoughFree, "not enough devices are free")))
    }
}
