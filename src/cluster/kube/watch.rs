//! One endless watch per kind: list, follow, restart with backoff, and say how it goes. What an event means is in
//! `feed`.
//!
//! Signs of life: kube-runtime swallows bookmarks and re-established watches, so a quiet watch would look like a dead
//! one. Each kind therefore has its own client, and every piece of a successful answer that comes in counts, once the
//! list is complete: events, bookmarks (about one a minute, and one before each time-out), and the answer that
//! re-establishes the watch. A watch lives `WATCH_SECONDS`; a connection that died without a word is given up 5 s
//! later. So a healthy quiet watch is silent for at most about a minute, and `/readyz` may call two minutes stale.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt;
use http_body_util::BodyExt;
use kube::Api;
use kube::client::ClientBuilder;
use kube::core::ApiResource;
use kube::runtime::watcher::{self, Event, watcher};

use super::feed::Feed;
use super::raw::Raw;
use super::relist::Relist;
use super::{api, paths};
use crate::cluster::WatchStatus;
use crate::index::{Change, Kind};
use crate::publish::IndexHandle;

/// The server ends a watch after this long, and it is taken up again where it ended.
pub(super) const WATCH_SECONDS: u32 = 60;
/// Failures in a row after which the place to go on from is given up too, and everything is listed again: a
/// resourceVersion can be one the server will never know (an etcd restored from a backup).
const RELIST_AFTER: u32 = 5;
const FIRST_DELAY: Duration = Duration::from_millis(250);
/// Low: nine watches every two seconds are nothing to an API server, and each second of blindness delays binds.
const MAX_DELAY: Duration = Duration::from_secs(2);

/// Between two looks for a kind that is not served. A feature gate takes a restart of the API server.
const ABSENT: Duration = Duration::from_secs(30);

/// Passes signs of life on while the kind's list is complete.
struct Pulse {
    kind: Kind,
    listed: AtomicBool,
    status: Arc<dyn WatchStatus>,
}

impl Pulse {
    fn beat(&self) {
        if self.listed.load(Ordering::Relaxed) {
            self.status.alive(self.kind);
        }
    }
}

/// Feeds one kind until the index task ends, which is the error it returns.
pub(super) async fn run(
    kind: Kind,
    config: kube::Config,
    index: IndexHandle,
    status: Arc<dyn WatchStatus>,
    relist: Arc<Relist>,
) -> anyhow::Result<()> {
    let pulse = Arc::new(Pulse {
        kind,
        listed: AtomicBool::new(false),
        status,
    });
    let client = client(config, pulse.clone())?;
    let mut failures = 0;
    let mut said = String::new();
    loop {
        let begun = relist.begin();
        let resource = match served(kind, &client).await {
            Ok(Some(resource)) => resource,
            Ok(None) => {
                absent(&pulse, &index).await?;
                continue;
            }
            Err(error) => {
                failures += 1;
                pulse.listed.store(false, Ordering::Relaxed);
                pulse.status.restarted(kind);
                complain(kind, &watcher::Error::InitialListFailed(error), &mut said);
                pause(failures, &relist, begun).await;
                continue;
            }
        };
        let settings = watcher::Config::default().timeout(WATCH_SECONDS);
        let mut events = pin!(watcher(Api::<Raw>::all_with(client.clone(), &resource), settings));
        let mut feed = Feed::new(kind);
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                // The place to go on from is given up with the stream; what the index has stays until the list is whole.
                () = relist.wanted(begun) => None,
            };
            let Some(event) = event else { break };
            match event {
                Ok(event) => {
                    // Being listed again is no success yet: the list may fail.
                    if !matches!(event, Event::Init) {
                        failures = 0;
                        said.clear();
                    }
                    let complete = matches!(event, Event::InitDone);
                    apply(event, &mut feed, &pulse, &index).await?;
                    if complete {
                        relist.listed(begun);
                    }
                }
                Err(error) => {
                    failures += 1;
                    pulse.status.restarted(kind);
                    complain(kind, &error, &mut said);
                    let wanted = pause(failures, &relist, begun).await;
                    if wanted || gone(&error) || failures % RELIST_AFTER == 0 {
                        break;
                    }
                }
            }
        }
    }
}

/// Where the kind is served; None: nowhere, which is fine for a kind that is behind a feature gate.
async fn served(kind: Kind, client: &kube::Client) -> Result<Option<ApiResource>, kube::Error> {
    let versions = paths::optional(kind);
    if versions.is_empty() {
        return Ok(Some(paths::resource(kind)));
    }
    for version in versions {
        match client.list_api_group_resources(&version.api_version).await {
            Ok(list) if list.resources.iter().any(|r| r.name == version.plural) => return Ok(Some(version)),
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// A kind the API server does not serve: an empty list, looked for again after a while.
async fn absent(pulse: &Pulse, index: &IndexHandle) -> anyhow::Result<()> {
    if !pulse.listed.load(Ordering::Relaxed) {
        index.change(Change::Reset(pulse.kind, vec![])).await?;
        index.flush().await?;
        pulse.listed.store(true, Ordering::Relaxed);
    }
    pulse.beat();
    tokio::time::sleep(ABSENT).await;
    Ok(())
}

async fn apply(event: Event<Raw>, feed: &mut Feed, pulse: &Pulse, index: &IndexHandle) -> anyhow::Result<()> {
    if matches!(event, Event::Init) {
        pulse.listed.store(false, Ordering::Relaxed);
    }
    let complete = matches!(event, Event::InitDone);
    let outcome = feed.take(event);
    if let Some(bad) = outcome.undecodable {
        pulse.status.undecodable(pulse.kind);
        tracing::warn!(kind = pulse.kind.as_str(), object = %bad.key, why = bad.why, "object cannot be read: ignored");
    }
    if let Some(change) = outcome.change {
        index.change(change).await?;
    }
    if complete {
        // Ready means that readers can see the list, not that it has been sent off.
        index.flush().await?;
        pulse.listed.store(true, Ordering::Relaxed);
    }
    pulse.beat();
    Ok(())
}

/// A client whose every successful answer, and every piece of its body, beats the pulse.
fn client(mut config: kube::Config, pulse: Arc<Pulse>) -> anyhow::Result<kube::Client> {
    // A stuck list or an answer that never begins has no other end: the watcher's own limit covers only events.
    config.read_timeout = Some(Duration::from_secs(u64::from(WATCH_SECONDS) + 15));
    config.reset_reader_on_write = true;
    let watched = tower::util::MapResponseLayer::new(move |response: http::Response<Box<kube::client::DynBody>>| {
        let good = response.status().is_success();
        let pulse = pulse.clone();
        if good {
            pulse.beat();
        }
        response.map(|body| {
            body.map_frame(move |frame| {
                if good {
                    pulse.beat();
                }
                frame
            })
        })
    });
    Ok(ClientBuilder::try_from(config)?.with_layer(&watched).build())
}

/// Says what is wrong and what to do, once per kind of trouble.
fn complain(kind: Kind, error: &watcher::Error, said: &mut String) {
    let (what, advice) = advice(kind, error);
    let kind = kind.as_str();
    if *said == what {
        tracing::debug!(kind, error = what, "watch failed again");
    } else {
        tracing::warn!(kind, error = what, advice, "watch failed; not ready until it works");
        *said = what;
    }
}

pub(super) fn advice(kind: Kind, error: &watcher::Error) -> (String, String) {
    let resource = paths::resource(kind);
    // The API's own words, where there are any: the client's text repeats them with all their fields.
    let said = answer(error);
    let what = said.map_or_else(|| api::chain(error), |s| format!("{} ({})", s.message, s.code));
    let advice = match said.map(|s| s.code) {
        Some(403) => format!(
            "grant get, list and watch on {} in API group {:?} to this ServiceAccount: apply manifests/base/rbac.yaml",
            resource.plural, resource.group
        ),
        Some(401) => {
            "the token or certificate is not accepted: look at the kubeconfig or the ServiceAccount".to_owned()
        }
        Some(404) => format!(
            "the API server does not serve {} {}: wattlane needs Kubernetes 1.34 or newer, with {} enabled",
            resource.api_version, resource.plural, resource.api_version
        ),
        Some(410) => "the place in the watch is too old: listing again".to_owned(),
        _ => "trying again".to_owned(),
    };
    (what, advice)
}

/// The API's answer, where there was one.
fn answer(error: &watcher::Error) -> Option<&kube::core::Status> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(s))
        | watcher::Error::WatchStartFailed(kube::Error::Api(s))
        | watcher::Error::WatchFailed(kube::Error::Api(s))
        | watcher::Error::WatchError(s) => Some(s),
        _ => None,
    }
}

/// The watcher relists by itself when an event says 410, but not when the start of a watch does.
fn gone(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(_)) && answer(error).is_some_and(|s| s.code == 410)
}

/// Waits before the next try; true: cut short by somebody who wants a list and has just written to this API server, so
/// that it is there again. Once a wish: what begins next begins after it.
pub(super) async fn pause(failures: u32, relist: &Relist, begun: u64) -> bool {
    tokio::select! {
        () = tokio::time::sleep(delay(failures)) => false,
        () = relist.wanted(begun) => true,
    }
}

/// Exponential, with jitter of a quarter so that replicas and kinds do not come back in step.
fn delay(failures: u32) -> Duration {
    let base = FIRST_DELAY
        .saturating_mul(1 << failures.saturating_sub(1).min(6))
        .min(MAX_DELAY);
    // Randomly keyed: as random as this needs, without a crate for it.
    let draw = RandomState::new().build_hasher().finish() % 1000;
    base.mul_f64(0.75 + draw as f64 / 2000.0)
}
