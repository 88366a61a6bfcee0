//! The admitter against a cluster that counts what it is asked to make.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::*;
use crate::cluster::TEMPLATE_REFRESH;
use crate::cluster::WatchStatus;
use crate::model::{
    Allocation, Claim, ClaimSpec, ClaimTemplate, Consumer, DeviceClass, Labels, Namespace, Pod as ModelPod,
};
use crate::publish::IndexHandle;

#[derive(Default)]
struct Templates {
    asked: AtomicUsize,
    fails_with: Option<WriteError>,
}

fn unused<T>() -> Result<T, WriteError> {
    Err(WriteError::Refused("not part of this test".into()))
}

#[async_trait]
impl Cluster for Templates {
    async fn watch(&self, _: IndexHandle, _: Arc<dyn WatchStatus>) -> anyhow::Result<()> {
        anyhow::bail!("not part of this test")
    }
    async fn allocate(&self, _: &Claim, _: &Allocation, _: &Consumer) -> Result<Claim, WriteError> {
        unused()
    }
    async fn reserve(&self, _: &Claim, _: &Consumer) -> Result<Claim, WriteError> {
        unused()
    }
    async fn unreserve(&self, _: &NamespacedName, _: &str, _: &Consumer, _: bool) -> Result<(), WriteError> {
        unused()
    }
    async fn claim(&self, _: &NamespacedName) -> Result<Option<Claim>, WriteError> {
        unused()
    }
    async fn pod(&self, _: &NamespacedName) -> Result<Option<ModelPod>, WriteError> {
        unused()
    }
    async fn bind(&self, _: &NamespacedName, _: &str, _: &str) -> Result<(), WriteError> {
        unused()
    }
    async fn ensure_template(&self, _: &Value) -> Result<(), WriteError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        // As a call to an API server: others come in meanwhile.
        tokio::task::yield_now().await;
        self.fails_with.clone().map_or(Ok(()), Err)
    }
    async fn poke(&self, _: &NamespacedName, _: &str) -> Result<(), WriteError> {
        unused()
    }
}

fn snapshot() -> Snapshot {
    let mut snapshot = Snapshot::default();
    let labels: Labels = Arc::new([("wattlane.dev/enabled".into(), "true".into())].into());
    let namespace = Namespace {
        name: "ml".into(),
        labels,
        deleting: false,
    };
    snapshot.namespaces.insert("ml".into(), Arc::new(namespace));
    let class = DeviceClass {
        name: "gpu.nvidia.com".into(),
        selectors: vec![],
        config: vec![],
        extended_resource: None,
        created: 0,
        unsupported: None,
    };
    snapshot.classes.insert("gpu.nvidia.com".into(), Arc::new(class));
    snapshot
}

fn template() -> Template {
    Template {
        device_class: "gpu.nvidia.com".into(),
        count: 2,
    }
}

/// One that says it was used so many seconds ago.
fn with_template(spec: ClaimSpec, age: i64) -> Snapshot {
    let mut snapshot = snapshot();
    let template = ClaimTemplate {
        key: template().key("ml"),
        uid: "u".into(),
        resource_version: "1".into(),
        deleting: false,
        labels: Arc::new([("app.kubernetes.io/managed-by".into(), "wattlane".into())].into()),
        last_used: jiff::Timestamp::now().as_second() - age,
        marks_claims: false,
        spec: Arc::new(spec),
    };
    snapshot.templates.insert(template.key.clone(), Arc::new(template));
    snapshot
}

struct World {
    cluster: Arc<Templates>,
    admitter: Admitter,
    current: Arc<ArcSwap<Snapshot>>,
    version: watch::Sender<u64>,
}

fn world(snapshot: Snapshot, fails_with: Option<WriteError>) -> World {
    let cluster = Arc::new(Templates {
        fails_with,
        ..Templates::default()
    });
    let current = Arc::new(ArcSwap::from_pointee(snapshot));
    let (version, receiver) = watch::channel(0);
    let reader = Reader {
        current: current.clone(),
        version: receiver,
    };
    let admitter = Admitter::new(
        cluster.clone(),
        reader,
        Arc::new(ArcSwap::from_pointee(Policy::default())),
    );
    World {
        cluster,
        admitter,
        current,
        version,
    }
}

async fn admit(world: &World, dry_run: bool) -> Decision {
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [
        {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "2"}}},
    ]}});
    let request = Request {
        namespace: "ml",
        operation: "CREATE",
        object: &pod,
    };
    world.admitter.admit(&request, dry_run).await
}

fn asked(world: &World) -> usize {
    world.cluster.asked.load(Ordering::Relaxed)
}

#[tokio::test]
async fn a_burst_of_equal_pods_makes_one_template_and_a_dry_run_none() {
    let world = world(snapshot(), None);
    assert!(matches!(admit(&world, true).await, Decision::Patch { .. }));
    assert_eq!(asked(&world), 0);
    for _ in 0..3 {
        assert!(matches!(admit(&world, false).await, Decision::Patch { .. }));
    }
    assert_eq!(asked(&world), 1);
}

#[tokio::test]
async fn a_template_the_watch_shows_is_believed_only_with_our_content() {
    let ours = world(with_template(template().claim_spec(), TEMPLATE_REFRESH - 60), None);
    assert!(matches!(admit(&ours, false).await, Decision::Patch { .. }));
    assert_eq!(asked(&ours), 0);

    let mut unlabelled = with_template(template().claim_spec(), 0);
    let key = template().key("ml");
    let mut object = ClaimTemplate::clone(unlabelled.templates.get(&key).expect("put there"));
    object.labels = Labels::default();
    unlabelled.templates.insert(key.clone(), Arc::new(object));
    let mut marking = with_template(template().claim_spec(), 0);
    let mut object = ClaimTemplate::clone(marking.templates.get(&key).expect("put there"));
    object.marks_claims = true;
    marking.templates.insert(key, Arc::new(object));
    for other in [
        with_template(ClaimSpec::default(), 0),
        // Its use has to be noted before it is answered with again.
        with_template(template().claim_spec(), TEMPLATE_REFRESH),
        // Nor has it been used in a year to come.
        with_template(template().claim_spec(), -400 * 24 * 3600),
        unlabelled,
        marking,
    ] {
        let other = world(other, None);
        admit(&other, false).await;
        assert_eq!(asked(&other), 1);
    }
}

#[tokio::test]
async fn what_was_made_is_believed_only_until_the_watch_says_something_else() {
    let world = world(snapshot(), None);
    admit(&world, false).await;
    assert_eq!(asked(&world), 1);
    // Something else was published.
    let mut other = (**world.current.load()).clone();
    other.classes.remove("other");
    world.current.store(Arc::new(other.clone()));
    admit(&world, false).await;
    assert_eq!(asked(&world), 1);
    // It came and went again between two pods.
    let shown = with_template(template().claim_spec(), 0);
    let shown = shown.templates.get(&template().key("ml")).expect("put there").clone();
    other.templates.insert(shown.key.clone(), shown.clone());
    other.templates.remove(&shown.key);
    world.current.store(Arc::new(other));
    admit(&world, false).await;
    assert_eq!(asked(&world), 2);
    // A stranger's has taken its name: never, however often the API has said yes.
    world.current.store(Arc::new(with_template(ClaimSpec::default(), 0)));
    for want in 3..6 {
        admit(&world, false).await;
        assert_eq!(asked(&world), want);
    }
    // Ours once more, whose use was noted a moment ago though the watch does not say so yet.
    world
        .current
        .store(Arc::new(with_template(template().claim_spec(), TEMPLATE_REFRESH)));
    for _ in 0..2 {
        admit(&world, false).await;
        assert_eq!(asked(&world), 6);
    }
}

#[tokio::test]
async fn pods_that_come_all_at_once_ask_for_their_template_once() {
    let world = world(snapshot(), None);
    let admitted = futures::future::join_all((0..20).map(|_| admit(&world, false))).await;
    assert!(admitted.iter().all(|d| matches!(d, Decision::Patch { .. })));
    assert_eq!(asked(&world), 1);
}

#[tokio::test]
async fn the_template_of_a_copied_pod_is_made_again() {
    let world = world(snapshot(), None);
    let pod = json!({"metadata": {"name": "p", "annotations": {"wattlane.dev/admitted": "v1"}}, "spec": {
        "schedulerName": "wattlane",
        "resourceClaims": [{"name": "wl-gpu-0", "resourceClaimTemplateName": &*template().name()}],
        "containers": [{"name": "c", "resources": {"claims": [{"name": "wl-gpu-0"}]}}],
    }});
    let request = Request {
        namespace: "ml",
        operation: "CREATE",
        object: &pod,
    };
    for (dry_run, want) in [(true, 0), (false, 1)] {
        let decision = world.admitter.admit(&request, dry_run).await;
        assert!(matches!(
            decision,
            Decision::LeaveAlone {
                reason: Skip::AlreadyTreated,
                ..
            }
        ));
        assert_eq!(asked(&world), want);
    }
}

#[tokio::test]
async fn the_user_reads_the_words_of_the_api() {
    for (error, code) in [
        (WriteError::Refused("quota exceeded".into()), 422),
        (WriteError::Unknown("timed out".into()), 500),
    ] {
        let words = error.to_string();
        let world = world(snapshot(), Some(error));
        let Decision::Refuse(refused) = admit(&world, false).await else {
            panic!("admitted without its template");
        };
        assert_eq!(refused.code, code);
        assert!(refused.message.contains(&words), "{refused}");
        // What failed is not remembered as made.
        admit(&world, false).await;
        assert_eq!(asked(&world), 2);
    }
}

/// The namespace was labelled a moment ago: the API server knows, and we not yet.
#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_the_opt_in_of_its_namespace_but_not_every_pod_again() {
    let patience = Duration::from_secs(60);
    let mut closed = snapshot();
    let namespace = Namespace {
        name: "ml".into(),
        labels: Labels::default(),
        deleting: false,
    };
    closed.namespaces.insert("ml".into(), Arc::new(namespace));
    let mut world = world(closed, None);
    world.admitter = world.admitter.with_patience(patience);
    let left = |decision: Decision| {
        assert!(
            matches!(
                decision,
                Decision::LeaveAlone {
                    reason: Skip::NotOptedIn,
                    ..
                }
            ),
            "{decision:?}"
        );
    };
    // Nobody opts in: the first waits for it, the next does not …
    let start = tokio::time::Instant::now();
    left(admit(&world, false).await);
    assert_eq!(start.elapsed(), patience);
    left(admit(&world, false).await);
    assert_eq!(start.elapsed(), patience);
    // … until something has changed.
    let mut changed = Snapshot::clone(&world.current.load());
    let namespace = Namespace {
        name: "ml".into(),
        labels: Arc::new([("team".into(), "a".into())].into()),
        deleting: false,
    };
    changed.namespaces.insert("ml".into(), Arc::new(namespace));
    world.current.store(Arc::new(changed));
    let publish = async {
        tokio::task::yield_now().await;
        world.current.store(Arc::new(snapshot()));
        world.version.send_replace(2);
    };
    let (decision, ()) = tokio::join!(admit(&world, false), publish);
    assert!(matches!(decision, Decision::Patch { .. }), "{decision:?}");
    assert_eq!(start.elapsed(), patience);
}

#[tokio::test]
async fn a_pod_waits_for_its_namespace_to_come_through_the_watch() {
    let mut world = world(Snapshot::default(), None);
    assert!(matches!(
        admit(&world, false).await,
        Decision::LeaveAlone {
            reason: Skip::UnknownNamespace,
            ..
        }
    ));
    world.admitter = world.admitter.with_patience(Duration::from_secs(60));
    let publish = async {
        world.version.send_replace(1); // One that does not help …
        tokio::task::yield_now().await;
        world.current.store(Arc::new(snapshot())); // … and one that does.
        world.version.send_replace(2);
    };
    let (decision, ()) = tokio::join!(admit(&world, false), publish);
    assert!(matches!(decision, Decision::Patch { .. }));
}
