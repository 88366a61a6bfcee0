//! What somebody in the cluster can do with wattlane's port who is neither kube-scheduler nor an API server: nothing.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;
use wattlane::certs::{Authority, Pair};

use crate::cluster::{Cluster, NAMESPACE, run, run_kept};
use crate::objects;
use crate::wait::{SOON, until};

/// The status of a POST, with a client certificate or without; None: the connection was refused.
async fn post(cluster: &Cluster, client: Option<&Pair>, path: &str, body: &serde_json::Value) -> Result<Option<u16>> {
    let base64 = |text: &str| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
    let mut config = kube::Config::new(format!("https://127.0.0.1:{}", cluster.port()).parse()?);
    config.accept_invalid_certs = true;
    config.default_retry = false;
    if let Some(pair) = client {
        let (certificate, key) = (base64(&pair.cert), base64(&pair.key));
        config.auth_info =
            serde_json::from_value(json!({"client-certificate-data": certificate, "client-key-data": key}))?;
    }
    let client = kube::Client::try_from(config)?;
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(body.to_string().into_bytes())?;
    match client.send(request.map(kube::client::Body::from)).await {
        Ok(answer) => Ok(Some(answer.status().as_u16())),
        Err(_) => Ok(None),
    }
}

#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn a_pod_of_the_cluster_cannot_bind_or_allocate_by_calling_us() {
    run(async |cluster: &mut Cluster| {
        objects::mixed_node(cluster).await?;
        // Made for wattlane, and bound by nobody: kube-scheduler does not know the name.
        let pods: Api<Pod> = Api::namespaced(cluster.client(), NAMESPACE);
        let mut pod = objects::gpu_pod("victim", 1)?;
        pod.spec.as_mut().context("a spec")?.scheduling_gates =
            Some(vec![serde_json::from_value(json!({"name": "example.com/wait"}))?]);
        let pod = pods.create(&PostParams::default(), &pod).await?;
        let uid = pod.metadata.uid.as_ref().context("a uid")?;
        let bind = json!({"PodName": "victim", "PodNamespace": NAMESPACE, "PodUID": uid, "Node": "mixed-1"});
        let filter = json!({"Pod": pod, "NodeNames": ["mixed-1"]});

        let read = |name: &str| std::fs::read_to_string(cluster.certificates().join(name));
        let pair = |cert: &str| -> Result<Pair> {
            Ok(Pair {
                cert: read(&format!("{cert}.crt"))?,
                key: read(&format!("{cert}.key"))?,
            })
        };
        let authority = Authority::read(&pair("ca")?)?;
        let strangers = [
            ("no certificate", None, Some(403)),
            ("another name", Some(authority.client("somebody", 1)?), Some(403)),
            ("another CA", Some(Authority::new()?.client("kube-scheduler", 1)?), None),
            ("our own serving certificate", Some(pair("tls")?), None),
        ];
        for (who, client, expected) in &strangers {
            for (path, body) in [
                ("bind", &bind),
                ("filter", &filter),
                ("prioritize", &filter),
                ("preempt", &filter),
            ] {
                let status = post(cluster, client.as_ref(), &format!("/extender/{path}"), body).await?;
                ensure!(status == *expected, "{who}, {path}: {status:?}");
            }
        }
        let all = ListParams::default();
        let claims = Api::<ResourceClaim>::namespaced(cluster.client(), NAMESPACE)
            .list(&all)
            .await?
            .items;
        ensure!(
            claims
                .iter()
                .all(|c| c.status.as_ref().is_none_or(|s| s.allocation.is_none())),
            "{claims:?}"
        );
        ensure!(
            pods.get("victim").await?.spec.and_then(|s| s.node_name).is_none(),
            "bound"
        );

        // With the scheduler's own certificate the same filter is answered: what was refused above was the caller.
        let known = pair("client")?;
        until("kube-scheduler's certificate to be taken", SOON, async || {
            let status = post(cluster, Some(&known), "/extender/filter", &filter).await?;
            ensure!(status == Some(200), "{status:?}");
            Ok(())
        })
        .await
    })
    .await;
}

/// Templates by name, of all namespaces.
async fn templates(cluster: &Cluster) -> Result<Vec<String>> {
    let all = Api::<ResourceClaimTemplate>::all(cluster.client())
        .list(&ListParams::default())
        .await?;
    let name = |t: ResourceClaimTemplate| t.metadata.name.unwrap_or_default();
    Ok(all.items.into_iter().map(name).collect())
}

#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn a_pod_of_the_cluster_cannot_have_templates_made_by_calling_us() {
    run_kept("3000,1000,300", async |cluster: &mut Cluster| {
        let pods: Api<Pod> = Api::namespaced(cluster.client(), NAMESPACE);
        let seen = async |name: &str, cards: u32| -> Result<()> {
            let pod = pods
                .create(&PostParams::default(), &objects::gpu_pod(name, cards)?)
                .await?;
            let scheduler = pod.spec.and_then(|s| s.scheduler_name);
            ensure!(
                scheduler.as_deref() == Some("wattlane"),
                "{name} was not seen: {scheduler:?}"
            );
            Ok(())
        };
        seen("ordinary", 1).await?;
        let before = templates(cluster).await?;
        ensure!(before.len() == 1, "{before:?}");

        let review = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
            "uid": "u", "operation": "CREATE", "namespace": NAMESPACE, "dryRun": false,
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "object": objects::gpu_pod("any", 3)?}});
        // A dry run makes nothing, whoever asks.
        let mut dry = review.clone();
        dry["request"]["dryRun"] = json!(true);
        until("the bare path to be closed", 2 * SOON, async || {
            let status = post(cluster, None, "/admission/mutate", &dry).await?;
            ensure!(status == Some(403), "{status:?}");
            Ok(())
        })
        .await?;
        let wrong = format!("/admission/mutate/{}", "A".repeat(32));
        let bind = json!({"PodName": "ordinary", "PodNamespace": NAMESPACE, "PodUID": "u", "Node": "mixed-1"});
        for (path, body) in [
            ("/admission/mutate", &review),
            ("/admission/mutate/", &review),
            ("/", &review),
            (&*wrong, &review),
            ("/extender/bind", &bind),
            (
                "/extender/filter",
                &json!({"Pod": objects::gpu_pod("any", 3)?, "NodeNames": ["mixed-1"]}),
            ),
        ] {
            let status = post(cluster, None, path, body).await?;
            ensure!(status == Some(403), "{path}: {status:?}");
        }
        let after = templates(cluster).await?;
        ensure!(after == before, "{after:?}");

        // The API server finds its way as ever, and so does who may read the configuration: what was refused was the caller.
        seen("another", 2).await?;
        ensure!(templates(cluster).await?.len() == 2, "no template for another");
        let hooks: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
        let hooks = hooks.get("wattlane").await?.webhooks.context("no webhooks")?;
        let url = hooks[0].client_config.url.as_ref().context("no address")?;
        let path = url.find("/admission/").map(|at| &url[at..]).context("no path")?;
        let status = post(cluster, None, path, &review).await?;
        ensure!(status == Some(200), "{status:?}");
        ensure!(
            templates(cluster).await?.len() == 3,
            "no template for who knows the path"
        );
        Ok(())
    })
    .await;
}
