//! Findings about devices: given twice, overdrawn, vanished. Read from the allocations, not from what the index made of
//! them, except for the sums it keeps.

use std::collections::{BTreeMap, HashMap};

use super::{Finding, Kind, Subject, listed};
use crate::model::{Claim, DeviceId, DeviceResult, Name, Quantity, node_mode};
use crate::snapshot::{PoolHealth, PoolState, Snapshot};

pub(super) type Pools<'a> = HashMap<(&'a Name, &'a Name), &'a PoolState>;

/// One use of a device by a claim.
struct Use<'a> {
    claim: &'a Claim,
    result: &'a DeviceResult,
    /// Nobody else may have any of it.
    whole: bool,
}

pub(super) fn pools(snapshot: &Snapshot) -> Pools<'_> {
    let states = snapshot.pools.iter().flatten();
    states.map(|s| ((&s.pool.driver, &s.pool.name), &**s)).collect()
}

pub(super) fn look(snapshot: &Snapshot, findings: &mut Vec<Finding>) {
    let pools = pools(snapshot);
    let mut claims: Vec<&Claim> = snapshot.claims.iter().map(|(_, claim)| &**claim).collect();
    claims.sort_by_key(|claim| &claim.key);
    given_twice(&claims, &pools, findings);
    modes_mixed(&claims, &pools, findings);
    findings.extend(claims.iter().filter_map(|claim| vanished(claim, &pools)));
    pools.values().for_each(|state| overdrawn(state, findings));
}

fn results(claim: &Claim) -> impl Iterator<Item = &DeviceResult> {
    let all = claim.allocation.iter().flat_map(|a| &a.results);
    // A look at a device takes nothing of it.
    all.filter(|r| !r.admin_access)
}

fn given_twice(claims: &[&Claim], pools: &Pools<'_>, findings: &mut Vec<Finding>) {
    let mut uses: BTreeMap<DeviceId, Vec<Use<'_>>> = BTreeMap::new();
    for claim in claims {
        for result in results(claim) {
            let state = pools.get(&(&result.id.driver, &result.id.pool)).copied();
            let whole = result.share_id.is_none() || state.is_some_and(|s| !shared(s, &result.id.device));
            let card = state.map_or_else(|| result.id.clone(), |s| card(s, &result.id));
            uses.entry(card).or_default().push(Use { claim, result, whole });
        }
    }
    for (card, uses) in uses {
        let twice = uses.iter().enumerate().any(|(i, one)| {
            let others = &uses[i + 1..];
            let same_share = |o: &Use<'_>| o.result.share_id.is_some() && o.result.share_id == one.result.share_id;
            others.iter().any(|o| o.whole || one.whole || same_share(o))
        });
        let (true, Some(last)) = (twice, uses.last()) else {
            continue;
        };
        let by = uses.iter().map(|u| match u.result.id == card {
            true => u.claim.key.to_string(),
            // Another name of the same card.
            false => format!("{} (as {})", u.claim.key, u.result.id.device),
        });
        findings.push(Finding {
            kind: Kind::DeviceGivenTwice,
            object: format!("Device {card}"),
            message: format!(
                "is in several allocations: {}. Delete all pods but one that use these claims, and find out who else than \
                 wattlane allocates devices of {}",
                listed(by),
                card.driver
            ),
            subject: Some(Subject::claim(last.claim)),
        });
    }
}

/// The cards of a node have one mode together (`model::node_mode`), and claims hold devices of several.
fn modes_mixed(claims: &[&Claim], pools: &Pools<'_>, findings: &mut Vec<Finding>) {
    // By pool, then by mode: the claims.
    let mut held: BTreeMap<(&Name, &Name), BTreeMap<&Name, Vec<&Claim>>> = BTreeMap::new();
    for claim in claims {
        for DeviceResult { id, .. } in results(claim) {
            let device = pools.get(&(&id.driver, &id.pool)).and_then(|state| {
                let at = *state.pool.by_name.get(&id.device)?;
                state.pool.devices.get(at as usize)
            });
            if let Some(mode) = device.and_then(|d| d.device.node_mode(&id.driver)) {
                let of = held.entry((&id.driver, &id.pool)).or_default().entry(mode).or_default();
                if of.last().is_none_or(|last| last.key != claim.key) {
                    of.push(claim);
                }
            }
        }
    }
    for ((driver, pool), modes) in held.into_iter().filter(|(_, modes)| modes.len() > 1) {
        let by = modes.iter().map(|(mode, claims)| {
            let claims = listed(claims.iter().map(|claim| &claim.key));
            format!("{mode} by {claims}")
        });
        findings.push(Finding {
            kind: Kind::ModesMixed,
            object: format!("Pool {driver}/{pool}"),
            message: format!(
                "all devices in use on its node need one {}, and claims hold several: {}. The driver can prepare those of \
                 one only, and nothing of the node is given meanwhile. Delete the pods of all but one, and find out who \
                 else than wattlane allocates devices of {driver}",
                node_mode(driver).unwrap_or("mode"),
                listed(by)
            ),
            subject: None,
        });
    }
}

fn shared(state: &PoolState, device: &Name) -> bool {
    let at = state.pool.by_name.get(device);
    at.is_none_or(|at| state.pool.devices[*at as usize].device.allow_multiple)
}

/// One name for all the names under which a card is listed.
fn card(state: &PoolState, id: &DeviceId) -> DeviceId {
    let pool = &state.pool;
    let first = pool.by_name.get(&id.device).map(|at| {
        let twins = pool.summary().twins.get(at);
        twins.into_iter().flatten().chain([at]).min().copied().unwrap_or(*at)
    });
    match first.and_then(|at| pool.devices.get(at as usize)) {
        Some(first) => DeviceId {
            device: first.device.name.clone(),
            ..id.clone()
        },
        None => id.clone(),
    }
}

fn vanished(claim: &Claim, pools: &Pools<'_>) -> Option<Finding> {
    let gone = |result: &&DeviceResult| match pools.get(&(&result.id.driver, &result.id.pool)) {
        None => true,
        // In the middle of an update nobody can say.
        Some(state) if matches!(state.pool.health, PoolHealth::Incomplete { .. }) => false,
        Some(state) => !state.pool.by_name.contains_key(&result.id.device),
    };
    let gone: Vec<&DeviceId> = results(claim).filter(gone).map(|r| &r.id).collect();
    let driver = &gone.first()?.driver;
    let message = format!(
        "holds {}, which {driver} does not publish any more: the card failed, was configured anew, or the driver is down. \
         Nobody is given it meanwhile. If it does not come back, delete the pods that use the claim",
        listed(&gone)
    );
    Some(Finding::on(Kind::DeviceVanished, Subject::claim(claim), message))
}

fn overdrawn(state: &PoolState, findings: &mut Vec<Finding>) {
    let pool = &state.pool;
    let place = format!("{}/{}", pool.driver, pool.name);
    for (at, sums) in &state.shared {
        let Some(info) = pool.devices.get(*at as usize) else {
            continue;
        };
        let over = |(name, used): &&(crate::model::QualifiedName, Quantity)| {
            let there = info.device.capacity(&name.domain, &name.name);
            there.is_some_and(|capacity| *used > capacity.value)
        };
        let over: Vec<_> = sums.iter().filter(over).map(|(name, _)| &name.name).collect();
        if !over.is_empty() {
            findings.push(Finding {
                kind: Kind::CapacityOverdrawn,
                object: format!("Device {place}/{}", info.device.name),
                message: format!(
                    "its shares add up to more {} than it has: somebody else than wattlane gives shares of it, or its driver \
                     made it smaller. Delete pods that share it until they fit",
                    listed(over)
                ),
                subject: None,
            });
        }
    }
    for (set, left) in pool.counter_sets.iter().zip(&state.counters_left) {
        let counters = set.counters.iter().zip(left);
        let over: Vec<_> = counters
            .filter(|(_, left)| **left < Quantity::ZERO)
            .map(|((name, _), _)| name)
            .collect();
        if !over.is_empty() {
            findings.push(Finding {
                kind: Kind::CountersOverdrawn,
                object: format!("CounterSet {place}/{}", set.name),
                message: format!(
                    "the devices allocated from it take more {} than there is: partitions of one card overlap. Delete pods \
                     that use them until they fit",
                    listed(over)
                ),
                subject: None,
            });
        }
    }
}
