//! What the sweeper takes and what it leaves, from an index that was fed with objects, and against the cluster in memory.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use wattlane::admission::{Swept, Template, sweep, unused};
use wattlane::cluster::embedded::Embedded;
use wattlane::cluster::{Cluster, TEMPLATE_REFRESH, WatchStatus};
use wattlane::convert::{self, TEMPLATE_LAST_USED};
use wattlane::index::{Change, Index, Kind, Object};
use wattlane::model::NamespacedName;
use wattlane::policy::PolicyClassifier;
use wattlane::publish;
use wattlane::snapshot::Snapshot;

/// As ARCHITECTURE.md has it: an hour, and so many a round.
const GRACE: i64 = 3600;
const MOST: usize = 64;

fn index() -> Index {
    Index::new(Arc::new(PolicyClassifier::new(Arc::default())))
}

pub(crate) struct Unwatched;

impl WatchStatus for Unwatched {
    fn alive(&self, _: Kind) {}
    fn restarted(&self, _: Kind) {}
    fn undecodable(&self, _: Kind) {}
}

const NOW: i64 = 1_800_000_000;

fn template(count: u32, age: i64) -> Value {
    let template = Template {
        device_class: "gpu.nvidia.com".into(),
        count,
        parts: None,
    };
    let mut object = template.object("ml");
    let used = jiff::Timestamp::from_second(NOW - age).expect("a time");
    object["metadata"]["annotations"] = json!({TEMPLATE_LAST_USED: used.to_string()});
    object["metadata"]["resourceVersion"] = json!("7");
    object["metadata"]["uid"] = json!("u");
    object
}

fn pod(template: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ml", "uid": "p"}, "spec": {
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": template["metadata"]["name"]}], "containers": [],
    }, "status": {"phase": "Succeeded"}})
}

fn namespace() -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}})
}

fn goes(objects: &[Value]) -> usize {
    let mut index = index();
    for object in objects {
        let object = convert::object(object).expect("readable").expect("a kind that is kept");
        index.apply(Change::Upsert(object));
    }
    unused(&index.publish().expect("a change"), NOW).len()
}

#[test]
fn only_what_is_ours_unused_and_old_goes() {
    let with = |change: fn(&mut Value)| {
        let mut object = template(2, GRACE);
        change(&mut object);
        goes(&[namespace(), object])
    };
    assert_eq!(with(|_| {}), 1);
    // Without a note of its use, its age counts.
    assert_eq!(
        with(|t| t["metadata"]["annotations"] = json!({TEMPLATE_LAST_USED: "yesterday"})),
        1
    );
    assert_eq!(
        with(|t| {
            t["metadata"]["annotations"] = json!({});
            t["metadata"]["creationTimestamp"] = json!("2027-01-15T07:59:00Z");
        }),
        0
    );
    assert_eq!(goes(&[namespace(), template(2, GRACE - 1)]), 0);
    assert_eq!(goes(&[namespace(), template(2, -5)]), 0);
    assert_eq!(with(|t| t["metadata"]["labels"] = json!({})), 0);
    assert_eq!(
        with(|t| t["metadata"]["name"] = json!("wl-gpu-nvidia-com-x2-0123456789")),
        0
    );
    assert_eq!(
        with(|t| t["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] = json!(3)),
        0
    );
    assert_eq!(
        with(|t| t["spec"]["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = json!(true)),
        0
    );
    assert_eq!(with(|t| t["spec"]["metadata"] = json!({"labels": {"a": "b"}})), 0);
    assert_eq!(
        with(|t| t["spec"]["metadata"] = json!({"labels": {}, "creationTimestamp": null})),
        1
    );
    // Used a little ahead of our clock is used now; used in a year to come is nothing to wait for.
    assert_eq!(goes(&[namespace(), template(2, -300)]), 0);
    assert_eq!(goes(&[namespace(), template(2, -400 * 24 * 3600)]), 1);
    assert_eq!(
        with(|t| t["metadata"]["deletionTimestamp"] = json!("2027-01-15T07:59:00Z")),
        0
    );
    assert_eq!(GRACE, 2 * TEMPLATE_REFRESH);
    assert_eq!(goes(&[template(2, GRACE)]), 0, "its namespace is not known");
    // A finished pod, too: it says what it was made from.
    let old = template(2, GRACE);
    assert_eq!(goes(&[namespace(), pod(&old), old]), 0);
}

#[test]
fn a_round_is_bounded_and_begins_with_the_oldest() {
    let mut objects = vec![namespace()];
    objects.extend((1..=100).map(|n| template(n, GRACE + i64::from(n))));
    let mut index = index();
    for object in &objects {
        index.apply(Change::Upsert(
            convert::object(object).expect("readable").expect("kept"),
        ));
    }
    let unused = unused(&index.publish().expect("a change"), NOW);
    let used: Vec<i64> = unused.iter().map(|t| NOW - GRACE - t.last_used).collect();
    assert_eq!((used.len(), used[0], used[63]), (MOST, 100, 37));
}

/// The race of the header, in the cluster in memory: what was used after the look stays, and so does what a pod names
/// that the snapshot does not know yet.
#[tokio::test]
async fn what_is_used_after_the_look_stays() {
    let cluster = Embedded::from_yaml("test", &namespace().to_string()).expect("a cluster");
    let now = jiff::Timestamp::now();
    let old = |count: u32| {
        let mut object = template(count, 0);
        let at = now.as_second() - GRACE;
        let used = jiff::Timestamp::from_second(at).expect("a time").to_string();
        object["metadata"]["annotations"][TEMPLATE_LAST_USED] = json!(used);
        object
    };
    for count in 1..=3 {
        cluster.ensure_template(&old(count)).await.expect("made");
    }
    let cluster = Arc::new(cluster);
    let live = publish::spawn(index(), Arc::new(|_, _| false));
    let (watched, handle) = (cluster.clone(), live.index.clone());
    tokio::spawn(async move { watched.watch(handle, Arc::new(Unwatched)).await });
    let complete = |s: &Snapshot| s.templates.len() == 3 && s.namespaces.contains_key("ml");
    let waited = live.reader.clone();
    let seen = waited
        .wait_until(Duration::from_secs(20), complete)
        .await
        .expect("a picture");
    // A second index holds what is seen now, and learns of nothing that comes.
    let frozen = publish::spawn(index(), Arc::new(|_, _| false));
    for (_, template) in seen.templates.iter() {
        let template = Object::Template((**template).clone());
        frozen
            .index
            .change(Change::Upsert(template))
            .await
            .expect("the index runs");
    }
    let object = convert::object(&namespace()).expect("readable").expect("kept");
    frozen
        .index
        .change(Change::Upsert(object))
        .await
        .expect("the index runs");
    frozen.index.flush().await.expect("the index runs");
    // Admission answers with the first once more, and a pod that names the second is stored.
    let mut again = old(1);
    again["metadata"]["annotations"][TEMPLATE_LAST_USED] = json!(now.to_string());
    cluster.ensure_template(&again).await.expect("noted");
    let mut names_it = pod(&old(2));
    names_it["status"] = json!({});
    cluster.create_pod(names_it).await.expect("stored");

    let told = Mutex::new(vec![]);
    let tell = |swept| told.lock().expect("not poisoned").push(swept);
    let may_not = sweep(cluster.clone(), frozen.reader.clone(), || false, tell);
    let asked = tokio::time::timeout(Duration::from_millis(50), may_not).await;
    assert!(
        asked.is_err() && told.lock().expect("not poisoned").is_empty(),
        "it may not sweep"
    );
    let sweeping = sweep(cluster.clone(), frozen.reader.clone(), || true, tell);
    let all = async {
        while told.lock().expect("not poisoned").len() < 3 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        () = sweeping => panic!("it ended"),
        () = all => {}
    }
    let told = told.into_inner().expect("not poisoned");
    assert_eq!(told.iter().filter(|s| **s == Swept::Removed).count(), 1, "{told:?}");
    assert_eq!(told.iter().filter(|s| **s == Swept::Kept).count(), 2, "{told:?}");
    live.index.flush().await.expect("the index runs");
    for (count, there) in [(1, true), (2, true), (3, false)] {
        let name = old(count)["metadata"]["name"].as_str().expect("named").to_owned();
        let key = NamespacedName::new("ml", name);
        assert_eq!(live.reader.load().templates.contains_key(&key), there, "{key}");
    }
}
