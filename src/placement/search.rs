//! Depth-first branch and bound over the devices of one node: for given alternatives, the devices of least `Key`, in
//! device order where that is equal. Bounded by steps.

use super::demand::RESULTS;
use super::key::{Floor, Key, Power, SoFar};
use super::offer::{Candidate, Offer};
use super::order::{How, Order, drawn};
use super::state::State;
use super::view::View;
use crate::topology::Nearness;

/// Candidates that are looked through before the search begins for the price of one step.
const LOOKED_PER_STEP: usize = 64;
/// Candidates that are held against all rules, without being taken, for the price of one step.
const WEIGHED_PER_STEP: usize = 8;

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
    /// By request: of this and all later requests.
    floors: Vec<Floor>,
    state: State<'v>,
    picks: Vec<Vec<usize>>,
    /// Of all frames, one after the other.
    tried: Vec<Kind>,
    best: Option<(Key, Vec<Vec<usize>>)>,
    first_only: bool,
    /// The cards of the pod must all reach each other.
    cliques: bool,
    steps: &'s mut u32,
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

/// Devices of one kind lead to the same sets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Device(usize),
    /// A kind of card of which nothing is chosen, and the place on it.
    Cut(usize, usize),
}

/// What a frame does next.
enum Move {
    /// Takes the candidate at this position of the order.
    Take(usize, SoFar),
    /// Nothing is left to try.
    Back,
    Stop(Outcome),
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
    if let Some(limit) = view.limit.as_ref().filter(|_| !how.relaxed.limit && !how.relaxed.room) {
        // Else every subset that is still within the limit would be looked at first.
        let least = chosen().map(|(_, offer)| limit.least(offer));
        if !limit.affords(least.fold(0, usize::saturating_add)) {
            return Outcome::Nothing;
        }
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
    let mut floors = vec![Floor::default(); orders.len() + 1];
    if !how.first_only {
        for r in (0..orders.len()).rev() {
            let offer = &view.requests[r].offers[offers[r]];
            // By order, the first of them draw least.
            let least = orders[r].picks.iter().take(offer.asked);
            let watts = least.map(|i| match orders[r].cut {
                true => orders[r].draws,
                false => drawn(view, offer, &offer.candidates[*i]),
            });
            let later = floors[r + 1];
            floors[r] = Floor {
                lost: later.lost.saturating_add(times(orders[r].loses, offer.asked)),
                power: watts.fold(later.power, |sum, watts| sum.plus(watts, 1)),
                near: later.near.joined(orders[r].near),
            };
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

fn times(amount: u32, n: usize) -> u32 {
    amount.saturating_mul(u32::try_from(n).unwrap_or(u32::MAX))
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
        let key = so_far.key(self.view, Nearness::ZERO, Floor::default());
        if self.best.as_ref().is_none_or(|(best, _)| key < *best) {
            self.best = Some((key, self.picks.clone()));
        }
    }

    /// Whether no set that is found from here on can be better than what there is.
    fn hopeless(&self, frame: &Frame, so_far: &SoFar, watts: Option<u32>) -> bool {
        let Some((best, _)) = &self.best else { return false };
        let (order, later) = (&self.orders[frame.request], self.floors[frame.request + 1]);
        let rest = frame.missing - 1;
        // By order, the rest of this request draws no less than this device a piece.
        let watts = if order.cut { order.draws } else { watts };
        let floor = Floor {
            lost: later.lost.saturating_add(times(order.loses, rest)),
            power: Power::default()
                .plus(watts, u32::try_from(rest).unwrap_or(u32::MAX))
                .and(later.power),
            near: later.near,
        };
        let chosen = so_far.request.near(self.view.wiring);
        so_far.key(self.view, chosen.max(order.near), floor) >= *best
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

    /// What it is interchangeable with at this place.
    fn kind(&self, dev: usize) -> Kind {
        match self.state.cut_of_untouched(dev) {
            Some((card, cut)) => Kind::Cut(card, cut),
            None => Kind::Device(self.view.devices[dev].kind),
        }
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
        self.tried.push(self.kind(candidate.dev));
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
            let kind = self.kind(candidate.dev);
            if self.tried[frame.tried..].contains(&kind) {
                continue;
            }
            if *self.steps == 0 {
                return Move::Stop(Outcome::Cut);
            }
            *self.steps -= 1;
            let watts = drawn(view, offer, candidate);
            let so_far = frame
                .so_far
                .with(view, offer, candidate, watts, self.state.loss(candidate));
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
