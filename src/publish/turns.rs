//! Whose turn it is at a free slot of a shared claim, and for how long others wait for it. Placement lets no younger pod
//! have a slot while an older one waits; a pod that something else keeps from every node would block the rest for ever.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::index::Index;
use crate::model::Name;

/// So long others wait for a pod whose turn it is: some tries of kube-scheduler, whose longest pause is ten seconds.
const PATIENCE: Duration = Duration::from_secs(30);
/// After so long they wait for it once more.
const AGAIN: Duration = Duration::from_secs(300);

/// By pod uid. As many as wait for shared claims, at most.
#[derive(Default)]
pub(super) struct Turns {
    since: HashMap<Name, Instant>,
    passed: HashMap<Name, Instant>,
}

impl Turns {
    /// Tells the index whom nobody waits for any more.
    pub(super) fn look(&mut self, index: &mut Index, now: Instant) {
        let back = |at: &Instant| now - *at >= AGAIN;
        for (uid, _) in self.passed.extract_if(|_, at| back(at)) {
            index.pass_over(&uid, false);
        }
        // Who is passed over gives the turn to the next: each round passes somebody over, or is the last.
        loop {
            let turns: HashSet<Name> = index.turns().into_iter().collect();
            self.since.retain(|uid, _| turns.contains(uid));
            for uid in turns {
                self.since.entry(uid).or_insert(now);
            }
            let late: Vec<Name> = self
                .since
                .extract_if(|_, since| now - *since >= PATIENCE)
                .map(|(uid, _)| uid)
                .collect();
            if late.is_empty() {
                return;
            }
            for uid in late {
                index.pass_over(&uid, true);
                self.passed.insert(uid, now);
            }
        }
    }

    /// When it is to be looked at again, whatever happens.
    pub(super) fn due(&self) -> Option<Instant> {
        let late = self.since.values().map(|at| *at + PATIENCE);
        late.chain(self.passed.values().map(|at| *at + AGAIN)).min()
    }
}
