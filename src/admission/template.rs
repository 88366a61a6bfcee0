//! ResourceClaimTemplates by content: equal asks of a namespace share one template, and its name says what is in it.

use std::fmt::Write;
use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::ask::MOST_DEVICES;
use crate::convert::MANAGED_BY;
use crate::model::{ClaimSpec, ClaimTemplate, Count, DeviceRequest, Name, NamespacedName, Request, RequestKind};
use crate::snapshot::Snapshot;

const REQUEST: &str = "gpu";

/// One request for `count` whole devices of a DeviceClass.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Template {
    pub device_class: Name,
    pub count: u32,
}

impl Template {
    /// `wl-gpu-nvidia-com-x2-<hash>`: readable, and unique by the hash of the spec.
    pub fn name(&self) -> Name {
        let class = self.device_class.replace('.', "-");
        let class: String = class.chars().take(40).collect();
        let hash = Sha256::digest(self.spec().to_string().as_bytes());
        let mut name = format!("wl-{}-x{}-", class.trim_end_matches('-'), self.count);
        for byte in hash.iter().take(5) {
            let _infallible = write!(name, "{byte:02x}");
        }
        name.into()
    }

    /// The number of devices in a template of ours, by its name alone: a template made a moment ago may not have
    /// come through the watch yet.
    pub(super) fn count_in(name: &str) -> Option<u32> {
        let (rest, hash) = name.strip_prefix("wl-")?.rsplit_once('-')?;
        let (_, count) = rest.rsplit_once("-x")?;
        (hash.len() == 10 && hash.bytes().all(|b| b.is_ascii_hexdigit()))
            .then(|| count.parse().ok())
            .flatten()
    }

    /// The template of ours that a pod names, made of one of the cluster's DeviceClasses. It may have been removed since.
    pub(super) fn named(snapshot: &Snapshot, name: &str) -> Option<Self> {
        let count = Self::count_in(name).filter(|n| (1..=MOST_DEVICES).contains(n))?;
        let classes = snapshot.classes.iter().map(|(class, _)| class);
        let templates = classes.map(|class| Self {
            device_class: class.clone(),
            count,
        });
        templates.into_iter().find(|t| *t.name() == *name)
    }

    /// What an object says, if it is exactly what we would write: label, content, and the name of that content.
    pub(super) fn made(object: &ClaimTemplate) -> Option<Self> {
        let [request] = object.spec.requests.as_slice() else {
            return None;
        };
        let RequestKind::Exactly(DeviceRequest {
            class,
            count: Count::Exactly(count),
            ..
        }) = &request.kind
        else {
            return None;
        };
        let template = Self {
            device_class: class.clone(),
            count: *count,
        };
        template.is(object).then_some(template)
    }

    /// Whether the object is this template, ours and with our content.
    pub(super) fn is(&self, object: &ClaimTemplate) -> bool {
        let ours = object.labels.get(MANAGED_BY.0).is_some_and(|v| &**v == MANAGED_BY.1);
        ours && object.key.name == self.name() && !object.marks_claims && *object.spec == self.claim_spec()
    }

    pub fn key(&self, namespace: &str) -> NamespacedName {
        NamespacedName::new(namespace, self.name())
    }

    fn spec(&self) -> Value {
        json!({"devices": {"requests": [{
            "name": REQUEST,
            "exactly": {"deviceClassName": &*self.device_class, "allocationMode": "ExactCount", "count": self.count},
        }]}})
    }

    /// The whole object (resource.k8s.io/v1).
    pub fn object(&self, namespace: &str) -> Value {
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {
                "name": &*self.name(),
                "namespace": namespace,
                "labels": {MANAGED_BY.0: MANAGED_BY.1},
            },
            "spec": {"spec": self.spec()},
        })
    }

    /// What the cache holds once the watch has shown it.
    pub fn claim_spec(&self) -> ClaimSpec {
        ClaimSpec {
            requests: vec![Request {
                name: REQUEST.into(),
                kind: RequestKind::Exactly(DeviceRequest {
                    class: self.device_class.clone(),
                    selectors: vec![],
                    count: Count::Exactly(self.count),
                    admin_access: false,
                    tolerations: vec![],
                    capacity: vec![],
                }),
            }],
            ..ClaimSpec::default()
        }
    }
}

/// Devices of the given DeviceClasses that a claim spec asks for. All: counted as none, since the number depends on
/// the node.
pub(super) fn devices_in(spec: &Arc<ClaimSpec>, classes: impl Fn(&Name) -> bool) -> u32 {
    let count = |r: &DeviceRequest| match r.count {
        Count::Exactly(n) if classes(&r.class) && !r.admin_access => n,
        _ => 0,
    };
    let of = |request: &Request| match &request.kind {
        RequestKind::Exactly(r) => count(r),
        RequestKind::FirstAvailable(subs) => subs.iter().map(|s| count(&s.request)).max().unwrap_or(0),
    };
    spec.requests.iter().fold(0, |sum, r| sum.saturating_add(of(r)))
}

#[cfg(test)]
mod tests {
    use super::Template;

    fn template(class: &str, count: u32) -> Template {
        Template {
            device_class: class.into(),
            count,
        }
    }

    #[test]
    fn names_say_what_is_inside_and_are_read_back() {
        let name = template("gpu.nvidia.com", 2).name();
        assert!(name.starts_with("wl-gpu-nvidia-com-x2-"), "{name}");
        assert_eq!(Template::count_in(&name), Some(2));
        assert_eq!(Template::count_in(&template(&"a.".repeat(100), 31).name()), Some(31));
        for foreign in [
            "",
            "wl-",
            "gpu-x2-0123456789",
            "wl-gpu-x2-01234",
            "wl-gpu-x-0123456789",
            "wl-x2-012345678z",
        ] {
            assert_eq!(Template::count_in(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn what_differs_has_another_name() {
        let base = template("gpu.nvidia.com", 2);
        assert_eq!(base.name(), base.clone().name());
        assert_ne!(base.name(), template("gpu.nvidia.com", 3).name());
        // Equal but for the spelling that the readable part loses.
        assert_ne!(base.name(), template("gpu-nvidia.com", 2).name());
    }
}
