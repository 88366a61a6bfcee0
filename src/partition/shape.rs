//! How a card can be cut: what each of its partitions takes of the card's counters, and, by what of the counters is
//! left, how many partitions of each profile still fit. Counted once for each kind of card and shared by all that are
//! built alike.

use std::collections::{BTreeMap, HashMap};

use crate::model::Name;

/// Occupancies that are counted beforehand. An H100 has 1,109, an RTX PRO 6000 142; a card with more is one of which
/// nothing is known beforehand, and is counted as it is met.
const MOST_STATES: usize = 8192;
/// Steps of the search for the most of one profile. It is over in a few dozen where counters are those of a card; what
/// is found when they run out is a packing, if not the largest.
const STEPS: u32 = 20_000;

/// Amounts of the counters of one card, by position. Units are each counter's own.
pub type Amounts = Box<[u32]>;

/// Which occupancy of a card this is: a position in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State(u32);

/// What a device takes of its card.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Cut {
    /// Position in `Shape::profiles`.
    profile: usize,
    draws: Amounts,
}

/// A kind of card, by what can be made of it.
#[derive(Debug)]
pub struct Shape {
    profiles: Box<[Name]>,
    /// Distinct, sorted: two devices that take the same for the same profile are one entry.
    cuts: Box<[Cut]>,
    total: Amounts,
    states: HashMap<Amounts, State>,
    /// By profile: the part of the card that one takes, in thousandths: the mean over its counters.
    sizes: Box<[u32]>,
    /// By state: what of the card is left, in thousandths.
    vacant: Vec<u32>,
    /// By state, then by profile.
    fits: Vec<u16>,
    /// By state, then by cut: the state after it. None: it does not fit.
    after: Vec<Option<State>>,
}

/// What a card and its devices are before they are counted: equal keys are one shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShapeKey {
    total: Amounts,
    /// (profile, what it draws), sorted and distinct.
    cuts: Box<[(Name, Amounts)]>,
}

impl ShapeKey {
    /// `total`: what the card has; then every device of it, by profile and what it draws. Amounts have as many entries
    /// as `total`, and none is above it; what breaks that is left out.
    pub fn new(total: Amounts, devices: impl IntoIterator<Item = (Name, Amounts)>) -> Self {
        let fits = |draws: &Amounts| draws.len() == total.len() && draws.iter().zip(&total).all(|(d, t)| d <= t);
        let mut cuts: Vec<(Name, Amounts)> = devices.into_iter().filter(|(_, draws)| fits(draws)).collect();
        cuts.sort();
        cuts.dedup();
        Self {
            total,
            cuts: cuts.into(),
        }
    }
}

impl Shape {
    /// Counts every occupancy that can be reached from an empty card.
    pub fn new(key: &ShapeKey) -> Self {
        let mut names: BTreeMap<&Name, usize> = key.cuts.iter().map(|(name, _)| (name, 0)).collect();
        names.values_mut().enumerate().for_each(|(i, at)| *at = i);
        let cut = |(name, draws): &(Name, Amounts)| Cut {
            profile: names[name],
            draws: draws.clone(),
        };
        let mut shape = Self {
            profiles: names.keys().map(|name| (*name).clone()).collect(),
            cuts: key.cuts.iter().map(cut).collect(),
            total: key.total.clone(),
            sizes: vec![0; names.len()].into(),
            states: HashMap::new(),
            vacant: vec![],
            fits: vec![],
            after: vec![],
        };
        for cut in &shape.cuts {
            let size = part(&cut.draws, &shape.total).max(1);
            let of = &mut shape.sizes[cut.profile];
            *of = size.max(*of);
        }
        shape.reach();
        shape
    }

    fn reach(&mut self) {
        let mut order = vec![self.total.clone()];
        self.states.insert(self.total.clone(), State(0));
        let mut next = 0;
        while let Some(left) = order.get(next).cloned() {
            next += 1;
            for cut in 0..self.cuts.len() {
                let after = self.less(&left, cut).and_then(|rest| {
                    if let Some(known) = self.states.get(&rest) {
                        return Some(*known);
                    }
                    let state = State(u32::try_from(order.len()).ok().filter(|_| order.len() < MOST_STATES)?);
                    self.states.insert(rest.clone(), state);
                    order.push(rest);
                    Some(state)
                });
                self.after.push(after);
            }
            let fits = self.count(&left);
            self.fits.extend(fits);
            self.vacant.push(part(&left, &self.total));
        }
    }

    /// What is left after the cut. None: there is not enough.
    fn less(&self, left: &[u32], cut: usize) -> Option<Amounts> {
        let draws = &self.cuts[cut].draws;
        left.iter().zip(draws).map(|(l, d)| l.checked_sub(*d)).collect()
    }

    /// By profile, how many partitions of it alone fit into what is left.
    fn count(&self, left: &[u32]) -> Vec<u16> {
        let most = |profile| {
            let cuts = self.cuts.iter().filter(|c| c.profile == profile);
            let open: Vec<&Amounts> = cuts.map(|c| &c.draws).filter(|d| room(left, d) > 0).collect();
            let mut steps = STEPS;
            most(left, &open, 0, &mut steps)
        };
        (0..self.profiles.len()).map(most).collect()
    }

    /// Sorted by name.
    pub fn profiles(&self) -> &[Name] {
        &self.profiles
    }

    /// Position of a cut's profile. A cut that is not there has the first.
    pub fn profile(&self, cut: usize) -> usize {
        self.cuts.get(cut).map_or(0, |c| c.profile)
    }

    /// The state with so much of the counters left. None: no choice of devices leads to it from an empty card.
    pub fn state(&self, left: &[u32]) -> Option<State> {
        self.states.get(left).copied()
    }

    pub fn empty(&self) -> State {
        State(0)
    }

    /// Position of a device among the cuts, by profile and what it draws.
    pub fn cut(&self, profile: &Name, draws: &[u32]) -> Option<usize> {
        let profile = self.profiles.binary_search(profile).ok()?;
        self.cuts
            .binary_search_by(|c| (c.profile, &*c.draws).cmp(&(profile, draws)))
            .ok()
    }

    /// The state after a cut. None: it does not fit, or the state is beyond what was counted.
    pub fn after(&self, state: State, cut: usize) -> Option<State> {
        self.after.get(state.0 as usize * self.cuts.len() + cut).copied()?
    }

    /// By profile, how many partitions of it alone still fit.
    pub fn fits(&self, state: State) -> &[u16] {
        let width = self.profiles.len();
        self.fits.get(state.0 as usize * width..).map_or(&[], |f| &f[..width])
    }

    /// What of the card is left, in thousandths.
    pub fn vacant(&self, state: State) -> u32 {
        self.vacant.get(state.0 as usize).copied().unwrap_or(0)
    }

    /// What the occupancy is worth to those who come next: how many of each profile still fit, each counted by the part
    /// of a card it takes and by how much it is asked for. `mix`: by profile; empty: all alike.
    ///
    /// Measured in a churn of 100 A100 (loadtest, `mig`): with all alike it accepts at least as many as greedy
    /// fragmentation does with the mix known, in each of three mixes. Without the sizes, what is small outvotes the rest.
    pub fn worth(&self, state: State, mix: &[u32]) -> u32 {
        let sum = (0..self.profiles.len()).fold(0, |sum: u64, profile| sum + self.worth_of(state, profile, mix));
        u32::try_from(sum).unwrap_or(u32::MAX)
    }

    /// The part of one profile in it.
    pub fn worth_of(&self, state: State, profile: usize, mix: &[u32]) -> u64 {
        let fits = self.fits(state).get(profile).copied().unwrap_or(0);
        let size = self.sizes.get(profile).copied().unwrap_or(0);
        u64::from(fits) * u64::from(size) * u64::from(mix.get(profile).copied().unwrap_or(1))
    }

    /// The least that a cut takes of what any occupancy is worth: one of its own profile fits no more.
    pub fn least(&self, cut: usize, mix: &[u32]) -> u32 {
        let profile = self.cuts.get(cut).map_or(0, |c| c.profile);
        let asked = mix.get(profile).copied().unwrap_or(1);
        self.sizes.get(profile).map_or(0, |size| size.saturating_mul(asked))
    }

    /// The same for what is not in the table, counted anew.
    pub fn fits_in(&self, left: &[u32]) -> Vec<u16> {
        match self.state(left) {
            Some(state) => self.fits(state).to_vec(),
            None => self.count(left),
        }
    }
}

/// What `amounts` are of the total, in thousandths, the counters being worth the same. Most counters of a card are its
/// memory slices, so that it is about the part of its memory.
fn part(amounts: &[u32], total: &[u32]) -> u32 {
    let counters = amounts.iter().zip(total).filter(|(_, total)| **total > 0);
    let (sum, count) = counters.fold((0, 0), |(sum, count), (amount, total)| {
        (sum + u64::from(*amount) * 1000 / u64::from(*total), count + 1)
    });
    u32::try_from(sum.checked_div(count).unwrap_or(0)).unwrap_or(u32::MAX)
}

/// How many times `draws` goes into what is left; 0 too for what draws nothing, of which there is no most.
fn room(left: &[u32], draws: &[u32]) -> u32 {
    let each = left.iter().zip(draws).filter(|(_, d)| **d > 0).map(|(l, d)| l / d);
    each.min().unwrap_or(0)
}

/// The most of `open[from..]` that fit together; each may be taken once, as a device is given once, but equal draws are
/// one entry here, so one that is there may be taken as often as it fits.
fn most(left: &[u32], open: &[&Amounts], from: usize, steps: &mut u32) -> u16 {
    let Some(draws) = open.get(from) else {
        return 0;
    };
    if *steps == 0 {
        return 0;
    }
    *steps -= 1;
    let times = room(left, draws);
    let last = from + 1 == open.len();
    // No packing has more than each of them alone.
    let bound = open[from..]
        .iter()
        .fold(0, |sum: u32, d| sum.saturating_add(room(left, d)));
    let mut best = 0;
    // Where it is the last there is no reason to take less than fits.
    for taken in (if last { times } else { 0 }..=times).rev() {
        let rest: Amounts = left.iter().zip(*draws).map(|(l, d)| l - d * taken).collect();
        let others = most(&rest, open, from + 1, steps);
        best = best.max(others.saturating_add(u16::try_from(taken).unwrap_or(u16::MAX)));
        if u32::from(best) >= bound {
            break;
        }
    }
    best
}
