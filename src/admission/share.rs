//! Slots on shared devices: `wattlane.dev/share: NAME` and one card become a claim that all pods of the namespace with
//! that name reserve, or, where devices have consumable capacity, a claim of the pod's own on a part of one.

use std::collections::BTreeMap;

use serde_json::Value;

use super::ask::{Ask, MOST_ASKS};
use super::plan::{self, Plan};
use super::pod::Pod;
use super::refuse::{Refused, shown};
use super::shared::{Shared, bytes_in};
use crate::model::{CLASS, MEMORY, Name, PARTITION, Quantity, SHARE, Share};
use crate::policy::{SHARING_DRIVER, Sharing, dns_label, named_by};
use crate::snapshot::Snapshot;

/// Alternatives of one request are few (8), and a driver spells a name in one way.
const MOST_SPELLINGS: usize = 4;

/// A pod's wish, served.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) shared: Shared,
    /// The pod's own name for the claim.
    pub(super) entry: String,
    pub(super) ask: Ask,
    pub(super) warning: String,
}

impl Wanted {
    /// The ask is served, by no claim of the plan's.
    pub(super) fn plan(&self) -> Plan {
        Plan {
            claims: vec![],
            served: vec![(vec![], self.ask.clone())],
        }
    }
}

/// The name that the pod wishes to share under. `false` is no wish.
pub(super) fn wish<'a>(pod: Pod<'a>) -> Option<&'a str> {
    pod.annotation(SHARE).filter(|name| *name != "false")
}

fn refused<T>(code: u16, what: String) -> Result<T, Refused> {
    Err(Refused::new(code, format!("{SHARE}: {what}")))
}

/// None: the pod does not wish to share, or names its claim already.
pub(super) fn wanted(
    snapshot: &Snapshot,
    sharing: Option<&Sharing>,
    namespace: &str,
    pod: Pod<'_>,
    asks: &[Ask],
) -> Result<Option<Wanted>, Refused> {
    let Some(share) = wish(pod) else { return Ok(None) };
    if let Err(why) = dns_label(share) {
        return refused(400, format!("{} is no name of a share: {why}", shown(share)));
    }
    if asks.is_empty() && (names_ours(pod, share) || pod.spec_list("resourceClaims").is_empty()) {
        return Ok(None);
    }
    // Parts of cards that a device plugin shares out are its own business.
    let plugin = |ask: &Ask| {
        let mut nodes = snapshot.nodes();
        ask.device_class.is_none() && nodes.any(|(_, n)| Snapshot::gives_parts(&ask.resource, &n.node.labels).is_some())
    };
    if !asks.is_empty() && asks.iter().all(plugin) {
        return Ok(None);
    }
    let Some(sharing) = sharing else {
        return refused(
            403,
            format!(
                "pods of namespace {namespace} may not share devices: the policy has no `sharing` in the rule for this \
                 namespace. Remove the annotation for a device of the pod's own"
            ),
        );
    };
    let ask = match asks {
        [ask] if ask.count == 1 => ask.clone(),
        [] => {
            return refused(
                422,
                "the pod brings its own claims and asks for no card; a slot takes the place of one nvidia.com/gpu"
                    .into(),
            );
        }
        [ask] => {
            return refused(
                422,
                format!(
                    "the pod asks for {} {}: a slot is a part of one, so ask for 1",
                    ask.count, ask.resource
                ),
            );
        }
        _ => {
            return refused(
                422,
                format!(
                    "{} containers ask for devices: a pod has one slot, so let one container ask for 1",
                    asks.len()
                ),
            );
        }
    };
    if named_by(&ask.resource).is_some() || pod.annotation(PARTITION).is_some() {
        return refused(422, "a partition is not shared: ask for one or the other".into());
    }
    let Some(device_class) = &ask.device_class else {
        return refused(
            422,
            format!(
                "there is no DeviceClass to claim {} from, and without claims nothing is shared",
                ask.resource
            ),
        );
    };
    let only = sharing.class.as_deref().or(pod.annotation(CLASS));
    let cards = Cards::of(snapshot, &ask.resource, device_class, only);
    let slots = cards.plain.is_some() && snapshot.may_hold(&ask.resource, Some(device_class), SHARING_DRIVER);
    let shared = match cards.spelled.is_empty() || slots && pod.annotation(MEMORY).is_none() {
        true => by_claim(snapshot, pod, sharing, (share, &cards), &ask.resource, device_class)?,
        false => by_capacity(pod, sharing, device_class, &cards)?,
    };
    let warning = match &shared {
        Shared::Claim { .. } => format!(
            "wattlane: the pod shares a card with up to {} others; {}",
            sharing.slots - 1,
            sharing.not_isolated()
        ),
        Shared::Capacity { card, .. } => {
            let whole = card
                .as_ref()
                .map_or("", |_| ", or has one of its own where none that is shared has room");
            format!(
                "wattlane: the pod shares a card{whole}; what of it is limited, and how, is said by the card's driver only"
            )
        }
    };
    Ok(Some(Wanted {
        shared,
        entry: plan::fresh_names(pod).next().unwrap_or_default(),
        ask,
        warning,
    }))
}

fn by_claim(
    snapshot: &Snapshot,
    pod: Pod<'_>,
    sharing: &Sharing,
    (share, cards): (&str, &Cards),
    resource: &str,
    device_class: &Name,
) -> Result<Shared, Refused> {
    if !snapshot.may_hold(resource, Some(device_class), SHARING_DRIVER) {
        return refused(
            422,
            format!(
                "devices of {resource} cannot be shared: only the driver {SHARING_DRIVER} takes a sharing configuration"
            ),
        );
    }
    if pod.annotation(MEMORY).is_some() {
        let policy = sharing.memory_per_slot.as_ref().map_or_else(
            || "the policy has no memory for a slot".to_owned(),
            |m| format!("the policy gives a slot {m}"),
        );
        return refused(
            422,
            format!(
                "{MEMORY} has no meaning for a slot of a shared claim: {policy}. Remove one of the two annotations"
            ),
        );
    }
    let promised = sharing.promised().map(Quantity::from_integer);
    if let (Some(promised), Some((_, most))) = (promised, &cards.plain)
        && *most > Quantity::ZERO
        && promised > *most
    {
        return refused(
            422,
            format!(
                "the policy promises {} slots of {} on a card, and the largest here has {}: have the policy corrected",
                sharing.slots,
                sharing.memory_per_slot.as_deref().unwrap_or_default(),
                super::offer::bytes(*most)
            ),
        );
    }
    Ok(Shared::Claim {
        share: share.into(),
        slots: sharing.slots,
        device_class: device_class.clone(),
        parameters: sharing.parameters().to_string().into(),
        selector: large_enough(sharing),
    })
}

/// Cards that have what all their slots are promised, and those of which nobody says what they have.
fn large_enough(sharing: &Sharing) -> Option<Name> {
    let capacity = format!("device.capacity['{SHARING_DRIVER}']");
    let least = sharing.promised()?;
    Some(format!("!('memory' in {capacity}) || {capacity}.memory.compareTo(quantity('{least}')) >= 0").into())
}

fn by_capacity(pod: Pod<'_>, sharing: &Sharing, device_class: &Name, cards: &Cards) -> Result<Shared, Refused> {
    let Some(memory) = pod.annotation(MEMORY).or(sharing.memory_per_slot.as_deref()) else {
        return refused(
            422,
            format!("say how much memory of the card the pod needs: {MEMORY}: 10Gi (the policy has no memoryPerSlot)"),
        );
    };
    let Some(bytes) = Quantity::size(memory) else {
        return refused(
            400,
            format!("{MEMORY}: {} is not a size with its unit, like 10Gi", shown(memory)),
        );
    };
    let made = cards.capacity(device_class, bytes);
    made.map_or_else(
        || {
            let most = cards
                .spelled
                .values()
                .max()
                .map(|m| super::offer::bytes(*m))
                .unwrap_or_default();
            refused(
                422,
                format!("no card that is shared here has {memory}; the largest has {most}"),
            )
        },
        Ok,
    )
}

/// What the cluster has for pods that share, of the devices that a resource and its class stand for.
#[derive(Debug, Default)]
struct Cards {
    /// How slices spell the memory of devices that are given in shares, with the most of any; by name.
    spelled: BTreeMap<Name, Quantity>,
    /// The driver of cards that are not, with the most memory of any.
    plain: Option<(Name, Quantity)>,
}

impl Cards {
    /// `only`: of this wattage class.
    fn of(snapshot: &Snapshot, resource: &str, class: &Name, only: Option<&str>) -> Self {
        let mut cards = Self::default();
        let of_class = |class: Option<&Name>| only.is_none_or(|only| class.is_some_and(|class| **class == *only));
        let pools = snapshot.pools.iter().flatten().map(|state| &*state.pool);
        for pool in pools.filter(|pool| snapshot.may_hold(resource, Some(class), &pool.driver)) {
            let kinds = pool.summary().kinds.iter();
            for kind in kinds.filter(|k| !k.partition && of_class(k.class.as_ref())) {
                let memory = kind.memory.unwrap_or(Quantity::ZERO);
                if cards.plain.as_ref().is_none_or(|(_, most)| *most < memory) {
                    cards.plain = Some((pool.driver.clone(), memory));
                }
            }
            // Only where there may be any: of most pools not every device is looked at.
            if pool.summary().special.is_empty() {
                continue;
            }
            let shared = pool.devices.iter().filter(|d| d.device.is_shared());
            for d in shared.filter(|d| of_class(d.classified.class.as_ref())) {
                let memory = d.device.capacity.iter().find(|(name, _)| &*name.name == "memory");
                if let Some((name, capacity)) = memory {
                    let spelled = capacity.spelled(name).to_string().into();
                    let most = cards.spelled.entry(spelled).or_insert(capacity.value);
                    *most = capacity.value.max(*most);
                }
            }
        }
        cards
    }

    /// A part of a shared card, else a whole one: nobody waits beside a card that is free. None: no shared card is so large.
    fn capacity(&self, device_class: &Name, bytes: i64) -> Option<Shared> {
        let least = Quantity::from_integer(bytes);
        let spelled = self.spelled.iter().filter(|(_, most)| **most >= least);
        let spelled: Vec<Name> = spelled.map(|(name, _)| name.clone()).take(MOST_SPELLINGS).collect();
        let card = self.plain.as_ref().filter(|(_, most)| *most >= least);
        let card = card.map(|(driver, _)| {
            let capacity = format!("device.capacity['{driver}']");
            let memory = format!("{capacity}.memory.compareTo(quantity('{bytes}')) >= 0");
            format!("device.driver == '{driver}' && 'memory' in {capacity} && {memory}").into()
        });
        (!spelled.is_empty()).then(|| Shared::Capacity {
            device_class: device_class.clone(),
            bytes,
            spelled,
            card,
        })
    }
}

/// The pod was here before: it names a claim of that share, or a template for a slot.
fn names_ours(pod: Pod<'_>, share: &str) -> bool {
    pod.spec_list("resourceClaims").iter().any(|entry| {
        let claim = entry["resourceClaimName"].as_str().and_then(Share::of_name);
        let slot = entry["resourceClaimTemplateName"].as_str().and_then(bytes_in);
        claim.is_some_and(|c| c.name == share) || slot.is_some()
    })
}

/// What the pod names of ours already, as today's policy would make it again: it may be gone.
pub(super) fn named(snapshot: &Snapshot, sharing: Option<&Sharing>, pod: &Value) -> Vec<Shared> {
    let Some(sharing) = sharing else { return vec![] };
    let entries = Pod(pod).spec_list("resourceClaims").iter().take(MOST_ASKS);
    let named = |entry: &'_ Value| match entry["resourceClaimName"].as_str() {
        Some(claim) => again(snapshot, sharing, Named::Claim(claim)),
        None => again(
            snapshot,
            sharing,
            Named::Template(entry["resourceClaimTemplateName"].as_str()?),
        ),
    };
    entries.filter_map(named).collect()
}

/// What a pod names to share a device by.
#[derive(Clone, Copy, Debug)]
pub(super) enum Named<'a> {
    Claim(&'a str),
    Template(&'a str),
}

/// What has the name, as today's policy makes it. None: it is none of ours, or of another policy.
pub(super) fn again(snapshot: &Snapshot, sharing: &Sharing, named: Named<'_>) -> Option<Shared> {
    let classes = snapshot.classes.iter().map(|(class, _)| class.clone());
    match named {
        Named::Claim(name) => {
            let share = Share::of_name(name)?;
            let parameters: Name = sharing.parameters().to_string().into();
            let of = |device_class| Shared::Claim {
                share: share.name.into(),
                slots: sharing.slots,
                device_class,
                parameters: parameters.clone(),
                selector: large_enough(sharing),
            };
            classes.map(of).find(|made| *made.name() == *name)
        }
        Named::Template(name) => {
            let bytes = bytes_in(name)?;
            let of = |device_class: Name| {
                let cards = Cards::of(snapshot, "", &device_class, sharing.class.as_deref());
                cards.capacity(&device_class, bytes)
            };
            classes.filter_map(of).find(|made| *made.name() == *name)
        }
    }
}

/// The class that the pod is to have: that of the policy, where it shares devices of one only.
pub(super) fn class(sharing: Option<&Sharing>, pod: Pod<'_>, chosen: Option<Name>) -> Result<Option<Name>, Refused> {
    match (sharing.and_then(|s| s.class.as_ref()), pod.annotation(CLASS)) {
        (Some(only), Some(named)) if named != &**only => refused(
            403,
            format!(
                "devices of class {only} only are shared here, and the pod asks for {}",
                shown(named)
            ),
        ),
        (Some(only), _) => Ok(Some(only.clone())),
        (None, _) => Ok(chosen),
    }
}
