//! The way that works: from `nvidia.com/gpu: 2` to a bound pod with two cards of one class, and back to free cards.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::json;

use crate::audit::{Audit, Given};
use crate::cluster::{Cluster, NAMESPACE, run};
use crate::objects::{self, SERVER};
use crate::wait::{SOON, until};

/// Waits until the named pod is bound, and tells what it holds.
pub(crate) async fn bound(cluster: &Cluster, name: &str) -> Result<Given> {
    until(&format!("pod {name} to be bound"), SOON, async || {
        let audit = Audit::read(cluster.client()).await?;
        audit.check()?;
        let pod = audit
            .pods
            .iter()
            .find(|p| p.metadata.name.as_deref() == Some(name))
            .context("no such pod")?;
        audit.given(pod)?.with_context(|| format!("{:?}", pod.status))
    })
    .await
}

#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn a_deployment_gets_two_cards_of_one_class() {
    run(async |cluster: &mut Cluster| {
        let client = cluster.client();
        objects::mixed_node(cluster).await?;
        let deployment: Deployment = serde_json::from_value(json!({
            "metadata": {"name": "llm"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": "llm"}},
                "template": {"metadata": {"labels": {"app": "llm"}}, "spec": objects::gpu_pod_spec(2)},
            },
        }))?;
        Api::namespaced(client.clone(), NAMESPACE)
            .create(&PostParams::default(), &deployment)
            .await?;

        let audit = until("both replicas to be bound", SOON, async || {
            let audit = Audit::read(client.clone()).await?;
            audit.check()?;
            let bound = audit
                .pods
                .iter()
                .filter(|p| p.spec.as_ref().is_some_and(|s| s.node_name.is_some()))
                .count();
            ensure!(bound == 2, "{bound} of 2 are bound");
            Ok(audit)
        })
        .await?;

        for pod in &audit.pods {
            let given = audit.given(pod)?.context("bound")?;
            ensure!(
                given.node == "mixed-1" && given.devices.len() == 2,
                "{}: {:?}",
                given.node,
                given.devices
            );
            ensure!(given.products.len() == 1, "cards of two classes: {:?}", given.devices);
            let spec = pod.spec.as_ref().context("a pod without spec")?;
            ensure!(
                spec.scheduler_name.as_deref() == Some("wattlane"),
                "schedulerName {:?}",
                spec.scheduler_name
            );
            let limits = spec.containers[0]
                .resources
                .as_ref()
                .and_then(|r| r.limits.clone())
                .unwrap_or_default();
            ensure!(
                !limits.contains_key("nvidia.com/gpu"),
                "a device plugin would give these too: {limits:?}"
            );
        }
        // One template serves both: it is named by its content.
        let templates: Api<ResourceClaimTemplate> = Api::namespaced(client, NAMESPACE);
        let templates = templates.list(&ListParams::default()).await?.items;
        ensure!(templates.len() == 1, "{} templates", templates.len());
        let labels = templates[0].metadata.labels.clone().unwrap_or_default();
        let owner = labels.get("app.kubernetes.io/managed-by");
        ensure!(
            owner.is_some_and(|o| o == "wattlane"),
            "nothing says whose the template is: {labels:?}"
        );
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn a_deleted_pod_leaves_its_cards_to_the_next() {
    run(async |cluster: &mut Cluster| {
        let client = cluster.client();
        objects::node(client.clone(), "node-1", json!({})).await?;
        cluster.apply(&objects::slice("node-1", &[SERVER, SERVER]), "").await?;
        let pods: Api<Pod> = Api::namespaced(client, NAMESPACE);
        pods.create(&PostParams::default(), &objects::gpu_pod("first", 2)?)
            .await?;
        let first = bound(cluster, "first").await?;

        pods.create(&PostParams::default(), &objects::gpu_pod("second", 2)?)
            .await?;
        crate::refusal::refused(cluster, "second").await?;
        pods.delete("first", &DeleteParams::default().grace_period(0)).await?;

        let second = bound(cluster, "second").await?;
        ensure!(
            first.devices == second.devices,
            "{:?}, then {:?}",
            first.devices,
            second.devices
        );
        Ok(())
    })
    .await;
}
