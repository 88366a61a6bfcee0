//! Durations as Go writes them: in CEL, and in the query of an admission review.

/// In nanoseconds, as `time.ParseDuration` reads it.
pub fn go_duration(text: &str) -> Option<i64> {
    const LIMIT: u64 = 1 << 63;
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let digits = |s: &str| s.bytes().take_while(u8::is_ascii_digit).count();
    let mut total: u64 = 0;
    // Every round takes at least a digit and a letter.
    while !rest.is_empty() {
        let (whole, behind) = rest.split_at(digits(rest));
        let (fraction, behind) = match behind.strip_prefix('.') {
            Some(behind) => behind.split_at(digits(behind)),
            None => ("", behind),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let end = behind
            .find(|c: char| c == '.' || c.is_ascii_digit())
            .unwrap_or(behind.len());
        let (name, next) = behind.split_at(end);
        let unit: u64 = match name {
            "ns" => 1,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let mut nanos = whole.checked_mul(unit).filter(|n| *n <= LIMIT)?;
        // What does not fit is cut off, as in Go.
        let kept = &fraction[..fraction.len().min(18)];
        if !kept.is_empty() {
            let (part, scale) = (kept.parse::<u64>().ok()?, 10_f64.powi(i32::try_from(kept.len()).ok()?));
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_precision_loss,
                reason = "Go computes it so"
            )]
            let more = (part as f64 * (unit as f64 / scale)) as u64;
            nanos = nanos.checked_add(more)?;
        }
        total = total.checked_add(nanos).filter(|n| *n <= LIMIT)?;
        rest = next;
    }
    match (negative, i64::try_from(total)) {
        (false, total) => total.ok(),
        (true, Ok(total)) => Some(-total),
        (true, Err(_)) => Some(i64::MIN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, nanos) in [
            ("0", Some(0)),
            ("-1.5h", Some(-5_400_000_000_000)),
            ("+.5s", Some(500_000_000)),
            ("1.s", Some(1_000_000_000)),
            ("1h2m3s4ms5us6ns", Some(3_723_004_005_006)),
            ("3\u{b5}s", Some(3_000)),
            ("2540400h", Some(9_145_440_000_000_000_000)),
            ("2562048h", None),
            ("-9223372036854775808ns", Some(i64::MIN)),
            ("9223372036854775808ns", None),
            ("", None),
            ("-", None),
            ("1", None),
            (".s", None),
            ("1d", None),
            ("1hour", None),
            ("1h ", None),
            ("1e3s", None),
        ] {
            assert_eq!(go_duration(text), nanos, "{text}");
        }
    }
}
