//! Every file of the shared slices, where they are at hand: a cluster by itself, with as many devices as it lists.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::super::Embedded;
use super::round::watched;
use crate::cluster::files;

/// Devices of all slices of the file, counted without our own reading of slices.
fn devices(path: &Path) -> usize {
    let mut n = 0;
    files::each_object(&[path.to_owned()], &mut |_, o: Value| {
        n += o["spec"]["devices"].as_array().map_or(0, Vec::len);
        Ok(())
    })
    .unwrap();
    n
}

#[tokio::test]
async fn every_shared_file_is_a_whole_cluster() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/resourceslices");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        return;
    };
    let mut paths: Vec<_> = entries.map(|e| e.unwrap().path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "yaml"));
    paths.sort();
    assert!(!paths.is_empty());
    for path in paths {
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        let cluster = Embedded::load(std::slice::from_ref(&path)).unwrap_or_else(|e| panic!("{e:#}"));
        let cluster = Arc::new(cluster);
        assert!(cluster.skipped().is_empty(), "{file}: {:?}", cluster.skipped());
        let running = watched(&cluster).await;
        let snapshot = running.reader.load();
        let mut found = 0;
        for state in snapshot.pools.iter().flatten() {
            found += state.pool.devices.len();
            let (health, name) = (format!("{:?}", state.pool.health), &state.pool.name);
            assert_eq!(health, "Complete", "{file}: pool {name}");
        }
        assert_eq!(found, devices(&path), "{file}");
        // Each is seen from a node that was assumed.
        let seen: usize = snapshot.nodes().map(|(_, n)| n.pools.len()).sum();
        assert!(seen >= snapshot.pools.iter().flatten().count(), "{file}");
    }
}
