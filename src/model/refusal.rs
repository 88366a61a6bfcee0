//! Why a node, a pod or a request was refused: a closed set for metrics, words for people.

use super::Name;

/// Closed set: these are metric labels. The words that reach the pod's event are in `Refusal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The node is not in our cache.
    UnknownNode,
    /// The pod's claim is not in our cache (yet), or its name is not known yet.
    ClaimMissing,
    /// The claim is being deleted, belongs to another pod, or is full.
    ClaimUnusable,
    /// The claim is allocated where this node cannot reach it.
    AllocatedElsewhere,
    DeviceClassMissing,
    /// No device of the node matches class and selectors.
    NoMatchingDevice,
    /// Enough devices match, but too few are free.
    NotEnoughFree,
    /// Enough are free, but not of one wattage class.
    MixedClasses,
    /// The pod asked for a class of which too few are free here.
    WrongClass,
    /// Free devices carry a taint that is not tolerated.
    Tainted,
    /// A pool of the node is incomplete or invalid.
    PoolIncomplete,
    /// A pod holds devices of the pool that nobody can name.
    UnknownHolder,
    /// A selector does not compile or fails on a device.
    SelectorError,
    /// matchAttribute or distinctAttribute cannot be met.
    Constraint,
    /// Shared counters (partitions) or consumable capacity are used up.
    CapacityExhausted,
    /// Free devices need another mode than the one that their node has by what is in use (`model::node_mode`).
    NodeMode,
    /// Topology `required` cannot be met.
    Topology,
    /// A power domain would be over its budget.
    PowerBudget,
    /// More cards than the policy allows a pod of its namespace.
    NamespaceLimit,
    /// All slots of a shared claim are taken, older pods wait for the free ones, or policy allows no sharing.
    Slots,
    /// adminAccess in a namespace that does not allow it.
    AdminAccess,
    /// An API limit (32 results a claim, 256 consumers), or the step limit of our own search.
    Limit,
    /// Something we do not support: refused rather than guessed.
    Unsupported,
    /// An extended resource that a DeviceClass maps to DRA: the pod would run without a device.
    UnservedExtendedResource,
    /// An annotation or request that cannot be read.
    InvalidRequest,
}

impl Reason {
    pub const ALL: [Reason; 25] = [
        Self::UnknownNode,
        Self::ClaimMissing,
        Self::ClaimUnusable,
        Self::AllocatedElsewhere,
        Self::DeviceClassMissing,
        Self::NoMatchingDevice,
        Self::NotEnoughFree,
        Self::MixedClasses,
        Self::WrongClass,
        Self::Tainted,
        Self::PoolIncomplete,
        Self::UnknownHolder,
        Self::SelectorError,
        Self::Constraint,
        Self::CapacityExhausted,
        Self::NodeMode,
        Self::Topology,
        Self::PowerBudget,
        Self::NamespaceLimit,
        Self::Slots,
        Self::AdminAccess,
        Self::Limit,
        Self::Unsupported,
        Self::UnservedExtendedResource,
        Self::InvalidRequest,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnknownNode => "unknown_node",
            Self::ClaimMissing => "claim_missing",
            Self::ClaimUnusable => "claim_unusable",
            Self::AllocatedElsewhere => "allocated_elsewhere",
            Self::DeviceClassMissing => "device_class_missing",
            Self::NoMatchingDevice => "no_matching_device",
            Self::NotEnoughFree => "not_enough_free",
            Self::MixedClasses => "mixed_classes",
            Self::WrongClass => "wrong_class",
            Self::Tainted => "tainted",
            Self::PoolIncomplete => "pool_incomplete",
            Self::UnknownHolder => "unknown_holder",
            Self::SelectorError => "selector_error",
            Self::Constraint => "constraint",
            Self::CapacityExhausted => "capacity_exhausted",
            Self::NodeMode => "node_mode",
            Self::Topology => "topology",
            Self::PowerBudget => "power_budget",
            Self::NamespaceLimit => "namespace_limit",
            Self::Slots => "slots",
            Self::AdminAccess => "admin_access",
            Self::Limit => "limit",
            Self::Unsupported => "unsupported",
            Self::UnservedExtendedResource => "unserved_extended_resource",
            Self::InvalidRequest => "invalid_request",
        }
    }
}

/// A "no" with its words. The message is short (a pod's event lists many nodes; kube-scheduler groups
/// equal texts), names what is wrong and, where it helps, what is there: no node name in it, so that
/// equal situations on many nodes give one text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub reason: Reason,
    pub message: Name,
}

impl Refusal {
    pub fn new(reason: Reason, message: impl Into<Name>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}
