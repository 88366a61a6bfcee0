//! Objects the tests are about, as a user or a DRA driver would write them, and nodes that count as healthy.

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

pub(crate) use crate::plane::node::node;

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
