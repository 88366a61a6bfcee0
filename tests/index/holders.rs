//! Pods of a device plugin on nodes whose driver publishes the same cards: nobody knows which they hold.

use serde_json::json;
use wattlane::index::{Change, Index, Key, Kind, Reservation, ReservedClaim};
use wattlane::snapshot::Snapshot;

use super::support::*;

/// Two nodes with a pool of two devices each, and a claim.
fn two_nodes() -> Index {
    let mut index = index();
    for (n, p) in [("n0", "p0"), ("n1", "p1")] {
        upsert(&mut index, &node(n, json!({})));
        upsert(
            &mut index,
            &slice(p, p, 1, 1, json!({"nodeName": n}), plain(&["d0", "d1"])),
        );
    }
    upsert(&mut index, &claim("c", "u", 1, json!([])));
    index
}

fn published(index: &mut Index) -> std::sync::Arc<Snapshot> {
    index.publish().expect("something changed")
}

fn reserve(index: &mut Index, pool: &str, on: &str) -> Result<(), String> {
    let claims = vec![ReservedClaim {
        claim: Key::new("ns", "c"),
        uid: "u".into(),
        results: vec![result(pool, "d0")],
    }];
    let reservation = Reservation {
        pod: Key::new("ns", "p"),
        pod_uid: "p".into(),
        node: on.into(),
        claims,
        slots: vec![],
    };
    let id = index.reserve(reservation).map_err(|e| e.to_string())?;
    index.release(id);
    Ok(())
}

#[test]
fn its_node_gives_nothing_until_it_is_gone_or_finished() {
    let mut index = two_nodes();
    let running = plugin_pod("old", "n0", "test/card");
    upsert(&mut index, &running);
    let s = published(&mut index);
    assert_eq!(
        health(&s, "n0"),
        [r#"Held("pod ns/old has test/card from the device plugin")"#]
    );
    assert!(health(&s, "n1").is_empty());
    let refused = reserve(&mut index, "p0", "n0").expect_err("a device that may be in use");
    assert!(refused.contains("ns/old"), "{refused}");
    assert_eq!(reserve(&mut index, "p1", "n1"), Ok(()));

    let mut deleting = running.clone();
    deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    upsert(&mut index, &deleting);
    assert_eq!(health(&published(&mut index), "n0").len(), 1, "it still runs");
    index.take_loosened();

    let mut finished = running.clone();
    finished["status"] = json!({"phase": "Succeeded"});
    upsert(&mut index, &finished);
    assert!(health(&published(&mut index), "n0").is_empty());
    assert!(index.take_loosened(), "pods that were refused can try again");
    assert_eq!(reserve(&mut index, "p0", "n0"), Ok(()));

    upsert(&mut index, &running);
    assert_eq!(health(&published(&mut index), "n0").len(), 1);
    index.apply(Change::Reset(Kind::Pod, vec![]));
    assert!(health(&published(&mut index), "n0").is_empty());
}

#[test]
fn pods_that_hold_no_card_of_the_driver_close_nothing() {
    let mut index = two_nodes();
    let mut known = plugin_pod("known", "n0", "test/card");
    known["status"] = json!({"extendedResourceClaimStatus": {"resourceClaimName": "c",
        "requestMappings": [{"containerName": "c", "resourceName": "test/card", "requestName": "r"}]}});
    for pod in [
        plugin_pod("waits", "", "test/card"),
        plugin_pod("nic", "n0", "test/nic"),
        known,
    ] {
        upsert(&mut index, &pod);
    }
    assert!(health(&published(&mut index), "n0").is_empty());
    // A claim of the pod's own is beside what the plugin gave it, not instead of it.
    let mut both = plugin_pod("both", "n1", "test/card");
    both["spec"]["resourceClaims"] = json!([{"name": "own", "resourceClaimName": "c"}]);
    // And a claim for another resource says nothing about this one.
    let mut other = plugin_pod("other", "n1", "test/card");
    other["status"] = json!({"extendedResourceClaimStatus": {"resourceClaimName": "c",
        "requestMappings": [{"containerName": "c", "resourceName": "test/nic", "requestName": "r"}]}});
    upsert(&mut index, &both);
    upsert(&mut index, &other);
    let words = health(&published(&mut index), "n1");
    assert_eq!(
        words,
        [r#"Held("pod ns/both (and 1 more) has test/card from the device plugin")"#]
    );
}

#[test]
fn whatever_comes_first() {
    let mut index = index();
    upsert(&mut index, &plugin_pod("old", "n0", "test/card"));
    upsert(&mut index, &plugin_pod("mapped", "n1", "other/card"));
    for n in ["n0", "n1"] {
        upsert(&mut index, &node(n, json!({})));
        upsert(&mut index, &slice(n, n, 1, 1, json!({"nodeName": n}), plain(&["d0"])));
    }
    let s = published(&mut index);
    assert_eq!((health(&s, "n0").len(), health(&s, "n1").len()), (1, 0));
    // A DeviceClass says that it is a card of the driver, too.
    let class = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "big"},
        "spec": {"extendedResourceName": "other/card", "selectors": [{"cel": {"expression": "device.driver == 'gpu.test'"}}]}});
    upsert(&mut index, &class);
    assert_eq!(health(&published(&mut index), "n1").len(), 1);
    index.apply(Change::Remove(Kind::Class, Key::new("", "big")));
    assert!(health(&published(&mut index), "n1").is_empty());
}

#[test]
fn a_pool_that_several_nodes_reach_is_closed_to_all_of_them() {
    let mut index = index();
    let selector = json!({"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions":
        [{"key": "class", "operator": "Exists"}]}]}});
    // One of its two slices is not there yet: it must not open when the other comes.
    upsert(&mut index, &slice("a", "net", 1, 2, selector.clone(), plain(&["d0"])));
    upsert(&mut index, &node("n0", json!({"class": "x"})));
    upsert(&mut index, &node("n1", json!({"class": "x"})));
    upsert(&mut index, &plugin_pod("old", "n0", "test/card"));
    published(&mut index);
    upsert(&mut index, &slice("b", "net", 1, 2, selector, plain(&["d1"])));
    let s = published(&mut index);
    assert_eq!((health(&s, "n0").len(), health(&s, "n1").len()), (1, 1));
    // The node of the pod does not reach it any more.
    upsert(&mut index, &node("n0", json!({})));
    assert!(health(&published(&mut index), "n1").is_empty());
    upsert(&mut index, &node("n0", json!({"class": "x"})));
    assert_eq!(health(&published(&mut index), "n1").len(), 1);
    index.apply(Change::Remove(Kind::Pod, Key::new("ns", "old")));
    assert!(health(&published(&mut index), "n1").is_empty());
}
