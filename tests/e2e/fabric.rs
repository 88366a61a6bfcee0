//! Devices with binding conditions: the pod is bound when their driver says they are ready, and not before.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::binding::bound;
use crate::cluster::{Cluster, NAMESPACE, run};
use crate::objects::{self, DRIVER, SERVER};
use crate::wait::{SOON, until};

/// As a driver that attaches devices on demand publishes them.
fn fabric_slice(node: &str, taints: &Value) -> Value {
    let mut slice = objects::slice(node, &[SERVER]);
    let device = &mut slice["spec"]["devices"][0];
    device["bindsToNode"] = json!(true);
    device["bindingConditions"] = json!(["example.com/Attached"]);
    device["bindingFailureConditions"] = json!(["example.com/AttachFailed"]);
    device["taints"] = taints.clone();
    slice
}

async fn fabric_node(cluster: &Cluster, name: &str) -> Result<()> {
    objects::node(cluster.client(), name, json!({})).await?;
    cluster.apply(&fabric_slice(name, &json!([])), "").await
}

/// The one claim, once it is allocated; and that its pod is not bound.
async fn waiting(cluster: &Cluster, pod: &str) -> Result<ResourceClaim> {
    let claims: Api<ResourceClaim> = Api::namespaced(cluster.client(), NAMESPACE);
    let claim = until("the claim to be allocated", SOON, async || {
        let claims = claims.list(&ListParams::default()).await?.items;
        let allocated = claims
            .into_iter()
            .find(|c| c.status.as_ref().is_some_and(|s| s.allocation.is_some()));
        allocated.context("no claim is allocated")
    })
    .await?;
    until("the pod to wait for its device", SOON, async || {
        let events: Api<Event> = Api::namespaced(cluster.client(), NAMESPACE);
        let said = events.list(&ListParams::default()).await?.items;
        let words: Vec<_> = said.into_iter().filter_map(|e| e.message).collect();
        let told = words
            .iter()
            .any(|w| w.contains("waiting for ResourceClaim") && w.contains("example.com/Attached"));
        ensure!(told, "events: {words:?}");
        Ok(())
    })
    .await?;
    let pods: Api<Pod> = Api::namespaced(cluster.client(), NAMESPACE);
    let node = pods.get(pod).await?.spec.and_then(|s| s.node_name);
    ensure!(node.is_none(), "bound to {node:?} before its device is ready");
    Ok(claim)
}

/// What the driver writes.
async fn report(cluster: &Cluster, claim: &ResourceClaim, kind: &str) -> Result<()> {
    let claims: Api<ResourceClaim> = Api::namespaced(cluster.client(), NAMESPACE);
    let name = claim.metadata.name.as_deref().context("a claim has a name")?;
    let allocation = claim.status.as_ref().and_then(|s| s.allocation.as_ref());
    let results = allocation
        .and_then(|a| a.devices.as_ref())
        .and_then(|d| d.results.as_ref());
    let given = results.and_then(|r| r.first()).context("a device is given")?;
    ensure!(given.driver == DRIVER, "{given:?}");
    let condition = json!({"type": kind, "status": "True", "reason": "Fabric", "message": "said the switch",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let device = json!({"driver": given.driver, "pool": given.pool, "device": given.device, "conditions": [condition]});
    let patch = Patch::Merge(json!({"status": {"devices": [device]}}));
    claims.patch_status(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn a_pod_is_bound_when_its_device_is_ready() {
    run(async |cluster: &mut Cluster| {
        fabric_node(cluster, "fabric-1").await?;
        let pods: Api<Pod> = Api::namespaced(cluster.client(), NAMESPACE);
        pods.create(&PostParams::default(), &objects::gpu_pod("llm", 1)?)
            .await?;
        let claim = waiting(cluster, "llm").await?;
        let status = claim.status.as_ref().context("allocated")?;
        ensure!(status.reserved_for.as_ref().is_some_and(|r| r.len() == 1), "{status:?}");
        let stamped = status.allocation.as_ref().and_then(|a| a.allocation_timestamp.as_ref());
        ensure!(stamped.is_some(), "no allocationTimestamp: nothing could ever time out");
        report(cluster, &claim, "example.com/Attached").await?;
        let given = bound(cluster, "llm").await?;
        ensure!(given.node == "fabric-1", "bound to {}", given.node);
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn a_device_that_fails_is_given_back_and_the_pod_goes_elsewhere() {
    run(async |cluster: &mut Cluster| {
        fabric_node(cluster, "fabric-1").await?;
        let pods: Api<Pod> = Api::namespaced(cluster.client(), NAMESPACE);
        pods.create(&PostParams::default(), &objects::gpu_pod("llm", 1)?)
            .await?;
        let claim = waiting(cluster, "llm").await?;
        objects::node(cluster.client(), "plain-1", json!({})).await?;
        cluster.apply(&objects::slice("plain-1", &[SERVER]), "").await?;
        // The driver keeps others, and the same pod, from the device; then it says that it failed.
        let taint = json!([{"key": "example.com/broken", "effect": "NoSchedule"}]);
        cluster.apply(&fabric_slice("fabric-1", &taint), "").await?;
        report(cluster, &claim, "example.com/AttachFailed").await?;
        let given = bound(cluster, "llm").await?;
        ensure!(given.node == "plain-1", "bound to {}", given.node);
        Ok(())
    })
    .await;
}
