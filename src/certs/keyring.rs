//! What the Secret of `serve --tls-secret` holds, read part by part: a part that is unusable is left out and named,
//! and the others are kept. Text in, text out; what becomes of it in time is `rotation`'s business.
//!
//! One CA signs the serving certificate and the scheduler's client certificate (the usages in them keep them apart),
//! so that one bundle, `ca.crt`, is what everybody trusts: kube-apiserver, kube-scheduler, and wattlane its callers.
//!
//! A CA that wattlane did not make, or that clients would not take, is as unusable as one that cannot be read: one odd
//! certificate in a bundle is enough for many a client to trust nobody.

use std::collections::BTreeMap;

use rcgen::KeyPair;
use rustls::pki_types::CertificateDer;

use super::{Authority, Ending, Facts, Pair, Token, ours, trust};

/// `data` of a Secret, decoded.
pub type Data = BTreeMap<String, Vec<u8>>;

pub const BUNDLE: &str = "ca.crt";
/// As in Secrets of type kubernetes.io/tls.
pub const LEAF: (&str, &str) = ("tls.crt", "tls.key");
const SIGNER: (&str, &str) = ("signing-ca.crt", "signing-ca.key");
const NEXT: (&str, &str) = ("next-ca.crt", "next-ca.key");
/// The secret part of the path of admission.
const TOKEN: &str = "admission-path";
/// The one that will follow it.
const NEXT_TOKEN: &str = "admission-path-next";
/// Hashes of what the webhook configuration has led to lately, one a line.
const RECENT: &str = "admission-path-recent";

/// Retired authorities that stay trusted; one is the rule, more come of keys that were lost again and again.
const MOST_RETIRED: usize = 8;
/// Paths that API servers may ask by at one time: one is the rule, more come of somebody who changes them again and again.
pub const MOST_RECENT: usize = 32;

/// Who signs, who will, who did, and what is served.
#[derive(Default)]
pub struct Keyring {
    pub(super) signer: Option<Authority>,
    /// In the bundle, so that everybody gets to know it, before it signs anything.
    pub(super) next: Option<Authority>,
    /// Signers that were: their certificates may still be in use.
    pub(super) retired: Vec<CertificateDer<'static>>,
    pub(super) serving: Option<Pair>,
    /// The webhook configuration is to lead to it.
    pub(super) token: Option<Token>,
    /// Announced, so that every replica knows it before an API server asks by it.
    pub(super) next_token: Option<Token>,
    /// What the webhook configuration has led to lately, for a replica that has just begun; empty: it was never looked at.
    recent: Vec<Ending>,
}

/// Never shows a key.
impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = |authority: &Option<Authority>| authority.as_ref().map(|a| a.facts().names.clone());
        f.debug_struct("Keyring")
            .field("signer", &name(&self.signer))
            .field("next", &name(&self.next))
            .field("retired", &self.retired.len())
            .field("serving", &self.serving)
            .finish()
    }
}

impl Keyring {
    /// At `now` (seconds since the epoch). The second is what is there and cannot be used, by its name in the Secret.
    pub fn read(data: &Data, now: i64) -> (Self, Vec<&'static str>) {
        let mut faults = vec![];
        let mut pair = |(cert, key): (&'static str, &'static str)| match pair(data, cert, key) {
            Ok(pair) => Some(pair),
            Err(Unusable::Missing) => None,
            Err(Unusable::Garbled) => {
                faults.push(cert);
                None
            }
        };
        let (signer, next, serving) = (pair(SIGNER), pair(NEXT), pair(LEAF));
        let text = |name| data.get(name).map(Vec::as_slice).unwrap_or_default();
        let mut token = |name| {
            let token = Token::read(text(name));
            if token.is_none() && !text(name).is_empty() {
                faults.push(name);
            }
            token
        };
        let (token, next_token) = (token(TOKEN), token(NEXT_TOKEN));
        let lines = std::str::from_utf8(text(RECENT)).map(str::split_whitespace);
        let lines = lines.map(|l| l.take(MOST_RECENT).map(Ending::read).collect::<Option<Vec<_>>>());
        let recent = lines.ok().flatten().unwrap_or_else(|| {
            faults.push(RECENT);
            vec![]
        });
        let mut aside = vec![];
        let mut authority = |pair: Option<Pair>, name| {
            let pair = pair?;
            let authority = Authority::of(&pair).and_then(|a| ours::proves(&a, now).map(|()| a));
            if authority.is_err() {
                faults.push(name);
                aside.extend(trust::authorities(pair.cert.as_bytes()));
            }
            authority.ok()
        };
        let mut ring = Self {
            signer: authority(signer, SIGNER.0),
            next: authority(next, NEXT.0),
            retired: vec![],
            serving,
            token,
            next_token,
            recent,
        };
        if !ring.clock_is_behind(now) {
            let early = |a: &mut Authority| a.facts().not_before > now;
            faults.extend(ring.signer.take_if(early).map(|_| SIGNER.0));
            faults.extend(ring.next.take_if(early).map(|_| NEXT.0));
        }
        let bundle = text(BUNDLE);
        let found = trust::authorities(bundle);
        let known = ring.authorities();
        let mut retired = found.clone();
        retired.extend(aside);
        retired.retain(|cert| !known.contains(cert) && ring.needs(cert, now));
        retired.truncate(MOST_RETIRED);
        ring.retired = retired;
        let strange = found
            .iter()
            .any(|cert| !known.contains(cert) && !ring.retired.contains(cert));
        if strange || !bundle.is_empty() && found.is_empty() {
            faults.push(BUNDLE);
        }
        (ring, faults)
    }

    /// Whether a CA that is not valid yet says something of our clock, and not of itself: what is served is of that future as
    /// well, or there is nothing else.
    pub(super) fn clock_is_behind(&self, now: i64) -> bool {
        let early = |facts: &Facts| facts.not_before > now;
        let mut authorities = [&self.signer, &self.next].into_iter().flatten().map(Authority::facts);
        if !authorities.clone().any(early) {
            return false;
        }
        match self
            .serving
            .as_ref()
            .and_then(|s| Facts::of_pem(s.cert.as_bytes()).ok())
        {
            Some(served) => early(&served),
            None => authorities.all(early),
        }
    }

    /// A certificate of the bundle that does not sign any more stays if it was ours, or if what is served hangs on it.
    fn needs(&self, cert: &CertificateDer<'_>, now: i64) -> bool {
        let valid = Facts::of(cert).is_ok_and(|f| f.not_before <= now || self.clock_is_behind(now));
        let served = || {
            self.serving
                .as_ref()
                .is_some_and(|s| trust::signed(cert, s.cert.as_bytes(), now))
        };
        valid && (ours::is_ours(cert) || served())
    }

    /// What the Secret should hold.
    pub fn data(&self) -> Data {
        let pairs = [
            (SIGNER, self.signer.as_ref().map(Authority::pair)),
            (NEXT, self.next.as_ref().map(Authority::pair)),
            (LEAF, self.serving.as_ref()),
        ];
        let mut data = Data::from([(BUNDLE.to_owned(), self.bundle().into_bytes())]);
        for ((cert, key), pair) in pairs {
            if let Some(pair) = pair {
                data.insert(cert.to_owned(), pair.cert.clone().into_bytes());
                data.insert(key.to_owned(), pair.key.clone().into_bytes());
            }
        }
        for (name, token) in [(TOKEN, &self.token), (NEXT_TOKEN, &self.next_token)] {
            data.extend(token.iter().map(|t| (name.to_owned(), t.as_str().as_bytes().to_vec())));
        }
        if !self.recent.is_empty() {
            let lines: String = self.recent.iter().map(|e| format!("{e}\n")).collect();
            data.insert(RECENT.to_owned(), lines.into_bytes());
        }
        data
    }

    /// Every name of ours in the Secret.
    pub fn names() -> [&'static str; 10] {
        [
            BUNDLE, LEAF.0, LEAF.1, SIGNER.0, SIGNER.1, NEXT.0, NEXT.1, TOKEN, NEXT_TOKEN, RECENT,
        ]
    }

    /// PEM of all that is trusted, the same for every replica.
    pub fn bundle(&self) -> String {
        self.trusted().iter().map(trust::pem).collect()
    }

    /// Everybody who signs, will sign, or signed something that may be in use.
    pub fn trusted(&self) -> Vec<CertificateDer<'static>> {
        let mut trusted = self.authorities();
        trusted.extend(self.retired.iter().cloned());
        trusted
    }

    pub fn serving(&self) -> Option<&Pair> {
        self.serving.as_ref()
    }

    pub fn signer(&self) -> Option<&Authority> {
        self.signer.as_ref()
    }

    pub fn next(&self) -> Option<&Authority> {
        self.next.as_ref()
    }

    pub fn token(&self) -> Option<&Token> {
        self.token.as_ref()
    }

    pub fn next_token(&self) -> Option<&Token> {
        self.next_token.as_ref()
    }

    pub fn recent(&self) -> &[Ending] {
        &self.recent
    }

    /// The newest of them, if they are too many.
    pub fn note(&mut self, mut recent: Vec<Ending>) {
        recent.drain(..recent.len().saturating_sub(MOST_RECENT));
        self.recent = recent;
    }

    /// There is nothing in it at all, as at the very start.
    pub(super) fn is_empty(&self) -> bool {
        self.trusted().is_empty() && self.serving.is_none()
    }

    fn authorities(&self) -> Vec<CertificateDer<'static>> {
        let both = [&self.signer, &self.next].into_iter().flatten();
        both.filter_map(certificate).collect()
    }
}

pub(super) fn certificate(authority: &Authority) -> Option<CertificateDer<'static>> {
    trust::authorities(authority.pair().cert.as_bytes()).into_iter().next()
}

/// Why there is no pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    Missing,
    /// No PEM, or two halves that do not belong together.
    Garbled,
}

/// The pair under two names.
///
/// # Errors
/// There is none, or it cannot be used.
pub fn pair(data: &Data, cert: &str, key: &str) -> Result<Pair, Unusable> {
    let text = |name| data.get(name).map(Vec::as_slice).unwrap_or_default();
    let (cert, key) = (text(cert), text(key));
    if cert.is_empty() && key.is_empty() {
        return Err(Unusable::Missing);
    }
    whole(cert, key).ok_or(Unusable::Garbled)
}

fn whole(cert: &[u8], key: &[u8]) -> Option<Pair> {
    let facts = Facts::of_pem(cert).ok()?;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    let (cert, key) = (text(cert)?, text(key)?);
    let own = KeyPair::from_pem(&key).ok()?;
    (facts.public_key == own.public_key_raw()).then_some(Pair { cert, key })
}
