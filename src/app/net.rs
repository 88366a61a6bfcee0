//! The service around the core: listeners, TLS, the admin port, and the order of the shutdown.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Core, Ended};
use crate::certs;
use crate::cluster::secrets::CertStore;
use crate::keeper::{Clock, Keeper, Settings};
use crate::server::{Limits, Material, Server, Tls, TlsOptions, admin};

/// The files of the serving pair.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// Certificates that are kept in a Secret, by us.
pub struct Kept {
    pub store: Arc<dyn CertStore>,
    pub settings: Settings,
}

/// Where to listen and who may come.
pub struct Net {
    pub listen: SocketAddr,
    /// None: no admin port.
    pub admin: Option<SocketAddr>,
    /// None: a self-signed pair in memory.
    pub tls: Option<TlsFiles>,
    /// Instead of files; then the CA in the Secret is the client CA too.
    pub kept: Option<Kept>,
    pub client_ca: Option<PathBuf>,
    /// Common or DNS names of client certificates that may call the extender; empty: any the CA signed.
    pub client_names: Vec<String>,
    /// The same for admission; empty: everybody, since kube-apiserver shows no certificate unless it is told to.
    pub admission_names: Vec<String>,
    pub limits: Limits,
}

/// How often TLS files are looked at.
const TLS_EVERY: Duration = Duration::from_secs(10);
/// After the connections have ended: how long binds that are under way may take to come to a known end.
const LAST_BINDS: Duration = Duration::from_secs(10);

impl Net {
    /// A free port on loopback, with a certificate of its own.
    pub fn loopback() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            admin: None,
            tls: None,
            kept: None,
            client_ca: None,
            client_names: vec![],
            admission_names: vec![],
            limits: Limits::default(),
        }
    }
}

/// A running service.
pub struct App {
    pub address: SocketAddr,
    pub admin: Option<SocketAddr>,
    /// The CA of the pair in memory, where there is one.
    pub ca_pem: Option<String>,
    core: Core,
    tasks: JoinSet<Ended>,
    stop: CancellationToken,
}

pub async fn serve(core: Core, net: Net) -> anyhow::Result<App> {
    let (cert, key, ca_pem) = match &net.tls {
        Some(files) => (
            Material::File(files.cert.clone()),
            Material::File(files.key.clone()),
            None,
        ),
        None => {
            let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
            let made = certs::ephemeral(&names)?;
            (
                Material::Text(made.pair.cert),
                Material::Text(made.pair.key),
                Some(made.ca_cert),
            )
        }
    };
    let client_ca = match (&net.kept, &ca_pem) {
        // Until the Secret has been read: nobody has a certificate of this CA, so nobody may call the extender.
        (Some(_), Some(nobody)) => Some(Material::Text(nobody.clone())),
        _ => net.client_ca.clone().map(Material::File),
    };
    let options = TlsOptions {
        cert,
        key,
        client_ca,
        client_names: net.client_names.clone(),
        admission_names: net.admission_names.clone(),
    };
    let tls = Arc::new(Tls::load(options)?);
    let listener = TcpListener::bind(net.listen)
        .await
        .with_context(|| format!("cannot listen on {}", net.listen))?;
    let address = listener.local_addr()?;
    let stop = CancellationToken::new();
    let mut tasks: JoinSet<Ended> = JoinSet::new();

    let admin = match net.admin {
        None => None,
        Some(at) => {
            let listener = TcpListener::bind(at)
                .await
                .with_context(|| format!("cannot listen on {at} (admin)"))?;
            let address = listener.local_addr()?;
            let serving = admin::serve(
                listener,
                core.metrics.clone(),
                core.readiness.clone(),
                core.stop.clone(),
            );
            tasks.spawn(async {
                serving.await;
                ("admin port", Ok(()))
            });
            Some(address)
        }
    };
    let (metrics, readiness, stopped) = (core.metrics.clone(), core.readiness.clone(), core.stop.clone());
    match net.kept {
        Some(kept) => {
            readiness.certificate_expires(0);
            // Randomness of the standard library, of which a replica needs very little.
            let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
            let jitter = (random % 1024) as f64 / 1024.0;
            let keeper = Keeper::new(
                kept.settings,
                kept.store,
                Clock::system(),
                jitter,
                tls.clone(),
                metrics,
                readiness,
            );
            tasks.spawn(async move {
                keeper.run(stopped).await;
                ("certificates", Ok(()))
            });
        }
        None => {
            let watching = tls.clone().watch(TLS_EVERY, metrics, readiness, stopped);
            tasks.spawn(async {
                watching.await;
                ("TLS reload", Ok(()))
            });
        }
    }
    let server = Server {
        service: Arc::new(core.handlers(net.limits.deciding)),
        tls,
        limits: net.limits,
        metrics: core.metrics.clone(),
        readiness: core.readiness.clone(),
    };
    let serving = server.serve(listener, stop.clone());
    tasks.spawn(async {
        serving.await;
        ("server", Ok(()))
    });
    Ok(App {
        address,
        admin,
        ca_pem,
        core,
        tasks,
        stop,
    })
}

impl App {
    /// Runs until `signal`, then shuts down in order.
    ///
    /// # Errors
    /// A critical task ended by itself: its name, and why.
    pub async fn run(mut self, signal: impl Future<Output = ()>) -> anyhow::Result<()> {
        let critical = async {
            loop {
                if let Some(ended) = self.core.ended() {
                    return ended;
                }
                match tokio::time::timeout(Duration::from_millis(200), self.tasks.join_next()).await {
                    Ok(Some(Ok(ended))) => return ended,
                    Ok(Some(Err(e))) => return ("a critical task", Err(e.into())),
                    Ok(None) | Err(_) => {}
                }
            }
        };
        tokio::select! {
            () = signal => {}
            (name, result) = critical => {
                result.with_context(|| format!("{name} ended"))?;
                anyhow::bail!("{name} ended");
            }
        }
        tracing::info!("shutting down: finishing what is in flight");
        self.shutdown().await
    }

    /// Stops taking requests, lets those in flight and binds under way end, gives the Lease back, then stops the rest.
    pub async fn shutdown(&mut self) -> anyhow::Result<()> {
        self.stop.cancel();
        // The server is the one task this token ends.
        while let Some(ended) = self.tasks.join_next().await {
            if matches!(ended, Ok(("server", _))) {
                break;
            }
        }
        if tokio::time::timeout(LAST_BINDS, self.core.binder.drained())
            .await
            .is_err()
        {
            tracing::warn!(
                binds = self.core.binder.running(),
                "binds are still under way: the next start finds what they wrote in the API"
            );
        } else if let Some(leadership) = &self.core.leadership {
            // Not while binds write: the next leader begins at once.
            leadership.resign().await;
        }
        self.core.stop.cancel();
        self.tasks.shutdown().await;
        Ok(())
    }
}
