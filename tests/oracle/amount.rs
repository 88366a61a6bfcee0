//! Quantities as the checker reads them: whole numbers with the suffixes the generator uses, nothing else.

use serde_json::Value;

pub(crate) fn amount(of: &Value) -> i128 {
    let text = match of {
        Value::Number(n) => n.to_string(),
        other => other.as_str().unwrap_or_default().to_owned(),
    };
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "P" => 1_000_000_000_000_000,
        "E" => 1_000_000_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        other => panic!("quantity {text}: suffix {other} is not for this checker"),
    };
    let number: i128 = digits.parse().unwrap_or_else(|e| panic!("quantity {text:?}: {e}"));
    number * factor
}
