//! Why nothing was found, when no request alone explains it: the rule without which there would be a solution.

use super::demand::{Demand, RESULTS};
use super::search::Outcome;
use super::solve::{Passes, over_alternatives};
use super::state::Relaxed;
use super::view::View;
use super::wish::MIX;
use super::words::{listed, unlinked};
use super::{limit, power};
use crate::model::{ConstraintKind, Name, Reason, Refusal};

/// Steps of one look at a relaxed problem: an explanation is worth less than a placement.
const STEPS: u32 = 2_000;

pub(super) fn cut(steps: u32) -> Refusal {
    let words = if steps == 0 {
        "not looked at: other nodes used up the search steps of this pod; simplify the claim's requests and constraints"
            .to_owned()
    } else {
        format!("no placement found within {steps} search steps: simplify the claim's requests and constraints")
    };
    Refusal::new(Reason::Limit, words)
}

/// `left`: the steps that may still be spent, in all.
pub(super) fn nothing(demand: &Demand, view: &View<'_>, passes: &Passes, mix: bool, left: &mut u32) -> Refusal {
    // A request none of whose alternatives can be met alone: the first alternative is what was wanted most.
    for request in &view.requests {
        let mut shortages = request.offers.iter().map(|o| view.shortage(demand, o, mix));
        if let Some(Some(first)) = shortages.next()
            && shortages.all(|s| s.is_some())
        {
            return first;
        }
    }
    if let Some(refusal) = too_many(demand, view) {
        return refusal;
    }
    // `first`: any choice will do, not the best.
    let mut without = |relaxed: Relaxed, first: bool| {
        let granted = STEPS.min(*left);
        let mut steps = granted;
        let attempt = |offers: &[usize], steps: &mut u32| passes.run(view, offers, relaxed, first, steps);
        let found = over_alternatives(view, &mut steps, attempt);
        *left -= granted - steps;
        match found {
            Outcome::Found { choice, .. } => Some(choice),
            _ => None,
        }
    };
    if let Some(refusal) = limit::always_over(view) {
        return refusal;
    }
    if view.limit.is_some() {
        let relaxed = Relaxed {
            limit: true,
            ..Relaxed::default()
        };
        if let Some(refusal) = without(relaxed, false).and_then(|choice| limit::over(view, &choice)) {
            return refusal;
        }
    }
    if view.budget.is_some() {
        let relaxed = Relaxed {
            power: true,
            ..Relaxed::default()
        };
        if let Some(refusal) = without(relaxed, false).and_then(|choice| power::over(view, &choice)) {
            return refusal;
        }
    }
    let mut possible_without = |relaxed: Relaxed| without(relaxed, true).is_some();
    if view.cliques
        && possible_without(Relaxed {
            topology: true,
            ..Relaxed::default()
        })
    {
        let mut offers = view.requests.iter().flat_map(|r| r.offers.first());
        let class = offers.next().map_or("", |o| &*o.alternative.class.name);
        let asked: usize = view
            .requests
            .iter()
            .flat_map(|r| r.offers.first())
            .map(|o| o.asked)
            .sum();
        return unlinked(u32::try_from(asked).unwrap_or(u32::MAX), class, view.wiring);
    }
    if possible_without(Relaxed {
        classes: true,
        ..Relaxed::default()
    }) {
        return class_rule(demand, view, passes.held.as_ref());
    }
    if possible_without(Relaxed {
        constraints: true,
        ..Relaxed::default()
    }) {
        return constraint(view);
    }
    if let Some(of) = view.mode()
        && possible_without(Relaxed {
            modes: true,
            ..Relaxed::default()
        })
    {
        let words = format!("what the pod asks for needs several {of}s at once, and all devices of a node have one");
        return Refusal::new(Reason::NodeMode, words);
    }
    if possible_without(Relaxed {
        room: true,
        ..Relaxed::default()
    }) {
        let words = "the requests compete for the same devices, counters or capacity, and not all can be met together";
        return Refusal::new(Reason::CapacityExhausted, words);
    }
    Refusal::new(
        Reason::NotEnoughFree,
        "the requests cannot be met together with what is free",
    )
}

/// A claim that would get more devices than it can hold, whichever alternatives it takes ("all" counts what is there).
fn too_many(demand: &Demand, view: &View<'_>) -> Option<Refusal> {
    demand.new_claims().enumerate().find_map(|(i, claim)| {
        let requests = view.requests.iter().filter(|r| r.claim == i);
        let least = requests.map(|r| {
            r.offers
                .iter()
                .filter(|o| o.possible())
                .map(|o| o.asked)
                .min()
                .unwrap_or(0)
        });
        let total = least.fold(0, usize::saturating_add);
        (total > RESULTS).then(|| {
            let words = format!(
                "claim {} would get {total} devices: at most {RESULTS} go into one claim",
                claim.claim.key.name
            );
            Refusal::new(Reason::Limit, words)
        })
    })
}

fn class_rule(demand: &Demand, view: &View<'_>, held: Option<&Name>) -> Refusal {
    let mut free = vec![];
    for offer in view.requests.iter().flat_map(|r| &r.offers) {
        for (class, n) in view.by_class(offer) {
            match free.iter_mut().find(|(c, _)| *c == class) {
                Some((_, most)) => *most = n.max(*most),
                None => free.push((class, n)),
            }
        }
    }
    let free = listed("; free: ", &free);
    match (&demand.wishes.class, held) {
        (Some(want), Some(held)) => Refusal::new(
            Reason::MixedClasses,
            format!(
                "the pod asks for class {want}{}, but its claims hold devices of class {held}",
                demand.wishes.whose_class()
            ),
        ),
        (None, Some(held)) => Refusal::new(
            Reason::MixedClasses,
            format!("all devices of the pod must be of class {held}, which its claims hold already{free}"),
        ),
        (Some(want), None) => Refusal::new(
            Reason::WrongClass,
            format!(
                "too few free devices of class {want}{}{free}",
                demand.wishes.whose_class()
            ),
        ),
        (None, None) => Refusal::new(
            Reason::MixedClasses,
            format!("all devices of the pod must be of one class, unless it says {MIX}: \"true\"{free}"),
        ),
    }
}

fn constraint(view: &View<'_>) -> Refusal {
    // With several constraints the first is named: they are ANDed, and the text is for a person who has them before him.
    let words = view.rules.first().map_or_else(String::new, |rule| {
        let kind = match rule.constraint.kind {
            ConstraintKind::MatchAttribute => "the same",
            ConstraintKind::DistinctAttribute => "a different",
        };
        let name = &rule.constraint.attribute;
        let name = if name.domain.is_empty() {
            name.name.to_string()
        } else {
            name.to_string()
        };
        let others = if view.rules.len() > 1 {
            " (and its other constraints)"
        } else {
            ""
        };
        format!("no free devices that each have {kind} {name}{others}")
    });
    Refusal::new(Reason::Constraint, words)
}
