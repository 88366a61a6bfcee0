//! `wattlane serve` over a kubeconfig, made of the library in this program, which also sees what readers see: how long after
//! an event was sent it is in a published snapshot. A child of the scenario `churn`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::json;
use tokio::io::AsyncBufReadExt as _;
use wattlane::app::{self, Core, Net, PolicySource, TlsFiles};
use wattlane::cluster::kube::KubeCluster;
use wattlane::model::NamespacedName;
use wattlane::publish::Reader;
use wattlane::server::Limits;

use crate::apiserver::micros;
use crate::lives;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(long)]
    kubeconfig: PathBuf,
    #[arg(long)]
    listen: SocketAddr,
    #[arg(long)]
    admin_listen: SocketAddr,
    #[arg(long)]
    tls_cert: PathBuf,
    #[arg(long)]
    tls_key: PathBuf,
    #[arg(long)]
    client_ca: PathBuf,
}

type Samples = Arc<Mutex<Vec<u64>>>;

/// Until the end of stdin. For each line there, the samples since the last one as a JSON list of microseconds on stdout.
pub(crate) async fn run(args: &Args) -> anyhow::Result<()> {
    let cluster = Arc::new(KubeCluster::connect(Some(&args.kubeconfig)).await?);
    let core = Core::spawn(cluster, PolicySource::Default, true)?;
    core.spawn_reload();
    core.spawn_sweep();
    core.spawn_audit(Duration::from_secs(60), || true);
    let samples = Samples::default();
    tokio::spawn(look(core.reader.clone(), samples.clone()));
    let net = Net {
        listen: args.listen,
        admin: Some(args.admin_listen),
        tls: Some(TlsFiles {
            cert: args.tls_cert.clone(),
            key: args.tls_key.clone(),
        }),
        kept: None,
        client_ca: Some(args.client_ca.clone()),
        client_names: vec![],
        admission_names: vec![],
        limits: Limits::default(),
    };
    let app = app::serve(core, net).await?;
    app.run(answer(samples)).await
}

async fn answer(samples: Samples) {
    use std::io::Write as _;
    let mut lines = tokio::io::BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(_)) = lines.next_line().await {
        let new = std::mem::take(&mut *samples.lock().unwrap_or_else(PoisonError::into_inner));
        let mut out = std::io::stdout().lock();
        if writeln!(out, "{}", json!(new)).and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}

/// The claim of every life, as soon as a reader can see it. Its resourceVersion says when it was sent.
async fn look(reader: Reader, samples: Samples) {
    let key = |life| NamespacedName::new("bench", lives::name(life));
    let mut life = 0;
    loop {
        let next = key(life);
        let there = reader
            .wait_until(Duration::from_secs(60), |s| s.claims.contains_key(&next))
            .await;
        let now = micros();
        // None: nothing came for a minute, or a later life was seen first, which cannot be.
        let Some(snapshot) = there else { continue };
        let mut new = vec![];
        while let Some(claim) = snapshot.claims.get(&key(life)) {
            new.extend(
                claim
                    .resource_version
                    .parse::<u64>()
                    .ok()
                    .map(|sent| now.saturating_sub(sent)),
            );
            life += 1;
        }
        samples.lock().unwrap_or_else(PoisonError::into_inner).extend(new);
    }
}

/// What a child said of itself.
pub(crate) async fn ask(
    child: &mut tokio::process::Child,
    lines: &mut tokio::io::Lines<tokio::io::BufReader<tokio::process::ChildStdout>>,
) -> anyhow::Result<Vec<u64>> {
    use tokio::io::AsyncWriteExt as _;
    child.stdin.as_mut().context("no stdin")?.write_all(b"\n").await?;
    let line = lines.next_line().await?.context("the server has ended")?;
    Ok(serde_json::from_str(&line)?)
}
