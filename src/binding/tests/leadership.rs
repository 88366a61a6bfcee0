//! Leadership lost at every moment of a bind, and the next leader's turn: nothing is written any more by the old one,
//! nothing stays reserved, and the pod is bound by the next on what the first may have allocated.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::world::{Fault, Step, Trouble};
use super::*;
use crate::binding::BindFailure;
use crate::leader::Lever;

const LATENCY: Duration = Duration::from_millis(3);
const LAG: Duration = Duration::from_millis(40);

fn led(setup: &mut Setup) -> Lever {
    let (lever, leadership) = Lever::new();
    setup.binder = setup.binder.clone().led_by(leadership);
    lever
}

/// A bind that loses its term after so long; then the other replica binds the same pod and a rival wants the same
/// devices. `back`: the same replica leads again instead.
async fn trial(troubles: &[Trouble], lost_after: Duration, back: bool) -> Vec<String> {
    let mut first = Setup::new(troubles, LAG, LATENCY);
    let lever = led(&mut first);
    let pods = [first.add_pod("a"), first.add_pod("b")];
    sleep(Duration::from_secs(1)).await;
    lever.elect(1);
    let began = Instant::now();
    let (answer, ()) = tokio::join!(first.bind(&pods[0], "n1"), async {
        sleep_until(began + lost_after).await;
        lever.depose();
    });
    let mut wrong = vec![];
    match &answer {
        Ok(_) if first.node_of(&pods[0]).as_deref() == Some("n1") => {}
        Err(e) if matches!(e.kind, BindFailure::NotLeader) => {}
        // It ended in time, and not well.
        Err(_) if !troubles.is_empty() => {}
        other => wrong.push(format!("the answer was {other:?}")),
    }
    if first.binder.running() > 0 {
        wrong.push("the old leader's bind goes on".to_owned());
    }
    let before = first.world.state().claims.clone();
    sleep(Duration::from_secs(200)).await;
    if first.world.state().claims != before {
        wrong.push("the old leader wrote after its end".to_owned());
    }
    first.world.calm();
    let held: Vec<DeviceId> = first.world.state().devices();
    let mut second = if back { first } else { first.another(LAG) };
    let lever = if back { lever } else { led(&mut second) };
    // Its cache is as new as the last write.
    sleep(Duration::from_secs(1)).await;
    lever.elect(2);
    let (next, rival) = tokio::join!(second.bind(&pods[0], "n1"), second.bind(&pods[1], "n1"));
    // Both want both devices; what was allocated before stays with its pod.
    if !held.is_empty() && next.is_err() {
        wrong.push(format!(
            "{} devices were allocated, and the next bind says {next:?}",
            held.len()
        ));
    }
    if next.is_ok() == rival.is_ok() {
        wrong.push(format!("of two pods: {next:?} and {rival:?}"));
    }
    second.binder.drained().await;
    sleep(Duration::from_secs(200)).await;
    wrong.extend(second.wrong(&pods, false));
    wrong
}

async fn all(trials: &[Vec<Trouble>], until_ms: u64) {
    let mut wrong = vec![];
    for troubles in trials {
        for (half_ms, back) in (0..until_ms * 2).flat_map(|t| [(t, false), (t, true)]) {
            let lost_after = Duration::from_micros(half_ms * 500);
            let found = trial(troubles, lost_after, back).await;
            if !found.is_empty() {
                wrong.push(format!(
                    "{troubles:?}, lost after {lost_after:?}, back {back}: {}",
                    found.join("; ")
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn lost_at_any_moment_of_a_bind_the_next_leader_finishes_it() {
    // Longer than the bind takes: two writes of 3 ms.
    all(&[vec![]], 12).await;
}

#[tokio::test(start_paused = true)]
async fn lost_while_a_write_is_being_settled_or_undone() {
    let trouble = |step, fault| Trouble { step, fault, times: 1 };
    let trials = [
        vec![trouble(Step::Allocate, Fault::UnknownAfter)],
        vec![trouble(Step::Allocate, Fault::UnknownBefore)],
        vec![trouble(Step::Allocate, Fault::Refused)],
        vec![trouble(Step::Bind, Fault::UnknownAfter)],
        vec![trouble(Step::Bind, Fault::Refused)],
        vec![
            trouble(Step::Bind, Fault::Refused),
            trouble(Step::Unreserve, Fault::UnknownAfter),
        ],
    ];
    all(&trials, 70).await;
}

#[tokio::test(start_paused = true)]
async fn a_follower_writes_nothing_and_says_who_leads() {
    let mut setup = Setup::new(&[], LAG, LATENCY);
    let _lever = led(&mut setup);
    let pod = setup.add_pod("a");
    sleep(Duration::from_secs(1)).await;
    let refused = setup.bind(&pod, "n1").await.expect_err("it does not lead");
    assert_eq!(refused.kind, BindFailure::NotLeader);
    assert!(refused.message.contains("another is"), "{refused}");
    assert!(setup.world.state().devices().is_empty());
}

#[tokio::test(start_paused = true)]
async fn one_that_becomes_the_leader_lets_a_bind_wait_for_that_but_not_for_long() {
    let mut setup = Setup::new(&[], LAG, LATENCY);
    let lever = led(&mut setup);
    let pods = [setup.add_pod("a"), setup.add_pod("b"), setup.add_pod("c")];
    sleep(Duration::from_secs(1)).await;
    lever.choose(1);
    let begun = Instant::now();
    let (bound, ()) = tokio::join!(setup.bind(&pods[0], "n1"), async {
        sleep(Duration::from_millis(700)).await;
        lever.elect(1);
    });
    bound.expect("bound");
    assert!(begun.elapsed() >= Duration::from_millis(700), "before it led");

    lever.choose(2);
    let refused = setup.bind(&pods[1], "n1").await.expect_err("it reads for too long");
    assert_eq!(refused.kind, BindFailure::NotLeader);
    assert!(refused.message.contains("becoming the leader"), "{refused}");

    lever.choose(3);
    let begun = Instant::now();
    let (refused, ()) = tokio::join!(setup.bind(&pods[2], "n1"), async { lever.depose() });
    assert_eq!(refused.expect_err("nothing to wait for").kind, BindFailure::NotLeader);
    assert!(begun.elapsed() < Duration::from_millis(100), "another leads");
}
