//! Devices that their driver has to make ready before the pod is bound.

use std::time::Duration;

use tokio::time::sleep;

use super::world::{Fault, Step};
use super::*;
use crate::binding::BindFailure;

const NODE: &str = "fabric-1";

async fn setup(troubles: &[Trouble]) -> (Setup, Pod) {
    let setup = Setup::new(troubles, Duration::from_millis(5), Duration::from_millis(3));
    let pod = setup.add_pod("a");
    sleep(Duration::from_secs(1)).await;
    (setup, pod)
}

fn claims_of(pod: &Pod) -> Vec<NamespacedName> {
    let names = pod.claims.iter().filter_map(PodClaim::claim_name);
    names.map(|n| NamespacedName::new("ns", n.clone())).collect()
}

impl Setup {
    fn report(&self, claim: &NamespacedName, kind: &str, holds: bool) {
        self.world
            .state()
            .report(claim, kind, holds, "Fabric: the switch says so");
    }

    /// Claims of the pod that are allocated, and those that name it.
    fn held(&self, pod: &Pod) -> (usize, usize) {
        let state = self.world.state();
        let claims = claims_of(pod).into_iter().filter_map(|c| state.claims.get(&c).cloned());
        let claims: Vec<Claim> = claims.collect();
        (
            claims.iter().filter(|c| c.allocation.is_some()).count(),
            claims
                .iter()
                .filter(|c| c.reserved_for.contains(&consumer(pod)))
                .count(),
        )
    }
}

fn error(result: Result<BindOutcome, BindError>) -> (BindFailure, String) {
    let error = result.expect_err("it must not be bound");
    (error.kind, error.message.to_string())
}

#[tokio::test(start_paused = true)]
async fn it_is_bound_when_every_device_is_ready_and_not_before() {
    let (setup, pod) = setup(&[]).await;
    let [first, second] = claims_of(&pod).try_into().expect("two claims");
    let start = tokio::time::Instant::now();
    let (kind, words) = error(setup.bind(&pod, NODE).await);
    assert_eq!(kind, BindFailure::Awaited);
    assert_eq!(
        words,
        "pod ns/a is not bound yet: waiting for ResourceClaim ns/a-0: condition Attached of device \
         gpu.nvidia.com/fabric-1/gpu-0 (not reported yet)"
    );
    assert!(start.elapsed() < Duration::from_secs(4), "the scheduler hears of it");
    assert_eq!((setup.held(&pod), setup.node_of(&pod).as_deref()), ((2, 2), Some("")));
    assert!(
        setup.reserved.lock().expect("not poisoned").is_empty(),
        "the watch has shown the claims"
    );

    setup.report(&first, "Attached", true);
    setup.report(&second, "Attached", false);
    let (kind, words) = error(setup.bind(&pod, NODE).await);
    assert_eq!(kind, BindFailure::Awaited);
    assert!(words.ends_with("gpu-1 (Fabric: the switch says so)"), "{words}");
    assert_eq!(setup.held(&pod), (2, 2));

    setup.report(&second, "Attached", true);
    assert_eq!(setup.bind(&pod, NODE).await, Ok(BindOutcome::Bound));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(setup.wrong(&[pod], false), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_report_that_comes_during_the_call_is_not_waited_for_twice() {
    let (setup, pod) = setup(&[]).await;
    let report = async {
        sleep(Duration::from_secs(2)).await;
        for claim in claims_of(&pod) {
            setup.report(&claim, "Attached", true);
        }
    };
    let (bound, ()) = tokio::join!(setup.bind(&pod, NODE), report);
    assert_eq!(bound, Ok(BindOutcome::Bound));
}

#[tokio::test(start_paused = true)]
async fn a_failure_gives_everything_back_in_the_same_call_and_later() {
    for later in [false, true] {
        let (setup, pod) = setup(&[]).await;
        if later {
            assert_eq!(error(setup.bind(&pod, NODE).await).0, BindFailure::Awaited);
        }
        let fail = async {
            sleep(Duration::from_millis(500)).await;
            setup.report(&claims_of(&pod)[1], "AttachFailed", true);
        };
        let (bound, ()) = tokio::join!(setup.bind(&pod, NODE), fail);
        let (kind, words) = error(bound);
        assert_eq!(kind, BindFailure::Unready);
        assert_eq!(
            words,
            "pod ns/a gives its devices back: ResourceClaim ns/a-1: device gpu.nvidia.com/fabric-1/gpu-1 reports \
             AttachFailed: Fabric: the switch says so"
        );
        assert_eq!(setup.held(&pod), (0, 0));
        // Another node, and nothing of the old report is left to stop it.
        assert_eq!(setup.bind(&pod, "n1").await, Ok(BindOutcome::Bound));
        sleep(Duration::from_secs(1)).await;
        assert_eq!(setup.wrong(&[pod], false), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn ten_minutes_are_enough() {
    let (setup, pod) = setup(&[]).await;
    assert_eq!(error(setup.bind(&pod, NODE).await).0, BindFailure::Awaited);
    sleep(Duration::from_secs(590)).await;
    assert_eq!(error(setup.bind(&pod, NODE).await).0, BindFailure::Awaited);
    sleep(Duration::from_secs(10)).await;
    let (kind, words) = error(setup.bind(&pod, NODE).await);
    assert_eq!(kind, BindFailure::Unready);
    assert!(words.ends_with("was waited for 600 s in vain"), "{words}");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(setup.wrong(&[pod], false), [""; 0]);
}

/// A claim that another pod uses keeps its devices, whatever they report.
#[tokio::test(start_paused = true)]
async fn what_others_hold_is_not_taken_from_them() {
    let (setup, pod) = setup(&[]).await;
    assert_eq!(error(setup.bind(&pod, NODE).await).0, BindFailure::Awaited);
    let shared = claims_of(&pod)[0].clone();
    let other = new_pod("b", &["a-0".into()]);
    {
        let mut state = setup.world.state();
        state
            .claims
            .get_mut(&shared)
            .expect("there")
            .reserved_for
            .push(consumer(&other));
        state.add_pod(other.clone());
        state.report(&shared, "AttachFailed", true, "");
    }
    assert_eq!(error(setup.bind(&pod, NODE).await).0, BindFailure::Unready);
    assert_eq!(setup.held(&pod), (1, 0));
    assert_eq!(setup.world.state().claims[&shared].reserved_for, [consumer(&other)]);
}

/// Giving back fails in every way: the devices are never free while the claim still holds them.
#[tokio::test(start_paused = true)]
async fn an_undo_that_fails_is_repeated_or_told() {
    for fault in [
        Fault::UnknownBefore,
        Fault::UnknownAfter,
        Fault::UnknownLate,
        Fault::ConflictBefore,
        Fault::Refused,
    ] {
        let trouble = Trouble {
            step: Step::Unreserve,
            fault,
            times: 1,
        };
        let (setup, pod) = setup(&[trouble]).await;
        assert_eq!(error(setup.bind(&pod, NODE).await).0, BindFailure::Awaited);
        for claim in claims_of(&pod) {
            setup.report(&claim, "AttachFailed", true);
        }
        let _ = setup.bind(&pod, NODE).await;
        setup.binder.drained().await;
        sleep(Duration::from_secs(60)).await;
        assert_eq!(
            setup.wrong(std::slice::from_ref(&pod), fault == Fault::Refused),
            [""; 0],
            "{fault:?}"
        );
    }
}
