use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{Poke, Running, spawn};
use crate::index::{Change, Index, Key, Kind, Object};
use crate::model::{Device, NamespacedName, Node, Pod, Unclassified};

fn node(name: &str) -> Change {
    Change::Upsert(Object::Node(Node {
        name: name.into(),
        uid: name.into(),
        labels: Arc::default(),
        annotations: Arc::default(),
        extended_resources: vec![],
        allocatable: None,
        unschedulable: false,
        taints: vec![],
    }))
}

fn pod(name: &str) -> Arc<Pod> {
    Arc::new(Pod {
        key: NamespacedName::new("ns", name),
        uid: format!("uid-{name}").into(),
        created: 0,
        labels: Arc::default(),
        annotations: Arc::default(),
        scheduler_name: "wattlane".into(),
        node_name: "".into(),
        finished: false,
        deleting: false,
        claims: vec![],
        extended_resources: vec![],
        room: Default::default(),
        extended_resource_claim: None,
        claimed_resources: vec![],
        fixed: false,
        gated: false,
    })
}

/// An index task whose refused pods fit once the switch is on.
fn started() -> (Running, Arc<AtomicBool>) {
    let fit = Arc::new(AtomicBool::new(false));
    let answer = fit.clone();
    (
        spawn(
            Index::new(Arc::new(Unclassified)),
            Arc::new(move |_, _| answer.load(Ordering::Relaxed)),
        ),
        fit,
    )
}

#[tokio::test]
async fn what_was_sent_before_a_flush_is_published_after_it() {
    let (running, _) = started();
    running.index.change(node("a")).await.expect("the task runs");
    running.index.flush().await.expect("the task runs");
    assert!(running.reader.load().node_named("a").is_some());
    running
        .index
        .change(Change::Remove(Kind::Node, Key::new("", "a")))
        .await
        .expect("the task runs");
    let gone = running
        .reader
        .wait_until(Duration::from_secs(10), |s| s.node_named("a").is_none())
        .await;
    assert!(gone.is_some());
}

#[tokio::test(start_paused = true)]
async fn waiting_for_what_does_not_come_ends() {
    let (running, _) = started();
    let seen = running
        .reader
        .wait_until(Duration::from_millis(500), |s| s.node_named("a").is_some())
        .await;
    assert!(seen.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_refused_pod_is_poked_when_it_could_fit_and_not_before() {
    let (mut running, fit) = started();
    running.index.refused(pod("p"), 0);
    running.index.change(node("a")).await.expect("the task runs");
    let early = tokio::time::timeout(Duration::from_secs(5), running.pokes.recv()).await;
    assert!(early.is_err(), "it does not fit yet");

    fit.store(true, Ordering::Relaxed);
    running.index.change(slice("s")).await.expect("the task runs");
    let poke = tokio::time::timeout(Duration::from_secs(5), running.pokes.recv())
        .await
        .expect("a poke in time");
    assert_eq!(
        poke,
        Some(Poke {
            pod: NamespacedName::new("ns", "p"),
            uid: "uid-p".into()
        })
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_refused_in_an_older_snapshot_is_looked_at_at_once() {
    let (mut running, fit) = started();
    fit.store(true, Ordering::Relaxed);
    running.index.change(slice("s")).await.expect("the task runs");
    running.index.flush().await.expect("the task runs");
    // Refused in the snapshot before the slice came.
    running.index.refused(pod("p"), 0);
    let poke = tokio::time::timeout(Duration::from_secs(5), running.pokes.recv()).await;
    assert!(poke.is_ok_and(|p| p.is_some()));
    // Poked, refused again in the newest snapshot: nothing has changed, so it is left in peace.
    running.index.refused(pod("p"), running.reader.load().version);
    let again = tokio::time::timeout(Duration::from_secs(30), running.pokes.recv()).await;
    assert!(again.is_err());
}

/// More pods than one round pokes or looks at: all have their turn, none twice.
#[tokio::test(start_paused = true)]
async fn many_refused_pods_are_poked_in_rounds() {
    let (mut running, fit) = started();
    const MANY: usize = 600;
    for i in 0..MANY {
        running.index.refused(pod(&format!("p{i}")), 0);
    }
    fit.store(true, Ordering::Relaxed);
    running.index.change(slice("s")).await.expect("the task runs");
    let mut poked = std::collections::BTreeSet::new();
    while let Ok(Some(poke)) = tokio::time::timeout(Duration::from_secs(5), running.pokes.recv()).await {
        assert!(poked.insert(poke.uid), "poked twice for one change");
    }
    assert_eq!(poked.len(), MANY);
}

/// A change of policy that gives every device the class it had.
#[tokio::test(start_paused = true)]
async fn a_new_policy_is_a_reason_to_look_again() {
    let (mut running, fit) = started();
    running.index.change(slice("s")).await.expect("the task runs");
    running.index.flush().await.expect("the task runs");
    running.index.refused(pod("p"), running.reader.load().version);
    let quiet = tokio::time::timeout(Duration::from_secs(5), running.pokes.recv()).await;
    assert!(quiet.is_err());
    fit.store(true, Ordering::Relaxed);
    let before = running.reader.load().version;
    running
        .index
        .set_classifier(Arc::new(Unclassified))
        .await
        .expect("the task runs");
    let poke = tokio::time::timeout(Duration::from_secs(5), running.pokes.recv()).await;
    assert!(poke.is_ok_and(|p| p.is_some()));
    assert_eq!(running.reader.load().version, before, "no device changed");
}

/// Wherever a bind is dropped while it waits for its reservation, the devices are free in the end.
#[tokio::test]
async fn a_reservation_that_nobody_waits_for_is_released() {
    use std::future::Future as _;

    for polls_by_task in [false, true] {
        let (running, _) = started();
        let claim = crate::model::Claim {
            key: NamespacedName::new("ns", "c"),
            uid: "u".into(),
            resource_version: "1".into(),
            ..crate::model::Claim::default()
        };
        let claim = Change::Upsert(Object::Claim(claim));
        running.index.change(claim).await.expect("the task runs");
        let reservation = crate::index::Reservation {
            pod: NamespacedName::new("ns", "p"),
            pod_uid: "p".into(),
            node: "n".into(),
            claims: vec![crate::index::ReservedClaim {
                claim: NamespacedName::new("ns", "c"),
                uid: "u".into(),
                results: vec![],
            }],
            slots: vec![],
        };
        let index = running.index.clone();
        let mut waiting = Box::pin(async move { index.reserve(reservation).await });
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        if polls_by_task {
            // The answer is on its way, and not read.
            running.index.flush().await.expect("the task runs");
            assert_eq!(running.stats.reservations(), 1);
        }
        drop(waiting);
        // Twice: what is dropped sends its release from a task of its own.
        for _ in 0..2 {
            tokio::task::yield_now().await;
            running.index.flush().await.expect("the task runs");
        }
        assert_eq!(running.stats.reservations(), 0);
    }
}

/// A card on node n, and an index task that knows it and a claim for each pod.
async fn one_card(pods: &[&str]) -> Running {
    let (running, fit) = started();
    fit.store(true, Ordering::Relaxed);
    let Change::Upsert(Object::Slice(mut pool)) = slice("n") else {
        panic!("a slice")
    };
    pool.devices.push(Arc::new(Device {
        name: "card".into(),
        ..Device::default()
    }));
    let claims = pods.iter().map(|pod| {
        Object::Claim(crate::model::Claim {
            key: NamespacedName::new("ns", *pod),
            uid: "u".into(),
            resource_version: "1".into(),
            ..crate::model::Claim::default()
        })
    });
    let claims: Vec<Object> = claims.collect();
    for object in [Object::Slice(pool)].into_iter().chain(claims) {
        running
            .index
            .change(Change::Upsert(object))
            .await
            .expect("the task runs");
    }
    running.index.flush().await.expect("the task runs");
    running
}

/// The card, for a pod and its claim of that name.
fn card_for(pod: &str) -> crate::index::Reservation {
    let device = crate::model::DeviceResult {
        request: "r".into(),
        id: crate::model::DeviceId {
            driver: "d".into(),
            pool: "n".into(),
            device: "card".into(),
        },
        ..crate::model::DeviceResult::default()
    };
    crate::index::Reservation {
        pod: NamespacedName::new("ns", pod),
        pod_uid: format!("uid-{pod}").into(),
        node: "n".into(),
        claims: vec![crate::index::ReservedClaim {
            claim: NamespacedName::new("ns", pod),
            uid: "u".into(),
            results: vec![device],
        }],
        slots: vec![],
    }
}

fn taken(running: &Running) -> usize {
    let snapshot = running.reader.load();
    snapshot.pools.iter().flatten().map(|p| p.taken.len()).sum()
}

fn ended(running: &Running) -> Vec<(&'static str, u64)> {
    let ended = running.stats.ended_holds().filter(|(_, n)| *n > 0);
    ended.map(|(how, n)| (how.as_str(), n)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_hold_shows_when_it_is_answered_and_ends_by_itself() {
    let mut running = one_card(&["a", "b"]).await;
    running.index.hold(card_for("a")).await.expect("free");
    assert_eq!((taken(&running), running.stats.holds()), (1, 1));
    assert!(running.index.hold(card_for("b")).await.is_err(), "held");
    // Refused because of the hold: poked when it ends, and not before.
    running.index.refused(pod("b"), running.reader.load().version);
    tokio::time::sleep(Duration::from_secs(14)).await;
    assert_eq!((taken(&running), running.pokes.is_empty()), (1, true));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(
        (taken(&running), running.stats.holds()),
        (0, 0),
        "nothing else woke the task"
    );
    assert_eq!(ended(&running), [("expired", 1)]);
    assert_eq!(running.pokes.try_recv().map(|p| p.uid), Ok("uid-b".into()));
}

#[tokio::test(start_paused = true)]
async fn a_hold_taken_again_lives_on_and_one_that_was_bound_frees_nothing() {
    let mut running = one_card(&["a", "b"]).await;
    running.index.hold(card_for("a")).await.expect("free");
    tokio::time::sleep(Duration::from_secs(10)).await;
    running.index.hold(card_for("a")).await.expect("its own");
    running.index.refused(pod("b"), running.reader.load().version);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!((taken(&running), running.stats.holds()), (1, 1));
    running.index.reserve(card_for("a")).await.expect("its own");
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!((taken(&running), running.stats.holds()), (1, 0));
    assert_eq!(ended(&running), [("bound", 1), ("replaced", 1)]);
    assert!(running.pokes.try_recv().is_err(), "nothing came free");
}

/// A pod that is tried every 9 s and never bound keeps the card from another for a while, not for ever; later it may be
/// held for again.
#[tokio::test(start_paused = true)]
async fn a_pod_that_is_never_bound_does_not_hold_for_ever() {
    let mut running = one_card(&["a", "b"]).await;
    let start = tokio::time::Instant::now();
    let mut refusal = None;
    for _ in 0..20 {
        if let Err(conflict) = running.index.hold(card_for("a")).await {
            refusal = Some(conflict.to_string());
            break;
        }
        assert!(running.index.hold(card_for("b")).await.is_err(), "held");
        running.index.refused(pod("b"), running.reader.load().version);
        tokio::time::sleep(Duration::from_secs(9)).await;
    }
    let refusal = refusal.expect("not for ever");
    assert!(refusal.contains("ns/a") && refusal.contains("not bound"), "{refusal}");
    assert_eq!((taken(&running), running.stats.holds()), (0, 0), "no hold stays");
    assert!(start.elapsed() <= Duration::from_secs(60), "{:?}", start.elapsed());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(running.pokes.try_recv().map(|p| p.uid), Ok("uid-b".into()));
    running.index.hold(card_for("b")).await.expect("free");
    running.index.reserve(card_for("b")).await.expect("its own");
    let wanted = || {
        let mut nothing = card_for("a");
        nothing.claims[0].results.clear();
        nothing
    };
    // That it goes on asking makes it no longer.
    while start.elapsed() < Duration::from_secs(320) {
        assert!(running.index.hold(wanted()).await.is_err(), "{:?}", start.elapsed());
        tokio::time::sleep(Duration::from_secs(9)).await;
    }
    tokio::time::sleep_until(start + Duration::from_secs(60 + 300)).await;
    running.index.hold(wanted()).await.expect("it has waited");
}

/// Seldom is no way around it: what counts is how long it is held for.
#[tokio::test(start_paused = true)]
async fn holds_that_ended_count_and_a_bind_begins_anew() {
    let running = one_card(&["a"]).await;
    for round in 0..3 {
        for _ in 0..3 {
            running.index.hold(card_for("a")).await.expect("not long yet");
            tokio::time::sleep(Duration::from_secs(40)).await;
        }
        assert!(running.index.hold(card_for("a")).await.is_err(), "round {round}");
        let bound = running
            .index
            .reserve(card_for("a"))
            .await
            .expect("holds do not decide it");
        running.index.release(bound).await;
    }
}

/// Wherever the caller stops waiting, nothing stays held.
#[tokio::test(start_paused = true)]
async fn a_hold_that_nobody_waits_for_is_dropped() {
    use std::future::Future as _;

    for polls_by_task in [false, true] {
        let running = one_card(&["a"]).await;
        let index = running.index.clone();
        let mut waiting = Box::pin(async move { index.hold(card_for("a")).await });
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        if polls_by_task {
            running.index.flush().await.expect("the task runs");
            assert_eq!(running.stats.holds(), 1);
        }
        drop(waiting);
        for _ in 0..2 {
            tokio::task::yield_now().await;
            running.index.flush().await.expect("the task runs");
        }
        assert_eq!((taken(&running), running.stats.holds()), (0, 0));
    }
}

/// Many in a moment: each has its time, and what is remembered of their ends is bounded by time, not by number.
#[tokio::test(start_paused = true)]
async fn holds_end_in_the_order_they_were_taken() {
    let names: Vec<String> = (0..300).map(|i| format!("p{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let running = one_card(&names).await;
    let start = tokio::time::Instant::now();
    for name in &names {
        let mut wanted = card_for(name);
        wanted.claims[0].results.clear();
        running.index.hold(wanted).await.expect("nothing of it is taken");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(running.stats.holds(), 300);
    tokio::time::sleep_until(start + Duration::from_secs(16)).await;
    let left = running.stats.holds();
    assert!((180..=210).contains(&left), "{left} of those taken in the last 2 s");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(running.stats.holds(), 0);
}

fn slice(name: &str) -> Change {
    Change::Upsert(Object::Slice(crate::model::Slice {
        name: name.into(),
        driver: "d".into(),
        pool: name.into(),
        generation: 1,
        slice_count: 1,
        nodes: crate::model::NodeScope::All,
        devices: vec![],
        counter_sets: vec![],
        unsupported: None,
    }))
}
