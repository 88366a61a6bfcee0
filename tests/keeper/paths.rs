//! The token in the path of admission, in virtual time: what an API server may ask by is never refused, whoever changes the
//! configuration or the Secret and when; and once that has been at rest, nothing else is taken.

use proptest::prelude::*;
use serde_json::json;

use crate::world::World;

/// Seconds between two looks, and for which an API server may go by what stood in the configuration.
const LOOK: i64 = 10;
const GRACE: i64 = 60;

const TOKEN: usize = 48;

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
        &token.to_uppercase(),
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
async fn it_is_closed_from_the_very_beginning() {
    let mut world = World::new();
    assert_eq!((good(&world, ""), good(&world, "x")), ([false; 2], [false; 2]));
    let [a, b] = &mut world.replicas;
    let (one, other) = futures::future::join(a.look(), b.look()).await;
    assert_eq!((one, other), (vec![], vec![]));
    for _ in 0..2 * GRACE / LOOK {
        closed(&world, &[]);
        rest(&mut world, LOOK).await;
    }
    // No API server that knows the CA ever saw another path.
    let token = world.store.text("certs", "admission-path");
    assert_eq!(world.store.state().asked.iter().collect::<Vec<_>>(), [&token]);
    // Made, and put in.
    assert_eq!((world.count("path", "done"), world.count("path", "healed")), (2.0, 0.0));
}

#[tokio::test]
async fn who_deletes_the_token_gets_another_that_is_announced_and_the_old_one_is_good_for_its_time() {
    let mut world = World::new();
    rest(&mut world, 2 * GRACE).await;
    let old = endings(&world)[0].clone();
    world.store.meddle("certs", "admission-path", None);
    world.look().await;
    let new = world.store.text("certs", "admission-path-next");
    assert_eq!((new.len(), good(&world, &new)), (TOKEN, [true; 2]));
    let mut announced = 0;
    while endings(&world)[0] == old {
        assert_eq!((good(&world, &old), good(&world, "")), ([true; 2], [false; 2]));
        rest(&mut world, LOOK).await;
        announced += LOOK;
    }
    assert!((GRACE..=GRACE + 2 * LOOK).contains(&announced), "{announced} s");
    assert_eq!(endings(&world), [new.clone(), new.clone()]);
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

/// As manifests/base has it: a Service, and no path.
fn of_a_service(world: &World) {
    let mut state = world.store.state();
    for hook in state.webhooks.as_mut().expect("registered")["webhooks"]
        .as_array_mut()
        .expect("a list")
    {
        hook["clientConfig"] = json!({"service": {"name": "wattlane", "namespace": "ns"}});
    }
}

#[tokio::test]
async fn a_service_is_given_a_path_that_api_servers_take() {
    let mut world = World::new();
    of_a_service(&world);
    world.settle().await;
    let token = world.store.text("certs", "admission-path");
    let state = world.store.state();
    for hook in state.webhooks.as_ref().expect("registered")["webhooks"]
        .as_array()
        .expect("a list")
    {
        assert_eq!(
            hook["clientConfig"]["service"]["path"],
            format!("/admission/mutate/{token}")
        );
    }
}

#[tokio::test]
async fn a_path_that_is_refused_costs_the_bundle_nothing_and_shuts_nobody_out() {
    let mut world = World::new();
    of_a_service(&world);
    world.store.state().quoting = true;
    for _ in 0..2 * GRACE / LOOK {
        world.pass(LOOK);
        for replica in &mut world.replicas {
            let faults = replica.look().await;
            assert!(
                matches!(faults.as_slice(), [f] if f.contains("/admission/mutate/…")),
                "{faults:?}"
            );
        }
        assert!(!world.store.bundle(0).is_empty());
        assert_eq!((world.apiserver_is_well(), good(&world, "")), (Ok(()), [true; 2]));
    }
    assert_eq!(
        (world.count("bundle", "done"), world.metric("wattlane_admission_closed")),
        (1.0, 0.0)
    );
    world.store.state().quoting = false;
    world.settle().await;
    assert_eq!(world.count("path", "done"), 2.0);
}

#[derive(Clone, Debug)]
enum Event {
    None,
    Reset(usize, &'static str),
    /// `kubectl replace`, and `kubectl delete` with `kubectl apply` a look later.
    Replace,
    Remake,
    DeleteToken,
    EmptySecret,
    LostAnswer(usize),
    /// A wattlane that has begun anew.
    Restart(usize),
    /// The API server is away for so many looks.
    Outage(u8),
    /// The wall clock jumps, and comes back.
    Clock(i64),
}

fn events(resets: u32) -> impl Strategy<Value = Vec<Event>> {
    let path = prop_oneof![
        Just(""),
        Just("/"),
        Just("/admission/mutate"),
        Just("/admission/mutate/somebodys")
    ];
    let event = prop_oneof![
        8 => Just(Event::None),
        resets => (0..2_usize, path).prop_map(|(at, path)| Event::Reset(at, path)),
        2 => Just(Event::DeleteToken),
        1 => Just(Event::EmptySecret),
        1 => Just(Event::Replace),
        1 => Just(Event::Remake),
        1 => (0..2_usize).prop_map(Event::LostAnswer),
        2 => (0..2_usize).prop_map(Event::Restart),
        1 => (1..12_u8).prop_map(Event::Outage),
        1 => prop_oneof![Just(-1800), Just(1800), Just(86_400)].prop_map(Event::Clock),
    ];
    prop::collection::vec(event, 10..40)
}

async fn looks(world: &mut World, stood: &mut Vec<(i64, String)>) -> Result<(), TestCaseError> {
    for at in 0..2 {
        let standing = world.store.asked();
        // A clock that is ahead may make it complain.
        world.replicas[at].look().await;
        // The server has a request at an unknown path wait for a look, so what counts is what it takes then.
        for ending in standing.iter().chain(&world.store.asked()) {
            prop_assert!(world.paths(at).good(ending), "{} characters", ending.len());
        }
    }
    let now = world.steady();
    stood.retain(|(at, _)| now - at < GRACE);
    for (_, ending) in &*stood {
        prop_assert_eq!(good(world, ending), [true; 2], "{} characters", ending.len());
    }
    stood.extend(world.store.asked().into_iter().map(|e| (now, e)));
    Ok(())
}

async fn live(world: &mut World, events: Vec<Event>) -> Result<(), TestCaseError> {
    world.settle().await;
    // What could be asked by when, at the end of each round.
    let mut stood: Vec<(i64, String)> = vec![];
    for (round, event) in events.into_iter().enumerate() {
        world.pass(LOOK);
        let mut jump = 0;
        match event {
            Event::None => {}
            Event::Reset(at, path) => world.store.reset_path(at, path),
            Event::Replace => world.store.replace("u"),
            Event::Remake => {
                world.store.state().webhooks = None;
                looks(world, &mut stood).await?;
                world.store.replace(&round.to_string());
            }
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
            Event::Restart(at) => world.restart(at),
            Event::Outage(looks) => {
                world.store.state().down = true;
                for _ in 0..looks {
                    world.pass(LOOK);
                    for replica in &mut world.replicas {
                        prop_assert!(!replica.look().await.is_empty());
                    }
                    for ending in world.store.asked() {
                        prop_assert_eq!(good(world, &ending), [true; 2]);
                    }
                }
                world.store.state().down = false;
            }
            Event::Clock(seconds) => jump = seconds,
        }
        world.set(jump);
        looks(world, &mut stood).await?;
        world.set(-jump);
        // Who knows the way to the port gets nothing, unless somebody has led API servers to where he asks.
        for stranger in ["", "x"] {
            if !world.store.state().asked.contains(stranger) {
                prop_assert_eq!(good(world, stranger), [false; 2]);
            }
        }
    }
    rest(world, 3 * GRACE).await;
    let old: Vec<_> = world.store.state().asked.iter().cloned().collect();
    let token = world.store.text("certs", "admission-path");
    let others: Vec<_> = old.iter().map(String::as_str).filter(|e| *e != token).collect();
    closed(world, &others);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 20, ..ProptestConfig::default() })]

    #[test]
    fn whoever_changes_what_nobody_is_shut_out_and_in_the_end_it_is_closed(events in events(2)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(live(&mut World::new(), events))?;
    }

    #[test]
    fn no_stranger_gets_in_at_any_time_where_nobody_resets_the_path(events in events(0)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let mut world = World::new();
        runtime.block_on(live(&mut world, events))?;
        prop_assert!(!world.store.state().asked.contains(""));
    }
}
