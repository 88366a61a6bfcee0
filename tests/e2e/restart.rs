//! wattlane killed in the middle of a burst, twice: what its next life finds in the API must be enough.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;

use crate::audit::Audit;
use crate::cluster::{Cluster, NAMESPACE, run};
use crate::objects::{self, SERVER};
use crate::wait::until;

const NODES: usize = 12;
const CARDS: usize = 8;
const CARDS_A_POD: u32 = 2;
/// Every card of the cluster is wanted, and some more: a card that got lost would show, as one given twice would.
const FIT: usize = NODES * CARDS / CARDS_A_POD as usize;
const TOO_MANY: usize = 4;
/// kube-scheduler backs off for up to ten seconds at a time while wattlane is away.
const LONG: Duration = Duration::from_secs(120);

async fn bound_pods(pods: &Api<Pod>) -> Result<usize> {
    let all = pods.list(&ListParams::default()).await?.items;
    Ok(all
        .iter()
        .filter(|p| p.spec.as_ref().is_some_and(|s| s.node_name.is_some()))
        .count())
}

/// Kills wattlane as soon as so many pods are bound, checks that this was in the middle, and starts it again.
async fn kill_at(cluster: &mut Cluster, pods: &Api<Pod>, count: usize) -> Result<()> {
    until(&format!("{count} bound pods"), LONG, async || {
        let bound = bound_pods(pods).await?;
        ensure!(bound >= count, "{bound} are bound");
        Ok(())
    })
    .await?;
    cluster.kill_wattlane()?;
    let bound = bound_pods(pods).await?;
    ensure!(
        bound < FIT,
        "the burst was over before wattlane was killed: this run says nothing"
    );
    Audit::read(cluster.client()).await?.check()?;
    cluster.start_wattlane().await
}

#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn killed_in_the_middle_no_device_is_given_twice_and_none_is_lost() {
    run(async |cluster: &mut Cluster| {
        let client = cluster.client();
        for n in 0..NODES {
            let name = format!("node-{n}");
            objects::node(client.clone(), &name, json!({})).await?;
            cluster.apply(&objects::slice(&name, &[SERVER; CARDS]), "").await?;
        }
        let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
        let create = PostParams::default();
        // All admitted before the first kill: what is created while wattlane is away stays as it was written.
        let burst = (0..FIT + TOO_MANY).map(|n| {
            let pods = &pods;
            let create = &create;
            async move {
                pods.create(create, &objects::gpu_pod(&format!("pod-{n}"), CARDS_A_POD)?)
                    .await
                    .context("create")
            }
        });
        futures::future::try_join_all(burst).await?;

        kill_at(cluster, &pods, 1).await?;
        kill_at(cluster, &pods, FIT / 2).await?;

        until("all that fit to be bound", LONG, async || {
            Audit::read(client.clone()).await?.check()?;
            let bound = bound_pods(&pods).await?;
            ensure!(bound == FIT, "{bound} of {FIT} are bound");
            Ok(())
        })
        .await?;
        let audit = Audit::read(client).await?;
        let mut given = 0;
        for pod in &audit.pods {
            given += audit.given(pod)?.map_or(0, |g| g.devices.len());
        }
        ensure!(given == NODES * CARDS, "{given} of {} devices are given", NODES * CARDS);
        Ok(())
    })
    .await;
}
