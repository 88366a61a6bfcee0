//! The stories that have a known answer.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::world::{Fault, Step, Trouble};
use super::*;
use crate::binding::BindFailure;
use crate::binding::turns::Turns;

fn quick(troubles: &[Trouble]) -> Setup {
    Setup::new(troubles, Duration::from_millis(5), Duration::from_millis(3))
}

fn always(step: Step, fault: Fault) -> Trouble {
    Trouble {
        step,
        fault,
        times: u32::MAX,
    }
}

fn kind(result: &Result<BindOutcome, BindError>) -> Option<BindFailure> {
    result.as_ref().err().map(|e| e.kind)
}

#[tokio::test(start_paused = true)]
async fn binds_and_says_so_again_and_refuses_another_node() {
    let setup = quick(&[]);
    let pod = setup.add_pod("a");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(setup.bind(&pod, "n1").await, Ok(BindOutcome::Bound));
    assert_eq!(setup.world.state().devices().len(), 2);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(setup.bind(&pod, "n1").await, Ok(BindOutcome::Already));
    assert_eq!(kind(&setup.bind(&pod, "n2").await), Some(BindFailure::BoundElsewhere));
    assert_eq!(setup.wrong(&[pod], false), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn binds_of_one_pod_at_the_same_time_end_in_one_placement() {
    let setup = quick(&[]);
    let pod = setup.add_pod("a");
    sleep(Duration::from_secs(1)).await;
    let (one, same, other) = tokio::join!(setup.bind(&pod, "n1"), setup.bind(&pod, "n1"), setup.bind(&pod, "n2"));
    assert_eq!((one, same), (Ok(BindOutcome::Bound), Ok(BindOutcome::Already)));
    assert_eq!(kind(&other), Some(BindFailure::BoundElsewhere));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(setup.wrong(&[pod], false), [""; 0]);
}

/// Its own hold ends with a failed bind; that of a newer try of the pod, which began meanwhile, stays.
#[tokio::test(start_paused = true)]
async fn a_failed_bind_drops_the_hold_it_began_with() {
    for newer in [false, true] {
        let setup = Setup::new(
            &[always(Step::Bind, Fault::Refused)],
            Duration::from_millis(5),
            Duration::from_millis(100),
        );
        let pod = setup.add_pod("a");
        sleep(Duration::from_secs(1)).await;
        let index = setup.binder.shared.index.clone();
        let hold = || {
            let claims = pod.claims.iter().filter_map(PodClaim::claim_name);
            let claims = claims.map(|name| crate::index::ReservedClaim {
                claim: NamespacedName::new("ns", name.clone()),
                uid: format!("uid-of-{name}").into(),
                results: vec![],
            });
            index.hold(Reservation {
                pod: pod.key.clone(),
                pod_uid: pod.uid.clone(),
                node: "n1".into(),
                claims: claims.collect(),
                slots: vec![],
            })
        };
        hold().await.expect("held");
        let again = async {
            sleep(Duration::from_millis(50)).await;
            match newer {
                true => Some(hold().await.expect("held")),
                false => None,
            }
        };
        let (failed, newest) = tokio::join!(setup.bind(&pod, "n1"), again);
        assert!(failed.is_err());
        setup.binder.drained().await;
        index.flush().await.expect("it runs");
        let snapshot = setup.binder.shared.reader.load();
        assert_eq!(snapshot.hold_of(&pod).map(|hold| hold.id), newest);
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_hangs_up_does_not_stop_what_was_begun() {
    for after in 0..20 {
        let setup = quick(&[]);
        let pod = setup.add_pod("a");
        sleep(Duration::from_secs(1)).await;
        let _ = timeout(Duration::from_millis(after), setup.bind(&pod, "n1")).await;
        setup.binder.drained().await;
        sleep(Duration::from_secs(1)).await;
        assert_eq!(setup.node_of(&pod).as_deref(), Some("n1"), "hung up after {after} ms");
        assert_eq!(setup.wrong(&[pod], false), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_api_is_answered_in_time_and_the_bind_goes_on() {
    let setup = Setup::new(&[], Duration::ZERO, Duration::from_secs(3));
    let pod = setup.add_pod("a");
    sleep(Duration::from_secs(1)).await;
    let start = Instant::now();
    assert_eq!(kind(&setup.bind(&pod, "n1").await), Some(BindFailure::Unfinished));
    assert!(start.elapsed() < Duration::from_secs(5));
    assert_eq!(setup.binder.running(), 1);
    setup.binder.drained().await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(setup.node_of(&pod).as_deref(), Some("n1"));
    assert_eq!(setup.wrong(&[pod], false), [""; 0]);
}

/// The API never says what became of the write: what may be given is not given again.
#[tokio::test(start_paused = true)]
async fn devices_stay_reserved_as_long_as_the_write_is_unknown() {
    for (write, read) in [
        (
            always(Step::Allocate, Fault::UnknownBefore),
            always(Step::ReadClaim, Fault::UnknownBefore),
        ),
        (
            always(Step::Allocate, Fault::UnknownAfter),
            always(Step::ReadClaim, Fault::UnknownBefore),
        ),
        (
            always(Step::Bind, Fault::UnknownBefore),
            always(Step::ReadPod, Fault::UnknownBefore),
        ),
        (
            always(Step::Bind, Fault::UnknownAfter),
            always(Step::ReadPod, Fault::UnknownBefore),
        ),
    ] {
        let setup = Setup::new(&[write, read], Duration::from_secs(3600), Duration::from_millis(3));
        let pods = [setup.add_pod("a"), setup.add_pod("b")];
        sleep(Duration::from_secs(3601)).await;
        assert_eq!(kind(&setup.bind(&pods[0], "n1").await), Some(BindFailure::Unfinished));
        assert_eq!(kind(&setup.bind(&pods[0], "n1").await), Some(BindFailure::Busy));
        setup.binder.drained().await;
        assert_eq!(setup.reserved.lock().expect("not poisoned").len(), 1);
        assert_eq!(kind(&setup.bind(&pods[1], "n1").await), Some(BindFailure::Conflict));
        assert_eq!(setup.world.state().given_twice, [""; 0]);
    }
}

/// As many as may write at one time; who waits longer than the scheduler does has written nothing.
#[tokio::test(start_paused = true)]
async fn binds_write_in_turns_and_one_whose_turn_is_too_late_leaves_nothing() {
    for (latency, late) in [(Duration::from_millis(100), false), (Duration::from_millis(4450), true)] {
        let mut setup = Setup::new(&[], Duration::ZERO, latency);
        Arc::get_mut(&mut setup.binder.shared).expect("not shared yet").turns = Turns::new(1);
        let pods = [setup.add_pod("a"), setup.add_pod("b")];
        sleep(Duration::from_secs(1)).await;
        let begun = Instant::now();
        let (_, second) = tokio::join!(setup.bind(&pods[0], "n1"), async {
            sleep(Duration::from_millis(1)).await;
            let bound = setup.bind(&pods[1], "n2").await;
            (bound, begun.elapsed())
        });
        assert_eq!(kind(&second.0), late.then_some(BindFailure::Crowded), "{second:?}");
        // The Binding of the first waits for nobody, and nobody for it.
        assert!(late || second.1 < Duration::from_millis(350), "{second:?}");
        setup.binder.drained().await;
        sleep(Duration::from_secs(1)).await;
        assert_eq!(setup.wrong(&pods, false), [""; 0]);
        assert_eq!(setup.node_of(&pods[1]).as_deref() == Some("n2"), !late);
    }
}

#[tokio::test(start_paused = true)]
async fn an_allocation_from_before_is_reserved_and_never_cleared() {
    for (troubles, bound) in [
        (vec![], true),
        (vec![always(Step::Bind, Fault::Refused)], false),
        (vec![always(Step::Reserve, Fault::Refused)], false),
        (vec![always(Step::Reserve, Fault::ConflictBefore)], false),
        (
            vec![Trouble {
                step: Step::Reserve,
                fault: Fault::UnknownBefore,
                times: 3,
            }],
            true,
        ),
        (
            vec![Trouble {
                step: Step::Reserve,
                fault: Fault::UnknownAfter,
                times: 3,
            }],
            true,
        ),
        (
            vec![
                Trouble {
                    step: Step::Reserve,
                    fault: Fault::UnknownAfter,
                    times: 1,
                },
                always(Step::Bind, Fault::Refused),
            ],
            false,
        ),
    ] {
        let setup = quick(&troubles);
        let mut claim = new_claim(&"shared".into());
        claim.allocation = Some(Arc::new(allocation("n1", "gpu-0")));
        let other = consumer(&new_pod("other", &[]));
        claim.reserved_for = vec![other.clone()];
        setup.world.state().add_claim(claim.clone());
        let fresh: Name = "a-1".into();
        setup.world.state().add_claim(new_claim(&fresh));
        let pod = new_pod("a", &["shared".into(), fresh.clone()]);
        setup.world.state().add_pod(pod.clone());
        sleep(Duration::from_secs(1)).await;
        let result = setup.bind(&pod, "n1").await;
        setup.binder.drained().await;
        sleep(Duration::from_secs(1)).await;
        assert_eq!(result.is_ok(), bound, "{troubles:?}: {result:?}");
        let state = setup.world.state();
        let shared = &state.claims[&claim.key];
        assert_eq!(shared.allocation, claim.allocation, "{troubles:?}");
        let expected = if bound {
            vec![other, consumer(&pod)]
        } else {
            vec![other]
        };
        assert_eq!(shared.reserved_for, expected, "{troubles:?}");
        let fresh = &state.claims[&NamespacedName::new("ns", fresh)];
        assert_eq!(fresh.allocation.is_some(), bound, "{troubles:?}");
    }
}

/// kube-scheduler did not hear that the pod is bound and asks another replica, whose watch shows nothing of it yet.
/// Whatever the second bind meets, the pod keeps what it runs on.
#[tokio::test(start_paused = true)]
async fn a_bind_that_fails_takes_nothing_from_a_pod_that_an_earlier_one_bound() {
    let once = |step, fault| Trouble { step, fault, times: 1 };
    for troubles in [
        vec![],
        vec![once(Step::Bind, Fault::Refused)],
        vec![once(Step::Bind, Fault::ConflictBefore)],
        vec![
            once(Step::Bind, Fault::Refused),
            once(Step::ReadPod, Fault::UnknownBefore),
        ],
        vec![once(Step::Allocate, Fault::Refused)],
        vec![once(Step::Reserve, Fault::Refused)],
        vec![
            once(Step::Reserve, Fault::Refused),
            once(Step::Allocate, Fault::UnknownBefore),
        ],
    ] {
        for own in [false, true] {
            let lag = Duration::from_secs(60);
            let setup = Setup::new(&[], lag, Duration::from_millis(50));
            let other = setup.another(lag);
            let shared: Name = "shared".into();
            let mut claim = new_claim(&shared);
            claim.allocation = Some(Arc::new(allocation("n1", "gpu-0")));
            claim.reserved_for = vec![consumer(&new_pod("other", &[]))];
            setup.world.state().add_claim(claim.clone());
            let mut claims = vec![shared];
            if own {
                let fresh: Name = "a-1".into();
                setup.world.state().add_claim(new_claim(&fresh));
                claims.push(fresh);
            }
            let pod = new_pod("a", &claims);
            setup.world.state().add_pod(pod.clone());
            sleep(lag + Duration::from_secs(1)).await;
            assert!(setup.bind(&pod, "n1").await.is_ok());
            troubles.iter().for_each(|t| setup.world.fail(*t));
            let again = other.bind(&pod, "n1").await;
            other.binder.drained().await;
            sleep(2 * lag).await;
            let wrong = setup.wrong(std::slice::from_ref(&pod), false);
            assert_eq!(wrong, [""; 0], "{troubles:?}, own {own}: {again:?}");
        }
    }
}

/// The API says no, and then nothing more: whether an earlier bind had it bound cannot be found out, and whoever tries again is
/// not kept out for the ten minutes that an unanswered write is worth.
#[tokio::test(start_paused = true)]
async fn a_refused_bind_ends_soon_where_the_pod_cannot_be_read() {
    let setup = quick(&[
        always(Step::Bind, Fault::Refused),
        always(Step::ReadPod, Fault::UnknownBefore),
    ]);
    let pod = setup.add_pod("a");
    sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    assert_eq!(kind(&setup.bind(&pod, "n1").await), Some(BindFailure::Unfinished));
    setup.binder.drained().await;
    // And one pause between two looks.
    let soon = Limits::default().forward + Duration::from_secs(6);
    assert!(began.elapsed() < soon, "{:?}", began.elapsed());
    assert_eq!(setup.world.state().devices().len(), 2, "they stay the pod's");
    setup.world.heal();
    assert_eq!(setup.bind(&pod, "n1").await, Ok(BindOutcome::Bound));
    assert_eq!(setup.wrong(&[pod], false), [""; 0]);
}

/// Another replica has bound the pod, on other devices than we would, and no watch of ours shows it: the API that says no to
/// our writes is asked for the pod before it is placed again.
#[tokio::test(start_paused = true)]
async fn after_a_conflict_the_pod_is_read_anew() {
    let lag = Duration::from_secs(60);
    let setup = Setup::new(&[], lag, Duration::from_millis(5));
    let pod = setup.add_pod("a");
    sleep(lag + Duration::from_secs(1)).await;
    {
        let mut state = setup.world.state();
        for (claim, device) in [("a-0", "gpu-1"), ("a-1", "gpu-0")] {
            state.add_claim(Claim {
                allocation: Some(Arc::new(allocation("n1", device))),
                reserved_for: vec![consumer(&pod)],
                ..new_claim(&claim.into())
            });
        }
        state.add_pod(Pod {
            node_name: "n1".into(),
            ..pod.clone()
        });
    }
    assert_eq!(setup.bind(&pod, "n1").await, Ok(BindOutcome::Already));
    sleep(2 * lag).await;
    assert_eq!(setup.wrong(&[pod], false), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_claims_is_just_bound() {
    let setup = quick(&[]);
    let pod = new_pod("plain", &[]);
    // Not in the cache: only the API has it.
    setup.world.state().pods.insert(pod.key.clone(), pod.clone());
    // All who may write to claims do; it writes to none.
    let mut writers = vec![];
    for _ in 0..Limits::default().at_once {
        writers.push(setup.binder.shared.turns.take(Instant::now()).await.expect("free"));
    }
    assert_eq!(setup.bind(&pod, "n1").await, Ok(BindOutcome::Plain));
    assert_eq!(setup.node_of(&pod).as_deref(), Some("n1"));
}

#[tokio::test(start_paused = true)]
async fn pods_that_cannot_be_bound_are_told_apart() {
    let setup = quick(&[]);
    let pod = setup.add_pod("a");
    sleep(Duration::from_secs(1)).await;
    let replaced = Pod {
        uid: "older".into(),
        ..pod.clone()
    };
    assert_eq!(kind(&setup.bind(&replaced, "n1").await), Some(BindFailure::PodGone));
    let unknown = new_pod("nobody", &[]);
    assert_eq!(kind(&setup.bind(&unknown, "n1").await), Some(BindFailure::PodGone));
    let deleting = Pod {
        deleting: true,
        ..new_pod("old", &[])
    };
    setup.world.state().add_pod(deleting.clone());
    sleep(Duration::from_secs(1)).await;
    assert_eq!(kind(&setup.bind(&deleting, "n1").await), Some(BindFailure::PodGone));
    let early = new_pod("early", &["not-there-yet".into()]);
    setup.world.state().add_pod(early.clone());
    sleep(Duration::from_secs(1)).await;
    let refused = kind(&setup.bind(&early, "n1").await);
    assert_eq!(refused, Some(BindFailure::Refused(Reason::ClaimMissing)));
    assert_eq!(setup.wrong(&[pod], false), [""; 0]);
}
