//! What the other side makes of a certificate: the check that rustls clients and servers do, at a time of the
//! caller's. Judges what is in the Secret, and is what the tests go by.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use base64::Engine as _;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;

use super::Facts;

/// Certificates looked at in one bundle: ours has a handful, behind those of a whole system that somebody may have put in.
const MOST: usize = 256;

/// The CA certificates of a PEM text, each once. What is something else is left out.
pub fn authorities(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    let mut found: Vec<CertificateDer<'static>> = vec![];
    for cert in CertificateDer::pem_slice_iter(pem).take(MOST).flatten() {
        if Facts::of(&cert).is_ok_and(|f| f.is_ca) && !found.contains(&cert) {
            found.push(cert);
        }
    }
    found
}

/// PEM, always the same for the same certificate.
pub fn pem(cert: &CertificateDer<'_>) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(cert);
    let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for (at, character) in text.chars().enumerate() {
        if at > 0 && at % 64 == 0 {
            pem.push('\n');
        }
        pem.push(character);
    }
    pem + "\n-----END CERTIFICATE-----\n"
}

/// Whether clients that trust these authorities accept the certificate (PEM) for each of the names, at `now` (seconds
/// since the epoch).
///
/// # Errors
/// What a client would say: expired, not valid yet, of a CA that is not trusted, for other names.
pub fn serves(trusted: &[CertificateDer<'_>], cert: &[u8], names: &[String], now: i64) -> anyhow::Result<()> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(roots(trusted)?, provider)
        .build()
        .context("no CA to trust")?;
    let leaf = CertificateDer::from_pem_slice(cert).context("no certificate in it")?;
    for name in names {
        let name = ServerName::try_from(name.as_str()).with_context(|| format!("{name:?} is not a name"))?;
        verifier.verify_server_cert(&leaf, &[], &name, &[], time(now))?;
    }
    Ok(())
}

/// Whether the certificate (PEM) chains to this authority, in the eyes of a client that asks for any of its names.
pub(super) fn signed(authority: &CertificateDer<'_>, cert: &[u8], now: i64) -> bool {
    let Ok(facts) = Facts::of_pem(cert) else { return false };
    let addresses = facts.addresses.iter().map(ToString::to_string);
    let mut names = facts.names.into_iter().chain(addresses);
    names.any(|name| serves(std::slice::from_ref(authority), cert, &[name], now).is_ok())
}

/// Whether a server that trusts these authorities takes the certificate (PEM) for a client's, at `now`.
///
/// # Errors
/// As [`serves`].
pub fn calls(trusted: &[CertificateDer<'_>], cert: &[u8], now: i64) -> anyhow::Result<()> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots(trusted)?, provider)
        .build()
        .context("no CA to trust")?;
    let leaf = CertificateDer::from_pem_slice(cert).context("no certificate in it")?;
    verifier.verify_client_cert(&leaf, &[], time(now))?;
    Ok(())
}

fn roots(trusted: &[CertificateDer<'_>]) -> anyhow::Result<Arc<RootCertStore>> {
    let mut roots = RootCertStore::empty();
    for cert in trusted {
        roots.add(cert.clone().into_owned()).context("a CA to trust")?;
    }
    Ok(Arc::new(roots))
}

fn time(now: i64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now).unwrap_or(0)))
}
