//! What is believed of how a node's cards are connected, and on whose word: the first of the sources that has anything to say.
//!
//! | source | says |
//! |---|---|
//! | `Probe` | the report, card by uuid or PCI bus id; a card the probe does not know is unknown to all others |
//! | `Product` | machines whose product and number of cards leave one answer: everyone reaches everyone |
//! | `PcieRoot` | equal root: PHB, the farthest below one root; different: by NUMA node as below; no NUMA node: unknown |
//! | `NumaNode` | same node: NODE, the farthest within one; different: SYS |
//! | `GfdLabels` | `nvidia.com/gpu.clique`: the node is part of an NVLink fabric |
//! | `None` | nothing |
//!
//! What drivers publish is about PCIe. Such a word is where cards are at the farthest; that they have an NVLink besides is
//! only known from a probe.

use std::collections::BTreeMap;

use super::{Link, Report, product};
use crate::model::{AttributeValue, Device, Name};

/// Whose word it is. In this order they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinkSource {
    Probe,
    Product,
    PcieRoot,
    NumaNode,
    GfdLabels,
    None,
}

impl LinkSource {
    /// As `explain` prints it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Probe => "probe",
            Self::Product => "product",
            Self::PcieRoot => "pcieRoot",
            Self::NumaNode => "numaNode",
            Self::GfdLabels => "gfdLabels",
            Self::None => "none",
        }
    }
}

/// The links between a node's whole cards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeLinks {
    /// Row by row in the order of the devices; symmetric, the diagonal `Unknown`.
    pub links: Vec<Link>,
    pub source: LinkSource,
}

/// A card as its driver publishes it, and the driver's name.
pub type Published<'a> = (&'a str, &'a Device);

const STANDARD: &str = "resource.kubernetes.io";

/// Decides for a node: its whole cards in the order in which the links are wanted, its labels, the report of its probe
/// if there is one that can be read.
pub fn node_links(devices: &[Published<'_>], labels: &BTreeMap<Name, Name>, report: Option<&Report>) -> NodeLinks {
    let said = |source, link: &dyn Fn(usize, usize) -> Link| NodeLinks {
        links: square(devices.len(), link),
        source,
    };
    let positions: Vec<Option<usize>> = devices.iter().map(|d| position(report?, d)).collect();
    let probed = said(LinkSource::Probe, &|a, b| match (report, positions[a], positions[b]) {
        // Two devices that are one card have no link.
        (Some(report), Some(x), Some(y)) if x != y => report.link(x, y).agreed(report.link(y, x)),
        _ => Link::Unknown,
    });
    if probed.knows() {
        return probed;
    }
    if let Some(link) = product::all_to_all(devices, labels) {
        return said(LinkSource::Product, &|_, _| link);
    }
    let roots: Vec<Option<&Name>> = devices.iter().map(|(_, d)| d.string(STANDARD, "pcieRoot")).collect();
    let numa: Vec<Vec<i64>> = devices.iter().map(numa_nodes).collect();
    let by_root = said(LinkSource::PcieRoot, &|a, b| match (roots[a], roots[b]) {
        (Some(x), Some(y)) if x == y => Link::Phb,
        _ => by_numa(&numa[a], &numa[b]),
    });
    if by_root.knows() {
        let source = if roots.iter().any(Option::is_some) {
            LinkSource::PcieRoot
        } else {
            LinkSource::NumaNode
        };
        return NodeLinks { source, ..by_root };
    }
    let clique = labels.get("nvidia.com/gpu.clique").is_some_and(|v| !v.is_empty());
    if clique && devices.iter().all(|(driver, _)| *driver == product::NVIDIA) {
        return said(LinkSource::GfdLabels, &|_, _| Link::NvSwitch);
    }
    said(LinkSource::None, &|_, _| Link::Unknown)
}

impl NodeLinks {
    /// Anything at all, of two cards and more.
    fn knows(&self) -> bool {
        self.links.iter().any(|l| *l != Link::Unknown)
    }
}

/// Which card of a report a device is. None: the probe does not know it.
pub fn position(report: &Report, device: &Published<'_>) -> Option<usize> {
    let (uuid, bus) = identity(device);
    report.position_of(uuid, bus)
}

/// Under what names a probe may know a device: uuid, PCI bus id. For `Report::card_of`.
pub fn identity<'a>(&(driver, device): &Published<'a>) -> (Option<&'a str>, Option<&'a str>) {
    let text = |domain: &str, name: &str| device.string(domain, name).map(|n| &**n);
    let bus = text(STANDARD, "pciBusID")
        // Earlier releases of both drivers.
        .or_else(|| text(driver, "pciBusID"))
        .or_else(|| text(driver, "pciAddr"));
    (text(driver, "uuid"), bus)
}

fn square(n: usize, link: &dyn Fn(usize, usize) -> Link) -> Vec<Link> {
    let pairs = (0..n).flat_map(|a| (0..n).map(move |b| (a, b)));
    pairs
        .map(|(a, b)| if a == b { Link::Unknown } else { link(a, b) })
        .collect()
}

/// One node, or several behind a feature gate; AMD publishes it in its own domain. Empty: not known.
fn numa_nodes(&(driver, device): &Published<'_>) -> Vec<i64> {
    let value = device
        .attribute(STANDARD, "numaNode")
        .or_else(|| device.attribute(driver, "numaNode"));
    let mut nodes = match value {
        Some(AttributeValue::Int(n)) => vec![*n],
        Some(AttributeValue::Ints(nodes)) => nodes.to_vec(),
        _ => vec![],
    };
    // The kernel says -1 where it does not know.
    nodes.retain(|n| *n >= 0);
    nodes
}

fn by_numa(a: &[i64], b: &[i64]) -> Link {
    match (a, b) {
        ([], _) | (_, []) => Link::Unknown,
        _ if a.iter().any(|n| b.contains(n)) => Link::Node,
        _ => Link::Sys,
    }
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
