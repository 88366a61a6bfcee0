//! Two replicas: the leader is killed in the middle of a burst, and later another ends in order in the middle of one.
//! Nothing is given twice, nothing is lost, and the other goes on in time.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;

use crate::audit::Audit;
use crate::cluster::{Cluster, NAMESPACE, run_replicas};
use crate::manifests::SYSTEM;
use crate::objects::{self, SERVER};
use crate::replicas::{A, B, labelled};
use crate::wait::{SOON, until};

const NODES: usize = 12;
const CARDS: usize = 8;
const CARDS_A_POD: u32 = 2;
const FIT: usize = NODES * CARDS / CARDS_A_POD as usize;
/// A lease, kube-scheduler's backoff, and two busy cores.
const LONG: Duration = Duration::from_secs(120);
/// Lease duration and one retry, and a bit for the machine. By the two records' own times: both are of one clock here.
const TAKEN_OVER: i64 = 15 + 2 + 3;

async fn bound_pods(pods: &Api<Pod>) -> Result<usize> {
    let all = pods.list(&ListParams::default()).await?.items;
    let bound = |p: &&Pod| p.spec.as_ref().is_some_and(|s| s.node_name.is_some());
    Ok(all.iter().filter(bound).count())
}

async fn lease(cluster: &Cluster) -> Result<Lease> {
    Ok(Api::namespaced(cluster.client(), SYSTEM).get("wattlane").await?)
}

fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref()
}

async fn leads(cluster: &Cluster, name: &str) -> Result<()> {
    until(&format!("{name} to lead"), SOON, async || {
        let lease = lease(cluster).await?;
        let held = holder(&lease).is_some_and(|h| h.starts_with(name));
        ensure!(held, "held by {:?}", holder(&lease));
        let labelled = labelled(cluster.client()).await?;
        ensure!(labelled == [name], "the label is on {labelled:?}");
        Ok(())
    })
    .await
}

/// Nodes for a burst that fills them, and its pods.
async fn burst(cluster: &Cluster, pods: &Api<Pod>, name: &str) -> Result<()> {
    for n in 0..NODES {
        let node = format!("{name}-{n}");
        objects::node(cluster.client(), &node, json!({})).await?;
        cluster.apply(&objects::slice(&node, &[SERVER; CARDS]), "").await?;
    }
    let create = PostParams::default();
    let all = (0..FIT).map(|n| {
        let create = &create;
        async move {
            let pod = objects::gpu_pod(&format!("{name}-{n}"), CARDS_A_POD)?;
            pods.create(create, &pod).await.context("create")
        }
    });
    futures::future::try_join_all(all).await?;
    Ok(())
}

async fn until_bound(cluster: &Cluster, pods: &Api<Pod>, count: usize) -> Result<usize> {
    until(&format!("{count} bound pods"), LONG, async || {
        Audit::read(cluster.client()).await?.check()?;
        let bound = bound_pods(pods).await?;
        ensure!(bound >= count, "{bound} of {count} are bound");
        Ok(bound)
    })
    .await
}

/// Ends the leader when some pods of the burst are bound and tells how long nothing was bound.
async fn interrupted(
    cluster: &mut Cluster,
    pods: &Api<Pod>,
    before: usize,
    end: impl AsyncFnOnce(&mut Cluster) -> Result<()>,
) -> Result<Duration> {
    until_bound(cluster, pods, before + FIT / 4).await?;
    end(cluster).await?;
    let ended = Instant::now();
    let bound = bound_pods(pods).await?;
    ensure!(bound < before + FIT, "the burst was over before: this run says nothing");
    until_bound(cluster, pods, bound + 1).await?;
    let stall = ended.elapsed();
    until_bound(cluster, pods, before + FIT).await?;
    Ok(stall)
}

#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn a_leader_that_dies_and_one_that_ends_are_followed_by_the_other() {
    run_replicas(async |cluster: &mut Cluster| {
        let pods: Api<Pod> = Api::namespaced(cluster.client(), NAMESPACE);
        leads(cluster, A).await?;

        burst(cluster, &pods, "killed").await?;
        let mut last = None;
        let kill = async |c: &mut Cluster| {
            c.kill(A)?;
            last = lease(c).await?.spec.and_then(|s| s.renew_time);
            Ok(())
        };
        let stall = interrupted(cluster, &pods, 0, kill).await?;
        leads(cluster, B).await?;
        eprintln!(
            "leader killed: {:.1} s until the next pod was bound",
            stall.as_secs_f64()
        );
        let taken = lease(cluster).await?.spec.context("a spec")?;
        ensure!(
            taken.lease_transitions == Some(1),
            "{:?} transitions",
            taken.lease_transitions
        );

        let taken_at = taken.acquire_time.context("an acquireTime")?.0;
        let silent = taken_at.as_second() - last.context("a renewTime")?.0.as_second();
        eprintln!("the Lease was taken {silent} s after its last renewal");
        ensure!((10..=TAKEN_OVER).contains(&silent), "taken after {silent} s");

        // The other again, as a follower.
        cluster.revive_replica(A).await?;
        burst(cluster, &pods, "ended").await?;
        let end = async |c: &mut Cluster| {
            let asked = Instant::now();
            c.terminate(B).await?;
            let lease = lease(c).await?;
            ensure!(
                holder(&lease).is_none_or(|h| !h.starts_with(B)),
                "not given back: {:?}",
                lease.spec
            );
            eprintln!("leader asked to end: gone after {:.1} s", asked.elapsed().as_secs_f64());
            Ok(())
        };
        let stall = interrupted(cluster, &pods, FIT, end).await?;
        eprintln!(
            "leader ended: {:.1} s until the next pod was bound",
            stall.as_secs_f64()
        );
        leads(cluster, A).await?;

        let audit = Audit::read(cluster.client()).await?;
        audit.check()?;
        let mut given = 0;
        for pod in &audit.pods {
            given += audit.given(pod)?.map_or(0, |g| g.devices.len());
        }
        ensure!(given == 2 * NODES * CARDS, "{given} devices are given");
        Ok(())
    })
    .await;
}
