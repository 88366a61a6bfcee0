//! Which endings of the path of admission are good, from what was seen of the webhook configuration and the Secret. The
//! configuration is what API servers ask by, whatever it says and whoever wrote it: no ending is refused that stands in it,
//! or stood in it so lately that an API server may not have read the newer one.

use std::collections::BTreeMap;

/// Of this process.
pub(super) struct Door {
    /// Seconds for which an API server may go by an old configuration.
    grace: i64,
    /// Since when it has been looked at without a gap; before that the configuration may have said anything.
    since: i64,
    last: Option<i64>,
    /// When each ending was last seen.
    seen: BTreeMap<String, i64>,
}

impl Door {
    pub(super) fn new(grace: i64) -> Self {
        Self {
            grace,
            since: 0,
            last: None,
            seen: BTreeMap::new(),
        }
    }

    /// The endings in the configuration and that of the Secret, at `now` (seconds). Returns those that are good; None: all.
    pub(super) fn see(&mut self, now: i64, endings: impl IntoIterator<Item = String>) -> Option<Vec<&str>> {
        if self.last.is_none_or(|last| !(0..=self.grace).contains(&(now - last))) {
            self.since = now;
            self.seen.clear();
        }
        self.last = Some(now);
        self.seen.extend(endings.into_iter().map(|e| (e, now)));
        self.seen.retain(|_, at| now - *at <= self.grace);
        let long_enough = now - self.since >= self.grace;
        long_enough.then(|| self.endings().collect())
    }

    /// There is no configuration of ours to go by.
    pub(super) fn forget(&mut self) {
        self.last = None;
    }

    pub(super) fn endings(&self) -> impl Iterator<Item = &str> {
        self.seen.keys().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GRACE: i64 = 60;

    proptest! {
        /// Looks at any times at a configuration that others change at any times: what an API server may go by is never refused,
        /// and what was never there, or long ago, is, once looks have come without a gap for long enough.
        #[test]
        fn what_an_api_server_may_go_by_is_good(steps in prop::collection::vec((1..70_i64, 0..5_u8, any::<bool>()), 1..80)) {
            let mut door = Door::new(GRACE);
            let mut now = 1_000;
            // From when on each stood there; a look may miss one that did not stay.
            let mut stood = vec![(now, 0_u8)];
            let mut looks: Vec<i64> = vec![];
            for (pause, ending, change) in steps {
                now += pause;
                if change {
                    stood.push((now, ending));
                    continue;
                }
                let current = stood[stood.len() - 1].1;
                let good = door.see(now, [current.to_string()]).map(|g| g.into_iter().map(str::to_owned).collect::<Vec<_>>());
                looks.push(now);
                let gapless = looks.windows(2).rev().take_while(|w| w[1] - w[0] <= GRACE).last().map_or(now, |w| w[0]);
                prop_assert_eq!(good.is_some(), now - gapless >= GRACE);
                let Some(good) = good else { continue };
                prop_assert!(good.contains(&current.to_string()));
                for ending in 0..6_u8 {
                    let there = |at: &i64| stood.iter().rev().find(|(from, _)| from <= at).is_some_and(|(_, e)| *e == ending);
                    let lately = looks.iter().filter(|at| now - **at <= GRACE).any(there);
                    prop_assert_eq!(good.contains(&ending.to_string()), lately);
                }
            }
        }
    }
}
