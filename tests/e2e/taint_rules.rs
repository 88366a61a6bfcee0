//! An administrator's DeviceTaintRule keeps pods from devices, in a cluster that has the feature (off by default in 1.36).

use anyhow::ensure;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use kube::core::ApiResource;
use serde_json::json;

use crate::binding::bound;
use crate::cluster::{Cluster, NAMESPACE, run_with};
use crate::objects::{self, DRIVER, SERVER};
use crate::refusal::refused;

pub(crate) const FLAGS: [&str; 2] = [
    "--feature-gates=DRADeviceTaints=true,DRADeviceTaintRules=true",
    "--runtime-config=resource.k8s.io/v1beta2=true",
];

#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn a_tainted_device_is_given_when_the_rule_is_gone() {
    run_with(&FLAGS, async |cluster: &mut Cluster| {
        let client = cluster.client();
        objects::node(client.clone(), "node-1", json!({})).await?;
        cluster.apply(&objects::slice("node-1", &[SERVER, SERVER]), "").await?;
        let rule = json!({"apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRule", "metadata": {"name": "repair"},
            "spec": {"deviceSelector": {"driver": DRIVER, "pool": "node-1", "device": "gpu-0"},
                "taint": {"key": "example.com/repair", "effect": "NoSchedule"}}});
        cluster.apply(&rule, "").await?;
        let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
        pods.create(&PostParams::default(), &objects::gpu_pod("both", 2)?).await?;
        let said = refused(cluster, "both").await?;
        ensure!(said.contains("gpu-0 has taint example.com/repair:NoSchedule"), "{said}");
        let resource = ApiResource {
            group: "resource.k8s.io".to_owned(),
            version: "v1beta2".to_owned(),
            api_version: "resource.k8s.io/v1beta2".to_owned(),
            kind: "DeviceTaintRule".to_owned(),
            plural: "devicetaintrules".to_owned(),
        };
        let rules: Api<DynamicObject> = Api::all_with(client, &resource);
        rules.delete("repair", &DeleteParams::default()).await?;
        // Poked: kube-scheduler does not know that this helps.
        let given = bound(cluster, "both").await?;
        ensure!(given.devices.len() == 2, "{:?}", given.devices);
        Ok(())
    })
    .await;
}
