//! That the API server takes every manifest, and that wattlane does with it what is said there.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

pub(crate) use crate::plane::manifests::{SYSTEM, apply, manifest};

use crate::plane::Plane;
use crate::process::free_ports;
use crate::users::User;
use crate::wait::{SOON, until};

#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn every_manifest_is_accepted_and_its_role_is_enforced() {
    let plane = Box::pin(Plane::start()).await.expect("a control plane");
    let outcome = async {
        let kustomization = manifest("kustomization.yaml")?;
        let files = kustomization[0]["resources"].as_array().context("no resources")?;
        ensure!(
            kustomization[0]["namespace"] == SYSTEM,
            "{}",
            kustomization[0]["namespace"]
        );
        for file in files {
            for object in manifest(file.as_str().context("a resource that is no file name")?)? {
                apply(&plane.client(), &object, SYSTEM).await?;
            }
        }
        // What wattlane puts into the webhook configuration stays when the manifests are applied again.
        let hooks: Api<MutatingWebhookConfiguration> = Api::all(plane.client());
        let bundle = wattlane::certs::Authority::new()?.pair().cert.clone();
        let put = json!([{"op": "add", "path": "/webhooks/0/clientConfig/service/path", "value": "/admission/mutate/x"},
            {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": STANDARD.encode(&bundle)}]);
        let put: json_patch::Patch = serde_json::from_value(put)?;
        hooks
            .patch("wattlane", &PatchParams::default(), &Patch::Json::<()>(put))
            .await?;
        for object in manifest("webhook.yaml")? {
            apply(&plane.client(), &object, SYSTEM).await?;
        }
        let config = hooks
            .get("wattlane")
            .await?
            .webhooks
            .context("no webhooks")?
            .remove(0)
            .client_config;
        let path = config.service.and_then(|s| s.path);
        ensure!(path.as_deref() == Some("/admission/mutate/x"), "{path:?}");
        ensure!(
            config.ca_bundle.is_some_and(|b| b.0 == bundle.as_bytes()),
            "no caBundle"
        );
        // All other tests say that wattlane's role is enough. They could not, if the API server allowed everything.
        let wattlane = plane.connect(User::Wattlane).await?;
        let all = ListParams::default();
        until("the role to be in force", SOON, async || {
            Ok(Api::<Pod>::all(wattlane.clone()).list(&all).await.map(drop)?)
        })
        .await?;
        let secrets = Api::<Secret>::all(wattlane.clone()).list(&all).await;
        ensure!(
            matches!(&secrets, Err(kube::Error::Api(e)) if e.code == 403),
            "secrets: {secrets:?}"
        );
        let other = Api::<Secret>::namespaced(wattlane.clone(), SYSTEM).get("other").await;
        ensure!(
            matches!(&other, Err(kube::Error::Api(e)) if e.code == 403),
            "another secret of its own namespace: {other:?}"
        );
        let deleted = Api::<Pod>::namespaced(wattlane, SYSTEM)
            .delete("any", &DeleteParams::default())
            .await;
        ensure!(
            matches!(&deleted, Err(kube::Error::Api(e)) if e.code == 403),
            "deletes pods: {deleted:?}"
        );
        let lease = Api::<Lease>::namespaced(plane.connect(User::Wattlane).await?, SYSTEM)
            .get("wattlane-scheduler")
            .await;
        ensure!(
            matches!(&lease, Err(kube::Error::Api(e)) if e.code == 403),
            "reads the Lease of another: {lease:?}"
        );
        Ok(())
    };
    outcome.await.expect("all manifests applied, and the role in force");
}

/// Every object of manifests/base but the Deployments, which would become pods that nothing here can run.
async fn install(plane: &Plane) -> Result<()> {
    let kustomization = manifest("kustomization.yaml")?;
    let files = kustomization[0]["resources"].as_array().context("no resources")?;
    for file in files {
        for object in manifest(file.as_str().context("a resource that is no file name")?)? {
            if object["kind"] != "Deployment" {
                apply(&plane.client(), &object, SYSTEM).await?;
            }
        }
    }
    Ok(())
}

/// That a Service is reached, no test can see here: there is no network of a cluster. That wattlane puts into the
/// configuration what the API server takes for one, and what it is known by, this one does.
#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn the_webhook_of_the_manifests_gets_its_path_and_its_bundle() {
    let mut plane = Box::pin(Plane::start()).await.expect("a control plane");
    let outcome = async {
        install(&plane).await?;
        let secrets = Api::<Secret>::namespaced(plane.client(), SYSTEM);
        let part = async |key: &str| -> Result<String> {
            let data = secrets.get("wattlane-certs").await?.data.unwrap_or_default();
            Ok(String::from_utf8(
                data.get(key).with_context(|| format!("no {key}"))?.0.clone(),
            )?)
        };
        // What an earlier version had put there.
        let old = json!({"data": {"admission-path": STANDARD.encode("AbCdEfGhIjKlMnOpQrStUvWxYz01-_-_")}});
        secrets
            .patch("wattlane-certs", &PatchParams::default(), &Patch::Merge(old))
            .await?;
        let [listen, admin] = free_ports()?;
        let mut serve = Command::new(env!("CARGO_BIN_EXE_wattlane"));
        serve
            .args(["serve", "--cluster", "kube"])
            .args(["--listen", &format!("127.0.0.1:{listen}")])
            .args(["--admin-listen", &format!("127.0.0.1:{admin}")])
            .args(["--tls-secret", "wattlane-system/wattlane-certs"])
            .args(["--tls-client-secret", "wattlane-system/wattlane-scheduler-client"])
            .args(["--tls-name", "wattlane.wattlane-system.svc"])
            .env("KUBECONFIG", plane.kubeconfig(User::Wattlane));
        plane.run("wattlane", serve)?;
        plane.healthy(&format!("http://127.0.0.1:{admin}/readyz")).await?;

        let hooks: Api<MutatingWebhookConfiguration> = Api::all(plane.client());
        let in_place = async || -> Result<String> {
            let config = hooks
                .get("wattlane")
                .await?
                .webhooks
                .context("no webhooks")?
                .remove(0)
                .client_config;
            ensure!(config.url.is_none(), "{:?}", config.url);
            let service = config.service.context("no service")?;
            ensure!(service.namespace == SYSTEM && service.name == "wattlane", "{service:?}");
            let (bundle, token) = (part("ca.crt").await?, part("admission-path").await?);
            let there = config.ca_bundle.map(|b| b.0).unwrap_or_default();
            ensure!(
                !bundle.is_empty() && there == bundle.as_bytes(),
                "the caBundle is another"
            );
            let path = service.path.context("no path")?;
            ensure!(path == format!("/admission/mutate/{token}"), "{path}");
            Ok(token)
        };
        let first = until("path and caBundle", SOON, in_place).await?;
        ensure!(first.len() == 48, "{} characters", first.len());

        // Applied again, as it is with an upgrade.
        install(&plane).await?;
        ensure!(in_place().await? == first, "another token");
        // The way to another one, in the words of certs/README.md.
        let delete: json_patch::Patch =
            serde_json::from_value(json!([{"op": "remove", "path": "/data/admission-path"}]))?;
        secrets
            .patch("wattlane-certs", &PatchParams::default(), &Patch::Json::<()>(delete))
            .await?;
        let second = until("another path, which is announced for a minute", 3 * SOON, async || {
            let token = in_place().await?;
            ensure!(token != first, "the old one");
            Ok(token)
        })
        .await?;
        let log = plane.process("wattlane")?.log();
        ensure!(!log.contains("not all could be done"), "{log}");
        ensure!(!log.contains(&first) && !log.contains(&second), "a token in the log");
        Ok(())
    };
    let outcome: Result<()> = outcome.await;
    if outcome.is_err() {
        plane.report();
    }
    outcome.expect("path and caBundle are put in");
}
