//! The whole service on loopback, over a cluster in memory: what the extender and the webhook answer for real.

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Value, json};
use wattlane::admission::Skip;
use wattlane::app::{self, App, Core, Net, PolicySource};
use wattlane::binding::{self, Binder};
use wattlane::cluster::embedded::Embedded;
use wattlane::convert;
use wattlane::index::Change;

use crate::admin;
use crate::support::{BOTH, Http, Peer, eventually, no_hang, value};

const CLUSTER: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: models, labels: {wattlane.dev/enabled: "true"}}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.nvidia.com}
spec: {selectors: [{cel: {expression: "device.driver == 'gpu.nvidia.com'"}}]}
---
apiVersion: v1
kind: Node
metadata: {name: n1}
---
apiVersion: v1
kind: Node
metadata: {name: n2}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one, namespace: models}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}}
"#;

pub(crate) struct World {
    pub(crate) cluster: Arc<Embedded>,
    pub(crate) core: Core,
    app: App,
    pub(crate) peer: Peer,
}

pub(crate) fn slice(node: &str, cards: usize) -> Value {
    let card = |i| {
        json!({"name": format!("gpu-{i}"), "attributes": {
            "type": {"string": "gpu"}, "productName": {"string": "NVIDIA H100 80GB HBM3"}}})
    };
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": format!("{node}-gpus")},
        "spec": {"driver": "gpu.nvidia.com", "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": (0..cards).map(card).collect::<Vec<_>>()}})
}

pub(crate) async fn start(cards: usize) -> World {
    start_with(cards, binding::Limits::default()).await
}

pub(crate) async fn start_with(cards: usize, limits: binding::Limits) -> World {
    start_so(cards, limits, |_| {}).await
}

/// With the network as `change` makes it.
pub(crate) async fn start_on(cards: usize, change: impl FnOnce(&mut Net)) -> World {
    start_so(cards, binding::Limits::default(), change).await
}

async fn start_so(cards: usize, limits: binding::Limits, change: impl FnOnce(&mut Net)) -> World {
    let text = format!("{CLUSTER}---\n{}\n", slice("n1", cards));
    let cluster = Arc::new(Embedded::from_yaml("test", &text).expect("a cluster"));
    let mut core = Core::start(cluster.clone(), PolicySource::Default)
        .await
        .expect("starts");
    core.binder = Binder::new(
        core.reader.clone(),
        core.index.clone(),
        core.selectors.clone(),
        core.cluster.clone(),
        limits,
    );
    let mut net = Net {
        admin: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        ..Net::loopback()
    };
    change(&mut net);
    let app = app::serve(core.clone(), net).await.expect("serves");
    let peer = Peer {
        address: app.address,
        ca: app.ca_pem.clone().expect("a CA of its own"),
        client: None,
    };
    World {
        cluster,
        core,
        app,
        peer,
    }
}

impl World {
    pub(crate) async fn upsert(&self, object: &Value) {
        let object = convert::object(object).expect("converts").expect("a kind we keep");
        self.core
            .index
            .change(Change::Upsert(object))
            .await
            .expect("the index runs");
    }

    pub(crate) async fn ask(&self, path: &str, body: &Value) -> Value {
        let answer = self.peer.post(Http::Two, path, body.to_string()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        serde_json::from_str(answer.text()).expect("JSON")
    }

    async fn filter(&self, pod: &Value) -> Value {
        let body = json!({"Pod": pod, "Nodes": null, "NodeNames": ["n1", "n2", "n3"]});
        self.ask("/extender/filter", &body).await
    }

    pub(crate) async fn create(&self, name: &str) -> Value {
        let claims = json!([{"name": "gpu", "resourceClaimTemplateName": "one"}]);
        self.cluster.create_pod(pod(name, claims)).await.expect("created");
        self.cluster.pod_json("models", name).expect("there")
    }

    pub(crate) fn value(&self, series: &str) -> f64 {
        value(&self.core.metrics, series)
    }

    pub(crate) fn bound(&self, outcome: &str) -> f64 {
        self.value(&format!(r#"wattlane_binds_total{{outcome="{outcome}"}}"#))
    }
}

pub(crate) fn pod(name: &str, claims: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "models", "uid": format!("uid-{name}")},
        "spec": {"resourceClaims": claims, "containers": [{"name": "c", "image": "i",
            "resources": {"claims": [{"name": "gpu"}]}}]}})
}

/// A pod that names a claim of its own.
fn named(claim: &str) -> Value {
    pod("named", json!([{"name": "gpu", "resourceClaimName": claim}]))
}

fn claim(name: &str, count: u32) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "models", "uid": format!("uid-{name}"), "resourceVersion": "1"},
        "spec": {"devices": {"requests": [{"name": "gpu",
            "exactly": {"deviceClassName": "gpu.nvidia.com", "count": count}}]}}})
}

#[tokio::test]
async fn a_claim_that_does_not_come_is_a_refusal_with_words() {
    let world = start(2).await;
    let answer = no_hang(world.filter(&named("late"))).await;
    assert_eq!(answer["NodeNames"], json!([]));
    for node in ["n1", "n2", "n3"] {
        let words = answer["FailedAndUnresolvableNodes"][node].as_str().expect("words");
        assert!(words.contains("late"), "{words}");
    }
    assert_eq!(
        world.value(r#"wattlane_node_verdicts_total{reason="claim_missing"}"#),
        3.0
    );
}

#[tokio::test]
async fn a_claim_that_comes_while_filter_waits_is_judged() {
    let world = start(2).await;
    let pod = named("late");
    let (answer, ()) = no_hang(async {
        tokio::join!(world.filter(&pod), async {
            // Once the request is there, so that it is filter that waits.
            while world.core.metrics.connections.get() == 0 {
                tokio::task::yield_now().await;
            }
            world.upsert(&claim("late", 2)).await;
        })
    })
    .await;
    assert_eq!(answer["NodeNames"], json!(["n1"]), "{answer}");
    let refusals = &answer["FailedAndUnresolvableNodes"];
    assert!(
        refusals["n3"]
            .as_str()
            .expect("words")
            .contains("does not know this node"),
        "{refusals}"
    );
    assert!(!refusals["n2"].as_str().expect("words").is_empty());
}

#[tokio::test]
async fn a_refused_pod_is_poked_when_cards_appear() {
    let world = start(1).await;
    world.upsert(&claim("two", 2)).await;
    let answer = world.filter(&named("two")).await;
    assert_eq!(answer["NodeNames"], json!([]));
    eventually("the pod is remembered", || world.value("wattlane_refused_pods") == 1.0).await;
    // Cards that do not help are no reason.
    world.upsert(&slice("n2", 1)).await;
    world.core.index.flush().await.expect("runs");
    world.upsert(&slice("n2", 2)).await;
    eventually("it is poked", || world.value("wattlane_pokes_total") >= 1.0).await;
    let answer = world.filter(&named("two")).await;
    assert_eq!(answer["NodeNames"], json!(["n2"]));
}

#[tokio::test]
async fn bind_twice_is_one_bind_and_of_the_right_pod_only() {
    let world = start(1).await;
    let pod = world.create("a").await;
    let answer = world.filter(&pod).await;
    assert_eq!(answer["NodeNames"], json!(["n1"]), "{answer}");
    let scores = world
        .ask("/extender/prioritize", &json!({"Pod": pod, "NodeNames": ["n1", "n3"]}))
        .await;
    assert_eq!(
        (&scores[0]["Host"], &scores[1]),
        (&json!("n1"), &json!({"Host": "n3", "Score": 0}))
    );

    let bind = |uid: &Value| json!({"PodName": "a", "PodNamespace": "models", "PodUID": uid, "Node": "n1"});
    let uid = &pod["metadata"]["uid"];
    let wrong = world.ask("/extender/bind", &bind(&json!("another"))).await;
    assert!(
        wrong["Error"].as_str().is_some_and(|e| e.contains("models/a")),
        "{wrong}"
    );
    assert_eq!(world.bound("refused"), 1.0);
    assert_eq!(
        world.cluster.pod_json("models", "a").expect("there")["spec"]["nodeName"],
        Value::Null
    );

    for _ in 0..2 {
        assert_eq!(world.ask("/extender/bind", &bind(uid)).await, json!({"Error": ""}));
    }
    assert_eq!((world.bound("bound"), world.bound("already")), (1.0, 1.0));
    assert_eq!(
        world.cluster.pod_json("models", "a").expect("there")["spec"]["nodeName"],
        "n1"
    );
    // The one card is given.
    let next = world.create("b").await;
    assert_eq!(world.filter(&next).await["NodeNames"], json!([]));
    let late = json!({"PodName": "b", "PodNamespace": "models", "PodUID": next["metadata"]["uid"], "Node": "n1"});
    let refused = world.ask("/extender/bind", &late).await;
    assert_ne!(refused["Error"], "");
    assert_eq!(world.bound("bound"), 1.0);
}

#[tokio::test]
async fn a_dry_run_is_answered_and_creates_nothing() {
    let world = start(1).await;
    let review = |dry_run: bool| {
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
            "uid": "u", "operation": "CREATE", "namespace": "models", "dryRun": dry_run,
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-", "namespace": "models"},
                "spec": {"containers": [{"name": "c", "image": "i",
                    "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}}})
    };
    let templates = async || {
        world.core.index.flush().await.expect("runs");
        world.core.reader.load().templates.len()
    };
    assert_eq!(templates().await, 1);
    let dry = world.ask("/admission/mutate", &review(true)).await;
    assert_eq!(templates().await, 1);
    let wet = world.ask("/admission/mutate", &review(false)).await;
    assert_eq!(templates().await, 2);
    assert_eq!(dry, wet, "the answer is the same");
    assert_eq!(dry["response"]["patchType"], "JSONPatch");
    assert_eq!(world.value(r#"wattlane_admissions_total{outcome="patched"}"#), 2.0);
}

#[tokio::test]
async fn a_pod_that_is_no_pod_is_a_bad_request_and_one_without_claims_goes_anywhere() {
    let world = start(1).await;
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    for http in BOTH {
        for pod in ["1", "[]", "{}", r#"{"spec":5}"#, &deep] {
            let body = format!(r#"{{"Pod":{pod},"NodeNames":["n1"]}}"#);
            for path in ["/extender/filter", "/extender/prioritize"] {
                let answer = world.peer.post(http, path, body.clone()).await;
                assert_eq!(answer.status, 400, "{path} {}", answer.text());
                assert!(
                    answer.text().contains("Pod") && answer.body.len() < 500,
                    "{}",
                    answer.text()
                );
            }
        }
    }
    let plain = json!({"metadata": {"name": "p", "namespace": "models", "uid": "u"}, "spec": {"containers": []}});
    let answer = world.filter(&plain).await;
    assert_eq!(answer["NodeNames"], json!(["n1", "n2", "n3"]));
    assert_eq!(world.value("wattlane_refused_pods"), 0.0);
}

#[tokio::test]
async fn the_service_has_every_series_from_its_start_and_only_from_closed_sets() {
    let mut world = start(1).await;
    let admin_port = world.app.admin.expect("asked for");
    assert_eq!(admin::ask(admin_port, "GET", "/readyz").await, (200, "ok\n".into()));
    let before = admin::parse(&admin::ask(admin_port, "GET", "/metrics").await.1);
    admin::judge(&before);
    assert!(before["wattlane_snapshot_version"][0].1 >= 1.0);
    // Whatever callers send, no series is born of it.
    let _ = world.filter(&named("missing")).await;
    let _ = world.peer.post(Http::One, "/extender/\u{65}lse", "x").await;
    let _ = world.peer.post(Http::One, "/admission/mutate", "x").await;
    let after = admin::parse(&admin::ask(admin_port, "GET", "/metrics").await.1);
    admin::judge(&after);
    let series = |page: &admin::Page| page.iter().map(|(n, s)| (n.clone(), s.len())).collect::<Vec<_>>();
    assert_eq!(series(&before), series(&after));
    assert_eq!(Skip::ALL.len(), after["wattlane_admission_skips_total"].len());
    no_hang(world.app.shutdown()).await.expect("ends");
}
