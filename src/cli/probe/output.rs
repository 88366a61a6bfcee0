//! What a probe found, as the contract's JSON and for people.

use std::io::{self, Write};

use serde_json::json;

use crate::topology::text::Reading;
use crate::topology::{Groups, groups};

/// Row by row, `X` on the diagonal, as the tool prints it.
fn cells(reading: &Reading) -> Vec<Vec<String>> {
    let report = &reading.report;
    let n = report.cards.len();
    let cell = |a: usize, b: usize| match a == b {
        true => "X".to_owned(),
        false => report.link(a, b).to_string(),
    };
    (0..n).map(|a| (0..n).map(|b| cell(a, b)).collect()).collect()
}

/// Positions as the numbers of the tool.
fn numbered(reading: &Reading, sets: &[Vec<usize>]) -> Vec<Vec<u32>> {
    let number = |i: &usize| reading.numbers.get(*i).copied();
    sets.iter().map(|set| set.iter().filter_map(number).collect()).collect()
}

/// What is not known, in words.
fn unknown(reading: &Reading, found: &Groups) -> Vec<String> {
    let mut unknown = reading.doubts.clone();
    if found.cut {
        unknown.push("cliques: there are more than are listed".into());
    }
    unknown
}

pub(super) fn json(reading: &Reading, out: &mut dyn Write) -> io::Result<()> {
    let found = groups(&reading.report);
    let devices: Vec<_> = (reading.numbers.iter().zip(&reading.report.cards))
        .map(|(index, card)| {
            json!({
                "index": index,
                "uuid": card.uuid,
                "name": card.name,
                "powerLimitWatts": card.power_limit_watts,
                "numaNode": card.numa_node,
            })
        })
        .collect();
    let document = json!({
        "gpus": reading.report.cards.len(),
        "links": cells(reading),
        "groups": numbered(reading, &found.groups),
        "cliques": numbered(reading, &found.cliques),
        "devices": devices,
        "unknown": unknown(reading, &found),
    });
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

pub(super) fn table(reading: &Reading, out: &mut dyn Write) -> io::Result<()> {
    const COLUMNS: [&str; 6] = ["GPU", "WATTS", "NUMA", "BUS", "UUID", "NAME"];
    if reading.report.cards.is_empty() {
        return writeln!(out, "no cards");
    }
    let or = |text: Option<String>| text.unwrap_or_else(|| "?".into());
    let mut rows = vec![COLUMNS.map(str::to_owned)];
    for (number, card) in reading.numbers.iter().zip(&reading.report.cards) {
        rows.push([
            number.to_string(),
            or(card.power_limit_watts.map(|w| w.to_string())),
            or(card.numa_node.map(|n| n.to_string())),
            or(card.pci_bus_id.as_deref().map(str::to_owned)),
            or(card.uuid.as_deref().map(str::to_owned)),
            or(card.name.as_deref().map(str::to_owned)),
        ]);
    }
    write!(out, "{}", super::super::table(&rows))?;
    writeln!(out)?;
    let head: String = reading.numbers.iter().map(|n| format!(" {n:>5}")).collect();
    writeln!(out, "LINK{head}")?;
    for (number, row) in reading.numbers.iter().zip(cells(reading)) {
        let row: String = row.iter().map(|c| format!(" {c:>5}")).collect();
        writeln!(out, "{number:>4}{row}")?;
    }
    let found = groups(&reading.report);
    let sets = |sets: &[Vec<usize>]| {
        let of = |set: &Vec<u32>| format!("{{{}}}", set.iter().map(u32::to_string).collect::<Vec<_>>().join(","));
        let texts: Vec<_> = numbered(reading, sets).iter().map(of).collect();
        if texts.is_empty() {
            "none".to_owned()
        } else {
            texts.join(" ")
        }
    };
    writeln!(out, "\nconnected by NVLink or XGMI: {}", sets(&found.groups))?;
    writeln!(out, "everyone with everyone:      {}", sets(&found.cliques))?;
    let unknown = unknown(reading, &found);
    unknown.iter().try_for_each(|text| writeln!(out, "not known: {text}"))
}
