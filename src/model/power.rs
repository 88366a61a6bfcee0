//! Wattage classes and power domains: what a device is called, what it may draw, and which budgets a node draws from.

use super::{Device, Labels, Name};

/// Where a watt figure comes from, strongest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WattOrigin {
    /// The limit in force, as a probe on the node read it.
    Measured,
    Policy,
    /// The built-in product table.
    Table,
    #[default]
    Unknown,
}

impl WattOrigin {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Policy => "policy",
            Self::Table => "table",
            Self::Unknown => "unknown",
        }
    }
}

/// Class and watts of one device. Of the default nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Classified {
    /// None: not a device with a product (a NIC, a compute-domain channel); it never counts as a mix, and no power
    /// budget counts it.
    pub class: Option<Name>,
    /// Board power limit in watts. None: unknown.
    pub watts: Option<u32>,
    pub origin: WattOrigin,
    /// What the whole card may draw, in watts: `watts` for a whole card, and known for a partition too, whose own draw
    /// is not.
    pub board: Option<u32>,
}

/// A power domain a node is in: one value of one of the labels the policy names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Budget {
    pub label: Name,
    pub value: Name,
    /// Watts.
    pub watts: u64,
}

/// What policy says of devices and nodes. `policy` implements it; the index calls it when a pool, a node's labels or
/// the policy change, never on the request path.
pub trait Classifier: Send + Sync {
    /// `labels` and `annotations` are those of the node the device is local to; empty for others.
    fn classify(&self, driver: &Name, device: &Device, labels: &Labels, annotations: &Labels) -> Classified;

    /// The power domains of a node with these labels that have a budget, each label at most once.
    fn budgets(&self, _labels: &Labels) -> Vec<Budget> {
        vec![]
    }

    /// Pods that a shared claim of a namespace with these labels may have at a time, whatever the claim says; None: the
    /// namespace is not known.
    fn slots(&self, _namespace: Option<&Labels>) -> u32 {
        u32::MAX
    }

    /// The DeviceClass whose devices the policy gives for the extended resource.
    fn device_class(&self, _resource: &str) -> Option<Name> {
        None
    }

    /// The power domains the policy names, whether or not a node is in them.
    fn named_budgets(&self) -> Vec<Budget> {
        vec![]
    }
}

/// No device has a class or watts, as where there is no policy: the rule of one class never bites.
#[derive(Clone, Copy, Debug)]
pub struct Unclassified;

impl Classifier for Unclassified {
    fn classify(&self, _: &Name, _: &Device, _: &Labels, _: &Labels) -> Classified {
        Classified::default()
    }
}
