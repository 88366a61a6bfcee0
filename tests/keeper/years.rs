//! Years of two replicas that look now and then, with outages, lost answers and starts from nothing.

use proptest::prelude::*;
use wattlane::certs::keyring::Keyring;
use wattlane::certs::{DAY, Facts, trust};
use wattlane::keeper::data;

use crate::world::{AUTHORITY, LEAF, OVERLAP, World, names};

/// Nobody may be away for longer: a certificate is renewed at three quarters of its life at the latest.
const AWAY: i64 = LEAF / 5;

#[derive(Clone, Debug)]
enum Event {
    Look(usize),
    /// Both at the same time.
    Race,
    Outage(i64),
    LostAnswer(usize),
    /// kube-scheduler reads its files.
    Scheduler,
}

fn events() -> impl Strategy<Value = Vec<(i64, Event)>> {
    let event = prop_oneof![
        4 => (0..2_usize).prop_map(Event::Look),
        2 => Just(Event::Race),
        1 => (0..AWAY / 2).prop_map(Event::Outage),
        1 => (0..2_usize).prop_map(Event::LostAnswer),
        1 => Just(Event::Scheduler),
    ];
    // About three years, in which the third CA comes and the first goes.
    prop::collection::vec((0..AWAY / 2, event), 240..250)
}

/// What kube-scheduler holds since it read its files.
struct Scheduler {
    since: i64,
    ca: Vec<rustls::pki_types::CertificateDer<'static>>,
    pair: String,
}

fn scheduler(world: &World) -> Scheduler {
    Scheduler {
        since: world.now(),
        ca: trust::authorities(world.store.text("client", "ca.crt").as_bytes()),
        pair: world.store.text("client", "tls.crt"),
    }
}

async fn look(world: &mut World, at: usize) {
    world.replicas[at].look().await;
}

/// At every instant: whoever reads the bundle now, or read it within the overlap, accepts what each replica serves; and
/// each replica takes every client certificate that has not expired.
fn check(world: &World, schedulers: &[Scheduler]) -> Result<(), TestCaseError> {
    let well = world.apiserver_is_well();
    prop_assert!(well.is_ok(), "{:?} at day {}", well, world.now() / DAY);
    let newest = world.store.text("client", "tls.crt");
    prop_assert_eq!(world.may_call(&newest), Ok(()));
    for s in schedulers {
        if world.now() - s.since < OVERLAP - 2 * AWAY {
            for used in world.in_use() {
                let known = trust::serves(&s.ca, used.cert.as_bytes(), &names(), world.now());
                prop_assert!(
                    known.is_ok(),
                    "{:?} after {} days",
                    known,
                    (world.now() - s.since) / DAY
                );
            }
        }
        if Facts::of_pem(s.pair.as_bytes()).expect("reads").not_after > world.now() {
            prop_assert_eq!(world.may_call(&s.pair), Ok(()));
        }
    }
    // The signer is somebody everybody knows.
    let secret = world.store.state().secrets["certs"].clone();
    let ring = Keyring::read(&data(&secret), world.now()).0;
    prop_assert!(ring.trusted().len() <= 3, "{:?}", ring);
    Ok(())
}

async fn live(world: &mut World, events: Vec<(i64, Event)>) -> Result<(), TestCaseError> {
    world.settle().await;
    let mut schedulers = vec![scheduler(world)];
    let mut seen = [world.now(); 2];
    for (pause, event) in events {
        world.pass(pause);
        check(world, &schedulers)?;
        for (at, seen) in seen.iter_mut().enumerate() {
            if world.now() - *seen > AWAY / 2 {
                look(world, at).await;
                *seen = world.now();
                check(world, &schedulers)?;
            }
        }
        match event {
            Event::Look(at) => {
                look(world, at).await;
                seen[at] = world.now();
            }
            Event::Race => {
                let [a, b] = &mut world.replicas;
                futures::future::join(a.look(), b.look()).await;
                seen = [world.now(); 2];
            }
            Event::Outage(length) => {
                world.store.state().down = true;
                look(world, 0).await;
                world.pass(length);
                look(world, 1).await;
                check(world, &schedulers)?;
                world.store.state().down = false;
            }
            Event::LostAnswer(at) => {
                world.store.state().deaf = true;
                look(world, at).await;
                world.store.state().deaf = false;
            }
            Event::Scheduler => {
                schedulers.push(scheduler(world));
                if schedulers.len() > 3 {
                    schedulers.remove(0);
                }
            }
        }
        check(world, &schedulers)?;
    }
    // It has not stood still.
    prop_assert!(world.count("switch", "done") >= 2.0, "{} days", world.now() / DAY);
    prop_assert_eq!(world.count("begin", "done"), 1.0);
    prop_assert_eq!(world.count("sign", "healed"), 0.0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3, max_shrink_iters: 20, ..ProptestConfig::default() })]

    #[test]
    fn nobody_who_trusts_the_bundle_is_ever_shown_a_stranger(events in events()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(live(&mut World::new(), events))?;
    }
}

const STEP: i64 = 4 * DAY;

/// Without events, look by look: a CA is announced, then signs, then leaves, and each at its time.
#[tokio::test]
async fn the_life_of_a_ca() {
    let mut world = World::new();
    world.settle().await;
    let start = world.now();
    let first = world.store.bundle(0);
    let trusted = |world: &World| world.store.bundle(0).len();
    let mut seen = vec![];
    let mut last = 1;
    while world.now() < start + AUTHORITY + STEP {
        world.pass(STEP);
        world.look().await;
        let used = world.replicas[0].in_use().expect("serves").cert.clone();
        let old = trust::serves(&first, used.as_bytes(), &names(), world.now()).is_ok();
        if trusted(&world) != last || old == seen.iter().any(|(what, _)| *what == "switched") {
            let what = if trusted(&world) > last {
                "announced"
            } else if trusted(&world) < last {
                "left"
            } else {
                "switched"
            };
            seen.push((what, (world.now() - start) / DAY));
            last = trusted(&world);
        }
    }
    let what: Vec<_> = seen.iter().map(|(what, _)| *what).collect();
    // The second announcement is that of the third.
    assert_eq!(what, ["announced", "switched", "announced", "left"], "{seen:?}");
    let [announced, switched, left] = [0, 1, 3].map(|i| seen[i].1 * DAY);
    assert!((announced - (AUTHORITY - 2 * OVERLAP)).abs() <= STEP, "{seen:?}");
    assert!(switched >= announced + OVERLAP, "{seen:?}");
    assert!((left - AUTHORITY).abs() <= STEP, "{seen:?}");
}
