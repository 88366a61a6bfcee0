//! Keeps the certificates of `serve --tls-secret`: reads the Secret, does what `certs::rotation` says, gives the bundle
//! out and hands the pair to the server, every few seconds and without a leader: of two replicas that write at once
//! one is told so and looks again. Knows no kinds of certificates and no API paths.

mod door;
mod objects;
mod path;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::certs::keyring::{Data, Keyring};
use crate::certs::rotation::{Action, Cause, Lifetimes, View, advance};
use crate::certs::{self, DAY, Pair, Token, client, trust};
use crate::cluster::WriteError;
use crate::cluster::secrets::CertStore;
use crate::metrics::{Metrics, Readiness};
use crate::model::NamespacedName;
use crate::server::{Reloaded, Tls};
use door::Door;
use path::Found;

pub use objects::data;

/// How often the Secret is looked at.
const EVERY: Duration = Duration::from_secs(10);
/// Looks for which an API server may go by an old webhook configuration, and a replica by an old Secret.
const GRACE: u32 = 6;
/// Between two looks, whoever asks for them.
const LEAST: Duration = Duration::from_secs(1);
/// Looks in a row when others write at the same time; then there is always the next one.
const ATTEMPTS: usize = 5;

/// What is kept, and for whom.
#[derive(Clone, Debug)]
pub struct Settings {
    pub secret: NamespacedName,
    /// For kube-scheduler: its pair, and the bundle it knows us by.
    pub client: Option<NamespacedName>,
    /// The MutatingWebhookConfiguration with our caBundle.
    pub webhooks: String,
    /// Names and IP addresses clients reach the service by.
    pub names: Vec<String>,
    pub lifetimes: Lifetimes,
}

/// The time.
pub struct Clock {
    /// Seconds since the epoch: how certificates are dated.
    pub wall: Box<dyn Fn() -> i64 + Send + Sync>,
    /// Since some moment of this process, and never back: how long something has stood.
    pub steady: Box<dyn Fn() -> Duration + Send + Sync>,
}

impl Clock {
    pub fn system() -> Self {
        let began = std::time::Instant::now();
        Self {
            wall: Box::new(certs::now),
            steady: Box::new(move || began.elapsed()),
        }
    }
}

pub struct Keeper {
    settings: Settings,
    store: Arc<dyn CertStore>,
    clock: Clock,
    jitter: f64,
    tls: Arc<Tls>,
    metrics: Arc<Metrics>,
    readiness: Arc<Readiness>,
    /// The bundle that was found in place at the last look: another one there now is somebody else's doing.
    in_place: Option<String>,
    /// The same of the path of admission.
    path_in_place: Option<Token>,
    door: Door,
    /// Whether there was a webhook configuration at the last look that could tell.
    registered: Option<bool>,
    in_use: Option<InUse>,
    reminded: i64,
    said: String,
}

/// What the server was handed last, PEM: its certificate, and the CAs its callers may be of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InUse {
    pub cert: String,
    pub bundle: String,
}

/// Somebody else wrote: look again.
struct Conflict;

impl Keeper {
    /// `jitter`: 0 to 1, different in each process.
    pub fn new(
        settings: Settings,
        store: Arc<dyn CertStore>,
        clock: Clock,
        jitter: f64,
        tls: Arc<Tls>,
        metrics: Arc<Metrics>,
        readiness: Arc<Readiness>,
    ) -> Self {
        let paths = tls.paths().clone();
        // Until the first look, which comes before the first certificate.
        paths.only([]);
        metrics.on_render(move |metrics| metrics.admission_closed.set(i64::from(paths.closed())));
        Self {
            door: Door::new(grace(settings.lifetimes)),
            settings,
            store,
            clock,
            jitter,
            tls,
            metrics,
            readiness,
            in_place: None,
            path_in_place: None,
            registered: None,
            in_use: None,
            reminded: 0,
            said: String::new(),
        }
    }

    pub fn in_use(&self) -> Option<&InUse> {
        self.in_use.as_ref()
    }

    /// Looks for ever. Whatever goes wrong is said, and what is in use stays in use.
    pub async fn run(mut self, stop: CancellationToken) {
        let every = every(self.settings.lifetimes);
        let paths = self.tls.paths().clone();
        let pause = || async {
            tokio::time::sleep(LEAST).await;
            // The sooner of the two.
            let _ = tokio::time::timeout(every.saturating_sub(LEAST), paths.wanted()).await;
        };
        loop {
            let faults = self.look().await.join("; ");
            if faults != self.said && !faults.is_empty() {
                tracing::warn!(error = faults, "certificates: not all could be done, it is tried again");
            }
            self.said = faults;
            if stop.run_until_cancelled(pause()).await.is_none() {
                return;
            }
        }
    }

    /// One look, and all that follows from it. What could not be done, in words; empty: all is as it should be.
    pub async fn look(&mut self) -> Vec<String> {
        let paths = self.tls.paths().clone();
        let _look = paths.look();
        for _ in 0..ATTEMPTS {
            let mut unsayable = vec![];
            if let Ok(mut faults) = self.attempt(&mut unsayable).await {
                // The API server may quote what it did not like.
                for ending in unsayable.iter().filter(|e| !e.is_empty()) {
                    faults.iter_mut().for_each(|fault| *fault = fault.replace(ending, "…"));
                }
                return faults;
            }
        }
        vec!["others keep writing at the same time".to_owned()]
    }

    /// `unsayable`: the endings of the path that it meets; who knows one gets in.
    async fn attempt(&mut self, unsayable: &mut Vec<String>) -> Result<Vec<String>, Conflict> {
        let mut faults = vec![];
        let secret = match self.read_secret(&self.settings.secret).await {
            Ok(secret) => secret,
            Err(why) => return Ok(vec![self.failed("look", why)]),
        };
        let found = data(&secret);
        let webhooks = match self.store.webhooks(&self.settings.webhooks).await {
            Ok(webhooks) => Found::There(webhooks),
            Err(WriteError::NotFound(_)) => Found::NotRegistered,
            Err(error) => {
                faults.push(self.failed("bundle", error.to_string()));
                Found::Unreadable
            }
        };
        let client = match &self.settings.client {
            None => None,
            Some(key) => match self.read_secret(key).await {
                Ok(secret) => Some(secret),
                Err(why) => {
                    faults.push(self.failed("client", why));
                    Some(Value::Null)
                }
            },
        };
        let mut published = match &webhooks {
            Found::There(webhooks) => objects::published(webhooks),
            Found::NotRegistered => vec![],
            // Nobody is known to be trusted.
            Found::Unreadable => vec![vec![]],
        };
        published.extend(client.as_ref().map(objects::known_to));

        let (now, steady) = ((self.clock.wall)(), (self.clock.steady)());
        let (before, garbled) = Keyring::read(&found, now);
        unsayable.extend(webhooks.there().and_then(objects::endings).into_iter().flatten());
        unsayable.extend(tokens(&before));
        self.see(steady, &webhooks, &before);
        let known_token = self.door.known(steady, before.next_token()).cloned();
        let (names, lifetimes) = (self.settings.names.clone(), self.settings.lifetimes);
        let view = View {
            now,
            jitter: self.jitter,
            names: &names,
            lifetimes,
            published: &published,
            unasked: webhooks.unasked(),
            known_token: known_token.as_ref(),
        };
        let ring = match advance(before, &view) {
            // The clock cannot be believed, or nothing can be signed: whatever follows would be as wrong.
            Err(error) => {
                faults.push(self.failed("look", format!("{error:#}")));
                return Ok(faults);
            }
            Ok((mut ring, done)) => {
                let changed = objects::with(&found, &ring.data()) != found;
                self.note(steady, &webhooks, &mut ring);
                unsayable.extend(tokens(&ring));
                let wanted = objects::with(&found, &ring.data());
                let action = match done.first() {
                    Some((action, _)) => name(*action),
                    None if changed => "tidy",
                    None => "path",
                };
                if wanted == found {
                    ring
                } else if self.put(action, &secret, &wanted, &mut faults).await? {
                    if changed {
                        self.say(&done, &garbled);
                    }
                    ring
                } else {
                    Keyring::read(&found, now).0
                }
            }
        };
        self.see(steady, &webhooks, &ring);
        if let Some(webhooks) = webhooks.there() {
            self.publish(webhooks, &ring, &mut faults).await?;
        }
        if let Some(secret) = client.filter(|s| !s.is_null()) {
            let found = data(&secret);
            match client::advance(&ring, &found, &view) {
                Ok(None) => {}
                Ok(Some((wanted, cause))) => {
                    if self.put("client", &secret, &wanted, &mut faults).await? {
                        self.count("client", cause);
                        tracing::info!(?cause, "the scheduler's certificate or CA bundle was written");
                    }
                }
                Err(error) => faults.push(self.failed("client", format!("{error:#}"))),
            }
        }
        self.take(&ring, &view, &mut faults);
        self.tell(&ring, now);
        Ok(faults)
    }

    /// One that is missing is as an empty one. One of cert-manager's is left alone.
    async fn read_secret(&self, key: &NamespacedName) -> Result<Value, String> {
        match self.store.secret(key).await {
            Ok(found) => objects::ours(found),
            Err(WriteError::NotFound(_)) => Ok(objects::new_secret(key)),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Whether it was written.
    async fn put(
        &self,
        action: &'static str,
        secret: &Value,
        wanted: &Data,
        faults: &mut Vec<String>,
    ) -> Result<bool, Conflict> {
        let made = secret["metadata"]["resourceVersion"].is_null();
        let written = self.store.put_secret(&objects::with_data(secret, wanted)).await;
        let hint = if made {
            " (the Secret is missing: apply the manifests, which hold it empty)"
        } else {
            ""
        };
        self.outcome(action, written, hint, faults)
    }

    /// Serves what the Secret holds, if clients would accept it; else what was served until now.
    fn take(&mut self, ring: &Keyring, view: &View<'_>, faults: &mut Vec<String>) {
        let Some(Pair { cert, key }) = ring.serving() else {
            return;
        };
        if trust::serves(&ring.trusted(), cert.as_bytes(), view.names, view.now).is_err() {
            return;
        }
        let bundle = ring.bundle();
        match self.tls.take(cert, key, &bundle) {
            Ok(Reloaded::Unchanged) => {}
            Ok(Reloaded::Taken) => {
                let cert = cert.clone();
                self.in_use = Some(InUse { cert, bundle });
                self.metrics.tls_reload(true);
                self.readiness.certificate_expires(self.tls.not_after());
                tracing::info!(until = date(self.tls.not_after()), "new TLS certificate in use");
            }
            Err(error) => {
                self.metrics.tls_reload(false);
                faults.push(format!("{error:#}"));
            }
        }
    }

    /// The ends of things, and once a day that a new CA is coming: kube-scheduler reads its CA file when it starts.
    fn tell(&mut self, ring: &Keyring, now: i64) {
        let signer = ring.signer().map_or(0, |a| a.facts().not_after);
        let announced = ring.next().map(|a| a.facts().made());
        let switch = announced.map_or(0, |at| self.settings.lifetimes.switch(at));
        self.metrics.tls_ca_not_after.set(signer);
        self.metrics.tls_ca_switch.set(switch);
        if let Some(announced) = announced
            && now - self.reminded >= DAY
        {
            self.reminded = now;
            tracing::warn!(
                announced = date(announced),
                signs_from = date(switch),
                "a new CA is announced: restart every kube-scheduler started before the first date until the second, or \
                 it will not know wattlane any more"
            );
        }
    }

    /// What was written to the Secret.
    fn say(&self, done: &[(Action, Cause)], garbled: &[&'static str]) {
        if !garbled.is_empty() {
            tracing::warn!(
                keys = garbled.join(", "),
                "unusable or strange parts of the Secret were put aside"
            );
        }
        for &(action, cause) in done {
            // A start in the middle of a life is none.
            let again = action == Action::Begin && self.in_place.is_some();
            let cause = if again || !garbled.is_empty() {
                Cause::Healed
            } else {
                cause
            };
            self.count(name(action), cause);
            match cause {
                Cause::Due => tracing::info!(action = name(action), "certificates in the Secret were changed"),
                Cause::Healed => tracing::warn!(
                    action = name(action),
                    "certificates in the Secret were missing or unusable"
                ),
            }
        }
        if done.is_empty() {
            self.count("tidy", Cause::Healed);
            tracing::warn!("the Secret did not hold what it should; it was written anew");
        }
    }

    fn count(&self, action: &'static str, cause: Cause) {
        let outcome = match cause {
            Cause::Due => "done",
            Cause::Healed => "healed",
        };
        self.metrics.tls_rotation(action, outcome);
    }

    fn failed(&self, action: &'static str, why: String) -> String {
        self.metrics.tls_rotation(action, "error");
        why
    }

    fn outcome(
        &self,
        action: &'static str,
        written: Result<(), WriteError>,
        hint: &str,
        faults: &mut Vec<String>,
    ) -> Result<bool, Conflict> {
        match written {
            Ok(()) => Ok(true),
            Err(WriteError::Conflict(_)) => {
                self.metrics.tls_rotation(action, "conflict");
                Err(Conflict)
            }
            Err(error) => {
                faults.push(self.failed(action, format!("{error}{hint}")));
                Ok(false)
            }
        }
    }
}

fn tokens(ring: &Keyring) -> impl Iterator<Item = String> {
    let both = [ring.token(), ring.next_token()].into_iter().flatten();
    both.map(|t| t.as_str().to_owned())
}

fn every(lifetimes: Lifetimes) -> Duration {
    EVERY.min(Duration::from_secs(
        u64::try_from(lifetimes.leaf() / 10).unwrap_or(1).max(1),
    ))
}

fn grace(lifetimes: Lifetimes) -> Duration {
    every(lifetimes) * GRACE
}

fn name(action: Action) -> &'static str {
    match action {
        Action::Begin => "begin",
        Action::Announce => "announce",
        Action::Switch => "switch",
        Action::Sign => "sign",
        Action::Path | Action::Turn => "path",
        Action::Tidy => "tidy",
    }
}

fn date(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), |t| t.to_string())
}
