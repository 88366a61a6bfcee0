//! The files of manifests/base, and how any object gets into the API server: as `kubectl apply -k` would do it.

use std::path::Path;

use anyhow::{Context, Result};
use kube::api::{Api, DynamicObject, Patch, PatchParams, ValidationDirective};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use serde_json::Value;

use super::wait::{SOON, until};

/// The namespace of kustomization.yaml.
pub(crate) const SYSTEM: &str = "wattlane-system";

/// The documents of one file.
pub(crate) fn manifest(file: &str) -> Result<Vec<Value>> {
    // loadtest is a package of its own, one folder further down.
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let base = above.map(|dir| dir.join("manifests/base")).find(|dir| dir.is_dir());
    let path = base.context("no manifests/base above this package")?.join(file);
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
