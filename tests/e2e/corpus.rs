//! The corpus of tests/admission against the real API server, by server-side dry run: what our patches make of each pod is
//! accepted, and is what comes out when the webhook is asked; and which pods reach the webhook at all.

#[path = "../admission/world.rs"]
mod world;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use wattlane::admission::{Decision, Request, decide};

use crate::cluster::{Cluster, WATTLANE, run, run_with};
use crate::wait::{SOON, until};

/// Strict: a field of ours that the API server does not know is an error.
async fn dry_run(cluster: &Cluster, pod: &Value, namespace: &str) -> Result<Value, kube::Error> {
    let mut pod = pod.clone();
    pod["metadata"]["namespace"] = json!(namespace);
    let uri = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All&fieldValidation=Strict");
    let request = http::Request::post(uri).header("content-type", "application/json");
    let request = request.body(pod.to_string().into_bytes()).expect("a legal request");
    cluster.client().request(request).await
}

/// The corpus leaves out what every pod has.
fn complete(mut pod: Value) -> Value {
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    for list in ["initContainers", "containers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            if container["image"].is_null() {
                container["image"] = json!("example.com/image:1");
            }
        }
        if pod["spec"][list].is_null()
            && let Some(spec) = pod["spec"].as_object_mut()
        {
            spec.remove(list);
        }
    }
    pod
}

/// Without what is of the one request only. Tolerations in any order: a plugin of the API server adds two, which with the
/// webhook come before ours and without it behind.
fn essence(mut pod: Value) -> Value {
    if let Some(metadata) = pod["metadata"].as_object_mut() {
        for key in [
            "uid",
            "creationTimestamp",
            "managedFields",
            "namespace",
            "resourceVersion",
        ] {
            metadata.remove(key);
        }
    }
    if let Some(tolerations) = pod["spec"]["tolerations"].as_array_mut() {
        tolerations.sort_by_key(Value::to_string);
    }
    pod
}

async fn settle(cluster: &mut Cluster) -> Result<()> {
    for object in world::objects() {
        cluster.apply(&object, "").await?;
    }
    cluster.use_policy(world::POLICY).await
}

#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn every_pod_of_the_corpus_is_accepted_as_we_patch_it_and_comes_out_of_the_webhook_like_that() {
    // JupyterHub's init container is privileged.
    run_with(&["--allow-privileged"], async |cluster: &mut Cluster| {
        settle(cluster).await?;
        let (snapshot, policy) = (world::snapshot(), world::policy());
        let (mut patched, mut refused, mut left) = (0, 0, 0);
        let mut wrong: Vec<String> = vec![];
        for pod in world::pods().into_iter().map(complete) {
            let name = pod["metadata"]["name"]
                .as_str()
                .context("a pod without a name")?
                .to_owned();
            let namespace = pod["metadata"]["namespace"]
                .as_str()
                .context("no namespace")?
                .to_owned();
            let request = Request {
                namespace: &namespace,
                operation: "CREATE",
                object: &pod,
            };
            let mut ours = pod.clone();
            match decide(&snapshot, &policy, &request) {
                Decision::Patch { ops, .. } => {
                    json_patch::patch(&mut ours, &ops)?;
                    patched += 1;
                }
                Decision::LeaveAlone { .. } => left += 1,
                Decision::Refuse(no) => {
                    refused += 1;
                    match dry_run(cluster, &pod, &namespace).await {
                        Err(kube::Error::Api(status))
                            if status.code == no.code && status.message.ends_with(&no.message) => {}
                        other => wrong.push(format!("{name}: expected {no}, got {other:?}")),
                    }
                    continue;
                }
            }
            // Nobody is asked in this namespace: the API server's own view of what we make of the pod.
            let accepted = match dry_run(cluster, &ours, "off").await {
                Ok(accepted) => accepted,
                Err(e) => {
                    wrong.push(format!("{name}: the patched pod is not accepted: {e}"));
                    continue;
                }
            };
            match dry_run(cluster, &pod, &namespace).await {
                Ok(came_out) if essence(came_out.clone()) == essence(accepted.clone()) => {}
                Ok(came_out) => wrong.push(format!(
                    "{name}: the webhook makes {} of it, and the patch {}",
                    essence(came_out),
                    essence(accepted)
                )),
                Err(e) => wrong.push(format!("{name}: not accepted through the webhook: {e}")),
            }
        }
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        ensure!(patched > 55 && refused > 10 && left > 10, "{patched} {refused} {left}");
        Ok(())
    })
    .await;
}

/// With failurePolicy Fail and nobody there, whoever would reach the webhook is refused.
#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn what_is_none_of_our_business_never_reaches_the_webhook() {
    run(async |cluster: &mut Cluster| {
        settle(cluster).await?;
        // Not even with the label are these ours: the cluster must be able to start without us.
        let enabled = json!({"wattlane.dev/enabled": "true"});
        for name in ["kube-system", "wattlane-system"] {
            let namespace =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": enabled}});
            cluster.apply(&namespace, "").await?;
        }
        cluster.kill(WATTLANE)?;
        cluster.apply_webhook("Fail").await?;
        let pods: Vec<Value> = world::pods().into_iter().map(complete).collect();
        let named = |name: &str| {
            let pod = pods.iter().find(|p| p["metadata"]["name"] == name);
            pod.with_context(|| format!("no pod {name} in the corpus"))
        };
        let reaches = async |name: &str, namespace: &str| match dry_run(cluster, named(name)?, namespace).await {
            Ok(_) => Ok(false),
            Err(kube::Error::Api(status)) if status.message.contains("failed calling webhook") => Ok(true),
            Err(e) => Err(anyhow::Error::new(e).context(name.to_owned())),
        };
        until("the API server to know the new failurePolicy", SOON, async || {
            ensure!(reaches("limits-only", "ml").await?, "a pod with a GPU passes");
            Ok(())
        })
        .await?;
        for name in [
            "requests-only",
            "init-only",
            "own-claim-template",
            "hami-memory-alone",
            "mig-alone",
            "copied-from-a-treated-pod",
            "opted-out-by-annotation",
            "volcano-job",
        ] {
            ensure!(reaches(name, "ml").await?, "{name} does not reach the webhook");
        }
        for name in [
            "nothing-asked",
            "no-resources-at-all",
            "daemon-set",
            "mirror",
            "on-a-node-already",
            "opted-out-by-label",
            "mpijob-launcher",
            "ray-head",
            "tfjob-ps",
        ] {
            ensure!(!reaches(name, "ml").await?, "{name} reaches the webhook");
        }
        for namespace in ["off", "kube-system", "wattlane-system"] {
            ensure!(
                !reaches("limits-only", namespace).await?,
                "a pod of {namespace} reaches the webhook"
            );
        }
        Ok(())
    })
    .await;
}
