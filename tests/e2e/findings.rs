//! `wattlane audit` and the service's own look, in a real cluster in which things are wrong: what they find, and that
//! whoever looks at the object sees it.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::binding::bound;
use crate::cluster::{Cluster, NAMESPACE, WATTLANE, run};
use crate::objects::{self, DRIVER, SERVER};
use crate::refusal::refused;
use crate::wait::{SOON, until};

/// Not opted in.
const PLAIN: &str = "plain";

/// The kinds and objects that the command finds, as wattlane's own ServiceAccount, and its exit code.
pub(crate) fn audit(cluster: &Cluster) -> Result<(Option<i32>, BTreeSet<String>)> {
    let output = Command::new(env!("CARGO_BIN_EXE_wattlane"))
        .args(["audit", "--cluster", "kube", "--output", "json"])
        .env("KUBECONFIG", cluster.kubeconfig())
        .output()?;
    let report: Value =
        serde_json::from_slice(&output.stdout).with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let text = |f: &Value, key: &str| f[key].as_str().unwrap_or_default().to_owned();
    let findings = report["findings"].as_array().context("no findings")?;
    let found = findings
        .iter()
        .map(|f| format!("{} {}", text(f, "kind"), text(f, "object")));
    Ok((output.status.code(), found.collect()))
}

/// Waits for the event, and tells what it says.
pub(crate) async fn said(cluster: &Cluster, namespace: &str, name: &str, reason: &str) -> Result<String> {
    let events: Api<Event> = Api::namespaced(cluster.client(), namespace);
    until(&format!("an event {reason} on {name}"), SOON, async || {
        let all = events.list(&ListParams::default()).await?.items;
        let about = |e: &&Event| e.regarding.as_ref().and_then(|r| r.name.as_deref()) == Some(name);
        let event = all.iter().filter(about).find(|e| e.reason.as_deref() == Some(reason));
        let event = event.with_context(|| format!("{} other events", all.len()))?;
        ensure!(event.type_.as_deref() == Some("Warning"), "{event:?}");
        event.note.clone().context("an event without words")
    })
    .await
}

#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn a_pod_of_the_device_plugin_closes_its_node_until_it_is_gone() {
    run(async |cluster: &mut Cluster| {
        let client = cluster.client();
        cluster.apply(&objects::namespace(PLAIN, false), "").await?;
        objects::node(client.clone(), "node-1", json!({"nvidia.com/gpu": "2"})).await?;
        cluster.apply(&objects::slice("node-1", &[SERVER, SERVER]), "").await?;
        ensure!(audit(cluster)? == (Some(0), BTreeSet::new()));

        let plain: Api<Pod> = Api::namespaced(client.clone(), PLAIN);
        plain
            .create(&PostParams::default(), &objects::gpu_pod("old", 1)?)
            .await?;
        // By the default scheduler, which knows the plugin's figures only.
        let words = said(cluster, PLAIN, "old", "UnknownHolder").await?;
        ensure!(
            words.contains("has 1 nvidia.com/gpu from the device plugin on node node-1"),
            "{words}"
        );
        let found = audit(cluster)?;
        ensure!(
            found == (Some(1), ["unknown-holder Pod plain/old".to_owned()].into()),
            "{found:?}"
        );

        let pods: Api<Pod> = Api::namespaced(client, NAMESPACE);
        pods.create(&PostParams::default(), &objects::gpu_pod("new", 1)?)
            .await?;
        let words = refused(cluster, "new").await?;
        ensure!(
            words.contains("pod plain/old has nvidia.com/gpu from the device plugin"),
            "{words}"
        );
        // There is no kubelet to end it.
        plain.delete("old", &DeleteParams::default().grace_period(0)).await?;
        let given = bound(cluster, "new").await?;
        ensure!(given.devices.len() == 1, "{:?}", given.devices);
        ensure!(audit(cluster)? == (Some(0), BTreeSet::new()));
        Ok(())
    })
    .await;
}

/// A claim, allocated where there is a device, as somebody would write it who is not wattlane.
async fn claim(cluster: &Cluster, namespace: &str, name: &str, device: Option<&str>) -> Result<()> {
    let claims: Api<ResourceClaim> = Api::namespaced(cluster.client(), namespace);
    let claim = json!({"metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": DRIVER}}]}}});
    claims
        .create(&PostParams::default(), &serde_json::from_value(claim)?)
        .await?;
    let Some(device) = device else { return Ok(()) };
    let field = json!({"key": "metadata.name", "operator": "In", "values": ["mixed-1"]});
    let allocation = json!({
        "devices": {"results": [{"request": "r", "driver": DRIVER, "pool": "mixed-1", "device": device}]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    });
    let patch = Patch::Merge(json!({"status": {"allocation": allocation}}));
    claims.patch_status(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// A pod that somebody else than a scheduler of ours puts on the node.
async fn placed(cluster: &Cluster, namespace: &str, name: &str, claim: &str, node: &str) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(cluster.client(), namespace);
    let pod = json!({"metadata": {"name": name}, "spec": {
        "schedulerName": "somebody-else",
        "containers": [{"name": "c", "image": "example.com/c:1"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
    }});
    pods.create(&PostParams::default(), &serde_json::from_value(pod)?)
        .await?;
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/binding");
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(serde_json::to_vec(&binding)?)?;
    cluster.client().request_text(request).await?;
    Ok(())
}

#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn what_others_did_is_found_and_said_where_it_is() {
    run(async |cluster: &mut Cluster| {
        let client = cluster.client();
        objects::mixed_node(cluster).await?;
        objects::node(client.clone(), "node-2", json!({})).await?;
        cluster.apply(&objects::namespace(PLAIN, false), "").await?;
        // The webhook is away when this one is made.
        cluster.kill(WATTLANE)?;
        let pods: Api<Pod> = Api::namespaced(client, NAMESPACE);
        pods.create(&PostParams::default(), &objects::gpu_pod("missed", 1)?)
            .await?;
        cluster.revive(WATTLANE).await?;
        for (name, device) in [("one", "gpu-0"), ("two", "gpu-0"), ("gone", "gpu-9")] {
            claim(cluster, PLAIN, name, Some(device)).await?;
        }
        claim(cluster, PLAIN, "unallocated", None).await?;
        placed(cluster, PLAIN, "bare", "unallocated", "mixed-1").await?;
        // kube-controller-manager reserves this claim for it, on whatever node it is.
        claim(cluster, NAMESPACE, "far", Some("gpu-1")).await?;
        placed(cluster, NAMESPACE, "astray", "far", "node-2").await?;

        let expected = [
            "device-given-twice Device gpu.nvidia.com/mixed-1/gpu-0",
            "device-vanished ResourceClaim plain/gone",
            "pod-without-devices Pod plain/bare",
            "pod-on-other-node Pod models/astray",
            "allocation-without-pod ResourceClaim plain/gone",
            "allocation-without-pod ResourceClaim plain/one",
            "allocation-without-pod ResourceClaim plain/two",
            "claim-unprotected ResourceClaim models/far",
            "pod-untreated Pod models/missed",
            "other-scheduler Pod models/astray",
        ];
        let expected: BTreeSet<String> = expected.map(str::to_owned).into();
        until("the command to find all of it", SOON, async || {
            let (code, found) = audit(cluster)?;
            ensure!(code == Some(1) && found == expected, "{code:?} {found:?}");
            Ok(())
        })
        .await?;
        for (namespace, name, reason) in [
            (PLAIN, "two", "DeviceGivenTwice"),
            (PLAIN, "gone", "DeviceVanished"),
            (PLAIN, "bare", "PodWithoutDevices"),
            (NAMESPACE, "astray", "PodOnOtherNode"),
            (PLAIN, "one", "AllocationWithoutPod"),
            (NAMESPACE, "far", "ClaimUnprotected"),
            (NAMESPACE, "missed", "PodUntreated"),
            (NAMESPACE, "astray", "OtherScheduler"),
        ] {
            said(cluster, namespace, name, reason).await?;
        }
        // A new life finds the same, and the events of the one before.
        cluster.kill(WATTLANE)?;
        cluster.revive(WATTLANE).await?;
        pods.create(&PostParams::default(), &{
            let mut next = objects::gpu_pod("missed-too", 1)?;
            next.metadata.labels = Some([("wattlane.dev/webhook".to_owned(), "ignore".to_owned())].into());
            next
        })
        .await?;
        let patch = Patch::Merge(json!({"metadata": {"labels": {"wattlane.dev/webhook": null}}}));
        pods.patch("missed-too", &PatchParams::default(), &patch).await?;
        said(cluster, NAMESPACE, "missed-too", "PodUntreated").await?;
        let events: Api<Event> = Api::namespaced(cluster.client(), NAMESPACE);
        let all = events.list(&ListParams::default()).await?.items;
        let ours = all
            .iter()
            .filter(|e| e.reporting_controller.as_deref() == Some("wattlane.dev/audit"));
        ensure!(ours.count() == 5, "{all:?}");
        Ok(())
    })
    .await;
}
