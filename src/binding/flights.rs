//! One bind at a time per pod UID. An entry lives as long as somebody holds or waits for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedMutexGuard;

use crate::model::Name;

#[derive(Default)]
pub(super) struct Flights {
    entries: Mutex<HashMap<Name, Entry>>,
}

struct Entry {
    /// Tickets out.
    users: usize,
    lock: Arc<tokio::sync::Mutex<()>>,
}

/// A place in the queue of one pod; giving it up, at whatever point, leaves no trace.
pub(super) struct Ticket {
    flights: Arc<Flights>,
    uid: Name,
    lock: Arc<tokio::sync::Mutex<()>>,
}

impl Flights {
    pub(super) fn enter(self: &Arc<Self>, uid: &Name) -> Ticket {
        let mut entries = self.entries();
        let entry = entries.entry(uid.clone()).or_insert_with(|| Entry {
            users: 0,
            lock: Arc::default(),
        });
        entry.users += 1;
        Ticket {
            flights: self.clone(),
            uid: uid.clone(),
            lock: entry.lock.clone(),
        }
    }

    /// Counting cannot be left half done by a panic.
    fn entries(&self) -> MutexGuard<'_, HashMap<Name, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries().len()
    }
}

impl Ticket {
    /// Waits until the others of this pod are done; true: there were others. In order of arrival.
    pub(super) async fn turn(&self) -> (OwnedMutexGuard<()>, bool) {
        match self.lock.clone().try_lock_owned() {
            Ok(guard) => (guard, false),
            Err(_) => (self.lock.clone().lock_owned().await, true),
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut entries = self.flights.entries();
        if let Some(entry) = entries.get_mut(&self.uid) {
            entry.users -= 1;
            if entry.users == 0 {
                entries.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_at_a_time_per_uid_and_no_entry_is_left() {
        let flights = Arc::new(Flights::default());
        let a = flights.enter(&"a".into());
        let (turn, waited) = a.turn().await;
        assert!(!waited);
        let b = flights.enter(&"b".into());
        let (other, waited) = b.turn().await;
        assert!(!waited, "other pods do not wait");
        let second = flights.enter(&"a".into());
        {
            // A waiter that gives up.
            let mut wait = Box::pin(second.turn());
            assert!(futures::poll!(&mut wait).is_pending());
        }
        drop(second);
        let third = flights.enter(&"a".into());
        let mut wait = Box::pin(third.turn());
        assert!(futures::poll!(&mut wait).is_pending());
        drop((turn, a));
        let (turn, waited) = wait.await;
        assert!(waited);
        assert_eq!(flights.len(), 2);
        drop((turn, third, other, b));
        assert_eq!(flights.len(), 0);
    }
}
