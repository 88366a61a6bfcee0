//! The report as a table: a line a run, medians and ratios below.

use serde_json::Value;
use wattlane::cluster::Call;

use crate::load::text;

pub(crate) fn table(report: &Value) -> String {
    let rows = crate::load::rows(report);
    let mut out = format!(
        "{} nodes of 8 cards, {} pods of 2, extender over TLS {}\n{:<16}{:>9}{:>9}{:>10}{:>10}{:>8}  {:<34}processor ms a pod\n",
        report["nodes"],
        report["pods"],
        text(&report["tls"]),
        "run",
        "pods/s",
        "created",
        "p50 ms",
        "p99 ms",
        "cycle",
        "binds",
    );
    let pods = report["pods"].as_f64().unwrap_or(1.0);
    for row in rows {
        let inside = &row["inside"];
        let binds = counts(&inside["wattlane"]["binds"]);
        let mut spent: Vec<(String, f64)> = inside["processorSeconds"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, s)| (name.clone(), s.as_f64().unwrap_or(0.0) * 1e3 / pods))
            .filter(|(_, ms)| *ms > 0.05)
            .collect();
        spent.sort_by(|a, b| b.1.total_cmp(&a.1));
        let spent: Vec<String> = spent.iter().map(|(name, ms)| format!("{name} {ms:.1}")).collect();
        out += &format!(
            "{:<16}{:>9.1}{:>9.2}{:>10.0}{:>10.0}{:>8.2}  {:<34}{}\n",
            text(&row["run"]),
            number(&row["podsPerSecond"]),
            number(&row["createdSeconds"]),
            number(&row["p50Ms"]),
            number(&row["p99Ms"]),
            number(&inside["scheduler"]["cycleMs"]),
            binds,
            spent.join(", "),
        );
    }
    let sides: std::collections::BTreeSet<String> = rows.iter().map(|r| text(&r["side"])).collect();
    out += &format!(
        "\n{:<16}{:>9}{:>16}{:>10}{:>10}\n",
        "side", "pods/s", "range", "p50 ms", "p99 ms"
    );
    for side in &sides {
        let of = |key: &str| sorted(rows, side, key);
        let (rate, p50, p99) = (of("podsPerSecond"), of("p50Ms"), of("p99Ms"));
        let range = format!("{:.1}-{:.1}", rate.first().unwrap_or(&0.0), rate.last().unwrap_or(&0.0));
        out += &format!(
            "{side:<16}{:>9.1}{range:>16}{:>10.0}{:>10.0}\n",
            middle(&rate),
            middle(&p50),
            middle(&p99)
        );
    }
    for rival in sides.iter().filter(|s| s.as_str() != "wattlane") {
        let (ours, theirs) = (in_turns(rows, "wattlane"), in_turns(rows, rival));
        let mut ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(a, b)| a / b).collect();
        ratios.sort_by(f64::total_cmp);
        if let (Some(low), Some(high)) = (ratios.first(), ratios.last()) {
            out += &format!(
                "wattlane / {rival} in one turn: {:.2} ({low:.2}-{high:.2})\n",
                middle(&ratios)
            );
        }
    }
    out + &where_the_time_goes(rows)
}

/// wattlane's own means over all runs.
fn where_the_time_goes(rows: &[Value]) -> String {
    let ours: Vec<&Value> = rows
        .iter()
        .map(|r| &r["inside"]["wattlane"])
        .filter(|w| w.is_object())
        .collect();
    let mut out = String::new();
    for (group, names) in [
        ("verbs", &["filter", "prioritize", "bind"][..]),
        ("calls", &Call::ALL.map(Call::as_str)),
    ] {
        for name in names {
            let of = |key: &str| ours.iter().map(|w| number(&w[group][name][key])).collect::<Vec<_>>();
            let (counts, means) = (of("count"), of("meanMs"));
            let count: f64 = counts.iter().sum();
            if count > 0.0 {
                let mean = counts.iter().zip(&means).map(|(n, ms)| n * ms).sum::<f64>() / count;
                let worst = of("p99MsAtMost").into_iter().fold(0.0, f64::max);
                out += &format!(
                    "{:<20}{:>8.0} times, mean {mean:.2} ms, p99 at most {worst:.1} ms\n",
                    format!("{group}: {name}"),
                    count
                );
            }
        }
    }
    out
}

/// The rates of a side in the order of the turns.
fn in_turns(rows: &[Value], side: &str) -> Vec<f64> {
    let of = rows.iter().filter(|r| r["side"] == side);
    of.map(|r| number(&r["podsPerSecond"])).collect()
}

fn sorted(rows: &[Value], side: &str, key: &str) -> Vec<f64> {
    let mut values: Vec<f64> = rows
        .iter()
        .filter(|r| r["side"] == side)
        .map(|r| number(&r[key]))
        .collect();
    values.sort_by(f64::total_cmp);
    values
}

fn middle(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

fn counts(value: &Value) -> String {
    let of = value.as_object().into_iter().flatten();
    let all: Vec<String> = of.map(|(name, n)| format!("{name} {:.0}", number(n))).collect();
    all.join(", ")
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}
