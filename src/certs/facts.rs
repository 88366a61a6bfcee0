//! What a certificate says about itself, as far as anybody here asks.

use std::net::IpAddr;

use anyhow::Context as _;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::extensions::GeneralName;

use super::BACKDATED;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Seconds since the epoch.
    pub not_before: i64,
    /// Seconds since the epoch.
    pub not_after: i64,
    /// Common name first (where there is one), then the DNS names.
    pub names: Vec<String>,
    /// IP addresses it is for.
    pub addresses: Vec<IpAddr>,
    /// It may sign others.
    pub is_ca: bool,
    /// It says that it is made for clients.
    pub for_clients: bool,
    /// How many common names its subject has; a certificate of ours has one.
    pub common_names: usize,
    /// The bits of the public key.
    pub public_key: Vec<u8>,
}

impl Facts {
    /// Of the first certificate in a PEM text.
    pub fn of_pem(pem: &[u8]) -> anyhow::Result<Self> {
        Self::of(&CertificateDer::from_pem_slice(pem).context("no certificate in this PEM text")?)
    }

    pub fn of(der: &CertificateDer<'_>) -> anyhow::Result<Self> {
        let (_, cert) = x509_parser::parse_x509_certificate(der).context("not an X.509 certificate")?;
        let common: Vec<_> = cert.subject().iter_common_name().collect();
        let alternative = cert.subject_alternative_name().ok().flatten();
        let alternatives = || alternative.iter().flat_map(|san| &san.value.general_names);
        let dns = alternatives().filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(*name),
            _ => None,
        });
        let addresses = alternatives().filter_map(|name| match name {
            GeneralName::IPAddress(bytes) => address(bytes),
            _ => None,
        });
        // Of an extension that stands there twice nobody knows which one holds.
        let usage = cert.key_usage();
        let signs = usage.is_ok_and(|u| u.is_none_or(|u| u.value.key_cert_sign()));
        let purposes = cert.extended_key_usage().ok().flatten();
        let texts = common.iter().filter_map(|n| n.as_str().ok());
        Ok(Self {
            not_before: cert.validity().not_before.timestamp(),
            not_after: cert.validity().not_after.timestamp(),
            addresses: addresses.collect(),
            names: texts.chain(dns).map(str::to_owned).collect(),
            is_ca: cert.is_ca() && signs,
            for_clients: purposes.is_some_and(|p| p.value.client_auth),
            common_names: common.len(),
            public_key: cert.public_key().subject_public_key.data.to_vec(),
        })
    }

    /// When one of ours was made.
    pub fn made(&self) -> i64 {
        self.not_before + BACKDATED
    }

    /// Why no client is taken for who it says it is by this certificate, whoever signed it. Verifiers of TLS let a certificate pass
    /// that names no purpose at all, and by which of several common names a CA has looked it over, nobody knows.
    ///
    /// # Errors
    /// In words that follow "the client certificate".
    pub fn names_a_client(&self) -> Result<(), &'static str> {
        match self {
            Self { for_clients: false, .. } => {
                Err("is not made for clients: it lacks the extended key usage clientAuth")
            }
            Self { common_names: 2.., .. } => Err("has several common names: which one is meant is not clear"),
            _ => Ok(()),
        }
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}
