//! What the server asks of whoever decides.

use std::future::Future;

use crate::wire::{AdmissionAnswer, AdmissionRequest, BindArgs, ExtenderArgs, Verdicts};

/// No answer could be given to filter or prioritize. The scheduler tries the pod again with backoff.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The caller's fault (400).
    BadRequest(String),
    /// Not yet (503).
    NotReady(String),
    /// Ours (500).
    Error(String),
}

/// A refused or failed bind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindFailure {
    pub message: String,
    /// A "no" that was to be expected now and then, not a fault.
    pub refusal: bool,
    /// Another replica binds: the caller's next connection may lead there, this one never will.
    pub elsewhere: bool,
}

/// The decisions behind the routes. A panic in one fails its request only.
pub trait Service: Send + Sync + 'static {
    /// Aligned with the names.
    fn filter(&self, args: &ExtenderArgs<'_>) -> impl Future<Output = Result<Verdicts, Failure>> + Send;

    /// Scores 0 to 10, aligned with the names.
    fn prioritize(&self, args: &ExtenderArgs<'_>) -> impl Future<Output = Result<Vec<u8>, Failure>> + Send;

    /// The future may be dropped when the caller hangs up; what must not stop half way is the service's own task.
    fn bind(&self, args: &BindArgs) -> impl Future<Output = Result<(), BindFailure>> + Send;

    /// Only creations of pods come here; everything else is allowed before.
    fn admit(&self, request: AdmissionRequest) -> impl Future<Output = AdmissionAnswer> + Send;
}
