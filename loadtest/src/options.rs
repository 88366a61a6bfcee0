//! What the options of several scenarios have in common: numbers within bounds, and files that can be written.

use std::fs::OpenOptions;
use std::path::Path;

use anyhow::Context as _;
use clap::builder::RangedU64ValueParser;

/// A number within bounds. Where less would measure nothing, or more would never end, clap says so.
pub(crate) fn within(least: u64, most: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(least..=most)
}

/// Nodes of a cluster of `fixture`: the odd one, where "one fits", is number 7.
pub(crate) fn nodes() -> RangedU64ValueParser<usize> {
    within(8, 100_000)
}

/// Requests, pods and the like.
pub(crate) fn count() -> RangedU64ValueParser<usize> {
    within(1, 1_000_000)
}

/// Runs, rounds, turns.
pub(crate) fn runs() -> RangedU64ValueParser<usize> {
    within(1, 1000)
}

/// Below the server's own limit of connections (1,024).
pub(crate) fn connections() -> RangedU64ValueParser<usize> {
    within(1, 512)
}

/// Seeds, of which there is one run each.
pub(crate) fn seeds() -> RangedU64ValueParser<u64> {
    RangedU64ValueParser::new().range(1..=10_000)
}

/// Before anything is measured: the file can be written when it has been. Makes it, empty, where it is not there.
pub(crate) fn writable(path: &Path) -> anyhow::Result<()> {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened
        .map(drop)
        .with_context(|| format!("{} cannot be written", path.display()))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::Cli;

    #[test]
    fn what_would_measure_nothing_is_refused_at_the_flag() {
        for line in [
            "verbs --requests 0",
            "verbs --runs 0",
            "verbs --nodes 500,7",
            "verbs --connections 0",
            "admission --connections 0",
            "churn --nodes 0",
            "churn --rate 0",
            "memory --nodes 0",
            "memory --runs 0",
            "bodies --abuse-per-second 0",
            "bodies --slow 0",
            "loop --nodes 0",
            "loop --pods 0",
            "loop --runs 0",
            "loop --creators 0",
            "allocate --rounds 0",
            "topology --seeds 0",
            "class --nodes 0",
            "mig --asks 0",
            "power --seeds 0",
            "openb --seeds 0",
        ] {
            let parsed = Cli::try_parse_from(["wattlane-loadtest"].into_iter().chain(line.split(' ')));
            let error = parsed.expect_err(line).to_string();
            assert!(error.contains(" is not in "), "{line}: {error}");
        }
    }

    #[test]
    fn what_has_no_options_is_taken() {
        for scenario in [
            "verbs",
            "admission",
            "churn",
            "bodies",
            "memory",
            "loop",
            "allocate",
            "topology",
            "class",
            "mig",
            "openb",
            "power",
        ] {
            Cli::try_parse_from(["wattlane-loadtest", scenario, "--plot", "p", "--raw", "r"]).expect(scenario);
        }
    }

    #[test]
    fn a_place_that_cannot_be_written_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        writable(&folder.path().join("new")).expect("can be written");
        let error = writable(&folder.path().join("no/such")).expect_err("no folder");
        assert!(error.to_string().contains("no/such cannot be written"), "{error}");
    }
}
