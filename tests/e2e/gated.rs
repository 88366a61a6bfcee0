//! manifests/gated: while wattlane is away, pods of opted-in namespaces wait behind a gate instead of going past it.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};

use crate::binding::bound;
use crate::cluster::{Cluster, NAMESPACE, WATTLANE, run};
use crate::findings::said;
use crate::manifests::manifest;
use crate::objects;
use crate::wait::{SOON, until};

const GATE: &str = "wattlane.dev/admission";

fn gates(pod: &Pod) -> Vec<&str> {
    let gates = pod.spec.as_ref().and_then(|s| s.scheduling_gates.as_deref());
    gates.unwrap_or_default().iter().map(|g| g.name.as_str()).collect()
}

fn pod(name: &str, spec: &Value) -> Result<Pod> {
    Ok(serde_json::from_value(
        json!({"metadata": {"name": name}, "spec": spec}),
    )?)
}

#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn a_pod_that_admission_never_saw_waits() {
    run(async |cluster: &mut Cluster| {
        let client = cluster.client();
        objects::mixed_node(cluster).await?;
        let class = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "mig.nvidia.com"},
            "spec": {"selectors": [{"cel": {"expression": "device.attributes['gpu.nvidia.com'].type == 'mig'"}}]}});
        cluster.apply(&class, "").await?;
        let kustomization = &manifest("../gated/kustomization.yaml")?[0];
        for file in kustomization["resources"].as_array().context("no resources")? {
            let file = file.as_str().context("a resource that is no file name")?;
            for object in manifest(&format!("../gated/{file}"))? {
                cluster.apply(&object, "").await?;
            }
        }
        let pods: Api<Pod> = Api::namespaced(client, NAMESPACE);
        cluster.kill(WATTLANE)?;
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        until("the policy to be in force", SOON, async || {
            let pod = pods
                .create(&dry_run, &objects::gpu_pod("is-the-gate-there", 1)?)
                .await?;
            ensure!(gates(&pod) == [GATE], "{:?}", gates(&pod));
            Ok(())
        })
        .await?;

        let create = async |pod: &Pod| pods.create(&PostParams::default(), pod).await;
        let resources = |which: &str, resource: &str| json!({which: {resource: "1"}});
        let container = |resources: Value| json!({"name": "c", "image": "example.com/c:1", "resources": resources});
        let plain = container(json!({"limits": {"cpu": "1"}}));
        // Every way to ask for devices.
        let mut mig = container(resources("limits", "nvidia.com/mig-1g.10gb"));
        mig["name"] = json!("first");
        let requested = container(json!({"limits": {"amd.com/gpu": "1"}, "requests": {"amd.com/gpu": "1"}}));
        for (name, spec, gated) in [
            ("missed", objects::gpu_pod_spec(1), true),
            ("no-class", json!({"containers": [requested]}), true),
            (
                "init",
                json!({"containers": [plain.clone()], "initContainers": [mig]}),
                true,
            ),
            (
                "claims",
                json!({"containers": [plain.clone()], "resourceClaims": [{"name": "g", "resourceClaimName": "x"}]}),
                true,
            ),
            ("no-devices", json!({"containers": [plain]}), false),
        ] {
            let created = create(&pod(name, &spec)?).await?;
            let expected: &[&str] = if gated { &[GATE] } else { &[] };
            ensure!(gates(&created) == expected, "{name}: {:?}", gates(&created));
        }
        // Whoever writes that it was treated does not get past by that.
        let mut forged = objects::gpu_pod("forged", 1)?;
        forged.metadata.annotations = Some([("wattlane.dev/admitted".to_owned(), "v1".to_owned())].into());
        ensure!(gates(&create(&forged).await?) == [GATE], "a forged annotation");
        let mut ignored = objects::gpu_pod("ignored", 1)?;
        ignored.metadata.annotations = Some([("wattlane.dev/webhook".to_owned(), "ignore".to_owned())].into());
        ensure!(gates(&create(&ignored).await?).is_empty());
        let other = pod(
            "other",
            &json!({"schedulerName": "volcano", "containers": [container(resources("limits", "nvidia.com/gpu"))]}),
        )?;
        ensure!(gates(&create(&other).await?).is_empty());

        cluster.revive(WATTLANE).await?;
        // This cluster has no DeviceClass for it, so that admission would have left it alone.
        until("the gate of no-class to be taken off", SOON, async || {
            let pod = pods.get("no-class").await?;
            ensure!(gates(&pod).is_empty(), "{:?}", gates(&pod));
            Ok(())
        })
        .await?;
        let words = said(cluster, NAMESPACE, "missed", "PodUntreated").await?;
        ensure!(
            words.contains("waits behind the scheduling gate") && words.contains("delete it"),
            "{words}"
        );
        // Admission would have refused it: no device is such a partition.
        said(cluster, NAMESPACE, "init", "PodUntreated").await?;
        let init = pods.get("init").await?;
        ensure!(gates(&init) == [GATE], "{:?}", gates(&init));
        let missed = pods.get("missed").await?;
        ensure!(gates(&missed) == [GATE], "{:?}", gates(&missed));
        ensure!(missed.spec.and_then(|s| s.node_name).is_none(), "placed past the gate");

        // As its controller would.
        pods.delete("missed", &DeleteParams::default().grace_period(0)).await?;
        let again = until("the pod to be made anew", SOON, async || {
            Ok(create(&objects::gpu_pod("missed", 1)?).await?)
        })
        .await?;
        ensure!(gates(&again).is_empty(), "{:?}", gates(&again));
        // One that was treated, made anew as it is: the gate is put on, and taken off.
        let mut copy = again.clone();
        copy.metadata = serde_json::from_value(json!({"name": "copy", "annotations": again.metadata.annotations}))?;
        ensure!(
            copy.metadata
                .annotations
                .as_ref()
                .is_some_and(|a| a.contains_key("wattlane.dev/admitted")),
            "{:?}",
            copy.metadata
        );
        let copy = pods.create(&dry_run, &copy).await?;
        ensure!(gates(&copy).is_empty(), "{:?}", gates(&copy));
        let given = bound(cluster, "missed").await?;
        ensure!(given.devices.len() == 1, "{:?}", given.devices);
        Ok(())
    })
    .await;
}
