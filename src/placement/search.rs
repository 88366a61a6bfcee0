//! Depth-first branch and bound over the devices of one node: for given alternatives, the devices that draw least,
//! in device order where that is equal. Bounded by steps.

use super::state::{Relaxed, State};
use super::view::{Candidate, Offer, View};

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
    pub(super) power: Power,
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
    /// The search came to a device on which a selector failed: request, alternative, device.
    Failed {
        request: usize,
        offer: usize,
        dev: usize,
    },
}

pub(super) struct Search<'s, 'v> {
    view: &'v View<'v>,
    offers: &'s [usize],
    /// By request: its admitted candidates, best first.
    orders: Vec<Vec<usize>>,
    /// By request: the least that this and all later requests draw.
    floors: Vec<u32>,
    state: State<'v>,
    picks: Vec<Vec<usize>>,
    best: Option<(Power, Vec<Vec<usize>>)>,
    first_only: bool,
    steps: &'s mut u32,
    stopped: Option<Outcome>,
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
    let mut orders = vec![];
    for (request, offer) in view.requests.iter().zip(offers) {
        let offer = &request.offers[*offer];
        let admitted = |i: &usize| how.classes.admit(view, offer, &offer.candidates[*i]);
        let mut order: Vec<usize> = (0..offer.candidates.len()).filter(admitted).collect();
        if !how.first_only {
            let rank = |i: &usize| {
                let watts = view.devices[offer.candidates[*i].dev].watts;
                (watts.is_none(), watts)
            };
            // Stable: equal watts stay in device order.
            order.sort_by_key(rank);
        }
        if order.is_empty() || order.len() < offer.asked {
            return Outcome::Nothing;
        }
        orders.push(order);
    }
    let mut floors = vec![0_u32; orders.len() + 1];
    for (r, order) in orders.iter().enumerate().rev() {
        let offer = &view.requests[r].offers[offers[r]];
        let watts = order
            .iter()
            .map(|i| view.devices[offer.candidates[*i].dev].watts.unwrap_or(0));
        let least = watts
            .min()
            .unwrap_or(0)
            .saturating_mul(u32::try_from(offer.asked).unwrap_or(u32::MAX));
        floors[r] = floors[r + 1].saturating_add(least);
    }
    let mut search = Search {
        view,
        offers,
        orders,
        floors,
        state: State::new(view, how.relaxed),
        picks: vec![vec![]; offers.len()],
        best: None,
        first_only: how.first_only,
        steps,
        stopped: None,
    };
    search.request(0, Power::default());
    let Search { best, stopped, .. } = search;
    match (best, stopped) {
        (_, Some(failed @ Outcome::Failed { .. })) => failed,
        (Some((power, picks)), stopped) => Outcome::Found {
            choice: Choice {
                power,
                offers: offers.to_vec(),
                picks,
            },
            cut: stopped == Some(Outcome::Cut),
        },
        (None, Some(stopped)) => stopped,
        (None, None) => Outcome::Nothing,
    }
}

impl<'v> Search<'_, 'v> {
    fn offer(&self, request: usize) -> &'v Offer<'v> {
        &self.view.requests[request].offers[self.offers[request]]
    }

    fn done(&self) -> bool {
        self.stopped.is_some() || (self.first_only && self.best.is_some())
    }

    fn request(&mut self, request: usize, power: Power) {
        if request == self.offers.len() {
            if self.best.as_ref().is_none_or(|(best, _)| power < *best) {
                self.best = Some((power, self.picks.clone()));
            }
            return;
        }
        self.device(request, 0, self.offer(request).asked, power);
    }

    /// Chooses `missing` more devices for the request, from position `from` of its order on.
    fn device(&mut self, request: usize, from: usize, missing: usize, power: Power) {
        if missing == 0 {
            return self.request(request + 1, power);
        }
        let (view, offer, claim) = (self.view, self.offer(request), self.view.requests[request].claim);
        // Kinds tried at this place: another device of one leads to the same sets, later in device order.
        let mut tried: Vec<usize> = vec![];
        let len = self.orders[request].len();
        let last = len.saturating_sub(missing - 1);
        for at in from..last {
            let pick = self.orders[request][at];
            let candidate = &offer.candidates[pick];
            let dev = &view.devices[candidate.dev];
            if candidate.failed {
                let offer = self.offers[request];
                self.stopped = Some(Outcome::Failed {
                    request,
                    offer,
                    dev: candidate.dev,
                });
                return;
            }
            if tried.contains(&dev.kind) {
                continue;
            }
            if *self.steps == 0 {
                self.stopped = Some(Outcome::Cut);
                return;
            }
            *self.steps -= 1;
            let next = power.plus(dev.watts, 1);
            // What later requests draw at the least; the rest of this one draws no less than this device, by order.
            let floor = next.plus(Some(self.floors[request + 1]), 1);
            if self.best.as_ref().is_some_and(|(best, _)| floor >= *best) {
                continue;
            }
            if !self.state.take(claim, offer, candidate) {
                continue;
            }
            self.picks[request].push(pick);
            // Within a request a device comes up once, shared or not, as in-tree; another request may share it.
            self.device(request, at + 1, missing - 1, next);
            self.picks[request].pop();
            self.state.give_back(claim, offer, candidate);
            if self.done() {
                return;
            }
            tried.push(dev.kind);
        }
    }
}
