//! The device the tables are about.

use std::sync::Arc;

use wattlane::model::{AttributeValue, Capacity, Device, Labels, Name, QualifiedName};
use wattlane::selector::Selectors;

pub(crate) const DRIVER: &str = "gpu.example.com";

pub(crate) fn name(text: &str) -> Name {
    text.into()
}

pub(crate) fn labels(pairs: &[(&str, &str)]) -> Labels {
    Arc::new(pairs.iter().map(|(k, v)| (name(k), name(v))).collect())
}

pub(crate) fn answer(text: &str) -> Result<bool, String> {
    let selector = Selectors::new().selector(&name(text));
    selector.matches(&name(DRIVER), &gpu(), None).map_err(|e| e.to_string())
}

pub(crate) fn compile_error(text: &str) -> Option<String> {
    let selector = Selectors::new().selector(&name(text));
    selector.compile_error().map(ToString::to_string)
}

pub(crate) fn gpu() -> Device {
    use AttributeValue::{Bool, Bools, Int, Ints, String, Strings, Version, Versions};
    let names = |all: &[&str]| all.iter().map(|s| name(s)).collect();
    let qualified = |text: &str| QualifiedName::parse(text, &name(DRIVER));
    let product = "NVIDIA RTX PRO 6000 Blackwell Server Edition";
    let mut attributes = [
        ("productName", String(name(product))),
        ("architecture", String(name("Blackwell"))),
        ("index", Int(3)),
        ("cores", Int(188)),
        ("ecc", Bool(true)),
        ("display", Bool(false)),
        ("driverVersion", Version(name("580.95.5"))),
        ("beta", Version(name("1.2.3-beta.1+build7"))),
        ("empty", String(name(""))),
        ("unicode", String(name("größe✌"))),
        ("modes", Strings(names(&["graphics", "compute", "mig"]))),
        ("lanes", Ints([4, 8, 16].into())),
        ("flags", Bools([true, false].into())),
        ("versions", Versions(names(&["1.0.0", "2.0.0"]))),
        ("resource.kubernetes.io/pcieRoot", String(name("pci0000:01"))),
        ("resource.kubernetes.io/pciBusID", String(name("0000:01:00.0"))),
        ("net.example.com/ip", String(name("10.1.2.3"))),
        (
            "net.example.com/url",
            String(name("https://example.com:8080/a%20b?x=1&y=2")),
        ),
    ]
    .map(|(n, value)| (qualified(n), value));
    let mut capacity = [
        ("memory", "97887Mi"),
        ("half", "500m"),
        ("net.example.com/bandwidth", "100G"),
    ]
    .map(|(n, q)| {
        let value = q.parse().expect("a quantity");
        let capacity = Capacity {
            value,
            domain_written: n.contains('/'),
            policy: None,
        };
        (qualified(n), capacity)
    });
    attributes.sort_by(|a, b| a.0.cmp(&b.0));
    capacity.sort_by(|a, b| a.0.cmp(&b.0));
    Device {
        name: name("gpu-0"),
        attributes: attributes.into(),
        capacity: capacity.into(),
        ..Device::default()
    }
}
