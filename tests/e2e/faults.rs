//! Parts killed in the middle of a burst: wattlane, the API server (with the history of all objects forgotten meanwhile)
//! and etcd. What each next life finds in the API must be enough.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;

use crate::audit::Audit;
use crate::cluster::{Cluster, NAMESPACE, WATTLANE, run};
use crate::objects::{self, SERVER};
use crate::wait::until;

const NODES: usize = 100;
const CARDS: usize = 8;
const CARDS_A_POD: u32 = 2;
/// Every card of the cluster is wanted, and some more: a card that got lost would show, as one given twice would.
const FIT: usize = NODES * CARDS / CARDS_A_POD as usize;
const TOO_MANY: usize = 4;
/// kube-scheduler backs off for up to ten seconds at a time while a part is away, and counts failures a pod.
const LONG: Duration = Duration::from_secs(240);
/// Who dies in the middle of each wave. Waves, because a part that comes back slowly on a busy machine would find the
/// whole burst bound, and the next death would say nothing.
const KILLS: [&str; 5] = [WATTLANE, "kube-apiserver", WATTLANE, "etcd", "kube-apiserver"];
const WAVE: usize = FIT / KILLS.len();

/// How the burst goes: bound pods, and the longest time without another.
struct Burst {
    pods: Api<Pod>,
    bound: usize,
    since: Instant,
    longest: Duration,
}

impl Burst {
    async fn create(&self, wave: usize, count: usize) -> Result<()> {
        let create = PostParams::default();
        let all = (0..count).map(|n| {
            let (pods, create) = (&self.pods, &create);
            async move {
                let pod = objects::gpu_pod(&format!("pod-{wave}-{n}"), CARDS_A_POD)?;
                pods.create(create, &pod).await.context("create")
            }
        });
        futures::future::try_join_all(all).await.map(drop)
    }

    async fn look(&mut self) -> Result<usize> {
        let all = self.pods.list(&ListParams::default()).await?.items;
        let on_a_node = |p: &&Pod| p.spec.as_ref().is_some_and(|s| s.node_name.is_some());
        let bound = all.iter().filter(on_a_node).count();
        if bound != self.bound {
            self.longest = self.longest.max(self.since.elapsed());
            (self.bound, self.since) = (bound, Instant::now());
        }
        Ok(bound)
    }

    async fn reaches(&mut self, cluster: &mut Cluster, count: usize) -> Result<()> {
        until(&format!("{count} bound pods"), LONG, async || {
            cluster.all_alive()?;
            let bound = self.look().await?;
            ensure!(bound >= count, "{bound} are bound");
            Ok(())
        })
        .await
    }
}

/// Kills the part, checks that this was in the middle, and starts it again.
async fn kill(cluster: &mut Cluster, burst: &mut Burst, part: &str, wanted: usize) -> Result<()> {
    cluster.kill(part)?;
    ensure!(
        burst.bound < wanted,
        "the wave was over before {part} was killed: this run says nothing"
    );
    if part == WATTLANE {
        Audit::read(cluster.client()).await?.check()?;
    }
    if part == "kube-apiserver" {
        cluster.compact().await?;
    }
    cluster.revive(part).await?;
    let bound = burst.look().await?;
    eprintln!(
        "{part} killed and back, {bound} of {FIT} bound, longest stall {:?}",
        burst.longest
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn parts_killed_in_a_burst_give_no_device_twice_and_lose_none() {
    run(async |cluster: &mut Cluster| {
        let client = cluster.client();
        for n in 0..NODES {
            let name = format!("node-{n}");
            objects::node(client.clone(), &name, json!({})).await?;
            cluster.apply(&objects::slice(&name, &[SERVER; CARDS]), "").await?;
        }
        let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
        let start = Instant::now();
        let mut burst = Burst {
            pods,
            bound: 0,
            since: start,
            longest: Duration::ZERO,
        };
        for (n, part) in KILLS.into_iter().enumerate() {
            let before = n * WAVE;
            // All admitted before the kill: what is created while wattlane is away stays as it was written.
            let more = if n == 0 { TOO_MANY } else { 0 };
            burst.create(n, WAVE + more).await?;
            burst.reaches(cluster, before + WAVE / 5).await?;
            kill(cluster, &mut burst, part, before + WAVE).await?;
        }
        burst.reaches(cluster, FIT).await?;
        let (took, longest) = (start.elapsed(), burst.longest);
        eprintln!("{FIT} pods bound in {took:?}, longest stall {longest:?}");

        // Every card is given once, and stays so: nothing that was on its way may change it any more.
        for _ in 0..2 {
            let audit = Audit::read(client.clone()).await?;
            audit.check()?;
            let mut given = 0;
            for pod in &audit.pods {
                given += audit.given(pod)?.map_or(0, |g| g.devices.len());
            }
            ensure!(given == NODES * CARDS, "{given} of {} devices are given", NODES * CARDS);
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
        Ok(())
    })
    .await;
}
