//! Giving back: what the pod alone holds and is not bound with, and never under a Binding.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::sleep;

use super::world::{Fault, Step, Trouble};
use super::*;
use crate::binding::GiveBack;

/// Longer than any request can take effect.
const LONG: Duration = Duration::from_secs(100);

fn setup(troubles: &[Trouble]) -> Setup {
    Setup::new(troubles, Duration::from_millis(5), Duration::from_millis(3))
}

/// A pod with claims made for it, allocated on n1 and reserved for it, which is not bound.
async fn pinned(setup: &Setup, name: &str) -> Pod {
    let pod = setup.add_pod(name);
    {
        let mut state = setup.world.state();
        for (claim, device) in keys(&pod).iter().zip(DEVICES) {
            let mut claim = state.claims[claim].clone();
            claim.owner_pod = Some(pod.uid.clone());
            claim.allocation = Some(Arc::new(allocation("n1", device)));
            claim.reserved_for = vec![consumer(&pod)];
            state.add_claim(claim);
        }
    }
    sleep(Duration::from_secs(1)).await;
    pod
}

fn keys(pod: &Pod) -> Vec<NamespacedName> {
    let names = pod.claims.iter().filter_map(PodClaim::claim_name);
    names.map(|name| NamespacedName::new("ns", name.clone())).collect()
}

impl Setup {
    /// None: it was under way already.
    async fn give_back(&self, pod: &Pod) -> Option<GiveBack> {
        let (tell, told) = oneshot::channel();
        self.binder.give_back(pod, |outcome| _ = tell.send(outcome));
        told.await.ok()
    }
}

#[tokio::test(start_paused = true)]
async fn what_only_the_unbound_pod_holds_is_free_again() {
    let setup = setup(&[]);
    let pod = pinned(&setup, "a").await;
    let other = pinned(&setup, "b").await;
    // Both sit on the same devices here, which is how the world came to be, not how it went on.
    setup.world.state().given_twice.clear();
    let (done, twice) = tokio::join!(setup.give_back(&pod), setup.give_back(&pod));
    assert_eq!((done, twice), (Some(GiveBack::Done), None));
    assert_eq!(setup.world.state().devices().len(), 2, "only the other pod's are left");
    assert_eq!(setup.wrong(std::slice::from_ref(&pod), false), [""; 0]);
    assert_eq!(setup.give_back(&pod).await, Some(GiveBack::Kept));
    assert_eq!(setup.give_back(&other).await, Some(GiveBack::Done));
    assert_eq!(
        setup.bind(&pod, "n2").await,
        Ok(BindOutcome::Bound),
        "it is free to go elsewhere"
    );
}

#[tokio::test(start_paused = true)]
async fn what_others_hold_stays() {
    let setup = setup(&[]);
    let change = |pod: &Pod, edit: &dyn Fn(&mut Claim)| {
        let mut state = setup.world.state();
        for key in keys(pod) {
            let mut claim = state.claims[&key].clone();
            edit(&mut claim);
            state.add_claim(claim);
        }
    };
    let stranger = consumer(&new_pod("stranger", &[]));
    let edits: [&dyn Fn(&mut Claim); 3] = [
        &|c| c.reserved_for = vec![stranger.clone()],
        &|c| c.deleting = true,
        &|c| c.allocation = None,
    ];
    for (i, edit) in edits.into_iter().enumerate() {
        let pod = pinned(&setup, &format!("p{i}")).await;
        change(&pod, edit);
        let before = setup.world.state().claims.clone();
        assert_eq!(setup.give_back(&pod).await, Some(GiveBack::Kept), "edit {i}");
        assert_eq!(setup.world.state().claims, before);
        sleep(Duration::from_millis(20)).await;
        assert!(
            !crate::binding::is_pinned(&setup.binder.shared.reader.load(), &pod),
            "edit {i}"
        );
    }
    // Whoever made the claim, and where it is reserved for nobody yet.
    let edits: [&dyn Fn(&mut Claim); 3] = [&|c| c.owner_pod = None, &|c| c.reserved_for.clear(), &|c| {
        c.owner_pod = Some("stranger".into())
    }];
    for (i, edit) in edits.into_iter().enumerate() {
        let pod = pinned(&setup, &format!("own{i}")).await;
        change(&pod, edit);
        assert_eq!(setup.give_back(&pod).await, Some(GiveBack::Done), "edit {i}");
        let state = setup.world.state();
        let left = keys(&pod).iter().any(|key| state.claims[key].allocation.is_some());
        assert!(!left, "edit {i}");
    }
    // Of what others use, too, the pod's own part goes.
    let pod = pinned(&setup, "joined").await;
    change(&pod, &|c| c.reserved_for.push(stranger.clone()));
    assert_eq!(setup.give_back(&pod).await, Some(GiveBack::Done));
    for key in keys(&pod) {
        let claim = setup.world.state().claims[&key].clone();
        assert_eq!(claim.reserved_for, std::slice::from_ref(&stranger));
        assert!(claim.allocation.is_some());
    }
    // Bound, being deleted, gone.
    for (name, edit) in [("bound", 0), ("deleting", 1), ("gone", 2)] {
        let pod = pinned(&setup, name).await;
        {
            let mut state = setup.world.state();
            let found = state.pods.get_mut(&pod.key).expect("there");
            match edit {
                0 => found.node_name = "n1".into(),
                1 => found.deleting = true,
                _ => drop(state.pods.remove(&pod.key)),
            }
        }
        let before = setup.world.state().claims.clone();
        assert_eq!(setup.give_back(&pod).await, Some(GiveBack::Kept), "{name}");
        assert_eq!(setup.world.state().claims, before);
    }
}

/// A Binding that nobody heard the end of takes effect later: until then nothing may be taken away under it.
#[tokio::test(start_paused = true)]
async fn a_binding_on_its_way_is_waited_for() {
    let always = |step, fault| Trouble {
        step,
        fault,
        times: u32::MAX,
    };
    let mut setup = setup(&[
        always(Step::Bind, Fault::UnknownLate),
        always(Step::ReadPod, Fault::UnknownBefore),
    ]);
    let shared = Arc::get_mut(&mut setup.binder.shared).expect("not shared yet");
    shared.limits.settle = Duration::from_secs(1);
    let pod = pinned(&setup, "a").await;
    sleep(LONG).await;
    let unknown = setup.bind(&pod, "n1").await;
    assert!(unknown.is_err());
    setup.world.heal();
    assert_eq!(setup.give_back(&pod).await, Some(GiveBack::Kept));
    sleep(LONG).await;
    assert_eq!(setup.node_of(&pod).as_deref(), Some("n1"));
    assert_eq!(setup.wrong(&[pod], false), [""; 0]);
}

/// Whoever was before us may have sent one too.
#[tokio::test(start_paused = true)]
async fn a_binding_of_an_earlier_process_is_waited_for() {
    let setup = setup(&[]);
    let pod = pinned(&setup, "a").await;
    let world = setup.world.clone();
    let late = pod.clone();
    tokio::spawn(async move {
        sleep(Duration::from_secs(59)).await;
        let _ = crate::cluster::Cluster::bind(&world, &late.key, &late.uid, "n1").await;
    });
    assert_eq!(setup.give_back(&pod).await, Some(GiveBack::Kept));
    assert_eq!(setup.wrong(&[pod], false), [""; 0]);
}

/// A bind beside it, begun before, in the middle or after, and any one call that fails in any way: a bound pod has its
/// devices, and no device is given twice.
#[tokio::test(start_paused = true)]
async fn never_under_a_bind() {
    use Fault::{ConflictAfter, ConflictBefore, Refused, UnknownAfter, UnknownBefore, UnknownLate};
    let steps = [
        Step::Reserve,
        Step::Unreserve,
        Step::ReadClaim,
        Step::ReadPod,
        Step::Bind,
    ];
    let faults = [
        Refused,
        ConflictBefore,
        ConflictAfter,
        UnknownBefore,
        UnknownAfter,
        UnknownLate,
    ];
    for (step, fault) in steps.into_iter().flat_map(|s| faults.map(|f| (s, f))) {
        for offset in (0..24).step_by(4) {
            let setup = setup(&[]);
            let pod = pinned(&setup, "a").await;
            sleep(LONG).await;
            setup.world.fail(Trouble { step, fault, times: 1 });
            let early = Duration::from_millis(offset);
            let ((), _) = tokio::join!(
                async {
                    sleep(early).await;
                    let _ = setup.bind(&pod, "n1").await;
                },
                async {
                    sleep(Duration::from_millis(12)).await;
                    setup.give_back(&pod).await
                },
            );
            sleep(Duration::from_secs(800)).await;
            let wrong = setup.wrong(std::slice::from_ref(&pod), true);
            assert_eq!(wrong, [""; 0], "{step:?} {fault:?} {offset} ms");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn so_many_at_one_time() {
    let setup = setup(&[]);
    let pods: Vec<Pod> = (0..65).map(|i| new_pod(&format!("p{i}"), &[])).collect();
    let all = pods.iter().map(|pod| setup.give_back(pod));
    let outcomes = futures::future::join_all(all).await;
    let shed = outcomes.iter().filter(|o| **o == Some(GiveBack::Shed)).count();
    assert_eq!(shed, 1);
    assert_eq!(
        setup.give_back(&pods[64]).await,
        Some(GiveBack::Kept),
        "there is room again"
    );
}
