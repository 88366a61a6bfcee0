//! The files of manifests/base, and how any object gets into the API server: as `kubectl apply -k` would do it.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, ValidationDirective};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use serde_json::{Value, json};

use crate::plane::Plane;
use crate::users::User;
use crate::wait::{SOON, until};

/// The namespace of kustomization.yaml.
pub(crate) const SYSTEM: &str = "wattlane-system";

/// The documents of one file.
pub(crate) fn manifest(file: &str) -> Result<Vec<Value>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/base").join(file);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    serde_saphyr::from_str_multiple(&text).with_context(|| path.display().to_string())
}

/// Server-side apply; an unknown or doubled field is an error. `namespace` is for namespaced objects that name none.
pub(crate) async fn apply(client: &kube::Client, object: &Value, namespace: &str) -> Result<()> {
    let mut object: DynamicObject = serde_json::from_value(object.clone())?;
    let types = object.types.clone().context("an object without apiVersion and kind")?;
    let name = object.metadata.name.clone().context("an object without a name")?;
    let (resource, capabilities) = pinned_kind(client, &GroupVersionKind::try_from(&types)?).await?;
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => {
            let namespace = object.metadata.namespace.get_or_insert_with(|| namespace.to_owned());
            Api::namespaced_with(client.clone(), namespace, &resource)
        }
    };
    let params = PatchParams {
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::apply("e2e").force()
    };
    // kube-system, for one, appears a moment after the API server is ready.
    until(&format!("{} {name}", types.kind), SOON, async || {
        api.patch(&name, &params, &Patch::Apply(&object))
            .await
            .map(drop)
            .map_err(Into::into)
    })
    .await
}

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
