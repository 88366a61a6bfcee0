//! Why nothing was found, when no request alone explains it: the rule without which there would be a solution.

use super::demand::Demand;
use super::search::Outcome;
use super::solve::{Passes, over_alternatives};
use super::state::Relaxed;
use super::view::View;
use super::words::listed;
use crate::model::{ConstraintKind, Reason, Refusal};

/// Steps of one look at a relaxed problem: an explanation is worth less than a placement.
const STEPS: u32 = 2_000;

pub(super) fn cut(steps: u32) -> Refusal {
    let words =
        format!("no placement found within {steps} search steps: simplify the claim's requests and constraints");
    Refusal::new(Reason::Limit, words)
}

pub(super) fn nothing(demand: &Demand, view: &View<'_>, passes: &Passes, mix: bool) -> Refusal {
    // A request none of whose alternatives can be met alone: the first alternative is what was wanted most.
    for request in &view.requests {
        let mut shortages = request.offers.iter().map(|o| view.shortage(demand, o, mix));
        if let Some(Some(first)) = shortages.next()
            && shortages.all(|s| s.is_some())
        {
            return first;
        }
    }
    let possible_without = |relaxed: Relaxed| {
        let mut steps = STEPS;
        let attempt = |offers: &[usize], steps: &mut u32| passes.run(view, offers, relaxed, true, steps);
        matches!(over_alternatives(view, &mut steps, attempt), Outcome::Found { .. })
    };
    if possible_without(Relaxed {
        classes: true,
        ..Relaxed::default()
    }) {
        return class_rule(demand, view);
    }
    if possible_without(Relaxed {
        constraints: true,
        ..Relaxed::default()
    }) {
        return constraint(view);
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

fn class_rule(demand: &Demand, view: &View<'_>) -> Refusal {
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
    match &demand.wishes.class {
        Some(want) => Refusal::new(
            Reason::WrongClass,
            format!("too few free devices of class {want}{free}"),
        ),
        None => Refusal::new(
            Reason::MixedClasses,
            format!("all devices of the pod must be of one class{free}"),
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
