//! The cluster that pods come to: nodes of eight cards, one claim template a pod.

use anyhow::Result;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaimTemplate, ResourceSlice};
use k8s_openapi::serde::Serialize;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use super::plane::{Plane, manifests, node};
use crate::fixture;

pub(crate) const NAMESPACE: &str = "loop";
pub(crate) const CARDS_A_POD: usize = 2;
const DRIVER: &str = "gpu.nvidia.com";
/// Writes at one time while the cluster is set up.
const AT_ONCE: usize = 16;

/// Everything but pods, and the objects of manifests/base that wattlane and its scheduler need.
pub(crate) async fn build(plane: &Plane, nodes: usize, templates: usize) -> Result<()> {
    let client = plane.client();
    for file in ["namespace.yaml", "rbac.yaml", "certs.yaml", "scheduler.yaml"] {
        for object in manifests::manifest(file)? {
            // Deployments would become pods that nothing here can run.
            if object["kind"] != "Deployment" {
                manifests::apply(&client, &object, manifests::SYSTEM).await?;
            }
        }
    }
    create(
        &Api::<Namespace>::all(client.clone()),
        json!({"metadata": {"name": NAMESPACE}}),
    )
    .await?;
    let expression = format!("device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'");
    let class = json!({"metadata": {"name": DRIVER}, "spec": {"selectors": [{"cel": {"expression": expression}}]}});
    create(&Api::<DeviceClass>::all(client.clone()), class).await?;
    let slices: Api<ResourceSlice> = Api::all(client.clone());
    let made = stream::iter(0..nodes).map(async |i| {
        node::node(client.clone(), &fixture::node_name(i), json!({})).await?;
        create(&slices, fixture::slice(i)).await
    });
    made.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    let all: Api<ResourceClaimTemplate> = Api::namespaced(client.clone(), NAMESPACE);
    let request = json!({"name": "gpu", "exactly": {"deviceClassName": DRIVER, "count": CARDS_A_POD}});
    let made = stream::iter(0..templates).map(async |i| {
        let spec = json!({"spec": {"devices": {"requests": [request]}}});
        create(&all, json!({"metadata": {"name": template(i)}, "spec": spec})).await
    });
    made.buffer_unordered(AT_ONCE).try_collect::<()>().await
}

fn template(i: usize) -> String {
    format!("pod-{i:05}")
}

/// The pod of this number in a wave.
pub(crate) fn pod(wave: &str, i: usize, scheduler: &str) -> Result<Pod> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": format!("{wave}-{i:05}"), "labels": {"wave": wave}},
        "spec": {
            "schedulerName": scheduler,
            "containers": [{
                "name": "server", "image": "example.com/llm:1",
                "args": ["--model", "/models/llm", "--tensor-parallel-size", "2"],
                "resources": {"requests": {"cpu": "8", "memory": "64Gi"}, "limits": {"memory": "64Gi"}, "claims": [{"name": "gpu"}]},
            }],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": template(i)}],
        },
    }))?)
}

async fn create<K>(api: &Api<K>, object: Value) -> Result<()>
where
    K: Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    api.create(&PostParams::default(), &serde_json::from_value(object)?)
        .await?;
    Ok(())
}
