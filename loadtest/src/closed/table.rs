//! The report as a table: a line a run, medians and ratios below.

use serde_json::Value;
use wattlane::cluster::Call;

use crate::chart::Chart;
use crate::stats::spread;
use crate::table::{columns, show, text};

pub(crate) fn table(report: &Value) -> String {
    let rows = crate::table::rows(report);
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
    let mut medians = vec![["side", "pods/s", "p50 ms", "p99 ms"].map(String::from).to_vec()];
    for side in &sides {
        let of = |key: &str, digits| show(&spread(&in_turns(rows, side, key)), digits);
        medians.push(vec![
            side.clone(),
            of("podsPerSecond", 1),
            of("p50Ms", 0),
            of("p99Ms", 0),
        ]);
    }
    out += &format!("\nmedians of the runs (range)\n{}", columns(&medians, 1));
    for rival in sides.iter().filter(|s| s.as_str() != "wattlane") {
        let of = |side| in_turns(rows, side, "podsPerSecond");
        let ratios: Vec<f64> = of("wattlane").iter().zip(of(rival)).map(|(a, b)| a / b).collect();
        if !ratios.is_empty() {
            out += &format!("wattlane / {rival} in one turn: {}\n", show(&spread(&ratios), 2));
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

/// What the runs of a side have, in the order of the turns.
fn in_turns(rows: &[Value], side: &str, key: &str) -> Vec<f64> {
    let of = rows.iter().filter(|r| r["side"] == side);
    of.map(|r| number(&r[key])).collect()
}

fn counts(value: &Value) -> String {
    let of = value.as_object().into_iter().flatten();
    let all: Vec<String> = of.map(|(name, n)| format!("{name} {:.0}", number(n))).collect();
    all.join(", ")
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

pub(crate) const CHARTS: &[Chart] = &[
    Chart::spreads(
        "pods/s: median and range of the runs",
        &["side"],
        "",
        &[("", "podsPerSecond")],
    ),
    Chart::spreads(
        "ms from a pod's creation to its being bound",
        &["side"],
        "",
        &[("p50", "p50Ms"), ("p99", "p99Ms")],
    ),
    Chart::spreads(
        "ms of a scheduling cycle",
        &["side"],
        "",
        &[("", "inside/scheduler/cycleMs")],
    ),
];
