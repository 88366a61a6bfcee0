//! What is written is read back, and nothing that is read can do harm.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{MAX_BYTES, MAX_CARDS, decode, encode};
use crate::topology::{Link, Report, ReportedCard};

fn any_link() -> impl Strategy<Value = Link> {
    let fixed = [
        Link::NvSwitch,
        Link::Xgmi,
        Link::Pix,
        Link::Pxb,
        Link::Phb,
        Link::Node,
        Link::Sys,
        Link::Unknown,
    ];
    prop_oneof![(1_u8..).prop_map(Link::NvLink), prop::sample::select(fixed.to_vec())]
}

fn any_card() -> impl Strategy<Value = ReportedCard> {
    let text = || prop::option::of("\\PC{0,40}".prop_map(Into::into));
    let numbers = (prop::option::of(any::<u32>()), prop::option::of(any::<u16>()));
    (text(), text(), text(), numbers).prop_map(|(uuid, name, pci_bus_id, (watts, numa_node))| ReportedCard {
        uuid,
        name,
        power_limit_watts: watts,
        numa_node,
        pci_bus_id,
    })
}

/// Symmetric, with nothing on the diagonal, as every reader of this crate makes them.
fn any_report() -> impl Strategy<Value = Report> {
    prop::collection::vec(any_card(), 0..20).prop_flat_map(|cards| {
        let n = cards.len();
        prop::collection::vec(any_link(), n * n).prop_map(move |cells| {
            let mut links = vec![Link::Unknown; n * n];
            for a in 0..n {
                for b in 0..a {
                    links[a * n + b] = cells[a * n + b];
                    links[b * n + a] = cells[a * n + b];
                }
            }
            Report {
                cards: cards.clone(),
                links,
            }
        })
    })
}

/// Cards with full-length texts and no two neighbouring pairs alike: the worst for the size.
fn long(n: usize) -> Report {
    let cards = (0..n).map(|i| ReportedCard {
        uuid: Some(format!("GPU-0123abcd-0123-4567-89ab-{i:012x}").into()),
        name: Some(format!("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition {i}").into()),
        power_limit_watts: Some(1000),
        numa_node: Some(7),
        pci_bus_id: Some(format!("0000:{i:02x}:00.0").into()),
    });
    let mut links = vec![Link::Unknown; n * n];
    for a in 0..n {
        for b in 0..n {
            links[a * n + b] = if (a + b) % 2 == 0 { Link::NvLink(18) } else { Link::Node };
        }
    }
    Report {
        cards: cards.collect(),
        links,
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(report in any_report()) {
        let text = encode(&report).map_err(TestCaseError::fail)?;
        prop_assert_eq!(decode(&text), Ok(report));
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,200}") {
        let _ = decode(&text);
    }

    /// A whole report with one piece replaced: an error, or a report that is consistent in itself.
    #[test]
    fn no_mangled_report_panics(report in any_report(), at in any::<prop::sample::Index>(), piece in "[\\x20-\\x7e]{0,3}") {
        let mut text: Vec<char> = encode(&report).map_err(TestCaseError::fail)?.chars().collect();
        let at = at.index(text.len());
        text.splice(at..=at, piece.chars());
        if let Ok(report) = decode(&text.into_iter().collect::<String>()) {
            prop_assert_eq!(report.links.len(), report.cards.len() * report.cards.len());
        }
    }
}

#[test]
fn sixteen_cards_are_well_below_8_kib() {
    let text = encode(&long(16)).expect("fits");
    assert!(text.len() < 4096, "{} bytes", text.len());
}

#[test]
fn an_eight_card_machine_in_full() {
    let mut report = long(3);
    report.links = vec![Link::NvLink(18); 9];
    report.links[5] = Link::Sys; // 1-2; 2-1 says otherwise
    report
        .cards
        .iter_mut()
        .for_each(|c| c.name = Some("NVIDIA H100 80GB HBM3".into()));
    report.cards[2] = ReportedCard::default();
    let text = encode(&report).expect("fits");
    let value: Value = serde_json::from_str(&text).expect("JSON");
    let card = |i: usize| {
        json!({
            "u": format!("GPU-0123abcd-0123-4567-89ab-{i:012x}"), "p": format!("0000:{i:02x}:00.0"), "n": 0, "w": 1000, "m": 7,
        })
    };
    let want = json!({
        "v": 1, "names": ["NVIDIA H100 80GB HBM3"], "cards": [card(0), card(1), {}], "links": "NV18*2 ?",
    });
    assert_eq!(value, want);
}

#[test]
fn names_go_first_and_then_it_is_refused() {
    // The names alone are more than fits.
    let mut report = long(MAX_CARDS);
    report.links.fill(Link::Sys);
    for (i, card) in report.cards.iter_mut().enumerate() {
        card.name = Some(format!("{i:0>120}").into());
        card.uuid = Some(format!("{i:0>120}").into());
    }
    let text = encode(&report).expect("fits without names");
    assert!(text.len() <= MAX_BYTES);
    let read = decode(&text).expect("whole");
    assert!(read.cards.iter().all(|c| c.name.is_none()));
    assert_eq!(read.cards[9].uuid, report.cards[9].uuid);

    assert!(encode(&long(MAX_CARDS)).is_err(), "8128 pairs without order");
    assert!(encode(&long(MAX_CARDS + 1)).is_err());
}

#[test]
fn what_is_not_whole_is_refused_in_words() {
    for (text, word) in [
        ("", "not a topology report"),
        ("null", "not a topology report"),
        ("{}", "missing field `v`"),
        (r#"{"v":2,"everything":"new"}"#, "version 2"),
        (r#"{"v":1}"#, "cards"),
        (r#"{"v":1,"cards":[{},{}]}"#, "1 pairs of 2 cards are missing"),
        (r#"{"v":1,"cards":[{},{}],"links":"SYS SYS"}"#, "more than the pairs"),
        (
            r#"{"v":1,"cards":[{},{}],"links":"NV18*99999999999999999999"}"#,
            "cannot read",
        ),
        (
            r#"{"v":1,"cards":[{},{}],"links":"NV18*18446744073709551615"}"#,
            "more than the pairs",
        ),
        (r#"{"v":1,"cards":[{},{}],"links":"WARP"}"#, "WARP"),
        (r#"{"v":1,"cards":[{"n":0}]}"#, "no name 0"),
        (r#"{"v":1,"cards":[{"w":-5}]}"#, "not a topology report"),
    ] {
        let error = decode(text).expect_err(text);
        assert!(error.contains(word), "{text}: {error}");
    }
    let many = format!(r#"{{"v":1,"cards":[{}{{}}]}}"#, "{},".repeat(MAX_CARDS));
    assert!(decode(&many).expect_err("too many").contains("129 cards"));
    assert!(decode(&" ".repeat(MAX_BYTES + 1)).is_err());
}

#[test]
fn a_newer_probe_may_say_more() {
    let report = decode(r#"{"v":1,"cards":[{"u":"a","serial":"x"}],"fabric":"y"}"#).expect("read");
    assert_eq!(report.cards[0].uuid.as_deref(), Some("a"));
}
