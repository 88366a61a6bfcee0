//! The token in the path of admission, in virtual time: what an API server may ask by is never refused, whoever changes the
//! configuration or the Secret and when; and once that has been at rest, nothing else is taken.

use proptest::prelude::*;
use serde_json::json;

use crate::world::World;

/// Seconds between two looks, and for which an API server may go by what stood in the configuration.
const LOOK: i64 = 10;
const GRACE: i64 = 60;

const TOKEN: usize = 32;

fn endings(world: &World) -> [String; 2] {
    [0, 1].map(|at| {
        let url = world.store.url(at);
        let path = url.strip_prefix("https://x").expect("the host stays");
        path.strip_prefix("/admission/mutate")
            .unwrap_or(path)
            .trim_matches('/')
            .to_owned()
    })
}

fn good(world: &World, ending: &str) -> [bool; 2] {
    [0, 1].map(|at| world.paths(at).good(ending))
}

async fn rest(world: &mut World, seconds: i64) {
    for _ in 0..seconds / LOOK {
        world.pass(LOOK);
        world.look().await;
    }
}

/// At rest: both webhooks are asked at the token of the Secret, and nothing else is taken.
fn closed(world: &World, others: &[&str]) {
    let token = world.store.text("certs", "admission-path");
    assert_eq!(token.len(), TOKEN);
    assert_eq!(endings(world), [token.clone(), token.clone()]);
    assert_eq!(good(world, &token), [true; 2]);
    let near = [
        &token[1..],
        &format!("{token}/"),
        &token.to_lowercase(),
        &format!("{token}a"),
    ]
    .map(str::to_owned);
    for other in near
        .iter()
        .map(String::as_str)
        .chain(["", "x"])
        .chain(others.iter().copied())
    {
        assert_eq!(good(world, other), [false; 2], "{:?}", other.len());
    }
    assert_eq!(world.metric("wattlane_admission_closed"), 1.0);
}

#[tokio::test]
async fn from_an_empty_secret_to_a_closed_door() {
    let mut world = World::new();
    let [a, b] = &mut world.replicas;
    let (one, other) = futures::future::join(a.look(), b.look()).await;
    assert_eq!((one, other), (vec![], vec![]));
    // API servers may still ask by the path that was there, and others have not looked yet.
    while good(&world, "") == [true; 2] {
        assert_eq!(world.metric("wattlane_admission_closed"), 0.0);
        rest(&mut world, LOOK).await;
    }
    rest(&mut world, LOOK).await;
    closed(&world, &[]);
    // Made, and put in.
    assert_eq!((world.count("path", "done"), world.count("path", "healed")), (2.0, 0.0));
}

#[tokio::test]
async fn who_deletes_the_token_gets_another_and_the_old_one_is_good_for_its_time() {
    let mut world = World::new();
    rest(&mut world, 2 * GRACE).await;
    let old = endings(&world)[0].clone();
    world.store.meddle("certs", "admission-path", None);
    world.look().await;
    let new = endings(&world)[0].clone();
    assert_ne!(old, new);
    for _ in 0..GRACE / LOOK {
        assert_eq!(
            (good(&world, &old), good(&world, &new), good(&world, "")),
            ([true; 2], [true; 2], [false; 2])
        );
        rest(&mut world, LOOK).await;
    }
    rest(&mut world, LOOK).await;
    closed(&world, &[&old]);
}

#[tokio::test]
async fn a_path_that_was_reset_is_good_until_it_has_been_put_right_everywhere() {
    let mut world = World::new();
    rest(&mut world, 2 * GRACE).await;
    for path in ["", "/", "/admission/mutate"] {
        world.store.reset_path(1, path);
        world.replicas[0].look().await;
        assert!(world.paths(0).good("") && !world.paths(0).good("x"), "{path}");
        rest(&mut world, GRACE).await;
        rest(&mut world, LOOK).await;
        closed(&world, &[]);
    }
    assert_eq!(world.count("path", "healed"), 3.0);
}

#[tokio::test]
async fn it_is_as_open_as_before_where_the_configuration_is_not_ours_to_keep() {
    let mut world = World::new();
    rest(&mut world, 2 * GRACE).await;
    closed(&world, &[]);
    // A proxy that knows one path.
    world.store.reset_path(0, "/wattlane/admission/mutate");
    rest(&mut world, LOOK).await;
    assert_eq!((good(&world, ""), good(&world, "x")), ([true; 2], [true; 2]));
    assert!(world.store.url(0).ends_with("x/wattlane/admission/mutate"));
    world.store.reset_path(0, "/admission/mutate");
    rest(&mut world, 2 * GRACE).await;
    closed(&world, &[]);
    // It is there no more: who makes another may do it under any name.
    let hooks = world.store.state().webhooks.take();
    rest(&mut world, LOOK).await;
    assert_eq!(
        (good(&world, ""), world.metric("wattlane_admission_closed")),
        ([true; 2], 0.0)
    );
    world.store.state().webhooks = hooks;
    rest(&mut world, 2 * GRACE).await;
    closed(&world, &[]);
    // cert-manager keeps it from now on.
    let annotations = json!({"cert-manager.io/inject-ca-from": "a/b"});
    world.store.state().webhooks.as_mut().expect("registered")["metadata"]["annotations"] = annotations;
    world.store.reset_path(0, "/admission/mutate");
    for _ in 0..2 * GRACE / LOOK {
        world.pass(LOOK);
        for replica in &mut world.replicas {
            assert!(replica.look().await.iter().all(|f| f.contains("cert-manager")));
        }
        assert_eq!(good(&world, ""), [true; 2]);
    }
}

#[tokio::test]
async fn a_secret_that_is_gone_opens_nothing() {
    let mut world = World::new();
    rest(&mut world, 2 * GRACE).await;
    let token = endings(&world)[0].clone();
    world.store.state().secrets.remove("certs");
    for _ in 0..2 * GRACE / LOOK {
        world.pass(LOOK);
        for replica in &mut world.replicas {
            let faults = replica.look().await;
            assert!(faults.iter().any(|f| f.contains("apply the manifests")), "{faults:?}");
        }
        assert_eq!((good(&world, &token), good(&world, "")), ([true; 2], [false; 2]));
    }
}

#[tokio::test]
async fn a_token_is_in_no_fault() {
    let mut world = World::new();
    rest(&mut world, 2 * GRACE).await;
    world.store.reset_path(0, "/");
    // The API server quotes the patch it refuses.
    world.store.state().quoting = true;
    world.pass(LOOK);
    let faults = world.replicas[0].look().await;
    let token = world.store.text("certs", "admission-path");
    assert!(faults.iter().any(|f| f.contains("/admission/mutate/…")), "{faults:?}");
    assert!(faults.iter().all(|f| !f.contains(&token)), "{faults:?}");
}

#[derive(Clone, Debug)]
enum Event {
    None,
    Reset(usize, &'static str),
    DeleteToken,
    EmptySecret,
    LostAnswer(usize),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let path = prop_oneof![
        Just(""),
        Just("/"),
        Just("/admission/mutate"),
        Just("/admission/mutate/somebodys")
    ];
    let event = prop_oneof![
        8 => Just(Event::None),
        2 => (0..2_usize, path).prop_map(|(at, path)| Event::Reset(at, path)),
        2 => Just(Event::DeleteToken),
        1 => Just(Event::EmptySecret),
        1 => (0..2_usize).prop_map(Event::LostAnswer),
    ];
    prop::collection::vec(event, 10..40)
}

async fn live(world: &mut World, events: Vec<Event>) -> Result<(), TestCaseError> {
    world.settle().await;
    // What stood there when, at the end of each round.
    let mut stood: Vec<(i64, String)> = vec![];
    for event in events {
        world.pass(LOOK);
        match event {
            Event::None => {}
            Event::Reset(at, path) => world.store.reset_path(at, path),
            Event::DeleteToken => world.store.meddle("certs", "admission-path", None),
            Event::EmptySecret => {
                let version = world.store.state().stamp();
                let mut state = world.store.state();
                let secret = state.secrets.get_mut("certs").expect("there");
                secret["metadata"]["resourceVersion"] = version;
                secret["data"] = json!({});
            }
            Event::LostAnswer(at) => {
                world.store.state().deaf = true;
                world.replicas[at].look().await;
                world.store.state().deaf = false;
            }
        }
        for at in 0..2 {
            let standing = endings(world);
            world.replicas[at].look().await;
            // The server has a request at an unknown path wait for a look, so what counts is what it takes then.
            for ending in standing.iter().chain(&endings(world)) {
                prop_assert!(world.paths(at).good(ending), "{} characters", ending.len());
            }
        }
        let now = world.now();
        stood.retain(|(at, _)| now - at < GRACE);
        for (_, ending) in &stood {
            prop_assert_eq!(good(world, ending), [true; 2]);
        }
        stood.extend(endings(world).map(|e| (now, e)));
    }
    rest(world, GRACE + 2 * LOOK).await;
    let old: Vec<_> = stood.iter().map(|(_, e)| e.as_str()).collect();
    let token = world.store.text("certs", "admission-path");
    let others: Vec<_> = old.into_iter().filter(|e| *e != token).collect();
    closed(world, &others);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 20, ..ProptestConfig::default() })]

    #[test]
    fn whoever_changes_what_nobody_is_shut_out_and_in_the_end_it_is_closed(events in events()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(live(&mut World::new(), events))?;
    }
}
