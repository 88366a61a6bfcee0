//! Which devices of a pool are one card: a card and its partitions, one GPU listed twice. Power is the card's, however
//! it is cut, so whoever holds any part of a card is counted for all of it, and several on one card are counted once.
//!
//! What joins devices: what tells their card (`same`), or a counter set of which exactly one whole card draws. Nothing
//! that says so: each its own card, which counts too much rather than too little.

use std::collections::HashMap;

use super::pool::PoolDevice;
use super::same::{Id, ids};
use crate::model::{Bits, Device, Name};

/// Drivers of cards are called `gpu.nvidia.com`, `gpu.amd.com` and the like; those of channels and NICs are not.
const CARDS: &str = "gpu.";

/// What one card draws of the budgets it falls under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Draw {
    /// None of its devices has a class or watts, and its driver is not one of cards (a NIC, a channel): budgets are of
    /// class watts, so it is not counted.
    Nothing,
    Watts(u32),
    /// A card of unknown watts: it can be counted nowhere, and so is not given where there is a budget.
    Unknown,
}

impl Draw {
    /// None: nothing that is counted, or nobody knows.
    pub fn watts(self) -> Option<u32> {
        match self {
            Self::Watts(watts) => Some(watts),
            Self::Nothing | Self::Unknown => None,
        }
    }
}

#[derive(Debug)]
pub struct Boards {
    /// By device: a position in `draws`.
    of: Vec<u32>,
    draws: Vec<(Draw, u32)>,
    /// Devices that share their card with others.
    pub joined: Bits,
}

impl Boards {
    pub(super) fn of(driver: &str, devices: &[PoolDevice]) -> Self {
        let mut known = Known::default();
        let mut of = vec![u32::MAX; devices.len()];
        let mut boards = 0;
        for whole in [true, false] {
            for (i, d) in devices.iter().enumerate() {
                if d.device.is_partition() == whole {
                    continue;
                }
                let ids: Vec<Id<'_>> = ids(d).collect();
                let set = || if whole { None } else { known.by_counters(&d.device) };
                // Two whole cards of one PCI address are somebody's mistake, and are counted apart.
                let tells = |id: &&Id<'_>| !whole || id.0 == "uuid";
                let same = ids.iter().filter(tells).find_map(|id| known.ids.get(id));
                let card = same.copied().or_else(set);
                let card = card.unwrap_or_else(|| {
                    boards += 1;
                    boards - 1
                });
                of[i] = card;
                known.add(card, ids, whole.then_some(&*d.device));
            }
        }
        let mut draws = vec![(Draw::Nothing, u32::MAX); boards as usize];
        let mut members = vec![0_u32; boards as usize];
        for ((at, card), d) in (0u32..).zip(&of).zip(devices) {
            let (draw, first) = &mut draws[*card as usize];
            *first = at.min(*first);
            members[*card as usize] += 1;
            // The same card in two words: the larger, and a figure rather than none.
            *draw = match (*draw, d.classified.board) {
                (Draw::Watts(a), Some(b)) => Draw::Watts(a.max(b)),
                (_, Some(b)) => Draw::Watts(b),
                (Draw::Nothing, None) if d.classified.class.is_some() || driver.starts_with(CARDS) => Draw::Unknown,
                (draw, None) => draw,
            };
        }
        let mut joined = Bits::new(devices.len());
        for (i, card) in of.iter().enumerate() {
            if members[*card as usize] > 1 {
                joined.insert(i);
            }
        }
        Self { of, draws, joined }
    }

    /// The card of a device, told by the position of its first device, and what it draws. None: no such device.
    pub fn board(&self, device: usize) -> Option<(u32, Draw)> {
        let (draw, first) = self.draws.get(*self.of.get(device)? as usize)?;
        Some((*first, *draw))
    }

    /// The most a card of the pool draws; `Nothing` where no card is counted.
    pub fn dearest(&self) -> Draw {
        let draws = self.draws.iter().map(|(draw, _)| *draw);
        let rank = |d: &Draw| match d {
            Draw::Nothing => (0, 0),
            Draw::Unknown => (1, 0),
            Draw::Watts(w) => (2, *w),
        };
        draws.max_by_key(rank).unwrap_or(Draw::Nothing)
    }
}

#[derive(Default)]
struct Known<'a> {
    ids: HashMap<Id<'a>, u32>,
    /// The whole card that draws of a counter set; None: several do.
    sets: HashMap<&'a Name, Option<u32>>,
}

impl<'a> Known<'a> {
    fn add(&mut self, card: u32, ids: Vec<Id<'a>>, whole: Option<&'a Device>) {
        for id in ids {
            self.ids.entry(id).or_insert(card);
        }
        for consumption in whole.iter().flat_map(|d| &d.consumes) {
            let of = self.sets.entry(&consumption.counter_set).or_insert(Some(card));
            if *of != Some(card) {
                *of = None;
            }
        }
    }

    fn by_counters(&self, device: &Device) -> Option<u32> {
        let mut sets = device.consumes.iter();
        sets.find_map(|c| *self.sets.get(&c.counter_set)?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::{AttributeValue, Classified, CounterConsumption, NodeScope, QualifiedName, WattOrigin};

    fn device(
        name: &str,
        class: Option<&str>,
        board: Option<u32>,
        attributes: &[(&str, &str)],
        set: &str,
    ) -> PoolDevice {
        let driver = Name::from("gpu.example.com");
        let attribute = |(k, v): &(&str, &str)| (QualifiedName::parse(k, &driver), AttributeValue::String((*v).into()));
        let consumes = (!set.is_empty()).then(|| CounterConsumption {
            counter_set: set.into(),
            counters: [].into(),
        });
        PoolDevice {
            device: Arc::new(Device {
                name: name.into(),
                attributes: attributes.iter().map(attribute).collect(),
                capacity: [].into(),
                taints: [].into(),
                consumes: consumes.into_iter().collect(),
                nodes: None,
                allow_multiple: false,
                binds_to_node: false,
                binding_conditions: [].into(),
                binding_failure_conditions: [].into(),
            }),
            classified: Classified {
                class: class.map(Name::from),
                watts: board,
                origin: WattOrigin::Table,
                board,
            },
            scope: NodeScope::All,
        }
    }

    fn boards(devices: &[PoolDevice]) -> Vec<(u32, Draw)> {
        let boards = Boards::of("nic.example.com", devices);
        (0..devices.len()).filter_map(|i| boards.board(i)).collect()
    }

    #[test]
    fn partitions_are_their_card_by_whatever_tells_it() {
        let c = Some("h100");
        let devices = [
            device("mig-0", c, Some(700), &[("type", "mig"), ("parentUUID", "GPU-a")], ""),
            device("gpu-a", c, Some(700), &[("uuid", "GPU-a")], ""),
            device("mig-1", c, Some(700), &[("type", "mig"), ("parentUUID", "GPU-b")], ""),
            device("mig-2", c, Some(700), &[("type", "mig"), ("parentUUID", "GPU-b")], ""),
            device("gpu-c", c, Some(700), &[("uuid", "GPU-c")], "set-c"),
            device("mig-3", c, Some(700), &[("type", "mig")], "set-c"),
            device("vfio-c", c, Some(700), &[("uuid", "GPU-c")], ""),
            device(
                "part-0",
                c,
                Some(750),
                &[("type", "amdgpu-partition"), ("pciBusID", "0000:01:00.0")],
                "",
            ),
            device(
                "part-1",
                c,
                Some(750),
                &[("type", "amdgpu-partition"), ("pciBusID", "0000:01:00.0")],
                "",
            ),
        ];
        let of: Vec<u32> = boards(&devices).iter().map(|c| c.0).collect();
        assert_eq!(of, [0, 0, 2, 2, 4, 4, 4, 7, 7]);
        assert_eq!(Boards::of("d", &devices).joined.len(), 9);
    }

    #[test]
    fn where_nothing_tells_each_counts() {
        let c = Some("x");
        let devices = [
            device("gpu-0", c, Some(300), &[("pciBusID", "p")], "all"),
            device("gpu-1", c, Some(300), &[("pciBusID", "p")], "all"),
            device("mig-0", c, Some(300), &[("type", "mig")], "all"),
            device("mig-1", c, Some(300), &[("type", "mig")], "none"),
        ];
        let of: Vec<u32> = boards(&devices).iter().map(|c| c.0).collect();
        assert_eq!(of, [0, 1, 2, 3], "one set of two cards, one PCI address of two cards");
    }

    #[test]
    fn draws() {
        let devices = [
            device("nic", None, None, &[], ""),
            device("gpu", Some("a"), None, &[("uuid", "u")], ""),
            device("twin", Some("b"), Some(300), &[("uuid", "u")], ""),
            device("odd", Some("c"), None, &[], ""),
        ];
        let draws: Vec<Draw> = boards(&devices).iter().map(|c| c.1).collect();
        assert_eq!(
            draws,
            [Draw::Nothing, Draw::Watts(300), Draw::Watts(300), Draw::Unknown]
        );
        assert_eq!(Boards::of("d", &devices).dearest(), Draw::Watts(300));
        assert_eq!(Boards::of("nic", &devices[..1]).dearest(), Draw::Nothing);
        assert_eq!(Boards::of("d", &[]).dearest(), Draw::Nothing);
        assert_eq!(
            Boards::of("gpu.example.com", &devices[..1]).dearest(),
            Draw::Unknown,
            "a card nobody can name"
        );
    }
}
