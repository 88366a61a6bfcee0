//! The common shape (one claim, one request of so many whole devices, no constraints) from bit masks: a few words a
//! node, nothing allocated. Steps aside for a node where a device is more than present or absent.

use super::Context;
use super::demand::{Alternative, ClaimDemand, Demand};
use super::search::Power;
use super::words::{Shortage, Stages};
use crate::model::{Count, Name, Reason, Refusal, Taint};
use crate::snapshot::{NodeEntry, PoolHealth, PoolState, Visible};

/// Kinds of device (class, watts) on one node that are counted apart; with more, `solve` decides.
const KINDS: usize = 12;

#[derive(Clone, Copy, Debug)]
struct Kind<'a> {
    class: Option<&'a Name>,
    watts: Option<u32>,
    usable: u32,
}

/// What one node has for the demand.
#[derive(Debug)]
pub(super) struct Tally<'a> {
    alternative: &'a Alternative,
    asked: u32,
    mix: bool,
    stages: Stages,
    taint: Option<(&'a Name, &'a Taint)>,
    unhealthy: Option<(&'a Name, &'a PoolHealth)>,
    kinds: [Kind<'a>; KINDS],
    len: usize,
    /// Some device that matches, taken or not, has a wattage class.
    classed: bool,
}

/// None: not the common shape, or a node that needs a closer look.
pub(super) fn tally<'a>(ctx: Context<'a>, demand: &'a Demand, node: &'a NodeEntry) -> Option<Tally<'a>> {
    let (alternative, asked) = common_shape(demand)?;
    let mut tally = Tally {
        alternative,
        asked,
        mix: demand.wishes.mix.unwrap_or(ctx.rules.mix_classes),
        stages: Stages::default(),
        taint: None,
        unhealthy: None,
        kinds: [Kind {
            class: None,
            watts: None,
            usable: 0,
        }; KINDS],
        len: 0,
        classed: false,
    };
    for (state, visible) in ctx.snapshot.pools_of(node) {
        if state.pool.health == PoolHealth::Complete {
            tally.add(state, visible)?;
        } else {
            tally.unhealthy.get_or_insert((&state.pool.driver, &state.pool.health));
        }
    }
    Some(tally)
}

fn common_shape(demand: &Demand) -> Option<(&Alternative, u32)> {
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
    (plain && demand.wishes.any_device()).then_some((alternative, asked))
}

impl<'a> Tally<'a> {
    fn add(&mut self, state: &'a PoolState, visible: &Visible) -> Option<()> {
        let pool = &*state.pool;
        let size = pool.devices.len();
        let summary = pool.summary();
        for word in 0..size.div_ceil(64) {
            let tail = size - word * 64;
            let mut alive = if tail >= 64 { u64::MAX } else { (1 << tail) - 1 };
            if let Some(seen) = &visible.devices {
                alive &= seen.word(word);
            }
            for selector in &self.alternative.selectors {
                if alive == 0 {
                    break;
                }
                let computed;
                let verdicts = match selector.known(pool) {
                    Some(known) => known,
                    None => {
                        computed = selector.verdicts(pool);
                        &computed
                    }
                };
                if alive & verdicts.failed.word(word) != 0 {
                    return None;
                }
                alive &= verdicts.matches.word(word);
            }
            if self.alternative.whole {
                alive &= !summary.parts.word(word);
            }
            if alive == 0 {
                continue;
            }
            if alive & summary.special.word(word) != 0 {
                return None;
            }
            self.count(state, word, alive)?;
        }
        Some(())
    }

    /// Counts the matching devices of one word.
    fn count(&mut self, state: &'a PoolState, word: usize, alive: u64) -> Option<()> {
        let summary = state.pool.summary();
        let free = alive & !state.taken.word(word);
        let mut usable = free;
        let mut tainted = free & summary.tainted.word(word);
        while tainted != 0 {
            let bit = tainted.trailing_zeros();
            tainted &= tainted - 1;
            let device = &state.pool.devices.get(word * 64 + bit as usize)?.device;
            if let Some(taint) = super::view::blocking_taint(device, &self.alternative.request.tolerations) {
                self.taint.get_or_insert((&device.name, taint));
                usable &= !(1 << bit);
            }
        }
        let s = &mut self.stages;
        s.matched += alive.count_ones();
        s.free += free.count_ones();
        s.tolerated += usable.count_ones();
        (s.wished, s.roomy) = (s.matched, s.tolerated);
        for group in &summary.groups {
            let of_group = alive & group.devices.word(word);
            if of_group == 0 {
                continue;
            }
            self.classed |= group.class.is_some();
            let n = (of_group & usable).count_ones();
            if n > 0 {
                self.kind(group.class.as_ref(), group.watts)?.usable += n;
            }
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

    /// What the best choice on this node draws, and how many usable devices it leaves. None: it does not fit.
    pub(super) fn best(&self, demand: &Demand) -> Option<(Power, u32)> {
        let kinds = &self.kinds[..self.len];
        let wish = demand.wishes.class.as_ref();
        if wish.is_some() && !self.classed {
            return None;
        }
        // One pass a class, and one without any; by permission, all together if no single class will do.
        let passes = kinds.iter().map(|k| k.class).chain([None]);
        let one = passes
            .filter(|class| wish.is_none() || *class == wish)
            .filter_map(|class| {
                let power = self.cheapest(kinds, |k| k.class == class || (k.class.is_none() && wish.is_none()))?;
                let free: u32 = kinds.iter().filter(|k| k.class == class).map(|k| k.usable).sum();
                Some((power, free))
            })
            .min();
        let any = || {
            let allowed = self.mix && wish.is_none();
            allowed.then(|| self.cheapest(kinds, |_| true)).flatten()
        };
        let power = one.map(|(power, _)| power).or_else(any)?;
        Some((power, self.stages.roomy - self.asked))
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

    pub(super) fn verdict(&self, demand: &Demand) -> Result<(), Refusal> {
        if self.best(demand).is_some() {
            return Ok(());
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
            unhealthy: self.unhealthy,
            by_class: &by_class[..len],
            wishes: &demand.wishes,
            mix: self.mix,
        });
        Err(refusal.unwrap_or_else(|| Refusal::new(Reason::NotEnoughFree, "not enough devices are free")))
    }
}
