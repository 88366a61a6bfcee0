//! What is believed of how a node's cards are connected: what a probe measured, else what product, PCIe root, NUMA node
//! or labels say, in that order. One source speaks for a node; what it does not say is unknown.

use super::{Link, Report};
use crate::model::{AttributeValue, Device, Labels, Name, normalised};

/// Where the links of a node come from, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinkSource {
    /// Measured on the node.
    Probe,
    /// All cards are of one product whose boards join all of them.
    Product,
    /// `pcieRoot` of the devices; their NUMA nodes where the roots differ.
    PcieRoot,
    NumaNode,
    /// GPU feature discovery: the product, or an NVLink domain (`nvidia.com/gpu.clique`).
    GfdLabels,
}

impl LinkSource {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Probe => "probe",
            Self::Product => "product",
            Self::PcieRoot => "pcieRoot",
            Self::NumaNode => "numaNode",
            Self::GfdLabels => "labels",
        }
    }
}

/// The pairs of some cards, row by row in their order, and who said so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Links {
    pub links: Vec<Link>,
    pub source: LinkSource,
    /// No two cards are joined by a fabric: a probe read every pair, or products that cannot be.
    pub bare: bool,
}

const STANDARD: &str = "resource.kubernetes.io";
const GFD_PRODUCT: &str = "nvidia.com/gpu.product";
const GFD_CLIQUE: &str = "nvidia.com/gpu.clique";
const NVIDIA: &str = "gpu.nvidia.com";

/// Products that come only on boards where every card reaches every other, through NVSwitches or by links between all of
/// them; and how many cards such a machine has at most. Spelled as `normalised` spells. V100-SXM2 is not here: its eights
/// are hybrid cube meshes, and which card is where no name tells; nor are cards that a bridge may join.
const ALL_TO_ALL: [(&str, Link, usize); 24] = [
    ("tesla v100 sxm3 32gb", Link::NvSwitch, 16),
    ("a100 sxm4 40gb", Link::NvSwitch, 8),
    ("a100 sxm4 80gb", Link::NvSwitch, 8),
    ("a800 sxm4 40gb", Link::NvSwitch, 8),
    ("a800 sxm4 80gb", Link::NvSwitch, 8),
    ("h100 80gb hbm3", Link::NvSwitch, 8),
    ("h100 64gb hbm2", Link::NvSwitch, 4),
    ("h800", Link::NvSwitch, 8),
    ("h20", Link::NvSwitch, 8),
    ("h20 3e", Link::NvSwitch, 8),
    ("h200", Link::NvSwitch, 8),
    ("b200", Link::NvSwitch, 8),
    ("b300 sxm6 ac", Link::NvSwitch, 8),
    ("gb200", Link::NvSwitch, 4),
    ("gb300", Link::NvSwitch, 4),
    ("gb300 nvl", Link::NvSwitch, 4),
    ("instinct mi300x", Link::Xgmi, 8),
    ("instinct mi300x oam", Link::Xgmi, 8),
    ("instinct mi325x", Link::Xgmi, 8),
    ("instinct mi325x oam", Link::Xgmi, 8),
    ("instinct mi350x", Link::Xgmi, 8),
    ("instinct mi350x oam", Link::Xgmi, 8),
    ("instinct mi355x", Link::Xgmi, 8),
    ("instinct mi355x oam", Link::Xgmi, 8),
];

/// What is known of the cards of one node, given as driver and device. None: nothing of any pair.
pub fn links(cards: &[(&Name, &Device)], labels: &Labels, report: Option<&Report>) -> Option<Links> {
    let sources: [(LinkSource, &dyn Fn() -> Vec<Link>); 5] = [
        (LinkSource::Probe, &|| {
            report.map_or_else(Vec::new, |r| reported(cards, r))
        }),
        (LinkSource::Product, &|| {
            of_product(cards, &|(driver, device)| device.string(driver, "productName").cloned())
        }),
        (LinkSource::PcieRoot, &|| by_root(cards)),
        (LinkSource::NumaNode, &|| pairs(cards, &|a, b| by_numa(a, b))),
        (LinkSource::GfdLabels, &|| by_labels(cards, labels)),
    ];
    sources.into_iter().find_map(|(source, links)| {
        let links = links();
        let pairs = || {
            (0..links.len())
                .filter(|i| i / cards.len() != i % cards.len())
                .map(|i| links[i])
        };
        let bare = match source {
            LinkSource::Probe => !pairs().any(|l| l == Link::Unknown || l.is_fabric()),
            _ => cards.iter().all(|c| never_linked(*c, labels)),
        };
        let says = pairs().any(|l| l != Link::Unknown);
        says.then_some(Links { links, source, bare })
    })
}

type Card<'a> = (&'a Name, &'a Device);

/// Words in the names of products that are joined by NVLink or XGMI, or that a bridge may join.
const LINKABLE: [&str; 26] = [
    "sxm2", "sxm3", "sxm4", "sxm5", "sxm6", "hbm3", "hbm3e", "gb200", "gb300", "gh200", "oam", "h20", "h100", "h200",
    "h800", "b200", "b300", "a100", "a800", "a30", "a40", "a6000", "v100", "p100", "nvl", "3090",
];

/// A product whose cards no fabric joins. Of one that is not known by name nothing else is assumed: nearly all that are
/// joined are in the list, and a probe would say so.
fn never_linked((driver, device): Card<'_>, labels: &Labels) -> bool {
    let labelled = || labels.get(GFD_PRODUCT).filter(|_| **driver == *NVIDIA);
    let product = device
        .string(driver, "productName")
        .or_else(labelled)
        .map(|p| normalised(p));
    let linkable = |word: &str| LINKABLE.contains(&word) || word.starts_with("mi2") || word.starts_with("mi3");
    !product.is_some_and(|p| p.split(' ').any(linkable)) && !labels.contains_key(GFD_CLIQUE)
}

/// Row by row, by position; nothing is said of a card and itself.
fn square(n: usize, link: impl Fn(usize, usize) -> Link) -> Vec<Link> {
    let cell = |i: usize| (i / n, i % n);
    let cells = (0..n * n).map(cell);
    cells
        .map(|(a, b)| if a == b { Link::Unknown } else { link(a, b) })
        .collect()
}

fn pairs(cards: &[Card<'_>], link: &dyn Fn(Card<'_>, Card<'_>) -> Link) -> Vec<Link> {
    square(cards.len(), |a, b| link(cards[a], cards[b]))
}

/// A card the probe does not know is far from all others.
fn reported(cards: &[Card<'_>], report: &Report) -> Vec<Link> {
    let positions: Vec<Option<usize>> = cards.iter().map(|(_, device)| report.position_for(device)).collect();
    square(cards.len(), |a, b| match (positions[a], positions[b]) {
        // Two devices of one card are not joined by a link.
        (Some(a), Some(b)) if a != b => report.link(a, b).agreed(report.link(b, a)),
        _ => Link::Unknown,
    })
}

/// Cards of another product beside them change nothing between those of one.
fn of_product(cards: &[Card<'_>], product: &dyn Fn(Card<'_>) -> Option<Name>) -> Vec<Link> {
    let products: Vec<Option<String>> = cards.iter().map(|c| product(*c).map(|p| normalised(&p))).collect();
    square(cards.len(), |a, b| {
        let of_it = |p: &&Option<String>| **p == products[a];
        let known = ALL_TO_ALL
            .iter()
            .find(|(name, ..)| products[a].as_deref() == Some(*name));
        match known.filter(|_| products[a] == products[b]) {
            Some((_, link, most)) if products.iter().filter(of_it).count() <= *most => *link,
            _ => Link::Unknown,
        }
    })
}

/// An equal root says no more than "below one host bridge"; else the NUMA nodes say how far they are.
fn by_root(cards: &[Card<'_>]) -> Vec<Link> {
    let root = |(_, device): Card<'_>| device.string(STANDARD, "pcieRoot").cloned();
    if cards.iter().all(|c| root(*c).is_none()) {
        return vec![];
    }
    pairs(cards, &|a, b| match (root(a), root(b)) {
        (Some(x), Some(y)) if x == y => Link::Phb,
        _ => by_numa(a, b),
    })
}

fn by_numa(a: Card<'_>, b: Card<'_>) -> Link {
    match (numa(a), numa(b)) {
        (Some(a), Some(b)) if a.iter().any(|n| b.contains(n)) => Link::Node,
        (Some(_), Some(_)) => Link::Sys,
        _ => Link::Unknown,
    }
}

/// The NUMA nodes a device is near; one, or a list of them. Negative: the kernel does not know.
fn numa((driver, device): Card<'_>) -> Option<&[i64]> {
    let value = device
        .attribute(STANDARD, "numaNode")
        .or_else(|| device.attribute(driver, "numaNode"));
    let nodes = match value? {
        AttributeValue::Int(n) => std::slice::from_ref(n),
        AttributeValue::Ints(list) => list,
        _ => return None,
    };
    (!nodes.is_empty() && nodes.iter().all(|n| *n >= 0)).then_some(nodes)
}

fn by_labels(cards: &[Card<'_>], labels: &Labels) -> Vec<Link> {
    // The labels speak of NVIDIA's cards; feature discovery knows one product a node.
    if cards.iter().any(|(driver, _)| ***driver != *NVIDIA) {
        return vec![];
    }
    if labels.get(GFD_CLIQUE).is_some_and(|c| !c.is_empty()) {
        return pairs(cards, &|_, _| Link::NvSwitch);
    }
    let silent = |(driver, device): &Card<'_>| device.string(driver, "productName").is_none();
    let labelled = labels.get(GFD_PRODUCT).filter(|_| cards.iter().all(silent));
    of_product(cards, &|_| labelled.cloned())
}

#[cfg(test)]
mod tests;
