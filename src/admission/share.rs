//! Slots on shared devices: `wattlane.dev/share: NAME` and one card become a claim that all pods of the namespace with
//! that name reserve, or, where devices have consumable capacity, a claim of the pod's own on a part of one.
//!
//! Both are named by their content, as templates are: whoever makes one at the same moment makes the same, another policy
//! makes another, and what has our name and other content is not ours. The number of slots is in the name, which
//! nobody can change; placement reads it there and holds it below what policy says then.

use std::fmt::Write;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::ask::Ask;
use super::plan::{self, Plan};
use super::pod::Pod;
use super::refuse::{Refused, shown};
use crate::convert::MANAGED_BY;
use crate::model::{
    CLASS, Claim, ClaimSpec, ClaimTemplate, ConfigEntry, Count, DeviceRequest, Labels, Name, NamespacedName,
    QualifiedName, Quantity, Request, RequestKind, SHARE, SLOT_TEMPLATES, SLOTS, Share,
};
use crate::policy::{SHARING_DRIVER, Sharing};
use crate::snapshot::Snapshot;

const REQUEST: &str = "gpu";
const MEMORY: &str = "wattlane.dev/memory";
const PARTITION: &str = "wattlane.dev/partition";
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

/// A pod's wish, served.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) shared: Shared,
    /// The pod's own name for the claim.
    pub(super) entry: String,
    pub(super) ask: Ask,
    pub(super) warning: String,
}

impl Wanted {
    /// The ask is served, by no claim of the plan's.
    pub(super) fn plan(&self) -> Plan {
        Plan {
            claims: vec![],
            served: vec![(vec![], self.ask.clone())],
        }
    }
}

/// The name that the pod wishes to share under. `false` is no wish.
pub(super) fn wish<'a>(pod: Pod<'a>) -> Option<&'a str> {
    pod.annotation(SHARE).filter(|name| *name != "false")
}

fn refused<T>(code: u16, what: String) -> Result<T, Refused> {
    Err(Refused::new(code, format!("{SHARE}: {what}")))
}

/// None: the pod does not wish to share, or names its claim already.
pub(super) fn wanted(
    snapshot: &Snapshot,
    sharing: Option<&Sharing>,
    namespace: &str,
    pod: Pod<'_>,
    asks: &[Ask],
) -> Result<Option<Wanted>, Refused> {
    let Some(share) = wish(pod) else { return Ok(None) };
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if share.len() > 63 || !share.bytes().all(legal) || share.starts_with('-') || share.ends_with('-') {
        return refused(
            400,
            format!("{} is no name of a share: use a-z, 0-9 and -, at most 63", shown(share)),
        );
    }
    if asks.is_empty() && (names_ours(pod, share) || pod.spec_list("resourceClaims").is_empty()) {
        return Ok(None);
    }
    // Parts of cards that a device plugin shares out are its own business.
    let plugin = |ask: &Ask| {
        let mut nodes = snapshot.nodes();
        ask.device_class.is_none() && nodes.any(|(_, n)| Snapshot::gives_parts(&ask.resource, &n.node.labels))
    };
    if !asks.is_empty() && asks.iter().all(plugin) {
        return Ok(None);
    }
    let Some(sharing) = sharing else {
        return refused(
            403,
            format!(
                "pods of namespace {namespace} may not share devices: the policy has no `sharing` in the rule for this \
                 namespace. Remove the annotation for a device of the pod's own"
            ),
        );
    };
    let ask = match asks {
        [ask] if ask.count == 1 => ask.clone(),
        [] => {
            return refused(
                422,
                "the pod brings its own claims and asks for no card; a slot takes the place of one nvidia.com/gpu"
                    .into(),
            );
        }
        [ask] => {
            return refused(
                422,
                format!(
                    "the pod asks for {} {}: a slot is a part of one, so ask for 1",
                    ask.count, ask.resource
                ),
            );
        }
        _ => {
            return refused(
                422,
                format!(
                    "{} containers ask for devices: a pod has one slot, so let one container ask for 1",
                    asks.len()
                ),
            );
        }
    };
    if ask.resource.starts_with("nvidia.com/mig-") || pod.annotation(PARTITION).is_some() {
        return refused(422, "a partition is not shared: ask for one or the other".into());
    }
    let Some(device_class) = &ask.device_class else {
        return refused(
            422,
            format!(
                "there is no DeviceClass to claim {} from, and without claims nothing is shared",
                ask.resource
            ),
        );
    };
    let shared = match has_capacity(snapshot, &ask.resource, device_class) {
        true => by_capacity(pod, sharing, device_class)?,
        false => by_claim(snapshot, pod, sharing, share, &ask.resource, device_class)?,
    };
    let warning = match &shared {
        Shared::Claim { .. } => format!(
            "wattlane: the pod shares a card with up to {} others; {}",
            sharing.slots - 1,
            sharing.not_isolated()
        ),
        Shared::Capacity { .. } => {
            "wattlane: the pod shares a card; what of it is limited, and how, is said by the card's driver only"
                .to_owned()
        }
    };
    Ok(Some(Wanted {
        shared,
        entry: plan::fresh_names(pod).next().unwrap_or_default(),
        ask,
        warning,
    }))
}

fn by_claim(
    snapshot: &Snapshot,
    pod: Pod<'_>,
    sharing: &Sharing,
    share: &str,
    resource: &str,
    device_class: &Name,
) -> Result<Shared, Refused> {
    if !snapshot.may_hold(resource, Some(device_class), SHARING_DRIVER) {
        return refused(
            422,
            format!(
                "devices of {resource} cannot be shared: only the driver {SHARING_DRIVER} takes a sharing configuration"
            ),
        );
    }
    if pod.annotation(MEMORY).is_some() {
        let policy = sharing.memory_per_slot.as_ref().map_or_else(
            || "the policy has no memory for a slot".to_owned(),
            |m| format!("the policy gives a slot {m}"),
        );
        return refused(
            422,
            format!(
                "{MEMORY} has no meaning for a slot of a shared claim: {policy}. Remove one of the two annotations"
            ),
        );
    }
    Ok(Shared::Claim {
        share: share.into(),
        slots: sharing.slots,
        device_class: device_class.clone(),
        parameters: sharing.parameters().to_string().into(),
    })
}

fn by_capacity(pod: Pod<'_>, sharing: &Sharing, device_class: &Name) -> Result<Shared, Refused> {
    let Some(memory) = pod.annotation(MEMORY).or(sharing.memory_per_slot.as_deref()) else {
        return refused(
            422,
            format!("say how much memory of the card the pod needs: {MEMORY}: 10Gi (the policy has no memoryPerSlot)"),
        );
    };
    let bytes = memory.parse::<Quantity>().ok().and_then(|q| q.as_integer());
    match bytes.filter(|b| *b > 0) {
        Some(bytes) => Ok(Shared::Capacity {
            device_class: device_class.clone(),
            bytes,
        }),
        None => refused(400, format!("{MEMORY}: {} is not a size like 10Gi", shown(memory))),
    }
}

/// Some device that the resource stands for may be given to several claims.
fn has_capacity(snapshot: &Snapshot, resource: &str, class: &Name) -> bool {
    let pools = snapshot.pools.iter().flatten().map(|state| &state.pool);
    let mut pools = pools.filter(|pool| snapshot.may_hold(resource, Some(class), &pool.driver));
    pools.any(|pool| pool.devices.iter().any(|d| d.device.allow_multiple))
}

/// The pod was here before: it names a claim of that share, or a template for a slot.
fn names_ours(pod: Pod<'_>, share: &str) -> bool {
    pod.spec_list("resourceClaims").iter().any(|entry| {
        let claim = entry["resourceClaimName"].as_str().and_then(Share::of_name);
        let slot = entry["resourceClaimTemplateName"].as_str().and_then(bytes_in);
        claim.is_some_and(|c| c.name == share) || slot.is_some()
    })
}

/// What the pod names of ours already, as today's policy would make it again: it may be gone.
pub(super) fn named(snapshot: &Snapshot, sharing: Option<&Sharing>, pod: &Value) -> Vec<Shared> {
    const MOST: usize = 128;
    let Some(sharing) = sharing else { return vec![] };
    let classes = || snapshot.classes.iter().map(|(class, _)| class.clone());
    let entries = Pod(pod).spec_list("resourceClaims").iter().take(MOST);
    let again = |entry: &Value| {
        if let Some(name) = entry["resourceClaimName"].as_str() {
            let share = Share::of_name(name)?;
            let parameters: Name = sharing.parameters().to_string().into();
            let mut made = classes().map(|device_class| Shared::Claim {
                share: share.name.into(),
                slots: sharing.slots,
                device_class,
                parameters: parameters.clone(),
            });
            return made.find(|s| *s.name() == *name);
        }
        let name = entry["resourceClaimTemplateName"].as_str()?;
        let bytes = bytes_in(name)?;
        let mut made = classes().map(|device_class| Shared::Capacity { device_class, bytes });
        made.find(|s| *s.name() == *name)
    };
    entries.filter_map(again).collect()
}

/// The class that the pod is to have: that of the policy, where it shares devices of one only.
pub(super) fn class(sharing: Option<&Sharing>, pod: Pod<'_>, chosen: Option<Name>) -> Result<Option<Name>, Refused> {
    match (sharing.and_then(|s| s.class.as_ref()), pod.annotation(CLASS)) {
        (Some(only), Some(named)) if named != &**only => refused(
            403,
            format!(
                "devices of class {only} only are shared here, and the pod asks for {}",
                shown(named)
            ),
        ),
        (Some(only), _) => Ok(Some(only.clone())),
        (None, _) => Ok(chosen),
    }
}

/// Bytes of a slot's template, by its name alone.
fn bytes_in(template: &str) -> Option<i64> {
    let (rest, hash) = template.strip_prefix(SLOT_TEMPLATES)?.rsplit_once('-')?;
    let (_, bytes) = rest.rsplit_once('-')?;
    (hash.len() == 10 && hash.bytes().all(|b| b.is_ascii_hexdigit()))
        .then(|| bytes.parse().ok())
        .flatten()
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
        let mut hash = String::new();
        let content = format!("{slots} {}", self.spec());
        for byte in Sha256::digest(content.as_bytes()).iter().take(5) {
            let _infallible = write!(hash, "{byte:02x}");
        }
        match self {
            Self::Claim { share, slots, .. } => Share {
                name: share,
                slots: *slots,
            }
            .claim_name(&hash),
            Self::Capacity { device_class, bytes } => {
                let class: String = device_class.replace('.', "-").chars().take(40).collect();
                format!("{SLOT_TEMPLATES}{}-{bytes}-{hash}", class.trim_end_matches('-')).into()
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
