//! Wattage classes: what a device is called and what it may draw.

use super::{Device, Labels, Name};

/// Where a watt figure comes from, strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WattOrigin {
    Policy,
    /// The built-in product table.
    Table,
    Unknown,
}

/// Class and watts of one device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Classified {
    /// None: not a device with a product (a NIC, a compute-domain channel); it never counts as a mix.
    pub class: Option<Name>,
    /// Board power limit in watts. None: unknown.
    pub watts: Option<u32>,
    pub origin: WattOrigin,
}

/// Gives every device its class. `policy` implements it; the index calls it when a pool, a node's
/// labels or the policy change, never on the request path.
pub trait Classifier: Send + Sync {
    /// `labels` and `annotations` are those of the node the device is local to; empty for others.
    fn classify(&self, driver: &Name, device: &Device, labels: &Labels, annotations: &Labels) -> Classified;
}
