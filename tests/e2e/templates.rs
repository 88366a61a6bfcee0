//! ResourceClaimTemplates of ours in the real API: what the sweeper takes and leaves, with RBAC in force, and what is not
//! taken for ours.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};
use wattlane::admission::Template;

use crate::cluster::{Cluster, NAMESPACE, WATTLANE, run};
use crate::objects::{self, DRIVER};
use crate::wait::{SOON, until};

/// As wattlane would have made it long ago.
fn old(count: u32) -> Value {
    let template = Template {
        device_class: DRIVER.into(),
        count,
    };
    let mut object = template.object(NAMESPACE);
    object["metadata"]["annotations"] = json!({"wattlane.dev/last-used": "2026-01-01T00:00:00Z"});
    object
}

fn name(object: &Value) -> Result<String> {
    Ok(object["metadata"]["name"].as_str().context("no name")?.to_owned())
}

async fn names(cluster: &Cluster) -> Result<Vec<String>> {
    let templates: Api<ResourceClaimTemplate> = Api::namespaced(cluster.client(), NAMESPACE);
    let items = templates.list(&ListParams::default()).await?.items;
    Ok(items.into_iter().filter_map(|t| t.metadata.name).collect())
}

#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn templates_that_nobody_needs_go_and_no_others() {
    run(async |cluster: &mut Cluster| {
        let client = cluster.client();
        let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
        let create = PostParams::default();
        cluster.apply(&old(2), NAMESPACE).await?;
        cluster.apply(&old(3), NAMESPACE).await?;
        // Old, and used again: a pod of four cards comes in, and is gone before anybody looks for it.
        cluster.apply(&old(4), NAMESPACE).await?;
        pods.create(&create, &objects::gpu_pod("four", 4)?).await?;
        pods.delete("four", &kube::api::DeleteParams::default().grace_period(0))
            .await?;
        // Named by a pod that has nothing to do with us.
        let names_it: Pod = serde_json::from_value(json!({
            "metadata": {"name": "names-it", "labels": {"wattlane.dev/webhook": "ignore"}},
            "spec": {
                "schedulerName": "nobody",
                "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": name(&old(3))?}],
                "containers": [{"name": "c", "image": "example.com/c:1"}],
            },
        }))?;
        pods.create(&create, &names_it).await?;
        let mut foreign = old(5);
        foreign["metadata"]["labels"] = json!({});
        cluster.apply(&foreign, NAMESPACE).await?;

        // It looks when it starts, and every few minutes.
        cluster.kill(WATTLANE)?;
        cluster.revive(WATTLANE).await?;
        let gone = name(&old(2))?;
        until("the unused template to go", SOON, async || {
            let there = names(cluster).await?;
            ensure!(!there.contains(&gone), "{there:?}");
            Ok(there)
        })
        .await?;
        let there = names(cluster).await?;
        for kept in [old(3), old(4), foreign] {
            ensure!(there.contains(&name(&kept)?), "{kept} is gone: {there:?}");
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn a_template_of_somebody_else_is_refused_and_not_used() {
    run(async |cluster: &mut Cluster| {
        let pods: Api<Pod> = Api::namespaced(cluster.client(), NAMESPACE);
        let mut unlabelled = old(2);
        unlabelled["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "helm"});
        let mut other = old(3);
        other["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] = json!(1);
        for (count, template, words) in [
            (2, unlabelled, "without wattlane's labels"),
            (3, other, "with other content"),
        ] {
            cluster.apply(&template, NAMESPACE).await?;
            let refused = pods
                .create(&PostParams::default(), &objects::gpu_pod("llm", count)?)
                .await;
            let Err(kube::Error::Api(status)) = refused else {
                anyhow::bail!("{count}: {refused:?}");
            };
            ensure!(status.code == 422 && status.message.contains(words), "{status:?}");
            ensure!(status.message.contains(&name(&template)?), "{status:?}");
        }
        Ok(())
    })
    .await;
}
