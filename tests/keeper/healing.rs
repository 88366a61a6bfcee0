//! Two replicas that begin at once; a Secret or a caBundle that somebody garbles; and what is never shown.

use serde_json::json;
use wattlane::certs::keyring::Keyring;
use wattlane::certs::{DAY, Facts, trust};
use wattlane::keeper::{Keeper, data};

use crate::store::Store;
use crate::world::{AUTHORITY, LEAF, World, names};

fn cert(keeper: &Keeper) -> String {
    keeper.in_use().expect("serves").cert.clone()
}

#[tokio::test]
async fn two_that_begin_at_once_end_with_one() {
    let mut world = World::new();
    let [a, b] = &mut world.replicas;
    let (one, other) = futures::future::join(a.look(), b.look()).await;
    assert_eq!((one, other), (vec![], vec![]));
    world.settle().await;
    assert_eq!(cert(&world.replicas[0]), cert(&world.replicas[1]));
    assert_eq!(world.store.bundle(0).len(), 1);
    assert_eq!(world.apiserver_is_well(), Ok(()));
    assert_eq!(
        (world.count("begin", "done"), world.count("begin", "healed")),
        (1.0, 0.0)
    );
    assert!(world.count("begin", "conflict") >= 1.0, "they did not meet");
    let writes = world.store.state().writes;
    world.settle().await;
    assert_eq!(
        world.store.state().writes,
        writes,
        "nothing to do, and something written"
    );
}

/// Each is a key of the Secret, and who may not notice: whoever trusts the bundle of before.
#[tokio::test]
async fn what_is_garbled_is_healed_and_no_client_is_lost() {
    let keys = [
        "tls.crt",
        "tls.key",
        "ca.crt",
        "signing-ca.crt",
        "signing-ca.key",
        "next-ca.crt",
        "admission-path",
    ];
    for key in keys {
        for value in [None, Some(&b"nonsense\xff"[..])] {
            let mut world = World::new();
            world.settle().await;
            let (before, client) = (world.store.bundle(0), world.store.text("client", "tls.crt"));
            world.store.meddle("certs", key, value);
            for at in 0..2 {
                assert_eq!(world.replicas[at].look().await, [""; 0], "{key}");
                assert_eq!(world.apiserver_is_well(), Ok(()), "{key} {value:?}");
                assert_eq!(world.may_call(&client), Ok(()), "{key} {value:?}");
                let served = cert(&world.replicas[at]);
                let known = trust::serves(&before, served.as_bytes(), &names(), world.now());
                assert!(known.is_ok(), "{key} {value:?}: {known:?}");
            }
            world.settle().await;
            let healed = ["sign", "announce", "path", "tidy"]
                .map(|a| world.count(a, "healed"))
                .iter()
                .sum::<f64>();
            // The second is how to ask for a new one.
            let nothing = ["next-ca.crt", "admission-path"].contains(&key) && value.is_none();
            assert_eq!(healed > 0.0, !nothing, "{key} {value:?}");
            // And it stays so, until the CA whose key was lost is long forgotten.
            for _ in 0..12 {
                world.pass(LEAF / 6);
                world.look().await;
                assert_eq!(world.apiserver_is_well(), Ok(()), "{key} {value:?}");
            }
        }
    }
}

/// The way to distrust a CA at once.
#[tokio::test]
async fn an_emptied_secret_is_a_new_ca_and_a_missing_one_is_said() {
    let mut world = World::new();
    world.settle().await;
    let (before, served) = (world.store.bundle(0), cert(&world.replicas[0]));
    let gone = world.store.state().secrets.remove("certs");
    let faults = world.replicas[0].look().await;
    assert!(faults.iter().any(|f| f.contains("apply the manifests")), "{faults:?}");
    assert_eq!(cert(&world.replicas[0]), served, "what is in use stays in use");
    assert_eq!(world.apiserver_is_well(), Ok(()));

    let mut empty = gone.expect("it was there");
    empty["data"] = json!({});
    empty["metadata"]["resourceVersion"] = world.store.state().stamp();
    world.store.state().secrets.insert("certs".into(), empty);
    world.settle().await;
    assert_eq!(world.count("begin", "healed"), 1.0);
    assert_eq!(world.apiserver_is_well(), Ok(()));
    assert!(
        before.iter().all(|old| !world.store.bundle(0).contains(old)),
        "still trusted"
    );
    let client = world.store.text("client", "tls.crt");
    assert_eq!(world.may_call(&client), Ok(()));
}

#[tokio::test]
async fn a_ca_bundle_that_was_reset_and_a_client_secret_that_was_garbled_are_put_right() {
    let mut world = World::new();
    world.settle().await;
    let (bundle, served) = (world.store.bundle(1), cert(&world.replicas[0]));
    world.store.reset_bundle(1);
    assert!(world.apiserver_is_well().is_err());
    world.store.meddle("client", "tls.key", Some(b"x"));
    world.settle().await;
    assert_eq!((world.store.bundle(1), cert(&world.replicas[0])), (bundle, served));
    assert_eq!(
        (world.count("bundle", "healed"), world.count("client", "healed")),
        (1.0, 1.0)
    );
    assert_eq!(world.may_call(&world.store.text("client", "tls.crt")), Ok(()));
}

#[tokio::test]
async fn a_ca_that_nobody_could_be_told_of_does_not_sign() {
    let mut world = World::new();
    world.settle().await;
    let (first, start) = (world.store.bundle(0), world.now());
    // Somebody else keeps the caBundle from now on, and does not follow.
    let annotations = json!({"cert-manager.io/inject-ca-from": "a/b"});
    world.store.state().webhooks.as_mut().expect("registered")["metadata"]["annotations"] = annotations;
    while world.now() < start + AUTHORITY - 10 * DAY {
        world.pass(10 * DAY);
        for replica in &mut world.replicas {
            let faults = replica.look().await;
            let said = world.store.bundle(0).len() == 1 && faults.iter().all(|f| f.contains("cert-manager"));
            assert!(said, "{faults:?}");
        }
        assert_eq!(world.apiserver_is_well(), Ok(()));
    }
    assert_eq!(
        (world.count("announce", "done"), world.count("switch", "done")),
        (1.0, 0.0)
    );
    assert_eq!(world.store.bundle(0), first);
}

#[tokio::test]
async fn a_clock_that_is_behind_changes_nothing() {
    let mut world = World::new();
    world.settle().await;
    let writes = world.store.state().writes;
    world.pass(-365 * DAY);
    let faults = world.replicas[0].look().await;
    assert!(faults.iter().any(|f| f.contains("clock")), "{faults:?}");
    assert_eq!(world.store.state().writes, writes);
}

#[tokio::test]
async fn no_key_is_ever_shown() {
    let mut world = World::new();
    world.settle().await;
    let secret = world.store.state().secrets["certs"].clone();
    let ring = Keyring::read(&data(&secret), world.now()).0;
    let shown = format!("{ring:?} {:?}", world.replicas[0].in_use());
    assert!(shown.contains("Keyring") && !shown.contains("PRIVATE"));
    for key in ["tls.key", "signing-ca.key"] {
        let line = world.store.text("certs", key).lines().nth(1).expect("PEM").to_owned();
        assert!(!shown.contains(&line));
    }
    let facts = Facts::of_pem(ring.serving().expect("serves").cert.as_bytes()).expect("reads");
    assert!(facts.names.contains(&names()[0]));
    // A garbled secret is named in the fault, not shown.
    let store = Store::default();
    store.meddle("certs", "tls.key", Some(b"hunter2"));
    let found = store.state().secrets["certs"].clone();
    let faults = Keyring::read(&data(&found), world.now()).1;
    assert_eq!(faults, ["tls.crt"]);
}
