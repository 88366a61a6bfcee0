//! TLS: the serving pair and the client CA as rustls wants them, re-read when their content changes.
//!
//! Content is polled and compared, not watched: the kubelet swaps a symlink, which file events miss. Owns no
//! connection; each handshake takes the configuration that is current then.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use arc_swap::ArcSwap;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::client::{Client, Pass, Trust};
use super::paths::Paths;
use crate::certs::Facts;
use crate::metrics::{Metrics, Readiness};

/// A PEM text, or where to find it.
#[derive(Clone)]
pub enum Material {
    File(PathBuf),
    /// Never changes.
    Text(String),
}

impl Material {
    fn read(&self) -> anyhow::Result<Vec<u8>> {
        match self {
            Self::File(path) => std::fs::read(path).context("cannot read it"),
            Self::Text(text) => Ok(text.clone().into_bytes()),
        }
    }

    /// For errors: the option with its file, where it is one.
    fn named(&self, option: &str, otherwise: &str) -> String {
        match self {
            Self::File(path) => format!("{option} {}", path.display()),
            Self::Text(_) => otherwise.to_owned(),
        }
    }
}

#[derive(Clone)]
pub struct TlsOptions {
    /// Certificate chain, leaf first.
    pub cert: Material,
    pub key: Material,
    /// Who may sign clients of the extender routes. None: every client may call them.
    pub client_ca: Option<Material>,
    /// Common or DNS names of which the certificate of an extender's client must carry one; empty: any.
    pub client_names: Vec<String>,
    /// The same for clients of admission; empty: none is asked for.
    pub admission_names: Vec<String>,
}

impl TlsOptions {
    fn cert_name(&self) -> String {
        self.cert.named("--tls-cert", "serving certificate")
    }

    fn key_name(&self) -> String {
        self.key.named("--tls-key", "serving key")
    }

    fn ca_name(&self) -> String {
        let ca = self.client_ca.as_ref();
        ca.map_or_else(|| "client CA".to_owned(), |ca| ca.named("--client-ca", "client CA"))
    }
}

#[derive(PartialEq, Eq)]
struct Contents {
    cert: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

/// What a handshake needs.
pub(super) struct Current {
    pub(super) config: Arc<rustls::ServerConfig>,
    trust: Trust,
    not_after: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reloaded {
    Unchanged,
    Taken,
}

pub struct Tls {
    options: TlsOptions,
    current: ArcSwap<Current>,
    trust: watch::Sender<Trust>,
    /// The newest content looked at, good or bad: a broken pair is spoken of once, not every ten seconds.
    seen: Mutex<Contents>,
    paths: Arc<Paths>,
}

impl Tls {
    /// # Errors
    /// In words, with the file: missing, not PEM, key and certificate of different pairs.
    pub fn load(options: TlsOptions) -> anyhow::Result<Self> {
        let contents = read(&options)?;
        let current = build(&contents, &options)?;
        Ok(Self {
            trust: watch::Sender::new(current.trust.clone()),
            current: ArcSwap::from_pointee(current),
            seen: Mutex::new(contents),
            paths: Arc::default(),
            options,
        })
    }

    /// Looks at the files again. After an error the old configuration stays in use.
    pub fn reload(&self) -> anyhow::Result<Reloaded> {
        self.switch(read(&self.options)?)
    }

    fn switch(&self, contents: Contents) -> anyhow::Result<Reloaded> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == contents {
            return Ok(Reloaded::Unchanged);
        }
        let built = build(&contents, &self.options);
        *seen = contents;
        let current = built?;
        let trust = current.trust.clone();
        self.current.store(Arc::new(current));
        // Open connections are judged again, also where only the pair is new: that costs a verification each.
        self.trust.send_replace(trust);
        Ok(Reloaded::Taken)
    }

    /// Takes a pair and a client CA (PEM) that come from elsewhere than the options: not to be mixed with `reload`. After an
    /// error the old configuration stays in use.
    pub fn take(&self, cert: &str, key: &str, client_ca: &str) -> anyhow::Result<Reloaded> {
        self.switch(Contents {
            cert: cert.as_bytes().to_vec(),
            key: key.as_bytes().to_vec(),
            client_ca: Some(client_ca.as_bytes().to_vec()),
        })
    }

    /// When the serving certificate in use expires, in seconds since the epoch.
    pub fn not_after(&self) -> i64 {
        self.current.load().not_after
    }

    /// Reloads for ever, every so often, and tells readiness and metrics.
    pub async fn watch(
        self: Arc<Self>,
        every: Duration,
        metrics: Arc<Metrics>,
        readiness: Arc<Readiness>,
        stop: CancellationToken,
    ) {
        readiness.certificate_expires(self.not_after());
        // What was said last: the same error is said and counted once, another one again.
        let mut said: Option<String> = None;
        while stop.run_until_cancelled(tokio::time::sleep(every)).await.is_some() {
            let tls = self.clone();
            let result = match tokio::task::spawn_blocking(move || tls.reload()).await {
                Ok(result) => result,
                Err(e) => Err(anyhow::Error::new(e).context("reading certificates")),
            };
            match result {
                Ok(Reloaded::Unchanged) => said = None,
                Ok(Reloaded::Taken) => {
                    said = None;
                    metrics.tls_reload(true);
                    readiness.certificate_expires(self.not_after());
                    tracing::info!(not_after = self.not_after(), "new TLS certificate in use");
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    if said.as_ref() != Some(&error) {
                        metrics.tls_reload(false);
                        tracing::warn!(error, "TLS files not usable; the old ones stay in use");
                    }
                    said = Some(error);
                }
            }
        }
    }

    /// Where admission is asked; whoever keeps the webhook configuration says so.
    pub fn paths(&self) -> &Arc<Paths> {
        &self.paths
    }

    pub(super) fn current(&self) -> Arc<Current> {
        self.current.load_full()
    }

    /// Changes with the client CA.
    pub(super) fn trust(&self) -> watch::Receiver<Trust> {
        self.trust.subscribe()
    }

    /// What a client's certificate allows; `verified`: whether it is of the client CA.
    pub(super) fn client(&self, leaf: Option<&CertificateDer<'_>>, verified: Result<(), &'static str>) -> Client {
        let facts = leaf.map(|leaf| {
            verified?;
            let facts = Facts::of(leaf).map_err(|_| "cannot be read")?;
            facts.names_a_client().map(|()| facts)
        });
        let pass = |allowed: &[String]| match &facts {
            None => Pass::Missing,
            Some(Ok(facts)) => Pass::of(&facts.names, allowed),
            Some(Err(why)) => Pass::Unfit(why),
        };
        let admission = match &*self.options.admission_names {
            [] => Pass::Open,
            allowed => pass(allowed),
        };
        Client {
            extender: pass(&self.options.client_names),
            admission,
            lost: verified.is_err(),
        }
    }
}

fn read(options: &TlsOptions) -> anyhow::Result<Contents> {
    Ok(Contents {
        cert: options.cert.read().with_context(|| options.cert_name())?,
        key: options.key.read().with_context(|| options.key_name())?,
        client_ca: (options.client_ca.as_ref().map(Material::read).transpose()).with_context(|| options.ca_name())?,
    })
}

fn build(contents: &Contents, options: &TlsOptions) -> anyhow::Result<Current> {
    let (cert_name, key_name, ca_name) = (options.cert_name(), options.key_name(), options.ca_name());
    let chain = certificates(&contents.cert).with_context(|| cert_name.clone())?;
    let leaf = chain.first().context("no certificate in it");
    let facts = leaf.and_then(|leaf| Facts::of(leaf));
    let not_after = facts.with_context(|| cert_name.clone())?.not_after;
    let key = PrivateKeyDer::from_pem_slice(&contents.key);
    let key = key.with_context(|| format!("{key_name}: no private key in it"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .context("TLS versions")?;
    let (builder, trust): (_, Trust) = match &contents.client_ca {
        None => (builder.with_no_client_auth(), None),
        Some(pem) => {
            let mut roots = RootCertStore::empty();
            for cert in certificates(pem).with_context(|| ca_name.clone())? {
                roots.add(cert).with_context(|| ca_name.clone())?;
            }
            // Anonymous clients may shake hands: kube-apiserver has no certificate for its webhooks. The
            // extender routes look at who it was.
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .with_context(|| ca_name.clone())?;
            (builder.with_client_cert_verifier(verifier.clone()), Some(verifier))
        }
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .with_context(|| format!("{cert_name} and {key_name} do not belong together, or cannot be used"))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Current {
        config: Arc::new(config),
        trust,
        not_after,
    })
}

fn certificates(pem: &[u8]) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let certificates = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .context("not PEM")?;
    if certificates.is_empty() {
        bail!("no certificate in it");
    }
    Ok(certificates)
}
