//! What happens to one request before and after the decision: path, method, caller, room, body; then `verbs`; and
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

use super::body::{self, BodyError, Room};
use super::tls::Client;
use super::verbs::{self, Answered};
use super::{Limits, Service};
use crate::metrics::{Metrics, Outcome, Verb};

pub(super) struct Router<S> {
    service: Arc<S>,
    metrics: Arc<Metrics>,
    limits: Limits,
    room: Arc<Room>,
    extender: Semaphore,
    bind: Semaphore,
    admission: Semaphore,
}

/// On a response: after it, the connection is closed as politely as its protocol can. kube-scheduler keeps connections
/// for as long as they work, and one to a replica that does not bind would work for ever.
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
    pub(super) fn new(service: Arc<S>, limits: &Limits, metrics: Arc<Metrics>) -> Self {
        Self {
            service,
            metrics,
            room: Room::new(limits.buffered_bytes),
            extender: Semaphore::new(limits.extender_requests),
            bind: Semaphore::new(limits.bind_requests),
            admission: Semaphore::new(limits.admission_requests),
            limits: limits.clone(),
        }
    }

    pub(super) async fn handle(&self, client: &Client, request: Request<Incoming>) -> Response<Full<Bytes>> {
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
        let work = self.answer(verb, client, request).instrument(span.clone());
        // State behind the service is atomics and swapped pointers: a panic leaves none of it half changed.
        let result = AssertUnwindSafe(work).catch_unwind().await;
        let _in = span.enter();
        let (status, outcome, mut response) = match result {
            Ok(Ok(Answered { outcome, body })) => (StatusCode::OK, outcome, json(body)),
            Ok(Err(no)) => {
                tracing::warn!(status = no.status.as_u16(), why = no.words, "request not taken");
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
        // What is left of a body we did not read must not be taken for the next request. HTTP/2 ends the stream.
        if outcome == Outcome::NotLeader {
            response.extensions_mut().insert(Leave);
        }
        if one && matches!(outcome, Outcome::TooLarge | Outcome::Timeout | Outcome::NotLeader) {
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

    async fn answer(&self, verb: Verb, client: &Client, request: Request<Incoming>) -> Result<Answered, Rejected> {
        if !matches!(verb, Verb::Mutate | Verb::Other) {
            may_call(client)?;
        }
        let (room, limit) = match verb {
            Verb::Filter | Verb::Prioritize => (&self.extender, self.limits.extender_bytes),
            Verb::Bind => (&self.bind, self.limits.bind_bytes),
            Verb::Mutate => (&self.admission, self.limits.admission_bytes),
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
        let Ok(_permit) = room.try_acquire() else {
            let words = "wattlane is doing as much of this as it may at one time: try again";
            return Err(rejected(StatusCode::SERVICE_UNAVAILABLE, Outcome::Shed, words));
        };
        let body = body::read(request.into_body(), limit, self.limits.body, &self.room)
            .await
            .map_err(|e| match e {
                BodyError::TooLarge => rejected(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    Outcome::TooLarge,
                    format!("the body is larger than the {limit} bytes this path takes"),
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
            })?;
        let service = &*self.service;
        match verb {
            Verb::Filter => verbs::filter(service, &body).await,
            Verb::Prioritize => verbs::prioritize(service, &body).await,
            Verb::Bind => verbs::bind(service, &body).await,
            _ => verbs::mutate(service, &self.metrics, &body).await,
        }
    }
}

fn verb_of(path: &str) -> Verb {
    match path {
        "/extender/filter" => Verb::Filter,
        "/extender/prioritize" => Verb::Prioritize,
        "/extender/bind" => Verb::Bind,
        "/extender/preempt" => Verb::Preempt,
        "/admission/mutate" => Verb::Mutate,
        _ => Verb::Other,
    }
}

fn may_call(client: &Client) -> Result<(), Rejected> {
    let words = match client {
        Client::Anyone | Client::Known => return Ok(()),
        Client::Missing => "the extender wants a client certificate of its client CA: set tlsConfig.certFile and keyFile of the extender in kube-scheduler's configuration".to_owned(),
        Client::Stranger(name) => format!("the client certificate of {name:?} may not call the extender: its name is not among those allowed"),
    };
    Err(rejected(StatusCode::FORBIDDEN, Outcome::Forbidden, words))
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
