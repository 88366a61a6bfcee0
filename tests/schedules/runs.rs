//! The tests: many seeds, one seed, the same seed twice.

use std::collections::BTreeMap;
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
    let broken = Mutex::new(BTreeMap::new());
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
                    let (outcome, trace) = Host::run(seed);
                    tally.lock().expect("not poisoned").add(&outcome);
                    let Some(failure) = outcome.failure else { continue };
                    let from = trace.len().saturating_sub(LINES);
                    let failure = format!("SCHEDULES_SEED={seed}: {failure}");
                    let lines = trace[from..].join("\n");
                    broken.lock().expect("not poisoned").insert(seed, (lines, failure));
                    // One broken rule is enough, unless all are asked for.
                    if number("SCHEDULES_ALL").is_none() {
                        next.store(seeds.end, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let tally = tally.into_inner().expect("not poisoned");
    eprintln!("{}", tally.table());
    let broken = broken.into_inner().expect("not poisoned");
    if let Some((lines, _)) = broken.values().next() {
        let all: Vec<&str> = broken.values().map(|(_, failure)| failure.as_str()).collect();
        panic!("{lines}\n{} schedules broke a rule:\n{}", all.len(), all.join("\n"));
    }
    assert!(
        tally.bound > tally.schedules,
        "{} pods bound in {} schedules",
        tally.bound,
        tally.schedules
    );
}

#[test]
fn no_schedule_breaks_a_rule() {
    let first = number("SCHEDULES_FROM").unwrap_or(0);
    play(first..first + number("SCHEDULES").unwrap_or(110));
}

#[test]
#[ignore = "half an hour in this build; .ci/run plays them with --profile schedules"]
fn ten_thousand_schedules() {
    play(0..10_000);
}

/// Only with `SCHEDULES_SEED`: one schedule, with all of its trace.
#[test]
fn repeat() {
    let Some(seed) = number("SCHEDULES_SEED") else { return };
    let (outcome, trace) = Host::run(seed);
    eprintln!("{}\n{outcome:#?}", trace.join("\n"));
    assert_eq!(outcome.failure, None);
}
