//! Pods that bring their own claims, and requests that must leave nothing behind.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};

use crate::binding::bound;
use crate::cluster::{Cluster, NAMESPACE, run};
use crate::objects::{self, DRIVER, MAXQ, SERVER};

fn claim_spec(count: u32, selector: &str) -> Value {
    let exactly = json!({
        "deviceClassName": DRIVER,
        "count": count,
        "selectors": [{"cel": {"expression": selector}}],
    });
    json!({"devices": {"requests": [{"name": "cards", "exactly": exactly}]}})
}

fn pod(name: &str, claim: Value) -> Result<Pod> {
    let mut claim = claim;
    claim["name"] = json!("gpus");
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "resourceClaims": [claim],
            "containers": [{"name": "c", "image": "example.com/c:1", "resources": {"claims": [{"name": "gpus"}]}}],
        },
    }))?)
}

#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn a_pod_with_claims_of_its_own_gets_what_they_say() {
    run(async |cluster: &mut Cluster| {
        let client = cluster.client();
        objects::mixed_node(cluster).await?;
        let of = |product: &str| format!("device.attributes['{DRIVER}'].productName == '{product}'");
        let v1 = "resource.k8s.io/v1";
        let template = json!({"apiVersion": v1, "kind": "ResourceClaimTemplate", "metadata": {"name": "two-maxq"},
            "spec": {"spec": claim_spec(2, &of(MAXQ))}});
        let claim = json!({"apiVersion": v1, "kind": "ResourceClaim", "metadata": {"name": "one-server"},
            "spec": claim_spec(1, &of(SERVER))});
        cluster.apply(&template, NAMESPACE).await?;
        cluster.apply(&claim, NAMESPACE).await?;
        let pods: Api<Pod> = Api::namespaced(client, NAMESPACE);
        let create = PostParams::default();
        pods.create(
            &create,
            &pod("by-template", json!({"resourceClaimTemplateName": "two-maxq"}))?,
        )
        .await?;
        pods.create(&create, &pod("by-claim", json!({"resourceClaimName": "one-server"}))?)
            .await?;

        for (name, count, product) in [("by-template", 2, MAXQ), ("by-claim", 1, SERVER)] {
            let given = bound(cluster, name).await?;
            ensure!(given.devices.len() == count, "{name} has {:?}", given.devices);
            ensure!(given.products.iter().eq([product]), "{name} has {:?}", given.products);
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn a_dry_run_shows_the_pod_and_leaves_no_template() {
    run(async |cluster: &mut Cluster| {
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let pods: Api<Pod> = Api::namespaced(cluster.client(), NAMESPACE);
        let pod = pods.create(&dry_run, &objects::gpu_pod("llm", 2)?).await?;
        let claims = pod.spec.and_then(|s| s.resource_claims).unwrap_or_default();
        ensure!(claims.len() == 1, "{claims:?}");
        let templates: Api<ResourceClaimTemplate> = Api::namespaced(cluster.client(), NAMESPACE);
        let made = templates.list(&ListParams::default()).await?.items;
        ensure!(made.is_empty(), "{made:?}");

        // The same without dry run, or the above would hold for a webhook that makes no templates at all.
        pods.create(&PostParams::default(), &objects::gpu_pod("llm", 2)?)
            .await?;
        let made = templates.list(&ListParams::default()).await?.items;
        ensure!(made.len() == 1, "{made:?}");
        Ok(())
    })
    .await;
}
