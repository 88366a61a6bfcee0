//! Slots on shared devices: `wattlane.dev/share: NAME` and one card become a claim that all pods of the namespace with
//! that name reserve, or, where devices have consumable capacity, a claim of the pod's own on a part of one.

use serde_json::Value;

use super::ask::Ask;
use super::plan::{self, Plan};
use super::pod::Pod;
use super::refuse::{Refused, shown};
use super::shared::{Shared, bytes_in};
use crate::model::{CLASS, MEMORY, Name, PARTITION, Quantity, SHARE, Share};
use crate::policy::{SHARING_DRIVER, Sharing, dns_label, named_by};
use crate::snapshot::Snapshot;

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
        ask.device_class.is_none() && nodes.any(|(_, n)| Snapshot::gives_parts(&ask.resource, &n.node.labels))
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
    let shared = match has_capacity(snapshot, &ask.resource, device_class) {
        true => by_capacity(pod, sharing, device_class)?,
        false => by_claim(snapshot, pod, sharing, share, &ask.resource, device_class)?,
    };
    let warning = match &shared {
        Shared::Claim { .. } => format!(
            "wattlane: the pod shares a card with up to {} others; {}",
            sharing.slots - 1,
            sharing.not_isolated()
        ),
        Shared::Capacity { .. } => {
            "wattlane: the pod shares a card; what of it is limited, and how, is said by the card's driver only"
                .to_owned()
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
    share: &str,
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
    Ok(Shared::Claim {
        share: share.into(),
        slots: sharing.slots,
        device_class: device_class.clone(),
        parameters: sharing.parameters().to_string().into(),
    })
}

fn by_capacity(pod: Pod<'_>, sharing: &Sharing, device_class: &Name) -> Result<Shared, Refused> {
    let Some(memory) = pod.annotation(MEMORY).or(sharing.memory_per_slot.as_deref()) else {
        return refused(
            422,
            format!("say how much memory of the card the pod needs: {MEMORY}: 10Gi (the policy has no memoryPerSlot)"),
        );
    };
    match Quantity::size(memory) {
        Some(bytes) => Ok(Shared::Capacity {
            device_class: device_class.clone(),
            bytes,
        }),
        None => refused(400, format!("{MEMORY}: {} is not a size like 10Gi", shown(memory))),
    }
}

/// Some device that the resource stands for may be given to several claims.
fn has_capacity(snapshot: &Snapshot, resource: &str, class: &Name) -> bool {
    let pools = snapshot.pools.iter().flatten().map(|state| &state.pool);
    let mut pools = pools.filter(|pool| snapshot.may_hold(resource, Some(class), &pool.driver));
    pools.any(|pool| pool.devices.iter().any(|d| d.device.allow_multiple))
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
    const MOST: usize = 128;
    let Some(sharing) = sharing else { return vec![] };
    let classes = || snapshot.classes.iter().map(|(class, _)| class.clone());
    let entries = Pod(pod).spec_list("resourceClaims").iter().take(MOST);
    let again = |entry: &Value| {
        if let Some(name) = entry["resourceClaimName"].as_str() {
            let share = Share::of_name(name)?;
            let parameters: Name = sharing.parameters().to_string().into();
            let mut made = classes().map(|device_class| Shared::Claim {
                share: share.name.into(),
                slots: sharing.slots,
                device_class,
                parameters: parameters.clone(),
            });
            return made.find(|s| *s.name() == *name);
        }
        let name = entry["resourceClaimTemplateName"].as_str()?;
        let bytes = bytes_in(name)?;
        let mut made = classes().map(|device_class| Shared::Capacity { device_class, bytes });
        made.find(|s| *s.name() == *name)
    };
    entries.filter_map(again).collect()
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
