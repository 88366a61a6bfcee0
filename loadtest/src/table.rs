//! A report's rows as text. Owns how a value is found in a row and written; what a scenario shows is said there.

use serde_json::Value;

/// Fields that name a row, as (head, path), and then values, as (head, path, digits).
pub(crate) fn table<'v>(
    rows: impl IntoIterator<Item = &'v Value>,
    names: &[(&str, &str)],
    values: &[(&str, &str, usize)],
) -> String {
    let heads = names.iter().map(|n| n.0).chain(values.iter().map(|v| v.0));
    let mut lines = vec![heads.map(String::from).collect::<Vec<_>>()];
    for row in rows {
        let names = names.iter().map(|(_, path)| text(at(row, path)));
        let values = values.iter().map(|(_, path, digits)| show(at(row, path), *digits));
        lines.push(names.chain(values).collect());
    }
    columns(&lines, names.len())
}

/// Columns as wide as their longest text, the first ones to the left, the rest to the right.
pub(crate) fn columns(rows: &[Vec<String>], left: usize) -> String {
    let most = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| rows.iter().filter_map(|r| r.get(c)).map(|t| t.chars().count()).max();
    let widths: Vec<usize> = (0..most).map(|c| width(c).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in rows {
        let cells = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(c, (text, width))| match c < left {
                true => format!("{text:<width$}"),
                false => format!("{text:>width$}"),
            });
        out += cells.collect::<Vec<_>>().join("  ").trim_end();
        out.push('\n');
    }
    out
}

/// `a/b/3`: field a, in it b, of that the fourth. Null: it is not there.
pub(crate) fn at<'v>(value: &'v Value, path: &str) -> &'v Value {
    path.split('/').fold(value, |value, key| match key.parse::<usize>() {
        Ok(i) => &value[i],
        Err(_) => &value[key],
    })
}

/// A number, or a spread as `median (least-most)` with the range only where there is one, with so many digits.
pub(crate) fn show(value: &Value, digits: usize) -> String {
    let number = |value: &Value| value.as_f64().map(|n| format!("{n:.digits$}"));
    match ["median", "least", "most"].map(|key| number(&value[key])) {
        [Some(median), Some(least), Some(most)] if least == most => median,
        [Some(median), Some(least), Some(most)] => format!("{median} ({least}-{most})"),
        _ => number(value).unwrap_or_else(|| "-".into()),
    }
}

/// A cell of text without quotes.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(crate) fn rows(report: &Value) -> &[Value] {
    section(report, "rows")
}

pub(crate) fn section<'v>(report: &'v Value, key: &str) -> &'v [Value] {
    report[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::stats::spread;

    #[test]
    fn values_are_shown_with_their_range() {
        assert_eq!(show(&spread(&[3.0, f64::NAN, 1.0, 2.0]), 1), "2.0 (1.0-3.0)");
        assert_eq!(show(&spread(&[2.0, 2.0]), 0), "2");
        assert_eq!(show(&spread(&[f64::NAN]), 1), "-");
        assert_eq!(show(&json!(0.25), 2), "0.25");
    }

    #[test]
    fn rows_become_lines() {
        let rows = [
            json!({"who": "a", "n": {"at": [1, 2.5]}}),
            json!({"who": "longer", "n": {}}),
        ];
        let out = table(&rows, &[("name", "who")], &[("value", "n/at/1", 1), ("no", "x", 0)]);
        assert_eq!(out, "name    value  no\na         2.5   -\nlonger      -   -\n");
    }
}
