//! What pods share a device by, as an object: a ResourceClaim for all of them, or a ResourceClaimTemplate for slots.
//!
//! Both are named by their content, as templates are: whoever makes one at the same moment makes the same, another policy
//! makes another, and what has our name and other content is not ours. The number of slots is in the name, which
//! nobody can change; placement reads it there and holds it below what policy says then.

use serde_json::{Value, json};

use super::naming;
use crate::convert::MANAGED_BY;
use crate::model::{
    Claim, ClaimSpec, ClaimTemplate, ConfigEntry, Count, DeviceRequest, Labels, Name, NamespacedName, QualifiedName,
    Quantity, Request, RequestKind, SHARE, SLOT_TEMPLATES, SLOTS, Share, unhashed,
};
use crate::policy::SHARING_DRIVER;

const REQUEST: &str = "gpu";
/// Only devices that may be given to several claims: another would be taken whole.
const SHAREABLE: &str = "device.allowMultipleAllocations == true";

/// What pods that share a device name in their spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shared {
    /// One ResourceClaim for all of them.
    Claim {
        share: Name,
        slots: u32,
        device_class: Name,
        /// Opaque configuration for the driver, as JSON text.
        parameters: Name,
    },
    /// A ResourceClaimTemplate: each has a claim of its own, for so many bytes of a device.
    Capacity { device_class: Name, bytes: i64 },
}

/// Bytes of a slot's template, by its name alone.
pub(super) fn bytes_in(template: &str) -> Option<i64> {
    let (_, bytes) = unhashed(template.strip_prefix(SLOT_TEMPLATES)?)?.rsplit_once('-')?;
    bytes.parse().ok()
}

impl Shared {
    fn device_class(&self) -> &Name {
        match self {
            Self::Claim { device_class, .. } | Self::Capacity { device_class, .. } => device_class,
        }
    }

    /// Unique by the hash of the content.
    pub fn name(&self) -> Name {
        let slots = match self {
            Self::Claim { slots, .. } => *slots,
            Self::Capacity { .. } => 1,
        };
        let hash = naming::hash(&format!("{slots} {}", self.spec()));
        match self {
            Self::Claim { share, slots, .. } => Share {
                name: share,
                slots: *slots,
            }
            .claim_name(&hash),
            Self::Capacity { device_class, bytes } => {
                format!("{SLOT_TEMPLATES}{}-{bytes}-{hash}", naming::label(device_class)).into()
            }
        }
    }

    pub fn key(&self, namespace: &str) -> NamespacedName {
        NamespacedName::new(namespace, self.name())
    }

    /// The entry of the pod's `resourceClaims`.
    pub(super) fn entry(&self, name: &str) -> Value {
        match self {
            Self::Claim { .. } => json!({"name": name, "resourceClaimName": &*self.name()}),
            Self::Capacity { .. } => json!({"name": name, "resourceClaimTemplateName": &*self.name()}),
        }
    }

    fn spec(&self) -> Value {
        let mut exactly =
            json!({"deviceClassName": &**self.device_class(), "allocationMode": "ExactCount", "count": 1});
        let mut devices = json!({});
        match self {
            Self::Claim { parameters, .. } => {
                let parameters: Value = serde_json::from_str(parameters).unwrap_or_default();
                let opaque = json!({"driver": SHARING_DRIVER, "parameters": parameters});
                devices["config"] = json!([{"requests": [REQUEST], "opaque": opaque}]);
            }
            Self::Capacity { bytes, .. } => {
                exactly["selectors"] = json!([{"cel": {"expression": SHAREABLE}}]);
                exactly["capacity"] = json!({"requests": {"memory": bytes.to_string()}});
            }
        }
        devices["requests"] = json!([{"name": REQUEST, "exactly": exactly}]);
        json!({"devices": devices})
    }

    /// The whole object (resource.k8s.io/v1).
    pub fn object(&self, namespace: &str) -> Value {
        let mut metadata = json!({
            "name": &*self.name(),
            "namespace": namespace,
            "labels": {MANAGED_BY.0: MANAGED_BY.1},
        });
        let (kind, spec) = match self {
            Self::Claim { share, slots, .. } => {
                metadata["labels"][SHARE] = json!(&**share);
                metadata["annotations"] = json!({SLOTS: slots.to_string()});
                ("ResourceClaim", self.spec())
            }
            Self::Capacity { .. } => ("ResourceClaimTemplate", json!({"spec": self.spec()})),
        };
        json!({"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec})
    }

    /// What the cache holds once the watch has shown it.
    pub fn claim_spec(&self) -> ClaimSpec {
        let mut request = DeviceRequest {
            class: self.device_class().clone(),
            selectors: vec![],
            count: Count::Exactly(1),
            admin_access: false,
            tolerations: vec![],
            capacity: vec![],
        };
        let mut config = vec![];
        match self {
            Self::Claim { parameters, .. } => config.push(ConfigEntry {
                requests: vec![REQUEST.into()],
                driver: SHARING_DRIVER.into(),
                parameters: parameters.clone(),
            }),
            Self::Capacity { bytes, .. } => {
                request.selectors.push(SHAREABLE.into());
                let memory = QualifiedName::parse("memory", &Name::from(""));
                request.capacity.push((memory, Quantity::from_integer(*bytes)));
            }
        }
        ClaimSpec {
            requests: vec![Request {
                name: REQUEST.into(),
                kind: RequestKind::Exactly(request),
            }],
            config,
            ..ClaimSpec::default()
        }
    }

    /// Whether the claim is this one, ours and with our content.
    pub(super) fn is(&self, claim: &Claim) -> bool {
        claim.managed && claim.owner_pod.is_none() && claim.key.name == self.name() && *claim.spec == self.claim_spec()
    }

    /// Whether the template is this one.
    pub(super) fn is_template(&self, template: &ClaimTemplate) -> bool {
        let ours = |labels: &Labels| labels.get(MANAGED_BY.0).is_some_and(|v| &**v == MANAGED_BY.1);
        ours(&template.labels)
            && template.key.name == self.name()
            && !template.marks_claims
            && *template.spec == self.claim_spec()
    }

    /// What a claim says, if it is exactly what we would write.
    pub(super) fn made(claim: &Claim) -> Option<Self> {
        let share = claim.share()?;
        let ([request], [config]) = (claim.spec.requests.as_slice(), claim.spec.config.as_slice()) else {
            return None;
        };
        let RequestKind::Exactly(asked) = &request.kind else {
            return None;
        };
        let made = Self::Claim {
            share: share.name.into(),
            slots: share.slots,
            device_class: asked.class.clone(),
            parameters: config.parameters.to_string().into(),
        };
        made.is(claim).then_some(made)
    }

    /// As `made`, of a template for slots.
    pub(super) fn made_template(template: &ClaimTemplate) -> Option<Self> {
        let bytes = bytes_in(&template.key.name)?;
        let [request] = template.spec.requests.as_slice() else {
            return None;
        };
        let RequestKind::Exactly(asked) = &request.kind else {
            return None;
        };
        let made = Self::Capacity {
            device_class: asked.class.clone(),
            bytes,
        };
        made.is_template(template).then_some(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::{self, Object};

    fn claim(slots: u32) -> Shared {
        Shared::Claim {
            share: "chat".into(),
            slots,
            device_class: "gpu.nvidia.com".into(),
            parameters: json!({"kind": "GpuConfig", "apiVersion": "x", "sharing": {"strategy": "MPS"}})
                .to_string()
                .into(),
        }
    }

    fn read(shared: &Shared) -> Object {
        let object = convert::object(&shared.object("ml")).expect("readable");
        object.expect("a kind that is kept")
    }

    #[test]
    fn what_is_made_is_known_again_and_nothing_else_is() {
        let Object::Claim(made) = read(&claim(4)) else {
            panic!("a claim")
        };
        assert_eq!(Shared::made(&made), Some(claim(4)));
        assert_eq!(made.share().map(|s| (s.name, s.slots)), Some(("chat", 4)));
        // More slots, the same content: the name would be another one's.
        let forged = Claim {
            key: NamespacedName::new("ml", made.key.name.replace("-x4-", "-x9-")),
            spec: claim(4).claim_spec().into(),
            ..made.clone()
        };
        let other = Claim {
            spec: ClaimSpec {
                config: vec![],
                ..claim(4).claim_spec()
            }
            .into(),
            ..made.clone()
        };
        let unmarked = Claim { managed: false, ..made };
        assert_eq!(Shared::made(&other), None);
        assert_eq!(Shared::made(&unmarked), None);
        assert_eq!(Shared::made(&forged), None);

        let slot = Shared::Capacity {
            device_class: "gpu.nvidia.com".into(),
            bytes: 10 << 30,
        };
        let Object::Template(template) = read(&slot) else {
            panic!("a template")
        };
        assert_eq!(Shared::made_template(&template), Some(slot));
    }
}
