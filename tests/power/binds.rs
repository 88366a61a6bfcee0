//! The same through the whole service: binds at one time, on the embedded cluster, judged by what its claims say.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::task::JoinSet;
use wattlane::app::{Core, PolicySource};
use wattlane::binding::{BindFailure, BindRequest};
use wattlane::cluster::Cluster as _;
use wattlane::cluster::embedded::Embedded;
use wattlane::model::{NamespacedName, Pod, Reason};

use super::world::SERVER;

const POLICY: &str = "
apiVersion: wattlane.dev/v1alpha1
kind: PlacementPolicy
power: [{label: rack, budget: 5kW}]
";
const NODES: usize = 6;
const PODS: usize = 24;

/// Six nodes of one rack with four 600 W cards each, and pods that each bring a claim for one or two of them.
fn cluster() -> String {
    let mut text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n".to_owned();
    for n in 0..NODES {
        let _ = write!(
            text,
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: n{n}, uid: n{n}, labels: {{rack: a}}}}\n---\napiVersion: \
             resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {{name: n{n}}}\nspec:\n  driver: gpu.nvidia.com\n  nodeName: n{n}\n  \
             pool: {{name: n{n}, generation: 1, resourceSliceCount: 1}}\n  devices:\n"
        );
        for i in 0..4 {
            let _ = writeln!(
                text,
                "  - {{name: gpu-{i}, attributes: {{type: {{string: gpu}}, productName: {{string: {SERVER}}}}}}}"
            );
        }
    }
    for p in 0..PODS {
        let _ = write!(
            text,
            "---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: p{p}, namespace: team, uid: c{p}}}\nspec: \
             {{devices: {{requests: [{{name: r, exactly: {{deviceClassName: gpu.nvidia.com, count: {}}}}}]}}}}\n---\napiVersion: v1\nkind: \
             Pod\nmetadata: {{name: p{p}, namespace: team}}\nspec: {{resourceClaims: [{{name: c, resourceClaimName: p{p}}}], \
             containers: [{{name: c, image: x, resources: {{claims: [{{name: c}}]}}}}]}}\n",
            1 + p % 2
        );
    }
    text
}

#[tokio::test]
async fn binds_at_one_time_never_pass_the_budget() {
    let embedded = Arc::new(Embedded::from_yaml("test", &cluster()).expect("a cluster"));
    let source = PolicySource::File {
        path: PathBuf::from("policy.yaml"),
        text: POLICY.into(),
        kept: None,
    };
    let core = Core::start(embedded.clone(), source).await.expect("starts");
    let mut waiting: Vec<Pod> = vec![];
    for pod in embedded.pending() {
        waiting.push(embedded.create_pod(pod).await.expect("creates"));
    }
    assert_eq!(waiting.len(), PODS);
    core.index.flush().await.expect("runs");

    let (mut placed, mut over) = (0, 0);
    while !waiting.is_empty() {
        let mut binds = JoinSet::new();
        for (i, pod) in waiting.iter().enumerate() {
            let request = BindRequest {
                pod: pod.key.clone(),
                uid: pod.uid.clone(),
                node: format!("n{}", i % NODES).into(),
            };
            let (binder, rules) = (core.binder.clone(), Arc::new(core.rules()));
            binds.spawn(async move { (request.pod.clone(), binder.bind(rules, request).await) });
        }
        let mut running = vec![];
        while let Some(done) = binds.join_next().await {
            match done.expect("ends") {
                (pod, Ok(_)) => running.push(pod),
                (_, Err(e)) => {
                    let by_budget = matches!(
                        e.kind,
                        BindFailure::Refused(Reason::PowerBudget) | BindFailure::Conflict
                    );
                    assert!(by_budget && e.to_string().contains("power domain rack=a"), "{e}");
                    over += 1;
                }
            }
        }
        core.index.flush().await.expect("runs");
        // What the API says, and not what we think.
        let mut cards = 0;
        for p in 0..PODS {
            let claim = embedded
                .claim(&NamespacedName::new("team", format!("p{p}")))
                .await
                .expect("reads");
            cards += claim.and_then(|c| c.allocation.map(|a| a.results.len())).unwrap_or(0);
        }
        assert!(cards * 600 <= 5000, "{cards} cards of 600 W");
        // Of pods of one and two cards there is always one that fits what another leaves.
        assert!(!running.is_empty() && cards >= 7, "{cards} cards, {running:?}");
        placed += running.len();
        waiting.retain(|pod| !running.contains(&pod.key));
        for pod in running {
            embedded.delete_pod(&pod.namespace, &pod.name).await.expect("deletes");
        }
        core.index.flush().await.expect("runs");
        if waiting.len() < NODES {
            break;
        }
    }
    assert!(placed > PODS / 2 && over > 10, "{placed} placed, {over} over budget");
}
