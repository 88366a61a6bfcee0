//! Every pod of the manifests passes the strictest Pod Security level, by the API server's own admission.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use crate::manifests::{SYSTEM, apply, manifest};
use crate::plane::Plane;

async fn dry_run(client: &kube::Client, name: &str, spec: &Value) -> kube::Result<Pod> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), SYSTEM);
    let mut pod: Pod = serde_json::from_value(json!({"metadata": {"name": name}})).map_err(kube::Error::SerdeError)?;
    pod.spec = Some(serde_json::from_value(spec.clone()).map_err(kube::Error::SerdeError)?);
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    pods.create(&params, &pod).await
}

async fn every_pod(client: &kube::Client) -> Result<()> {
    let namespace = manifest("namespace.yaml")?;
    ensure!(
        namespace[0]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted",
        "{namespace:?}"
    );
    apply(client, &namespace[0], "").await?;
    let runtime: RuntimeClass = serde_json::from_value(json!({"metadata": {"name": "nvidia"}, "handler": "nvidia"}))?;
    Api::all(client.clone())
        .create(&PostParams::default(), &runtime)
        .await?;
    let mut tried = vec![];
    for folder in ["base", "probe"] {
        let kustomization = manifest(&format!("../{folder}/kustomization.yaml"))?;
        let files = kustomization[0]["resources"].as_array().context("no resources")?;
        for file in files.iter().filter_map(Value::as_str) {
            for object in manifest(&format!("../{folder}/{file}"))? {
                let spec = &object["spec"]["template"]["spec"];
                let Some(name) = object["metadata"]["name"].as_str().filter(|_| spec.is_object()) else {
                    continue;
                };
                dry_run(client, name, spec)
                    .await
                    .with_context(|| format!("{folder}/{file}: {name}"))?;
                for container in spec["containers"].as_array().context("no containers")? {
                    // What the level does not ask for.
                    ensure!(
                        container["securityContext"]["readOnlyRootFilesystem"] == true,
                        "{name} writes to its root: {container}"
                    );
                }
                // The level is in force: the same pod, a little less careful, is refused.
                let mut careless = spec.clone();
                careless["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = json!(true);
                let refused = dry_run(client, name, &careless).await;
                ensure!(
                    refused.as_ref().is_err_and(|e| e.to_string().contains("restricted")),
                    "{name}: {refused:?}"
                );
                tried.push(name.to_owned());
            }
        }
    }
    ensure!(
        ["wattlane", "wattlane-scheduler", "wattlane-probe"]
            .iter()
            .all(|n| tried.iter().any(|t| t == n)),
        "{tried:?}"
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn every_pod_of_the_manifests_passes_the_restricted_level() {
    let mut plane = Box::pin(Plane::start()).await.expect("a control plane");
    if let Err(e) = Box::pin(every_pod(&plane.client())).await {
        plane.report();
        panic!("{e:#}");
    }
}
