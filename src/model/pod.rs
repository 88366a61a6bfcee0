//! The few fields of a Pod that placement reads.

use super::{Labels, Name, NamespacedName, Quantity};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodClaimSource {
    /// `resourceClaimName`
    Claim(Name),
    /// `resourceClaimTemplateName`
    Template(Name),
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
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    pub key: NamespacedName,
    pub uid: Name,
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
    /// `status.extendedResourceClaimStatus.resourceClaimName`, where in-tree DRA served them.
    pub extended_resource_claim: Option<Name>,
}

impl Pod {
    /// Annotation value, trimmed; empty counts as absent.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(|v| v.trim()).filter(|v| !v.is_empty())
    }
}
