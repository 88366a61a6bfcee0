//! Objects with opaque parts that the API server takes and a parser of ours might not: claims of people with no more
//! rights than to make them must not hide what they hold, nor stop wattlane.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use serde_json::json;

use crate::cluster::{Cluster, NAMESPACE, run_replicas};
use crate::objects::{self, DRIVER};
use crate::replicas;
use crate::wait::{SOON, until};

const TENANT: &str = "tenant";

/// The kube client would not read some of what is read here.
async fn call(client: &kube::Client, method: &str, path: &str, body: Vec<u8>) -> Result<String> {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(kube::client::Body::from(body))?;
    let answer = client.send(request).await?;
    let status = answer.status();
    let body = answer.into_body().collect().await?.to_bytes();
    let text = String::from_utf8_lossy(&body).into_owned();
    ensure!(status.is_success(), "{method} {path}: {status} {text}");
    Ok(text)
}

async fn make(client: &kube::Client, kind: &str, name: &str, parameters: &[u8]) -> Result<()> {
    let head = format!(r#"{{"apiVersion":"resource.k8s.io/v1","kind":"{kind}","metadata":{{"name":"{name}"}},"spec":"#);
    let spec = format!(
        r#"{{"devices":{{"requests":[{{"name":"r","exactly":{{"deviceClassName":"{DRIVER}"}}}}],
        "config":[{{"opaque":{{"driver":"x.example.com","parameters":"#
    );
    let (before, after) = match kind {
        "ResourceClaimTemplate" => (r#"{"spec":"#, "}"),
        _ => ("", ""),
    };
    let parts: [&[u8]; 7] = [
        head.as_bytes(),
        before.as_bytes(),
        spec.as_bytes(),
        parameters,
        b"}}]}}",
        after.as_bytes(),
        b"}",
    ];
    let path = format!("/apis/resource.k8s.io/v1/namespaces/{TENANT}/{}s", kind.to_lowercase());
    call(client, "POST", &path, parts.concat()).await.map(drop)
}

/// The devices of all allocations, as often as they are there.
async fn given(client: &kube::Client) -> Result<Vec<String>> {
    let text = call(client, "GET", "/apis/resource.k8s.io/v1/resourceclaims", vec![]).await?;
    let found = text.split(r#""device":""#).skip(1);
    let names = found.map(|rest| rest.split('"').next().map(str::to_owned).context("a name"));
    names.collect()
}

async fn on_a_node(pods: &Api<Pod>, name: &str) -> Result<()> {
    until(&format!("pod {name} to be bound"), SOON, async || {
        let on = pods.get(name).await?.spec.and_then(|s| s.node_name);
        on.map(drop).context("it is on no node")
    })
    .await
}

#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn claims_that_are_hard_to_read_hide_nothing_and_stop_nothing() {
    run_replicas(async |cluster: &mut Cluster| {
        objects::mixed_node(cluster).await?;
        cluster.apply(&objects::namespace(TENANT, false), "").await?;
        let client = cluster.client();
        replicas::settled(cluster).await?;

        let deep = format!("{}1{}", r#"{"a":"#.repeat(200), "}".repeat(200));
        make(&client, "ResourceClaim", "deep", deep.as_bytes()).await?;
        make(&client, "ResourceClaimTemplate", "deep", deep.as_bytes()).await?;
        make(&client, "ResourceClaim", "half", br#"{"a":"\ud800"}"#).await?;
        make(&client, "ResourceClaim", "bytes", b"{\"a\":\"\xff\"}").await?;

        // The default scheduler allocates one of them, which wattlane sees as a change of what it could not read.
        let create = PostParams::default();
        let theirs: Api<Pod> = Api::namespaced(client.clone(), TENANT);
        let pod = json!({"metadata": {"name": "theirs"}, "spec": {
            "resourceClaims": [{"name": "r", "resourceClaimName": "deep"}],
            "containers": [{"name": "c", "image": "example.com/c:1", "resources": {"claims": [{"name": "r"}]}}]}});
        theirs.create(&create, &serde_json::from_value(pod)?).await?;
        on_a_node(&theirs, "theirs").await?;

        // Four cards: one is theirs, three are left. Then a replica lists anew, and a new leader does.
        let ours: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
        ours.create(&create, &objects::gpu_pod("ours-0", 1)?).await?;
        on_a_node(&ours, "ours-0").await?;
        let leader = replicas::leader(client.clone()).await?;
        cluster.kill(leader)?;
        // Ready: it has listed everything.
        cluster.revive_replica(leader).await?;
        for name in ["ours-1", "ours-2"] {
            ours.create(&create, &objects::gpu_pod(name, 1)?).await?;
            on_a_node(&ours, name).await?;
        }
        ours.create(&create, &objects::gpu_pod("ours-3", 1)?).await?;
        crate::refusal::refused(cluster, "ours-3").await?;

        let given = given(&client).await?;
        let once: BTreeSet<_> = given.iter().collect();
        ensure!(given.len() == 4 && once.len() == 4, "given: {given:?}");
        Ok(())
    })
    .await;
}
