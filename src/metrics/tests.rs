//! The registry against its documentation, and what is rendered.

use std::sync::Arc;
use std::time::Duration;

use super::*;

/// Names and labels as ARCHITECTURE.md has them: `| `name` | `label`, `label` | …`.
#[test]
fn the_table_in_the_documentation_is_what_is_rendered() {
    const PREFIX: &str = "| `wattlane_";
    let metrics = Metrics::new().expect("registers");
    metrics.preset_skips(["some"]);
    metrics.preset_swept(["some"]);
    metrics.power(std::iter::once(("rack=r1".to_owned(), 2, 1, true)));
    metrics.sharing(std::iter::once(("node".to_owned(), "pool".to_owned(), 1)));
    metrics.partitions([("n".into(), "3g.40gb".into(), 2)].into());
    metrics.shared_memory(std::iter::once(("n".into(), "d/n".into(), 1)));
    let mut real: Vec<String> = metrics
        .registry
        .gather()
        .iter()
        .map(|family| {
            let one = family.get_metric().first().expect("every series exists from the start");
            let labels: Vec<_> = one.get_label().iter().map(|l| format!("`{}`", l.name())).collect();
            format!("| `{}` | {} |", family.name(), labels.join(", "))
        })
        .collect();
    let text = include_str!("../../ARCHITECTURE.md");
    let rows = text.lines().filter(|l| l.starts_with(PREFIX));
    let cells = rows.map(|l| l.split('|').take(3).collect::<Vec<_>>().join("|") + "|");
    let mut written: Vec<String> = cells.collect();
    real.sort();
    written.sort();
    assert_eq!(written, real);
}

#[test]
fn what_is_counted_is_rendered() {
    let metrics = Arc::new(Metrics::new().expect("registers"));
    metrics.request(Verb::Mutate, Outcome::Shed, Duration::from_micros(70));
    metrics.nodes_fit(3);
    metrics.nodes_refused(Reason::NotEnoughFree, 4997);
    metrics.searches_cut(Verb::Filter, 2);
    metrics.on_render(|m| m.snapshot_version.set(42));
    let page = metrics.render();
    for line in [
        r#"wattlane_requests_total{outcome="shed",verb="mutate"} 1"#,
        r#"wattlane_requests_total{outcome="ok",verb="filter"} 0"#,
        r#"wattlane_request_duration_seconds_bucket{verb="mutate",le="0.00005"} 0"#,
        r#"wattlane_request_duration_seconds_bucket{verb="mutate",le="0.0001"} 1"#,
        r#"wattlane_node_verdicts_total{reason="fits"} 3"#,
        r#"wattlane_node_verdicts_total{reason="not_enough_free"} 4997"#,
        r#"wattlane_searches_cut_total{verb="filter"} 2"#,
        r#"wattlane_searches_cut_total{verb="bind"} 0"#,
        "wattlane_snapshot_version 42",
    ] {
        assert!(page.lines().any(|l| l == line), "missing {line} in\n{page}");
    }
}

#[test]
fn power_domains_come_and_go_and_are_bounded() {
    let metrics = Metrics::new().expect("registers");
    metrics.power((0..300).map(|i| (format!("rack=r{i:03}"), 1000, 1200, true)));
    let page = metrics.render();
    assert!(page.contains("wattlane_power_domains 300\n"));
    assert!(page.contains("wattlane_power_headroom_watts{domain=\"rack=r255\"} -200\n"));
    assert!(!page.contains("r256"));
    metrics.power(std::iter::once(("rack=a".to_owned(), 1000, 300, false)));
    let page = metrics.render();
    assert!(
        page.contains("wattlane_power_headroom_watts{domain=\"rack=a\"} 0\n"),
        "{page}"
    );
    assert!(page.contains("wattlane_power_used_watts{domain=\"rack=a\"} 300\n") && !page.contains("r255"));
}

/// `latency` is indexed by the verb's position.
#[test]
fn verbs_are_listed_in_order() {
    for (at, verb) in Verb::ALL.into_iter().enumerate() {
        assert_eq!(verb as usize, at);
    }
}

#[test]
fn partitions_come_and_go_and_are_bounded() {
    let metrics = Metrics::new().expect("registers");
    let of = |n: usize| {
        (0..n)
            .map(|i| (format!("node-{i:04}").into(), "3g.40gb".into(), 2))
            .collect()
    };
    metrics.partitions(of(5000));
    let page = metrics.render();
    assert_eq!(page.matches("wattlane_partitions_fit{").count(), MOST_PARTITIONS);
    metrics.partitions(of(1));
    let page = metrics.render();
    let line = r#"wattlane_partitions_fit{node="node-0000",profile="3g.40gb"} 2"#;
    assert!(
        page.lines().any(|l| l == line) && page.matches("wattlane_partitions_fit{").count() == 1,
        "{page}"
    );
}
