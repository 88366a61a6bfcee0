//! How many requests that were not taken the log tells of: whoever reaches the port can send as many as it likes. The metric
//! counts all of them.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::metrics::Outcome;

/// Lines of one outcome …
const MOST: u32 = 10;
/// … in this time.
const WITHIN: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct Complaints(Mutex<Vec<Said>>);

/// Each outcome counts for itself: strangers do not hide what is said of kube-scheduler's bodies.
struct Said {
    outcome: Outcome,
    since: Instant,
    lines: u32,
    unsaid: u64,
}

impl Complaints {
    /// Whether this one is to be said, and then how many were not since the last that was.
    pub(super) fn say(&self, outcome: Outcome, now: Instant) -> Option<u64> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = all.iter().position(|s| s.outcome == outcome).unwrap_or_else(|| {
            all.push(Said {
                outcome,
                since: now,
                lines: 0,
                unsaid: 0,
            });
            all.len() - 1
        });
        let said = all.get_mut(at)?;
        if now.saturating_duration_since(said.since) >= WITHIN {
            (said.since, said.lines) = (now, 0);
        }
        if said.lines == MOST {
            said.unsaid += 1;
            return None;
        }
        said.lines += 1;
        Some(std::mem::take(&mut said.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_a_few_lines_and_a_number() {
        let complaints = Complaints::default();
        let begun = Instant::now();
        let lines = |outcome, from: u64, n: u64| -> Vec<u64> {
            let at = |i| begun + Duration::from_millis(from + i);
            (0..n).filter_map(|i| complaints.say(outcome, at(i))).collect()
        };
        assert_eq!(lines(Outcome::Forbidden, 0, 5000), [0; 10]);
        assert_eq!(lines(Outcome::TooLarge, 5000, 1), [0], "another kind");
        let next = lines(Outcome::Forbidden, 10_000, 5000);
        assert_eq!((next[0], next.len()), (4990, 10));
        // A request that began earlier is looked at later.
        assert_eq!(complaints.say(Outcome::Forbidden, begun), None);
    }
}
