//! Where the API serves each kind, and the URL paths of single objects. Nothing here talks to anybody.

use kube::core::ApiResource;

use crate::cluster::WriteError;
use crate::index::Kind;
use crate::model::NamespacedName;

/// Group, version and plural of a kind, written down instead of discovered: we read exactly these versions, and a
/// cluster that does not serve one is told so by name.
pub(super) fn resource(kind: Kind) -> ApiResource {
    let (group, version, kind, plural) = match kind {
        Kind::Node => ("", "v1", "Node", "nodes"),
        Kind::Pod => ("", "v1", "Pod", "pods"),
        Kind::Namespace => ("", "v1", "Namespace", "namespaces"),
        Kind::Slice => ("resource.k8s.io", "v1", "ResourceSlice", "resourceslices"),
        Kind::Claim => ("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims"),
        Kind::Template => (
            "resource.k8s.io",
            "v1",
            "ResourceClaimTemplate",
            "resourceclaimtemplates",
        ),
        Kind::Class => ("resource.k8s.io", "v1", "DeviceClass", "deviceclasses"),
        Kind::TaintRule => ("resource.k8s.io", "v1beta2", "DeviceTaintRule", "devicetaintrules"),
        Kind::RuntimeClass => ("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses"),
    };
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: if group.is_empty() {
            version.to_owned()
        } else {
            format!("{group}/{version}")
        },
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

/// The same kind in an older version, for what not every cluster serves at all. Newest first; empty: the kind must be
/// there.
pub(super) fn optional(kind: Kind) -> Vec<ApiResource> {
    if kind != Kind::TaintRule {
        return vec![];
    }
    let newest = resource(kind);
    let alpha = ApiResource {
        version: "v1alpha3".to_owned(),
        api_version: "resource.k8s.io/v1alpha3".to_owned(),
        ..newest.clone()
    };
    vec![newest, alpha]
}

/// What a call is about: its URL path for the API, and what stands there in the words of a pod's event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) path: String,
    /// `ResourceClaim team/llm-0-gpu`.
    pub(super) what: String,
}

impl Target {
    pub(super) fn status(&self) -> Self {
        self.part("status")
    }

    pub(super) fn binding(&self) -> Self {
        self.part("binding")
    }

    fn part(&self, part: &str) -> Self {
        Self {
            path: format!("{}/{part}", self.path),
            what: format!("the {part} of {}", self.what),
        }
    }

    pub(super) fn query(mut self, query: &str) -> Self {
        self.path = format!("{}?{query}", self.path);
        self
    }
}

pub(super) fn claim(key: &NamespacedName) -> Result<Target, WriteError> {
    object(Kind::Claim, key)
}

pub(super) fn template(key: &NamespacedName) -> Result<Target, WriteError> {
    object(Kind::Template, key)
}

pub(super) fn pod(key: &NamespacedName) -> Result<Target, WriteError> {
    object(Kind::Pod, key)
}

/// Nodes are in no namespace.
pub(super) fn node(name: &str) -> Result<Target, WriteError> {
    Ok(Target {
        path: format!("/api/v1/nodes/{}", segment(name)?),
        what: format!("{} {name}", Kind::Node.as_str()),
    })
}

pub(super) fn lease(key: &NamespacedName) -> Result<Target, WriteError> {
    let target = leases(&key.namespace)?;
    Ok(Target {
        path: format!("{}/{}", target.path, segment(&key.name)?),
        what: format!("Lease {key}"),
    })
}

/// All of a namespace: where one is created.
pub(super) fn leases(namespace: &str) -> Result<Target, WriteError> {
    Ok(Target {
        path: format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", segment(namespace)?),
        what: format!("a Lease in {namespace}"),
    })
}

/// The pods of a namespace that carry a label with a value.
pub(super) fn labelled_pods(namespace: &str, label: &str, value: &str) -> Result<Target, WriteError> {
    Ok(Target {
        path: format!(
            "/api/v1/namespaces/{}/pods?labelSelector={}%3D{value}",
            segment(namespace)?,
            label.replace('/', "%2F")
        ),
        what: format!("the pods of {namespace} with label {label}"),
    })
}

fn object(kind: Kind, key: &NamespacedName) -> Result<Target, WriteError> {
    let resource = resource(kind);
    let root = if resource.group.is_empty() { "api" } else { "apis" };
    Ok(Target {
        path: format!(
            "/{root}/{}/namespaces/{}/{}/{}",
            resource.api_version,
            segment(&key.namespace)?,
            resource.plural,
            segment(&key.name)?
        ),
        what: format!("{} {key}", kind.as_str()),
    })
}

/// A name as a path segment. Names also arrive in requests of others, and a `/` or `?` in one would address something
/// else: what cannot be the name of an object is refused here.
fn segment(name: &str) -> Result<&str, WriteError> {
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    if bytes.len() <= 253 && bytes.iter().copied().all(legal) && edge(bytes.first()) && edge(bytes.last()) {
        Ok(name)
    } else {
        let shown: String = name.chars().take(80).collect();
        Err(WriteError::Refused(format!(
            "{shown:?} cannot be the name of an object"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_one_segment() {
        let path = |ns: &str, name: &str| pod(&NamespacedName::new(ns, name)).map(|t| t.path);
        assert_eq!(path("a", "b-1.c").as_deref(), Ok("/api/v1/namespaces/a/pods/b-1.c"));
        for bad in [
            "",
            "x/binding",
            "x?force=true",
            "..",
            "X",
            "a b",
            "-a",
            "a.",
            "%2e",
            &"a".repeat(254),
        ] {
            assert!(matches!(path("a", bad), Err(WriteError::Refused(_))), "{bad}");
            assert!(matches!(path(bad, "a"), Err(WriteError::Refused(_))), "{bad}");
        }
    }

    #[test]
    fn a_target_has_a_path_for_the_api_and_words_for_people() {
        let of = |target: Result<Target, WriteError>| target.map(|t| (t.path, t.what)).expect("legal names");
        let key = NamespacedName::new("ns", "c");
        let (path, what) = of(claim(&key).map(|t| t.status()));
        assert_eq!(path, "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c/status");
        assert_eq!(what, "the status of ResourceClaim ns/c");
        let (path, what) = of(template(&key).map(|t| t.query("force=false")));
        assert_eq!(
            path,
            "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaimtemplates/c?force=false"
        );
        assert_eq!(what, "ResourceClaimTemplate ns/c");
        let (path, what) = of(pod(&key).map(|t| t.binding()));
        assert_eq!(path, "/api/v1/namespaces/ns/pods/c/binding");
        assert_eq!(what, "the binding of Pod ns/c");
    }

    #[test]
    fn every_kind_is_watched_where_the_api_serves_it() {
        let of = |kind| {
            let r = resource(kind);
            format!("{} {} {}", r.api_version, r.plural, r.kind)
        };
        assert_eq!(of(Kind::Pod), "v1 pods Pod");
        assert_eq!(of(Kind::Slice), "resource.k8s.io/v1 resourceslices ResourceSlice");
        assert_eq!(of(Kind::RuntimeClass), "node.k8s.io/v1 runtimeclasses RuntimeClass");
        assert!(Kind::ALL.iter().all(|k| resource(*k).kind == k.as_str()));
    }
}
