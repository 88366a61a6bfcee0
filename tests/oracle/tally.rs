//! Counts verdicts by feature, alone and mixed with others, for the report at the end of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::generate::{Feature, Features};
use super::judge::Verdict;

#[derive(Default)]
struct Row {
    cases: usize,
    fits: usize,
    agree: usize,
    known: usize,
    disagree: usize,
}

#[derive(Default)]
pub(crate) struct Tally {
    alone: BTreeMap<Feature, Row>,
    mixed: BTreeMap<Feature, Row>,
    total: Row,
    known: BTreeMap<&'static str, usize>,
    kinds: BTreeMap<String, (usize, BTreeSet<u64>)>,
}

/// A disagreement without its particulars: names and numbers differ from case to case.
pub(crate) fn kind(what: &str) -> String {
    let head: Vec<&str> = what
        .splitn(3, ':')
        .take(if what.starts_with("ours accepts") { 3 } else { 1 })
        .collect();
    head.join(":").chars().filter(|c| !c.is_ascii_digit()).collect()
}

impl Tally {
    /// Worth a look: a few of each kind of disagreement (they may have different causes), one of each known difference.
    pub(crate) fn is_new(&self, verdict: &Verdict) -> bool {
        match verdict {
            Verdict::Agree => false,
            Verdict::Known(name) => !self.known.contains_key(name),
            Verdict::Disagree(what) => self.kinds.get(&kind(what)).is_none_or(|(n, _)| *n < 4),
        }
    }

    pub(crate) fn add(&mut self, seed: u64, features: &Features, fits: bool, verdict: &Verdict) {
        let table = if features.0.len() == 1 {
            &mut self.alone
        } else {
            &mut self.mixed
        };
        for feature in &features.0 {
            table.entry(*feature).or_default().add(fits, verdict);
        }
        self.total.add(fits, verdict);
        match verdict {
            Verdict::Agree => {}
            Verdict::Known(name) => *self.known.entry(name).or_default() += 1,
            Verdict::Disagree(what) => {
                let (count, seeds) = self.kinds.entry(kind(what)).or_default();
                *count += 1;
                if seeds.len() < 5 {
                    seeds.insert(seed);
                }
            }
        }
    }

    pub(crate) fn disagreements(&self) -> usize {
        self.total.disagree
    }
}

impl Row {
    fn add(&mut self, fits: bool, verdict: &Verdict) {
        self.cases += 1;
        self.fits += usize::from(fits);
        match verdict {
            Verdict::Agree => self.agree += 1,
            Verdict::Known(_) => self.known += 1,
            Verdict::Disagree(_) => self.disagree += 1,
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cases,
            fits,
            agree,
            known,
            disagree,
        } = self;
        write!(f, "{cases:7} {fits:7} {agree:7} {known:7} {disagree:8}")
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:26}   cases    fits   agree   known disagree", "")?;
        for (title, table) in [("alone", &self.alone), ("mixed", &self.mixed)] {
            for (feature, row) in table {
                writeln!(f, "{title} {:20} {row}", format!("{feature:?}"))?;
            }
        }
        writeln!(f, "{:26} {}", "total", self.total)?;
        for (name, count) in &self.known {
            writeln!(f, "known: {name}: {count}")?;
        }
        for (kind, (count, seeds)) in &self.kinds {
            writeln!(f, "DISAGREE {count} x {kind} (seeds {seeds:?})")?;
        }
        Ok(())
    }
}
