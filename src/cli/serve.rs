//! `wattlane serve`: the service, until a signal or the end of a critical task.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::bail;
use tokio::signal::unix::{SignalKind, signal};

use super::election::Election;
use super::{ClusterArg, load_policy};
use crate::app::{self, Core, Net, TlsFiles};
use crate::cluster::embedded::Embedded;
use crate::server::Limits;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where to serve the extender and admission, over TLS.
    #[arg(long, default_value = "0.0.0.0:8443")]
    listen: SocketAddr,
    /// Where to serve /livez, /readyz and /metrics, over plain HTTP.
    #[arg(long, default_value = "0.0.0.0:8081")]
    admin_listen: SocketAddr,
    #[command(flatten)]
    cluster: ClusterArg,
    /// Placement policy (YAML); looked at again every ten seconds.
    #[arg(long)]
    policy: Option<PathBuf>,
    /// Serving certificate chain (PEM); looked at again every ten seconds.
    #[arg(long, requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    #[arg(long, requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Clients of the extender must show a certificate of this CA (PEM). Admission does not ask for one.
    #[arg(long)]
    client_ca: Option<PathBuf>,
    /// Names (common name or DNS) a client certificate may carry; none: any the CA signed.
    #[arg(long, value_delimiter = ',', requires = "client_ca")]
    client_name: Vec<String>,
    #[command(flatten)]
    election: Election,
}

pub(super) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let policy = load_policy(args.policy.as_deref())?;
    let embedded = match args.cluster.files() {
        Some(files) => Some(Arc::new(Embedded::load(&files)?)),
        None => None,
    };
    let core = match &embedded {
        Some(embedded) => {
            super::say_assumptions(embedded);
            let core = Core::start(embedded.clone(), policy).await?;
            create_pending(&core, embedded).await;
            core
        }
        None => Core::spawn(Arc::new(args.cluster.connect().await?), policy, true)?,
    };
    let core = match args.election.settings(embedded.is_none())? {
        Some(settings) => {
            tracing::info!(lease = %settings.lease, identity = &*settings.identity, "standing for election");
            core.elected(settings)
        }
        None => core,
    };
    let tls = match (&args.tls_cert, &args.tls_key) {
        (Some(cert), Some(key)) => Some(TlsFiles {
            cert: cert.clone(),
            key: key.clone(),
        }),
        (None, None) => None,
        _ => bail!("--tls-cert and --tls-key belong together"),
    };
    if tls.is_none() {
        tracing::warn!("no --tls-cert: serving with a self-signed pair made in memory, which nobody else can verify");
    }
    if args.client_ca.is_none() {
        tracing::warn!("no --client-ca: whoever reaches the extender can bind pods");
    }
    let net = Net {
        listen: args.listen,
        admin: Some(args.admin_listen),
        tls,
        client_ca: args.client_ca.clone(),
        client_names: args.client_name.clone(),
        limits: Limits::default(),
    };
    let app = app::serve(core, net).await?;
    tracing::info!(address = %app.address, admin = ?app.admin, version = env!("CARGO_PKG_VERSION"), "serving");

    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    app.run(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
    .await?;
    Ok(ExitCode::SUCCESS)
}

/// The pods of the files that are not bound yet: created, so that whoever plays the scheduler can place them.
async fn create_pending(core: &Core, embedded: &Embedded) {
    for pod in embedded.pending() {
        let name = format!("{}/{}", pod["metadata"]["namespace"], pod["metadata"]["name"]).replace('"', "");
        match super::pending::create(core, embedded, pod).await {
            Ok(None) => tracing::info!(pod = name, "created, waiting to be placed"),
            Ok(Some(refusal)) => tracing::warn!(pod = name, why = refusal, "refused at admission"),
            Err(error) => tracing::warn!(pod = name, error = format!("{error:#}"), "not created"),
        }
    }
}
