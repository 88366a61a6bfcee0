//! As much of an API server as `wattlane serve` watches: lists in pages, watches that go on where one left off, over plain
//! HTTP on a thread of its own. It stores nothing that is written: what is measured against it is reading. Told to, it
//! sends events: pods that come with a claim, are placed, run and go, and nodes between them.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::channel::Channel;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use crate::lives::Lives;
use crate::population::{KINDS, Population};

/// Events of a kind that are kept for a watch to begin at.
const KEPT: usize = 20_000;

pub(crate) struct ApiServer {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    population: Population,
    kinds: [Kind; KINDS.len()],
    /// The newest resourceVersion: microseconds since the epoch, so that an event says when it was sent.
    version: AtomicU64,
    feeding: AtomicBool,
    sent: AtomicU64,
    lists: AtomicU64,
}

struct Kind {
    events: Mutex<VecDeque<(u64, Bytes)>>,
    newest: watch::Sender<u64>,
}

type Body = Either<Full<Bytes>, Channel<Bytes>>;

impl ApiServer {
    /// Serves and, while `feed` says so, sends `rate` events a second, until the process ends.
    pub(crate) fn start(population: Population, rate: u32) -> anyhow::Result<Self> {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            population,
            kinds: std::array::from_fn(|_| Kind {
                events: Mutex::default(),
                newest: watch::Sender::new(0),
            }),
            version: AtomicU64::new(0),
            feeding: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            lists: AtomicU64::new(0),
        });
        shared.next_version();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let serving = shared.clone();
        std::thread::spawn(move || {
            runtime.block_on(async {
                if rate > 0 {
                    tokio::spawn(feed(serving.clone(), rate));
                }
                accept(serving, listener).await
            })
        });
        Ok(Self { address, shared })
    }

    pub(crate) fn write_kubeconfig(&self, path: &Path) -> anyhow::Result<()> {
        let named = |kind: &str, content: Value| json!([{"name": "local", kind: content}]);
        let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "local",
            "clusters": named("cluster", json!({"server": format!("http://{}", self.address)})),
            "contexts": named("context", json!({"cluster": "local", "user": "local"})), "users": named("user", json!({}))});
        std::fs::write(path, config.to_string()).with_context(|| path.display().to_string())
    }

    pub(crate) fn feed(&self, on: bool) {
        self.shared.feeding.store(on, Ordering::Relaxed);
    }

    /// Events sent since the start.
    pub(crate) fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed)
    }

    /// Lists begun since the start: more than one a kind means that a watch was lost.
    pub(crate) fn lists(&self) -> u64 {
        self.shared.lists.load(Ordering::Relaxed)
    }
}

pub(crate) fn micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

impl Shared {
    fn next_version(&self) -> u64 {
        let before = self.version.load(Ordering::Relaxed);
        let next = micros().max(before + 1);
        self.version.store(next, Ordering::Relaxed);
        next
    }

    fn kind(&self, plural: &str) -> Option<&Kind> {
        let at = KINDS.iter().position(|k| *k == plural)?;
        self.kinds.get(at)
    }

    fn send(&self, plural: &str, event: &str, rest: &str) {
        let Some(kind) = self.kind(plural) else { return };
        let version = self.next_version();
        let line = format!("{event}{version}{rest}\n");
        let mut events = kind.events.lock().unwrap_or_else(PoisonError::into_inner);
        if events.len() == KEPT {
            events.pop_front();
        }
        events.push_back((version, line.into()));
        drop(events);
        kind.newest.send_replace(version);
        self.sent.fetch_add(1, Ordering::Relaxed);
    }
}

/// Evenly, a millisecond's events at a time; what was missed because this thread was not run comes at once.
async fn feed(shared: Arc<Shared>, rate: u32) {
    let mut lives = Lives::new(shared.population.nodes);
    let mut tick = tokio::time::interval(Duration::from_millis(1));
    tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut owed = 0;
    loop {
        tick.tick().await;
        if !shared.feeding.load(Ordering::Relaxed) {
            tick.reset();
            continue;
        }
        owed += rate;
        for _ in 0..owed / 1000 {
            let (plural, before, after) = lives.next();
            shared.send(plural, &before, &after);
        }
        owed %= 1000;
    }
}

async fn accept(shared: Arc<Shared>, listener: std::net::TcpListener) -> anyhow::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let shared = shared.clone();
        let service = service_fn(move |request| {
            let answer = answer(&shared, &request);
            async move { anyhow::Ok(answer) }
        });
        tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

fn answer(shared: &Arc<Shared>, request: &Request<Incoming>) -> Response<Body> {
    let path = request.uri().path();
    let query = |key: &str| {
        let pairs = request.uri().query().unwrap_or_default().split('&');
        pairs
            .filter_map(|p| p.split_once('='))
            .find(|(k, _)| *k == key)
            .map(|(_, v)| v)
    };
    let number = |key: &str| query(key).and_then(|v| v.parse::<u64>().ok());
    let plural = path.rsplit('/').next().unwrap_or_default();
    let known = KINDS.into_iter().find(|k| *k == plural);
    match (known, query("watch")) {
        (Some(plural), Some("true" | "1")) => {
            let (mut sender, body) = Channel::new(64);
            let (shared, from) = (shared.clone(), number("resourceVersion").unwrap_or(0));
            let until = Instant::now() + Duration::from_secs(number("timeoutSeconds").unwrap_or(60));
            tokio::spawn(async move {
                // The end of a watch is the end of its time, or of its client.
                let _ = tokio::time::timeout_at(until, follow(&shared, plural, from, &mut sender)).await;
            });
            Response::new(Either::Right(body))
        }
        (Some(plural), _) => {
            let (limit, from) = (number("limit").unwrap_or(u64::MAX), number("continue").unwrap_or(0));
            shared.lists.fetch_add(u64::from(from == 0), Ordering::Relaxed);
            json_answer(200, list(shared, plural, from, limit))
        }
        (None, _) => {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
                "message": "not served here"});
            json_answer(404, status.to_string())
        }
    }
}

fn json_answer(status: u16, body: String) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::new(Bytes::from(body))));
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
    response
}

fn list(shared: &Shared, plural: &str, from: u64, limit: u64) -> String {
    let count = shared.population.count(plural) as u64;
    let end = count.min(from.saturating_add(limit));
    let next = if end < count { end.to_string() } else { String::new() };
    let version = shared.version.load(Ordering::Relaxed);
    let mut out = format!(
        r#"{{"kind":"List","apiVersion":"v1","metadata":{{"resourceVersion":"{version}","continue":"{next}"}},"items":["#
    );
    for i in from..end {
        out += if i == from { "" } else { "," };
        out += &shared.population.object(plural, i as usize).to_string();
    }
    out + "]}"
}

async fn follow(
    shared: &Shared,
    plural: &str,
    mut from: u64,
    sender: &mut http_body_util::channel::Sender<Bytes>,
) -> Option<()> {
    let kind = shared.kind(plural)?;
    let mut newest = kind.newest.subscribe();
    loop {
        newest.borrow_and_update();
        let news: Vec<(u64, Bytes)> = {
            let events = kind.events.lock().unwrap_or_else(PoisonError::into_inner);
            let seen = events.partition_point(|(version, _)| *version <= from);
            events.range(seen..).cloned().collect()
        };
        for (version, line) in news {
            sender.send_data(line).await.ok()?;
            from = version;
        }
        newest.changed().await.ok()?;
    }
}
