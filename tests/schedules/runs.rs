//! The tests: many seeds, one seed, the same seed twice.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::host::Host;
use super::tally::Tally;

/// Lines of a failed schedule that are printed.
const LINES: usize = 400;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is not a number: {text}"))
    })
}

/// Plays the seeds on all cores; panics with the trace of the first that broke a rule.
fn play(seeds: std::ops::Range<u64>) {
    let next = AtomicU64::new(seeds.start);
    let tally = Mutex::new(Tally::default());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let (outcome, _) = Host::run(seed, false);
                    tally.lock().expect("not poisoned").add(seed, &outcome);
                    // One broken rule is enough, unless all are asked for.
                    if outcome.failure.is_some() && number("SCHEDULES_ALL").is_none() {
                        next.store(seeds.end, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let tally = tally.into_inner().expect("not poisoned");
    eprintln!("{}", tally.table());
    if let Some(seed) = tally.failed.first() {
        panic!("{}\nseeds that failed: {:?}", told(*seed), tally.failed);
    }
    assert!(
        tally.bound > tally.schedules,
        "{} pods bound in {} schedules",
        tally.bound,
        tally.schedules
    );
}

fn told(seed: u64) -> String {
    let (outcome, trace) = Host::run(seed, true);
    let from = trace.len().saturating_sub(LINES);
    let failure = outcome
        .failure
        .unwrap_or_else(|| "passed this time: the simulation is not deterministic".to_owned());
    format!("{}\nSCHEDULES_SEED={seed}: {failure}", trace[from..].join("\n"))
}

#[test]
fn no_schedule_breaks_a_rule() {
    let first = number("SCHEDULES_FROM").unwrap_or(0);
    play(first..first + number("SCHEDULES").unwrap_or(300));
}

#[test]
#[ignore = "two minutes; .ci/run runs it"]
fn ten_thousand_schedules() {
    play(0..10_000);
}

/// Only with `SCHEDULES_SEED`: one schedule, with all of its trace.
#[test]
fn repeat() {
    let Some(seed) = number("SCHEDULES_SEED") else { return };
    let (outcome, trace) = Host::run(seed, true);
    eprintln!("{}\n{outcome:#?}", trace.join("\n"));
    assert_eq!(outcome.failure, None);
}

#[test]
fn the_same_seed_gives_the_same_schedule() {
    let hash = |seed| {
        let (_, trace) = Host::run(seed, true);
        let mut hasher = DefaultHasher::new();
        trace.hash(&mut hasher);
        (hasher.finish(), trace)
    };
    for seed in 0..12 {
        let (first, second) = (hash(seed), hash(seed));
        let differs = first.1.iter().zip(&second.1).find(|(a, b)| a != b);
        assert!(first.0 == second.0, "seed {seed}: {differs:?}");
    }
}
