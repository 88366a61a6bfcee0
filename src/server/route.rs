//! What happens to one request before and after the decision: path, caller, method, path of admission, room, body; then `verbs`; and
//! whatever comes of it is counted and answered in one line of words. A panic ends its request only.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures::FutureExt as _;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::sync::Semaphore;
use tracing::Instrument as _;

use super::body::{self, BodyError, Room, Share};
use super::client::{Client, Pass};
use super::complaints::Complaints;
use super::paths::{Paths, ending};
use super::seats::Seat;
use super::verbs::{self, Answered};
use super::{Limits, Service, deadline};
use crate::metrics::{Metrics, Outcome, Verb};
use crate::wire;

pub(super) struct Router<S> {
    service: Arc<S>,
    metrics: Arc<Metrics>,
    limits: Limits,
    complaints: Complaints,
    paths: Arc<Paths>,
    extender: Door,
    bind: Door,
    admission: Door,
}

/// What the verbs of one kind may take together; a flood at one door leaves the others as they are.
struct Door {
    requests: Semaphore,
    bodies: Arc<Room>,
    body: usize,
}

impl Door {
    fn new(requests: usize, bodies: usize, body: usize) -> Self {
        Self {
            requests: Semaphore::new(requests),
            bodies: Room::new(bodies),
            body,
        }
    }
}

/// On a response: after it, the connection is closed as politely as its protocol can. kube-scheduler keeps connections
/// for as long as they work, and one to a replica that does not bind, or with a certificate that opens nothing any more,
/// would work for ever.
#[derive(Clone, Copy)]
pub(super) struct Leave;

/// No answer in the protocol of the path: a status and a line of words.
pub(super) struct Rejected {
    status: StatusCode,
    outcome: Outcome,
    words: String,
}

pub(super) fn rejected(status: StatusCode, outcome: Outcome, words: impl Into<String>) -> Rejected {
    Rejected {
        status,
        outcome,
        words: words.into(),
    }
}

impl<S: Service> Router<S> {
    pub(super) fn new(service: Arc<S>, limits: &Limits, metrics: Arc<Metrics>, paths: Arc<Paths>) -> Self {
        Self {
            service,
            metrics,
            complaints: Complaints::default(),
            paths,
            extender: Door::new(limits.extender_requests, limits.buffered_bytes, limits.extender_bytes),
            bind: Door::new(
                limits.bind_requests,
                limits.bind_requests.saturating_mul(limits.bind_bytes),
                limits.bind_bytes,
            ),
            admission: Door::new(
                limits.admission_requests,
                limits.admission_buffered_bytes,
                limits.admission_bytes,
            ),
            limits: limits.clone(),
        }
    }

    pub(super) async fn handle(
        &self,
        client: &Client,
        seat: &Arc<Seat>,
        request: Request<Incoming>,
    ) -> Response<Full<Bytes>> {
        let verb = verb_of(request.uri().path());
        let mut record = Record {
            metrics: &self.metrics,
            verb,
            begun: Instant::now(),
            outcome: Outcome::Gone,
        };
        let span = tracing::info_span!(
            "request",
            verb = verb.as_str(),
            pod = tracing::field::Empty,
            uid = tracing::field::Empty,
            node = tracing::field::Empty
        );
        let one = request.version() < Version::HTTP_2;
        let work = self.answer(verb, client, seat, request).instrument(span.clone());
        // State behind the service is atomics and swapped pointers: a panic leaves none of it half changed.
        let result = AssertUnwindSafe(work).catch_unwind().await;
        let _in = span.enter();
        let (status, outcome, mut response) = match result {
            Ok(Ok(Answered { outcome, body })) => (StatusCode::OK, outcome, json(body)),
            Ok(Err(no)) => {
                if let Some(unsaid) = self.complaints.say(no.outcome, record.begun) {
                    tracing::warn!(status = no.status.as_u16(), why = no.words, unsaid, "request not taken");
                }
                (no.status, no.outcome, words(no.status, &no.words))
            }
            Err(_) => {
                tracing::error!("panic in a request; this request failed, nothing else");
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                (
                    status,
                    Outcome::Panic,
                    words(status, "internal error in wattlane: see its log"),
                )
            }
        };
        record.outcome = outcome;
        if status == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        }
        let leave = outcome == Outcome::NotLeader || client.lost;
        if leave {
            response.extensions_mut().insert(Leave);
        }
        // What is left of a body we did not read must not be taken for the next request, and a connection to a follower is
        // of no more use. HTTP/2 ends the stream, and leaves.
        if one && (leave || matches!(outcome, Outcome::TooLarge | Outcome::Timeout)) {
            response
                .headers_mut()
                .insert(CONNECTION, HeaderValue::from_static("close"));
        }
        tracing::debug!(
            outcome = outcome.as_str(),
            took_us = record.begun.elapsed().as_micros() as u64,
            "answered"
        );
        response
    }

    async fn answer(
        &self,
        verb: Verb,
        client: &Client,
        seat: &Arc<Seat>,
        request: Request<Incoming>,
    ) -> Result<Answered, Rejected> {
        // Of its caller, who began to wait before anything of this.
        let by = tokio::time::Instant::now() + deadline::of_admission(request.uri().query());
        match verb {
            Verb::Mutate => may_call(&client.admission, "admission")?,
            Verb::Other => {}
            _ => may_call(&client.extender, "the extender")?,
        }
        let door = match verb {
            Verb::Filter | Verb::Prioritize => &self.extender,
            Verb::Bind => &self.bind,
            Verb::Mutate => &self.admission,
            Verb::Preempt => {
                let words = "the preempt verb is not built: leave preemptVerb out of the extender's configuration";
                return Err(rejected(StatusCode::NOT_IMPLEMENTED, Outcome::NotBuilt, words));
            }
            Verb::Other => {
                let words =
                    "wattlane serves POST /extender/filter, /extender/prioritize, /extender/bind and /admission/mutate";
                return Err(rejected(StatusCode::NOT_FOUND, Outcome::NotFound, words));
            }
        };
        if request.method() != Method::POST {
            return Err(rejected(
                StatusCode::METHOD_NOT_ALLOWED,
                Outcome::BadRequest,
                "this path takes POST",
            ));
        }
        is_json(request.headers())?;
        // Last, since a path that is not known has the webhook configuration looked at.
        if matches!(verb, Verb::Mutate) {
            self.may_ask(&client.admission, request.uri().path(), by).await?;
        }
        // A bind sees to its own end: cut off in the middle it would leave something to undo. Admission has words of its
        // own for what was not decided in time.
        let within = match verb {
            Verb::Bind | Verb::Mutate => None,
            _ => Some(self.limits.decide),
        };
        let work = async {
            let body = body::read(request.into_body(), door.body, self.limits.body, &door.bodies)
                .await
                .map_err(|e| self.unread(e, door.body))?;
            let busy = seat.request();
            // Not before: who sends a body byte by byte keeps nobody out.
            let Ok(_permit) = door.requests.try_acquire() else {
                let words = "wattlane is doing as much of this as it may at one time: try again";
                return Err(rejected(StatusCode::SERVICE_UNAVAILABLE, Outcome::Shed, words));
            };
            let _tree = match verb {
                Verb::Mutate => Some(self.tree(&body, door).map_err(|e| self.unread(e, door.body))?),
                _ => None,
            };
            let service = &*self.service;
            let answer = match verb {
                Verb::Filter => verbs::filter(service, &body).await,
                Verb::Prioritize => verbs::prioritize(service, &body).await,
                Verb::Bind => verbs::bind(service, &body).await,
                _ => verbs::mutate(service, &self.metrics, &body, by).await,
            };
            drop(busy);
            answer
        };
        let Some(within) = within else { return work.await };
        tokio::time::timeout(within, work).await.unwrap_or_else(|_| {
            let words = format!("no answer within the {} ms there were for it", within.as_millis());
            Err(rejected(StatusCode::SERVICE_UNAVAILABLE, Outcome::Timeout, words))
        })
    }

    /// Admission is for who shows a certificate with a name for it, where there are such names; else for who knows the path.
    async fn may_ask(&self, pass: &Pass, path: &str, by: tokio::time::Instant) -> Result<(), Rejected> {
        if *pass == Pass::Known || self.paths.takes(ending(path).unwrap_or_default(), by).await {
            return Ok(());
        }
        let words = "admission is asked at the path in the webhook configuration, which ends in a token of wattlane's, and \
                     this is not it";
        Err(rejected(StatusCode::FORBIDDEN, Outcome::Forbidden, words))
    }

    /// Room for the tree of values that a review is read into: many times its bytes, where they are empty maps.
    fn tree(&self, body: &[u8], door: &Door) -> Result<Share, BodyError> {
        let bytes = wire::tree_bytes(body);
        if bytes > self.limits.admission_tree_bytes {
            return Err(BodyError::TooHeavy(bytes));
        }
        Share::take(&door.bodies, bytes).ok_or(BodyError::NoRoom)
    }

    fn unread(&self, error: BodyError, limit: usize) -> Rejected {
        match error {
            BodyError::TooLarge => rejected(
                StatusCode::PAYLOAD_TOO_LARGE,
                Outcome::TooLarge,
                format!("the body is larger than the {limit} bytes this path takes"),
            ),
            BodyError::TooHeavy(bytes) => rejected(
                StatusCode::PAYLOAD_TOO_LARGE,
                Outcome::TooLarge,
                format!("read, the body would take about {} MiB: no pod does", bytes >> 20),
            ),
            BodyError::TooSlow => rejected(
                StatusCode::REQUEST_TIMEOUT,
                Outcome::Timeout,
                format!("the body did not arrive within {} s", self.limits.body.as_secs()),
            ),
            BodyError::NoRoom => rejected(
                StatusCode::SERVICE_UNAVAILABLE,
                Outcome::Shed,
                "no room for the body now: try again",
            ),
            BodyError::Broken(why) => rejected(
                StatusCode::BAD_REQUEST,
                Outcome::BadRequest,
                format!("the body broke off: {why}"),
            ),
        }
    }
}

fn verb_of(path: &str) -> Verb {
    match path {
        "/extender/filter" => Verb::Filter,
        "/extender/prioritize" => Verb::Prioritize,
        "/extender/bind" => Verb::Bind,
        "/extender/preempt" => Verb::Preempt,
        _ if ending(path).is_some() => Verb::Mutate,
        _ => Verb::Other,
    }
}

fn may_call(pass: &Pass, door: &str) -> Result<(), Rejected> {
    let words = match pass {
        Pass::Open | Pass::Known => return Ok(()),
        Pass::Missing => format!(
            "{door} wants a client certificate of its client CA: tlsConfig.certFile and keyFile of the extender in \
             kube-scheduler's configuration, or the kubeconfig of kube-apiserver's AdmissionConfiguration"
        ),
        Pass::Stranger(name) => {
            format!("the client certificate of {name:?} may not call {door}: its name is not among those allowed")
        }
        Pass::Unfit(why) => format!("{door}: the client certificate {why}"),
    };
    Err(rejected(StatusCode::FORBIDDEN, Outcome::Forbidden, words))
}

/// Callers of ours say that they send JSON. One that says something else is not one of them: a browser, say, which
/// sends forms across sites without asking.
fn is_json(headers: &http::HeaderMap) -> Result<(), Rejected> {
    let Some(given) = headers.get(CONTENT_TYPE) else {
        return Ok(());
    };
    let kind = given
        .to_str()
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default()
        .trim();
    if kind.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let words = "this path takes application/json";
    Err(rejected(StatusCode::UNSUPPORTED_MEDIA_TYPE, Outcome::BadRequest, words))
}

/// Counts the request when it ends, however it ends.
struct Record<'a> {
    metrics: &'a Metrics,
    verb: Verb,
    begun: Instant,
    outcome: Outcome,
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        self.metrics.request(self.verb, self.outcome, self.begun.elapsed());
    }
}

fn json(body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn words(status: StatusCode, words: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(format!("{words}\n").into()));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
