//! Objects the tests are about, as a user or a DRA driver would write them, and nodes that count as healthy.

use anyhow::Result;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::cluster::Cluster;

pub(crate) const DRIVER: &str = "gpu.nvidia.com";
/// Two products of one family, 600 W and 300 W: what wattlane must not mix.
pub(crate) const SERVER: &str = "NVIDIA RTX PRO 6000 Blackwell Server Edition";
pub(crate) const MAXQ: &str = "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition";

pub(crate) fn namespace(name: &str, enabled: bool) -> Value {
    let labels = if enabled {
        json!({"wattlane.dev/enabled": "true"})
    } else {
        json!({})
    };
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

pub(crate) fn device_class() -> Value {
    let expression = format!("device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'");
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": DRIVER},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    })
}

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

/// The mixed node of the story, `mixed-1`: two cards of 600 W and two of 300 W, in turns.
pub(crate) async fn mixed_node(cluster: &Cluster) -> Result<()> {
    node(cluster.client(), "mixed-1", json!({})).await?;
    cluster
        .apply(&slice("mixed-1", &[SERVER, MAXQ, SERVER, MAXQ]), "")
        .await?;
    Ok(())
}

/// What a node's DRA driver publishes: one card for each product name.
pub(crate) fn slice(node: &str, products: &[&str]) -> Value {
    let device = |(i, product): (usize, &&str)| {
        json!({
            "name": format!("gpu-{i}"),
            "attributes": {
                "type": {"string": "gpu"},
                "uuid": {"string": format!("GPU-{node}-{i}")},
                "productName": {"string": product},
            },
            "capacity": {"memory": {"value": "96Gi"}},
        })
    };
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": format!("{node}-{DRIVER}")},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": products.iter().enumerate().map(device).collect::<Vec<_>>(),
        },
    })
}

/// The portable manifest: so many GPUs, and not a word about wattlane.
pub(crate) fn gpu_pod(name: &str, gpus: u32) -> Result<Pod> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": gpu_pod_spec(gpus),
    }))?)
}

pub(crate) fn gpu_pod_spec(gpus: u32) -> Value {
    json!({"containers": [{
        "name": "server",
        "image": "example.com/llm:1",
        "resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}},
    }]})
}
