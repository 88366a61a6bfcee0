//! The policy of a service that runs: broken in place, repaired, and broken when the process starts again.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use wattlane::app::{Core, PolicySource};
use wattlane::cluster::embedded::Embedded;

use super::HEAD;

const CLUSTER: &str = "{apiVersion: v1, kind: Node, metadata: {name: n}}";
/// The file is looked at every ten seconds.
const A_LOOK: Duration = Duration::from_secs(11);

async fn start(path: &Path, kept: Option<&Path>) -> anyhow::Result<Core> {
    let cluster = Arc::new(Embedded::from_yaml("test", CLUSTER)?);
    let source = PolicySource::read(path)?.keeping(kept.map(Path::to_owned));
    let core = Core::start(cluster, source).await?;
    core.spawn_reload();
    Ok(core)
}

fn metric(core: &Core, name: &str) -> i64 {
    let page = core.metrics.render();
    let line = page.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
    let value: f64 = line.unwrap_or_else(|| panic!("no {name}")).parse().expect("a number");
    value as i64
}

fn scheduler(core: &Core) -> String {
    core.policy.load().defaults.scheduler_name.to_string()
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_breaks_is_seen_in_a_metric_and_the_last_good_one_stays() {
    const FAILED: &str = "wattlane_policy_load_failed";
    let folder = tempfile::tempdir().expect("a folder");
    let (path, kept) = (folder.path().join("policy.yaml"), folder.path().join("kept.yaml"));
    let write = |text: &str| std::fs::write(&path, format!("{HEAD}{text}")).expect("writes");
    write("defaults: {schedulerName: first}");
    let core = start(&path, Some(&kept)).await.expect("starts");
    let first = metric(&core, "wattlane_policy_hash");
    assert_eq!((metric(&core, FAILED), scheduler(&core).as_str()), (0, "first"));
    assert!(first > 0 && metric(&core, "wattlane_policy_load_timestamp_seconds") > 1_700_000_000);

    write("defaults: {schedulerName: [second]}");
    tokio::time::sleep(A_LOOK).await;
    assert_eq!((metric(&core, FAILED), scheduler(&core).as_str()), (1, "first"));
    assert_eq!(metric(&core, "wattlane_policy_hash"), first);
    assert_eq!(metric(&core, "wattlane_policy_loads_total{outcome=\"refused\"}"), 1);

    // A process that starts now: with what was kept, as the one that runs; without it, not at all, and says why.
    let again = start(&path, Some(&kept)).await.expect("starts with what was kept");
    assert_eq!((metric(&again, FAILED), scheduler(&again).as_str()), (1, "first"));
    assert_eq!(metric(&again, "wattlane_policy_hash"), first);
    let none = folder.path().join("none.yaml");
    for kept in [None, Some(none.as_path()), Some(path.as_path())] {
        let error = start(&path, kept)
            .await
            .err()
            .map(|e| format!("{e:#}"))
            .unwrap_or_default();
        assert!(
            error.contains("defaults.schedulerName: must be a text, not a list"),
            "{error}"
        );
    }

    write("defaults: {schedulerName: third}");
    tokio::time::sleep(A_LOOK).await;
    for core in [&core, &again] {
        assert_eq!((metric(core, FAILED), scheduler(core).as_str()), (0, "third"));
        assert_ne!(metric(core, "wattlane_policy_hash"), first);
    }
    std::fs::remove_file(&path).expect("goes");
    tokio::time::sleep(A_LOOK).await;
    assert_eq!((metric(&core, FAILED), scheduler(&core).as_str()), (1, "third"));
    assert_eq!(metric(&core, "wattlane_policy_loads_total{outcome=\"unreadable\"}"), 1);
    // What was kept is the last good one, and there is nothing beside it.
    assert!(std::fs::read_to_string(&kept).expect("kept").contains("third"));
    let files = std::fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(files, 1);
}
