//! What the index makes of reports, products and slices that change: which devices are which cards, and who said so.

use serde_json::{Value, json};
use wattlane::index::Index;
use wattlane::snapshot::Snapshot;
use wattlane::topology::{Link, LinkSource, Report, ReportedCard, annotation};

use super::support::*;

fn card(name: &str, uuid: &str, more: &Value) -> Value {
    let mut card = json!({"name": name, "attributes": {"uuid": {"string": uuid}, "type": {"string": "gpu"}}});
    for (key, value) in more.as_object().expect("attributes") {
        card["attributes"][key] = value.clone();
    }
    card
}

fn rooted(name: &str, root: &str) -> Value {
    card(
        name,
        name,
        &json!({"resource.kubernetes.io/pcieRoot": {"string": root}}),
    )
}

fn reported(pairs: &[Link]) -> String {
    let cards = ["a", "b", "c"].map(|uuid| ReportedCard {
        uuid: Some(uuid.into()),
        ..ReportedCard::default()
    });
    let [ab, ac, bc] = pairs else { panic!("three pairs") };
    let none = Link::Unknown;
    let links = vec![none, *ab, *ac, *ab, none, *bc, *ac, *bc, none];
    annotation::encode(&Report {
        cards: cards.into(),
        links,
    })
    .expect("a report")
}

fn annotated(text: &str) -> Value {
    let mut node = node("n1", json!({"class": "c"}));
    node["metadata"]["annotations"] = json!({ annotation::ANNOTATION: text });
    node
}

fn three() -> Index {
    let mut index = index();
    upsert(&mut index, &node("n1", json!({"class": "c"})));
    let cards = json!([rooted("a", "r1"), rooted("b", "r1"), rooted("c", "r2")]);
    upsert(&mut index, &slice("s", "n1", 1, 1, json!({"nodeName": "n1"}), cards));
    index
}

/// Source, and the link of the first two devices.
fn wired(snapshot: &Snapshot) -> Option<(LinkSource, Link)> {
    let wiring = snapshot.node_named("n1").expect("the node").wiring.as_ref()?;
    let (a, b) = (wiring.card(0, 0)?, wiring.card(0, 1)?);
    Some((wiring.source, wiring.shape.link(a.into(), b.into())))
}

#[test]
fn a_report_comes_and_goes() {
    let mut index = three();
    assert_eq!(
        wired(&index.publish().expect("a change")),
        Some((LinkSource::PcieRoot, Link::Phb))
    );
    upsert(
        &mut index,
        &annotated(&reported(&[Link::NvLink(4), Link::Sys, Link::Sys])),
    );
    assert_eq!(
        wired(&index.publish().expect("a change")),
        Some((LinkSource::Probe, Link::NvLink(4)))
    );
    assert!(index.take_loosened(), "who was refused may fit now");
    upsert(&mut index, &annotated(r#"{"v":2,"cards":[]}"#));
    let fallen_back = index.publish().expect("a change");
    assert_eq!(
        wired(&fallen_back),
        Some((LinkSource::PcieRoot, Link::Phb)),
        "not readable: as good as none"
    );
}

#[test]
fn a_slice_that_is_published_again_moves_the_cards() {
    let mut index = three();
    upsert(
        &mut index,
        &annotated(&reported(&[Link::Pix, Link::NvLink(2), Link::Sys])),
    );
    index.publish().expect("a change");
    let cards = json!([rooted("c", "r2"), rooted("a", "r1"), rooted("b", "r1")]);
    upsert(&mut index, &slice("s", "n1", 2, 1, json!({"nodeName": "n1"}), cards));
    assert_eq!(
        wired(&index.publish().expect("a change")),
        Some((LinkSource::Probe, Link::NvLink(2))),
        "c and a"
    );
    upsert(
        &mut index,
        &slice("s", "n1", 3, 1, json!({"nodeName": "n1"}), json!([rooted("a", "r1")])),
    );
    let alone = index.publish().expect("a change");
    assert!(alone.node_named("n1").expect("the node").wiring.is_none());
}

#[test]
fn one_card_under_two_names_is_one_and_partitions_are_none() {
    let mut index = index();
    upsert(&mut index, &node("n1", json!({"class": "c"})));
    let product = json!({"productName": {"string": "NVIDIA H100 80GB HBM3"}});
    let mut part = card("part", "MIG-1", &product);
    part["attributes"]["type"]["string"] = json!("mig");
    let cards = json!([
        card("gpu-0", "a", &product),
        card("vfio-0", "a", &product),
        part,
        card("gpu-1", "b", &product)
    ]);
    upsert(&mut index, &slice("s", "n1", 1, 1, json!({"nodeName": "n1"}), cards));
    let snapshot = index.publish().expect("a change");
    let wiring = snapshot
        .node_named("n1")
        .expect("the node")
        .wiring
        .as_ref()
        .expect("known by product");
    assert_eq!(
        (0..4).map(|i| wiring.card(0, i)).collect::<Vec<_>>(),
        [Some(0), Some(0), None, Some(1)]
    );
    assert_eq!(
        (wiring.source, wiring.shape.link(0, 1)),
        (LinkSource::Product, Link::NvSwitch)
    );
}

#[test]
fn nodes_built_alike_share_a_shape() {
    let mut index = three();
    upsert(&mut index, &node("n2", json!({"class": "c"})));
    let cards = json!([rooted("x", "q1"), rooted("y", "q1"), rooted("z", "q2")]);
    upsert(&mut index, &slice("s2", "n2", 1, 1, json!({"nodeName": "n2"}), cards));
    let snapshot = index.publish().expect("a change");
    let shape = |name| {
        snapshot
            .node_named(name)
            .and_then(|n| n.wiring.clone())
            .expect("wired")
            .shape
            .clone()
    };
    assert!(std::sync::Arc::ptr_eq(&shape("n1"), &shape("n2")));
    assert!(shape("n1").is_warm() && index.take_cold().is_empty());
}

#[test]
fn sixteen_irregular_cards_are_published_cold_and_taken_once() {
    let mut index = index();
    upsert(&mut index, &node("n1", json!({"class": "c"})));
    let cards: Vec<_> = (0..16)
        .map(|i| rooted(&format!("g{i}"), &format!("r{}", i / 3)))
        .collect();
    upsert(
        &mut index,
        &slice("s", "n1", 1, 1, json!({"nodeName": "n1"}), json!(cards)),
    );
    assert!(wired(&index.publish().expect("a change")).is_some());
    assert_eq!(index.take_cold().len(), 1);
    assert!(index.take_cold().is_empty());
}
