//! What drivers publish: ResourceSlices, their devices, counters and taints (resource.k8s.io/v1).

use std::sync::Arc;

use super::{Name, NodeSelector, Quantity};

/// Name of an attribute or capacity: `domain/identifier`. The domain is the driver's name where
/// the slice left it out, so two spellings of one attribute are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QualifiedName {
    pub domain: Name,
    pub name: Name,
}

impl QualifiedName {
    /// Reads `domain/name`, or `name` in the given default domain (the driver).
    pub fn parse(text: &str, default_domain: &Name) -> Self {
        match text.split_once('/') {
            Some((domain, name)) => Self {
                domain: domain.into(),
                name: name.into(),
            },
            None => Self {
                domain: default_domain.clone(),
                name: text.into(),
            },
        }
    }
}

impl std::fmt::Display for QualifiedName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &*self.domain {
            "" => f.write_str(&self.name),
            domain => write!(f, "{domain}/{}", self.name),
        }
    }
}

/// Value of an attribute. Comparison is typed: a version never equals a string. The order means
/// nothing: sorted, equal values stand together.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AttributeValue {
    Int(i64),
    Bool(bool),
    String(Name),
    /// Semantic version 2.0.0, as text.
    Version(Name),
    /// List attributes (feature gate DRAListTypeAttributes).
    Ints(Box<[i64]>),
    Bools(Box<[bool]>),
    Strings(Box<[Name]>),
    Versions(Box<[Name]>),
}

/// One capacity of a device and how a share of it may be asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Capacity {
    pub value: Quantity,
    /// The slice writes the domain of its name, be it the driver's own. Requests and `consumedCapacity` name a capacity
    /// as the slice spells it: the in-tree allocator compares these names as text.
    pub domain_written: bool,
    /// Only for devices that allow multiple allocations.
    pub policy: Option<RequestPolicy>,
}

impl Capacity {
    /// Its name as the slice spells it: with the empty domain where the slice left it out.
    pub fn spelled(&self, name: &QualifiedName) -> QualifiedName {
        QualifiedName {
            domain: if self.domain_written {
                name.domain.clone()
            } else {
                "".into()
            },
            name: name.name.clone(),
        }
    }
}

/// `capacity.requestPolicy`: what a request without a value gets, and what values are legal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct RequestPolicy {
    pub default: Option<Quantity>,
    /// Ascending.
    pub valid_values: Box<[Quantity]>,
    pub valid_range: Option<(Quantity, Option<Quantity>, Option<Quantity>)>, // min, max, step
}

/// What a taint does to pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Informational.
    None,
    NoSchedule,
    NoExecute,
    /// An effect newer than this code: does not block (as in the in-tree allocator).
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Taint {
    pub key: Name,
    pub value: Name,
    pub effect: Effect,
}

/// A taint an administrator puts on devices from outside their slices (DeviceTaintRule). What is None selects all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaintRule {
    pub name: Name,
    pub driver: Option<Name>,
    pub pool: Option<Name>,
    pub device: Option<Name>,
    pub taint: Taint,
}

/// Tolerates taints: `key` None matches every key; `value` None means operator Exists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Toleration {
    pub key: Option<Name>,
    pub value: Option<Name>,
    /// None matches every effect.
    pub effect: Option<Effect>,
    /// Kept only to be copied into the allocation result.
    pub seconds: Option<i64>,
}

impl Toleration {
    pub fn tolerates(&self, taint: &Taint) -> bool {
        self.effect.is_none_or(|e| e == taint.effect)
            && self.key.as_ref().is_none_or(|k| *k == taint.key)
            && self.value.as_ref().is_none_or(|v| *v == taint.value)
    }
}

/// What a device takes out of one counter set of its pool when it is allocated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CounterConsumption {
    pub counter_set: Name,
    /// Sorted by name.
    pub counters: Box<[(Name, Quantity)]>,
}

/// Counters that several devices of a pool draw from (a card and its partitions).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CounterSet {
    pub name: Name,
    /// Sorted by name.
    pub counters: Box<[(Name, Quantity)]>,
}

/// Which nodes reach a device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NodeScope {
    Node(Name),
    All,
    Selector(Arc<NodeSelector>),
    /// Each device of the slice says for itself (`perDeviceNodeSelection`).
    PerDevice,
    /// A slice with only shared counters, or one that says nothing: reachable from nowhere.
    Nowhere,
}

/// One device as its driver publishes it. A device is named by (driver, pool, name).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Device {
    pub name: Name,
    /// Sorted by name, no duplicates.
    pub attributes: Box<[(QualifiedName, AttributeValue)]>,
    /// Sorted by name, no duplicates.
    pub capacity: Box<[(QualifiedName, Capacity)]>,
    pub taints: Box<[Taint]>,
    pub consumes: Box<[CounterConsumption]>,
    /// Only where the slice says `PerDevice`; then never `PerDevice` itself.
    pub nodes: Option<NodeScope>,
    /// Consumable capacity: several allocations may share the device.
    pub allow_multiple: bool,
    pub binds_to_node: bool,
    pub binding_conditions: Box<[Name]>,
    pub binding_failure_conditions: Box<[Name]>,
}

impl Device {
    pub fn attribute(&self, domain: &str, name: &str) -> Option<&AttributeValue> {
        // At most 32 entries: a scan beats a search.
        self.attributes
            .iter()
            .find(|(q, _)| &*q.name == name && &*q.domain == domain)
            .map(|(_, v)| v)
    }

    /// A string attribute; other types are not strings.
    pub fn string(&self, domain: &str, name: &str) -> Option<&Name> {
        match self.attribute(domain, name)? {
            AttributeValue::String(s) => Some(s),
            _ => None,
        }
    }

    /// A string attribute of this name in any domain: drivers move names between their own and the standard one.
    pub fn text(&self, name: &str) -> Option<&Name> {
        self.attributes.iter().find_map(|(q, v)| match v {
            AttributeValue::String(text) if &*q.name == name => Some(text),
            _ => None,
        })
    }

    /// A part of a card, as the NVIDIA and AMD drivers say it in `type`.
    pub fn is_partition(&self) -> bool {
        self.text("type")
            .is_some_and(|t| &**t == "mig" || t.ends_with("-partition"))
    }

    /// What a partition is called: `3g.40gb` of NVIDIA's `profile`, `cpx_nps4` of AMD's `partitionProfile`. AMD's whole
    /// cards have one, too (`spx_nps1`).
    pub fn profile(&self) -> Option<&Name> {
        self.text("profile").or_else(|| self.text("partitionProfile"))
    }

    pub fn capacity(&self, domain: &str, name: &str) -> Option<&Capacity> {
        self.capacity
            .iter()
            .find(|(q, _)| &*q.name == name && &*q.domain == domain)
            .map(|(_, c)| c)
    }
}

/// One ResourceSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    pub name: Name,
    pub driver: Name,
    pub pool: Name,
    pub generation: i64,
    /// How many slices the pool has in this generation.
    pub slice_count: i64,
    pub nodes: NodeScope,
    pub devices: Vec<Arc<Device>>,
    pub counter_sets: Vec<CounterSet>,
    /// Something in it this code does not know, in words: its pool is not allocated from.
    pub unsupported: Option<Name>,
}
