//! Machines in which every card reaches every other, known from product and number. Only where the two leave no other
//! answer: V100-SXM2 is a hybrid cube mesh, four A100-SXM4 are a mesh or part of eight, PCIe cards may have bridges or not.
//! A node that shows fewer cards than its machine has (one in MIG mode, one lost, a virtual machine with a part of the
//! fabric) is not determined either.

use std::collections::BTreeMap;

use super::Link;
use super::source::Published;
use crate::model::Name;

pub(super) const NVIDIA: &str = "gpu.nvidia.com";
const AMD: &str = "gpu.amd.com";

/// Words of the product name, and the numbers of cards its machines come in.
const MACHINES: &[(&str, &[&str], &[usize], Link)] = &[
    (
        NVIDIA,
        &[
            "a100 sxm4 40gb",
            "a100 sxm4 80gb",
            "a800 sxm4 40gb",
            "a800 sxm4 80gb",
            "h100 80gb hbm3",
            "h800",
            "h20",
            "h200",
            "b200",
            "b300 sxm6 ac",
        ],
        &[8],
        Link::NvSwitch,
    ),
    (NVIDIA, &["v100 sxm3 32gb"], &[16], Link::NvSwitch),
    // Compute trays of two or four; all of a tray are on the same switches.
    (NVIDIA, &["gb200", "gb300"], &[2, 4], Link::NvSwitch),
    (
        AMD,
        &[
            "instinct mi300x",
            "instinct mi300x oam",
            "instinct mi325x",
            "instinct mi325x oam",
            "instinct mi350x",
            "instinct mi350x oam",
            "instinct mi355x",
            "instinct mi355x oam",
        ],
        &[8],
        Link::Xgmi,
    ),
];

/// Some: all cards of the node are of one such product, in a number its machines come in.
pub(super) fn all_to_all(devices: &[Published<'_>], labels: &BTreeMap<Name, Name>) -> Option<Link> {
    let (driver, _) = *devices.first()?;
    // What feature discovery says is of the whole node, and NVIDIA's.
    let label = labels.get("nvidia.com/gpu.product").filter(|_| driver == NVIDIA);
    let name = |(d, device): &Published<'_>| {
        let published = device.string(d, "productName").or(label);
        published.filter(|_| *d == driver).map(|n| words(n))
    };
    let product = name(devices.first()?)?;
    let one_product = devices.iter().all(|d| name(d).as_ref() == Some(&product));
    let found = MACHINES.iter().find(|(of, names, numbers, _)| {
        *of == driver && names.contains(&product.as_str()) && numbers.contains(&devices.len())
    });
    found.filter(|_| one_product).map(|(.., link)| *link)
}

/// `NVIDIA-H100-80GB-HBM3-SHARED`, `Tesla V100-SXM3-32GB`, `AMD_Instinct_MI300X_OAM`: lower case, without the maker.
fn words(product: &str) -> String {
    let lower = product.to_lowercase();
    let words: Vec<&str> = lower.split([' ', '_', '-']).filter(|w| !w.is_empty()).collect();
    let words = words.strip_suffix(&["shared"]).unwrap_or(&words);
    let start = words
        .iter()
        .take_while(|w| matches!(**w, "nvidia" | "tesla" | "amd"))
        .count();
    words[start..].join(" ")
}
