//! Two replicas under a burst that fills the cluster, and in its middle whatever can happen to them, to the API server
//! (with the history of all objects forgotten meanwhile) and to etcd. What each next life finds in the API must be
//! enough; the result is read from the API alone.

mod burst;
mod fault;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::ensure;

use self::burst::{Burst, CARDS, FIT, NODES};
use self::fault::Fault;
use crate::audit::{Audit, Damage};
use crate::cluster::{Cluster, run_replicas};
use crate::replicas;

/// In this order: each replica leads and follows in turn. Waves, because a part that comes back slowly on a busy
/// machine would find the whole burst bound, and the next fault would say nothing.
const FAULTS: [Fault; 10] = [
    Fault::LeaderKilled,
    Fault::ApiKilled,
    Fault::FollowerKilled,
    Fault::LeaderStopsAndGoesOn,
    Fault::LeaderKilled,
    Fault::EtcdKilled,
    Fault::LeaderHangs,
    Fault::ApiAway,
    Fault::LeaderEnds,
    Fault::ApiKilled,
];
const WAVE: usize = FIT / FAULTS.len();
/// More than fit, at the end.
const TOO_MANY: usize = 4;

#[derive(Default)]
struct Row {
    runs: usize,
    damage: Damage,
    stall: Duration,
    /// Of that, there was no API server.
    away: Duration,
}

fn print(table: &BTreeMap<Fault, Row>) {
    eprintln!("| fault | runs | double allocations | leaks | longest stall | of it without an API server |");
    eprintln!("|---|---|---|---|---|---|");
    for (fault, row) in table {
        let Damage { twice, leaks } = row.damage;
        eprintln!(
            "| {} | {} | {twice} | {leaks} | {:.1} s | {:.1} s |",
            fault.name(),
            row.runs,
            row.stall.as_secs_f64(),
            row.away.as_secs_f64()
        );
    }
}

#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn faults_in_a_burst_give_no_device_twice_lose_none_and_end_in_time() {
    run_replicas(async |cluster: &mut Cluster| {
        let mut burst = Burst::on_empty_nodes(cluster).await?;
        let mut table = BTreeMap::<Fault, Row>::new();
        let mut late = vec![];
        let start = Instant::now();
        for (n, fault) in FAULTS.into_iter().enumerate() {
            let (before, last) = (n * WAVE, n + 1 == FAULTS.len());
            replicas::settled(cluster).await?;
            // All admitted before the fault: what is created while wattlane is away stays as it was written.
            burst.create(n, WAVE + if last { TOO_MANY } else { 0 }).await?;
            burst.reaches(cluster, before + WAVE / 5).await?;
            let away = fault.strike(cluster, &mut burst, before + WAVE).await?;

            let damage = Audit::read(cluster.client()).await?.damage()?;
            let stall = burst.longest_stall();
            eprintln!("{}: {stall:.1?}, {away:.1?} of it away; {damage:?}", fault.name());
            if stall > away + fault.limit() {
                late.push(format!("{}: no pod bound for {stall:.1?}", fault.name()));
            }
            let row = table.entry(fault).or_default();
            row.runs += 1;
            row.damage.twice = row.damage.twice.max(damage.twice);
            row.damage.leaks = row.damage.leaks.max(damage.leaks);
            if stall > row.stall {
                (row.stall, row.away) = (stall, away);
            }
        }
        eprintln!("{FIT} pods bound in {:.1?}", start.elapsed());
        print(&table);
        ensure!(
            table.values().all(|row| row.damage == Damage::default()),
            "devices were given twice or lost"
        );
        ensure!(late.is_empty(), "{}", late.join("; "));

        // Every card is given once, and stays so: nothing that was on its way may change it any more.
        for _ in 0..2 {
            let audit = Audit::read(cluster.client()).await?;
            audit.check()?;
            ensure!(audit.damage()? == Damage::default(), "{:?}", audit.damage());
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
