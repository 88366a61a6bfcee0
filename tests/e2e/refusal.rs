//! The answer "no": its reason is in the pod's event, and it is taken back when devices appear.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;

use crate::binding::bound;
use crate::cluster::{Cluster, NAMESPACE, run};
use crate::objects::{self, MAXQ};
use crate::wait::{SOON, until};

/// Waits for a FailedScheduling event of the pod, and returns its text.
pub(crate) async fn refused(cluster: &Cluster, name: &str) -> Result<String> {
    let events: Api<Event> = Api::namespaced(cluster.client(), NAMESPACE);
    let about = ListParams::default().fields(&format!("involvedObject.name={name},reason=FailedScheduling"));
    until(&format!("pod {name} to be refused"), SOON, async || {
        let event = events
            .list(&about)
            .await?
            .items
            .pop()
            .context("no FailedScheduling event")?;
        event.message.context("an event without a message")
    })
    .await
}

#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn a_pod_that_cannot_fit_says_why_and_is_bound_when_devices_appear() {
    run(async |cluster: &mut Cluster| {
        let client = cluster.client();
        objects::mixed_node(cluster).await?;
        // The node is there beforehand: its appearance would make kube-scheduler look again, that of a slice does not.
        objects::node(client.clone(), "late-1", json!({})).await?;
        let pods: Api<Pod> = Api::namespaced(client, NAMESPACE);
        pods.create(&PostParams::default(), &objects::gpu_pod("three", 3)?)
            .await?;

        let message = refused(cluster, "three").await?;
        // Four cards are free; the reason must be what is wrong with them.
        ensure!(message.starts_with("0/2 nodes are available"), "{message}");
        ensure!(message.contains("class"), "nothing about classes: {message}");
        let pod = pods.get("three").await?;
        ensure!(
            pod.spec.and_then(|s| s.node_name).is_none(),
            "bound in spite of: {message}"
        );

        cluster.apply(&objects::slice("late-1", &[MAXQ; 4]), "").await?;
        let given = bound(cluster, "three").await?;
        ensure!(
            given.node == "late-1" && given.devices.len() == 3,
            "{}: {:?}",
            given.node,
            given.devices
        );
        Ok(())
    })
    .await;
}
