//! What a probe found on a node.

use super::Link;
use crate::model::{Device, Name};

/// One card, in the order of the tool that listed it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ReportedCard {
    /// As the driver publishes it (`GPU-…`). None: the tool did not say.
    pub uuid: Option<Name>,
    pub name: Option<Name>,
    /// The limit that is in force, in watts, rounded. None: not known.
    pub power_limit_watts: Option<u32>,
    pub numa_node: Option<u16>,
    /// As the kernel writes it, `0000:01:00.0`, lower case.
    pub pci_bus_id: Option<Name>,
}

/// All cards of a node and what lies between them.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Report {
    pub cards: Vec<ReportedCard>,
    /// Row by row, `cards.len()` squared; what is on the diagonal means nothing. `Unknown` where nothing was readable.
    pub links: Vec<Link>,
}

impl Report {
    /// Between two cards of the report, by position.
    pub fn link(&self, a: usize, b: usize) -> Link {
        let n = self.cards.len();
        if a < n && b < n {
            self.links.get(a * n + b).copied().unwrap_or(Link::Unknown)
        } else {
            Link::Unknown
        }
    }

    /// The card a driver publishes with this uuid, else with this PCI bus id. Both are compared without regard to case,
    /// bus ids also without regard to how the domain is written. None: the probe did not see it, or saw two that could
    /// be it.
    pub fn card_of(&self, uuid: Option<&str>, pci_bus_id: Option<&str>) -> Option<&ReportedCard> {
        self.position_of(uuid, pci_bus_id).and_then(|at| self.cards.get(at))
    }

    /// The card of a device as drivers publish it; of a partition its parent.
    pub fn card_for(&self, device: &Device) -> Option<&ReportedCard> {
        self.position_for(device).and_then(|at| self.cards.get(at))
    }

    /// Where `card_for` found it.
    pub fn position_for(&self, device: &Device) -> Option<usize> {
        let first = |names: &[&str]| names.iter().find_map(|name| device.text(name)).map(|t| &**t);
        let uuid = first(&["parentUUID", "uuid"]);
        self.position_of(uuid, first(&["parentPciAddr", "pciBusID", "pciAddr"]))
    }

    /// Where `card_of` found it.
    pub fn position_of(&self, uuid: Option<&str>, pci_bus_id: Option<&str>) -> Option<usize> {
        let only = |is: &dyn Fn(&ReportedCard) -> bool| {
            let mut found = self.cards.iter().enumerate().filter(|(_, c)| is(c)).map(|(i, _)| i);
            found.next().filter(|_| found.next().is_none())
        };
        let by_uuid = uuid
            .filter(|u| !u.is_empty())
            .and_then(|uuid| only(&|c| c.uuid.as_deref().is_some_and(|u| u.eq_ignore_ascii_case(uuid))));
        by_uuid.or_else(|| {
            let wanted = bus_id(pci_bus_id?)?;
            only(&|c| {
                // A card known by another uuid is another card, whatever slot it is in now.
                let other = c
                    .uuid
                    .as_deref()
                    .zip(uuid)
                    .is_some_and(|(a, b)| !a.eq_ignore_ascii_case(b));
                !other && c.pci_bus_id.as_deref().and_then(bus_id) == Some(wanted)
            })
        })
    }
}

/// Domain, bus, device, function of a PCI address as tools and drivers write it: `0000:01:00.0`, `00000000:01:00.0`,
/// `01:00.0`, in any case.
pub(super) fn bus_id(text: &str) -> Option<(u32, u8, u8, u8)> {
    let hex = |t: &str| {
        let plain = !t.is_empty() && t.bytes().all(|b| b.is_ascii_hexdigit());
        plain.then(|| u32::from_str_radix(t, 16).ok()).flatten()
    };
    let byte = |t: &str| hex(t).and_then(|n| u8::try_from(n).ok());
    let (rest, function) = text.trim().rsplit_once('.')?;
    let (rest, device) = rest.rsplit_once(':')?;
    let (domain, bus) = rest.rsplit_once(':').unwrap_or(("0", rest));
    Some((hex(domain)?, byte(bus)?, byte(device)?, byte(function)?))
}

#[cfg(test)]
mod tests {
    use super::{Report, ReportedCard, bus_id};

    #[test]
    fn spellings_of_a_bus_id() {
        for text in ["0000:0a:00.1", "00000000:0A:00.1", "0a:00.1", " 0000:0a:00.1\n"] {
            assert_eq!(bus_id(text), Some((0, 10, 0, 1)), "{text}");
        }
        for text in [
            "",
            "gpu",
            "0000:0a:00",
            "x:0a:00.0",
            "0000::00.0",
            "0000:100:00.0",
            "0:+a:00.0",
            "::.",
        ] {
            assert_eq!(bus_id(text), None, "{text}");
        }
    }

    #[test]
    fn by_uuid_then_by_slot() {
        let card = |uuid: Option<&str>, bus: Option<&str>, watts| ReportedCard {
            uuid: uuid.map(Into::into),
            pci_bus_id: bus.map(Into::into),
            power_limit_watts: Some(watts),
            ..ReportedCard::default()
        };
        let report = Report {
            cards: vec![
                card(Some("GPU-a"), Some("0000:01:00.0"), 1),
                card(Some("GPU-b"), Some("0000:02:00.0"), 2),
                card(None, Some("0000:03:00.0"), 3),
                card(Some("GPU-twice"), None, 4),
                card(Some("GPU-twice"), None, 5),
            ],
            links: vec![],
        };
        let watts = |uuid, bus| report.card_of(uuid, bus).and_then(|c| c.power_limit_watts);
        assert_eq!(watts(Some("gpu-A"), None), Some(1));
        assert_eq!(watts(Some("GPU-a"), Some("0000:02:00.0")), Some(1), "the uuid decides");
        assert_eq!(watts(None, Some("00000000:02:00.0")), Some(2));
        assert_eq!(
            watts(Some("GPU-new"), Some("0000:02:00.0")),
            None,
            "the card was changed"
        );
        assert_eq!(watts(Some("GPU-new"), Some("0000:03:00.0")), Some(3));
        assert_eq!(watts(Some("GPU-twice"), None), None);
        assert_eq!(watts(Some(""), None), None);
        assert_eq!(watts(None, None), None);
    }
}
