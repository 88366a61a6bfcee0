//! Pods that share a claim: whoever binds, wherever and however late its picture is, there are never more than its slots.

use std::time::Duration;

use tokio::time::sleep;

use super::world::{Fault, Step, Trouble};
use super::*;

const SLOTS: usize = 3;

fn share() -> Name {
    "wl-share-chat-x3-0123456789".into()
}

fn users(setup: &Setup) -> Vec<Name> {
    let state = setup.world.state();
    let claim = &state.claims[&NamespacedName::new("ns", share())];
    claim.reserved_for.iter().map(|c| c.name.clone()).collect()
}

/// Two replicas that both bind: the election is not what keeps the count.
#[tokio::test(start_paused = true)]
async fn two_replicas_with_late_watches_and_lost_answers() {
    let lost = |step, fault| Trouble { step, fault, times: 2 };
    for troubles in [
        vec![],
        vec![lost(Step::Reserve, Fault::UnknownAfter)],
        vec![lost(Step::Reserve, Fault::UnknownLate)],
        vec![
            lost(Step::Reserve, Fault::ConflictAfter),
            lost(Step::Bind, Fault::UnknownBefore),
        ],
        vec![
            lost(Step::Bind, Fault::Refused),
            lost(Step::Unreserve, Fault::UnknownBefore),
        ],
        vec![lost(Step::Allocate, Fault::UnknownAfter)],
    ] {
        let lag = Duration::from_millis(400);
        let setup = Setup::new(&troubles, lag, Duration::from_millis(3));
        let other = setup.another(Duration::from_millis(5));
        let pods: Vec<Pod> = (0..8).map(|i| new_pod(&format!("p{i}"), &[share()])).collect();
        {
            let mut state = setup.world.state();
            state.add_claim(new_claim(&share()));
            pods.iter().for_each(|pod| state.add_pod(pod.clone()));
        }
        sleep(Duration::from_secs(1)).await;
        // Those that met a conflict come again, as kube-scheduler has it.
        for _ in 0..4 {
            let binds = pods.iter().enumerate().map(|(i, pod)| match i % 2 {
                0 => setup.bind(pod, "n1"),
                _ => other.bind(pod, "n1"),
            });
            let results = futures::future::join_all(binds).await;
            assert!(
                users(&setup).len() <= SLOTS,
                "{troubles:?}: {:?} after {results:?}",
                users(&setup)
            );
            sleep(Duration::from_secs(2)).await;
        }
        setup.binder.drained().await;
        other.binder.drained().await;
        sleep(Duration::from_secs(30)).await;
        let bound: Vec<&Pod> = pods
            .iter()
            .filter(|p| setup.node_of(p).is_some_and(|n| !n.is_empty()))
            .collect();
        assert_eq!(bound.len(), SLOTS, "{troubles:?}");
        let mut holders = users(&setup);
        holders.sort();
        let names: Vec<Name> = bound.iter().map(|p| p.key.name.clone()).collect();
        assert_eq!(
            holders, names,
            "{troubles:?}: a slot for whoever is bound, and for nobody else"
        );
        assert_eq!(setup.wrong(&[], false), [""; 0], "{troubles:?}");
    }
}

/// The last to leave gives the device back, though another pod's bind allocated it.
#[tokio::test(start_paused = true)]
async fn an_undone_bind_leaves_no_allocation_without_a_pod() {
    let troubles = [Trouble {
        step: Step::Bind,
        fault: Fault::Refused,
        times: 1,
    }];
    let setup = Setup::new(&troubles, Duration::from_millis(5), Duration::from_millis(50));
    let pod = new_pod("a", &[share()]);
    {
        let mut state = setup.world.state();
        let mut claim = new_claim(&share());
        claim.allocation = Some(Arc::new(allocation("n1", "gpu-0")));
        claim.reserved_for = vec![consumer(&new_pod("gone", &[]))];
        state.add_claim(claim);
        state.add_pod(pod.clone());
    }
    sleep(Duration::from_secs(1)).await;
    let world = setup.world.clone();
    // The claim controller takes the other out while ours is being bound.
    tokio::spawn(async move {
        sleep(Duration::from_millis(75)).await;
        let key = NamespacedName::new("ns", share());
        let mut state = world.state();
        if let Some(claim) = state.claims.get_mut(&key) {
            claim.reserved_for.retain(|c| &*c.name != "gone");
        }
    });
    assert!(setup.bind(&pod, "n1").await.is_err());
    setup.binder.drained().await;
    sleep(Duration::from_secs(1)).await;
    let state = setup.world.state();
    let claim = &state.claims[&NamespacedName::new("ns", share())];
    assert_eq!((&claim.allocation, claim.reserved_for.len()), (&None, 0));
}
