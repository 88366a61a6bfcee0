//! What to do now: from the content of the Secret and the time to the next action. Pure but for the making of keys;
//! the time is the caller's, so that tests drive years. All state is in the certificates themselves.
//!
//! A CA's life: it is announced (in the bundle, signing nothing) for `overlap`, then signs, then is followed by the
//! next, which is announced twice `overlap` before its end. It leaves the bundle when it has expired, and with it all
//! that it signed. So whoever has read the bundle once is well for `overlap`, and nothing trusted goes early.

use std::fmt;

use anyhow::Context as _;
use rustls::pki_types::CertificateDer;

use super::keyring::{Keyring, certificate};
use super::{Authority, DAY, Facts, Pair, Token, trust};

/// Names a serving certificate keeps from the one before, at most.
const MOST_NAMES: usize = 32;
/// Begin, announce, switch, sign, path and tidy, each at most once; one more says that it is enough.
const MOST_ACTIONS: usize = 7;

/// Seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    authority: i64,
    overlap: i64,
    leaf: i64,
}

impl Default for Lifetimes {
    /// A CA of ten years, announced a year before it signs; certificates of 90 days, renewed after 60.
    fn default() -> Self {
        Self {
            authority: 3650 * DAY,
            overlap: 365 * DAY,
            leaf: 90 * DAY,
        }
    }
}

impl Lifetimes {
    /// # Errors
    /// Lives that do not fit into one another.
    pub fn new(authority: i64, overlap: i64, leaf: i64) -> anyhow::Result<Self> {
        let fit = 3 <= leaf && leaf <= overlap && overlap <= authority / 3 && authority <= 36_500 * DAY;
        anyhow::ensure!(
            fit,
            "certificates of {leaf} s, an overlap of {overlap} s, a CA of {authority} s: a certificate lives at most as \
             long as the overlap, and the overlap at most a third of a CA's life"
        );
        Ok(Self {
            authority,
            overlap,
            leaf,
        })
    }

    /// Of a serving or client certificate.
    pub fn leaf(&self) -> i64 {
        self.leaf
    }

    /// From then on the next CA signs. `announced`: when it was made.
    pub fn switch(&self, announced: i64) -> i64 {
        announced + self.overlap
    }
}

/// What an action depends on besides the Secret.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// Seconds since the epoch.
    pub now: i64,
    /// 0 to 1, of this process: replicas renew at different times.
    pub jitter: f64,
    /// Names and IP addresses clients reach the service by.
    pub names: &'a [String],
    pub lifetimes: Lifetimes,
    /// What was given out to be trusted, place by place, as it is there now.
    pub published: &'a [Vec<CertificateDer<'static>>],
}

impl View<'_> {
    /// When a certificate that `signer` signed now would end. Near the signer's own end a new one would gain nothing, and be
    /// due again at once.
    pub(super) fn end(&self, signer: &Facts) -> i64 {
        (self.now + self.lifetimes.leaf).min(signer.not_after)
    }
}

/// One change of the Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A new CA that signs at once: there is none, and nothing that could wait.
    Begin,
    /// A new CA that is trusted, and signs nothing yet.
    Announce,
    /// The announced CA signs from now on.
    Switch,
    /// A new serving certificate.
    Sign,
    /// A new secret part of the path of admission: there is none, or there is a new serving certificate.
    Path,
    /// What has expired leaves; what is unreadable is written anew.
    Tidy,
}

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The time has come.
    Due,
    /// Something was missing or unusable.
    Healed,
}

/// Nothing may be made or thrown away.
#[derive(Debug, PartialEq, Eq)]
pub struct ClockBehind;

impl fmt::Display for ClockBehind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the CA in the Secret is not valid yet: the clock here is behind, or that of its maker was ahead")
    }
}

impl std::error::Error for ClockBehind {}

/// The next action; None: all is well.
///
/// # Errors
/// The clock cannot be believed.
pub fn decide(ring: &Keyring, view: &View<'_>) -> Result<Option<(Action, Cause)>, ClockBehind> {
    let now = view.now;
    if ring.clock_is_behind(now) {
        return Err(ClockBehind);
    }
    let live = |a: &Option<Authority>| a.as_ref().map(|a| a.facts().clone()).filter(|f| now < f.not_after);
    let (signer, next) = (live(&ring.signer), live(&ring.next));
    let served = served(ring, view);
    let lifetimes = view.lifetimes;
    Ok(match (&signer, &next) {
        // It can wait: what is served is trusted, so a new CA is made known first.
        (None, None) if served.is_ok() => Some((Action::Announce, Cause::Healed)),
        (None, None) if ring.is_empty() => Some((Action::Begin, Cause::Due)),
        (None, None) => Some((Action::Begin, Cause::Healed)),
        (None, Some(next)) => {
            // What is served cannot be renewed until then: as late as that allows, for whoever reads its bundle rarely.
            let time = now >= lifetimes.switch(next.made()) || now >= end(ring) - lifetimes.leaf / 6;
            (time && known(ring, view) || served.is_err()).then_some((Action::Switch, Cause::Healed))
        }
        (Some(signer), None) if now >= signer.not_after - 2 * lifetimes.overlap => Some((Action::Announce, Cause::Due)),
        // Towards its end a signer has nothing to give: certificates would end with it.
        (Some(signer), Some(next))
            if known(ring, view)
                && (now >= lifetimes.switch(next.made()) || now >= signer.not_after - lifetimes.leaf / 3) =>
        {
            Some((Action::Switch, Cause::Due))
        }
        (Some(signer), _) => match served {
            Err(()) => Some((Action::Sign, Cause::Healed)),
            Ok(true) if view.end(signer) > end(ring) => Some((Action::Sign, Cause::Due)),
            Ok(_) => None,
        },
    }
    .or_else(|| ring.token.is_none().then_some((Action::Path, Cause::Due)))
    .or_else(|| expired(ring, now).then_some((Action::Tidy, Cause::Due))))
}

/// Does what has to be done, and says what that was.
///
/// # Errors
/// The clock cannot be believed; names no certificate can carry.
pub fn advance(ring: Keyring, view: &View<'_>) -> anyhow::Result<(Keyring, Vec<(Action, Cause)>)> {
    let (mut ring, mut done) = (ring, vec![]);
    while let Some((action, cause)) = decide(&ring, view)? {
        anyhow::ensure!(done.len() < MOST_ACTIONS, "certificates: {done:?} did not settle it");
        ring = carry_out(ring, action, view)?;
        done.push((action, cause));
    }
    Ok((ring, done))
}

fn carry_out(mut ring: Keyring, action: Action, view: &View<'_>) -> anyhow::Result<Keyring> {
    let now = view.now;
    let made = || Authority::made_at(now, view.lifetimes.authority);
    match action {
        Action::Begin => {
            ring.signer = Some(made()?);
            ring.next = None;
            sign(&mut ring, view)?;
        }
        Action::Announce => ring.next = Some(made()?),
        Action::Switch => {
            let old = std::mem::replace(&mut ring.signer, ring.next.take());
            if let Some(old) = old.as_ref().and_then(certificate) {
                ring.retired.insert(0, old);
            }
        }
        Action::Sign => sign(&mut ring, view)?,
        Action::Path => ring.token = Some(Token::new()?),
        Action::Tidy => {}
    }
    let ended = |a: &Authority| a.facts().not_after <= now;
    ring.signer = ring.signer.filter(|a| !ended(a));
    ring.next = ring.next.filter(|a| !ended(a));
    ring.retired.retain(|cert| !is_over(cert, now));
    Ok(ring)
}

fn sign(ring: &mut Keyring, view: &View<'_>) -> anyhow::Result<()> {
    let signer = ring.signer.as_ref().context("no CA to sign with")?;
    // Names only grow: during a rolling update two replicas with different names would undo each other's work for ever.
    let mut names = view.names.to_vec();
    if let Some(facts) = ring
        .serving
        .as_ref()
        .and_then(|s| Facts::of_pem(s.cert.as_bytes()).ok())
    {
        let addresses = facts.addresses.iter().map(ToString::to_string);
        for name in facts.names.into_iter().chain(addresses) {
            if names.len() < MOST_NAMES && !names.contains(&name) {
                names.push(name);
            }
        }
    }
    ring.serving = Some(signer.serving_at(&names, view.now, view.lifetimes.leaf)?);
    // So that one that has come to somebody's eyes is not good for ever.
    ring.token = None;
    Ok(())
}

/// Whether what is served is accepted by everybody who trusts the bundle; then, whether its time has come.
fn served(ring: &Keyring, view: &View<'_>) -> Result<bool, ()> {
    let serving = ring.serving.as_ref().ok_or(())?;
    trust::serves(&ring.trusted(), serving.cert.as_bytes(), view.names, view.now).map_err(|_| ())?;
    Ok(due(serving, view.now, view.jitter))
}

/// When the serving certificate ends.
fn end(ring: &Keyring) -> i64 {
    let facts = ring
        .serving
        .as_ref()
        .and_then(|s| Facts::of_pem(s.cert.as_bytes()).ok());
    facts.map_or(0, |f| f.not_after)
}

/// A certificate is renewed after two thirds of its life, a little later in some processes than in others.
pub fn due(pair: &Pair, now: i64, jitter: f64) -> bool {
    let Ok(facts) = Facts::of_pem(pair.cert.as_bytes()) else {
        return true;
    };
    let life = facts.not_after - facts.made();
    // Below 2^53 for any life a certificate can have.
    let jitter = (life as f64 / 12.0 * jitter.clamp(0.0, 1.0)) as i64;
    now >= facts.made() + life * 2 / 3 + jitter
}

/// The next CA has arrived everywhere.
fn known(ring: &Keyring, view: &View<'_>) -> bool {
    let next = ring.next.as_ref().and_then(certificate);
    next.is_some_and(|next| view.published.iter().all(|place| place.contains(&next)))
}

fn expired(ring: &Keyring, now: i64) -> bool {
    let both = [&ring.signer, &ring.next].into_iter().flatten();
    both.into_iter().any(|a| a.facts().not_after <= now) || ring.retired.iter().any(|cert| is_over(cert, now))
}

fn is_over(cert: &CertificateDer<'_>, now: i64) -> bool {
    Facts::of(cert).is_ok_and(|f| f.not_after <= now)
}
