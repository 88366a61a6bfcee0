//! Partitions of cards: what a pod gets of what the cluster offers (`offer`) that names one, or so much memory.
//!
//! All of it is from what slices publish now. A template is named by its content, so a cluster that offers other sizes
//! tomorrow makes other templates tomorrow, and takes nothing from those there are.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::ask::{Ask, MOST_DEVICES, device_class};
use super::offer::{Offer, Offers, bytes};
use super::pod::Pod;
use super::refuse::{Refused, list, shown};
use super::template::{Parts, Template};
use crate::model::{MEMORY, Name, PARTITION, Quantity, TOPOLOGY};
use crate::policy::{Policy, named_by, spelled};
use crate::snapshot::CardKind;

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
            let wrong = || {
                Refused::new(
                    400,
                    format!("{MEMORY}: {} is not a size with its unit (like 20Gi)", shown(text)),
                )
            };
            Ok(Some(Wish::Memory(text.into(), bytes.ok_or_else(wrong)?)))
        }
    }
}

/// What becomes of an ask for whole cards under the pod's annotations.
pub(super) fn apply(offers: &Offers<'_>, pod: Pod<'_>, wish: &Wish, ask: &Ask) -> Result<Parts, Refused> {
    let Offers { snapshot, policy, .. } = *offers;
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
    let offer = offers.of(&ask.cards, class.unwrap_or(cards));
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
                offer => Err(not_offered(offers, PARTITION, profile, &ask.cards, offer)),
            }
        }
        Wish::Memory(text, least) => {
            let together = ask.count > 1 && wants_links(policy, pod);
            let found = offer
                .as_ref()
                .and_then(|o| o.memory((text, *least), there.filter(|_| !together), cards));
            found.ok_or_else(|| {
                let largest = offer.as_ref().and_then(|o| o.largest());
                let shared = || offer.as_ref().is_some_and(|o| o.is_shared());
                let largest = largest.map_or_else(
                    || match shared() {
                        true => {
                            "its cards are given in shares: ask for one with wattlane.dev/share beside it".to_owned()
                        }
                        false => "no device says how much memory it has".to_owned(),
                    },
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
    offers: &Offers<'_>,
    whose: &str,
    profile: &Name,
    cards: &Name,
    offer: Option<Rc<Offer<'_>>>,
) -> Refused {
    let others = offers
        .policy
        .defaults
        .partition_classes
        .iter()
        .filter(|(r, _)| *r != cards);
    let other = others
        .filter_map(|(r, class)| Some((r, offers.of(r, class)?)))
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
    match pod.annotation(TOPOLOGY) {
        Some(word) => word != "none",
        None => policy.requires_links(),
    }
}

/// Partitions reach each other only through the host, whatever card they are of.
pub(super) fn unlinked(policy: &Policy, pod: Pod<'_>, asks: &[Ask]) -> Result<(), Refused> {
    let only_parts = |a: &&Ask| a.parts.as_ref().is_some_and(Parts::all_are_parts);
    let parts: u32 = asks.iter().filter(only_parts).map(|a| a.count).sum();
    let cards: u32 = asks.iter().filter(|a| a.parts.is_none()).map(|a| a.count).sum();
    let whose = match pod.annotation(TOPOLOGY) {
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
            "{TOPOLOGY}: required{whose}: partitions have no peer-to-peer, so the {} devices of this pod cannot be \
             linked; ask for one, for whole cards, or write none",
            parts + cards
        ),
    ))
}

/// The pod's wattage class must be one that has what is asked for.
pub(super) fn of_class(
    offers: &Offers<'_>,
    asks: &[Ask],
    class: Option<&Name>,
    wish: Option<&Wish>,
) -> Result<(), Refused> {
    let Some(class) = class else { return Ok(()) };
    for ask in asks {
        let (Some(parts), Some(from)) = (&ask.parts, &ask.device_class) else {
            continue;
        };
        let Some(offer) = offers.of(&ask.cards, from) else {
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
pub(super) fn template_named(offers: &Offers<'_>, pod: Pod<'_>, name: &str) -> Option<Template> {
    let Offers { snapshot, policy, .. } = *offers;
    let count = Template::counted(name).filter(|n| (1..=MOST_DEVICES).contains(n))?;
    let of = |parts: Parts| Template::of_parts(parts, count).filter(|t| *t.name() == *name);
    let defaults = &policy.defaults;
    // Classes that policy has for one profile, and those for all of a kind of card.
    let for_one = defaults.device_classes.iter().filter_map(|(resource, class)| {
        let (cards, profile) = named_by(resource)?;
        let offer = offers.of(&cards.into(), class).filter(|o| o.has(&profile))?;
        of(offer.profile(&profile, class))
    });
    let for_all = defaults.partition_classes.iter().filter_map(|(cards, class)| {
        let offer = offers.of(cards, class)?;
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
            let offer = offers.of(cards, class.unwrap_or(&whole))?;
            let there = class.filter(|class| snapshot.classes.contains_key(*class));
            let mut both = [there, None].into_iter();
            both.find_map(|there| offer.memory((&text, least), there, &whole).and_then(of))
        })
    })
}
