//! The JSON of `amd-smi`: `topology`, `list` and `static`, which all are lists of objects with the card's number in
//! `gpu`. From ROCm 7 on such a list may be wrapped in `gpu_data`; before 6.4 links were maps by `gpu_N`. (Forms as in the
//! tool's changelog.)

use serde_json::Value;

use super::gathered::{Gathered, bus, said, watts};
use crate::topology::{Link, ReportedCard};

pub(super) fn read(json: &Value, into: &mut Gathered) -> Result<(), String> {
    let list = json.get("gpu_data").unwrap_or(json).as_array();
    let cards: Vec<(u32, &Value)> = list
        .into_iter()
        .flatten()
        .filter_map(|card| Some((number(card.get("gpu")?)?, card)))
        .collect();
    if cards.is_empty() && list.is_none_or(|l| !l.is_empty()) {
        return Err("JSON, but neither of amd-smi nor of rocm-smi".into());
    }
    // NUMA nodes first: they say how far a PCIe path is.
    for (n, card) in &cards {
        into.add(*n, about(card));
    }
    for (n, card) in &cards {
        links(*n, card, into);
    }
    Ok(())
}

fn number(value: &Value) -> Option<u32> {
    match value {
        Value::Number(n) => Gathered::number(&n.to_string(), ""),
        Value::String(text) => Gathered::number(text, ""),
        _ => None,
    }
}

fn about(card: &Value) -> ReportedCard {
    let text = |pointer: &str| card.pointer(pointer)?.as_str().and_then(said);
    let limit = [
        "/limit/ppt0/socket_power_limit",
        "/limit/socket_power_limit",
        "/limit/socket_power",
    ];
    let numa = ["/numa/node", "/numa_node"].iter().find_map(|p| card.pointer(p));
    ReportedCard {
        uuid: text("/uuid").map(Into::into),
        name: text("/asic/market_name").map(Into::into),
        power_limit_watts: limit.iter().find_map(|p| card.pointer(p).and_then(measured)),
        numa_node: numa.and_then(scalar).and_then(|t| t.parse().ok()),
        pci_bus_id: text("/bdf").or_else(|| text("/bus/bdf")).and_then(bus),
    }
}

/// `{"value": 750, "unit": "W"}`, `750`, `"750 W"`.
fn measured(value: &Value) -> Option<u32> {
    match value.as_object() {
        Some(map) => {
            let unit = map.get("unit").and_then(Value::as_str).unwrap_or("W");
            (unit == "W")
                .then(|| scalar(map.get("value")?))
                .flatten()
                .and_then(|t| watts(&t))
        }
        None => scalar(value).and_then(|t| watts(&t)),
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::Number(n) => Some(n.to_string()),
        Value::String(text) => Some(text.clone()),
        _ => None,
    }
}

fn links(from: u32, card: &Value, into: &mut Gathered) {
    let mut add = |to: u32, kind: &str| {
        if from == to {
            return;
        }
        into.see(to);
        let cell = link(kind, Gathered::pcie(into.numa_of(from), into.numa_of(to)));
        into.cell(from, to, cell);
    };
    let kind = |v: Option<&Value>| v.and_then(Value::as_str).unwrap_or_default().to_owned();
    for link in card.get("links").and_then(Value::as_array).into_iter().flatten() {
        if let Some(to) = link.get("gpu").and_then(number) {
            let status = kind(link.get("link_status"));
            // A link that is there and off carries nothing; what is used instead is not said.
            let off = ["DISABLED", "INACTIVE"].contains(&status.as_str()) && kind(link.get("link_type")) == "XGMI";
            let said = if off { status } else { kind(link.get("link_type")) };
            add(to, &said);
        }
    }
    for (key, value) in card.get("link_type").and_then(Value::as_object).into_iter().flatten() {
        if let Some(to) = Gathered::number(key, "gpu_") {
            add(to, &kind(Some(value)));
        }
    }
}

/// The words of AMD's tools for the way between two cards.
pub(super) fn link(kind: &str, pcie: Link) -> Result<Link, &str> {
    match kind {
        "XGMI" => Ok(Link::Xgmi),
        "PCIE" | "PCIe" => Ok(pcie),
        _ => Err(kind),
    }
}
