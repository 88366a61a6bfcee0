//! Certificates that wattlane keeps itself: from an empty Secret to a bound pod with nothing but the manifests' rights,
//! and through the change of the CA with `failurePolicy: Fail`, which lets no failed call pass.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::cluster::{Cluster, NAMESPACE, run_kept};
use crate::manifests::SYSTEM;
use crate::objects;
use crate::wait::{SOON, until};

/// Seconds: a CA, its announcement, a certificate.
const LIFETIMES: &str = "90,30,30";
const MOST_PODS: usize = 20_000;

async fn part(secrets: &Api<Secret>, secret: &str, key: &str) -> Result<String> {
    let data = secrets.get(secret).await?.data.unwrap_or_default();
    let bytes = &data.get(key).with_context(|| format!("no {key} in {secret}"))?.0;
    Ok(String::from_utf8(bytes.clone())?)
}

/// PEM without its line breaks.
fn joined(pem: &str) -> String {
    pem.split_whitespace().collect()
}

#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn certificates_and_ca_change_under_pods_that_must_be_admitted() {
    run_kept(LIFETIMES, async |cluster: &mut Cluster| {
        let client = cluster.client();
        let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
        let secrets: Api<Secret> = Api::namespaced(client.clone(), SYSTEM);
        let webhooks: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
        objects::mixed_node(cluster).await?;
        pods.create(&PostParams::default(), &objects::gpu_pod("first", 2)?)
            .await?;
        until("a bound pod", SOON, async || {
            let spec = pods.get("first").await?.spec.context("no spec")?;
            ensure!(spec.node_name.is_some(), "not bound");
            Ok(())
        })
        .await?;

        let fail = json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"}]);
        let fail: json_patch::Patch = serde_json::from_value(fail)?;
        webhooks
            .patch("wattlane", &PatchParams::default(), &Patch::Json::<()>(fail))
            .await?;

        let signer = part(&secrets, "wattlane-certs", "signing-ca.crt").await?;
        let (mut certificates, mut tokens) = (BTreeSet::new(), BTreeSet::new());
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let mut after = 0;
        for n in 0.. {
            ensure!(n < MOST_PODS, "no other CA after {n} pods");
            let pod = pods
                .create(&dry_run, &objects::gpu_pod(&format!("pod-{n}"), 1)?)
                .await
                .with_context(|| format!("pod {n}, after {} certificates", certificates.len()))?;
            let scheduler = pod.spec.and_then(|s| s.scheduler_name);
            ensure!(
                scheduler.as_deref() == Some("wattlane"),
                "pod {n} was not seen: {scheduler:?}"
            );
            if n % 20 == 0 {
                let now = part(&secrets, "wattlane-certs", "tls.crt").await?;
                let new = certificates.insert(now);
                tokens.insert(part(&secrets, "wattlane-certs", "admission-path").await?);
                let other = part(&secrets, "wattlane-certs", "signing-ca.crt").await? != signer;
                // A certificate of the new CA, and some pods more.
                after += usize::from(other && (new || after > 0));
                if after > 5 {
                    break;
                }
            }
        }
        ensure!(certificates.len() >= 4, "{} certificates", certificates.len());
        // With each certificate a new path of admission.
        ensure!(tokens.len() >= 4, "{} tokens", tokens.len());
        let bundle = part(&secrets, "wattlane-certs", "ca.crt").await?;
        let signs = part(&secrets, "wattlane-certs", "signing-ca.crt").await?;
        let certificates_of =
            |pem: &str| -> Vec<String> { pem.split_inclusive("END CERTIFICATE-----").map(joined).collect() };
        ensure!(
            certificates_of(&bundle).contains(&joined(&signs)),
            "the signer is not in the bundle"
        );
        // kubelets would mount this one for the scheduler.
        ensure!(
            part(&secrets, "wattlane-scheduler-client", "ca.crt").await? == bundle,
            "two bundles"
        );

        // Somebody resets the path, and every pod is admitted all the same.
        let hooks = webhooks.get("wattlane").await?.webhooks.context("no webhooks")?;
        let url = hooks[0].client_config.url.clone().context("no address")?;
        let (bare, _) = url.rsplit_once('/').context("no token in it")?;
        let reset = json!([{"op": "replace", "path": "/webhooks/0/clientConfig/url", "value": bare}]);
        let reset: json_patch::Patch = serde_json::from_value(reset)?;
        webhooks
            .patch("wattlane", &PatchParams::default(), &Patch::Json::<()>(reset))
            .await?;
        for n in 0.. {
            let pod = pods
                .create(&dry_run, &objects::gpu_pod(&format!("reset-{n}"), 1)?)
                .await?;
            let scheduler = pod.spec.and_then(|s| s.scheduler_name);
            ensure!(
                scheduler.as_deref() == Some("wattlane"),
                "pod {n} was not seen: {scheduler:?}"
            );
            let hooks = webhooks.get("wattlane").await?.webhooks.context("no webhooks")?;
            if n > 20 && hooks[0].client_config.url.as_ref().is_some_and(|u| u != bare) {
                break;
            }
            ensure!(n < MOST_PODS, "the path stays as it was reset");
        }

        // Somebody resets the bundle.
        let reset = json!([{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": ""}]);
        let reset: json_patch::Patch = serde_json::from_value(reset)?;
        webhooks
            .patch("wattlane", &PatchParams::default(), &Patch::Json::<()>(reset))
            .await?;
        until("the caBundle to be put right", SOON, async || {
            let hooks = webhooks.get("wattlane").await?.webhooks.context("no webhooks")?;
            ensure!(
                hooks[0]
                    .client_config
                    .ca_bundle
                    .as_ref()
                    .is_some_and(|b| !b.0.is_empty()),
                "empty"
            );
            pods.create(&dry_run, &objects::gpu_pod("last", 1)?).await?;
            Ok(())
        })
        .await
    })
    .await;
}
