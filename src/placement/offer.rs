//! What one node has for one alternative of a request: which devices that match could serve it, and how many fell out
//! at which step.

use super::capacity::{consumption, serves};
use super::demand::{Alternative, Demand, Meant};
use super::view::{Dev, Purpose};
use super::words::Stages;
use crate::model::{Count, Device, Effect, Name, QualifiedName, Quantity, Taint, Toleration, node_mode};
use crate::snapshot::{Pool, PoolState};

/// What the node has for one alternative of a request.
#[derive(Debug)]
pub(super) struct Offer<'a> {
    pub(super) alternative: &'a Alternative,
    /// How many are needed.
    pub(super) asked: usize,
    /// In list order.
    pub(super) candidates: Vec<Candidate>,
    /// Positions in `View::rules` that speak of it.
    pub(super) rules: Vec<usize>,
    /// Some device that matches, taken or not, has a wattage class.
    pub(super) classed: bool,
    pub(super) stages: Stages,
    pub(super) taint: Option<(&'a Name, &'a Taint)>,
    /// A mode of the node that kept a free device away: attribute, and what is in use.
    pub(super) mode: Option<(&'static str, &'a Name)>,
}

#[derive(Debug)]
pub(super) struct Candidate {
    /// Position in `View::devices`.
    pub(super) dev: usize,
    /// What a share takes of each capacity; None: the device is given whole.
    pub(super) takes: Option<Box<[Quantity]>>,
    /// A selector failed on it: whoever comes to it must stop. Only in list order.
    pub(super) failed: bool,
    /// Of a share: what is lost to others by it, more than by the best of the offer; then what rest of the card it leaves.
    pub(super) dear: u32,
}

impl<'a> Offer<'a> {
    /// Whether it could be met if nothing else were asked.
    pub(super) fn possible(&self) -> bool {
        self.asked > 0 && self.candidates.len() >= self.asked
    }

    pub(super) fn new(alternative: &'a Alternative) -> Self {
        let asked = match alternative.request.count {
            Count::Exactly(n) => n as usize,
            Count::All => 0,
        };
        Self {
            alternative,
            asked,
            candidates: vec![],
            rules: vec![],
            classed: false,
            stages: Stages::default(),
            taint: None,
            mode: None,
        }
    }

    /// A device that matches goes through the steps that do not depend on what else is chosen.
    pub(super) fn add(
        &mut self,
        demand: &Demand,
        state: &'a PoolState,
        position: usize,
        dev: &Dev<'a>,
        purpose: Purpose,
    ) {
        let wanted = &self.alternative.request;
        let device: &'a Device = &dev.info.device;
        let driver = &state.pool.driver;
        let admin = wanted.admin_access;
        let shared = device.allow_multiple;
        let takes = shared.then(|| consumption(device, &wanted.capacity)).flatten();
        let room = match &takes {
            Some(takes) => admin || has_room(device, takes, state, dev.at),
            None => !shared && serves(device, &wanted.capacity),
        };
        match self.alternative.meant {
            Meant::Cards if state.pool.summary().parts.contains(dev.at) => return,
            Meant::Partitions if device.is_shared() => return,
            _ => {}
        }
        let all = wanted.count == Count::All;
        self.classed |= dev.class.is_some();
        if all && !room {
            // As in the in-tree allocator, "all" means all that can serve the capacity asked for.
            return;
        }
        self.asked += usize::from(all);
        self.stages.matched += 1;
        let allowed = admin || demand.wishes.allow(dev.info.classified.class.as_ref());
        if purpose == Purpose::Place && !(allowed && demand.wishes.admit(driver, dev.info)) {
            return;
        }
        self.stages.wished += 1;
        if !admin && state.taken.contains(dev.at) {
            return;
        }
        self.stages.free += 1;
        if !admin
            && purpose == Purpose::Place
            && let Some(mode) = state.mode_against(dev.at)
        {
            self.mode = self.mode.or(node_mode(driver).map(|of| (of, mode)));
            return;
        }
        self.stages.agreed += 1;
        if let Some(taint) = blocking_taint(device, &wanted.tolerations) {
            self.taint.get_or_insert((&device.name, taint));
            return;
        }
        self.stages.tolerated += 1;
        let counted = admin || dev.shared || dev.counters.iter().all(|(s, c, n)| left(state, *s, *c) >= *n);
        if !(room && counted) {
            return;
        }
        self.stages.roomy += 1;
        self.candidates.push(Candidate {
            dev: position,
            takes,
            failed: false,
            dear: 0,
        });
    }

    /// A device on which a selector failed, unless nobody would come to it.
    pub(super) fn add_failed(&mut self, state: &PoolState, position: usize, dev: &Dev<'_>) {
        if self.alternative.request.admin_access || !state.taken.contains(dev.at) {
            self.candidates.push(Candidate {
                dev: position,
                takes: None,
                failed: true,
                dear: 0,
            });
        }
    }
}

/// The first taint that keeps the device from whoever has only these tolerations.
pub(super) fn blocking_taint<'d>(device: &'d Device, tolerations: &[Toleration]) -> Option<&'d Taint> {
    device.taints.iter().find(|taint| {
        matches!(taint.effect, Effect::NoSchedule | Effect::NoExecute)
            && !tolerations.iter().any(|t| t.tolerates(taint))
    })
}

/// What is given of the device's capacities, in the device's order, in nanos.
pub(super) fn given(device: &Device, state: &PoolState, at: usize) -> Vec<i128> {
    let at = u32::try_from(at).unwrap_or(u32::MAX);
    let given: &[(QualifiedName, Quantity)] = state.shared.get(&at).map_or(&[], |v| v);
    let sum = |name: &QualifiedName| given.iter().filter(|(q, _)| q == name).map(|(_, v)| v.nanos()).sum();
    device.capacity.iter().map(|(name, _)| sum(name)).collect()
}

fn has_room(device: &Device, takes: &[Quantity], state: &PoolState, at: usize) -> bool {
    let given = given(device, state, at);
    let mut capacities = device.capacity.iter().zip(takes).zip(given);
    capacities.all(|(((_, capacity), takes), given)| takes.nanos() + given <= capacity.value.nanos())
}

/// What is left of a counter, in nanos.
pub(super) fn left(state: &PoolState, set: usize, counter: usize) -> i128 {
    let value = state.counters_left.get(set).and_then(|s| s.get(counter));
    value.map_or(0, |q| q.nanos())
}

/// A counter the pool does not have (it would be invalid) is an impossible one.
pub(super) fn counters_of(pool: &Pool, device: &Device) -> Vec<(usize, usize, i128)> {
    // Most devices draw nothing: no more than a look.
    if device.consumes.is_empty() {
        return vec![];
    }
    let mut counters = Vec::with_capacity(device.consumes.iter().map(|c| c.counters.len()).sum());
    // From inside: cheaper than an iterator that asks which of two nested ones is at work.
    pool.draws(device).for_each(|(at, amount)| {
        let (set, counter) = at.unwrap_or((usize::MAX, usize::MAX));
        counters.push((set, counter, amount.nanos()));
    });
    counters
}
