//! The few fields of a Pod that placement reads.

use super::{Consumer, Labels, Name, NamespacedName, Quantity, Room};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodClaimSource {
    /// `resourceClaimName`
    Claim(Name),
    /// `resourceClaimTemplateName`
    Template(Name),
    /// Something that is not known here: such a pod is not placed, and what it has counts.
    Other,
}

/// An entry of `spec.resourceClaims` joined with `status.resourceClaimStatuses`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodClaim {
    /// The pod's own name for it.
    pub name: Name,
    pub source: PodClaimSource,
    /// Name of the ResourceClaim made from the template, once the claim controller has said so.
    /// `Some(None)`: the controller decided that no claim is needed.
    pub generated: Option<Option<Name>>,
}

impl PodClaim {
    /// The ResourceClaim's name, once known.
    pub fn claim_name(&self) -> Option<&Name> {
        match &self.source {
            PodClaimSource::Claim(name) => Some(name),
            PodClaimSource::Template(_) => self.generated.as_ref()?.as_ref(),
            PodClaimSource::Other => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    pub key: NamespacedName,
    pub uid: Name,
    /// Seconds since the epoch; 0: not known.
    pub created: i64,
    /// Those that anybody here reads.
    pub labels: Labels,
    /// Only keys of `wattlane.dev/`, `nvidia.com/`, `amd.com/` and `hami.io/`.
    pub annotations: Labels,
    pub scheduler_name: Name,
    /// Empty until bound.
    pub node_name: Name,
    /// Phase Succeeded or Failed: it holds nothing any more.
    pub finished: bool,
    pub deleting: bool,
    pub claims: Vec<PodClaim>,
    /// Extended resources (a name with a `/`) its containers ask for, summed over containers.
    pub extended_resources: Vec<(Name, Quantity)>,
    /// CPU and memory it asks for.
    pub room: Room,
    /// `status.extendedResourceClaimStatus.resourceClaimName`, where in-tree DRA served them.
    pub extended_resource_claim: Option<Name>,
    /// The extended resources that claim serves. Empty while nobody has said which.
    pub claimed_resources: Vec<Name>,
    /// A mirror pod, or one of a DaemonSet: its node was given from the start.
    pub fixed: bool,
    /// Waits behind the scheduling gate [`GATE`].
    pub gated: bool,
}

/// Annotation on treated pods; the value is the version of admission's rules.
pub const ADMITTED: &str = "wattlane.dev/admitted";
/// Annotation a pod names its wattage class with.
pub const CLASS: &str = "wattlane.dev/class";
/// Annotation: how much memory each card, or part of one, that the pod asks for is to have.
pub const MEMORY: &str = "wattlane.dev/memory";
/// Annotation: the profile of the partitions that the cards the pod asks for stand for.
pub const PARTITION: &str = "wattlane.dev/partition";
/// Annotation: how near one another the pod's cards must be: `required`, `preferred` or `none`.
pub const TOPOLOGY: &str = "wattlane.dev/topology";
/// Annotation of pods that are to be near one another: the name they have in common.
pub const GROUP: &str = "wattlane.dev/group";
/// Annotation: whether the pod's cards may be of several classes, `true` or `false`.
pub const MIX: &str = "wattlane.dev/mix-classes";
/// Label or annotation that keeps wattlane away from a pod, with the value `ignore`.
pub const WEBHOOK: &str = "wattlane.dev/webhook";
/// Annotation by which kubelet marks a mirror pod.
pub const MIRROR: &str = "kubernetes.io/config.mirror";
/// Who schedules a pod that names nobody.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";
/// The scheduling gate that manifests/gated puts on GPU pods, and that wattlane removes.
pub const GATE: &str = "wattlane.dev/admission";

impl Pod {
    /// Of that uid, and still without a node.
    pub fn awaits_node(&self, uid: &Name) -> bool {
        self.uid == *uid && self.node_name.is_empty() && !self.deleting && !self.finished
    }

    /// A claim of that name, in the pod's namespace.
    pub fn claim_key(&self, name: &Name) -> NamespacedName {
        NamespacedName::new(self.key.namespace.clone(), name.clone())
    }

    /// As it stands in a claim's `reservedFor`.
    pub fn consumer(&self) -> Consumer {
        Consumer {
            resource: "pods".into(),
            name: self.key.name.clone(),
            uid: self.uid.clone(),
        }
    }

    /// It says itself, by label or annotation, that wattlane leaves it alone.
    pub fn opted_out(&self) -> bool {
        let label = self.labels.get(WEBHOOK).map(|v| v.trim());
        [self.annotation(WEBHOOK), label].contains(&Some("ignore"))
    }

    /// Annotation value, trimmed; empty counts as absent.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(|v| v.trim()).filter(|v| !v.is_empty())
    }

    /// The extended resources that no claim serves: where the pod is bound, a device plugin gave it these, and nothing
    /// in the API says which devices they are. Claims in `resourceClaims` are beside them, not instead of them.
    pub fn unclaimed(&self) -> impl Iterator<Item = &(Name, Quantity)> {
        let claim = self.extended_resource_claim.is_some();
        let served =
            move |name: &Name| claim && (self.claimed_resources.is_empty() || self.claimed_resources.contains(name));
        self.extended_resources.iter().filter(move |(name, _)| !served(name))
    }

    /// It runs, or is about to: what it was given is not free.
    pub fn holds(&self) -> bool {
        !self.node_name.is_empty() && !self.finished
    }

    /// Whether it is worth keeping: of 50,000 pods most have nothing to do with devices. Which extended resources are GPUs
    /// depends on the DeviceClasses, so any extended resource will do.
    pub fn matters(&self) -> bool {
        !self.claims.is_empty()
            || !self.extended_resources.is_empty()
            || self.extended_resource_claim.is_some()
            || !self.annotations.is_empty()
            || self.gated
    }

    /// Whether the index takes anything from it: of most pods only what they take of a node's CPU and memory.
    pub fn counts(&self) -> bool {
        self.matters() || self.holds()
    }
}
