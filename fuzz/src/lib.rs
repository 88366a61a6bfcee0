//! What each target asks of its input: no panic, bounded time (`-timeout`), and whatever else must hold of an answer.
//! Inputs are what strangers and other programs can send: bodies, objects of the API, expressions, texts of tools.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};
use wattlane::admission::{self, Decision};
use wattlane::convert;
use wattlane::index::{Change, Index, Object};
use wattlane::model::{Pod, Reason, Refusal};
use wattlane::placement::{self, Context, Demand, Rules};
use wattlane::policy::{Policy, PolicyClassifier};
use wattlane::selector::Selectors;
use wattlane::snapshot::Snapshot;
use wattlane::topology::{annotation as report, text};
use wattlane::wire::{AdmissionRequest, BindArgs, ExtenderArgs, Verdicts, extender as wire};

static SELECTORS: LazyLock<Selectors> = LazyLock::new(Selectors::new);

/// Of everything something.
const POLICY: &str = include_str!("../seeds/policy/whole.yaml");

static RULES: LazyLock<Arc<Policy>> =
    LazyLock::new(|| Arc::new(Policy::read(POLICY, &SELECTORS).expect("the seed is a valid policy")));

fn index() -> Index {
    Index::new(Arc::new(PolicyClassifier::new(RULES.clone())))
}

fn published(objects: impl IntoIterator<Item = Object>) -> Arc<Snapshot> {
    let mut index = index();
    for object in objects {
        index.apply(Change::Upsert(object));
    }
    index.publish().unwrap_or_default()
}

/// A node with four cards of two kinds, a class, a claim and what admission looks at.
static CLUSTER: LazyLock<Arc<Snapshot>> = LazyLock::new(|| {
    let list: Value = serde_json::from_str(include_str!("../seeds/objects/cluster.json")).expect("JSON");
    let items = list.as_array().expect("a list");
    published(items.iter().filter_map(|o| convert::object(o).expect("converts")))
});

fn rules() -> Rules {
    RULES.rules()
}

/// Bodies of filter, prioritize and bind, and the pod in them on a small cluster.
pub fn extender(body: &[u8]) {
    let _ = BindArgs::parse(body);
    let Ok(args) = ExtenderArgs::parse(body) else { return };
    let no = Refusal::new(Reason::UnknownNode, "no \"card\"\n\u{1}");
    let verdicts: Verdicts = (0..args.names.len())
        .map(|i| (i % 2 == 1).then(|| no.message.clone()))
        .collect();
    let answer: Value = serde_json::from_slice(&wire::filter_result(&args, &verdicts)).expect("an answer is JSON");
    assert!(answer["FailedAndUnresolvableNodes"].is_object());
    let scores = vec![7; args.names.len()];
    let answer: Value = serde_json::from_slice(&wire::prioritize_result(&args, &scores)).expect("an answer is JSON");
    assert_eq!(answer.as_array().map(Vec::len), Some(args.names.len()));
    let Ok(pod) = serde_json::from_str::<Value>(args.pod.get()) else { return };
    if let Ok(pod) = convert::pod(&pod) {
        place(&CLUSTER, &pod);
    }
}

/// Places a pod on every node: nothing taken is given, and nothing twice.
fn place(snapshot: &Snapshot, pod: &Pod) {
    let rules = rules();
    let context = Context {
        snapshot,
        selectors: &SELECTORS,
        rules: &rules,
    };
    let Ok(demand) = Demand::of(context, pod) else { return };
    for (_, node) in snapshot.nodes() {
        let fits = placement::check(context, &demand, node).is_ok();
        let Ok(placed) = placement::place(context, &demand, node) else { continue };
        assert!(fits || placed.cut, "placed where filter says no");
        let mut given = HashSet::new();
        for claim in placed.claims.iter().filter(|c| !c.existing) {
            for result in &claim.allocation.results {
                let whole = !result.admin_access && result.share_id.is_none();
                assert!(!whole || given.insert(result.id.clone()), "given twice: {:?}", result.id);
            }
        }
    }
}

/// AdmissionReviews: the patch fits the pod, and once is enough.
pub fn admission(body: &[u8]) {
    let Ok(request) = AdmissionRequest::parse(body) else { return };
    let decide = |object: &Value| {
        let asked = admission::Request {
            namespace: "team",
            operation: "CREATE",
            object,
        };
        admission::decide(&CLUSTER, &RULES, &asked)
    };
    if let Decision::Patch { ops, .. } = decide(&request.object) {
        let mut patched = request.object.clone();
        json_patch::patch(&mut patched, &ops).expect("the patch fits the pod it was made for");
        assert!(
            !matches!(decide(&patched), Decision::Patch { .. }),
            "patched again: {patched}"
        );
    }
}

/// A list of objects of the API, in the order they come; `null` publishes in between. Then every pod on every node.
pub fn objects(bytes: &[u8]) {
    let Ok(Value::Array(items)) = serde_json::from_slice(bytes) else { return };
    let mut index = index();
    let mut snapshot = Arc::<Snapshot>::default();
    let mut pods = vec![];
    for item in items.iter().take(64) {
        if item.is_null() {
            snapshot = index.publish().unwrap_or(snapshot);
            continue;
        }
        for kind in convert::Kind::ALL {
            let _ = convert::of_kind(kind, item);
        }
        let Ok(Some(object)) = convert::object(item) else { continue };
        if let Object::Pod(pod) = &object {
            pods.push(pod.clone());
        }
        index.apply(Change::Upsert(object));
    }
    snapshot = index.publish().unwrap_or(snapshot);
    for pod in pods.iter().take(4) {
        place(&snapshot, pod);
    }
}

/// A CEL expression on a device that has an attribute of every type.
pub fn selector(bytes: &[u8]) {
    static DEVICE: LazyLock<Arc<wattlane::model::Device>> = LazyLock::new(|| {
        let slice = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"},
            "spec": {"driver": "gpu.example.com", "nodeName": "n",
                "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "d", "attributes": {"text": {"string": "abc"}, "count": {"int": 3}, "yes": {"bool": true},
                    "version": {"version": "1.2.3"}}, "capacity": {"memory": {"value": "80Gi"}}}]}});
        let slice = convert::slice(&slice).expect("a slice");
        slice.devices.first().expect("a device").clone()
    });
    // A panic of the CEL crate is caught where it is called, and an error of its expression.
    static QUIET: std::sync::Once = std::sync::Once::new();
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let selectors = Selectors::new();
    let selector = selectors.selector(&text.into());
    let labels = Default::default();
    let first = selector.matches(&"gpu.example.com".into(), &DEVICE, Some(&labels));
    let again = selector.matches(&"gpu.example.com".into(), &DEVICE, Some(&labels));
    if first != again {
        eprintln!("{first:?}, then {again:?}");
        std::process::abort();
    }
}

/// Outputs of nvidia-smi, amd-smi and rocm-smi, set apart by a zero byte.
pub fn topology(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let texts: Vec<&str> = text.split('\0').take(4).collect();
    let Ok(reading) = text::read(&texts) else { return };
    wattlane::topology::groups(&reading.report);
    published_is_read(&reading.report);
}

/// The annotation of a Node.
pub fn annotation(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(report) = report::decode(text) else { return };
    wattlane::topology::groups(&report);
    published_is_read(&report);
}

/// Writing leaves out what is long or contradicts itself; what is written then is read as it was meant.
fn published_is_read(report: &wattlane::topology::Report) {
    let Ok(text) = report::encode(report) else { return };
    let read = report::decode(&text).expect("what is published can be read");
    assert_eq!(read.cards.len(), report.cards.len());
    assert_eq!(report::encode(&read).as_ref(), Ok(&text));
}

/// A policy file, and the cluster under it.
pub fn policy(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Policy::read(text, &Selectors::new()) {
        Err(errors) => assert!(!errors.is_empty()),
        Ok(policy) => {
            let mut index = Index::new(Arc::new(PolicyClassifier::new(Arc::new(policy))));
            let list: Value = serde_json::from_str(include_str!("../seeds/objects/cluster.json")).expect("JSON");
            for object in list.as_array().into_iter().flatten() {
                index.apply(Change::Upsert(convert::object(object).expect("converts").expect("a kind we keep")));
            }
            index.publish();
        }
    }
}
