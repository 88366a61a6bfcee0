//! Kubernetes JSON to the model and back, in one place. Owns the versions of resource.k8s.io; knows no
//! client, no file and no clock.
//!
//! An object either converts, or is an error of that object alone. Parts of a spec that this code does not
//! know do not fail: they end up in `unsupported`, so that what the object already holds keeps counting and
//! the refusal can say why.

mod allocation;
mod claim;
mod conditions;
mod node;
mod object;
mod pod;
mod read;
mod slice;
mod taint_rule;
#[cfg(test)]
mod tests;

pub use allocation::{allocation_json, consumer_json, result_json};
pub use claim::{MANAGED_BY, TEMPLATE_LAST_USED, claim, device_class, template};
pub use node::{namespace, node, node_of_text, runtime_class};
pub use object::{Key, Kind, Object, Unreadable};
pub use pod::{is_read, pod, pod_of_text};
pub use read::Text;
pub use slice::slice;
pub use taint_rule::taint_rule;

use serde_json::Value;

/// An object that cannot be read: which, where in it, and what is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvertError {
    /// `Kind namespace/name`, as far as known; may be empty.
    pub object: String,
    /// Path from the object's root, like `spec.devices[3].name`; empty for the object itself.
    pub path: String,
    pub message: String,
}

impl ConvertError {
    fn at(path: &str, message: impl Into<String>) -> Self {
        Self {
            object: String::new(),
            path: path.to_owned(),
            message: message.into(),
        }
    }

    /// The words without the object's name, for a text that names it already.
    pub fn without_object(&self) -> String {
        if self.path.is_empty() {
            self.message.clone()
        } else {
            format!("{}: {}", self.path, self.message)
        }
    }
}

impl std::fmt::Display for ConvertError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.object.is_empty() {
            write!(f, "{}: ", self.object)?;
        }
        f.write_str(&self.without_object())
    }
}

impl std::error::Error for ConvertError {}

/// The object in the model; None for a kind that is not kept.
pub fn object(value: &Value) -> Result<Option<Object>, ConvertError> {
    let Some(kind) = kind(value) else { return Ok(None) };
    version(value, kind)
        .and_then(|()| of_kind(kind, value))
        .map(Some)
        .map_err(|e| ConvertError {
            object: describe(kind, value),
            ..e
        })
}

/// An object whose kind is known from where it was read (watch events carry no kind of their own).
pub fn of_kind(kind: Kind, value: &Value) -> Result<Object, ConvertError> {
    Ok(match kind {
        Kind::Node => Object::Node(node(value)?),
        Kind::Pod => Object::Pod(pod(value)?),
        Kind::Namespace => Object::Namespace(namespace(value)?),
        Kind::Slice => Object::Slice(slice(value)?),
        Kind::Claim => Object::Claim(claim(value)?),
        Kind::Template => Object::Template(template(value)?),
        Kind::Class => Object::Class(device_class(value)?),
        Kind::RuntimeClass => Object::RuntimeClass(runtime_class(value)?),
        Kind::TaintRule => Object::TaintRule(taint_rule(value)?),
    })
}

/// The kind by group and kind, whatever the version.
pub fn kind(value: &Value) -> Option<Kind> {
    let (group, _) = group_version(value);
    let name = value.get("kind")?.as_str()?;
    Kind::ALL.into_iter().find(|k| k.as_str() == name && k.group() == group)
}

/// Where an object of the kind is kept, from its metadata alone: for objects that do not convert.
pub fn key(kind: Kind, value: &Value) -> Option<Key> {
    let meta = value.get("metadata")?;
    let name = meta.get("name")?.as_str().filter(|n| !n.is_empty())?;
    let namespace = meta.get("namespace").and_then(Value::as_str).filter(|n| !n.is_empty());
    Some(Key::new(
        if kind.namespaced() {
            namespace.unwrap_or("default")
        } else {
            ""
        },
        name,
    ))
}

fn group_version(value: &Value) -> (&str, &str) {
    let text = value.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    text.split_once('/').unwrap_or(("", text))
}

fn version(value: &Value, kind: Kind) -> Result<(), ConvertError> {
    let (group, version) = group_version(value);
    let known: &[&str] = match group {
        // A kind whose API is not at v1 yet.
        "resource.k8s.io" if kind == Kind::TaintRule => &["v1", "v1beta2", "v1alpha3"],
        "resource.k8s.io" => &["v1", "v1beta2", "v1beta1"],
        "node.k8s.io" => &["v1", "v1beta1"],
        _ => &["v1"],
    };
    if known.contains(&version) {
        return Ok(());
    }
    Err(ConvertError::at(
        "apiVersion",
        format!(
            "{group}{}{version} is not read (known: {}); write the object again with \
             `kubectl get {}.v1.{group} -o yaml` from a cluster that serves v1",
            if group.is_empty() { "" } else { "/" },
            known.join(", "),
            match kind {
                Kind::Class => "deviceclasses".to_owned(),
                other => format!("{}s", other.as_str().to_lowercase()),
            },
        ),
    ))
}

/// `Kind namespace/name`, as far as known.
pub fn describe(kind: Kind, value: &Value) -> String {
    match key(kind, value) {
        Some(key) if kind.namespaced() => format!("{} {key}", kind.as_str()),
        Some(key) => format!("{} {}", kind.as_str(), key.name),
        None => kind.as_str().to_owned(),
    }
}
