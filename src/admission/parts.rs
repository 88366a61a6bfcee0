//! Partitions of cards: what the cluster offers of them, and what a pod gets that names one, or so much memory.
//!
//! All of it is from what slices publish now. A template is named by its content, so a cluster that offers other sizes
//! tomorrow makes other templates tomorrow, and takes nothing from those there are.

use std::collections::BTreeSet;

use super::ask::{Ask, MOST_DEVICES, device_class};
use super::pod::Pod;
use super::refuse::{Refused, list, shown};
use super::template::{Choice, Parts, Template};
use crate::model::alike::closest;
use crate::model::{CARD, Name, Quantity};
use crate::policy::{Policy, named_by, spelled};
use crate::snapshot::{CardKind, Snapshot};

pub(super) const PARTITION: &str = "wattlane.dev/partition";
pub(super) const MEMORY: &str = "wattlane.dev/memory";

/// Alternatives of one request (resource.k8s.io/v1, FirstAvailableDeviceRequestMaxSize).
const MOST_CHOICES: usize = 8;
/// Profiles that a refusal lists.
const MOST_LISTED: usize = 12;

/// What the pod's annotations make of the cards it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Profile(Name),
    /// As it was written, and in bytes.
    Memory(Name, Quantity),
}

/// # Errors
/// What cannot be read, or is said twice.
pub(super) fn wish(pod: Pod<'_>) -> Result<Option<Wish>, Refused> {
    match (pod.annotation(PARTITION), pod.annotation(MEMORY)) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(Refused::new(
            422,
            format!("{PARTITION} and {MEMORY} both say which part of a card is meant: write one of them"),
        )),
        (Some(profile), None) => Ok(Some(Wish::Profile(spelled(profile)))),
        (None, Some(text)) => {
            let bytes = Quantity::size(text).map(Quantity::from_integer);
            let wrong = || Refused::new(400, format!("{MEMORY}: {} is not a size (like 20Gi)", shown(text)));
            Ok(Some(Wish::Memory(text.into(), bytes.ok_or_else(wrong)?)))
        }
    }
}

/// What one driver has to offer.
pub(super) struct Offer<'a> {
    snapshot: &'a Snapshot,
    driver: Name,
    kinds: BTreeSet<&'a CardKind>,
}

impl<'a> Offer<'a> {
    /// Of the driver whose cards are asked for under the resource, or claimed from the class.
    pub(super) fn of(snapshot: &'a Snapshot, cards: &str, class: &str) -> Option<Self> {
        let pools = || snapshot.pools.iter().flatten().map(|state| &state.pool);
        let drivers: BTreeSet<&Name> = pools().map(|p| &p.driver).collect();
        let mut held = drivers.into_iter().filter(|d| snapshot.may_hold(cards, Some(class), d));
        let driver = held.next()?.clone();
        let kinds = pools().filter(|p| p.driver == driver).flat_map(|p| &p.summary().kinds);
        Some(Self {
            kinds: kinds.collect(),
            snapshot,
            driver,
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
        let mut fits = std::collections::BTreeMap::<Name, u32>::new();
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
    fn largest(&self) -> Option<Quantity> {
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

/// What becomes of an ask for whole cards under the pod's annotations.
pub(super) fn apply(
    snapshot: &Snapshot,
    policy: &Policy,
    pod: Pod<'_>,
    wish: &Wish,
    ask: &Ask,
) -> Result<Parts, Refused> {
    let refused = |why: String| Err(Refused::new(422, why));
    let Some(cards) = &ask.device_class else {
        let key = if matches!(wish, Wish::Profile(_)) {
            PARTITION
        } else {
            MEMORY
        };
        return refused(format!(
            "{key}: {} is left to the device plugin, which gives no part of a card that is asked for so: this cluster has no \
             DeviceClass for it",
            ask.resource
        ));
    };
    let class = policy.partition_class(&ask.resource, &ask.cards);
    let there = class.filter(|class| snapshot.classes.contains_key(*class));
    let offer = Offer::of(snapshot, &ask.cards, class.unwrap_or(cards));
    match wish {
        Wish::Profile(profile) => {
            let Some(class) = there else {
                let named = class.map_or("any", |c| c);
                return refused(format!(
                    "{PARTITION}: this cluster has no DeviceClass {named} to claim partitions of {} from",
                    ask.cards
                ));
            };
            match offer {
                Some(offer) if offer.has(profile) => Ok(offer.profile(profile, class)),
                offer => Err(not_offered(snapshot, policy, PARTITION, profile, &ask.cards, offer)),
            }
        }
        Wish::Memory(text, least) => {
            let together = ask.count > 1 && wants_links(policy, pod);
            let found = offer
                .as_ref()
                .and_then(|o| o.memory((text, *least), there.filter(|_| !together), cards));
            found.ok_or_else(|| {
                let largest = offer.as_ref().and_then(Offer::largest);
                let largest = largest.map_or_else(
                    || "no device says how much memory it has".to_owned(),
                    |m| format!("the largest device has {}", bytes(m)),
                );
                let what = if together {
                    "no whole card (several that are to be near one another cannot be partitions)"
                } else {
                    "nothing"
                };
                Refused::new(
                    422,
                    format!("{MEMORY}: {what} of {} here has {text}; {largest}", ask.cards),
                )
            })
        }
    }
}

pub(super) fn not_offered(
    snapshot: &Snapshot,
    policy: &Policy,
    whose: &str,
    profile: &Name,
    cards: &Name,
    offer: Option<Offer<'_>>,
) -> Refused {
    let others = policy.defaults.partition_classes.iter().filter(|(r, _)| *r != cards);
    let other = others
        .filter_map(|(r, class)| Some((r, Offer::of(snapshot, r, class)?)))
        .find(|(_, offer)| offer.has(profile));
    let here = offer.map_or_else(
        || "no driver of them publishes devices here".to_owned(),
        |o| o.words(profile),
    );
    let why = match other {
        Some((resource, other)) => format!(
            "{whose}: {} is a partition of {}, asked for with {resource}, and the pod asks for {cards}; {here}",
            shown(profile),
            other.driver
        ),
        None => format!("{whose}: no device of this cluster is a {}; {here}", shown(profile)),
    };
    Refused::new(422, why)
}

/// Whether the pod's cards are to be near one another by its own word, or required to be by the policy's.
fn wants_links(policy: &Policy, pod: Pod<'_>) -> bool {
    match pod.annotation("wattlane.dev/topology") {
        Some(word) => word != "none",
        None => policy.requires_links(),
    }
}

/// Partitions reach each other only through the host, whatever card they are of.
pub(super) fn unlinked(policy: &Policy, pod: Pod<'_>, asks: &[Ask]) -> Result<(), Refused> {
    let only_parts = |a: &&Ask| a.may_be_parts() && a.parts.iter().flat_map(|p| &p.choices).all(|c| &*c.name != CARD);
    let parts: u32 = asks.iter().filter(only_parts).map(|a| a.count).sum();
    let cards: u32 = asks.iter().filter(|a| a.parts.is_none()).map(|a| a.count).sum();
    let whose = match pod.annotation("wattlane.dev/topology") {
        Some("required") => "",
        None if policy.requires_links() => ", which the policy says for it",
        _ => return Ok(()),
    };
    if parts == 0 || parts + cards < 2 {
        return Ok(());
    }
    Err(Refused::new(
        422,
        format!(
            "wattlane.dev/topology: required{whose}: partitions have no peer-to-peer, so the {} devices of this pod cannot be \
             linked; ask for one, for whole cards, or write none",
            parts + cards
        ),
    ))
}

/// The pod's wattage class must be one that has what is asked for.
pub(super) fn of_class(
    snapshot: &Snapshot,
    asks: &[Ask],
    class: Option<&Name>,
    wish: Option<&Wish>,
) -> Result<(), Refused> {
    let Some(class) = class else { return Ok(()) };
    for ask in asks {
        let (Some(parts), Some(from)) = (&ask.parts, &ask.device_class) else {
            continue;
        };
        let Some(offer) = Offer::of(snapshot, &ask.cards, from) else {
            continue;
        };
        let least = match wish {
            Some(Wish::Memory(_, least)) if named_by(&ask.resource).is_none() => Some(*least),
            _ => None,
        };
        let serves = |k: &&&CardKind| match least {
            Some(least) => k.memory.is_some_and(|m| m >= least),
            None => k.profile.as_ref() == Some(&parts.label),
        };
        let of: BTreeSet<&Name> = offer
            .kinds
            .iter()
            .filter(serves)
            .filter_map(|k| k.class.as_ref())
            .collect();
        if !of.contains(class) {
            let what = match least {
                Some(_) => format!("device with {}", parts.label),
                None => parts.label.to_string(),
            };
            let of: Vec<&Name> = of.into_iter().collect();
            let of = if of.is_empty() {
                "they have no class".to_owned()
            } else {
                format!("there are of {}", list(&of))
            };
            return Err(Refused::new(
                422,
                format!("{}: no {what} is of the class {}; {of}", super::CLASS, shown(class)),
            ));
        }
    }
    Ok(())
}

/// The template of partitions that a pod names, made anew of what the cluster offers now. None: it is not one, or what it
/// is made of is offered no more.
pub(super) fn template_named(snapshot: &Snapshot, policy: &Policy, pod: Pod<'_>, name: &str) -> Option<Template> {
    let count = Template::counted(name).filter(|n| (1..=MOST_DEVICES).contains(n))?;
    let of = |parts: Parts| Template::of_parts(parts, count).filter(|t| *t.name() == *name);
    let defaults = &policy.defaults;
    // Classes that policy has for one profile, and those for all of a kind of card.
    let for_one = defaults.device_classes.iter().filter_map(|(resource, class)| {
        let (cards, profile) = named_by(resource)?;
        of(Offer::of(snapshot, cards, class).filter(|o| o.has(&profile))?.profile(&profile, class))
    });
    let for_all = defaults.partition_classes.iter().filter_map(|(cards, class)| {
        let offer = Offer::of(snapshot, cards, class)?;
        offer.profiles().into_iter().find_map(|p| of(offer.profile(p, class)))
    });
    let by_profile = for_one.chain(for_all).next();
    by_profile.or_else(|| {
        let Some(Wish::Memory(text, least)) = wish(pod).ok().flatten() else {
            return None;
        };
        // As `apply`, of every resource that cards are asked for with.
        let cards = defaults.device_classes.iter().filter(|(r, _)| named_by(r).is_none());
        cards.into_iter().find_map(|(cards, named)| {
            let whole = device_class(snapshot, cards, named)?;
            let class = policy.partition_class(cards, cards);
            let offer = Offer::of(snapshot, cards, class.unwrap_or(&whole))?;
            let there = class.filter(|class| snapshot.classes.contains_key(*class));
            let mut both = [there, None].into_iter();
            both.find_map(|there| offer.memory((&text, least), there, &whole).and_then(of))
        })
    })
}
