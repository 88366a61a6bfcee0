//! ResourceClaimTemplates of ours in the real API: what the sweeper takes and leaves, with RBAC in force, and what is not
//! taken for ours.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};
use wattlane::admission::Template;

use crate::cluster::{Cluster, NAMESPACE, WATTLANE, run, run_replicas};
use crate::objects::{self, DRIVER};
use crate::replicas::{A, B};
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

/// Pods labelled so are for the one replica or the other. One entry for both would lead the API server over one
/// connection to one of them.
const TO: &str = "example.com/replica";

/// One webhook a replica.
async fn ask_both(cluster: &Cluster) -> Result<()> {
    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
    let mut object = serde_json::to_value(webhooks.get("wattlane").await?)?;
    let one = object["webhooks"][0].clone();
    let of = |name: &str| -> Result<Value> {
        let mut webhook = one.clone();
        webhook["name"] = json!(format!("{name}.wattlane.dev"));
        webhook["failurePolicy"] = json!("Fail");
        webhook["clientConfig"]["url"] =
            json!(format!("https://127.0.0.1:{}/admission/mutate", cluster.replica(name)?));
        let expressions = webhook["objectSelector"]["matchExpressions"].as_array_mut();
        expressions
            .context("no objectSelector in webhook.yaml")?
            .push(json!({"key": TO, "operator": "In", "values": [name]}));
        Ok(webhook)
    };
    object["webhooks"] = json!([of(A)?, of(B)?]);
    webhooks
        .replace("wattlane", &PostParams::default(), &serde_json::from_value(object)?)
        .await?;
    Ok(())
}

fn pod_for(replica: &str, name: &str) -> Result<Pod> {
    let mut pod = objects::gpu_pod(name, 2)?;
    pod.metadata
        .labels
        .get_or_insert_default()
        .insert(TO.into(), replica.into());
    Ok(pod)
}

#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn two_replicas_that_make_one_template_at_once_make_one() {
    const PODS: usize = 20;
    const FRESH: &str = "fresh";
    run_replicas(async |cluster: &mut Cluster| {
        ask_both(cluster).await?;
        let there: Api<Pod> = Api::namespaced(cluster.client(), NAMESPACE);
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        for replica in [A, B] {
            until("the replica to be asked", SOON, async || {
                let pod = there.create(&dry_run, &pod_for(replica, "asks")?).await?;
                ensure!(
                    pod.spec
                        .is_some_and(|s| s.scheduler_name.as_deref() == Some("wattlane"))
                );
                Ok(())
            })
            .await?;
        }

        // And at once with it: the replicas may not know it yet.
        cluster.apply(&objects::namespace(FRESH, true), "").await?;
        let pods: Api<Pod> = Api::namespaced(cluster.client(), FRESH);
        let create = PostParams::default();
        let all = (0..PODS).map(|n| {
            let (pods, create) = (&pods, &create);
            async move {
                let pod = pod_for([A, B][n % 2], &format!("p-{n}"))?;
                pods.create(create, &pod).await.with_context(|| format!("p-{n}"))
            }
        });
        let created = futures::future::try_join_all(all).await?;

        let templates: Api<ResourceClaimTemplate> = Api::namespaced(cluster.client(), FRESH);
        let templates = templates.list(&ListParams::default()).await?.items;
        let names: Vec<_> = templates.iter().filter_map(|t| t.metadata.name.clone()).collect();
        let [only] = names.as_slice() else {
            anyhow::bail!("{names:?}");
        };
        for pod in &created {
            let claims = pod
                .spec
                .as_ref()
                .and_then(|s| s.resource_claims.clone())
                .unwrap_or_default();
            let named: Vec<_> = claims
                .iter()
                .filter_map(|c| c.resource_claim_template_name.as_deref())
                .collect();
            ensure!(named == [only], "{:?}: {named:?}", pod.metadata.name);
        }
        Ok(())
    })
    .await;
}
