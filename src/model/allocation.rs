//! What a claim was given: the shape of `status.allocation`.

use std::sync::Arc;

use super::{Name, NodeSelector, QualifiedName, Quantity, Toleration};

/// Identity of a device in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId {
    pub driver: Name,
    pub pool: Name,
    pub device: Name,
}

impl std::fmt::Display for DeviceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.driver, self.pool, self.device)
    }
}

/// One entry of `allocation.devices.results`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceResult {
    /// `request`, or `request/subrequest`.
    pub request: Name,
    pub id: DeviceId,
    /// Does not consume the device.
    pub admin_access: bool,
    pub tolerations: Vec<Toleration>,
    pub binding_conditions: Vec<Name>,
    pub binding_failure_conditions: Vec<Name>,
    /// Set for a share of a device that allows multiple allocations (a UUID).
    pub share_id: Option<Name>,
    /// Named as the slice spells it; without a domain there, with the empty one here.
    pub consumed_capacity: Vec<(QualifiedName, Quantity)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    FromClass,
    FromClaim,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocatedConfig {
    pub source: ConfigSource,
    pub requests: Vec<Name>,
    pub driver: Name,
    /// JSON text.
    pub parameters: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Allocation {
    pub results: Vec<DeviceResult>,
    pub config: Vec<AllocatedConfig>,
    /// Where the devices can be reached from; None: from everywhere.
    pub node_selector: Option<Arc<NodeSelector>>,
}
