//! Where the readers put what they find, by the numbers the tool gives the cards; and what is made of it.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::Name;
use crate::topology::annotation::MAX_CARDS;
use crate::topology::report::bus_id;
use crate::topology::{Link, Report, ReportedCard};

/// Numbers above are no card: a warning, a port, an address.
const MAX_NUMBER: u32 = 4095;
/// Of a cell that is quoted, in characters.
const QUOTED: usize = 24;

/// What was read from all outputs of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Reading {
    /// In the order of the tool's numbers.
    pub report: Report,
    /// The number the tool gives each card: usually its position.
    pub numbers: Vec<u32>,
    /// What was there, or had to be, and could not be read; in words. A pair that is unknown is in here.
    pub doubts: Vec<String>,
}

#[derive(Default)]
pub(super) struct Gathered {
    cards: BTreeMap<u32, ReportedCard>,
    /// By direction. Err: what stood there instead.
    cells: BTreeMap<(u32, u32), Result<Link, String>>,
    /// Cards that some output described by itself: by more than its place in a matrix.
    described: BTreeSet<u32>,
    doubts: Vec<String>,
}

impl Gathered {
    /// The number of a card, from `GPU12` or `card12`.
    pub(super) fn number(word: &str, prefix: &str) -> Option<u32> {
        let digits = word.strip_prefix(prefix)?;
        let plain = (1..=4).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
        digits.parse().ok().filter(|n| plain && *n <= MAX_NUMBER)
    }

    pub(super) fn doubt(&mut self, text: String) {
        self.doubts.push(text);
    }

    /// There is such a card.
    pub(super) fn see(&mut self, number: u32) -> &mut ReportedCard {
        self.cards.entry(number).or_default()
    }

    /// More about a card. What two outputs say differently is not believed of either: at the least the numbers do not
    /// mean the same cards.
    pub(super) fn add(&mut self, number: u32, more: ReportedCard) {
        if more.uuid.is_some() || more.pci_bus_id.is_some() || more.power_limit_watts.is_some() {
            self.described.insert(number);
        }
        let card = self.cards.entry(number).or_default();
        let mut clash = false;
        fill(&mut card.uuid, more.uuid, &mut clash);
        fill(&mut card.pci_bus_id, more.pci_bus_id, &mut clash);
        fill(&mut card.power_limit_watts, more.power_limit_watts, &mut clash);
        fill(&mut card.numa_node, more.numa_node, &mut clash);
        // Two tools may spell a name differently.
        card.name = card.name.take().or(more.name);
        if clash {
            *card = ReportedCard::default();
            self.doubt(format!(
                "card {number}: described in two ways that contradict each other"
            ));
        }
    }

    /// What stands in the row of one card below the other. Said twice and differently is not said at all.
    pub(super) fn cell(&mut self, from: u32, to: u32, cell: Result<Link, &str>) {
        let cell = cell.map_err(|text| text.chars().take(QUOTED).collect());
        match self.cells.get_mut(&(from, to)) {
            Some(known) if *known != cell => *known = Err("two different cells".into()),
            Some(_) => {}
            None => drop(self.cells.insert((from, to), cell)),
        }
    }

    /// For tools that print each pair once.
    pub(super) fn pair(&mut self, a: u32, b: u32, cell: Result<Link, &str>) {
        self.cell(a, b, cell);
        self.cell(b, a, cell);
    }

    pub(super) fn numa_of(&self, number: u32) -> Option<u16> {
        self.cards.get(&number).and_then(|c| c.numa_node)
    }

    /// AMD's tools say "PCIe" and no more; how far that is follows from the NUMA nodes, once they are known.
    pub(super) fn pcie(a: Option<u16>, b: Option<u16>) -> Link {
        match (a, b) {
            (Some(a), Some(b)) if a == b => Link::Node,
            (Some(_), Some(_)) => Link::Sys,
            _ => Link::Unknown,
        }
    }

    /// Two outputs that are of different machines, or of which one was cut off.
    fn compare(&mut self) {
        let joined: BTreeSet<u32> = self.cells.keys().flat_map(|(a, b)| [*a, *b]).collect();
        let described = &self.described;
        if joined.is_empty() || described.is_empty() || joined == *described {
            return;
        }
        let list = |numbers: &BTreeSet<u32>| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let (joined, described) = (list(&joined), list(described));
        self.doubt(format!(
            "the link matrix is of cards {joined} and the list of cards of {described}: are both of this machine, and whole?"
        ));
    }

    pub(super) fn finish(mut self) -> Result<Reading, String> {
        let n = self.cards.len();
        if n > MAX_CARDS {
            return Err(format!("{n} cards, at most {MAX_CARDS} are read"));
        }
        self.compare();
        let numbers: Vec<u32> = self.cards.keys().copied().collect();
        let mut links = vec![Link::Unknown; n * n];
        for (i, a) in numbers.iter().enumerate() {
            for (j, b) in numbers.iter().enumerate().skip(i + 1) {
                let link = match (self.cells.get(&(*a, *b)), self.cells.get(&(*b, *a))) {
                    (Some(Ok(there)), Some(Ok(back))) => there.agreed(*back),
                    _ => Link::Unknown,
                };
                links[i * n + j] = link;
                links[j * n + i] = link;
                if link == Link::Unknown {
                    let (there, back) = (quote(self.cells.get(&(*a, *b))), quote(self.cells.get(&(*b, *a))));
                    self.doubts
                        .push(format!("link {a}-{b}: {there} one way, {back} the other"));
                }
            }
        }
        Ok(Reading {
            report: Report {
                cards: self.cards.into_values().collect(),
                links,
            },
            numbers,
            doubts: self.doubts,
        })
    }
}

fn fill<T: PartialEq>(known: &mut Option<T>, more: Option<T>, clash: &mut bool) {
    match (&*known, more) {
        (None, more) => *known = more,
        (Some(known), Some(more)) => *clash |= *known != more,
        (Some(_), None) => {}
    }
}

fn quote(cell: Option<&Result<Link, String>>) -> String {
    match cell {
        None => "nothing".into(),
        Some(Ok(Link::Unknown)) => "not known".into(),
        Some(Ok(link)) => link.to_string(),
        Some(Err(text)) => format!("{text:?}"),
    }
}

/// A value of a tool, unless it is one of the many ways to say that there is none.
pub(super) fn said(text: &str) -> Option<&str> {
    let text = text.trim();
    let nothing = text.is_empty()
        || text.starts_with('[')
        || ["N/A", "none", "unknown", "-"]
            .iter()
            .any(|w| text.eq_ignore_ascii_case(w));
    (!nothing).then_some(text)
}

/// `700.00 W`, `700`, `750.0`: watts, rounded. What no card can draw is not believed.
pub(super) fn watts(text: &str) -> Option<u32> {
    let number = said(text)?.trim_end_matches(['W', 'w']).trim_end();
    // Digits and a point only: `parse` would take `inf` and `1e3`.
    if !number.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return None;
    }
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let up = u32::from(fraction.as_bytes().first().is_some_and(|d| (b'5'..=b'9').contains(d)));
    let watts = whole.parse::<u32>().ok()?.checked_add(up)?;
    (1..=100_000).contains(&watts).then_some(watts)
}

/// As the kernel writes it, whatever the tool wrote.
pub(super) fn bus(text: &str) -> Option<Name> {
    let (domain, bus, device, function) = bus_id(said(text)?)?;
    Some(format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}").into())
}

#[cfg(test)]
mod tests {
    use super::{bus, said, watts};

    #[test]
    fn values_of_tools() {
        for (text, want) in [
            ("700.00 W", Some(700)),
            (" 575.00", Some(575)),
            ("72.5 W", Some(73)),
            ("149.49", Some(149)),
            ("[N/A]", None),
            ("[Not Supported]", None),
            ("0.00 W", None),
            ("1e3", None),
            ("inf", None),
            ("-5 W", None),
            ("W", None),
            ("600000 W", None),
            ("99999999999999", None),
        ] {
            assert_eq!(watts(text), want, "{text}");
        }
        assert_eq!(bus("00000000:1B:00.0").as_deref(), Some("0000:1b:00.0"));
        assert_eq!(bus("[GPU requires reset]"), None);
        assert_eq!(said(" n/a "), None);
        assert_eq!(said(" x "), Some("x"));
    }
}
