//! What a probe found on a node.

use super::Link;
use crate::model::Name;

/// One card, in the order of the tool that listed it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ReportedCard {
    /// As the driver publishes it (`GPU-…`). None: the tool did not say.
    pub uuid: Option<Name>,
    pub name: Option<Name>,
    /// The limit that is in force, in watts, rounded. None: not known.
    pub power_limit_watts: Option<u32>,
    pub numa_node: Option<u16>,
    /// As the kernel writes it, `0000:01:00.0`, lower case.
    pub pci_bus_id: Option<Name>,
}

/// All cards of a node and what lies between them.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Report {
    pub cards: Vec<ReportedCard>,
    /// Row by row, `cards.len()` squared; what is on the diagonal means nothing. `Unknown` where nothing was readable.
    pub links: Vec<Link>,
}

impl Report {
    /// Between two cards of the report, by position.
    pub fn link(&self, a: usize, b: usize) -> Link {
        let n = self.cards.len();
        if a < n && b < n {
            self.links.get(a * n + b).copied().unwrap_or(Link::Unknown)
        } else {
            Link::Unknown
        }
    }
}
