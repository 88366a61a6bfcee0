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
use tokio_util::sync::CancellationToken;

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
            Self::File(path) => std::fs::read(path).with_context(|| format!("cannot read {}", path.display())),
            Self::Text(text) => Ok(text.clone().into_bytes()),
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

#[derive(PartialEq, Eq)]
struct Contents {
    cert: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

/// What a handshake needs.
pub(super) struct Current {
    pub(super) config: Arc<rustls::ServerConfig>,
    /// Clients of the extender routes must have shown a certificate.
    pub(super) demands_client: bool,
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
    /// The newest content looked at, good or bad: a broken pair is spoken of once, not every ten seconds.
    seen: Mutex<Contents>,
    paths: Arc<Paths>,
}

impl Tls {
    /// # Errors
    /// In words, with the file: missing, not PEM, key and certificate of different pairs.
    pub fn load(options: TlsOptions) -> anyhow::Result<Self> {
        let contents = read(&options)?;
        Ok(Self {
            current: ArcSwap::from_pointee(build(&contents)?),
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
        let built = build(&contents);
        *seen = contents;
        self.current.store(Arc::new(built?));
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

    /// What the certificate of a connection's client allows.
    pub(super) fn client(&self, current: &Current, certificates: Option<&[CertificateDer<'_>]>) -> Client {
        if !current.demands_client {
            return Client {
                extender: Pass::Open,
                admission: Pass::Open,
            };
        }
        let facts = certificates.and_then(<[_]>::first).map(|leaf| {
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
        }
    }
}

/// Who is at the other end of a connection, as far as routes ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Client {
    pub(super) extender: Pass,
    pub(super) admission: Pass,
}

impl Client {
    /// A certificate of the client CA opened some door.
    pub(super) fn is_known(&self) -> bool {
        self.extender == Pass::Known || self.admission == Pass::Known
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// Everybody may: no client CA is configured, or no name for this door.
    Open,
    /// A certificate of the client CA, with a name that may call us.
    Known,
    Missing,
    /// A certificate of the client CA, but of someone else.
    Stranger(String),
    /// A certificate of the client CA that names no client, and why.
    Unfit(&'static str),
}

impl Pass {
    /// By the names of a certificate of the client CA; no allowed names: any will do.
    fn of(names: &[String], allowed: &[String]) -> Self {
        if allowed.is_empty() || names.iter().any(|n| allowed.contains(n)) {
            return Self::Known;
        }
        Self::Stranger(names.first().cloned().unwrap_or_default())
    }
}

fn read(options: &TlsOptions) -> anyhow::Result<Contents> {
    Ok(Contents {
        cert: options.cert.read()?,
        key: options.key.read()?,
        client_ca: options.client_ca.as_ref().map(Material::read).transpose()?,
    })
}

fn build(contents: &Contents) -> anyhow::Result<Current> {
    let chain = certificates(&contents.cert).context("serving certificate")?;
    let leaf = chain.first().context("serving certificate: no certificate in it")?;
    let not_after = Facts::of(leaf).context("serving certificate")?.not_after;
    let key = PrivateKeyDer::from_pem_slice(&contents.key).context("serving key: no private key in it")?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .context("TLS versions")?;
    let builder = match &contents.client_ca {
        None => builder.with_no_client_auth(),
        Some(pem) => {
            let mut roots = RootCertStore::empty();
            for cert in certificates(pem).context("client CA")? {
                roots.add(cert).context("client CA")?;
            }
            // Anonymous clients may shake hands: kube-apiserver has no certificate for its webhooks. The
            // extender routes look at who it was.
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .context("client CA")?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .context("serving certificate and key do not belong together, or cannot be used")?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Current {
        config: Arc::new(config),
        demands_client: contents.client_ca.is_some(),
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
