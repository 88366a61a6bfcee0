//! `nvidia-smi --query-gpu=… --format=csv`, with or without header and units.
//!
//! With a header the columns go by their names, without one by what stands in them. Names of cards may have commas, and
//! not every release quotes them.

use super::gathered::{Gathered, bus, said, watts};
use crate::topology::ReportedCard;

/// Columns that are of use, by the names `--help-query-gpu` gives them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Index,
    Uuid,
    Name,
    /// What is in force, the thermal and system limits included.
    EnforcedLimit,
    Limit,
    Bus,
    Other,
}

impl Column {
    /// `power.limit [W]` is `power.limit` with its unit.
    fn named(field: &str) -> Self {
        let name = field.split('[').next().unwrap_or_default().trim();
        match name {
            "index" => Self::Index,
            "uuid" | "gpu_uuid" => Self::Uuid,
            "name" | "gpu_name" => Self::Name,
            "enforced.power.limit" => Self::EnforcedLimit,
            "power.limit" => Self::Limit,
            "pci.bus_id" | "gpu_bus_id" => Self::Bus,
            _ => Self::Other,
        }
    }
}

/// False: no list of cards in it.
pub(super) fn read(text: &str, into: &mut Gathered) -> bool {
    let mut header: Option<Vec<Column>> = None;
    let mut found = vec![];
    for line in text.lines().filter(|l| !l.trim().is_empty()) {
        let fields = fields(line);
        if let Some(columns) = header_of(&fields) {
            if let Some(missing) = missing(&columns) {
                let there = fields.join(", ").chars().take(200).collect::<String>();
                into.doubt(format!(
                    "no column {missing} in the list of cards, which has {there}: {WANTED}"
                ));
            }
            header = Some(columns);
            continue;
        }
        let card = match &header {
            Some(columns) => by_header(columns, &fields),
            None => by_shape(&fields),
        };
        match card {
            Some(card) => found.push(card),
            // Before the list there may be anything.
            None if header.is_none() && found.is_empty() => {}
            None => into.doubt(format!(
                "cannot read the line {:?}",
                line.chars().take(60).collect::<String>()
            )),
        }
    }
    if header.is_none() && !found.is_empty() && found.iter().all(|(_, card)| card.power_limit_watts.is_none()) {
        into.doubt(format!("no watts in the list of cards, which has no header: {WANTED}"));
    }
    let any = header.is_some() || !found.is_empty();
    for (position, (number, card)) in (0..).zip(found) {
        into.add(number.unwrap_or(position), card);
    }
    any
}

const WANTED: &str =
    "wanted is --query-gpu=index,uuid,name,enforced.power.limit,power.limit,pci.bus_id, or as much of it as there is";

/// Columns without which something of every card stays unknown.
fn missing(columns: &[Column]) -> Option<String> {
    let needs = [
        (
            "enforced.power.limit or power.limit",
            [Column::EnforcedLimit, Column::Limit],
        ),
        ("uuid or pci.bus_id", [Column::Uuid, Column::Bus]),
        ("name", [Column::Name; 2]),
    ];
    let lacks = needs.iter().filter(|(_, any)| !any.iter().any(|c| columns.contains(c)));
    let lacks: Vec<&str> = lacks.map(|(name, _)| *name).collect();
    (!lacks.is_empty()).then(|| lacks.join(", and none "))
}

/// A line of fields all of which look like names of columns, one of them a name we know.
fn header_of(fields: &[String]) -> Option<Vec<Column>> {
    let columns: Vec<Column> = fields.iter().map(|f| Column::named(f)).collect();
    let known = columns
        .iter()
        .any(|c| matches!(c, Column::Uuid | Column::Index | Column::Bus));
    let shaped = fields.iter().all(|f| {
        let name = f.split('[').next().unwrap_or_default().trim();
        !name.is_empty()
            && name
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_'))
    });
    (known && shaped).then_some(columns)
}

/// Quotes as in RFC 4180, blanks around a field dropped.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![];
    let mut field = String::new();
    let mut quoted = false;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.next_if_eq(&'"').is_some() => field.push('"'),
            '"' if quoted || field.trim().is_empty() => quoted = !quoted,
            ',' if !quoted => fields.push(std::mem::take(&mut field).trim().to_owned()),
            c => field.push(c),
        }
    }
    fields.push(field.trim().to_owned());
    fields
}

type Found = (Option<u32>, ReportedCard);

fn by_header(columns: &[Column], fields: &[String]) -> Option<Found> {
    // Fields too many are commas in the one column that can have them.
    let extra = fields.len().checked_sub(columns.len())?;
    let name = columns.iter().position(|c| *c == Column::Name);
    if extra > 0 && name.is_none() {
        return None;
    }
    let at = |i: usize| match name {
        Some(n) if i > n => i + extra,
        _ => i,
    };
    let text = |column: Column| {
        let i = columns.iter().position(|c| *c == column)?;
        let end = if column == Column::Name { at(i) + extra } else { at(i) };
        Some(fields.get(at(i)..=end)?.join(", "))
    };
    let value = |column: Column| text(column).and_then(|t| said(&t).map(str::to_owned));
    let enforced = value(Column::EnforcedLimit).and_then(|t| watts(&t));
    let card = ReportedCard {
        uuid: value(Column::Uuid).filter(|t| is_uuid(t)).map(Into::into),
        name: value(Column::Name).map(Into::into),
        power_limit_watts: enforced.or_else(|| value(Column::Limit).and_then(|t| watts(&t))),
        numa_node: None,
        pci_bus_id: value(Column::Bus).and_then(|t| bus(&t)),
    };
    let number = value(Column::Index).and_then(|t| Gathered::number(&t, ""));
    // A position is no number where the tool has given one that cannot be read.
    let numbered = !columns.contains(&Column::Index) || number.is_some();
    (numbered && (number.is_some() || card.uuid.is_some() || card.pci_bus_id.is_some())).then_some((number, card))
}

/// `GPU-…`: the tool prints nothing else, and errors must not become cards.
fn is_uuid(text: &str) -> bool {
    text.starts_with("GPU-") && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// A uuid or a bus id makes a line one of the list. The first watts are the limit in force, which is what one asks for
/// first, unless something that could have been it was not said; what looks like nothing else is the name.
fn by_shape(fields: &[String]) -> Option<Found> {
    let mut card = ReportedCard::default();
    let mut number = None;
    let mut name: Vec<&str> = vec![];
    let mut silent = false;
    let is_watts = |f: &str| (f.ends_with('W') || f.contains('.')) && watts(f).is_some();
    for (i, field) in fields.iter().enumerate() {
        if is_uuid(field) && card.uuid.is_none() {
            card.uuid = Some(field.as_str().into());
        } else if let Some(id) = bus(field) {
            card.pci_bus_id = card.pci_bus_id.or(Some(id));
        } else if i == 0 && field.bytes().all(|b| b.is_ascii_digit()) {
            number = Some(Gathered::number(field, "")?);
        } else if said(field).is_none() {
            silent = true;
        } else if is_watts(field) {
            card.power_limit_watts = card.power_limit_watts.or(watts(field).filter(|_| !silent));
            silent = true;
        } else if field.starts_with(|c: char| c.is_ascii_alphabetic())
            || !name.is_empty() && card.power_limit_watts.is_none()
        {
            name.push(field);
        }
    }
    card.name = (!name.is_empty()).then(|| name.join(", ").into());
    (card.uuid.is_some() || card.pci_bus_id.is_some()).then_some((number, card))
}
