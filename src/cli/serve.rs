//! `wattlane serve`: the service, until a signal or the end of a critical task.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use tokio::signal::unix::{SignalKind, signal};

use super::election::Election;
use super::pending::Created;
use super::{ClusterArg, load_policy, named, secret_name};
use crate::app::{self, Core, Kept, Net, TlsFiles};
use crate::certs::client;
use crate::certs::rotation::Lifetimes;
use crate::cluster::embedded::Embedded;
use crate::cluster::kube::KubeCluster;
use crate::keeper::Settings;
use crate::server::Limits;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where to serve the extender and admission, over TLS.
    #[arg(long, value_name = "IP:PORT", value_parser = named::listen, default_value = "0.0.0.0:8443")]
    listen: SocketAddr,
    /// Where to serve /livez, /readyz and /metrics, over plain HTTP.
    #[arg(long, value_name = "IP:PORT", value_parser = named::listen, default_value = "0.0.0.0:8081")]
    admin_listen: SocketAddr,
    #[command(flatten)]
    cluster: ClusterArg,
    /// Placement policy (YAML); looked at again every ten seconds.
    #[arg(long)]
    policy: Option<PathBuf>,
    /// Keep the last policy that was good in this file, and start with it when --policy is wrong by then.
    #[arg(long, value_name = "FILE", requires = "policy")]
    policy_kept: Option<PathBuf>,
    /// Serving certificate chain (PEM); looked at again every ten seconds.
    #[arg(long, requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    #[arg(long, requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    #[command(flatten)]
    secret: SecretArgs,
    /// Clients of the extender must show a certificate of this CA (PEM), made for clients.
    #[arg(long)]
    client_ca: Option<PathBuf>,
    /// Names of which such a certificate must carry one, as common name or as DNS name; none: any the CA signed.
    #[arg(long, value_delimiter = ',', value_parser = named::client, requires = "client_ca")]
    client_name: Vec<String>,
    #[command(flatten)]
    election: Election,
    /// The same for clients of admission, with --client-ca or --tls-secret; none: no certificate is asked for.
    /// kube-apiserver shows one where its AdmissionConfiguration names a kubeconfig for webhooks.
    #[arg(long, value_delimiter = ',', value_parser = named::client)]
    admission_client_name: Vec<String>,
    /// Seconds between two looks of the audit, which writes metrics, and events on what it finds.
    #[arg(long, default_value_t = 60, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    audit_every: u32,
}

/// Certificates that are made, kept in a Secret and renewed by the replicas themselves.
#[derive(Debug, clap::Args)]
struct SecretArgs {
    /// Keep CA and certificates in this Secret, which must exist (it may be empty), and in the webhook configuration the CA
    /// as its caBundle and a token at the end of its path, without which nobody may ask for admission.
    #[arg(long, value_name = "[NAMESPACE/]NAME", conflicts_with_all = ["tls_cert", "tls_key", "client_ca", "client_name"])]
    tls_secret: Option<String>,
    /// Keep the client pair of kube-scheduler, and the CA it knows us by, in this Secret.
    #[arg(long, value_name = "[NAMESPACE/]NAME", requires = "tls_secret")]
    tls_client_secret: Option<String>,
    /// Names and IP addresses that clients reach the service by; none: wattlane.NAMESPACE.svc and
    /// wattlane-extender.NAMESPACE.svc, of the Secret's namespace.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = named::host, requires = "tls_secret")]
    tls_name: Vec<String>,
    /// The MutatingWebhookConfiguration that calls us.
    #[arg(long, value_name = "NAME", default_value = "wattlane")]
    tls_webhook: String,
    /// Lives of a CA, of its announcement and of a certificate, in seconds: for tests.
    #[arg(long, hide = true, value_delimiter = ',', num_args = 1, requires = "tls_secret")]
    tls_lifetimes: Vec<i64>,
}

impl SecretArgs {
    fn kept(&self, cluster: Option<&Arc<KubeCluster>>) -> anyhow::Result<Option<Kept>> {
        let Some(secret) = &self.tls_secret else {
            return Ok(None);
        };
        let Some(cluster) = cluster else {
            bail!("--tls-secret needs --cluster kube: files hold no Secrets");
        };
        let secret = secret_name(secret, cluster.namespace())?;
        let client = self.tls_client_secret.as_ref();
        let mut names = named::given(&self.tls_name);
        if names.is_empty() {
            let services = ["wattlane", "wattlane-extender"];
            names.extend(services.map(|s| format!("{s}.{}.svc", secret.namespace)));
        }
        let lifetimes = match self.tls_lifetimes.as_slice() {
            [] => Lifetimes::default(),
            &[authority, overlap, leaf] => Lifetimes::new(authority, overlap, leaf)?,
            _ => bail!("--tls-lifetimes: three numbers"),
        };
        Ok(Some(Kept {
            store: cluster.clone(),
            settings: Settings {
                client: client.map(|c| secret_name(c, cluster.namespace())).transpose()?,
                webhooks: self.tls_webhook.clone(),
                secret,
                names,
                lifetimes,
            },
        }))
    }
}

pub(super) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let policy = load_policy(args.policy.as_deref()).keeping(args.policy_kept.clone());
    let embedded = match args.cluster.files() {
        Some(files) => Some(Arc::new(Embedded::load(&files)?)),
        None => None,
    };
    let (core, kept) = match &embedded {
        Some(embedded) => {
            let kept = args.secret.kept(None)?;
            super::say_assumptions(embedded);
            let core = Core::start(embedded.clone(), policy).await?;
            create_pending(&core, embedded).await;
            (core, kept)
        }
        None => {
            let cluster = Arc::new(super::connect().await?);
            let kept = args.secret.kept(Some(&cluster))?;
            (Core::spawn(cluster, policy, true)?, kept)
        }
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
    if tls.is_none() && kept.is_none() {
        tracing::warn!("no --tls-cert: serving with a self-signed pair made in memory, which nobody else can verify");
    }
    if !args.admission_client_name.is_empty() && kept.is_none() && args.client_ca.is_none() {
        bail!("--admission-client-name needs --client-ca or --tls-secret: the CA of those certificates");
    }
    if let Some(open) = open_door(kept.is_some(), args.client_ca.is_some(), !args.client_name.is_empty()) {
        tracing::warn!("{open}");
    }
    let client_names = match &kept {
        // The one name that the CA in the Secret signs for clients.
        Some(_) => vec![client::NAME.to_owned()],
        None => args.client_name.clone(),
    };
    let net = Net {
        listen: args.listen,
        admin: Some(args.admin_listen),
        tls,
        kept,
        client_ca: args.client_ca.clone(),
        client_names,
        admission_names: args.admission_client_name.clone(),
        limits: Limits::default(),
    };
    core.spawn_reload();
    if embedded.is_none() {
        core.spawn_sweep();
        core.spawn_remake();
    }
    let leads = core.clone();
    core.spawn_audit(Duration::from_secs(args.audit_every.into()), move || leads.leads());
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
            Ok(Created { refused: None, .. }) => tracing::info!(pod = name, "created, waiting to be placed"),
            Ok(Created { refused, .. }) => tracing::warn!(pod = name, why = refused, "refused at admission"),
            Err(error) => tracing::warn!(pod = name, error = format!("{error:#}"), "not created"),
        }
    }
}

/// Who but the kube-scheduler can bind pods, as the service is configured.
fn open_door(kept: bool, ca: bool, name: bool) -> Option<&'static str> {
    match (kept, ca, name) {
        // A CA of its own, which signs for one name.
        (true, ..) | (false, true, true) => None,
        (false, false, _) => Some("no --client-ca: whoever reaches the extender can bind pods"),
        (false, true, false) => Some("no --client-name: whoever has a client certificate of --client-ca can bind pods"),
    }
}

#[cfg(test)]
mod tests {
    use super::open_door;

    #[test]
    fn an_open_door_is_named_where_there_is_one() {
        let says = |kept, ca, name| open_door(kept, ca, name).map_or("", |w| &w[.."no --client-ca".len()]);
        // --client-name has no meaning without a CA.
        assert_eq!(
            [says(false, false, false), says(false, false, true)],
            ["no --client-ca"; 2]
        );
        assert!(says(false, true, false).starts_with("no --client-n"));
        for (ca, name) in [(false, false), (true, false), (true, true)] {
            assert_eq!(says(true, ca, name), "");
        }
        assert_eq!(says(false, true, true), "");
    }
}
