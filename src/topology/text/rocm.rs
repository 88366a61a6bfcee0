//! `rocm-smi --showtopo` and what may be asked beside it (`--showbus --showuniqueid --showmaxpower --showproductname`), as
//! JSON or as text. Older than `amd-smi`, and on many nodes the only one there is.

use serde_json::Value;

use super::amd::link;
use super::gathered::{Gathered, bus, said, watts};
use crate::topology::ReportedCard;

/// A key for each pair, printed once.
const PAIR: &str = "(topology) link type between drm devices ";

pub(super) fn is_rocm(json: &Value) -> bool {
    let keys = || json.as_object().into_iter().flatten().map(|(k, _)| k.as_str());
    keys().any(|k| Gathered::number(k, "card").is_some())
}

pub(super) fn read_json(json: &Value, into: &mut Gathered) -> Result<(), String> {
    let entries = || json.as_object().into_iter().flatten();
    for (key, card) in entries() {
        let Some(number) = Gathered::number(key, "card") else {
            continue;
        };
        let mut about = ReportedCard::default();
        for (key, value) in card.as_object().into_iter().flatten() {
            if let Some(text) = value.as_str() {
                field(&key.to_lowercase(), text, &mut about);
            }
        }
        into.add(number, about);
    }
    let pairs = json.get("system").and_then(Value::as_object);
    for (key, value) in pairs.into_iter().flatten() {
        let key = key.to_lowercase();
        let ends = key.strip_prefix(PAIR).and_then(|rest| rest.split_once(" and "));
        let number = |t: &str| Gathered::number(t, "");
        if let Some((a, b)) = ends.and_then(|(a, b)| number(a).zip(number(b)))
            && a != b
        {
            into.see(a);
            into.see(b);
            let pcie = Gathered::pcie(into.numa_of(a), into.numa_of(b));
            into.pair(a, b, link(value.as_str().unwrap_or_default(), pcie));
        }
    }
    Ok(())
}

/// Keys changed their case over the releases.
fn field(key: &str, text: &str, card: &mut ReportedCard) {
    let text = said(text);
    match key {
        "unique id" => card.uuid = text.map(Into::into),
        "card series" => card.name = text.map(Into::into),
        "pci bus" => card.pci_bus_id = text.and_then(bus),
        "max graphics package power (w)" => card.power_limit_watts = text.and_then(watts),
        "(topology) numa node" => card.numa_node = text.and_then(|t| t.parse().ok()),
        _ => {}
    }
}

pub(super) fn is_rocm_text(text: &str) -> bool {
    text.contains("Link Type between two GPUs") || text.contains("ROCm System Management Interface")
}

/// Lines `GPU[0]  : key: value`, and the table below "Link Type between two GPUs".
pub(super) fn read_text(text: &str, into: &mut Gathered) -> Result<(), String> {
    for line in text.lines() {
        let parts = line.strip_prefix("GPU[").and_then(|r| r.split_once(']'));
        let Some((number, rest)) = parts.and_then(|(n, rest)| Some((Gathered::number(n, "")?, rest))) else {
            continue;
        };
        let rest = rest.trim_start().trim_start_matches(':').trim_start();
        if let Some((key, value)) = rest.split_once(": ") {
            let mut about = ReportedCard::default();
            field(&key.trim().to_lowercase(), value, &mut about);
            into.add(number, about);
        }
    }
    let mut lines = text
        .lines()
        .skip_while(|l| !l.contains("Link Type between two GPUs"))
        .skip(1);
    let columns: Vec<u32> = lines
        .find(|l| !l.trim().is_empty())
        .into_iter()
        .flat_map(str::split_ascii_whitespace)
        .filter_map(|w| Gathered::number(w, "GPU"))
        .collect();
    for line in lines.take_while(|l| l.trim_start().starts_with("GPU")) {
        let mut words = line.split_ascii_whitespace();
        let Some(from) = words.next().and_then(|w| Gathered::number(w, "GPU")) else {
            continue;
        };
        let cells: Vec<&str> = words.collect();
        into.see(from);
        // A lost cell would move the others.
        let whole = cells.len() == columns.len();
        for (to, cell) in columns.iter().zip(cells).filter(|(to, _)| **to != from) {
            into.see(*to);
            let pcie = Gathered::pcie(into.numa_of(from), into.numa_of(*to));
            into.cell(
                from,
                *to,
                if whole {
                    link(cell, pcie)
                } else {
                    Err("a row with lost cells")
                },
            );
        }
    }
    Ok(())
}
