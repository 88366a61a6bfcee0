//! What a look every minute makes of the findings: which have stood long enough to be believed, and which of them nobody
//! has been told of yet.

use std::collections::BTreeMap;

use super::{Finding, Kind};

/// A finding that may be a passing moment is believed when it is there for the second time.
const BELIEVED: u32 = 2;

#[derive(Debug, Default)]
pub struct Rounds {
    /// By identity: rounds in a row it was there, and whether it was told.
    seen: BTreeMap<(Kind, String), (u32, bool)>,
}

impl Rounds {
    /// Those of a new round that stand. What is not there any more is forgotten, and new when it comes back.
    pub fn next(&mut self, findings: Vec<Finding>) -> Vec<Finding> {
        let mut before = std::mem::take(&mut self.seen);
        let mut standing = vec![];
        for finding in findings {
            let key = (finding.kind, finding.object.clone());
            let (rounds, told) = before.remove(&key).unwrap_or_default();
            let rounds = rounds.saturating_add(1);
            self.seen.insert(key, (rounds, told));
            if rounds >= BELIEVED || !finding.kind.passes() {
                standing.push(finding);
            }
        }
        standing
    }

    pub fn is_told(&self, finding: &Finding) -> bool {
        let key = (finding.kind, finding.object.clone());
        self.seen.get(&key).is_some_and(|(_, told)| *told)
    }

    pub fn told(&mut self, finding: &Finding) {
        if let Some((_, told)) = self.seen.get_mut(&(finding.kind, finding.object.clone())) {
            *told = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(kind: Kind, object: &str) -> Finding {
        Finding {
            kind,
            object: object.into(),
            message: String::new(),
            subject: None,
        }
    }

    #[test]
    fn a_passing_moment_is_not_believed_and_nobody_is_told_twice() {
        let mut rounds = Rounds::default();
        let twice = finding(Kind::DeviceGivenTwice, "d");
        let other = finding(Kind::UnknownHolder, "p");
        assert_eq!(
            rounds.next(vec![twice.clone(), other.clone()]),
            std::slice::from_ref(&twice)
        );
        assert!(!rounds.is_told(&twice));
        rounds.told(&twice);
        assert_eq!(
            rounds.next(vec![twice.clone(), other.clone()]),
            [twice.clone(), other.clone()]
        );
        assert!(rounds.is_told(&twice) && !rounds.is_told(&other));
        // Gone for a round: it has to stand again.
        assert!(rounds.next(vec![]).is_empty());
        assert_eq!(rounds.next(vec![twice.clone(), other]), std::slice::from_ref(&twice));
        assert!(!rounds.is_told(&twice));
    }
}
