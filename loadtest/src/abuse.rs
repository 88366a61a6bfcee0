//! Callers that send bodies as nobody should: large ones, ones that break off, ones that come a few bytes at a time. On a
//! thread of their own, at a bounded pace, and only while they are told to. Counts how each was answered.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::ensure;
use bytes::Bytes;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::client::{Protocol, tls_config};
use crate::fixture::{self, Fit, node_name};

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Abuse {
    /// Bodies of 16 MiB.
    Large,
    /// Bodies that end in the middle.
    Truncated,
    /// Bodies that come a few bytes at a time.
    Slow,
}

impl Abuse {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Large => "large",
            Self::Truncated => "truncated",
            Self::Slow => "slow",
        }
    }
}

#[derive(Debug)]
struct Message {
    name: &'static str,
    abuse: Abuse,
    path: &'static str,
    /// Bytes by its head, and bytes that come.
    promised: usize,
    sent: usize,
    /// What has to become of it: the first of some of them, and nothing else of any. Who refuses a body that is still being sent
    /// closes, and the answer may be lost with that.
    right: &'static [&'static str],
}

const PRIORITIZE: &str = "/extender/prioritize";
const MUTATE: &str = "/admission/mutate?timeout=5s";
const LARGE: usize = 16 << 20;

/// None of them to filter, whose times are measured.
const MESSAGES: [Message; 5] = [
    Message {
        name: "16 MiB, as much as prioritize takes",
        abuse: Abuse::Large,
        path: PRIORITIZE,
        promised: LARGE,
        sent: LARGE,
        right: &["200"],
    },
    Message {
        name: "16 MiB, more than admission takes",
        abuse: Abuse::Large,
        path: MUTATE,
        promised: LARGE,
        sent: LARGE,
        right: &["413", "closed"],
    },
    Message {
        name: "half of 1 MiB, then the end",
        abuse: Abuse::Truncated,
        path: PRIORITIZE,
        promised: 1 << 20,
        sent: 1 << 19,
        right: &["400", "closed"],
    },
    Message {
        name: "4 bytes at a time, to prioritize",
        abuse: Abuse::Slow,
        path: PRIORITIZE,
        promised: 1 << 16,
        sent: 1 << 16,
        right: &["503", "closed"],
    },
    Message {
        name: "4 bytes at a time, to admission",
        abuse: Abuse::Slow,
        path: MUTATE,
        promised: 1 << 16,
        sent: 1 << 16,
        right: &["408", "closed"],
    },
];

/// Of a slow body; it is given up by the server long before its end.
const PIECE: usize = 4;
const PAUSE: Duration = Duration::from_millis(50);
/// Longer than the server waits for anything.
const PATIENCE: Duration = Duration::from_secs(30);
/// No answer here has more.
const ANSWER: u64 = 1 << 16;

/// How often each ended how, by its name.
type Answers = BTreeMap<&'static str, BTreeMap<String, u64>>;

pub(crate) struct Abusers(Arc<Shared>);

struct Shared {
    address: SocketAddr,
    tls: Arc<rustls::ClientConfig>,
    large: Bytes,
    at_it: watch::Sender<Option<Abuse>>,
    /// Bodies begun; of slow ones, pieces.
    sent: AtomicU64,
    answers: Mutex<Answers>,
}

/// A pod like any other but for what is written on it, and one node.
fn large() -> Bytes {
    let mut pod = fixture::pod(Fit::All);
    pod["metadata"]["annotations"]["example.com/padding"] = "x".repeat(LARGE).into();
    let mut body = json!({"Pod": pod, "Nodes": null, "NodeNames": [node_name(0)]}).to_string();
    // Exactly so large: what is around the padding comes off it.
    let more = body.len() - LARGE;
    if let Some(at) = body.find("xxxx") {
        body.replace_range(at..at + more, "");
    }
    body.into()
}

impl Abusers {
    /// Begins with nobody at it. `per_second`: bodies of a kind; `slow`: connections with a slow one. All end when this is dropped.
    pub(crate) fn start(address: SocketAddr, pki: &Path, per_second: u32, slow: usize) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared {
            address,
            tls: tls_config(pki, Protocol::Http1)?,
            large: large(),
            at_it: watch::Sender::new(None),
            sent: AtomicU64::new(0),
            answers: Mutex::default(),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut senders = vec![];
        for message in &MESSAGES {
            let (copies, pause) = match message.abuse {
                Abuse::Slow => (slow / 2, PAUSE),
                _ => (1, Duration::from_secs(1) / per_second),
            };
            for _ in 0..copies {
                let told = shared.at_it.subscribe();
                senders.push(go_on(Arc::downgrade(&shared), told, message, pause));
            }
        }
        std::thread::spawn(move || {
            // The client comes first where both have one core: it stands for others, who do not send large bodies.
            wattlane::server::come_last();
            runtime.block_on(futures::future::join_all(senders));
        });
        Ok(Self(shared))
    }

    pub(crate) fn tell(&self, who: Option<Abuse>) {
        self.0.at_it.send_replace(who);
    }

    /// Bodies begun since the start; of slow ones, pieces.
    pub(crate) fn sent(&self) -> u64 {
        self.0.sent.load(Ordering::Relaxed)
    }

    fn answers(&self) -> Answers {
        self.0.answers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets the slow ones come to their end: nobody waits for that while it is measured.
    pub(crate) async fn finish_slow(&self) {
        self.tell(Some(Abuse::Slow));
        let slow = MESSAGES.iter().filter(|m| m.abuse == Abuse::Slow);
        for _ in 0..PATIENCE.as_millis() / 100 {
            let answers = self.answers();
            if slow.clone().all(|m| answers.contains_key(m.name)) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.tell(None);
    }

    /// A row for each message and answer. An error: one was answered as it should not be, or none was.
    pub(crate) fn judge(&self, abuses: &[Abuse]) -> anyhow::Result<Vec<Value>> {
        judge(&self.answers(), abuses)
    }
}

fn judge(answers: &Answers, abuses: &[Abuse]) -> anyhow::Result<Vec<Value>> {
    let mut rows = vec![];
    for message in MESSAGES.iter().filter(|m| abuses.contains(&m.abuse)) {
        let these = answers.get(message.name);
        for (answer, count) in these.into_iter().flatten() {
            ensure!(
                message.right.contains(&&**answer),
                "{:?} ended {count} times with {answer:?}, where it is {} that is right",
                message.name,
                message.right.join(" or ")
            );
            rows.push(json!({"body": message.name, "answer": answer, "count": count}));
        }
        ensure!(
            these.is_some_and(|these| these.contains_key(message.right[0])),
            "{:?} was never answered with {}: give more --requests",
            message.name,
            message.right[0]
        );
    }
    Ok(rows)
}

/// One after the other, whenever told to, until there is nobody to tell.
async fn go_on(
    shared: std::sync::Weak<Shared>,
    mut told: watch::Receiver<Option<Abuse>>,
    message: &'static Message,
    pause: Duration,
) {
    let mut tick = interval(pause);
    tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
    while told.wait_for(|who| *who == Some(message.abuse)).await.is_ok() {
        tick.tick().await;
        let Some(shared) = shared.upgrade() else { return };
        tokio::select! {
            ended = shared.send(message) => shared.note(message, ended),
            // Given up: it counts as nothing.
            _ = told.wait_for(|who| *who != Some(message.abuse)) => {}
        }
    }
}

impl Shared {
    fn note(&self, message: &Message, ended: String) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        *answers.entry(message.name).or_default().entry(ended).or_default() += 1;
    }

    /// How it ended: a status, or what happened instead.
    async fn send(&self, message: &Message) -> String {
        let tried = timeout(PATIENCE, self.try_send(message)).await;
        match tried {
            Ok(Ok(answer)) => ended(&answer),
            Ok(Err(e)) => format!("no connection: {e}"),
            Err(_) => "neither answered nor closed".to_owned(),
        }
    }

    /// The bytes of the answer; an error before the connection is there.
    async fn try_send(&self, message: &Message) -> anyhow::Result<Vec<u8>> {
        let tcp = TcpStream::connect(self.address).await?;
        tcp.set_nodelay(true)?;
        let connector = tokio_rustls::TlsConnector::from(self.tls.clone());
        let stream = connector.connect(ServerName::try_from("localhost")?, tcp).await?;
        let (reader, mut writer) = tokio::io::split(stream);
        let write = async {
            let head = format!(
                "POST {} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                message.path, message.promised
            );
            writer.write_all(head.as_bytes()).await?;
            let body = &self.large[..message.sent];
            if message.abuse == Abuse::Slow {
                for piece in body.chunks(PIECE) {
                    writer.write_all(piece).await?;
                    writer.flush().await?;
                    self.sent.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(PAUSE).await;
                }
                return Ok(());
            }
            self.sent.fetch_add(1, Ordering::Relaxed);
            for piece in body.chunks(64 << 10) {
                writer.write_all(piece).await?;
            }
            match message.sent < message.promised {
                true => writer.shutdown().await,
                false => writer.flush().await,
            }
        };
        let mut answer = vec![];
        {
            let mut bounded = reader.take(ANSWER);
            let read = bounded.read_to_end(&mut answer);
            tokio::pin!(read, write);
            let both = futures::future::select(read, write).await;
            // Who refuses a body closes while it is still being sent: what counts is what was said before.
            if let futures::future::Either::Right((_, read)) = both {
                read.await.ok();
            }
        }
        Ok(answer)
    }
}

/// The status of an answer; of a good one only if it is about the node that was asked for.
fn ended(answer: &[u8]) -> String {
    let answer = String::from_utf8_lossy(answer);
    let status = answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
    match status {
        Some("200") if !answer.contains(&node_name(0)) => "200 without its node".to_owned(),
        Some(status) => status.to_owned(),
        None if answer.is_empty() => "closed".to_owned(),
        None => format!("{answer:.40}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_body_is_json_of_exactly_that_size() {
        let body = large();
        assert_eq!(body.len(), LARGE);
        let value: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(value["NodeNames"], json!([node_name(0)]));
    }

    #[test]
    fn answers_are_told_apart() {
        assert_eq!(ended(b""), "closed");
        assert_eq!(ended(b"HTTP/1.1 413 Payload Too Large\r\n\r\n"), "413");
        assert_eq!(ended(b"HTTP/1.1 200 OK\r\n\r\n[]"), "200 without its node");
        let good = format!("HTTP/1.1 200 OK\r\n\r\n[{{\"Host\":\"{}\"}}]", node_name(0));
        assert_eq!(ended(good.as_bytes()), "200");
        assert_eq!(ended(b"nonsense"), "nonsense");
    }

    #[test]
    fn a_wrong_answer_and_none_are_errors() {
        let mut answers: Answers = BTreeMap::new();
        let abuses = [Abuse::Truncated];
        assert!(judge(&answers, &abuses).is_err(), "none");
        answers
            .entry(MESSAGES[2].name)
            .or_default()
            .insert("closed".to_owned(), 1);
        assert!(judge(&answers, &abuses).is_err(), "never refused in words");
        answers.insert(MESSAGES[2].name, [("400".to_owned(), 3)].into());
        let rows = judge(&answers, &abuses).expect("right");
        assert_eq!(rows, [json!({"body": MESSAGES[2].name, "answer": "400", "count": 3})]);
        assert!(
            judge(&answers, &[Abuse::Truncated, Abuse::Slow]).is_err(),
            "none of slow ones"
        );
        answers.entry(MESSAGES[2].name).or_default().insert("200".to_owned(), 1);
        assert!(judge(&answers, &abuses).is_err(), "wrong");
    }
}
