//! A sum of watts as commands print it: what is not known is never 0, and a card counts once and whole, however little
//! of it is given.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::placed_in;
use crate::model::DeviceId;
use crate::snapshot::Snapshot;

/// The watts of some devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Watts {
    /// Of those that are known; null where none is.
    watts: Option<u32>,
    /// How many are not.
    #[serde(skip_serializing_if = "is_zero")]
    unknown_watts: u32,
    /// What the cards draw that these are, or are parts of; null where it is known of none.
    card_watts: Option<u64>,
    /// Where the known figures come from.
    #[serde(skip)]
    from: BTreeSet<&'static str>,
    /// Cards that they are parts of, by what tells them, with what they draw.
    #[serde(skip)]
    part_of: BTreeMap<Card, u64>,
    /// Devices of which neither they nor their card is known.
    #[serde(skip)]
    nothing_known: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
pub(super) fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// Position of the pool, and of the card's first device in it.
type Card = (usize, u32);

/// What is known of one device.
#[derive(Clone, Copy, Debug)]
struct Known {
    watts: Option<u32>,
    from: &'static str,
    /// None: nobody knows what the card draws.
    card: Option<(Card, u64)>,
}

impl Known {
    fn of(snapshot: &Snapshot, id: &DeviceId) -> Self {
        let Some((ix, pool, at)) = placed_in(snapshot, id) else {
            return Self {
                watts: None,
                from: "unknown",
                card: None,
            };
        };
        let classified = &pool.devices[at].classified;
        let board = pool.boards().board(at);
        let card = board.and_then(|(first, draw)| Some(((ix, first), u64::from(draw.watts()?))));
        Self {
            watts: classified.watts,
            from: classified.origin.as_str(),
            card,
        }
    }
}

impl Watts {
    pub(super) fn of<'d>(snapshot: &Snapshot, devices: impl Iterator<Item = &'d DeviceId>) -> Self {
        Self::sum(devices.map(|id| Known::of(snapshot, id)))
    }

    /// No devices draw 0 W.
    fn sum(devices: impl Iterator<Item = Known>) -> Self {
        let mut sum = Self::default();
        let mut cards = BTreeMap::new();
        let (mut known, mut total) = (0_u32, 0_u32);
        for device in devices {
            cards.extend(device.card);
            match (device.watts, device.card) {
                (Some(watts), _) => {
                    // At most 2,048 devices a pod, of at most 10 kW.
                    total = total.saturating_add(watts);
                    sum.from.insert(device.from);
                    known += 1;
                    continue;
                }
                (None, Some(card)) => sum.part_of.extend([card]),
                (None, None) => sum.nothing_known += 1,
            }
            sum.unknown_watts += 1;
        }
        sum.watts = (known > 0 || sum.unknown_watts == 0).then_some(total);
        let of_cards = (!cards.is_empty() || sum.unknown_watts == 0).then(|| cards.values().sum());
        sum.card_watts = of_cards;
        sum
    }

    /// What the cards draw, and of how many devices nobody knows it.
    pub(super) fn of_cards(&self) -> (u64, u32) {
        (self.card_watts.unwrap_or(0), self.nothing_known)
    }
}

/// `600 (table)`, `unknown`, `600 (measured) + 1 unknown`, `part of 700`.
impl std::fmt::Display for Watts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut words = vec![];
        if let Some(watts) = self.watts {
            let from: Vec<_> = self.from.iter().copied().collect();
            words.push(match from.as_slice() {
                [] => watts.to_string(),
                from => format!("{watts} ({})", from.join(", ")),
            });
        }
        if !self.part_of.is_empty() {
            words.push(format!("part of {}", self.part_of.values().sum::<u64>()));
        }
        match self.nothing_known {
            0 => {}
            _ if words.is_empty() => words.push("unknown".to_owned()),
            n => words.push(format!("{n} unknown")),
        }
        f.write_str(&words.join(" + "))
    }
}

#[cfg(test)]
mod tests {
    use super::{Known, Watts};

    #[test]
    fn what_is_not_known_is_never_0() {
        let card = |watts, from, n| Known {
            watts: Some(watts),
            from,
            card: Some(((0, n), u64::from(watts))),
        };
        let part = |n| Known {
            watts: None,
            from: "unknown",
            card: Some(((0, n), 700)),
        };
        let unknown = Known {
            watts: None,
            from: "unknown",
            card: None,
        };
        for (devices, text, json) in [
            (vec![], "0", r#"{"watts":0,"cardWatts":0}"#),
            (
                vec![card(600, "table", 0), card(600, "table", 1)],
                "1200 (table)",
                r#"{"watts":1200,"cardWatts":1200}"#,
            ),
            (
                vec![unknown],
                "unknown",
                r#"{"watts":null,"unknownWatts":1,"cardWatts":null}"#,
            ),
            (
                vec![card(500, "measured", 0), unknown, card(72, "policy", 1)],
                "572 (measured, policy) + 1 unknown",
                r#"{"watts":572,"unknownWatts":1,"cardWatts":572}"#,
            ),
            (
                vec![part(0), part(0)],
                "part of 700",
                r#"{"watts":null,"unknownWatts":2,"cardWatts":700}"#,
            ),
            (
                vec![part(0), part(1), card(600, "table", 2), unknown],
                "600 (table) + part of 1400 + 1 unknown",
                r#"{"watts":600,"unknownWatts":3,"cardWatts":2000}"#,
            ),
        ] {
            let watts = Watts::sum(devices.into_iter());
            assert_eq!(watts.to_string(), text);
            assert_eq!(serde_json::to_string(&watts).expect("serializes"), json);
        }
    }
}
