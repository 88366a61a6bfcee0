//! Pods that share a card on the real control plane: so many and no more, in the order of creation, and a card that is
//! free when the last has gone.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

use crate::binding::bound;
use crate::cluster::{Cluster, NAMESPACE, run};
use crate::manifests::manifest;
use crate::objects::{self, SERVER};
use crate::refusal::refused;
use crate::wait::{SOON, until};

const SHARING: &str = "
apiVersion: wattlane.dev/v1alpha1
kind: PlacementPolicy
namespaces:
- match: {}
  sharing: {slots: 4, strategy: mps, memoryPerSlot: 10Gi}
";

fn sharer(name: &str) -> Result<Pod> {
    let mut pod = serde_json::to_value(objects::gpu_pod(name, 1)?)?;
    pod["metadata"]["annotations"] = json!({"wattlane.dev/share": "chat"});
    Ok(serde_json::from_value(pod)?)
}

async fn claim(cluster: &Cluster) -> Result<Value> {
    let claims: Api<ResourceClaim> = Api::namespaced(cluster.client(), NAMESPACE);
    let all = claims.list(&ListParams::default()).await?.items;
    let mut shared = all.into_iter().filter(|c| {
        c.metadata
            .name
            .as_deref()
            .is_some_and(|n| n.starts_with("wl-share-chat-x4-"))
    });
    let found = shared.next().context("no shared claim")?;
    ensure!(shared.next().is_none(), "more than one claim for one share");
    Ok(serde_json::to_value(found)?)
}

fn holders(claim: &Value) -> BTreeSet<&str> {
    let reserved = claim["status"]["reservedFor"].as_array();
    reserved
        .into_iter()
        .flatten()
        .filter_map(|c| c["name"].as_str())
        .collect()
}

/// Who holds a slot, once these do and no other.
async fn held_by(cluster: &Cluster, expected: &[&str]) -> Result<()> {
    let expected: BTreeSet<&str> = expected.iter().copied().collect();
    until(&format!("{expected:?} to hold the slots"), SOON, async || {
        let claim = claim(cluster).await?;
        let holders = holders(&claim);
        ensure!(holders.len() <= 4, "too many: {holders:?}");
        ensure!(holders == expected, "{holders:?}");
        let pods: Api<Pod> = Api::namespaced(cluster.client(), NAMESPACE);
        for pod in pods.list(&ListParams::default()).await?.items {
            let name = pod.metadata.name.unwrap_or_default();
            let node = pod.spec.and_then(|s| s.node_name);
            ensure!(
                node.is_some() == expected.contains(name.as_str()),
                "{name} is bound to {node:?}"
            );
        }
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn a_card_of_four_slots_takes_four_pods_and_the_oldest_that_waits_next() {
    run(async |cluster: &mut Cluster| {
        for object in manifest("../guard/policy.yaml")? {
            cluster.apply(&object, "").await?;
        }
        cluster.use_policy(SHARING).await?;
        let client = cluster.client();
        objects::node(client.clone(), "node-1", json!({})).await?;
        cluster.apply(&objects::slice("node-1", &[SERVER]), "").await?;
        let pods: Api<Pod> = Api::namespaced(client, NAMESPACE);
        // Names against the order of creation, which is told by whole seconds.
        for name in ["d", "c", "b", "a"] {
            pods.create(&PostParams::default(), &sharer(name)?).await?;
        }
        held_by(cluster, &["a", "b", "c", "d"]).await?;
        let made = claim(cluster).await?;
        let results = &made["status"]["allocation"]["devices"]["results"];
        ensure!(results.as_array().map(Vec::len) == Some(1), "{results}");
        let sharing = &made["status"]["allocation"]["devices"]["config"][0]["opaque"]["parameters"]["sharing"];
        ensure!(
            sharing["mpsConfig"]["defaultActiveThreadPercentage"] == 25
                && sharing["mpsConfig"]["defaultPinnedDeviceMemoryLimit"] == "10Gi",
            "the driver is told {sharing}"
        );

        pods.create(&PostParams::default(), &sharer("z-older")?).await?;
        tokio::time::sleep(Duration::from_millis(1100)).await;
        pods.create(&PostParams::default(), &sharer("e-younger")?).await?;
        for name in ["z-older", "e-younger"] {
            let said = refused(cluster, name).await?;
            ensure!(
                said.contains("all 4 slots of claim wl-share-chat-x4-"),
                "{name}: {said}"
            );
            ensure!(said.contains("are taken, by a, b, c, d"), "{name}: {said}");
        }
        held_by(cluster, &["a", "b", "c", "d"]).await?;

        let now = DeleteParams::default().grace_period(0);
        pods.delete("c", &now).await?;
        held_by(cluster, &["a", "b", "d", "z-older"]).await?;
        pods.delete("a", &now).await?;
        held_by(cluster, &["b", "d", "e-younger", "z-older"]).await?;

        // A whole card is another matter: it has none until all have gone.
        pods.create(&PostParams::default(), &objects::gpu_pod("whole", 1)?)
            .await?;
        refused(cluster, "whole").await?;
        for name in ["b", "d", "e-younger", "z-older"] {
            pods.delete(name, &now).await?;
        }
        let given = until("the whole card to be given", SOON, async || {
            let claim = claim(cluster).await?;
            ensure!(claim["status"]["allocation"].is_null(), "still allocated");
            bound(cluster, "whole").await
        })
        .await?;
        ensure!(given.devices.len() == 1, "{:?}", given.devices);
        Ok(())
    })
    .await;
}

/// A card that is not there any more is given to no further pod, though slots of it are free; one that has come back, or
/// another when the last of its pods has gone, is.
#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn a_card_that_vanished_takes_no_more_pods() {
    run(async |cluster: &mut Cluster| {
        for object in manifest("../guard/policy.yaml")? {
            cluster.apply(&object, "").await?;
        }
        cluster.use_policy(SHARING).await?;
        let client = cluster.client();
        objects::node(client.clone(), "node-1", json!({})).await?;
        cluster.apply(&objects::slice("node-1", &[SERVER]), "").await?;
        let pods: Api<Pod> = Api::namespaced(client, NAMESPACE);
        pods.create(&PostParams::default(), &sharer("a")?).await?;
        held_by(cluster, &["a"]).await?;

        let named = |generation: u32, name: &str| {
            let mut slice = objects::slice("node-1", &[SERVER]);
            slice["spec"]["pool"]["generation"] = json!(generation);
            slice["spec"]["devices"][0]["name"] = json!(name);
            slice
        };
        let slice = objects::slice("node-1", &[SERVER]);
        let card = slice["spec"]["devices"][0]["name"]
            .as_str()
            .context("a card")?
            .to_owned();
        cluster.apply(&named(2, "another"), "").await?;
        pods.create(&PostParams::default(), &sharer("b")?).await?;
        let said = refused(cluster, "b").await?;
        ensure!(
            said.contains(&card) && said.contains("which is not published any more"),
            "{said}"
        );
        held_by(cluster, &["a"]).await?;

        cluster.apply(&named(3, &card), "").await?;
        held_by(cluster, &["a", "b"]).await?;

        cluster.apply(&named(4, "another"), "").await?;
        pods.create(&PostParams::default(), &sharer("c")?).await?;
        refused(cluster, "c").await?;
        let now = DeleteParams::default().grace_period(0);
        for name in ["a", "b"] {
            pods.delete(name, &now).await?;
        }
        held_by(cluster, &["c"]).await?;
        let claim = claim(cluster).await?;
        let device = &claim["status"]["allocation"]["devices"]["results"][0]["device"];
        ensure!(device == "another", "{device}");
        Ok(())
    })
    .await;
}

/// One card of the cluster has consumable capacity: a pod that says how much it needs takes a part of it, else a whole card
/// that is free, and waits only where neither is.
#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn nobody_waits_for_consumable_capacity_beside_a_free_card() {
    run(async |cluster: &mut Cluster| {
        cluster.use_policy(SHARING).await?;
        let client = cluster.client();
        for node in ["plain", "shares"] {
            objects::node(client.clone(), node, json!({})).await?;
            let mut slice = objects::slice(node, &[SERVER]);
            if node == "shares" {
                let device = &mut slice["spec"]["devices"][0];
                device["allowMultipleAllocations"] = json!(true);
                device["capacity"]["memory"] = json!({"value": "45Gi",
                    "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}});
            }
            cluster.apply(&slice, "").await?;
        }
        let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
        let asking = |name: &str| -> Result<Pod> {
            let mut pod = serde_json::to_value(sharer(name)?)?;
            pod["metadata"]["annotations"]["wattlane.dev/memory"] = json!("30Gi");
            Ok(serde_json::from_value(pod)?)
        };
        for (name, node) in [("first", "shares"), ("second", "plain")] {
            pods.create(&PostParams::default(), &asking(name)?).await?;
            let given = until(&format!("{name} to be bound"), SOON, async || {
                bound(cluster, name).await
            })
            .await?;
            ensure!(given.node == node, "{name} is on {}: {:?}", given.node, given.devices);
        }
        pods.create(&PostParams::default(), &asking("third")?).await?;
        refused(cluster, "third").await?;
        pods.delete("second", &DeleteParams::default().grace_period(0)).await?;
        let given = until("third to be bound", SOON, async || bound(cluster, "third").await).await?;
        ensure!(given.node == "plain", "{}", given.node);
        Ok(())
    })
    .await;
}

/// Somebody deletes the claim while pods wait for it: it goes with its last holder, and those that wait get one anew.
#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn a_shared_claim_that_was_deleted_is_made_anew_for_those_that_wait() {
    run(async |cluster: &mut Cluster| {
        cluster.use_policy(SHARING).await?;
        let client = cluster.client();
        objects::node(client.clone(), "node-1", json!({})).await?;
        cluster.apply(&objects::slice("node-1", &[SERVER]), "").await?;
        let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
        for name in ["a", "b", "c", "d"] {
            pods.create(&PostParams::default(), &sharer(name)?).await?;
        }
        held_by(cluster, &["a", "b", "c", "d"]).await?;
        for name in ["e", "f"] {
            pods.create(&PostParams::default(), &sharer(name)?).await?;
            refused(cluster, name).await?;
        }
        let first = claim(cluster).await?;
        let name = first["metadata"]["name"].as_str().context("no name")?;
        let all: Api<ResourceClaim> = Api::namespaced(client, NAMESPACE);
        all.delete(name, &DeleteParams::default()).await?;
        let now = DeleteParams::default().grace_period(0);
        for name in ["a", "b", "c", "d"] {
            pods.delete(name, &now).await?;
        }
        held_by(cluster, &["e", "f"]).await?;
        let second = claim(cluster).await?;
        ensure!(
            second["metadata"]["uid"] != first["metadata"]["uid"],
            "the claim was never gone"
        );
        ensure!(second["metadata"]["name"] == first["metadata"]["name"], "{second}");
        Ok(())
    })
    .await;
}

/// Shared claims that nobody needs go, those in use stay, and what has our name and other content is not ours.
#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn sharing_is_off_unless_policy_says_so_and_strangers_claims_are_not_taken_for_ours() {
    run(async |cluster: &mut Cluster| {
        let client = cluster.client();
        objects::node(client.clone(), "node-1", json!({})).await?;
        cluster.apply(&objects::slice("node-1", &[SERVER]), "").await?;
        let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
        let no = pods.create(&PostParams::default(), &sharer("a")?).await;
        let no = no.err().context("sharing without policy")?.to_string();
        ensure!(no.contains("may not share devices"), "{no}");

        cluster.use_policy(SHARING).await?;
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let shown = pods.create(&dry_run, &sharer("a")?).await?;
        ensure!(claim(cluster).await.is_err(), "a dry run made a claim");
        let claims = shown.spec.and_then(|s| s.resource_claims).unwrap_or_default();
        let name = claims
            .first()
            .and_then(|c| c.resource_claim_name.clone())
            .context("no claim named")?;
        let stranger = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": objects::DRIVER}}]}}});
        cluster.apply(&stranger, NAMESPACE).await?;
        let no = pods.create(&PostParams::default(), &sharer("a")?).await;
        let no = no.err().context("a stranger's claim taken for ours")?.to_string();
        ensure!(no.contains("without wattlane's labels"), "{no}");

        let all: Api<ResourceClaim> = Api::namespaced(client, NAMESPACE);
        all.delete(&name, &DeleteParams::default()).await?;
        pods.create(&PostParams::default(), &sharer("a")?).await?;
        held_by(cluster, &["a"]).await
    })
    .await;
}
