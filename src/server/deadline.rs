//! How long an admission review may take: kube-apiserver says when it will have gone, as a Go duration in the query.

use std::time::Duration;

use crate::model::go_duration;

/// The default of a webhook's `timeoutSeconds`, and its largest value.
const DEFAULT: Duration = Duration::from_secs(10);
const MOST: Duration = Duration::from_secs(30);

/// Nine tenths of `timeout=…`: the answer has to get there as well. What cannot be read counts as not said.
pub(super) fn of_admission(query: Option<&str>) -> Duration {
    let pairs = query.unwrap_or_default().split('&').filter_map(|p| p.split_once('='));
    let said = pairs
        .filter(|(key, _)| *key == "timeout")
        .find_map(|(_, value)| u64::try_from(go_duration(value)?).ok())
        .map(Duration::from_nanos);
    said.filter(|d| !d.is_zero()).unwrap_or(DEFAULT).min(MOST) * 9 / 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations_and_what_is_none() {
        for (query, want) in [
            (Some("timeout=5s"), 4_500),
            (Some("a=b&timeout=2s&c"), 1_800),
            (Some("timeout=1m30s"), 27_000),
            (Some("timeout=1.5s"), 1_350),
            (Some("timeout=250ms"), 225),
            (Some("timeout=1h"), 27_000),
            (None, 9_000),
            (Some("timeout="), 9_000),
            (Some("timeout=0s"), 9_000),
            (Some("timeout=5"), 9_000),
            (Some("timeout=-5s"), 9_000),
            (Some("timeout=5d"), 9_000),
            (Some("timeout=..s"), 9_000),
            (Some("timeout=99999999999999999999999h"), 9_000),
            (Some("xtimeout=1s"), 9_000),
        ] {
            assert_eq!(of_admission(query), Duration::from_millis(want), "{query:?}");
        }
    }
}
