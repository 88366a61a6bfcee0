//! A wave of pods: created, watched until the last one is bound, and taken away again.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{Api, DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};

use super::plane::Plane;
use super::plane::wait::{SOON, until};
use super::world::{self, NAMESPACE};

pub(crate) struct Order {
    /// Names the wave; its pods carry it as a label.
    pub(crate) name: String,
    pub(crate) pods: usize,
    pub(crate) scheduler: &'static str,
    /// Creations at one time.
    pub(crate) creators: usize,
    pub(crate) patience: Duration,
}

pub(crate) struct Played {
    /// From when a pod's creation was sent to when the watch showed it bound, in the order of the pods' numbers.
    pub(crate) latencies: Vec<Duration>,
    /// When it was bound, from the first creation on.
    pub(crate) bound_at: Vec<Duration>,
    /// From the first creation to the last pod bound.
    pub(crate) took: Duration,
    /// From the first creation to the last answer to one.
    pub(crate) created: Duration,
}

/// Creates the pods and waits until all are bound.
pub(crate) async fn play(plane: &mut Plane, order: &Order) -> Result<Played> {
    let pods: Api<Pod> = Api::namespaced(plane.client(), NAMESPACE);
    let sent = RefCell::new(BTreeMap::new());
    let bound = RefCell::new(BTreeMap::new());
    let start = pods
        .list(&ListParams::default().limit(1))
        .await?
        .metadata
        .resource_version;
    let begun = Instant::now();
    let create = async {
        let made = stream::iter(0..order.pods).map(async |i| {
            let pod = world::pod(&order.name, i, order.scheduler)?;
            let name = pod.metadata.name.clone().unwrap_or_default();
            sent.borrow_mut().insert(name, Instant::now());
            pods.create(&PostParams::default(), &pod)
                .await
                .map(drop)
                .map_err(anyhow::Error::from)
        });
        made.buffer_unordered(order.creators).try_collect::<()>().await?;
        Ok(begun.elapsed())
    };
    let watch = follow(&pods, order, start.context("a list has a version")?, &bound);
    let both = tokio::time::timeout(order.patience, futures::future::try_join(create, watch));
    let Ok(ended) = both.await else {
        plane.all_alive()?;
        let missing = pods
            .list(&ListParams::default().labels(&format!("wave={}", order.name)))
            .await?;
        let unbound = missing.items.iter().find(|p| node_of(p).is_none());
        let why = unbound.and_then(|p| p.status.as_ref()?.conditions.as_ref()?.first()?.message.clone());
        bail!(
            "{} of {} pods were bound within {:?}; of one that was not: {}",
            bound.borrow().len(),
            order.pods,
            order.patience,
            why.unwrap_or_else(|| "nothing is said".to_owned())
        );
    };
    let (created, ()) = ended?;
    plane.all_alive()?;
    let (sent, bound) = (sent.into_inner(), bound.into_inner());
    let last = bound.values().max().copied().unwrap_or(begun);
    Ok(Played {
        latencies: sent
            .iter()
            .filter_map(|(name, at)| Some(bound.get(name)?.duration_since(*at)))
            .collect(),
        bound_at: sent
            .keys()
            .filter_map(|name| Some(bound.get(name)?.duration_since(begun)))
            .collect(),
        took: last - begun,
        created,
    })
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// Notes when each pod is first seen bound, until all are.
async fn follow(
    pods: &Api<Pod>,
    order: &Order,
    mut from: String,
    bound: &RefCell<BTreeMap<String, Instant>>,
) -> Result<()> {
    let params = WatchParams::default()
        .labels(&format!("wave={}", order.name))
        .timeout(290);
    while bound.borrow().len() < order.pods {
        let mut events = pods.watch(&params, &from).await?.boxed();
        while let Some(event) = events.try_next().await? {
            match event {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                    from = pod.metadata.resource_version.clone().unwrap_or(from);
                    if let (true, Some(name)) = (node_of(&pod).is_some(), pod.metadata.name) {
                        bound.borrow_mut().entry(name).or_insert_with(Instant::now);
                    }
                }
                WatchEvent::Bookmark(mark) => from = mark.metadata.resource_version,
                WatchEvent::Deleted(pod) => bail!("somebody deleted pod {:?}", pod.metadata.name),
                WatchEvent::Error(e) => bail!("the watch of the pods broke: {}", e.message),
            }
            if bound.borrow().len() == order.pods {
                break;
            }
        }
    }
    Ok(())
}

/// Deletes all pods and their claims, and waits until they are gone.
pub(crate) async fn clear(plane: &mut Plane) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(plane.client(), NAMESPACE);
    let claims: Api<ResourceClaim> = Api::namespaced(plane.client(), NAMESPACE);
    let (now, all) = (DeleteParams::default().grace_period(0), ListParams::default());
    until("the end of all pods and claims", 10 * SOON, async || {
        plane.all_alive()?;
        // Of thousands the API server does not delete all within the time of one request.
        pods.delete_collection(&now, &all).await?;
        claims.delete_collection(&DeleteParams::default(), &all).await?;
        let one = ListParams::default().limit(1);
        until("the claim controller", SOON, async || {
            ensure!(pods.list(&one).await?.items.is_empty(), "there are pods");
            ensure!(claims.list(&one).await?.items.is_empty(), "there are claims");
            Ok(())
        })
        .await
    })
    .await
}
