//! `wattlane probe --publish` as the pod of manifests/probe: what it changes of a real Node, and what it may not.

use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use wattlane::topology::annotation::{ANNOTATION, decode};

use crate::manifests::{SYSTEM, apply, manifest};
use crate::objects;
use crate::plane::Plane;
use crate::users::User;
use crate::wait::{SOON, until};

const OWN: &str = "gpu-1";
const OTHER: &str = "gpu-2";
const TOPO: &str = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV4\t0-7\t0\nGPU1\tNV4\t X \t0-7\t0\n";
const QUERY: &str = "index, uuid, power.limit [W]\n0, GPU-a, 300.00 W\n1, GPU-b, 250.00 W\n";

#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn a_probe_changes_one_annotation_of_its_own_node() {
    let mut plane = Box::pin(Plane::start()).await.expect("a control plane");
    if let Err(e) = Box::pin(publish(&plane)).await {
        plane.report();
        panic!("{e:#}");
    }
}

async fn publish(plane: &Plane) -> Result<()> {
    let client = plane.client();
    for object in manifest("namespace.yaml")? {
        apply(&client, &object, "").await?;
    }
    for file in ["rbac.yaml", "guard.yaml", "daemonset.yaml"] {
        for object in manifest(&format!("../probe/{file}"))? {
            apply(&client, &object, SYSTEM).await?;
        }
    }
    objects::node(client.clone(), OWN, json!({})).await?;
    objects::node(client.clone(), OTHER, json!({})).await?;
    let nodes: Api<Node> = Api::all(client.clone());
    let theirs = json!({"metadata": {"annotations": {"example.com/theirs": "stays"}, "labels": {"rack": "7"}}});
    nodes.patch(OWN, &PatchParams::default(), &Patch::Merge(theirs)).await?;

    let kubeconfig = probe_kubeconfig(plane).await?;
    let (topo, query, none) = (
        plane.dir().join("topo"),
        plane.dir().join("query"),
        plane.dir().join("none"),
    );
    std::fs::write(&topo, TOPO)?;
    std::fs::write(&query, QUERY)?;
    std::fs::write(&none, "No devices were found\n")?;
    let probe = |node: &str, files: &[(&str, &std::path::Path)]| -> Result<Output> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wattlane"));
        command
            .args(["probe", "--publish", "--kubeconfig"])
            .arg(&kubeconfig)
            .env("NODE_NAME", node);
        for (flag, path) in files {
            command.arg(flag).arg(path);
        }
        Ok(command.output()?)
    };
    let all = [("--topo", topo.as_path()), ("--query", query.as_path())];

    // The guard takes a moment to be in force.
    until("the guard", SOON, async || {
        let refused = probe(OTHER, &all)?;
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        ensure!(
            !refused.status.success() && said.contains("the Node it runs on only"),
            "{said}"
        );
        Ok(())
    })
    .await?;

    let before = nodes.get(OWN).await?;
    let done = probe(OWN, &all)?;
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let after = nodes.get(OWN).await?;
    let text = after.metadata.annotations.as_ref().and_then(|a| a.get(ANNOTATION));
    let report = decode(text.context("no annotation")?).map_err(anyhow::Error::msg)?;
    let card = report.card_of(Some("GPU-b"), None).context("no card")?;
    ensure!(
        card.power_limit_watts == Some(250) && card.numa_node == Some(0),
        "{card:?}"
    );
    ensure!(
        but_for_the_annotation(&before)? == but_for_the_annotation(&after)?,
        "more was changed"
    );

    // Once more: nothing is written, so no watch wakes up.
    ensure!(probe(OWN, &all)?.status.success());
    ensure!(
        nodes.get(OWN).await?.metadata.resource_version == after.metadata.resource_version,
        "written again"
    );

    // With the same token by hand: other things of the own node.
    let own: Api<Node> = Api::all(as_probe(&kubeconfig).await?);
    for more in [
        json!({"metadata": {"annotations": {"example.com/theirs": "gone"}}}),
        json!({"metadata": {"annotations": {"example.com/theirs": null}}}),
        json!({"metadata": {"annotations": {"example.com/ours": "x"}}}),
        json!({"metadata": {"labels": {"rack": "8"}}}),
        json!({"metadata": {"finalizers": ["example.com/x"]}}),
        json!({"spec": {"unschedulable": true}}),
        json!({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}),
    ] {
        let tried = own.patch(OWN, &PatchParams::default(), &Patch::Merge(&more)).await;
        let error = tried.err().with_context(|| format!("allowed: {more}"))?.to_string();
        ensure!(error.contains("topology-report only"), "{more}: {error}");
    }

    // No cards any more.
    let gone = probe(OWN, &[("--topo", none.as_path())])?;
    ensure!(gone.status.success(), "{}", String::from_utf8_lossy(&gone.stderr));
    let last = nodes.get(OWN).await?;
    ensure!(
        last.metadata
            .annotations
            .as_ref()
            .is_some_and(|a| !a.contains_key(ANNOTATION)),
        "not removed"
    );
    ensure!(
        but_for_the_annotation(&before)? == but_for_the_annotation(&last)?,
        "more was changed"
    );
    Ok(())
}

fn but_for_the_annotation(node: &Node) -> Result<Value> {
    let mut node = node.clone();
    node.metadata.managed_fields = None;
    node.metadata.resource_version = None;
    node.metadata
        .annotations
        .iter_mut()
        .for_each(|a| drop(a.remove(ANNOTATION)));
    Ok(serde_json::to_value(node)?)
}

/// The DaemonSet's pod on its node, past Pod Security, with a token as the kubelet would get it.
async fn probe_kubeconfig(plane: &Plane) -> Result<std::path::PathBuf> {
    let client = plane.client();
    let runtime: RuntimeClass = serde_json::from_value(json!({"metadata": {"name": "nvidia"}, "handler": "nvidia"}))?;
    Api::all(client.clone())
        .create(&PostParams::default(), &runtime)
        .await?;
    let set = &manifest("../probe/daemonset.yaml")?[0];
    let mut pod = json!({"metadata": {"name": "probe"}, "spec": set["spec"]["template"]["spec"]});
    pod["spec"]["nodeName"] = OWN.into();
    let pod: Pod = serde_json::from_value(pod)?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), SYSTEM);
    let pod = pods
        .create(&PostParams::default(), &pod)
        .await
        .context("the DaemonSet's pod")?;

    let request: TokenRequest = serde_json::from_value(json!({"metadata": {}, "spec": {
        "audiences": [],
        "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "probe", "uid": pod.metadata.uid},
    }}))?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client, SYSTEM);
    let token = accounts
        .create_token_request("wattlane-probe", &PostParams::default(), &request)
        .await?;
    let token = token.status.context("no token")?.token;
    let text = std::fs::read_to_string(plane.kubeconfig(User::Admin))?;
    let mut config: Value = serde_json::from_str(&text).context("kubeconfigs of the tests are JSON")?;
    config["users"][0]["user"]["token"] = token.into();
    plane.write("probe.kubeconfig", &config)
}

async fn as_probe(kubeconfig: &std::path::Path) -> Result<kube::Client> {
    let file = kube::config::Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(file, &kube::config::KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}
