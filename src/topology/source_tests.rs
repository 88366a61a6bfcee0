//! Who is believed, and what follows.

use super::{LinkSource, identity, node_links};
use crate::model::{AttributeValue, Device, Labels, QualifiedName};
use crate::topology::{Link, Report, ReportedCard};

const NVIDIA: &str = "gpu.nvidia.com";
const AMD: &str = "gpu.amd.com";

fn text(value: &str) -> AttributeValue {
    AttributeValue::String(value.into())
}

/// Attributes by `domain/name`, or by `name` in the driver's domain.
fn device(driver: &str, attributes: &[(&str, AttributeValue)]) -> Device {
    let mut attributes: Vec<_> = attributes
        .iter()
        .map(|(k, v)| (QualifiedName::parse(k, &driver.into()), v.clone()))
        .collect();
    attributes.sort_by(|a, b| a.0.cmp(&b.0));
    Device {
        name: "gpu".into(),
        attributes: attributes.into(),
        capacity: Box::default(),
        taints: Box::default(),
        consumes: Box::default(),
        nodes: None,
        allow_multiple: false,
        binds_to_node: false,
        binding_conditions: Box::default(),
        binding_failure_conditions: Box::default(),
    }
}

fn ask(driver: &str, devices: &[Device], labels: &[(&str, &str)], report: Option<&Report>) -> (LinkSource, Vec<Link>) {
    let devices: Vec<_> = devices.iter().map(|d| (driver, d)).collect();
    let labels = Labels::new(labels.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect());
    let found = node_links(&devices, &labels, report);
    let n = devices.len();
    assert_eq!(found.links.len(), n * n);
    for a in 0..n {
        assert_eq!(found.links[a * n + a], Link::Unknown);
        for b in 0..n {
            assert_eq!(found.links[a * n + b], found.links[b * n + a]);
        }
    }
    let upper = (0..n).flat_map(|a| (a + 1..n).map(move |b| a * n + b));
    (found.source, upper.map(|i| found.links[i]).collect())
}

fn products(driver: &str, name: &str, n: usize) -> Vec<Device> {
    (0..n).map(|_| device(driver, &[("productName", text(name))])).collect()
}

/// Three cards: 0-1 NV4, the rest SYS.
fn report() -> Report {
    let card = |i: usize| ReportedCard {
        uuid: Some(format!("GPU-{i}").into()),
        pci_bus_id: Some(format!("0000:0{i}:00.0").into()),
        ..ReportedCard::default()
    };
    let mut links = vec![Link::Sys; 9];
    links[1] = Link::NvLink(4);
    links[3] = Link::NvLink(4);
    Report {
        cards: (0..3).map(card).collect(),
        links,
    }
}

#[test]
fn a_probe_by_uuid_and_bus_id_in_device_order() {
    let devices = [
        device(NVIDIA, &[("uuid", text("GPU-2"))]),
        device(NVIDIA, &[("resource.kubernetes.io/pciBusID", text("0000:01:00.0"))]),
        device(NVIDIA, &[("uuid", text("GPU-strange"))]),
        device(NVIDIA, &[("uuid", text("GPU-0"))]),
    ];
    let (source, links) = ask(NVIDIA, &devices, &[], Some(&report()));
    assert_eq!(source, LinkSource::Probe);
    let (s, u) = (Link::Sys, Link::Unknown);
    assert_eq!(links, [s, u, s, u, Link::NvLink(4), u]);
}

#[test]
fn a_probe_beats_the_product_and_one_that_knows_nobody_is_none() {
    let mut devices = products(NVIDIA, "NVIDIA H100 80GB HBM3", 8);
    assert_eq!(ask(NVIDIA, &devices, &[], Some(&report())).0, LinkSource::Product);
    for (i, d) in devices.iter_mut().take(2).enumerate() {
        let uuid = text(&format!("GPU-{i}"));
        *d = device(
            NVIDIA,
            &[("uuid", uuid), ("productName", text("NVIDIA H100 80GB HBM3"))],
        );
    }
    let (source, links) = ask(NVIDIA, &devices, &[], Some(&report()));
    assert_eq!(source, LinkSource::Probe);
    assert_eq!(links.iter().filter(|l| **l == Link::Unknown).count(), 27);
}

#[test]
fn one_card_in_two_devices_has_no_link() {
    let twice = [
        device(NVIDIA, &[("uuid", text("GPU-0"))]),
        device(NVIDIA, &[("uuid", text("GPU-0"))]),
    ];
    assert_eq!(
        ask(NVIDIA, &twice, &[], Some(&report())),
        (LinkSource::None, vec![Link::Unknown])
    );
}

#[test]
fn a_report_at_odds_with_itself_is_unknown_there() {
    let mut report = report();
    report.links[1] = Link::Pix;
    let devices: Vec<_> = (0..3)
        .map(|i| device(NVIDIA, &[("uuid", text(&format!("GPU-{i}")))]))
        .collect();
    assert_eq!(
        ask(NVIDIA, &devices, &[], Some(&report)).1,
        [Link::Unknown, Link::Sys, Link::Sys]
    );
}

#[test]
fn machines_that_their_product_determines() {
    for (driver, name, n, want) in [
        (NVIDIA, "NVIDIA H100 80GB HBM3", 8, Link::NvSwitch),
        (NVIDIA, "NVIDIA H200", 8, Link::NvSwitch),
        (NVIDIA, "NVIDIA H20", 8, Link::NvSwitch),
        (NVIDIA, "NVIDIA B200", 8, Link::NvSwitch),
        (NVIDIA, "NVIDIA B300 SXM6 AC", 8, Link::NvSwitch),
        (NVIDIA, "NVIDIA A100-SXM4-40GB", 8, Link::NvSwitch),
        (NVIDIA, "Tesla V100-SXM3-32GB", 16, Link::NvSwitch),
        (NVIDIA, "NVIDIA GB200", 4, Link::NvSwitch),
        (AMD, "AMD_Instinct_MI300X_OAM", 8, Link::Xgmi),
    ] {
        let (source, links) = ask(driver, &products(driver, name, n), &[], None);
        assert_eq!(source, LinkSource::Product, "{name}");
        assert!(links.iter().all(|l| *l == want), "{name}");
    }
    for (driver, name, n) in [
        (NVIDIA, "Tesla V100-SXM2-32GB", 8),
        (NVIDIA, "NVIDIA H200 NVL", 8),
        (NVIDIA, "NVIDIA H100 PCIe", 8),
        (NVIDIA, "NVIDIA H100 NVL", 8),
        (NVIDIA, "NVIDIA A100-SXM4-80GB", 4),
        (NVIDIA, "NVIDIA A100 80GB PCIe", 8),
        (NVIDIA, "NVIDIA H100 80GB HBM3", 7),
        (NVIDIA, "NVIDIA GH200 480GB", 4),
        (NVIDIA, "NVIDIA GB200", 3),
        (NVIDIA, "NVIDIA L40S", 8),
        (AMD, "AMD_Instinct_MI250X", 8),
        (AMD, "NVIDIA H200", 8),
    ] {
        assert_eq!(
            ask(driver, &products(driver, name, n), &[], None).0,
            LinkSource::None,
            "{name}"
        );
    }
    let mut mixed = products(NVIDIA, "NVIDIA H200", 7);
    mixed.extend(products(NVIDIA, "NVIDIA H200 NVL", 1));
    assert_eq!(ask(NVIDIA, &mixed, &[], None).0, LinkSource::None);
}

#[test]
fn the_product_may_come_from_a_label() {
    let nameless: Vec<_> = (0..8).map(|_| device(NVIDIA, &[])).collect();
    let found = |product| ask(NVIDIA, &nameless, &[("nvidia.com/gpu.product", product)], None).0;
    assert_eq!(found("NVIDIA-H100-80GB-HBM3-SHARED"), LinkSource::Product);
    assert_eq!(found("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"), LinkSource::None);
    let amd: Vec<_> = (0..8).map(|_| device(AMD, &[])).collect();
    assert_eq!(
        ask(AMD, &amd, &[("nvidia.com/gpu.product", "NVIDIA-H200")], None).0,
        LinkSource::None
    );
}

#[test]
fn roots_then_numa_nodes() {
    let at = |root: Option<&str>, numa: Option<AttributeValue>| {
        let root = root.map(|r| ("resource.kubernetes.io/pcieRoot", text(r)));
        let numa = numa.map(|n| ("resource.kubernetes.io/numaNode", n));
        device(NVIDIA, &root.into_iter().chain(numa).collect::<Vec<_>>())
    };
    let int = |n| Some(AttributeValue::Int(n));
    let ints = |n: &[i64]| Some(AttributeValue::Ints(n.into()));
    let devices = [
        at(Some("pci0000:15"), int(0)),
        at(Some("pci0000:15"), None),
        at(Some("pci0000:20"), int(0)),
        at(Some("pci0000:a0"), int(1)),
    ];
    let (phb, node, sys, u) = (Link::Phb, Link::Node, Link::Sys, Link::Unknown);
    let want = vec![phb, node, sys, u, u, sys];
    assert_eq!(ask(NVIDIA, &devices, &[], None), (LinkSource::PcieRoot, want));

    let devices = [
        at(None, ints(&[0])),
        at(None, ints(&[0, 1])),
        at(None, int(1)),
        at(None, int(-1)),
    ];
    let want = vec![node, sys, u, node, u, u];
    assert_eq!(ask(NVIDIA, &devices, &[], None), (LinkSource::NumaNode, want));

    // AMD's own domain.
    let own = |n| device(AMD, &[("numaNode", AttributeValue::Int(n))]);
    assert_eq!(
        ask(AMD, &[own(0), own(1)], &[], None),
        (LinkSource::NumaNode, vec![sys])
    );
}

#[test]
fn a_clique_label_is_a_fabric_and_nothing_is_nothing() {
    let devices = [device(NVIDIA, &[]), device(NVIDIA, &[])];
    let label = [("nvidia.com/gpu.clique", "8dafd825.32766")];
    assert_eq!(
        ask(NVIDIA, &devices, &label, None),
        (LinkSource::GfdLabels, vec![Link::NvSwitch])
    );
    assert_eq!(ask(AMD, &devices, &label, None).0, LinkSource::None);
    assert_eq!(
        ask(NVIDIA, &devices, &[], None),
        (LinkSource::None, vec![Link::Unknown])
    );
    assert_eq!(ask(NVIDIA, &[], &label, None).1, []);
}

#[test]
fn names_of_earlier_releases() {
    let old = device(AMD, &[("pciAddr", text("0000:05:00.0"))]);
    assert_eq!(identity(&(AMD, &old)), (None, Some("0000:05:00.0")));
}
