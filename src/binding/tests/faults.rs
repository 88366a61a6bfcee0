//! Every step failing in every way, alone and in pairs, while a second pod waits for the same two devices.

use std::time::Duration;

use tokio::time::sleep;

use super::world::{Fault, Step, Trouble};
use super::*;
use crate::binding::BindFailure;

const STEPS: [Step; 5] = [
    Step::Allocate,
    Step::Unreserve,
    Step::ReadClaim,
    Step::ReadPod,
    Step::Bind,
];
const FAULTS: [Fault; 7] = [
    Fault::Refused,
    Fault::ConflictBefore,
    Fault::ConflictAfter,
    Fault::Gone,
    Fault::UnknownBefore,
    Fault::UnknownAfter,
    Fault::UnknownLate,
];

/// How late the watch is, in milliseconds: at once, usual, behind the scheduler's next try, behind several.
const LAGS: [u64; 4] = [0, 40, 1500, 20_000];

/// As kube-scheduler would: again and again until the pod is bound, is gone, or cannot fit any more.
async fn schedule(setup: &Setup, pod: &Pod, rival: &Pod) -> Vec<String> {
    let mut wrong = vec![];
    for attempt in 0..80 {
        let result = setup.bind(pod, "n1").await;
        let bound = setup.node_of(pod);
        match (&result, bound.as_deref()) {
            (Ok(_), Some("n1")) | (_, None) => return wrong,
            (Ok(outcome), node) => wrong.push(format!("{outcome:?}, but the pod is on {node:?}")),
            (Err(e), Some("n1"))
                if !matches!(
                    e.kind,
                    BindFailure::Unknown | BindFailure::Unfinished | BindFailure::Busy
                ) =>
            {
                wrong.push(format!("bound, but the answer was {e:?}"));
            }
            _ => {}
        }
        if setup.node_of(rival).is_some_and(|n| !n.is_empty()) {
            return wrong;
        }
        // Sooner than the watch at first, then as the scheduler's backoff.
        sleep(Duration::from_millis(if attempt < 20 { 300 } else { 2000 })).await;
    }
    wrong
}

async fn trial(troubles: &[Trouble], lag: Duration) -> Vec<String> {
    let setup = Setup::new(troubles, lag, Duration::from_millis(3));
    let pods = [setup.add_pod("a"), setup.add_pod("b")];
    sleep(lag + Duration::from_secs(1)).await;
    let (mut wrong, rival) = tokio::join!(schedule(&setup, &pods[0], &pods[1]), async {
        // Just behind, so that it meets the other's reservation and later its half-done work.
        sleep(Duration::from_millis(1)).await;
        schedule(&setup, &pods[1], &pods[0]).await
    });
    wrong.extend(rival);
    setup.binder.drained().await;
    // What is still on its way arrives, and the watch shows it.
    sleep(Duration::from_secs(120)).await;
    let stuck = troubles
        .iter()
        .any(|t| t.step == Step::Unreserve && t.fault == Fault::Refused);
    wrong.extend(setup.wrong(&pods, stuck));
    let bound = pods
        .iter()
        .filter(|p| setup.node_of(p).is_some_and(|n| !n.is_empty()))
        .count();
    let gone = |t: &Trouble| t.fault == Fault::Gone;
    if bound != 1 && !stuck && !troubles.iter().any(gone) {
        wrong.push(format!("{bound} of two pods bound"));
    }
    wrong
}

async fn all(trials: Vec<Vec<Trouble>>, lags: &[u64]) {
    let mut wrong = vec![];
    for troubles in &trials {
        for lag in lags.iter().copied().map(Duration::from_millis) {
            let found = trial(troubles, lag).await;
            if !found.is_empty() {
                wrong.push(format!("{troubles:?}, watch {lag:?} late: {}", found.join("; ")));
            }
        }
    }
    let of = trials.len() * lags.len();
    assert!(wrong.is_empty(), "{} of {of}:\n{}", wrong.len(), wrong.join("\n"));
}

fn every(times: &[u32]) -> Vec<Trouble> {
    let mut out = vec![];
    for step in STEPS {
        for fault in FAULTS {
            out.extend(times.iter().map(|times| Trouble {
                step,
                fault,
                times: *times,
            }));
        }
    }
    out
}

#[tokio::test(start_paused = true)]
async fn without_trouble_one_pod_is_bound_and_the_other_holds_nothing() {
    all(vec![vec![]], &LAGS).await;
}

#[tokio::test(start_paused = true)]
async fn each_step_failing_in_each_way_once_or_often_leaves_nothing_behind() {
    let trials = every(&[1, 2, 3, 12]).into_iter().map(|t| vec![t]).collect();
    all(trials, &LAGS).await;
}

#[tokio::test(start_paused = true)]
async fn every_pair_of_failures_leaves_nothing_behind() {
    let mut trials = vec![];
    let one = every(&[1, 3]);
    for (i, first) in one.iter().enumerate() {
        for second in &one[i + 1..] {
            if first.step != second.step {
                trials.push(vec![*first, *second]);
            }
        }
        // One step failing in two ways, one after the other.
        for second in one.iter().filter(|t| t.step == first.step && t.fault != first.fault) {
            trials.push(vec![*first, *second]);
        }
    }
    all(trials, &[40, 1500]).await;
}
