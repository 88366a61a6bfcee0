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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::convert;
    use crate::index::Change;
    use crate::model::{Classified, Classifier, Device, Labels, NamespacedName};

    const CLAIM: &str = "wl-share-chat-x2-0123456789";

    /// A policy that gives a shared claim so many slots.
    struct Slots(u32);

    impl Classifier for Slots {
        fn slots(&self, _: Option<&Labels>) -> u32 {
            self.0
        }

        fn classify(&self, _: &Name, _: &Device, _: &Labels, _: &Labels) -> Classified {
            Classified::default()
        }
    }

    fn put(index: &mut Index, object: &Value) {
        let object = convert::object(object).expect("readable").expect("kept");
        index.apply(Change::Upsert(object));
    }

    fn claim(version: u32, users: &[&str]) -> Value {
        let users: Vec<_> = users
            .iter()
            .map(|u| json!({"resource": "pods", "name": u, "uid": u}))
            .collect();
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": CLAIM, "namespace": "ns", "uid": "u", "resourceVersion": version.to_string()},
            "spec": {}, "status": {"reservedFor": users}})
    }

    fn queue(index: &mut Index) -> Vec<String> {
        let snapshot = index.publish().expect("the claim has changed");
        let sharers = snapshot.sharers.get(&NamespacedName::new("ns", CLAIM));
        sharers.map_or_else(Vec::new, |s| s.queue.iter().map(|w| w.pod.to_string()).collect())
    }

    /// a, b and c wait, in this order.
    fn waiting(slots: u32) -> Index {
        let mut index = Index::new(Arc::new(Slots(slots)));
        for (i, name) in ["a", "b", "c"].into_iter().enumerate() {
            put(
                &mut index,
                &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ns", "uid": name,
                    "creationTimestamp": format!("2026-01-01T00:00:0{i}Z")},
                    "spec": {"containers": [], "resourceClaims": [{"name": "g", "resourceClaimName": CLAIM}]}}),
            );
        }
        index
    }

    /// Policy gives fewer slots than the claim's name says: one that is not free is nobody's turn, and costs nobody his place.
    #[tokio::test(start_paused = true)]
    async fn the_slots_of_the_policy_count() {
        let mut index = waiting(1);
        put(&mut index, &claim(1, &["x"]));
        let mut turns = Turns::default();
        turns.look(&mut index, Instant::now());
        assert_eq!(turns.due(), None, "x has the only one");
        tokio::time::sleep(3 * PATIENCE).await;
        turns.look(&mut index, Instant::now());
        assert_eq!(queue(&mut index), ["a", "b", "c"]);
        // A policy with more: the second is the turn of a.
        index.set_classifier(Arc::new(Slots(2)));
        turns.look(&mut index, Instant::now());
        assert_eq!(turns.due().map(|due| due - Instant::now()), Some(PATIENCE));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_does_not_use_its_turn_blocks_for_half_a_minute() {
        let mut index = waiting(2);
        put(&mut index, &claim(1, &["x", "y"]));
        let mut turns = Turns::default();
        turns.look(&mut index, Instant::now());
        assert_eq!(turns.due(), None, "no slot is free: it is nobody's turn");
        put(&mut index, &claim(2, &["x"]));
        turns.look(&mut index, Instant::now());
        let due = turns.due().expect("the turn of a");
        assert_eq!(due - Instant::now(), PATIENCE);
        tokio::time::sleep(PATIENCE - Duration::from_millis(1)).await;
        turns.look(&mut index, Instant::now());
        assert_eq!(queue(&mut index), ["a", "b", "c"]);
        tokio::time::sleep(Duration::from_millis(1)).await;
        turns.look(&mut index, Instant::now());
        put(&mut index, &claim(3, &["x"]));
        assert_eq!(queue(&mut index), ["b", "c"], "a is waited for no more");
        // And b has as long.
        assert_eq!(turns.due().map(|due| due - Instant::now()), Some(PATIENCE));
        // Another try, after a while.
        put(&mut index, &claim(4, &["x", "b"]));
        tokio::time::sleep(AGAIN).await;
        turns.look(&mut index, Instant::now());
        put(&mut index, &claim(5, &["x", "b"]));
        assert_eq!(queue(&mut index), ["a", "b", "c"]);
    }
}
