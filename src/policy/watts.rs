//! Watts as people write them: `600`, `"600W"`, `"0.6kW"`. Exact, never through floating point.

use std::ops::RangeInclusive;

use serde_json::Value;

use crate::model::Quantity;

/// Whole watts in the range; the error says what is accepted.
pub(super) fn read(value: &Value, range: RangeInclusive<u64>) -> Result<u64, String> {
    let watts = match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => read_text(text),
        _ => None,
    };
    match watts {
        Some(w) if range.contains(&w) => Ok(w),
        Some(_) => Err(format!("must be between {} W and {} W", range.start(), range.end())),
        None => Err("write whole watts: 600, \"600W\" or \"0.6kW\"".into()),
    }
}

fn read_text(text: &str) -> Option<u64> {
    let text = text.trim();
    let (number, unit) = match text.strip_suffix('W') {
        Some(rest) => match rest.strip_suffix('k') {
            Some(rest) => (rest, 1_000_i128),
            None => (rest, 1),
        },
        None => (text, 1),
    };
    let number = number.trim_end();
    // Digits and a point only: the suffixes of quantities (`1Gi`, `1e3`) are not spellings of watts.
    if !number.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return None;
    }
    let nanos = number.parse::<Quantity>().ok()?.nanos() * unit;
    (nanos % 1_000_000_000 == 0)
        .then(|| u64::try_from(nanos / 1_000_000_000).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::read;
    use serde_json::json;

    #[test]
    fn spellings() {
        for (given, want) in [
            (json!(600), Some(600)),
            (json!("600"), Some(600)),
            (json!("600W"), Some(600)),
            (json!("600 W"), Some(600)),
            (json!("0.6kW"), Some(600)),
            (json!("1.2 kW"), Some(1200)),
            (json!("72.5W"), None),
            (json!("0.0005kW"), None),
            (json!(0), None),
            (json!(-5), None),
            (json!(600.5), None),
            (json!("600w"), None),
            (json!("1Gi"), None),
            (json!("W"), None),
            (json!("1e3W"), None),
            (json!("99999999999999999999999kW"), None),
            (json!(true), None),
            (json!(10_001), None),
        ] {
            assert_eq!(read(&given, 1..=10_000).ok(), want, "{given}");
        }
    }
}
