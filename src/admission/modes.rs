//! Asks of one pod that no node can meet together because its cards have one mode (`model::node_mode`): a pod goes to one
//! node. Whether one of the modes is in force on some node now is a matter of placement.

use std::collections::{BTreeMap, BTreeSet};

use super::ask::Ask;
use super::offer::Offers;
use super::refuse::{Refused, list};
use crate::model::{Device, Name, node_mode};
use crate::snapshot::Pool;

/// Of one driver, what is asked for: a profile, or whole cards; with the resource that asks for it.
type Wanted<'a> = BTreeMap<Option<&'a Name>, &'a Name>;

/// # Errors
/// Some node has devices for every ask, and none has them in one mode.
pub(super) fn agree(offers: &Offers<'_>, asks: &[Ask]) -> Result<(), Refused> {
    let mut by_driver: BTreeMap<Name, Wanted<'_>> = BTreeMap::new();
    for ask in asks {
        let Some(offer) = ask.device_class.as_ref().and_then(|class| offers.of(&ask.cards, class)) else {
            continue;
        };
        if node_mode(&offer.driver).is_none() {
            continue;
        }
        let wanted = match ask.parts.as_ref().map(|parts| &parts.label) {
            // A wish for memory is served by devices of any mode.
            Some(label) if !offer.has(label) => continue,
            label => label,
        };
        let of = by_driver.entry(offer.driver.clone()).or_default();
        of.insert(wanted, &ask.resource);
    }
    for (driver, wanted) in by_driver.iter().filter(|(_, wanted)| wanted.len() > 1) {
        let pools = offers.snapshot.pools.iter().flatten().map(|state| &*state.pool);
        let mut broken = false;
        let met = pools.filter(|pool| pool.driver == *driver).any(|pool| {
            let modes: Option<Vec<_>> = wanted.keys().map(|wanted| modes_of(pool, *wanted)).collect();
            let Some(modes) = modes else { return false };
            let met = meet(&modes);
            broken |= !met;
            met
        });
        if broken && !met {
            return Err(refused(driver, wanted));
        }
    }
    Ok(())
}

/// The modes in which the pool has what is wanted; None among them: in any. None: it has nothing of it.
fn modes_of<'p>(pool: &'p Pool, wanted: Option<&Name>) -> Option<BTreeSet<Option<&'p Name>>> {
    let serves = |device: &Device| match wanted {
        None => !device.is_partition() && !device.is_shared(),
        Some(profile) => device.profile().as_ref() == Some(profile),
    };
    let devices = pool.devices.iter().map(|d| &*d.device).filter(|d| serves(d));
    let modes: BTreeSet<_> = devices.map(|d| d.node_mode(&pool.driver)).collect();
    (!modes.is_empty()).then_some(modes)
}

/// Whether some mode is one of each.
fn meet(modes: &[BTreeSet<Option<&Name>>]) -> bool {
    let narrow: Vec<_> = modes.iter().filter(|modes| !modes.contains(&None)).collect();
    let Some(first) = narrow.first() else { return true };
    first.iter().any(|mode| narrow.iter().all(|modes| modes.contains(mode)))
}

fn refused(driver: &Name, wanted: &Wanted<'_>) -> Refused {
    let asked: Vec<Name> = wanted
        .iter()
        .map(|(profile, resource)| match profile {
            Some(profile) if !resource.ends_with(&***profile) => format!("{resource} as {profile}").into(),
            _ => (*resource).clone(),
        })
        .collect();
    let asked: Vec<&Name> = asked.iter().collect();
    let of = node_mode(driver).unwrap_or("mode");
    Refused::new(
        422,
        format!(
            "the pod asks for {}, which need different {of}s; all devices of {driver} that are in use on a node have one. Ask \
             for one kind in a pod, or for kinds of one {of}",
            list(&asked)
        ),
    )
}
