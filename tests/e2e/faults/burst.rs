//! Pods that fill the cluster in waves: how many are bound, and the longest time in which none was.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;

use crate::cluster::{Cluster, NAMESPACE};
use crate::objects::{self, SERVER};
use crate::wait::until;

pub(super) const NODES: usize = 100;
pub(super) const CARDS: usize = 8;
const CARDS_A_POD: u32 = 2;
/// Every card of the cluster is wanted: one that got lost would show, as one given twice would.
pub(super) const FIT: usize = NODES * CARDS / CARDS_A_POD as usize;
/// An API server and a lease to come back, and two busy cores.
const LONG: Duration = Duration::from_secs(240);

pub(super) struct Burst {
    pods: Api<Pod>,
    pub(super) bound: usize,
    /// When the number of bound pods last changed under our eyes.
    since: Instant,
    longest: Duration,
}

impl Burst {
    pub(super) async fn on_empty_nodes(cluster: &Cluster) -> Result<Self> {
        for n in 0..NODES {
            let name = format!("node-{n}");
            objects::node(cluster.client(), &name, json!({})).await?;
            cluster.apply(&objects::slice(&name, &[SERVER; CARDS]), "").await?;
        }
        Ok(Self {
            pods: Api::namespaced(cluster.client(), NAMESPACE),
            bound: 0,
            since: Instant::now(),
            longest: Duration::ZERO,
        })
    }

    pub(super) async fn create(&mut self, wave: usize, count: usize) -> Result<()> {
        let create = PostParams::default();
        let all = (0..count).map(|n| {
            let (pods, create) = (&self.pods, &create);
            async move {
                let pod = objects::gpu_pod(&format!("pod-{wave}-{n}"), CARDS_A_POD)?;
                pods.create(create, &pod).await.context("create")
            }
        });
        futures::future::try_join_all(all).await?;
        Ok(())
    }

    /// The longest time without another pod from here on; what has passed of the present one counts.
    pub(super) fn forget_stalls(&mut self) {
        self.longest = Duration::ZERO;
    }

    pub(super) fn longest_stall(&self) -> Duration {
        self.longest
    }

    pub(super) async fn look(&mut self) -> Result<usize> {
        let all = self.pods.list(&ListParams::default()).await?.items;
        let on_a_node = |p: &&Pod| p.spec.as_ref().is_some_and(|s| s.node_name.is_some());
        let bound = all.iter().filter(on_a_node).count();
        if bound != self.bound {
            self.longest = self.longest.max(self.since.elapsed());
            (self.bound, self.since) = (bound, Instant::now());
        }
        Ok(bound)
    }

    pub(super) async fn reaches(&mut self, cluster: &mut Cluster, count: usize) -> Result<()> {
        until(&format!("{count} bound pods"), LONG, async || {
            cluster.all_alive()?;
            let bound = self.look().await?;
            ensure!(bound >= count, "{bound} are bound");
            Ok(())
        })
        .await
    }
}
