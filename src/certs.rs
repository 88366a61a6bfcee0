//! Certificates: makes a small authority and the pairs it signs (ECDSA P-256), and reads what certificates say.
//! Knows nothing of files or of where a pair is used. `keyring` is the content of the Secret of `serve --tls-secret`,
//! `rotation` what becomes of it in time, `client` the Secret of its client, `trust` what a client makes of a certificate,
//! `ours` which CAs we made.

pub mod client;
mod facts;
pub mod keyring;
mod ours;
pub mod rotation;
mod token;
pub mod trust;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

pub use facts::Facts;
pub use token::Token;

/// Seconds.
pub const DAY: i64 = 86_400;
/// Ten years: the authority outlives the pairs it signs many times over, and replacing it means a new caBundle.
const AUTHORITY_LIFE: i64 = 3650 * DAY;
/// Seconds. Certificates are valid from an hour ago: clocks in a cluster differ.
const BACKDATED: i64 = 3600;

/// A certificate (chain) and its key, PEM.
#[derive(Clone)]
pub struct Pair {
    pub cert: String,
    pub key: String,
}

/// Never shows the key.
impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair").field("cert", &self.cert).finish_non_exhaustive()
    }
}

/// A certificate authority that can sign.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pair: Pair,
    facts: Facts,
}

impl Authority {
    pub fn new() -> anyhow::Result<Self> {
        Self::made_at(now(), AUTHORITY_LIFE)
    }

    /// Valid for `life` seconds from `now` (seconds since the epoch).
    pub fn made_at(now: i64, life: i64) -> anyhow::Result<Self> {
        let key = KeyPair::generate().context("cannot make a key")?;
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(&ours::name(key.public_key_raw()));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        validity(&mut params, now, now + life);
        let cert = params.self_signed(&key).context("cannot sign the CA certificate")?;
        Self::of(&Pair {
            cert: cert.pem(),
            key: key.serialize_pem(),
        })
    }

    /// # Errors
    /// As [`Self::of`], or expired.
    pub fn read(pair: &Pair) -> anyhow::Result<Self> {
        let authority = Self::of(pair)?;
        if authority.facts.not_after <= now() {
            bail!("the CA certificate has expired; make a new one with --new-ca");
        }
        Ok(authority)
    }

    /// Expired or not.
    ///
    /// # Errors
    /// Not PEM, not a CA, or the key is not this certificate's.
    pub fn of(pair: &Pair) -> anyhow::Result<Self> {
        let facts = Facts::of_pem(pair.cert.as_bytes())?;
        if !facts.is_ca {
            bail!("this certificate is not one of a CA");
        }
        let key = KeyPair::from_pem(&pair.key).context("cannot read the CA key")?;
        if facts.public_key != key.public_key_raw() {
            bail!("the CA key is not the key of the CA certificate");
        }
        Ok(Self {
            issuer: Issuer::from_ca_cert_pem(&pair.cert, key).context("cannot read the CA certificate")?,
            pair: pair.clone(),
            facts,
        })
    }

    pub fn pair(&self) -> &Pair {
        &self.pair
    }

    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// A serving pair for DNS names and IP addresses; valid `days`, but never longer than the authority itself.
    pub fn serving(&self, names: &[String], days: u32) -> anyhow::Result<Pair> {
        self.serving_at(names, now(), seconds(days)?)
    }

    /// The same at a time of the caller's, in seconds.
    pub fn serving_at(&self, names: &[String], now: i64, life: i64) -> anyhow::Result<Pair> {
        let first = names.first().context("a serving certificate needs at least one name")?;
        self.leaf(names, first, ExtendedKeyUsagePurpose::ServerAuth, now, life)
    }

    /// A client pair; `name` is both its common name and its DNS name.
    pub fn client(&self, name: &str, days: u32) -> anyhow::Result<Pair> {
        self.client_at(name, now(), seconds(days)?)
    }

    /// The same at a time of the caller's, in seconds.
    pub fn client_at(&self, name: &str, now: i64, life: i64) -> anyhow::Result<Pair> {
        self.leaf(&[name.to_owned()], name, ExtendedKeyUsagePurpose::ClientAuth, now, life)
    }

    fn leaf(
        &self,
        names: &[String],
        common: &str,
        usage: ExtendedKeyUsagePurpose,
        now: i64,
        life: i64,
    ) -> anyhow::Result<Pair> {
        let key = KeyPair::generate().context("cannot make a key")?;
        let mut params =
            CertificateParams::new(names).with_context(|| format!("not a name a certificate can carry: {names:?}"))?;
        params.distinguished_name = common_name(common);
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        validity(&mut params, now, (now + life).min(self.facts.not_after));
        let cert = params.signed_by(&key, &self.issuer).context("cannot sign")?;
        Ok(Pair {
            cert: cert.pem(),
            key: key.serialize_pem(),
        })
    }
}

/// A pair that lives as long as the process, and the certificate of the authority to trust for it.
pub struct Ephemeral {
    pub pair: Pair,
    pub ca_cert: String,
}

/// # Errors
/// Names a certificate cannot carry; no randomness.
pub fn ephemeral(names: &[String]) -> anyhow::Result<Ephemeral> {
    let authority = Authority::new()?;
    Ok(Ephemeral {
        pair: authority.serving(names, 365)?,
        ca_cert: authority.pair.cert,
    })
}

fn common_name(name: &str) -> DistinguishedName {
    let mut dn = DistinguishedName::new();
    // 64 characters are the limit of a common name (X.520); what counts are the subjectAltNames.
    dn.push(DnType::CommonName, name.chars().take(64).collect::<String>());
    dn
}

fn seconds(days: u32) -> anyhow::Result<i64> {
    if !(1..=36_500).contains(&days) {
        bail!("{days} days: a certificate is valid for 1 to 36500 days");
    }
    Ok(i64::from(days) * DAY)
}

fn validity(params: &mut CertificateParams, start: i64, end: i64) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let since = |at: i64| Duration::from_secs(u64::try_from(at).unwrap_or(0));
    params.not_before = epoch + since(start - BACKDATED);
    params.not_after = epoch + since(end);
}

/// The system's clock, in seconds since the epoch.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn leafs_say_what_they_were_made_for() {
        let authority = Authority::new().expect("a CA");
        let names = ["wattlane.wattlane-system.svc".to_owned(), "127.0.0.1".to_owned()];
        let facts = Facts::of_pem(authority.serving(&names, 10).expect("signs").cert.as_bytes()).expect("reads");
        assert_eq!(
            facts.names,
            [names[0].as_str(), names[0].as_str()],
            "CN, then DNS names, no IPs"
        );
        assert_eq!(facts.addresses, [IpAddr::from([127, 0, 0, 1])]);
        assert!(!facts.is_ca);
        assert!((facts.not_after - now() - 10 * 86_400).abs() < 60);
    }

    #[test]
    fn an_authority_reads_back_and_outlives_its_leafs() {
        let first = Authority::new().expect("a CA");
        let again = Authority::read(first.pair()).expect("reads back");
        let leaf = again.client("kube-scheduler", 36_500).expect("signs");
        let facts = Facts::of_pem(leaf.cert.as_bytes()).expect("reads");
        assert_eq!(facts.not_after, first.facts.not_after);

        let other = Authority::new().expect("a CA");
        let mixed = Pair {
            cert: first.pair().cert.clone(),
            key: other.pair().key.clone(),
        };
        assert!(Authority::read(&mixed).is_err());
        assert!(Authority::read(&leaf).is_err(), "a leaf is no authority");
        assert!(!format!("{leaf:?}").contains("PRIVATE"));
    }

    #[test]
    fn impossible_wishes_are_refused() {
        let authority = Authority::new().expect("a CA");
        assert!(authority.serving(&[], 10).is_err());
        assert!(authority.serving(&["a".into()], 0).is_err());
        assert!(authority.serving(&["ünicode".into()], 10).is_err());
    }
}
