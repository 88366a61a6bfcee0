//! The report of a probe as the value of an annotation on its Node. Compact JSON with short keys, since it is watched
//! by every replica and kept by etcd: eight cards behind switches are about 1 KiB, sixteen without any order below 4.
//!
//! ```json
//! {"v":1,"names":["NVIDIA H100 80GB HBM3"],
//!  "cards":[{"u":"GPU-…","p":"0000:1b:00.0","n":0,"w":700,"m":0}],
//!  "links":"NV18*27 ?"}
//! ```
//!
//! `u` uuid, `p` PCI bus id, `n` which of the names, `w` watts, `m` NUMA node; what is not known is left out. `links` are
//! the pairs 0-1, 0-2, … 1-2, …, repeated words as `word*times`. A reader takes version 1 only; keys it does not know
//! it ignores, so that a newer probe may say more without a new version.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::{Link, Report, ReportedCard};
use crate::model::Name;

/// The annotation on a Node. (`wattlane.dev/topology` is a pod's wish.)
pub const ANNOTATION: &str = "wattlane.dev/topology-report";

/// Version written, and the only one read.
const VERSION: u32 = 1;
/// Longest text written or read, in bytes. All annotations of an object together may be 256 KiB.
pub const MAX_BYTES: usize = 32 << 10;
/// Most cards in one report.
pub const MAX_CARDS: usize = 128;
/// Longest uuid, name or bus id, in bytes.
const MAX_TEXT: usize = 128;

#[derive(Serialize, Deserialize)]
struct Wire {
    v: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    names: Vec<Name>,
    cards: Vec<WireCard>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    links: String,
}

#[derive(Serialize, Deserialize)]
struct WireCard {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    u: Option<Name>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    p: Option<Name>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    n: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    w: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    m: Option<u16>,
}

/// The version alone, which decides whether the rest is looked at.
#[derive(Deserialize)]
struct Versioned {
    v: u32,
}

/// Writes a report. A pair whose two cells differ is written as unknown; of texts longer than 128 bytes nothing is
/// written. Where the whole is too long, the names are left out first: nothing is matched by them.
///
/// # Errors
/// In words: more than 128 cards, or longer than 32 KiB without the names.
pub fn encode(report: &Report) -> Result<String, String> {
    let n = report.cards.len();
    if n > MAX_CARDS {
        return Err(format!("{n} cards do not go into one report, at most {MAX_CARDS} do"));
    }
    let mut names: Vec<Name> = vec![];
    let short = |text: &Option<Name>| text.clone().filter(|t| t.len() <= MAX_TEXT);
    let cards = report.cards.iter().map(|card| WireCard {
        u: short(&card.uuid),
        p: short(&card.pci_bus_id),
        n: short(&card.name).map(|name| {
            names.iter().position(|known| *known == name).unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            })
        }),
        w: card.power_limit_watts,
        m: card.numa_node,
    });
    let mut wire = Wire {
        v: VERSION,
        cards: cards.collect(),
        names: vec![],
        links: write_links(report),
    };
    wire.names = names;
    let text = to_text(&wire)?;
    if text.len() <= MAX_BYTES {
        return Ok(text);
    }
    wire.names.clear();
    wire.cards.iter_mut().for_each(|card| card.n = None);
    let text = to_text(&wire)?;
    if text.len() <= MAX_BYTES {
        return Ok(text);
    }
    let bytes = text.len();
    Err(format!("the report is {bytes} bytes long, at most {MAX_BYTES} may be"))
}

fn to_text(wire: &Wire) -> Result<String, String> {
    serde_json::to_string(wire).map_err(|e| format!("the report cannot be written: {e}"))
}

fn write_links(report: &Report) -> String {
    let n = report.cards.len();
    let pairs = (0..n).flat_map(|a| (a + 1..n).map(move |b| (a, b)));
    let mut runs: Vec<(Link, usize)> = vec![];
    for (a, b) in pairs {
        let link = report.link(a, b).agreed(report.link(b, a));
        match runs.last_mut() {
            Some((last, times)) if *last == link => *times += 1,
            _ => runs.push((link, 1)),
        }
    }
    let mut text = String::new();
    for (link, times) in runs {
        if !text.is_empty() {
            text.push(' ');
        }
        // Writing to a String cannot fail.
        let _ = match times {
            1 => write!(text, "{link}"),
            _ => write!(text, "{link}*{times}"),
        };
    }
    text
}

/// Reads the value of the annotation. A text that is not whole is not believed in part: whoever gets an error goes on
/// as if there had been no probe, and says so.
///
/// # Errors
/// In words: another version, text that is broken, or more than a report may hold.
pub fn decode(text: &str) -> Result<Report, String> {
    if text.len() > MAX_BYTES {
        let bytes = text.len();
        return Err(format!("{bytes} bytes long, at most {MAX_BYTES} are read"));
    }
    let broken = |e: serde_json::Error| format!("not a topology report: {e}");
    let Versioned { v } = serde_json::from_str(text).map_err(broken)?;
    if v != VERSION {
        return Err(format!(
            "a report of version {v}, this wattlane reads version {VERSION}: run the probe of the same release"
        ));
    }
    let wire: Wire = serde_json::from_str(text).map_err(broken)?;
    let n = wire.cards.len();
    if n > MAX_CARDS {
        return Err(format!("{n} cards, at most {MAX_CARDS} are read"));
    }
    let links = read_links(&wire.links, n)?;
    let names = wire.names;
    let cards = wire.cards.into_iter().enumerate().map(|(i, card)| {
        let name = match card.n {
            None => None,
            Some(at) => Some(
                names
                    .get(at)
                    .ok_or_else(|| format!("card {i}: there is no name {at}"))?,
            ),
        };
        Ok(ReportedCard {
            uuid: card.u,
            name: name.cloned(),
            power_limit_watts: card.w,
            numa_node: card.m,
            pci_bus_id: card.p,
        })
    });
    let cards = cards.collect::<Result<Vec<_>, String>>()?;
    Ok(Report { cards, links })
}

fn read_links(text: &str, n: usize) -> Result<Vec<Link>, String> {
    let mut links = vec![Link::Unknown; n * n];
    let mut pairs = (0..n).flat_map(|a| (a + 1..n).map(move |b| (a, b)));
    for run in text.split_ascii_whitespace() {
        let (word, times) = run.split_once('*').unwrap_or((run, "1"));
        let bad = || format!("links: cannot read {run:?}");
        let link = Link::read(word).ok_or_else(bad)?;
        let times: usize = times.parse().map_err(|_| bad())?;
        for _ in 0..times {
            // Ends at the last pair however large the number is.
            let Some((a, b)) = pairs.next() else {
                return Err(format!("links: more than the pairs of {n} cards"));
            };
            links[a * n + b] = link;
            links[b * n + a] = link;
        }
    }
    match pairs.count() {
        0 => Ok(links),
        missing => Err(format!("links: {missing} pairs of {n} cards are missing")),
    }
}

#[cfg(test)]
mod tests;
