//! Which endings of the path of admission are good: what API servers may be asking by, and the tokens of the Secret. They ask
//! by what stands in the webhook configuration, whoever wrote it, or stood in it so lately that one of them may not have read
//! the newer one. Nothing leaves before the configuration has stood unchanged for as long; that nobody could look, that the
//! configuration is gone, or that this process is new, changes nothing of what is good.
//!
//! Time is that of a clock that only goes forward: a wall clock that is set neither opens nor shuts.

use std::time::Duration;

use crate::certs::keyring::MOST_RECENT;
use crate::certs::{Ending, Token};

/// Of this process.
pub(super) struct Door {
    /// For how long an API server may go by an old configuration, and a replica by an old Secret.
    grace: Duration,
    /// Oldest first.
    good: Vec<Ending>,
    /// Which configuration was seen last, and since when.
    stands: Option<(String, Duration)>,
    /// The token that is announced in the Secret, and when it was first seen there.
    announced: Option<(Token, Duration)>,
}

impl Door {
    pub(super) fn new(grace: Duration) -> Self {
        Self {
            grace,
            good: vec![],
            stands: None,
            announced: None,
        }
    }

    /// What the Secret says that the configuration has led to lately.
    pub(super) fn heard(&mut self, recent: &[Ending]) {
        for ending in recent {
            if !self.good.contains(ending) {
                self.good.push(*ending);
            }
        }
        let surplus = self.good.len().saturating_sub(MOST_RECENT);
        self.good.drain(..surplus);
    }

    /// The configuration as it is at `now`; `version` changes with it.
    pub(super) fn see(&mut self, now: Duration, version: String, asked: &[Ending]) {
        // At the end: what stands there now is the last to go.
        self.good.retain(|e| !asked.contains(e));
        self.heard(asked);
        if self.stands.as_ref().is_none_or(|(last, _)| *last != version) {
            self.stands = Some((version, now));
        }
        if self.settled(now) {
            self.good.retain(|e| asked.contains(e));
        }
    }

    /// There is none: nobody can ask, until there is one again.
    pub(super) fn gone(&mut self) {
        self.stands = None;
    }

    /// Every API server goes by what stands there now.
    pub(super) fn settled(&self, now: Duration) -> bool {
        self.stands
            .as_ref()
            .is_some_and(|(_, since)| now.saturating_sub(*since) >= self.grace)
    }

    /// The announced token, if it has stood in the Secret for so long that every replica that looks knows it.
    pub(super) fn known(&mut self, now: Duration, next: Option<&Token>) -> Option<&Token> {
        match (next, &self.announced) {
            (None, _) => self.announced = None,
            (Some(next), Some((token, _))) if token == next => {}
            (Some(next), _) => self.announced = Some((next.clone(), now)),
        }
        let (token, since) = self.announced.as_ref()?;
        (now.saturating_sub(*since) > self.grace).then_some(token)
    }

    pub(super) fn good(&self) -> &[Ending] {
        &self.good
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GRACE: u64 = 60;

    fn ending(n: u8) -> Ending {
        Ending::of(&n.to_string())
    }

    proptest! {
        /// Looks at any times, with gaps of any length, at a configuration that others change at any times: what a look has seen
        /// within the grace is good, and what was not seen since the configuration came to rest is not.
        #[test]
        fn what_an_api_server_may_go_by_is_good(steps in prop::collection::vec((1..200_u64, 0..5_u8, any::<bool>()), 1..80)) {
            let mut door = Door::new(Duration::from_secs(GRACE));
            let (mut now, mut current, mut version) = (1_000, 0, 0);
            // Since when looks have found this version, and what each look saw.
            let mut rest: Option<(u64, u64)> = None;
            let mut looks: Vec<(u64, u8)> = vec![];
            for (pause, next, change) in steps {
                now += pause;
                if change {
                    (current, version) = (next, version + 1);
                    continue;
                }
                door.see(Duration::from_secs(now), version.to_string(), &[ending(current)]);
                looks.push((now, current));
                if rest.is_none_or(|(last, _)| last != version) {
                    rest = Some((version, now));
                }
                let settled = rest.is_some_and(|(_, since)| now - since >= GRACE);
                prop_assert_eq!(door.settled(Duration::from_secs(now)), settled);
                prop_assert!(door.good().contains(&ending(current)));
                for other in 0..6_u8 {
                    let good = door.good().contains(&ending(other));
                    let lately = looks.iter().any(|(at, seen)| now - at < GRACE && *seen == other);
                    let ever = looks.iter().any(|(_, seen)| *seen == other);
                    prop_assert!(good || !lately);
                    prop_assert!(!good || ever && (other == current || !settled));
                }
            }
        }
    }

    #[test]
    fn a_token_is_known_when_every_replica_that_looks_has_seen_it() {
        let mut door = Door::new(Duration::from_secs(GRACE));
        let (a, b) = (Token::new().expect("random"), Token::new().expect("random"));
        let mut at = |seconds, next: Option<&Token>| door.known(Duration::from_secs(seconds), next).cloned();
        assert_eq!((at(100, Some(&a)), at(160, Some(&a))), (None, None));
        assert_eq!(at(161, Some(&a)), Some(a.clone()));
        assert_eq!((at(162, Some(&b)), at(222, Some(&b))), (None, None));
        assert_eq!(at(223, Some(&b)), Some(b.clone()));
        // One that was away is announced anew.
        assert_eq!(
            (at(224, None), at(300, Some(&b)), at(361, Some(&b))),
            (None, None, Some(b))
        );
    }

    #[test]
    fn endings_without_end_push_out_the_oldest_and_never_what_stands_there() {
        let mut door = Door::new(Duration::from_secs(GRACE));
        for n in 0..100 {
            door.see(Duration::from_secs(n.into()), n.to_string(), &[ending(0), ending(n)]);
            assert!(door.good().contains(&ending(0)) && door.good().contains(&ending(n)));
            assert!(door.good().len() <= MOST_RECENT);
        }
    }
}
