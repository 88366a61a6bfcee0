//! Which CA certificates wattlane made. In a Secret that others may write there can be one that no client takes, or one
//! that takes everything else with it: what is not exactly as `Authority::made_at` makes it is nobody we sign with or trust.

use anyhow::{Context as _, ensure};
use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::ParsedExtension;

use super::keyring::certificate;
use super::{Authority, trust};

/// The name carries some of the key: two authorities of ours in one trust bundle are told apart by it.
pub(super) fn name(public_key: &[u8]) -> String {
    let id: String = public_key.iter().rev().take(4).map(|b| format!("{b:02x}")).collect();
    format!("wattlane CA {id}")
}

/// In everything but its dates; and clients can read it. (Their parser is stricter than ours here.)
pub(super) fn is_ours(der: &CertificateDer<'_>) -> bool {
    let readable = rustls::RootCertStore::empty().add(der.clone().into_owned()).is_ok();
    readable
        && x509_parser::parse_x509_certificate(der).is_ok_and(|(rest, cert)| {
            rest.is_empty() && names_its_key(&cert) && extensions_are_ours(&cert) && signed_itself(&cert)
        })
}

fn names_its_key(cert: &X509Certificate<'_>) -> bool {
    let key = &cert.public_key().subject_public_key.data;
    let attributes = cert.subject().iter_attributes().count();
    let mut common = cert.subject().iter_common_name().filter_map(|n| n.as_str().ok());
    attributes == 1 && common.next() == Some(&name(key)) && cert.subject().as_raw() == cert.issuer().as_raw()
}

fn extensions_are_ours(cert: &X509Certificate<'_>) -> bool {
    let (mut constraints, mut usage, mut key) = (0, 0, 0);
    for extension in cert.extensions() {
        match extension.parsed_extension() {
            ParsedExtension::BasicConstraints(c) if c.ca && c.path_len_constraint == Some(0) => constraints += 1,
            // keyCertSign and cRLSign, and nothing else.
            ParsedExtension::KeyUsage(u) if u.flags == (1 << 5 | 1 << 6) => usage += 1,
            ParsedExtension::SubjectKeyIdentifier(_) => key += 1,
            _ => return false,
        }
    }
    (constraints, usage) == (1, 1) && key <= 1
}

fn signed_itself(cert: &X509Certificate<'_>) -> bool {
    let key = &cert.public_key().subject_public_key.data;
    let (signed, signature) = (cert.tbs_certificate.as_ref(), &cert.signature_value.data);
    let provider = rustls::crypto::ring::default_provider();
    let mut known = provider.signature_verification_algorithms.all.iter();
    let whole = cert.signature_value.unused_bits == 0;
    whole
        && cert.signature_algorithm == cert.tbs_certificate.signature
        && known.any(|a| a.verify_signature(key, signed, signature).is_ok())
}

/// Whether those who trust it take what it signs: asked of the verifier they use, by trial. Of its dates, that the time lies
/// in them is left to others.
///
/// # Errors
/// What it lacks.
pub(super) fn proves(authority: &Authority, now: i64) -> anyhow::Result<()> {
    const NAME: &str = "trial.wattlane.dev";
    let facts = authority.facts();
    ensure!(facts.made() < facts.not_after, "it ends before it begins");
    let at = now.clamp(facts.made(), facts.not_after - 1);
    let cert = certificate(authority).context("not a CA")?;
    ensure!(is_ours(&cert), "wattlane makes no such CA");
    let names = [NAME.to_owned()];
    let (server, client) = (authority.serving_at(&names, at, 1)?, authority.client_at(NAME, at, 1)?);
    trust::serves(std::slice::from_ref(&cert), server.cert.as_bytes(), &names, at)?;
    trust::calls(std::slice::from_ref(&cert), client.cert.as_bytes(), at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certs::{DAY, now};

    #[test]
    fn what_is_made_here_is_ours_whatever_its_time() {
        for at in [now(), now() - 400 * DAY, now() + 400 * DAY] {
            let made = Authority::made_at(at, 30 * DAY).expect("makes");
            proves(&made, now()).expect("ours");
        }
        let leaf = Authority::new().and_then(|a| a.client("a", 1)).expect("signs");
        let leaf = rustls::pki_types::pem::PemObject::from_pem_slice(leaf.cert.as_bytes()).expect("PEM");
        assert!(!is_ours(&leaf));
    }

    #[test]
    fn one_bit_of_it_changed_is_not_ours() {
        let made = Authority::new().expect("makes");
        let der = certificate(&made).expect("a certificate");
        for at in 0..der.len() {
            let mut other = der.to_vec();
            other[at] ^= 1;
            assert!(!is_ours(&other.into()), "byte {at}");
        }
    }
}
