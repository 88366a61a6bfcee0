//! What can happen to a cluster in the middle of a burst, and how long it may keep pods from being bound.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::burst::Burst;
use crate::cluster::Cluster;
use crate::replicas::{self, other};
use crate::wait::{SOON, until};

/// `leaseDurationSeconds`, and how much later than its writer the others may see a renewal.
const LEASE: Duration = Duration::from_secs(10 + 1);
/// `podMaxBackoffSeconds` of manifests/base.
const BACKOFF: Duration = Duration::from_secs(2);
/// `httpTimeout` of manifests/base: the last call to a leader that is silent, begun just before another led.
const CALL: Duration = Duration::from_secs(6);
/// After the API server is there again: a leader that could not renew for 6 s has lost its term, and nobody begins one
/// before the lease is over; then the next look.
const REST_OF_LEASE: Duration = Duration::from_secs(10 - 6 + 1);
/// For the work itself on two cores that others use as well; the limits are about waits, not about speed.
const MARGIN: Duration = Duration::from_secs(8);
const AWAY: Duration = Duration::from_secs(25);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    LeaderKilled,
    FollowerKilled,
    LeaderStopsAndGoesOn,
    LeaderHangs,
    LeaderEnds,
    ApiKilled,
    ApiAway,
    EtcdKilled,
}

impl Fault {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::LeaderKilled => "kill -9 of the leader",
            Self::FollowerKilled => "kill -9 of the follower",
            Self::LeaderStopsAndGoesOn => "leader stopped beyond its lease, goes on",
            Self::LeaderHangs => "leader stopped for good",
            Self::LeaderEnds => "leader asked to end",
            Self::ApiKilled => "kill -9 of kube-apiserver, compaction",
            Self::ApiAway => "kube-apiserver away for 25 s",
            Self::EtcdKilled => "kill -9 of etcd",
        }
    }

    /// For how long no pod may be bound while the API server answers.
    pub(super) fn limit(self) -> Duration {
        MARGIN
            + BACKOFF
            + match self {
                Self::LeaderKilled => LEASE,
                Self::FollowerKilled => Duration::ZERO,
                Self::LeaderStopsAndGoesOn | Self::LeaderHangs => LEASE + CALL,
                Self::LeaderEnds => Duration::from_secs(1),
                Self::ApiKilled | Self::ApiAway | Self::EtcdKilled => REST_OF_LEASE,
            }
    }

    /// Makes it happen, in a wave that ends at `wanted` bound pods, and has all pods of the wave bound. Returns for
    /// how long there was no API server.
    pub(super) async fn strike(self, cluster: &mut Cluster, burst: &mut Burst, wanted: usize) -> Result<Duration> {
        let leader = replicas::leader(cluster.client()).await?;
        let begun = Instant::now();
        let mut away = Duration::ZERO;
        burst.forget_stalls();
        match self {
            Self::LeaderKilled => {
                cluster.kill(leader)?;
                let last = replicas::lease(cluster.client()).await?;
                in_the_middle(burst, wanted).await?;
                burst.reaches(cluster, wanted).await?;
                taken_over(&last, &replicas::lease(cluster.client()).await?)?;
                cluster.revive_replica(leader).await?;
            }
            Self::FollowerKilled => {
                cluster.kill(other(leader))?;
                in_the_middle(burst, wanted).await?;
                burst.reaches(cluster, wanted).await?;
                cluster.revive_replica(other(leader)).await?;
            }
            Self::LeaderStopsAndGoesOn => {
                cluster.freeze(leader)?;
                let before = cluster.log(leader)?.len();
                in_the_middle(burst, wanted).await?;
                // What it had sent before may still be executed; what comes after this is the other's.
                until("the other to lead", SOON, async || {
                    burst.look().await?;
                    let now = replicas::leader(cluster.client()).await?;
                    ensure!(now != leader, "{now} has the Lease");
                    Ok(())
                })
                .await?;
                burst.reaches(cluster, (burst.bound + 1).min(wanted)).await?;
                cluster.thaw(leader)?;
                burst.reaches(cluster, wanted).await?;
                until("the old leader to know that it is none", LEASE, async || {
                    let said = cluster.log(leader)?;
                    let since = said.get(before..).context("a log that shrank")?;
                    ensure!(since.contains("no longer the leader"), "it said: {since}");
                    ensure!(!since.contains("binding: bound"), "it bound after its term: {since}");
                    Ok(())
                })
                .await?;
            }
            Self::LeaderHangs => {
                cluster.freeze(leader)?;
                in_the_middle(burst, wanted).await?;
                burst.reaches(cluster, wanted).await?;
                cluster.kill(leader)?;
                cluster.revive_replica(leader).await?;
            }
            Self::LeaderEnds => {
                cluster.terminate(leader).await?;
                let holder = replicas::holder(&replicas::lease(cluster.client()).await?).to_owned();
                ensure!(
                    !holder.starts_with(leader),
                    "the Lease is not given back: {holder:?} has it"
                );
                in_the_middle(burst, wanted).await?;
                burst.reaches(cluster, wanted).await?;
                cluster.revive_replica(leader).await?;
            }
            Self::ApiKilled | Self::ApiAway | Self::EtcdKilled => {
                ensure!(burst.bound < wanted, "the wave is over: this run says nothing");
                let part = if self == Self::EtcdKilled {
                    "etcd"
                } else {
                    "kube-apiserver"
                };
                cluster.kill(part)?;
                match self {
                    // The history of all objects is gone when it comes back.
                    Self::ApiKilled => cluster.compact().await?,
                    Self::ApiAway => tokio::time::sleep(AWAY).await,
                    _ => {}
                }
                cluster.revive_part(part).await?;
                away = begun.elapsed();
                burst.reaches(cluster, wanted).await?;
                cluster.wattlane_ready().await?;
            }
        }
        Ok(away)
    }
}

async fn in_the_middle(burst: &mut Burst, wanted: usize) -> Result<()> {
    let bound = burst.look().await?;
    ensure!(
        bound < wanted,
        "the wave was over before the fault: this run says nothing"
    );
    Ok(())
}

/// By the records' own times, which are of one clock here.
fn taken_over(last: &replicas::Lease, taken: &replicas::Lease) -> Result<()> {
    let (last, taken) = (last.spec.as_ref(), taken.spec.as_ref());
    let (last, taken) = (last.context("a spec")?, taken.context("a spec")?);
    let renewed = last.renew_time.as_ref().context("a renewTime")?.0.as_millisecond();
    let acquired = taken
        .acquire_time
        .as_ref()
        .context("an acquireTime")?
        .0
        .as_millisecond();
    let silent = Duration::from_millis(u64::try_from(acquired - renewed).context("taken before it was renewed")?);
    eprintln!("  the Lease was taken {silent:.1?} after its last renewal");
    let least = Duration::from_secs(6);
    ensure!(
        least <= silent && silent <= LEASE + MARGIN,
        "the Lease was taken {silent:?} after its last renewal"
    );
    Ok(())
}
