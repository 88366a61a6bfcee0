//! One call to the API server: deadline, 429, and what the answer means for a writer. Knows no kinds.
//!
//! Errors end up in pod events and in what `kubectl create` prints, so they name the object; the URL is in the log only.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{Method, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};

use super::lenient;
use super::paths::Target;
use crate::cluster::{Call, CallStatus, WriteError, deadline};

/// Largest answer read, in bytes. The API server itself takes no object above 3 MiB.
const MAX_ANSWER: usize = 16 << 20;
/// Wait after a 429 without Retry-After. API priority and fairness says 1 s.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

pub(super) const JSON: &str = "application/json";
pub(super) const MERGE_PATCH: &str = "application/merge-patch+json";
/// For lists with a merge key: other entries stay as they are.
pub(super) const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
pub(super) const JSON_PATCH: &str = "application/json-patch+json";
/// JSON is YAML.
pub(super) const APPLY_PATCH: &str = "application/apply-patch+yaml";

#[derive(Clone)]
pub(super) struct Api {
    client: Client,
    /// For one call, waits after 429 included.
    deadline: Duration,
    /// What the API server says of a call is not logged here.
    discreet: bool,
    told: Arc<OnceLock<Arc<dyn CallStatus>>>,
}

/// What kind of call this is.
fn kind(method: &Method, path: &str) -> Call {
    match method {
        &Method::GET => Call::Read,
        &Method::PUT | &Method::PATCH if path.ends_with("/status") => Call::Status,
        &Method::PUT | &Method::PATCH if path.contains("/resourceclaims/") => Call::Claim,
        &Method::POST if path.ends_with("/binding") => Call::Binding,
        _ => Call::Other,
    }
}

impl Api {
    pub(super) fn new(client: Client, deadline: Duration) -> Self {
        Self {
            client,
            deadline,
            discreet: false,
            told: Arc::default(),
        }
    }

    pub(super) fn tell(&self, to: Arc<dyn CallStatus>) {
        // Said at the start, once.
        let _ = self.told.set(to);
    }

    /// For what no log may have: the API server quotes what it does not take. The error still says it, to who knows what in
    /// it is secret.
    pub(super) fn discreet(&self) -> Self {
        Self {
            discreet: true,
            ..self.clone()
        }
    }

    pub(super) async fn get(&self, target: &Target) -> Result<Value, WriteError> {
        self.call(Method::GET, target, JSON, None).await
    }

    pub(super) async fn put(&self, target: &Target, body: &Value) -> Result<Value, WriteError> {
        self.call(Method::PUT, target, JSON, Some(body)).await
    }

    pub(super) async fn post(&self, target: &Target, body: &Value) -> Result<Value, WriteError> {
        self.call(Method::POST, target, JSON, Some(body)).await
    }

    pub(super) async fn patch(&self, target: &Target, content: &str, body: &Value) -> Result<Value, WriteError> {
        self.call(Method::PATCH, target, content, Some(body)).await
    }

    pub(super) async fn delete(&self, target: &Target, options: &Value) -> Result<(), WriteError> {
        self.call(Method::DELETE, target, JSON, Some(options)).await.map(drop)
    }

    async fn call(
        &self,
        method: Method,
        target: &Target,
        content: &str,
        body: Option<&Value>,
    ) -> Result<Value, WriteError> {
        let begun = Instant::now();
        let called = self.answered(&method, &target.path, content, body).await;
        if let Some(told) = self.told.get() {
            told.called(kind(&method, &target.path), begun.elapsed());
        }
        called.map_err(|error| {
            let said = match self.discreet {
                true => "not shown here: it may quote a secret".to_owned(),
                false => error.to_string(),
            };
            // A 404 or a conflict is everyday; the others are looked for in the log.
            match &error {
                WriteError::NotFound(_) | WriteError::Conflict(_) => {
                    tracing::debug!(%method, path = target.path, error = said, "call to the Kubernetes API");
                }
                WriteError::Refused(_) | WriteError::Unknown(_) => {
                    tracing::warn!(%method, path = target.path, error = said, "call to the Kubernetes API");
                }
            }
            let doing = match method {
                Method::GET => "reading",
                Method::DELETE => "deleting",
                _ => "writing",
            };
            prefixed(error, &format!("{doing} {}", target.what))
        })
    }

    async fn answered(
        &self,
        method: &Method,
        path: &str,
        content: &str,
        body: Option<&Value>,
    ) -> Result<Value, WriteError> {
        let begun = Instant::now();
        let own = begun + self.deadline;
        let limit = deadline::limit().filter(|_| method != Method::GET);
        let until = limit.map_or(own, |limit| limit.min(own));
        let bytes = body.map_or_else(Vec::new, |b| b.to_string().into_bytes());
        loop {
            // A process that was stopped (SIGSTOP, a paused machine) goes on with what was ready to run before its timers
            // have fired, and the server counts its time-out only from when it hears of the write.
            if limit.is_some_and(|limit| Instant::now() >= limit) {
                let why = "the time for the write had run out before it was sent";
                return Err(WriteError::Unknown(why.to_owned()));
            }
            let request = http::Request::builder()
                .method(method)
                .uri(limited(path, limit.map(|_| until)))
                .header(header::ACCEPT, JSON)
                .header(header::CONTENT_TYPE, content)
                .body(Body::from(bytes.clone()))
                .map_err(|e| WriteError::Refused(e.to_string()))?;
            let (status, wait, answer) = match timeout_at(until, self.once(request)).await {
                Err(_) => {
                    let seconds = (until - begun).as_secs();
                    let why = format!("no answer from the Kubernetes API within {seconds} s");
                    return Err(WriteError::Unknown(why));
                }
                Ok(Err(e)) => return Err(WriteError::Unknown(format!("no answer from the Kubernetes API: {e}"))),
                Ok(Ok(answer)) => answer,
            };
            if status == StatusCode::TOO_MANY_REQUESTS {
                // Nothing was written: the API server turns these away before it looks at them.
                let wait = wait.unwrap_or(DEFAULT_RETRY_AFTER);
                if wait < until.saturating_duration_since(Instant::now()) {
                    sleep(wait).await;
                    continue;
                }
            }
            return meaning(status, &answer);
        }
    }

    async fn once(&self, request: http::Request<Body>) -> Result<(StatusCode, Option<Duration>, bytes::Bytes), String> {
        let response = self.client.send(request).await.map_err(|e| chain(&e))?;
        let status = response.status();
        let wait = response
            .headers()
            .get(header::RETRY_AFTER)
            .and_then(|v| v.to_str().ok()?.trim().parse().ok())
            .map(Duration::from_secs);
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
        let body = body.map_err(|e| format!("the answer broke off: {e}"))?;
        Ok((status, wait, body.to_bytes()))
    }
}

/// A write that may not be executed later than that: the API server ends a request at its `timeout`, counted from when
/// it begins to read it.
fn limited(path: &str, until: Option<Instant>) -> String {
    let Some(until) = until else { return path.to_owned() };
    let mark = if path.contains('?') { '&' } else { '?' };
    // A zero would mean the server's own limit.
    let left = until.saturating_duration_since(Instant::now()).as_millis().max(1);
    format!("{path}{mark}timeout={left}ms")
}

/// What an answer says about the write.
fn meaning(status: StatusCode, answer: &[u8]) -> Result<Value, WriteError> {
    if status.is_success() {
        // Written, but the caller must know what: it has to be read back.
        return lenient::from_slice(answer)
            .map_err(|e| WriteError::Unknown(format!("the answer ({status}) is not JSON: {e}")));
    }
    let message = message(status, answer);
    Err(match status {
        StatusCode::CONFLICT => WriteError::Conflict(message),
        StatusCode::NOT_FOUND => WriteError::NotFound(message),
        // A time-out on the way says nothing about what the API server did.
        StatusCode::REQUEST_TIMEOUT => WriteError::Unknown(message),
        s if s.is_client_error() => WriteError::Refused(message),
        _ => WriteError::Unknown(message),
    })
}

/// The API's own message of a `Status` body, else the beginning of what came.
fn message(status: StatusCode, answer: &[u8]) -> String {
    let parsed: Option<Value> = serde_json::from_slice(answer).ok();
    match parsed.as_ref().and_then(|v| v.get("message")?.as_str()) {
        Some(text) if !text.is_empty() => text.to_owned(),
        _ => {
            let text: String = String::from_utf8_lossy(answer).chars().take(200).collect();
            format!("{status} {}", text.trim()).trim_end().to_owned()
        }
    }
}

fn prefixed(error: WriteError, what: &str) -> WriteError {
    let with = |m: String| format!("{what}: {m}");
    match error {
        WriteError::Conflict(m) => WriteError::Conflict(with(m)),
        WriteError::NotFound(m) => WriteError::NotFound(with(m)),
        WriteError::Refused(m) => WriteError::Refused(with(m)),
        WriteError::Unknown(m) => WriteError::Unknown(with(m)),
    }
}

/// An error with its causes: the outermost text of a client error is "client error (Connect)".
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    // Chains are short; the bound is against one that loops.
    for _ in 0..8 {
        let Some(cause) = next else { break };
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    /// A client whose server gives the listed answers in turn; `None` never answers.
    fn api(answers: Vec<Option<(u16, Option<&'static str>, &'static str)>>) -> (Api, Arc<Mutex<usize>>) {
        let calls = Arc::new(Mutex::new(0));
        let counted = calls.clone();
        let service = tower::service_fn(move |_request: http::Request<Body>| {
            let at = {
                let mut n = counted.lock().expect("not poisoned");
                *n += 1;
                *n - 1
            };
            let answer = answers.get(at).copied().unwrap_or(Some((500, None, "asked too often")));
            async move {
                let Some((status, retry, body)) = answer else {
                    return std::future::pending::<Result<http::Response<Body>, Infallible>>().await;
                };
                let mut response = http::Response::builder().status(status);
                if let Some(seconds) = retry {
                    response = response.header(header::RETRY_AFTER, seconds);
                }
                Ok(response
                    .body(Body::from(body.as_bytes().to_vec()))
                    .expect("a legal response"))
            }
        });
        (
            Api::new(Client::new(service, "default"), Duration::from_secs(10)),
            calls,
        )
    }

    async fn put(
        answers: Vec<Option<(u16, Option<&'static str>, &'static str)>>,
    ) -> (Result<Value, WriteError>, usize) {
        let (api, calls) = api(answers);
        let target = Target {
            path: "/x".to_owned(),
            what: "the X".to_owned(),
        };
        let result = api.put(&target, &Value::Null).await;
        let calls = *calls.lock().expect("not poisoned");
        (result, calls)
    }

    #[tokio::test(start_paused = true)]
    async fn each_status_means_one_thing() {
        const SAID: &str = r#"{"kind":"Status","message":"said so"}"#;
        let m = || "writing the X: said so".to_owned();
        for (status, expected) in [
            (409, WriteError::Conflict(m())),
            (404, WriteError::NotFound(m())),
            (400, WriteError::Refused(m())),
            (403, WriteError::Refused(m())),
            (422, WriteError::Refused(m())),
            (408, WriteError::Unknown(m())),
            (500, WriteError::Unknown(m())),
            (503, WriteError::Unknown(m())),
            (504, WriteError::Unknown(m())),
        ] {
            assert_eq!(
                put(vec![Some((status, None, SAID))]).await,
                (Err(expected), 1),
                "{status}"
            );
        }
        assert_eq!(
            put(vec![Some((201, None, r#"{"a":1}"#))]).await,
            (Ok(serde_json::json!({"a": 1})), 1)
        );
        assert!(matches!(
            put(vec![Some((200, None, "<html>"))]).await,
            (Err(WriteError::Unknown(_)), 1)
        ));
    }

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("not poisoned").extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_discreet_is_quoted_in_the_error_and_in_no_log() {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_writer(move || writer.clone())
            .finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        let target = Target {
            path: "/x".to_owned(),
            what: "the X".to_owned(),
        };
        for status in [422, 409, 404, 500] {
            for discreet in [false, true] {
                let (api, _) = api(vec![Some((status, None, r#"{"message":"Invalid value: s3cret"}"#))]);
                let api = if discreet { api.discreet() } else { api };
                log.0.lock().expect("not poisoned").clear();
                let error = api.patch(&target, JSON_PATCH, &Value::Null).await.expect_err("refused");
                assert!(error.to_string().contains("s3cret"));
                let said = String::from_utf8(log.0.lock().expect("not poisoned").clone()).expect("UTF-8");
                assert!(said.contains("call to the Kubernetes API"), "{status}");
                assert_eq!(said.contains("s3cret"), !discreet, "{status}: {said}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn too_many_requests_is_waited_out_as_long_as_the_server_says() {
        let start = Instant::now();
        let (result, calls) = put(vec![
            Some((429, Some("3"), "")),
            Some((429, None, "")),
            Some((200, None, "{}")),
        ])
        .await;
        assert_eq!((result, calls), (Ok(serde_json::json!({})), 3));
        assert_eq!(start.elapsed().as_secs(), 4);

        // The second is more seconds than a clock has.
        for long in ["60", "18446744073709551615"] {
            let (result, calls) = put(vec![Some((429, Some(long), "later"))]).await;
            assert!(
                matches!(result, Err(WriteError::Refused(_))),
                "nothing was written: {result:?}"
            );
            assert_eq!(calls, 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_limited_write_tells_the_server_its_limit() {
        let now = Instant::now();
        assert_eq!(limited("/x", None), "/x");
        assert_eq!(
            limited("/x", Some(now + Duration::from_millis(2500))),
            "/x?timeout=2500ms"
        );
        assert_eq!(limited("/x?a=b", Some(now)), "/x?a=b&timeout=1ms");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_whose_time_has_run_out_is_not_sent() {
        let until = Instant::now() + Duration::from_secs(3);
        let result = deadline::within(until, async {
            // All at once it is later, and no timer has fired yet.
            tokio::time::advance(Duration::from_secs(3)).await;
            let (result, calls) = put(vec![Some((200, None, "{}"))]).await;
            assert_eq!(calls, 0);
            result
        });
        assert!(matches!(result.await, Err(WriteError::Unknown(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_unknown_after_the_deadline() {
        let start = Instant::now();
        let (result, _) = put(vec![None]).await;
        assert!(matches!(result, Err(WriteError::Unknown(_))), "{result:?}");
        assert_eq!(start.elapsed().as_secs(), 10);
    }
}
