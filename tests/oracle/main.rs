//! wattlane against the in-tree allocator of Kubernetes: the same cases to both, feasibility must be the same, and
//! every answer must be valid under a checker that shares no code with either.
//!
//! The comparison needs the Go oracle and is ignored by default:
//!
//! ```text
//! tests/oracle/build && cargo test --test oracle -- --ignored --nocapture
//! ```
//!
//! `WATTLANE_ORACLE_CASES` (20000) and `WATTLANE_ORACLE_SEED` (0, the first seed) choose the cases. Disagreements are
//! shrunk into target/oracle/disagreements/. Those that were decided are in cases/, with the expected answer, and run
//! without Go.

mod amount;
mod case;
mod check;
mod check_rest;
mod expressions;
mod generate;
mod judge;
mod known;
mod load;
mod ours;
mod recorded;
mod reference;
mod rng;
mod seen;
mod shapes;
mod shrink;
mod supply;
mod tally;
mod upstream;
mod world;

use judge::{Verdict, judge, known_difference};
use tally::Tally;
use upstream::Upstream;

fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|e| panic!("{name}={text}: {e}")),
        Err(_) => default,
    }
}

#[test]
#[ignore = "needs tests/oracle/build"]
fn the_in_tree_allocator_and_wattlane_agree() {
    let (first, count) = (
        setting("WATTLANE_ORACLE_SEED", 0),
        setting("WATTLANE_ORACLE_CASES", 20_000),
    );
    eprintln!("cases {first}..{}", first + count);
    let mut upstream = Upstream::start();
    let mut tally = Tally::default();
    for seed in first..first + count {
        let (features, case) = generate::case(seed);
        let answer = upstream.ask(&case);
        let verdict = judge(&case, &answer, &ours::answer(&case));
        // The same kind of difference, in as few words as possible.
        let same =
            |c: &case::Case, upstream: &mut Upstream| match (judge(c, &upstream.ask(c), &ours::answer(c)), &verdict) {
                (Verdict::Disagree(other), Verdict::Disagree(what)) => tally::kind(&other) == tally::kind(what),
                (Verdict::Known(other), Verdict::Known(name)) => other == *name,
                _ => false,
            };
        if tally.is_new(&verdict) {
            let small = shrink::shrink(&case, |c| same(c, &mut upstream));
            let answer = upstream.ask(&small);
            match &verdict {
                Verdict::Disagree(what) => recorded::disagreement(seed, what, &small, &answer),
                Verdict::Known(name) => recorded::candidate(&format!("{name}-{seed}"), !answer.fits, &small, &answer),
                Verdict::Agree => {}
            }
        }
        tally.add(seed, &features, answer.fits, &verdict);
    }
    eprintln!("{tally}");
    assert_eq!(tally.disagreements(), 0, "see target/oracle/disagreements");
}

/// Selectors alone: the same devices match, and the same ones fail (in other words).
#[test]
#[ignore = "needs tests/oracle/build"]
fn selectors_agree() {
    let (first, count) = (
        setting("WATTLANE_ORACLE_SEED", 0),
        setting("WATTLANE_ORACLE_CASES", 20_000),
    );
    let mut upstream = Upstream::start();
    let (mut compared, mut wrong) = (0, std::collections::BTreeMap::new());
    for seed in first..first + count {
        let (features, case) = generate::case(seed);
        if !features.has(generate::Feature::Selectors) {
            continue;
        }
        let (theirs, ours) = (upstream.ask(&case).matches, ours::matches(&case));
        assert!(
            theirs.keys().eq(ours.keys()),
            "seed {seed}: {:?} and {:?}",
            theirs.keys(),
            ours.keys()
        );
        for (request, row) in &theirs {
            for (id, said) in row {
                let our = &ours[request][id];
                compared += 1;
                if said.as_bool() != our.as_bool() {
                    wrong
                        .entry(format!("upstream {said}, ours {our}"))
                        .or_insert_with(|| format!("seed {seed}: {request} on {id}"));
                }
            }
        }
    }
    eprintln!("{compared} results compared");
    assert!(compared > 0, "nothing was compared");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Not a check but a tool: writes the smallest case it finds of each known difference, and one that fits of each feature
/// alone, to target/oracle/candidates/, to be copied to cases/. Only with WATTLANE_ORACLE_CANDIDATES set.
#[test]
#[ignore = "needs tests/oracle/build; for making cases"]
fn candidates_for_the_recorded_cases() {
    if std::env::var_os("WATTLANE_ORACLE_CANDIDATES").is_none() {
        return;
    }
    let (first, count) = (
        setting("WATTLANE_ORACLE_SEED", 0),
        setting("WATTLANE_ORACLE_CASES", 20_000),
    );
    let mut upstream = Upstream::start();
    let mut found = std::collections::BTreeSet::new();
    let mut alone = std::collections::BTreeSet::new();
    for seed in first..first + count {
        let (features, case) = generate::case(seed);
        let answer = upstream.ask(&case);
        // Two results or more, so that there is something to get wrong.
        let results: usize = answer.results.iter().flatten().map(|a| check::results(a).len()).sum();
        if let ([feature], true) = (
            features.0.as_slice(),
            results > 1 && known_difference(&case, &answer).is_none(),
        ) && alone.insert(*feature)
        {
            recorded::candidate(&format!("feature-{feature:?}"), true, &case, &answer);
        }
        let Some(difference) = known_difference(&case, &answer).filter(|d| !found.contains(d)) else {
            continue;
        };
        let small = shrink::shrink(&case, |c| known_difference(c, &upstream.ask(c)) == Some(difference));
        let answer = upstream.ask(&small);
        eprintln!("seed {seed}: {difference:?}");
        recorded::candidate(difference.0, difference.1, &small, &answer);
        found.insert(difference);
    }
    assert!(!found.is_empty(), "no known difference in {count} cases");
}

/// Keeps the checker honest without wattlane: what upstream gives is valid, but for its known mistakes.
#[test]
#[ignore = "needs tests/oracle/build"]
fn the_checker_accepts_what_the_in_tree_allocator_gives() {
    let (first, count) = (
        setting("WATTLANE_ORACLE_SEED", 0),
        setting("WATTLANE_ORACLE_CASES", 20_000),
    );
    let mut upstream = Upstream::start();
    let (mut fits, mut unknown, mut wrong) = (0, 0, vec![]);
    let mut known = std::collections::BTreeMap::new();
    for seed in first..first + count {
        let (_, case) = generate::case(seed);
        let answer = upstream.ask(&case);
        let Some(results) = answer.results.as_ref().filter(|_| answer.fits) else {
            let feasible = reference::feasible(&case, &answer.matches);
            unknown += usize::from(feasible.is_none());
            match known::accepted(&case, &answer).filter(|_| feasible == Some(true)) {
                Some(name) => *known.entry(name).or_insert(0) += 1,
                None if feasible == Some(true) => {
                    let what = format!("refused, but can be met: {:?}", answer.error);
                    let refused = |c: &case::Case| {
                        let answer = upstream.ask(c);
                        let can = reference::feasible(c, &answer.matches) == Some(true);
                        !answer.fits && can && known::accepted(c, &answer).is_none()
                    };
                    let small = shrink::shrink(&case, refused);
                    recorded::disagreement(seed, &what, &small, &upstream.ask(&small));
                    wrong.push(format!("seed {seed}: {what}"));
                }
                None => {}
            }
            continue;
        };
        fits += 1;
        let broken = check::violations(&case, &answer.matches, results);
        match known::invalid(&case, &broken).filter(|_| !broken.is_empty()) {
            Some(name) => *known.entry(name).or_insert(0) += 1,
            None if !broken.is_empty() => wrong.push(format!("seed {seed}: {}", broken.join("; "))),
            None => {}
        }
        if broken.is_empty() && reference::feasible(&case, &answer.matches) == Some(false) {
            wrong.push(format!("seed {seed}: met, but the reference finds no way"));
        }
    }
    eprintln!("{fits} of {count} fit, {unknown} of the others have too many combinations to try; known: {known:?}");
    assert!(fits > 0, "nothing was checked");
    assert!(
        wrong.is_empty(),
        "{} of {fits}:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(30)].join("\n")
    );
}
