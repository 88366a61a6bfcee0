//! Modes that a whole node has: attributes in which all devices of a node that are in use at a time agree, by the
//! drivers of which that is so. A driver that is not named here has no such mode.

use super::{Device, Name};

/// Driver, and attribute in its own domain.
///
/// The memory mode (NPS) of AMD's cards is one for all cards of a node, and AMD's driver puts it in force when a claim is
/// prepared (ROCm/k8s-gpu-dra-driver, AutoPartition): then the devices of every other mode, of all cards, are out of
/// reach. It publishes one pool a node. Where cards are cut beforehand they are published as they are (`partitionProfile`),
/// without this attribute, and there is nothing to agree on.
const OF_NODE: [(&str, &str); 1] = [("gpu.amd.com", "memoryPartition")];

/// The attribute in which devices of the driver agree.
pub fn node_mode(driver: &str) -> Option<&'static str> {
    OF_NODE
        .iter()
        .find(|(of, _)| *of == driver)
        .map(|(_, attribute)| *attribute)
}

impl Device {
    /// The mode of the node that the device needs, as the driver publishes it. None: any.
    pub fn node_mode(&self, driver: &str) -> Option<&Name> {
        self.string(driver, node_mode(driver)?)
    }
}
