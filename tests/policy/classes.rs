//! Which class and how many watts devices get.

use std::sync::Arc;

use wattlane::model::{AttributeValue, Classified, Classifier, Device, Labels, Name, QualifiedName, WattOrigin};
use wattlane::policy::{Policy, PolicyClassifier};

use super::{labels, read};

pub(crate) fn device(driver: &str, attributes: &[(&str, &str)]) -> Device {
    let driver = Name::from(driver);
    let mut attributes: Vec<_> = attributes
        .iter()
        .map(|(name, value)| {
            (
                QualifiedName::parse(name, &driver),
                AttributeValue::String((*value).into()),
            )
        })
        .collect();
    attributes.sort_by(|a, b| a.0.cmp(&b.0));
    Device {
        name: "gpu-0".into(),
        attributes: attributes.into(),
        ..Device::default()
    }
}

fn classify(policy: Policy, driver: &str, attributes: &[(&str, &str)], node: &Labels) -> (Classified, u64) {
    let classifier = PolicyClassifier::new(Arc::new(policy));
    let found = classifier.classify(&driver.into(), &device(driver, attributes), node, &Labels::default());
    let errors = classifier.errors().map(|(_, n)| n).sum();
    (found, errors)
}

fn derived(driver: &str, attributes: &[(&str, &str)]) -> (Option<String>, Option<u32>, WattOrigin) {
    let (found, errors) = classify(Policy::default(), driver, attributes, &Labels::default());
    assert_eq!(errors, 0);
    (found.class.map(|c| c.to_string()), found.watts, found.origin)
}

#[test]
fn without_a_policy_the_product_decides() {
    use WattOrigin::{Table, Unknown};
    let (nvidia, amd) = ("gpu.nvidia.com", "gpu.amd.com");
    let h100 = ("productName", "NVIDIA H100 80GB HBM3");
    for (driver, attributes, class, watts, origin) in [
        (
            nvidia,
            vec![("type", "gpu"), h100],
            Some("h100-80gb-hbm3-700w"),
            Some(700),
            Table,
        ),
        (
            nvidia,
            vec![("type", "vfio"), h100],
            Some("h100-80gb-hbm3-700w"),
            Some(700),
            Table,
        ),
        (
            nvidia,
            vec![("type", "mig"), h100],
            Some("h100-80gb-hbm3-700w"),
            None,
            Unknown,
        ),
        (
            nvidia,
            vec![("productName", "NVIDIA GH200 480GB")],
            Some("gh200-480gb"),
            None,
            Unknown,
        ),
        (
            nvidia,
            vec![("productName", "NVIDIA Next")],
            Some("next"),
            None,
            Unknown,
        ),
        (nvidia, vec![("type", "gpu")], None, None, Unknown),
        (nvidia, vec![("productName", " ")], None, None, Unknown),
        (
            amd,
            vec![("type", "amdgpu"), ("productName", "AMD_Instinct_MI300X_OAM")],
            Some("instinct-mi300x-oam-750w"),
            Some(750),
            Table,
        ),
        (
            amd,
            vec![("type", "amdgpu-partition"), ("productName", "AMD_Instinct_MI300X_OAM")],
            Some("instinct-mi300x-oam-750w"),
            None,
            Unknown,
        ),
        (amd, vec![("deviceID", "0x74a1")], Some("0x74a1"), None, Unknown),
        // Older releases: a number of the one card, which would make every card a class.
        (amd, vec![("deviceID", "818216069942553681")], None, None, Unknown),
        ("nic.example.com", vec![("deviceID", "0x1017")], None, None, Unknown),
        (
            "gpu.example.com",
            vec![("model", "LATEST-GPU-MODEL")],
            Some("latest-gpu-model"),
            None,
            Unknown,
        ),
        (
            "compute-domain.nvidia.com",
            vec![("type", "channel")],
            None,
            None,
            Unknown,
        ),
        // A name in somebody else's domain is not the driver's word.
        (
            nvidia,
            vec![("other.com/productName", "NVIDIA L4")],
            None,
            None,
            Unknown,
        ),
    ] {
        let want = (class.map(str::to_owned), watts, origin);
        assert_eq!(derived(driver, &attributes), want, "{driver} {attributes:?}");
    }
}

#[test]
fn policy_classes_come_first_and_an_error_is_no_match() {
    let policy = || {
        read(
            r#"
classes:
- name: unguarded
  match: device.attributes["gpu.nvidia.com"].productName == "NVIDIA L40"
- name: rack-limited
  match: device.driver == "gpu.nvidia.com" && node.labels["cooling"] == "air"
  watts: 450
- name: l4
  match: device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].productName == "NVIDIA L4"
"#,
        )
        .expect("valid")
    };
    let product = |name| [("type", "gpu"), ("productName", name)];
    let air = labels(&[("cooling", "air")]);
    let water = labels(&[("cooling", "water")]);

    let (found, errors) = classify(policy(), "gpu.nvidia.com", &product("NVIDIA H100 80GB HBM3"), &air);
    assert_eq!(found.class.as_deref(), Some("rack-limited"));
    assert_eq!((found.watts, found.origin, errors), (Some(450), WattOrigin::Policy, 0));

    // No watts of its own: the table's.
    let (found, _) = classify(policy(), "gpu.nvidia.com", &product("NVIDIA L4"), &water);
    assert_eq!(
        (found.class.as_deref(), found.watts, found.origin),
        (Some("l4"), Some(72), WattOrigin::Table)
    );

    // A part of a card of the class is of the class, but nobody knows its watts.
    let mig = [("type", "mig"), ("productName", "NVIDIA H100 80GB HBM3")];
    let (found, _) = classify(policy(), "gpu.nvidia.com", &mig, &air);
    assert_eq!((found.class.as_deref(), found.watts), (Some("rack-limited"), None));

    // The first class fails on AMD's devices, which have no such attribute; the others still count.
    let (found, errors) = classify(policy(), "gpu.amd.com", &product("AMD_Instinct_MI210"), &air);
    assert_eq!(found.class.as_deref(), Some("instinct-mi210-300w"));
    assert_eq!(errors, 1);
}

/// What a probe says of the node, against policy and table: the card is found by its uuid, a partition's by its parent's,
/// AMD's by the PCI address.
#[test]
fn a_limit_measured_on_the_node_wins() {
    use WattOrigin::{Measured, Policy as ByPolicy, Table, Unknown};
    use wattlane::topology::{Link, Report, ReportedCard, annotation};
    let card = |uuid: Option<&str>, bus: Option<&str>, watts| ReportedCard {
        uuid: uuid.map(Into::into),
        pci_bus_id: bus.map(Into::into),
        power_limit_watts: watts,
        ..ReportedCard::default()
    };
    let cards = vec![
        card(Some("GPU-a"), None, Some(300)),
        card(Some("GPU-b"), None, Some(600)),
        card(None, Some("0000:0a:00.0"), Some(500)),
        card(Some("GPU-odd"), None, Some(4_000_000)),
        card(Some("GPU-mute"), None, None),
    ];
    let links = vec![Link::Unknown; cards.len() * cards.len()];
    let text = annotation::encode(&Report { cards, links }).expect("encodes");
    let annotations = labels(&[(annotation::ANNOTATION, &text)]);
    let policy = r#"
classes:
- {name: l4, watts: 72, match: 'device.attributes[?"gpu.nvidia.com"].?productName.orValue("") == "NVIDIA L4"'}
"#;
    let server = ("productName", "NVIDIA RTX PRO 6000 Blackwell Server Edition");
    let (nvidia, amd) = ("gpu.nvidia.com", "gpu.amd.com");
    let name = |watts: u32| format!("rtx-pro-6000-blackwell-server-edition-{watts}w");
    for (driver, attributes, class, watts, origin, board) in [
        (
            nvidia,
            vec![server, ("uuid", "GPU-a")],
            name(300),
            Some(300),
            Measured,
            Some(300),
        ),
        (
            nvidia,
            vec![server, ("uuid", "GPU-b")],
            name(600),
            Some(600),
            Measured,
            Some(600),
        ),
        (
            nvidia,
            vec![server, ("uuid", "GPU-c")],
            name(600),
            Some(600),
            Table,
            Some(600),
        ),
        (
            nvidia,
            vec![server, ("uuid", "GPU-odd")],
            name(600),
            Some(600),
            Table,
            Some(600),
        ),
        (
            nvidia,
            vec![server, ("uuid", "GPU-mute")],
            name(600),
            Some(600),
            Table,
            Some(600),
        ),
        (
            nvidia,
            vec![server, ("type", "mig"), ("parentUUID", "GPU-a"), ("uuid", "MIG-1")],
            name(300),
            None,
            Unknown,
            Some(300),
        ),
        (
            amd,
            vec![
                ("productName", "AMD_Instinct_MI300A"),
                ("resource.kubernetes.io/pciBusID", "0000:0A:00.0"),
            ],
            "instinct-mi300a-500w".to_owned(),
            Some(500),
            Measured,
            Some(500),
        ),
        (
            nvidia,
            vec![("productName", "NVIDIA L4"), ("uuid", "GPU-a")],
            "l4".to_owned(),
            Some(300),
            Measured,
            Some(300),
        ),
        (
            nvidia,
            vec![("productName", "NVIDIA L4"), ("uuid", "GPU-x")],
            "l4".to_owned(),
            Some(72),
            ByPolicy,
            Some(72),
        ),
    ] {
        let classifier = PolicyClassifier::new(Arc::new(read(policy).expect("valid")));
        let device = device(driver, &attributes);
        let found = classifier.classify(&driver.into(), &device, &Labels::default(), &annotations);
        let want = Classified {
            class: Some(class.into()),
            watts,
            origin,
            board,
        };
        assert_eq!(found, want, "{attributes:?}");
    }
    // A report nobody can read measures nothing.
    let broken = labels(&[(annotation::ANNOTATION, "{")]);
    let classifier = PolicyClassifier::new(Arc::new(Policy::default()));
    let found = classifier.classify(
        &nvidia.into(),
        &device(nvidia, &[server, ("uuid", "GPU-a")]),
        &Labels::default(),
        &broken,
    );
    assert_eq!((found.watts, found.origin), (Some(600), Table));
}

/// As the limits that placement has from the same rules: the first rule that speaks of the namespace counts.
#[test]
fn slots_are_those_of_the_rule_of_the_namespace() {
    let policy = "namespaces: [{match: {team: a}, sharing: {slots: 3, strategy: time-slicing}}, {match: {team: b}},\
                  {match: {}, sharing: {slots: 2, strategy: time-slicing}}]";
    let classifier = PolicyClassifier::new(Arc::new(read(policy).expect("valid")));
    for (namespace, slots) in [
        (Some(labels(&[("team", "a")])), 3),
        (Some(labels(&[("team", "b")])), 0),
        (Some(labels(&[])), 2),
        (None, 0),
    ] {
        assert_eq!(classifier.slots(namespace.as_ref()), slots, "{namespace:?}");
    }
    let nobody = PolicyClassifier::new(Arc::new(Policy::default()));
    assert_eq!(nobody.slots(Some(&labels(&[]))), 0);
}
