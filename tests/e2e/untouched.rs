//! What wattlane must leave alone: namespaces that have not opted in.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;

use crate::cluster::{Cluster, run};
use crate::objects::{self, MAXQ, SERVER};
use crate::plane::Plane;
use crate::wait::{SOON, until};

async fn bound_by_the_default_scheduler(client: kube::Client, namespace: &str, pod: &Pod) -> Result<Pod> {
    let pods: Api<Pod> = Api::namespaced(client, namespace);
    let name = pods
        .create(&PostParams::default(), pod)
        .await?
        .metadata
        .name
        .context("a pod without a name")?;
    until("the default scheduler to bind it", SOON, async || {
        let pod = pods.get(&name).await?;
        let spec = pod.spec.as_ref().context("a pod without spec")?;
        ensure!(
            spec.scheduler_name.as_deref() == Some("default-scheduler"),
            "{:?}",
            spec.scheduler_name
        );
        ensure!(spec.node_name.is_some(), "{:?}", pod.status);
        Ok(pod)
    })
    .await
}

#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn a_namespace_without_the_label_is_as_if_wattlane_were_not_there() {
    run(async |cluster: &mut Cluster| {
        let client = cluster.client();
        cluster.apply(&objects::namespace("plain", false), "").await?;
        // A device plugin's four cards beside a DRA driver's four: the pod is about the former.
        objects::node(client.clone(), "node-1", json!({"nvidia.com/gpu": "4"})).await?;
        cluster
            .apply(&objects::slice("node-1", &[SERVER, MAXQ, SERVER, MAXQ]), "")
            .await?;

        let written = objects::gpu_pod("llm", 2)?;
        let pod = bound_by_the_default_scheduler(client.clone(), "plain", &written).await?;
        let (spec, written) = (
            pod.spec.context("a pod without spec")?,
            written.spec.context("a pod without spec")?,
        );
        ensure!(spec.resource_claims.is_none(), "{:?}", spec.resource_claims);
        ensure!(spec.runtime_class_name.is_none(), "{:?}", spec.runtime_class_name);
        let limits = |spec: &k8s_openapi::api::core::v1::PodSpec| spec.containers[0].resources.clone()?.limits;
        ensure!(limits(&spec) == limits(&written), "{:?}", limits(&spec));
        ensure!(pod.metadata.annotations.is_none(), "{:?}", pod.metadata.annotations);
        ensure!(pod.metadata.labels.is_none(), "{:?}", pod.metadata.labels);
        let claims = Api::<ResourceClaim>::all(client.clone())
            .list(&ListParams::default())
            .await?
            .items;
        let templates = Api::<ResourceClaimTemplate>::all(client)
            .list(&ListParams::default())
            .await?
            .items;
        ensure!(claims.is_empty() && templates.is_empty(), "{claims:?} {templates:?}");
        Ok(())
    })
    .await;
}

/// Without it, a broken control plane would look like a broken wattlane.
#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn the_control_plane_works_without_wattlane() -> Result<()> {
    let plane = Box::pin(Plane::start()).await?;
    let client = plane.client();
    let version = client.apiserver_version().await?;
    ensure!(version.git_version.starts_with("v1.3"), "{version:?}");
    let resources = client.list_api_group_resources("resource.k8s.io/v1").await?;
    ensure!(
        resources.resources.iter().any(|r| r.name == "resourceslices"),
        "{resources:?}"
    );
    objects::node(client.clone(), "node-1", json!({})).await?;
    let pod = serde_json::from_value(json!({
        "metadata": {"name": "plain"},
        "spec": {"containers": [{"name": "c", "image": "example.com/c:1"}]},
    }))?;
    bound_by_the_default_scheduler(client, "default", &pod).await?;
    Ok(())
}
