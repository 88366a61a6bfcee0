//! The nouns of the product, free of Kubernetes types, I/O and time.
//!
//! Everything here is plain immutable data: `convert` makes it, the index keeps it, `placement` reads it.
//! It owns no behaviour beyond what a value can say about itself.

pub mod alike;
mod allocation;
mod bits;
mod claim;
mod conditions;
mod device;
mod duration;
mod mode;
mod node;
mod pod;
mod power;
mod product;
mod quantity;
mod refusal;
mod room;
mod share;

pub use allocation::{AllocatedConfig, Allocation, ConfigSource, DeviceId, DeviceResult};
pub use bits::Bits;
pub use claim::{
    CARD, CARDS, Claim, ClaimSpec, ClaimTemplate, ConfigEntry, Constraint, ConstraintKind, Consumer, Count,
    DeviceClass, DeviceRequest, FINALIZER, NAME_HASH, PARTITIONS, Request, RequestKind, SLOT_TEMPLATES, SelectorText,
    SubRequest, not_older, unhashed,
};
pub use conditions::{DeviceCondition, Readiness};
pub use device::{
    AttributeValue, Capacity, CounterConsumption, CounterSet, Device, Effect, NodeScope, QualifiedName, RequestPolicy,
    Slice, Taint, TaintRule, Toleration,
};
pub use duration::go_duration;
pub use mode::node_mode;
pub use node::{Labels, Namespace, Node, NodeSelector, NodeSelectorTerm, Requirement};
pub use pod::{
    ADMITTED, CLASS, DEFAULT_SCHEDULER, GATE, GROUP, MEMORY, MIRROR, MIX, PARTITION, Pod, PodClaim, PodClaimSource,
    TOPOLOGY, WEBHOOK,
};
pub use power::{Budget, Classified, Classifier, Unclassified, WattOrigin};
pub use product::normalised;
pub use quantity::{Quantity, QuantityError};
pub use refusal::{Reason, Refusal};
pub use room::Room;
pub use share::{SHARE, SLOTS, Share};

use std::sync::Arc;

/// Any name or short text that many objects share.
pub type Name = Arc<str>;

/// Namespace and name of a namespaced object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamespacedName {
    pub namespace: Name,
    pub name: Name,
}

impl NamespacedName {
    pub fn new(namespace: impl Into<Name>, name: impl Into<Name>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl std::fmt::Display for NamespacedName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
