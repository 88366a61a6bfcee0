use std::sync::Arc;

use super::{LinkSource, links};
use crate::model::{AttributeValue, Device, Labels, Name, QualifiedName};
use crate::topology::{Link, Report, ReportedCard};

fn text(t: &str) -> AttributeValue {
    AttributeValue::String(t.into())
}

fn card(driver: &str, attributes: &[(&str, AttributeValue)]) -> (Name, Device) {
    let driver: Name = driver.into();
    let named = |(name, value): &(&str, AttributeValue)| (QualifiedName::parse(name, &driver), value.clone());
    let device = Device {
        name: "gpu".into(),
        attributes: attributes.iter().map(named).collect(),
        ..Device::default()
    };
    (driver, device)
}

fn nvidia(attributes: &[(&str, AttributeValue)]) -> (Name, Device) {
    card("gpu.nvidia.com", attributes)
}

/// Who said what of the pairs 0-1, 0-2, 1-2 (of two cards: 0-1 alone).
fn said(cards: &[(Name, Device)], labels: &[(&str, &str)], report: Option<&Report>) -> Option<(LinkSource, String)> {
    let labels: Labels = Arc::new(labels.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect());
    let cards: Vec<_> = cards.iter().map(|(driver, device)| (driver, device)).collect();
    let n = cards.len();
    let found = links(&cards, &labels, report)?;
    assert_eq!(found.links.len(), n * n);
    let pairs = (0..n).flat_map(|a| (a + 1..n).map(move |b| (a, b)));
    let words: Vec<String> = pairs
        .map(|(a, b)| {
            assert_eq!(found.links[a * n + b], found.links[b * n + a]);
            found.links[a * n + b].to_string()
        })
        .collect();
    Some((found.source, words.join(" ")))
}

fn is(source: LinkSource, words: &str) -> Option<(LinkSource, String)> {
    Some((source, words.to_owned()))
}

#[test]
fn a_probe_goes_before_all_and_matches_by_uuid_or_bus() {
    let product = || ("productName", text("NVIDIA H100 80GB HBM3"));
    let cards = [
        nvidia(&[("uuid", text("GPU-b")), product()]),
        nvidia(&[
            ("uuid", text("GPU-x")),
            ("resource.kubernetes.io/pciBusID", text("0000:01:00.0")),
            product(),
        ]),
        nvidia(&[("uuid", text("GPU-unseen")), product()]),
    ];
    let seen = |uuid: Option<&str>, bus: Option<&str>| ReportedCard {
        uuid: uuid.map(Into::into),
        pci_bus_id: bus.map(Into::into),
        ..ReportedCard::default()
    };
    let mut report = Report {
        cards: vec![seen(None, Some("0000:01:00.0")), seen(Some("GPU-b"), None)],
        links: vec![Link::Unknown, Link::Pix, Link::Pix, Link::Unknown],
    };
    assert_eq!(said(&cards, &[], Some(&report)), is(LinkSource::Probe, "PIX ? ?"));
    report.links[1] = Link::Sys;
    // A probe that says nothing readable of any pair is no source.
    assert_eq!(said(&cards, &[], Some(&report)), is(LinkSource::Product, "NVS NVS NVS"));
}

#[test]
fn products_that_join_all_and_names_that_only_look_like_them() {
    let two = |a: &str, b: &str| [nvidia(&[("productName", text(a))]), nvidia(&[("productName", text(b))])];
    for product in [
        "NVIDIA H100 80GB HBM3",
        "NVIDIA A100-SXM4-80GB",
        "NVIDIA GB200",
        "NVIDIA H20",
    ] {
        assert_eq!(
            said(&two(product, product), &[], None),
            is(LinkSource::Product, "NVS"),
            "{product}"
        );
    }
    for product in [
        "NVIDIA H100 PCIe",
        "NVIDIA H200 NVL",
        "Tesla V100-SXM2-32GB",
        "NVIDIA A100 80GB PCIe",
        "NVIDIA L4",
    ] {
        assert_eq!(said(&two(product, product), &[], None), None, "{product}");
    }
    assert_eq!(
        said(&two("NVIDIA H100 80GB HBM3", "NVIDIA H200"), &[], None),
        None,
        "not one board"
    );
    let nine: Vec<_> = (0..9)
        .map(|_| nvidia(&[("productName", text("NVIDIA H100 80GB HBM3"))]))
        .collect();
    assert_eq!(said(&nine, &[], None), None, "more than one machine of them has");
    let amd = || card("gpu.amd.com", &[("productName", text("AMD_Instinct_MI300X_OAM"))]);
    assert_eq!(said(&[amd(), amd()], &[], None), is(LinkSource::Product, "XGMI"));
}

#[test]
fn roots_then_numa_nodes() {
    let at = |root: &str, numa: AttributeValue| {
        nvidia(&[
            ("resource.kubernetes.io/pcieRoot", text(root)),
            ("resource.kubernetes.io/numaNode", numa),
        ])
    };
    let int = AttributeValue::Int;
    let cards = [
        at("pci0000:01", int(0)),
        at("pci0000:01", int(0)),
        at("pci0000:40", int(0)),
    ];
    assert_eq!(said(&cards, &[], None), is(LinkSource::PcieRoot, "PHB NODE NODE"));
    let cards = [
        at("pci0000:01", int(0)),
        at("pci0000:02", int(1)),
        at("pci0000:40", int(-1)),
    ];
    assert_eq!(said(&cards, &[], None), is(LinkSource::PcieRoot, "SYS ? ?"));
    let numa = |name: &str, n: AttributeValue| card("gpu.amd.com", &[(name, n)]);
    let list = AttributeValue::Ints([1, 2].into());
    let cards = [
        numa("numaNode", int(1)),
        numa("resource.kubernetes.io/numaNode", list),
        numa("numaNode", int(3)),
    ];
    assert_eq!(said(&cards, &[], None), is(LinkSource::NumaNode, "NODE SYS SYS"));
    assert_eq!(said(&[nvidia(&[]), nvidia(&[])], &[], None), None);
}

#[test]
fn labels_come_last_and_speak_of_nvidia_only() {
    let bare = || nvidia(&[]);
    let clique = [("nvidia.com/gpu.clique", "abc.1")];
    assert_eq!(said(&[bare(), bare()], &clique, None), is(LinkSource::GfdLabels, "NVS"));
    assert_eq!(said(&[bare(), card("other.com", &[])], &clique, None), None);
    let product = [("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3")];
    assert_eq!(
        said(&[bare(), bare()], &product, None),
        is(LinkSource::GfdLabels, "NVS")
    );
    let named = nvidia(&[("productName", text("NVIDIA L4"))]);
    assert_eq!(
        said(&[named.clone(), named], &product, None),
        None,
        "the device knows better"
    );
}

/// Whether it is known that no fabric joins the cards.
fn bare(cards: &[(Name, Device)], report: Option<&Report>) -> bool {
    let cards: Vec<_> = cards.iter().map(|(driver, device)| (driver, device)).collect();
    links(&cards, &Labels::default(), report)
        .expect("something is known")
        .bare
}

#[test]
fn only_who_read_every_pair_or_knows_the_product_says_that_there_is_no_fabric() {
    let of = |product: &str, uuid: &str| {
        nvidia(&[
            ("productName", text(product)),
            ("uuid", text(uuid)),
            ("resource.kubernetes.io/pcieRoot", text("pci0000:01")),
        ])
    };
    for (product, want) in [
        ("NVIDIA L40S", true),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", true),
        ("Somebody's Card", true),
        ("Tesla V100-SXM2-32GB", false),
        ("NVIDIA A100 80GB PCIe", false),
        ("NVIDIA GeForce RTX 3090", false),
    ] {
        assert_eq!(bare(&[of(product, "a"), of(product, "b")], None), want, "{product}");
    }
    let cards = [
        of("NVIDIA A100 80GB PCIe", "a"),
        of("NVIDIA A100 80GB PCIe", "b"),
        of("NVIDIA A100 80GB PCIe", "c"),
    ];
    let report = |bc| {
        let card = |uuid: &str| ReportedCard {
            uuid: Some(uuid.into()),
            ..ReportedCard::default()
        };
        let x = Link::Unknown;
        let links = vec![x, Link::Pix, Link::Sys, Link::Pix, x, bc, Link::Sys, bc, x];
        Report {
            cards: ["a", "b", "c"].map(card).into(),
            links,
        }
    };
    assert!(bare(&cards, Some(&report(Link::Sys))));
    assert!(
        !bare(&cards, Some(&report(Link::Unknown))),
        "what was not read may be NVLink"
    );
    assert!(!bare(&cards, Some(&report(Link::NvLink(4)))));
}
