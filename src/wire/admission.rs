//! AdmissionReview (admission.k8s.io/v1): the request as read, the answer as written. Strict on what kind of
//! document it is, tolerant of everything else in it. Which pods are changed, and how, is `admission`'s business.

use base64::Engine;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::WireError;

/// The API server cuts longer warnings, and says so in its log.
const WARNING_CHARS: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
    /// Newer than this code: left alone.
    Other(String),
}

/// `request` of a review, with what admission of pods reads of it.
#[derive(Clone, Debug)]
pub struct AdmissionRequest {
    /// Echoed in the answer.
    pub uid: String,
    pub operation: Operation,
    /// Group and resource of `request.resource` (the API server converts to what the rule asked for).
    pub group: String,
    pub resource: String,
    /// Empty for the object itself.
    pub sub_resource: String,
    pub namespace: String,
    /// Empty when the API server is going to make one up from `generateName`.
    pub name: String,
    pub dry_run: bool,
    /// The object as it would be stored; null on DELETE.
    pub object: Value,
}

impl AdmissionRequest {
    /// A body that is no AdmissionReview v1 with a request is an error in words.
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        let review: Review =
            serde_json::from_slice(body).map_err(|e| WireError(format!("not an AdmissionReview: {e}")))?;
        if review.kind != "AdmissionReview" || review.api_version != "admission.k8s.io/v1" {
            return Err(WireError(format!(
                "expected kind AdmissionReview of admission.k8s.io/v1, got kind {:?} of {:?}",
                review.kind, review.api_version
            )));
        }
        let request = review
            .request
            .ok_or_else(|| WireError("AdmissionReview: no request in it".into()))?;
        if request.uid.is_empty() {
            return Err(WireError("AdmissionReview: request.uid is missing or empty".into()));
        }
        let resource = request.resource.unwrap_or_default();
        Ok(Self {
            uid: request.uid,
            operation: match request.operation.as_str() {
                "CREATE" => Operation::Create,
                "UPDATE" => Operation::Update,
                "DELETE" => Operation::Delete,
                "CONNECT" => Operation::Connect,
                _ => Operation::Other(request.operation),
            },
            group: resource.group.unwrap_or_default(),
            resource: resource.resource.unwrap_or_default(),
            sub_resource: request.sub_resource.unwrap_or_default(),
            namespace: request.namespace.unwrap_or_default(),
            name: request.name.unwrap_or_default(),
            dry_run: request.dry_run.unwrap_or_default(),
            object: request.object.unwrap_or_default(),
        })
    }

    /// Whether this is the creation of a pod: the only thing that is looked at any further.
    pub fn creates_pod(&self) -> bool {
        self.operation == Operation::Create
            && self.group.is_empty()
            && self.resource == "pods"
            && self.sub_resource.is_empty()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    api_version: String,
    request: Option<RawRequest>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawRequest {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    operation: String,
    resource: Option<Resource>,
    sub_resource: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    dry_run: Option<bool>,
    object: Option<Value>,
}

#[derive(Deserialize, Default)]
struct Resource {
    group: Option<String>,
    resource: Option<String>,
}

/// What is answered. Allowed without a patch: the object is left alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdmissionAnswer {
    pub allowed: bool,
    /// Operations of a JSON patch (RFC 6902); none or empty: no patch.
    pub patch: Option<json_patch::Patch>,
    /// Shown to whoever made the request, allowed or not. Cut to what the API takes.
    pub warnings: Vec<String>,
    /// With `allowed: false`: HTTP code and words for the user.
    pub status: Option<(u16, String)>,
}

impl AdmissionAnswer {
    pub fn allow() -> Self {
        Self {
            allowed: true,
            ..Self::default()
        }
    }

    /// `code` is the HTTP status the user's request ends with: 403 for "may not", 422 for "cannot be".
    pub fn deny(code: u16, message: impl Into<String>) -> Self {
        Self {
            status: Some((code, message.into())),
            ..Self::default()
        }
    }

    /// Writes the whole review.
    pub fn encode(&self, uid: &str) -> Vec<u8> {
        let patch = self.patch.as_ref().filter(|p| !p.0.is_empty() && self.allowed);
        let patch = patch.map(|p| {
            // A patch is a list of strings and JSON values: there is nothing in it that could fail to serialise.
            let json = serde_json::to_vec(p).unwrap_or_else(|_| b"[]".to_vec());
            base64::engine::general_purpose::STANDARD.encode(json)
        });
        let review = ReviewOut {
            kind: "AdmissionReview",
            api_version: "admission.k8s.io/v1",
            response: Response {
                uid,
                allowed: self.allowed,
                patch_type: patch.as_ref().map(|_| "JSONPatch"),
                patch,
                warnings: self.warnings.iter().map(|w| cut(w)).collect(),
                status: self
                    .status
                    .as_ref()
                    .map(|(code, message)| Status { code: *code, message }),
            },
        };
        serde_json::to_vec(&review).unwrap_or_default()
    }
}

/// The first characters of a warning, whole ones, without the line breaks a header cannot carry.
fn cut(warning: &str) -> String {
    let mut text: String = warning
        .chars()
        .take(WARNING_CHARS)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if warning.chars().nth(WARNING_CHARS).is_some() {
        text.pop();
        text.push('…');
    }
    text
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewOut<'a> {
    kind: &'static str,
    api_version: &'static str,
    response: Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status<'a>>,
}

#[derive(Serialize)]
struct Status<'a> {
    code: u16,
    message: &'a str,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn review(change: impl FnOnce(&mut Value)) -> Vec<u8> {
        let mut review = json!({
            "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
            "request": {
                "uid": "u-1", "operation": "CREATE", "namespace": "ns", "dryRun": true, "later": [1],
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "userInfo": {"username": "someone", "groups": []},
                "object": {"kind": "Pod"}, "oldObject": null, "options": null,
            }
        });
        change(&mut review);
        review.to_string().into_bytes()
    }

    #[test]
    fn reads_a_pod_creation() {
        let request = AdmissionRequest::parse(&review(|_| {})).expect("a review");
        assert!(request.creates_pod() && request.dry_run);
        assert_eq!(request.uid, "u-1");
        assert_eq!(request.object, json!({"kind": "Pod"}));
    }

    #[test]
    fn other_operations_and_resources_are_not_pod_creations() {
        for (pointer, value) in [
            ("/request/operation", json!("UPDATE")),
            ("/request/operation", json!("DELETE")),
            ("/request/operation", json!("CONNECT")),
            ("/request/operation", json!("INVENTED")),
            ("/request/resource/resource", json!("deployments")),
            ("/request/resource/group", json!("apps")),
        ] {
            let body = review(|r| *r.pointer_mut(pointer).expect("there") = value.clone());
            let request = AdmissionRequest::parse(&body).expect("a review");
            assert!(!request.creates_pod(), "{pointer}={value}");
        }
        let body = review(|r| r["request"]["subResource"] = json!("ephemeralcontainers"));
        assert!(!AdmissionRequest::parse(&body).expect("a review").creates_pod());
    }

    #[test]
    fn what_is_no_review_is_refused_with_words() {
        for (body, word) in [
            (b"nonsense".to_vec(), "not an AdmissionReview"),
            (b"{}".to_vec(), "expected kind"),
            (
                review(|r| r["apiVersion"] = json!("admission.k8s.io/v1beta1")),
                "v1beta1",
            ),
            (review(|r| r["kind"] = json!("Pod")), "Pod"),
            (review(|r| r["request"] = Value::Null), "no request"),
            (review(|r| r["request"]["uid"] = json!("")), "uid"),
        ] {
            let error = AdmissionRequest::parse(&body).expect_err(word);
            assert!(error.0.contains(word), "{error}");
        }
    }

    #[test]
    fn writes_exactly_what_the_api_server_reads() {
        let patch = serde_json::from_value(json!([{"op": "add", "path": "/a", "value": 1}])).expect("a patch");
        let answer = AdmissionAnswer {
            patch: Some(patch),
            warnings: vec!["w".repeat(300), "two\nlines".into()],
            ..AdmissionAnswer::allow()
        };
        let read: Value = serde_json::from_slice(&answer.encode("u-1")).expect("JSON");
        assert_eq!(
            read,
            json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": {
                "uid": "u-1", "allowed": true, "patchType": "JSONPatch",
                "patch": "W3sib3AiOiJhZGQiLCJwYXRoIjoiL2EiLCJ2YWx1ZSI6MX1d",
                "warnings": [format!("{}…", "w".repeat(255)), "two lines"]}})
        );
        assert_eq!(
            String::from_utf8(AdmissionAnswer::deny(422, "no \"such\" class").encode("u")).as_deref(),
            Ok(concat!(
                r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":"#,
                r#"{"uid":"u","allowed":false,"status":{"code":422,"message":"no \"such\" class"}}}"#
            ))
        );
        let empty = AdmissionAnswer {
            patch: Some(json_patch::Patch(vec![])),
            ..AdmissionAnswer::allow()
        };
        let read: Value = serde_json::from_slice(&empty.encode("u")).expect("JSON");
        assert_eq!(read["response"], json!({"uid": "u", "allowed": true}));
    }
}
