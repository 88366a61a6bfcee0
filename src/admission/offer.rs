//! What drivers offer of partitions, from what slices publish now, and the words of it in a claim.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::template::{Choice, Parts};
use crate::model::alike::closest;
use crate::model::{CARD, Name, Quantity};
use crate::policy::{Policy, Server};
use crate::snapshot::{CardKind, Snapshot};

/// Alternatives of one request (resource.k8s.io/v1, FirstAvailableDeviceRequestMaxSize).
const MOST_CHOICES: usize = 8;
/// Profiles that a refusal lists.
const MOST_LISTED: usize = 12;

/// What is offered, as one decision asks it: all pools are walked once for each driver, not for each ask.
pub(super) struct Offers<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) policy: &'a Policy,
    known: RefCell<ByCards<'a>>,
    /// By the resource that names a profile.
    servers: RefCell<BTreeMap<Name, Server<'a>>>,
}

/// By the resource of cards and the class.
type ByCards<'a> = BTreeMap<(Name, Name), Option<Rc<Offer<'a>>>>;

impl<'a> Offers<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, policy: &'a Policy) -> Self {
        Self {
            snapshot,
            policy,
            known: RefCell::default(),
            servers: RefCell::default(),
        }
    }

    /// Of the driver whose cards are asked for under the resource, or claimed from the class.
    pub(super) fn of(&self, cards: &Name, class: &Name) -> Option<Rc<Offer<'a>>> {
        let mut known = self.known.borrow_mut();
        let offer = known.entry((cards.clone(), class.clone()));
        offer
            .or_insert_with(|| Offer::of(self.snapshot, cards, class).map(Rc::new))
            .clone()
    }

    /// Who serves a resource that names the profile of the cards.
    pub(super) fn server(&self, resource: &Name, named: (&str, &Name)) -> Server<'a> {
        let mut servers = self.servers.borrow_mut();
        let server = servers.entry(resource.clone());
        *server.or_insert_with(|| Server::of(self.snapshot, self.policy, resource, named))
    }
}

/// What one driver has to offer.
pub(super) struct Offer<'a> {
    snapshot: &'a Snapshot,
    pub(super) driver: Name,
    /// Each once.
    pub(super) kinds: BTreeSet<&'a CardKind>,
}

impl<'a> Offer<'a> {
    fn of(snapshot: &'a Snapshot, cards: &str, class: &str) -> Option<Self> {
        let pools = || snapshot.pools.iter().flatten().map(|state| &state.pool);
        let drivers: BTreeSet<&Name> = pools().map(|p| &p.driver).collect();
        let mut held = drivers.into_iter().filter(|d| snapshot.may_hold(cards, Some(class), d));
        let driver = held.next()?.clone();
        let mut kinds = BTreeSet::new();
        // Most pools are like the one before.
        let mut last: &[CardKind] = &[];
        for pool in pools().filter(|p| p.driver == driver) {
            let these = &pool.summary().kinds[..];
            if these != last {
                kinds.extend(these);
                last = these;
            }
        }
        Some(Self {
            snapshot,
            driver,
            kinds,
        })
    }

    pub(super) fn has(&self, profile: &Name) -> bool {
        self.kinds.iter().any(|k| k.profile.as_ref() == Some(profile))
    }

    pub(super) fn profiles(&self) -> BTreeSet<&'a Name> {
        self.kinds.iter().filter_map(|k| k.profile.as_ref()).collect()
    }

    /// The profile from the class.
    pub(super) fn profile(&self, profile: &Name, class: &Name) -> Parts {
        let choice = Choice {
            name: "part".into(),
            device_class: class.clone(),
            selector: format!("{}{}", self.says(), self.is_profile(profile)).into(),
        };
        Parts {
            label: profile.clone(),
            choices: vec![choice],
        }
    }

    fn says(&self) -> String {
        format!("device.driver == '{}' && ", self.driver)
    }

    fn is_profile(&self, profile: &str) -> String {
        let text =
            |name: &str, value: &str| format!("device.attributes['{}'].?{name}.orValue('') == '{value}'", self.driver);
        match profile.split_once('_') {
            // AMD's driver says it in one word or, where it makes partitions itself, in two.
            Some((compute, memory)) => format!(
                "({} || {} && {})",
                text("partitionProfile", profile),
                text("computePartition", compute),
                text("memoryPartition", memory)
            ),
            None => text("profile", profile),
        }
    }

    /// Partitions with the memory, smallest first, then cards; None: there is nothing of the size.
    pub(super) fn memory(
        &self,
        (label, least): (&Name, Quantity),
        partitions: Option<&Name>,
        cards: &Name,
    ) -> Option<Parts> {
        let large = |k: &&&CardKind| k.memory.is_some_and(|m| m >= least);
        let parts = self.kinds.iter().filter(|k| k.partition).filter(large);
        let sizes: BTreeSet<Quantity> = parts.filter_map(|k| k.memory).collect();
        let whole = self.kinds.iter().filter(|k| !k.partition).any(|k| large(&k));
        let mut choices = vec![];
        if let Some(class) = partitions {
            let last = MOST_CHOICES - usize::from(whole) - 1;
            for (i, size) in sizes.into_iter().enumerate().take(last + 1) {
                // All that are larger than the last that can be named are one alternative.
                let compares = if i == last { ">=" } else { "==" };
                choices.push(Choice {
                    name: format!("part-{i}").into(),
                    device_class: class.clone(),
                    selector: format!(
                        "{}{} && {}",
                        self.says(),
                        self.is_part(),
                        self.has_memory(compares, size)
                    )
                    .into(),
                });
            }
        }
        choices.extend(whole.then(|| Choice {
            name: CARD.into(),
            device_class: cards.clone(),
            selector: format!("{}{}", self.says(), self.has_memory(">=", least)).into(),
        }));
        (!choices.is_empty()).then(|| Parts {
            label: label.clone(),
            choices,
        })
    }

    /// As `Device::is_partition` has it, in the words of this driver.
    fn is_part(&self) -> String {
        let attributes = format!("device.attributes['{}']", self.driver);
        match &*self.driver {
            "gpu.nvidia.com" => format!("{attributes}.?type.orValue('') == 'mig'"),
            "gpu.amd.com" => format!("{attributes}.?type.orValue('').endsWith('-partition')"),
            _ => format!("'partition' in {attributes}"),
        }
    }

    fn has_memory(&self, compares: &str, size: Quantity) -> String {
        let capacity = format!("device.capacity['{}']", self.driver);
        format!(
            "'memory' in {capacity} && {capacity}.memory.compareTo(quantity('{}')) {compares} 0",
            bytes(size)
        )
    }

    /// The offered profiles and how many of each still fit, in words.
    pub(super) fn words(&self, wanted: &Name) -> String {
        let profiles = self.profiles();
        let mut fits = BTreeMap::<Name, u32>::new();
        for (_, node) in self.snapshot.nodes() {
            for (profile, n) in self.snapshot.fits(node) {
                let sum = fits.entry(profile).or_default();
                *sum = sum.saturating_add(n);
            }
        }
        let count = profiles.len();
        let near = closest(profiles.into_iter().cloned().collect(), wanted);
        let said = |p: &Name| match fits.get(p) {
            Some(n) => format!("{p} ({n} still fit)"),
            None => p.to_string(),
        };
        let mut said: Vec<String> = near.iter().take(MOST_LISTED).map(said).collect();
        if count > said.len() {
            said.push(format!("{} more", count - said.len()));
        }
        match said.as_slice() {
            [] => format!("no device of {} is a partition", self.driver),
            _ => format!("{} offers {}", self.driver, said.join(", ")),
        }
    }

    /// The largest memory published.
    pub(super) fn largest(&self) -> Option<Quantity> {
        self.kinds.iter().filter_map(|k| k.memory).max()
    }
}

/// As short as it can be written without a loss.
pub(super) fn bytes(size: Quantity) -> String {
    let whole = size.nanos() / 1_000_000_000;
    match whole {
        n if n % (1 << 20) == 0 => format!("{}Mi", n >> 20),
        n => n.to_string(),
    }
}
