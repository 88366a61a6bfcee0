//! The meaning of each path: decode the body, ask the service, encode the answer, say how it ended.

use http::StatusCode;
use tokio::time::Instant;

use super::apart::apart;
use super::route::{Rejected, rejected};
use super::{BindFailure, Failure, Service};
use crate::admission::Skip;
use crate::metrics::{Admitted, Metrics, Outcome};
use crate::wire::{AdmissionAnswer, AdmissionRequest, BindArgs, ExtenderArgs, WireError, extender};

/// A 200 in the protocol of its path. Everything else is a line of words.
pub(super) struct Answered {
    pub(super) outcome: Outcome,
    pub(super) body: Vec<u8>,
}

const LATE: &str = "wattlane could not finish in the time the API server gives its webhooks, most likely because the API is slow to take the pod's claim templates; try again";

type Answer = Result<Answered, Rejected>;

fn answered(outcome: Outcome, body: Vec<u8>) -> Answer {
    Ok(Answered { outcome, body })
}

/// kube-scheduler reads only that the status is not 200 and tries the pod again with backoff; people read the words.
fn failed(failure: Failure) -> Answer {
    Err(match failure {
        Failure::BadRequest(words) => rejected(StatusCode::BAD_REQUEST, Outcome::BadRequest, words),
        Failure::NotReady(words) => rejected(StatusCode::SERVICE_UNAVAILABLE, Outcome::NotReady, words),
        Failure::Error(words) => rejected(StatusCode::INTERNAL_SERVER_ERROR, Outcome::Error, words),
    })
}

fn unreadable(error: WireError) -> Answer {
    failed(Failure::BadRequest(error.0))
}

pub(super) async fn filter(service: &impl Service, body: &[u8]) -> Answer {
    let args = match apart(body.len(), || ExtenderArgs::parse(body)) {
        Ok(args) => args,
        Err(e) => return unreadable(e),
    };
    match service.filter(&args).await {
        Ok(verdicts) => {
            let outcome = if verdicts.fit() == 0 && !args.names.is_empty() {
                Outcome::Refused
            } else {
                Outcome::Ok
            };
            if outcome == Outcome::Refused {
                let example = verdicts.iter().flatten().next().map_or("", |words| words);
                tracing::info!(nodes = args.names.len(), example, "no node can take the pod");
            }
            answered(outcome, apart(body.len(), || extender::filter_result(&args, &verdicts)))
        }
        Err(failure) => failed(failure),
    }
}

pub(super) async fn prioritize(service: &impl Service, body: &[u8]) -> Answer {
    let args = match apart(body.len(), || ExtenderArgs::parse(body)) {
        Ok(args) => args,
        Err(e) => return unreadable(e),
    };
    match service.prioritize(&args).await {
        Ok(scores) => {
            let body = apart(body.len(), || extender::prioritize_result(&args, &scores));
            answered(Outcome::Ok, body)
        }
        Err(failure) => failed(failure),
    }
}

pub(super) async fn bind(service: &impl Service, body: &[u8]) -> Answer {
    // Errors of a bind go into the protocol: their words reach the pod's event.
    let args = match BindArgs::parse(body) {
        Ok(args) => args,
        Err(e) => return answered(Outcome::BadRequest, extender::bind_result(Some(&e.0))),
    };
    let span = tracing::Span::current();
    span.record(
        "pod",
        tracing::field::display(format_args!("{}/{}", args.namespace, args.name)),
    );
    span.record("uid", &args.uid);
    span.record("node", &args.node);
    match service.bind(&args).await {
        Ok(()) => answered(Outcome::Ok, extender::bind_result(None)),
        Err(failure) => {
            let outcome = match failure {
                BindFailure { elsewhere: true, .. } => Outcome::NotLeader,
                BindFailure { refusal: true, .. } => Outcome::Refused,
                _ => Outcome::Error,
            };
            answered(outcome, extender::bind_result(Some(&failure.message)))
        }
    }
}

/// `by`: the caller has gone a moment later. What is not decided then is refused: a pod that is let through untreated
/// where the webhook is ignored on failure would go to the default scheduler, and a refused one comes again.
pub(super) async fn mutate(service: &impl Service, metrics: &Metrics, body: &[u8], by: Instant) -> Answer {
    let request = match AdmissionRequest::parse(body) {
        Ok(request) => request,
        Err(e) => return unreadable(e),
    };
    let span = tracing::Span::current();
    span.record(
        "pod",
        tracing::field::display(format_args!("{}/{}", request.namespace, request.name)),
    );
    let uid = request.uid.clone();
    let (answer, admitted) = if request.creates_pod() {
        let answer = tokio::time::timeout_at(by, service.admit(request)).await;
        let answer = answer.unwrap_or_else(|_| AdmissionAnswer::deny(504, LATE));
        let admitted = match &answer {
            AdmissionAnswer { allowed: false, .. } => Admitted::Denied,
            AdmissionAnswer { patch: Some(patch), .. } if !patch.0.is_empty() => Admitted::Patched,
            _ => Admitted::Unchanged,
        };
        (answer, admitted)
    } else {
        metrics.skipped(Skip::NotCreate.as_str());
        (AdmissionAnswer::allow(), Admitted::Skipped)
    };
    metrics.admission(admitted);
    let outcome = if answer.allowed { Outcome::Ok } else { Outcome::Refused };
    if let Some((code, message)) = &answer.status {
        tracing::info!(code, message, "pod refused at admission");
    }
    answered(outcome, answer.encode(&uid))
}
