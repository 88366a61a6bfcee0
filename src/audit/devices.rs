//! Findings about devices: given twice, overdrawn, vanished. Read from the allocations, not from what the index made of
//! them, except for the sums it keeps.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::{Finding, Kind, Subject, listed};
use crate::model::{Claim, DeviceId, DeviceResult, Name, Quantity, node_mode};
use crate::snapshot::{Pool, PoolHealth, PoolState, Snapshot};

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
    findings.extend(claims.iter().filter_map(|claim| vanished(snapshot, claim, &pools)));
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
            uses.entry(result.id.clone())
                .or_default()
                .push(Use { claim, result, whole });
        }
    }
    let beside = beside(pools);
    let mut told: BTreeSet<(&DeviceId, &DeviceId)> = BTreeSet::new();
    let whole_first = |part: bool| uses.iter().filter(move |(id, _)| is_partition(pools, id) == part);
    for (id, own) in whole_first(false).chain(whole_first(true)) {
        let twice = own.iter().enumerate().any(|(i, one)| {
            let same_share = |o: &Use<'_>| o.result.share_id.is_some() && o.result.share_id == one.result.share_id;
            own[i + 1..].iter().any(|o| o.whole || one.whole || same_share(o))
        });
        // Who holds one of two that overlap holds something of the other.
        let others = overlapping(id, pools, &beside);
        let others = others.iter().filter_map(|other| uses.get_key_value(other));
        let others: Vec<_> = others.filter(|(other, _)| !told.contains(&(*other, id))).collect();
        told.extend(others.iter().map(|(other, _)| (id, *other)));
        let all = || own.iter().chain(others.iter().flat_map(|(_, uses)| *uses));
        let last = all().max_by_key(|u| &u.claim.key);
        let (true, Some(last)) = (twice || !others.is_empty(), last) else {
            continue;
        };
        let by = all().map(|u| match u.result.id == *id {
            true => u.claim.key.to_string(),
            // Another name of the same card, or a part of it.
            false => format!("{} (as {})", u.claim.key, u.result.id.device),
        });
        findings.push(Finding {
            kind: Kind::DeviceGivenTwice,
            object: format!("Device {id}"),
            message: format!(
                "is in several allocations: {}. Delete all pods but one that use these claims, and find out who else than \
                 wattlane allocates devices of {}",
                listed(by),
                id.driver
            ),
            subject: Some(Subject::claim(last.claim)),
        });
    }
}

/// By device that is not of the pool, or not any more: what it overlaps there.
type Beside = BTreeMap<DeviceId, BTreeSet<DeviceId>>;

fn beside(pools: &Pools<'_>) -> Beside {
    let mut beside = Beside::new();
    for state in pools.values() {
        let id = |pool: &Name, device: &Name| DeviceId {
            driver: state.pool.driver.clone(),
            pool: pool.clone(),
            device: device.clone(),
        };
        for ((of, device), shadow) in &state.pool.shadows {
            let over = shadow.over.iter().filter_map(|at| state.pool.devices.get(*at as usize));
            let over: Vec<DeviceId> = over.map(|d| id(&state.pool.name, &d.device.name)).collect();
            for here in over {
                let there = id(of, device);
                beside.entry(here.clone()).or_default().insert(there.clone());
                beside.entry(there).or_default().insert(here);
            }
        }
    }
    beside
}

/// The devices that nobody may have beside this one, but for what counters say.
fn overlapping(id: &DeviceId, pools: &Pools<'_>, beside: &Beside) -> BTreeSet<DeviceId> {
    let mut all: BTreeSet<DeviceId> = beside.get(id).into_iter().flatten().cloned().collect();
    if let Some((state, at)) = published(pools, id) {
        let twins = state.pool.summary().twins.get(&at).into_iter().flatten();
        let twins = twins.filter_map(|at| state.pool.devices.get(*at as usize));
        all.extend(twins.map(|d| DeviceId {
            device: d.device.name.clone(),
            ..id.clone()
        }));
    }
    all.remove(id);
    all
}

fn published<'a>(pools: &Pools<'a>, id: &DeviceId) -> Option<(&'a PoolState, u32)> {
    let state = *pools.get(&(&id.driver, &id.pool))?;
    Some((state, *state.pool.by_name.get(&id.device)?))
}

fn is_partition(pools: &Pools<'_>, id: &DeviceId) -> bool {
    published(pools, id).is_some_and(|(state, at)| state.pool.devices[at as usize].device.is_partition())
}

/// The cards of a node have one mode together (`model::node_mode`), and claims hold devices of several.
fn modes_mixed(claims: &[&Claim], pools: &Pools<'_>, findings: &mut Vec<Finding>) {
    // By pool, then by mode: the claims.
    let mut held: BTreeMap<(&Name, &Name), BTreeMap<&Name, Vec<&Claim>>> = BTreeMap::new();
    for claim in claims {
        for DeviceResult { id, .. } in results(claim) {
            let device = published(pools, id).and_then(|(state, at)| state.pool.devices.get(at as usize));
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

fn vanished(snapshot: &Snapshot, claim: &Claim, pools: &Pools<'_>) -> Option<Finding> {
    let gone = |result: &&DeviceResult| match pools.get(&(&result.id.driver, &result.id.pool)) {
        None => true,
        // In the middle of an update nobody can say.
        Some(state) if matches!(state.pool.health, PoolHealth::Incomplete { .. }) => false,
        Some(state) => !state.pool.by_name.contains_key(&result.id.device),
    };
    let gone: Vec<&DeviceId> = results(claim).filter(gone).map(|r| &r.id).collect();
    let first = gone.first()?;
    let driver = &first.driver;
    let pool = pools.get(&(driver, &first.pool)).map(|state| &state.pool);
    let known = |pool: &Pool| pool.shadows.contains_key(&(pool.name.clone(), first.device.clone()));
    let meanwhile = match pool {
        Some(pool) if closed(snapshot, pool) => {
            "It may be a part of any card of its pool, and nothing of that is given until the claim is gone"
        }
        Some(pool) if known(pool) => "Neither it nor what it overlaps is given meanwhile",
        _ => "Nobody is given it meanwhile",
    };
    let message = format!(
        "holds {}, which {driver} does not publish any more: the card failed, was configured anew, or the driver is down. \
         {meanwhile}. If it does not come back, delete the pods that use the claim",
        listed(&gone)
    );
    Some(Finding::on(Kind::DeviceVanished, Subject::claim(claim), message))
}

fn closed(snapshot: &Snapshot, pool: &Arc<Pool>) -> bool {
    let mut nodes = snapshot.nodes();
    nodes.any(|(_, node)| {
        let mut pools = snapshot.pools_of(node);
        pools.any(|(state, seen)| Arc::ptr_eq(&state.pool, pool) && matches!(seen.health, Some(PoolHealth::Lost(_))))
    })
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
