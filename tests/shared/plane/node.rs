//! Nodes that count as healthy without a kubelet: nobody runs the controller that would miss its heartbeats.

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

/// A node that kube-scheduler takes for a healthy machine; `extended` are resources as a device plugin reports them.
/// Ready before the taint goes: a pod that meets the taint has a FailedScheduling event that is not about GPUs.
pub(crate) async fn node(client: kube::Client, name: &str, extended: Value) -> Result<()> {
    let nodes: Api<Node> = Api::all(client);
    let node = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    nodes.create(&PostParams::default(), &node).await?;
    let mut resources = json!({"cpu": "64", "memory": "512Gi", "pods": "110"});
    if let (Some(all), Value::Object(extended)) = (resources.as_object_mut(), extended) {
        all.extend(extended);
    }
    let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "there is no kubelet",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = json!({"status": {"capacity": resources, "allocatable": resources, "conditions": [ready]}});
    let params = PatchParams::default();
    nodes.patch_status(name, &params, &Patch::Merge(status)).await?;
    nodes
        .patch(name, &params, &Patch::Merge(json!({"spec": {"taints": null}})))
        .await?;
    Ok(())
}
