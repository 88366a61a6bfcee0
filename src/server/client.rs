//! Who is at the other end of a connection, as far as routes ask: judged when it is made, and again when the client CA has
//! changed since or a certificate has run out. A connection lives as long as its client wants it to, so what the handshake
//! said is no ground for a request.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use tokio::sync::watch;

use super::tls::Tls;
use crate::certs::{self, Facts};

/// How long before the end of its certificate a connection is left, so that no request meets the end; where there is less
/// than four times as much, a quarter of what there is.
const AHEAD: Duration = Duration::from_secs(10);

/// Who clients are verified by; None: nobody is asked for a certificate.
pub(super) type Trust = Option<Arc<dyn ClientCertVerifier>>;

/// One connection's client.
pub(super) struct Caller {
    tls: Arc<Tls>,
    chain: Vec<CertificateDer<'static>>,
    judged: ArcSwap<Judged>,
}

struct Judged {
    /// Has changed since: judge again.
    trust: watch::Receiver<Trust>,
    /// After it, the same; in seconds since the epoch.
    until: i64,
    client: Arc<Client>,
}

impl Caller {
    /// `certificates`: what the handshake took, leaf first. It is verified here, since a session that is resumed is not.
    pub(super) fn new(tls: Arc<Tls>, certificates: Option<&[CertificateDer<'_>]>) -> Self {
        let chain: Vec<_> = certificates
            .into_iter()
            .flatten()
            .cloned()
            .map(CertificateDer::into_owned)
            .collect();
        let judged = ArcSwap::from_pointee(judge(&tls, &chain));
        Self { tls, chain, judged }
    }

    /// What the client may at this moment.
    pub(super) fn client(&self) -> Arc<Client> {
        let judged = self.judged.load();
        // An error: there is no sender any more, and so no change.
        if certs::now() <= judged.until && !judged.trust.has_changed().unwrap_or(false) {
            return judged.client.clone();
        }
        let judged = judge(&self.tls, &self.chain);
        let client = judged.client.clone();
        self.judged.store(Arc::new(judged));
        client
    }

    /// Until when, from now on, the connection can be kept.
    pub(super) fn keeps(&self) -> Duration {
        let left = self.judged.load().until.saturating_sub(certs::now());
        let left = Duration::from_secs(u64::try_from(left).unwrap_or(0));
        left - AHEAD.min(left / 4)
    }
}

fn judge(tls: &Tls, chain: &[CertificateDer<'static>]) -> Judged {
    let mut trust = tls.trust();
    let verifier = trust.borrow_and_update().clone();
    let now = certs::now();
    let (verified, until) = match (&verifier, chain) {
        (Some(verifier), [leaf, above @ ..]) => match verify(&**verifier, leaf, above, now) {
            Ok(until) => (Ok(()), until),
            // It will not become better, but by another CA.
            Err(why) => (Err(why), i64::MAX),
        },
        _ => (Ok(()), i64::MAX),
    };
    let client = match verifier {
        None => Client::open(),
        Some(_) => tls.client(chain.first(), verified),
    };
    Judged {
        trust,
        until,
        client: Arc::new(client),
    }
}

/// Returns when to ask again: the first end of a certificate.
fn verify(
    verifier: &dyn ClientCertVerifier,
    leaf: &CertificateDer<'_>,
    above: &[CertificateDer<'_>],
    now: i64,
) -> Result<i64, &'static str> {
    let time = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now).unwrap_or(0)));
    let mut until = i64::MAX;
    for cert in std::iter::once(leaf).chain(above) {
        let end = Facts::of(cert).map_err(|_| "cannot be read")?.not_after;
        // One that is over already is not what the leaf hangs on, or the verifier says so.
        if end >= now {
            until = until.min(end);
        }
    }
    match verifier.verify_client_cert(leaf, above, time) {
        Ok(_) => Ok(until),
        Err(_) if Facts::of(leaf).is_ok_and(|f| f.not_after < now) => Err("has expired"),
        Err(_) => Err("is of a CA that is not trusted any more"),
    }
}

/// What routes ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Client {
    pub(super) extender: Pass,
    pub(super) admission: Pass,
    /// Its certificate was good once, and is not any more: it should come again with the one it has now.
    pub(super) lost: bool,
}

impl Client {
    /// No client CA is configured.
    fn open() -> Self {
        Self {
            extender: Pass::Open,
            admission: Pass::Open,
            lost: false,
        }
    }

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
    /// A certificate that opens no door, and why.
    Unfit(&'static str),
}

impl Pass {
    /// By the names of a certificate of the client CA; no allowed names: any will do.
    pub(super) fn of(names: &[String], allowed: &[String]) -> Self {
        if allowed.is_empty() || names.iter().any(|n| allowed.contains(n)) {
            return Self::Known;
        }
        Self::Stranger(names.first().cloned().unwrap_or_default())
    }
}
