//! Who may keep a connection open. There are so many seats; when all are taken, a newcomer gets the seat of whoever
//! needs its own least, so that silent connections, however many, keep nobody out. Knows no sockets.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

pub(super) struct Seats {
    total: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    /// Counts arrivals and ends of requests: an order, not a clock.
    now: u64,
    seats: BTreeMap<u64, State>,
}

struct State {
    evicted: CancellationToken,
    /// The client showed a certificate that lets it do something.
    known: bool,
    asked: bool,
    in_flight: usize,
    last: u64,
}

impl State {
    /// None: never asked to leave. Else, least first: a stranger that never asked anything, one that is idle, an idle
    /// client that is known.
    fn worth(&self) -> Option<(bool, bool, u64)> {
        (self.in_flight == 0).then_some((self.known, self.asked, self.last))
    }
}

impl Seats {
    pub(super) fn new(total: usize) -> Arc<Self> {
        Arc::new(Self {
            total: total.max(1),
            taken: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A seat for a newcomer, and whether somebody was sent away: another, who sat there, or the newcomer, for whom there
    /// is none where everyone is busy.
    pub(super) fn take(self: &Arc<Self>) -> (Option<Arc<Seat>>, bool) {
        let mut taken = self.lock();
        let mut shed = false;
        if taken.seats.len() >= self.total {
            let idle = taken.seats.iter();
            let least = idle.filter_map(|(id, state)| Some((state.worth()?, *id))).min();
            let Some(least) = least else { return (None, true) };
            if let Some(state) = taken.seats.remove(&least.1) {
                state.evicted.cancel();
                shed = true;
            }
        }
        taken.now += 1;
        let id = taken.now;
        let token = CancellationToken::new();
        let state = State {
            evicted: token.clone(),
            known: false,
            asked: false,
            in_flight: 0,
            last: id,
        };
        taken.seats.insert(id, state);
        let seat = Seat {
            seats: self.clone(),
            id,
            evicted: token,
        };
        (Some(Arc::new(seat)), shed)
    }
}

/// The seat of one connection; free again when dropped.
pub(super) struct Seat {
    seats: Arc<Seats>,
    id: u64,
    evicted: CancellationToken,
}

impl Seat {
    /// Returns when somebody else was given this seat.
    pub(super) async fn lost(&self) {
        self.evicted.cancelled().await;
    }

    pub(super) fn known(&self) {
        self.change(|state, _| state.known = true);
    }

    pub(super) fn asked(&self) -> bool {
        self.seats.lock().seats.get(&self.id).is_some_and(|state| state.asked)
    }

    /// A request is here whole and begins; it ends with what is returned.
    pub(super) fn request(self: &Arc<Self>) -> InFlight {
        self.change(|state, _| {
            state.asked = true;
            state.in_flight += 1;
        });
        InFlight(self.clone())
    }

    fn change(&self, how: impl FnOnce(&mut State, u64)) {
        let mut taken = self.seats.lock();
        taken.now += 1;
        let now = taken.now;
        // Not there: lost a moment ago.
        if let Some(state) = taken.seats.get_mut(&self.id) {
            how(state, now);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.lock().seats.remove(&self.id);
    }
}

pub(super) struct InFlight(Arc<Seat>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.change(|state, now| {
            state.in_flight = state.in_flight.saturating_sub(1);
            state.last = now;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(seats: &Arc<Seats>) -> Option<Arc<Seat>> {
        seats.take().0
    }

    #[test]
    fn who_needs_its_seat_least_leaves_first() {
        let seats = Seats::new(5);
        let [known, idle, fresh, silent, busy] = std::array::from_fn(|_| take(&seats).expect("free"));
        known.known();
        drop(known.request());
        drop(fresh.request());
        drop(idle.request());
        // Idle for longest, not there for longest.
        drop(idle.request());
        let _working = busy.request();
        let all = [&silent, &fresh, &idle, &known];
        let mut newcomers = vec![];
        for (n, _) in all.iter().enumerate() {
            let newcomer = take(&seats).expect("somebody leaves");
            // The newcomers work, or they would be the next to go.
            newcomers.push((newcomer.request(), newcomer));
            let gone: Vec<bool> = all.iter().map(|s| s.evicted.is_cancelled()).collect();
            let expected: Vec<bool> = (0..all.len()).map(|i| i <= n).collect();
            assert_eq!(gone, expected);
        }
        assert!(take(&seats).is_none(), "all are busy");
        assert!(!busy.evicted.is_cancelled());
        drop(newcomers);
        assert_eq!(seats.lock().seats.len(), 1);
    }
}
