//! Compares the two answers to a case and says who is right.

use serde_json::Value;

use super::case::Case;
use super::check::violations;
use super::known;
use super::reference;
use super::upstream::Answer;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Agree,
    /// The name of a decision in `known`.
    Known(&'static str),
    /// `kind: words`
    Disagree(String),
}

pub(crate) fn judge(case: &Case, upstream: &Answer, ours: &Result<Vec<Value>, String>) -> Verdict {
    if let Ok(allocations) = ours {
        let broken = violations(case, &upstream.matches, allocations);
        if let Some(first) = broken.first() {
            return Verdict::Disagree(format!("ours invalid, {first}"));
        }
    }
    let theirs = match &upstream.results {
        Some(results) if upstream.fits => violations(case, &upstream.matches, results),
        _ => vec![],
    };
    if !theirs.is_empty() {
        // Wrong as upstream is, there may be a right answer.
        if let (Err(reason), Some(true)) = (ours, reference::feasible(case, &upstream.matches)) {
            return Verdict::Disagree(format!("ours refuses what can be met, {reason}"));
        }
        return match known::invalid(case, &theirs) {
            Some(name) => Verdict::Known(name),
            None => Verdict::Disagree(format!("upstream invalid, {}", theirs[0])),
        };
    }
    match (upstream.fits, ours) {
        (true, Ok(_)) | (false, Err(_)) => Verdict::Agree,
        (true, Err(reason)) => match known::refused(case) {
            Some(name) => Verdict::Known(name),
            None => Verdict::Disagree(format!("ours refuses, {reason}")),
        },
        (false, Ok(_)) => match known::accepted(case, upstream) {
            Some(name) => Verdict::Known(name),
            None => {
                let error = upstream.error.as_deref().unwrap_or("no error");
                Verdict::Disagree(format!("ours accepts, upstream: {error}"))
            }
        },
    }
}

/// The known difference between upstream and the rules that a case shows, and what is right; without asking wattlane.
pub(crate) fn known_difference(case: &Case, upstream: &Answer) -> Option<(&'static str, bool)> {
    let feasible = reference::feasible(case, &upstream.matches);
    let Some(results) = upstream.results.as_ref().filter(|_| upstream.fits) else {
        return Some((
            known::accepted(case, upstream).filter(|_| feasible == Some(true))?,
            true,
        ));
    };
    let broken = violations(case, &upstream.matches, results);
    if broken.is_empty() {
        return None;
    }
    // Shown best where there is no right answer.
    Some((
        known::invalid(case, &broken).filter(|_| feasible == Some(false))?,
        false,
    ))
}
