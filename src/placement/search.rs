//! Depth-first branch and bound over the devices of one node: for given alternatives, the devices of least `Key`, in
//! device order where that is equal. Bounded by steps.

use super::demand::RESULTS;
use super::key::{Chosen, Key};
use super::state::{Relaxed, State};
use super::view::{Candidate, Dev, Offer, View};
use crate::topology::{Cards, Nearness};

/// Candidates that are looked through before the search begins for the price of one step.
const LOOKED_PER_STEP: usize = 64;
/// Candidates that are held against all rules, without being taken, for the price of one step.
const WEIGHED_PER_STEP: usize = 8;

/// What a set of devices draws. Fewer devices of unknown watts first, then fewer watts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Power {
    unknown: u32,
    watts: u32,
}

impl Power {
    pub(super) fn plus(self, watts: Option<u32>, devices: u32) -> Self {
        match watts {
            Some(w) => Self {
                watts: self.watts.saturating_add(w.saturating_mul(devices)),
                ..self
            },
            None => Self {
                unknown: self.unknown.saturating_add(devices),
                ..self
            },
        }
    }

    pub(super) fn watts(self) -> u64 {
        u64::from(self.watts)
    }

    /// Devices of unknown watts.
    pub(super) fn unknown(self) -> u32 {
        self.unknown
    }

    fn and(self, other: Self) -> Self {
        Self {
            unknown: self.unknown.saturating_add(other.unknown),
            watts: self.watts.saturating_add(other.watts),
        }
    }
}

/// Which devices a pass may use, by wattage class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Classes {
    Any,
    /// Those of this class (a position in `View::classes`; None: no class) and, unless `strictly`, those without one.
    One {
        class: Option<usize>,
        strictly: bool,
    },
}

impl Classes {
    fn admit(self, view: &View<'_>, offer: &Offer<'_>, candidate: &Candidate) -> bool {
        let Self::One { class, strictly } = self else {
            return true;
        };
        // Looking at a device, as admin access does, is not running on it.
        if offer.alternative.request.admin_access {
            return true;
        }
        match view.devices[candidate.dev].class {
            None => !(strictly && offer.classed),
            of => of == class,
        }
    }
}

/// Chosen devices: by request, positions in the candidates of its offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) key: Key,
    /// By request: which alternative.
    pub(super) offers: Vec<usize>,
    pub(super) picks: Vec<Vec<usize>>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The best, or the first where only one was wanted; `cut`: the steps ended before all was seen.
    Found {
        choice: Choice,
        cut: bool,
    },
    Nothing,
    /// The steps ended before anything was found.
    Cut,
    /// The search came to a device on which a selector failed: request, alternative, device; and the choices up to
    /// it, itself included.
    Failed {
        request: usize,
        offer: usize,
        dev: usize,
        path: Path,
    },
}

/// The way to a find or a failure: for each request its alternative, then its candidates. Compared, it says which of
/// two a search that chooses alternatives as it goes, as the in-tree one does, comes to first.
pub(super) type Path = Vec<usize>;

/// The path of these choices.
pub(super) fn path(offers: &[usize], picks: &[Vec<usize>]) -> Path {
    offers
        .iter()
        .zip(picks)
        .flat_map(|(offer, picks)| std::iter::once(offer).chain(picks))
        .copied()
        .collect()
}

struct Search<'s, 'v> {
    view: &'v View<'v>,
    offers: &'s [usize],
    /// By request.
    orders: Vec<Order>,
    /// By request: the least that this and all later requests draw, and how near their cards can be at best.
    floors: Vec<(Power, Nearness)>,
    state: State<'v>,
    picks: Vec<Vec<usize>>,
    /// Of all frames, one after the other.
    tried: Vec<usize>,
    best: Option<(Key, Vec<Vec<usize>>)>,
    first_only: bool,
    /// The cards of the pod must all reach each other.
    cliques: bool,
    steps: &'s mut u32,
}

/// The admitted candidates of one request, best first.
struct Order {
    picks: Vec<usize>,
    /// A selector failed on one of them: whoever looks for too many comes to it before the end.
    fails: bool,
    /// A choice can rule out others beyond the device itself, through constraints or counters.
    tangled: bool,
    /// What draws less is the better choice: no links, no cards of which groups could be broken.
    by_power: bool,
    /// How near the cards of the request are at best, whatever else is chosen.
    near: Nearness,
    /// The least that a device of it adds to the node's power domains, in watts.
    adds: u64,
}

/// One device still to be chosen. The search keeps these on a stack of its own: a pod may ask for 2,048 devices, and
/// the thread's stack is not ours to size.
struct Frame {
    request: usize,
    /// How many the request still needs, this one included.
    missing: usize,
    /// Next position of the order to try.
    at: usize,
    /// Nothing was tried yet.
    fresh: bool,
    /// What is chosen without it.
    so_far: SoFar,
    /// Where the kinds tried at this place begin in `Search::tried`: another device of one leads to the same sets, later
    /// in device order.
    tried: usize,
    /// The position of the order that is taken now.
    held: Option<usize>,
}

/// What is chosen on the way to a frame.
#[derive(Clone, Copy, Default)]
struct SoFar {
    power: Power,
    /// Links within the requests that are complete.
    near: Nearness,
    /// Of the current request.
    request: Chosen,
    /// Of all, devices included that the pod's allocated claims hold.
    all: Chosen,
}

/// What a frame does next.
enum Move {
    /// Takes the candidate at this position of the order.
    Take(usize, SoFar),
    /// Nothing is left to try.
    Back,
    Stop(Outcome),
}

/// How to search.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    pub(super) classes: Classes,
    pub(super) relaxed: Relaxed,
    /// The first find ends the search; candidates in list order.
    pub(super) first_only: bool,
}

/// Searches with the alternatives `offers` (one a request). `steps` is what is left to spend.
pub(super) fn search<'v>(view: &'v View<'v>, offers: &[usize], how: How, steps: &mut u32) -> Outcome {
    let chosen = || view.requests.iter().zip(offers).map(|(r, o)| (r.claim, &r.offers[*o]));
    // Looking through candidates is work too, though far less than a step for each.
    let looked: usize = chosen().map(|(_, offer)| offer.candidates.len()).sum();
    *steps = steps.saturating_sub(u32::try_from(1 + looked / LOOKED_PER_STEP).unwrap_or(u32::MAX));
    if *steps == 0 {
        return Outcome::Cut;
    }
    if !within_limits(chosen()) {
        return Outcome::Nothing;
    }
    let mut orders = Vec::with_capacity(offers.len());
    for (_, offer) in chosen() {
        let mut order = Order::of(view, offer, how);
        let enough = order.fails || order.picks.len() >= offer.asked;
        if offer.asked == 0 || order.picks.is_empty() || !enough {
            return Outcome::Nothing;
        }
        if !how.first_only {
            order.near = order.nearest(view, offer);
        }
        orders.push(order);
    }
    let mut floors = vec![(Power::default(), Nearness::ZERO); orders.len() + 1];
    if !how.first_only {
        for r in (0..orders.len()).rev() {
            let offer = &view.requests[r].offers[offers[r]];
            // By order, the first of them draw least.
            let least = orders[r].picks.iter().take(offer.asked);
            let watts = least.map(|i| drawn(view, offer, &offer.candidates[*i]));
            let power = watts.fold(floors[r + 1].0, |sum, watts| sum.plus(watts, 1));
            floors[r] = (power, floors[r + 1].1.joined(orders[r].near));
        }
    }
    let mut search = Search {
        view,
        offers,
        orders,
        floors,
        state: State::new(view, how.relaxed),
        picks: chosen().map(|(_, offer)| Vec::with_capacity(offer.asked)).collect(),
        tried: vec![],
        best: None,
        first_only: how.first_only,
        cliques: view.cliques && !how.relaxed.topology,
        steps,
    };
    let stopped = search.run();
    match (search.best, stopped) {
        (_, Some(failed @ Outcome::Failed { .. })) => failed,
        (Some((key, picks)), stopped) => Outcome::Found {
            choice: Choice {
                key,
                offers: offers.to_vec(),
                picks,
            },
            cut: stopped == Some(Outcome::Cut),
        },
        (None, Some(stopped)) => stopped,
        (None, None) => Outcome::Nothing,
    }
}

/// What the pod draws by it. Looking at a device, as admin access does, draws nothing.
fn drawn(view: &View<'_>, offer: &Offer<'_>, candidate: &Candidate) -> Option<u32> {
    if offer.alternative.request.admin_access {
        Some(0)
    } else {
        view.devices[candidate.dev].watts
    }
}

/// Whether no claim would get more results than the API lets it have.
fn within_limits<'o>(chosen: impl Iterator<Item = (usize, &'o Offer<'o>)>) -> bool {
    let (mut claim, mut total) = (0, 0_usize);
    for (of, offer) in chosen {
        if of != claim {
            (claim, total) = (of, 0);
        }
        total = total.saturating_add(offer.asked);
        if total > RESULTS {
            return false;
        }
    }
    true
}

impl Order {
    fn of(view: &View<'_>, offer: &Offer<'_>, how: How) -> Self {
        let admitted = |i: &usize| how.classes.admit(view, offer, &offer.candidates[*i]);
        let mut picks = Vec::with_capacity(offer.candidates.len());
        picks.extend((0..offer.candidates.len()).filter(admitted));
        if !how.first_only {
            // Stable: equal watts stay in device order.
            picks.sort_by_key(|i| {
                let watts = drawn(view, offer, &offer.candidates[*i]);
                (watts.is_none(), watts)
            });
        }
        Self {
            fails: picks.iter().any(|i| offer.candidates[*i].failed),
            tangled: !offer.rules.is_empty() || {
                let mut devices = picks.iter().map(|i| &view.devices[offer.candidates[*i].dev]);
                devices.any(|d| !d.counters.is_empty())
            },
            by_power: {
                let mut devices = picks.iter().map(|i| &view.devices[offer.candidates[*i].dev]);
                offer.alternative.request.admin_access || devices.all(|d| d.card.is_none())
            },
            adds: match &view.budget {
                Some(budget) if !offer.alternative.request.admin_access => {
                    budget.least(picks.iter().map(|i| &offer.candidates[*i]))
                }
                _ => 0,
            },
            picks,
            near: Nearness::ZERO,
        }
    }

    fn nearest(&self, view: &View<'_>, offer: &Offer<'_>) -> Nearness {
        if offer.alternative.request.admin_access || !view.links_count {
            return Nearness::ZERO;
        }
        let devices = || self.picks.iter().map(|i| &view.devices[offer.candidates[*i].dev]);
        let asked = u32::try_from(offer.asked).unwrap_or(u32::MAX);
        if devices().all(|d| d.card.is_none()) {
            let unknown = Chosen {
                others: asked,
                ..Chosen::default()
            };
            return unknown.near(None);
        }
        let cards: Cards = devices().filter_map(|d| d.card).fold(0, |set, card| set | 1 << card);
        let wiring = view.wiring.filter(|_| devices().all(|d| d.card.is_some()));
        let best = wiring.and_then(|w| w.shape.nearest(cards, cards, asked));
        best.map_or(Nearness::ZERO, |(_, grade)| grade.near)
    }
}

impl SoFar {
    fn with(self, view: &View<'_>, offer: &Offer<'_>, dev: &Dev<'_>, watts: Option<u32>) -> Self {
        let power = self.power.plus(watts, 1);
        // Looking at a device is not talking to it.
        if offer.alternative.request.admin_access {
            return Self { power, ..self };
        }
        let classed = dev.class.is_some();
        let all = self.all.with(dev.card, classed);
        let request = if view.links_count {
            self.request.with(dev.card, classed)
        } else {
            self.request
        };
        Self {
            power,
            all,
            request,
            ..self
        }
    }

    /// The next request begins.
    fn turned(self, view: &View<'_>) -> Self {
        Self {
            near: self.near.joined(self.request.near(view.wiring)),
            request: Chosen::default(),
            ..self
        }
    }

    /// What this costs, and whatever follows on top of `floor`.
    fn key(&self, view: &View<'_>, near: Nearness, floor: (Power, Nearness)) -> Key {
        let lost = view.lost(self.all.cards);
        let near = self.near.joined(near).joined(floor.1);
        Key {
            near,
            // The pairs within requests are among the pod's.
            across: if view.links_count {
                self.all.near(view.wiring).max(near)
            } else {
                Nearness::ZERO
            },
            big: lost.big,
            power: self.power.and(floor.0),
            pairs: lost.pairs,
        }
    }
}

impl<'v> Search<'_, 'v> {
    fn offer(&self, request: usize) -> &'v Offer<'v> {
        &self.view.requests[request].offers[self.offers[request]]
    }

    /// Depth first. What ended it early, if anything did.
    fn run(&mut self) -> Option<Outcome> {
        // As deep as it gets.
        let depth = (0..self.offers.len()).map(|r| self.offer(r).asked).sum();
        let mut stack: Vec<Frame> = Vec::with_capacity(depth);
        let held = SoFar {
            all: self.view.held,
            ..SoFar::default()
        };
        self.descend(&mut stack, 0, held);
        while let Some(frame) = stack.last_mut() {
            self.release(frame);
            match self.next(frame) {
                Move::Back => {
                    self.tried.truncate(frame.tried);
                    stack.pop();
                }
                Move::Stop(why) => return Some(why),
                Move::Take(at, so_far) => {
                    frame.held = Some(at);
                    let (request, missing) = (frame.request, frame.missing - 1);
                    self.picks[request].push(self.orders[request].picks[at]);
                    if missing == 0 {
                        self.descend(&mut stack, request + 1, so_far.turned(self.view));
                    } else {
                        // Within a request a device comes up once, shared or not, as in-tree; another request may share it.
                        stack.push(self.frame(request, missing, at + 1, so_far));
                    }
                    if self.first_only && self.best.is_some() {
                        return None;
                    }
                }
            }
        }
        None
    }

    /// Goes on with the next request, or notes what is found behind the last.
    fn descend(&mut self, stack: &mut Vec<Frame>, request: usize, so_far: SoFar) {
        if request < self.offers.len() {
            stack.push(self.frame(request, self.offer(request).asked, 0, so_far));
            return;
        }
        let key = so_far.key(self.view, Nearness::ZERO, (Power::default(), Nearness::ZERO));
        if self.best.as_ref().is_none_or(|(best, _)| key < *best) {
            self.best = Some((key, self.picks.clone()));
        }
    }

    /// Whether no set that is found from here on can be better than what there is.
    fn hopeless(&self, frame: &Frame, so_far: &SoFar, watts: Option<u32>) -> bool {
        let Some((best, _)) = &self.best else { return false };
        // By order, the rest of this request draws no less than this device a piece.
        let rest = u32::try_from(frame.missing - 1).unwrap_or(u32::MAX);
        let (power, near) = self.floors[frame.request + 1];
        let floor = (Power::default().plus(watts, rest).and(power), near);
        let chosen = so_far.request.near(self.view.wiring);
        so_far.key(self.view, chosen.max(self.orders[frame.request].near), floor) >= *best
    }

    fn frame(&self, request: usize, missing: usize, at: usize, so_far: SoFar) -> Frame {
        Frame {
            request,
            missing,
            at,
            fresh: true,
            so_far,
            tried: self.tried.len(),
            held: None,
        }
    }

    fn candidate(&self, request: usize, at: usize) -> &'v Candidate {
        &self.offer(request).candidates[self.orders[request].picks[at]]
    }

    /// Whether as many as are missing fit one by one. Without this, every subset of a group that is too small would
    /// be looked at before the next group is.
    fn enough_fit(&mut self, frame: &Frame) -> bool {
        let (claim, offer) = (self.view.requests[frame.request].claim, self.offer(frame.request));
        let (mut looked, mut fit) = (0, 0);
        for pick in &self.orders[frame.request].picks[frame.at..] {
            looked += 1;
            fit += usize::from(self.state.fits(claim, offer, &offer.candidates[*pick]));
            if fit == frame.missing {
                break;
            }
        }
        let price = u32::try_from(looked / WEIGHED_PER_STEP).unwrap_or(u32::MAX);
        *self.steps = self.steps.saturating_sub(price);
        fit == frame.missing
    }

    /// Gives back what the frame took.
    fn release(&mut self, frame: &mut Frame) {
        let Some(at) = frame.held.take() else { return };
        let candidate = self.candidate(frame.request, at);
        let claim = self.view.requests[frame.request].claim;
        self.picks[frame.request].pop();
        self.state.give_back(claim, self.offer(frame.request), candidate);
        self.tried.push(self.view.devices[candidate.dev].kind);
    }

    /// Finds the frame's next candidate and takes it.
    fn next(&mut self, frame: &mut Frame) -> Move {
        let (view, request, offer) = (self.view, frame.request, self.offer(frame.request));
        let order = &self.orders[request];
        let by_power = order.by_power;
        let spare = if order.fails { 0 } else { frame.missing - 1 };
        let last = order.picks.len().saturating_sub(spare);
        if std::mem::take(&mut frame.fresh) && !order.fails {
            let missing = u64::try_from(frame.missing).unwrap_or(u64::MAX);
            if !self.state.affords(order.adds.saturating_mul(missing)) || order.tangled && !self.enough_fit(frame) {
                return Move::Back;
            }
        }
        while frame.at < last {
            let at = frame.at;
            frame.at += 1;
            let candidate = self.candidate(request, at);
            let dev = &view.devices[candidate.dev];
            // No step: with 64 claims most of what comes first is given to those before. And before the selector's
            // failure: the in-tree allocator does not evaluate it on a device the pod holds already.
            let claim = view.requests[request].claim;
            if !self
                .state
                .unheld(claim, candidate, offer.alternative.request.admin_access)
            {
                continue;
            }
            if candidate.failed {
                let mut way = path(&self.offers[..=request], &self.picks);
                way.push(self.orders[request].picks[at]);
                return Move::Stop(Outcome::Failed {
                    request,
                    offer: self.offers[request],
                    dev: candidate.dev,
                    path: way,
                });
            }
            if self.tried[frame.tried..].contains(&dev.kind) {
                continue;
            }
            if *self.steps == 0 {
                return Move::Stop(Outcome::Cut);
            }
            *self.steps -= 1;
            let watts = drawn(view, offer, candidate);
            let so_far = frame.so_far.with(view, offer, dev, watts);
            if self.cliques && !so_far.all.is_clique(view.wiring) {
                continue;
            }
            if self.hopeless(frame, &so_far, watts) {
                match by_power {
                    // Neither would any later device in its place be better.
                    true => return Move::Back,
                    false => continue,
                }
            }
            if self.state.take(claim, offer, candidate) {
                return Move::Take(at, so_far);
            }
        }
        Move::Back
    }
}
