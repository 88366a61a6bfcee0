//! What containers ask for in extended resources, read as Kubernetes reads them.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::offer::Offers;
use super::parts::{self, Wish};
use super::pod::{Container, Phase, Pod};
use super::refuse::{Refused, shown};
use super::template::Parts;
use crate::model::{Name, Quantity};
use crate::policy::{Server, named_by};
use crate::snapshot::Snapshot;

/// The API server writes at most this many devices into a claim's allocation.
pub(super) const MOST_DEVICES: u32 = 32;

/// Requests for devices in one pod: bounds the work, far above any real pod.
pub(super) const MOST_ASKS: usize = 128;

/// One container's request for devices of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) phase: Phase,
    pub(super) list: &'static str,
    pub(super) at: usize,
    pub(super) resource: Name,
    /// The resource of the whole cards it is about: `nvidia.com/gpu` for `nvidia.com/mig-3g.40gb`.
    pub(super) cards: Name,
    /// DeviceClass its devices are claimed from. None: the request stays as it is, for the device plugin.
    pub(super) device_class: Option<Name>,
    /// Why it stays.
    pub(super) left: Option<String>,
    /// Which parts of cards are meant. None: whole cards.
    pub(super) parts: Option<Parts>,
    /// 1 to 32.
    pub(super) count: u32,
}

impl Ask {
    /// Whether it may be given partitions.
    pub(super) fn may_be_parts(&self) -> bool {
        self.parts.as_ref().is_some_and(Parts::some_are_parts)
    }
}

/// What a resource stands for.
enum Kind<'a> {
    /// Of the cards that are asked for with the resource, and the profile.
    Partitions(&'static str, Name),
    /// With the class that policy has for it.
    Cards(&'a Name),
}

/// Every request above zero, in the order of the containers, then of the resources' names. `wish`: what the pod's
/// annotations make of its cards.
pub(super) fn read(offers: &Offers<'_>, pod: Pod<'_>, wish: Option<&Wish>) -> Result<Vec<Ask>, Refused> {
    let Offers { snapshot, policy, .. } = *offers;
    let mut asks = vec![];
    for container in pod.containers() {
        let amounts = ["limits", "requests"].into_iter().filter_map(|w| container.amounts(w));
        let named: BTreeSet<&str> = amounts.flat_map(|m| m.keys()).map(String::as_str).collect();
        for resource in named {
            let kind = match (named_by(resource), policy.defaults.device_classes.get(resource)) {
                (Some((cards, profile)), _) => Kind::Partitions(cards, profile),
                (None, Some(class)) => Kind::Cards(class),
                (None, None) => continue,
            };
            let Some(count) = amount(&container, resource)? else {
                continue;
            };
            if asks.len() == MOST_ASKS {
                let why = format!("more than {MOST_ASKS} requests for devices in one pod");
                return Err(Refused::new(422, why));
            }
            let cards = match &kind {
                Kind::Partitions(cards, _) => cards,
                Kind::Cards(_) => resource,
            };
            let mut ask = Ask {
                phase: container.phase,
                list: container.list,
                at: container.at,
                resource: resource.into(),
                cards: cards.into(),
                device_class: None,
                left: None,
                parts: None,
                count,
            };
            match kind {
                Kind::Partitions(_, profile) => partitions(offers, &mut ask, &profile)?,
                Kind::Cards(class) => {
                    ask.device_class = device_class(snapshot, &ask.resource, class);
                    ask.left = ask.device_class.is_none().then(|| missing(class));
                    if let Some(wish) = wish {
                        let parts = parts::apply(offers, pod, wish, &ask)?;
                        ask.parts = Some(parts);
                    }
                }
            }
            if ask.device_class.is_some() {
                in_parts(&container, resource, count)?;
            }
            asks.push(ask);
        }
    }
    Ok(asks)
}

fn missing(class: &str) -> String {
    format!("this cluster has no DeviceClass {class} to claim it from")
}

/// A request that names a profile.
fn partitions(offers: &Offers<'_>, ask: &mut Ask, profile: &Name) -> Result<(), Refused> {
    let server = offers.server(&ask.resource, (&ask.cards, profile));
    let class = offers.policy.partition_class(&ask.resource, &ask.cards);
    let offer = || offers.of(&ask.cards, class?);
    match server {
        Server::Class(class) => {
            ask.parts = offer().map(|offer| offer.profile(profile, class));
            ask.device_class = ask.parts.is_some().then(|| class.clone());
        }
        Server::NoClass(class) => ask.left = Some(missing(class.map_or("?", |c| c))),
        Server::Plugin => {
            ask.left = Some("no driver publishes such a device, and nodes have it from the plugin".to_owned());
        }
        Server::Nobody => {
            let (whose, cards) = (&ask.resource, &ask.cards);
            return Err(parts::not_offered(offers, whose, profile, cards, offer()));
        }
    }
    Ok(())
}

/// The class the policy names, else the one that says it serves the resource (of several the newest, then by name).
pub(super) fn device_class(snapshot: &Snapshot, resource: &Name, named: &Name) -> Option<Name> {
    snapshot
        .class_for(resource, Some(named))
        .map(|class| class.name.clone())
}

/// None: not asked for, or zero of them.
fn amount(container: &Container<'_>, resource: &str) -> Result<Option<u32>, Refused> {
    let of = |which| {
        container
            .amounts(which)
            .and_then(|m: &Map<String, Value>| m.get(resource))
    };
    let read = |value: Option<&Value>| value.map(|v| whole(v, container, resource)).transpose();
    let (limit, request) = (read(of("limits"))?, read(of("requests"))?);
    match (limit, request) {
        // Kubernetes does not overcommit extended resources, so two different figures have no meaning.
        (Some(l), Some(r)) if l != r => Err(Refused::new(
            422,
            format!(
                "container {}: limits ask for {l} {resource} and requests for {r}; make them equal or leave requests out",
                shown(container.name())
            ),
        )),
        (Some(0) | None, Some(0) | None) => Ok(None),
        (Some(n), _) | (None, Some(n)) => Ok(Some(n)),
    }
}

/// A whole number in thousandths (`2000m`) is somebody who counted in shares of a device, or a mistake. Of requests that
/// stay as they are it is the API server's business.
fn in_parts(container: &Container<'_>, resource: &str, count: u32) -> Result<(), Refused> {
    let spelt = |which| container.amounts(which)?.get(resource)?.as_str();
    let parts = |text: &&str| text.trim_end().ends_with(['m', 'u', 'n']);
    match ["limits", "requests"].into_iter().filter_map(spelt).find(parts) {
        Some(text) => Err(Refused::new(
            400,
            format!(
                "container {}: {resource}: {} counts in parts of a device, which are not given; write {count}",
                shown(container.name()),
                shown(text)
            ),
        )),
        None => Ok(()),
    }
}

fn whole(value: &Value, container: &Container<'_>, resource: &str) -> Result<u32, Refused> {
    let spelt = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let wrong = |why: &str| {
        let at = shown(container.name());
        Refused::new(400, format!("container {at}: {resource}: {} {why}", shown(&spelt)))
    };
    let quantity = match value {
        Value::String(_) | Value::Number(_) => spelt.trim().parse::<Quantity>().ok(),
        _ => None,
    };
    let quantity = quantity.ok_or_else(|| wrong("is not a quantity (like 2)"))?;
    if quantity > Quantity::from_integer(MOST_DEVICES.into()) {
        return Err(wrong(&format!(
            "is more than the {MOST_DEVICES} devices a claim can hold"
        )));
    }
    if quantity < Quantity::ZERO {
        return Err(wrong("is negative"));
    }
    quantity
        .as_integer()
        .and_then(|count| u32::try_from(count).ok())
        .ok_or_else(|| wrong("is not a whole number of devices; a share of a device cannot be asked for this way"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read_of(resources: Value) -> Result<Option<u32>, Refused> {
        let container = Container {
            phase: Phase::Regular,
            list: "containers",
            at: 0,
            json: &json!({"name": "c", "resources": resources}),
        };
        amount(&container, "nvidia.com/gpu")
    }

    fn amount_of(resources: Value) -> Result<Option<u32>, u16> {
        read_of(resources).map_err(|e| e.code)
    }

    #[test]
    fn quantities_in_all_spellings() {
        for (given, want) in [
            (json!("2"), Ok(Some(2))),
            (json!(2), Ok(Some(2))),
            (json!("2000m"), Ok(Some(2))),
            (json!("2e0"), Ok(Some(2))),
            (json!(2.0), Ok(Some(2))),
            (json!("0"), Ok(None)),
            (json!(0), Ok(None)),
            (json!("1500m"), Err(400)),
            (json!("half"), Err(400)),
            (json!(""), Err(400)),
            (json!(null), Err(400)),
            (json!(["2"]), Err(400)),
            (json!("-1"), Err(400)),
            (json!("32"), Ok(Some(32))),
            (json!("33"), Err(400)),
            (json!("9999999999999999999999"), Err(400)),
            (json!("1e400"), Err(400)),
        ] {
            assert_eq!(amount_of(json!({"limits": {"nvidia.com/gpu": given}})), want, "{given}");
            assert_eq!(
                amount_of(json!({"requests": {"nvidia.com/gpu": given}})),
                want,
                "{given}"
            );
        }
    }

    #[test]
    fn too_many_is_said_in_these_words() {
        for text in ["33", "33.5", "1e400", "1Ki", "9999999999999999999999"] {
            let asked = read_of(json!({"limits": {"nvidia.com/gpu": text}}));
            let said = asked.expect_err("too many").message;
            assert!(said.contains("is more than the 32 devices"), "{said}");
        }
    }

    #[test]
    fn limits_and_requests_must_agree() {
        let both =
            |l: &str, r: &str| amount_of(json!({"limits": {"nvidia.com/gpu": l}, "requests": {"nvidia.com/gpu": r}}));
        assert_eq!(both("2", "2000m"), Ok(Some(2)));
        assert_eq!(both("2", "1"), Err(422));
        assert_eq!(both("0", "1"), Err(422));
        assert_eq!(both("0", "0"), Ok(None));
        assert_eq!(amount_of(json!(null)), Ok(None));
        assert_eq!(amount_of(json!({"limits": {"cpu": "1"}})), Ok(None));
    }
}
