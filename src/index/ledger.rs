//! Who holds which device: claims by their allocation, reservations until the allocation shows, holds until the bind.
//!
//! Kept by pool and holder, not by device, and whether or not the device is published at the moment: an
//! allocation that names a device which went away counts again when it comes back. Because a holder's
//! entry is put and dropped as a whole, nothing can be freed twice.

use std::collections::{BTreeMap, HashMap};

use super::{HoldId, Key, PoolKey, ReservationId};
use crate::model::{DeviceResult, QualifiedName};
pub(super) use crate::snapshot::DeviceUse as Use;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Holder {
    Claim(Key),
    /// One claim of a reservation.
    Reservation(ReservationId, Key),
    /// One claim of a hold. Last, so that whoever counts meets the others first.
    Hold(HoldId, Key),
}

impl Use {
    /// None for admin access, which holds nothing.
    pub(super) fn of(result: &DeviceResult) -> Option<Self> {
        let driver = &result.id.driver;
        let full = |name: &QualifiedName| match &*name.domain {
            "" => QualifiedName {
                domain: driver.clone(),
                name: name.name.clone(),
            },
            _ => name.clone(),
        };
        (!result.admin_access).then(|| Self {
            pool: None,
            device: result.id.device.clone(),
            share: result.share_id.clone(),
            consumed: result.consumed_capacity.iter().map(|(n, q)| (full(n), *q)).collect(),
        })
    }
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    pools: HashMap<PoolKey, BTreeMap<Holder, Vec<Use>>>,
}

impl Ledger {
    /// Returns the pools it touched.
    pub(super) fn put(&mut self, holder: &Holder, results: &[DeviceResult]) -> Vec<PoolKey> {
        let mut touched = vec![];
        for result in results {
            let Some(held) = Use::of(result) else { continue };
            let key = PoolKey::of(&result.id);
            let holders = self.pools.entry(key.clone()).or_default();
            holders.entry(holder.clone()).or_default().push(held);
            touched.push(key);
        }
        touched
    }

    /// Forgets the holder, whose results these were. Returns the pools it touched.
    pub(super) fn drop(&mut self, holder: &Holder, results: &[DeviceResult]) -> Vec<PoolKey> {
        let mut touched = vec![];
        for result in results {
            let key = PoolKey::of(&result.id);
            let Some(holders) = self.pools.get_mut(&key) else {
                continue;
            };
            if holders.remove(holder).is_some() {
                if holders.is_empty() {
                    self.pools.remove(&key);
                }
                touched.push(key);
            }
        }
        touched
    }

    /// The pools of which something is held.
    pub(super) fn pools(&self) -> impl Iterator<Item = &PoolKey> {
        self.pools.keys()
    }

    /// In the order of the holders, so that sums come out the same however the entries came in.
    pub(super) fn uses(&self, pool: &PoolKey) -> impl Iterator<Item = (&Holder, &Vec<Use>)> {
        self.pools.get(pool).into_iter().flatten()
    }

    /// The holds that take something of the pool.
    pub(super) fn holds(&self, pool: &PoolKey) -> impl Iterator<Item = HoldId> {
        let last_first = self.pools.get(pool).into_iter().flat_map(|h| h.keys().rev());
        last_first.map_while(|holder| match holder {
            Holder::Hold(id, _) => Some(*id),
            _ => None,
        })
    }
}
