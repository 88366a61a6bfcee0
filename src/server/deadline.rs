//! How long an admission review may take: kube-apiserver says when it will have gone, as a Go duration in the query.

use std::time::Duration;

/// The default of a webhook's `timeoutSeconds`, and its largest value.
const DEFAULT: Duration = Duration::from_secs(10);
const MOST: Duration = Duration::from_secs(30);

/// Nine tenths of `timeout=…`: the answer has to get there as well. What cannot be read counts as not said.
pub(super) fn of_admission(query: Option<&str>) -> Duration {
    let pairs = query.unwrap_or_default().split('&').filter_map(|p| p.split_once('='));
    let said = pairs
        .filter(|(key, _)| *key == "timeout")
        .find_map(|(_, value)| go_duration(value));
    said.filter(|d| !d.is_zero()).unwrap_or(DEFAULT).min(MOST) * 9 / 10
}

/// `1m30s`, `1.5s`, `250ms`, as time.Duration.String writes them. None: not such a text, or too long to count.
fn go_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let (number, behind) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.')?);
        let end = behind.find(|c: char| c.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, next) = behind.split_at(end);
        let seconds = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "\u{b5}s" | "%C2%B5s" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        let part = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
        sum = sum.checked_add(part)?;
        rest = next;
    }
    (!text.is_empty()).then_some(sum)
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
