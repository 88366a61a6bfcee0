//! Counts of what the schedules met, and the table that is reported.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What one schedule came to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) seed: u64,
    /// Faults by kind, and how often each happened.
    pub(crate) faults: BTreeMap<&'static str, u64>,
    /// Milliseconds from the end of the faults until all was settled.
    pub(crate) settled: u64,
    pub(crate) bound: u64,
    pub(crate) failure: Option<String>,
}

#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) schedules: u64,
    pub(crate) bound: u64,
    settled: (u64, u64),
    rows: BTreeMap<&'static str, Row>,
    failed: u64,
}

#[derive(Default)]
struct Row {
    schedules: u64,
    times: u64,
    longest: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, outcome: &Outcome) {
        self.schedules += 1;
        self.bound += outcome.bound;
        self.settled = self.settled.max((outcome.settled, outcome.seed));
        for (fault, times) in &outcome.faults {
            let row = self.rows.entry(fault).or_default();
            row.schedules += 1;
            row.times += times;
            row.longest = row.longest.max(outcome.settled);
        }
        self.failed += u64::from(outcome.failure.is_some());
    }

    /// One fault a line. A schedule that broke a rule fails the run, so that the zeros are what a run that passes says.
    pub(crate) fn table(&self) -> String {
        let mut out = format!(
            "{} schedules, {} pods bound, {} failed, longest until all was settled {:.1} s (seed {})\n\
             {:<28} {:>9} {:>9} {:>18}\n",
            self.schedules,
            self.bound,
            self.failed,
            self.settled.0 as f64 / 1000.0,
            self.settled.1,
            "fault",
            "schedules",
            "times",
            "longest stall (s)"
        );
        for (fault, row) in &self.rows {
            let longest = row.longest as f64 / 1000.0;
            let _ = writeln!(out, "{fault:<28} {:>9} {:>9} {longest:>18.1}", row.schedules, row.times);
        }
        out
    }
}
