//! Starts, outages, replicas that see nothing, and what somebody deletes: at no moment does a stranger get in who did not before,
//! and at every moment what an API server asks by is taken, also by a replica that cannot look just then.

use serde_json::json;

use crate::world::{LEAF, World};

const LOOK: i64 = 10;
const GRACE: i64 = 60;

type Change = fn(&World);

fn taken(world: &World, at: usize) {
    let asked = world.store.asked();
    assert!(!asked.is_empty());
    for ending in asked {
        assert!(world.paths(at).good(&ending), "replica {at} shuts an API server out");
    }
    for stranger in ["", "x", "/"] {
        assert!(!world.paths(at).good(stranger), "replica {at} lets {stranger:?} in");
    }
}

async fn rest(world: &mut World, seconds: i64) {
    for _ in 0..seconds / LOOK {
        world.pass(LOOK);
        world.look().await;
    }
}

async fn steady() -> World {
    let mut world = World::new();
    rest(&mut world, 2 * GRACE).await;
    world
}

#[tokio::test]
async fn a_restart_opens_nothing_before_and_after_its_first_look() {
    let mut world = steady().await;
    for _ in 0..3 {
        for at in [0, 1] {
            world.restart(at);
            assert!(["", "x"].iter().all(|e| !world.paths(at).good(e)));
            assert!(world.replicas[at].in_use().is_none(), "ready before it has looked");
            assert_eq!(world.replicas[at].look().await, [""; 0]);
            assert!(world.replicas[at].in_use().is_some());
            taken(&world, at);
        }
        rest(&mut world, LOOK).await;
    }
}

/// Some API server may still go by the path of before, and the replica that has seen it there is no more.
#[tokio::test]
async fn a_restart_knows_what_the_one_before_has_replaced() {
    let mut world = steady().await;
    world.store.reset_path(1, "/admission/mutate/somebodys");
    world.replicas[0].look().await;
    for at in [0, 1] {
        world.restart(at);
        world.replicas[at].look().await;
        assert!(world.paths(at).good("somebodys"));
        taken(&world, at);
    }
    rest(&mut world, GRACE + LOOK).await;
    assert!(!world.paths(0).good("somebodys") && !world.paths(1).good("somebodys"));
    // And a start after that knows nothing of it.
    world.restart(0);
    world.replicas[0].look().await;
    assert!(!world.paths(0).good("somebodys"));
}

/// The configuration cannot be read at the start: what the Secret says is enough, for either side.
#[tokio::test]
async fn a_start_that_cannot_read_the_configuration_goes_by_the_secret() {
    let mut world = steady().await;
    world.store.state().blind = true;
    world.restart(0);
    assert!(!world.replicas[0].look().await.is_empty());
    taken(&world, 0);
}

#[tokio::test]
async fn an_outage_of_any_length_changes_nothing_and_nor_does_its_end() {
    let mut world = steady().await;
    let token = world.store.text("certs", "admission-path");
    for looks in [1, 6, 7, 8, 100] {
        world.store.state().down = true;
        for _ in 0..looks {
            world.pass(LOOK);
            for at in [0, 1] {
                assert!(!world.replicas[at].look().await.is_empty());
                taken(&world, at);
            }
        }
        world.store.state().down = false;
        for _ in 0..2 * GRACE / LOOK {
            rest(&mut world, LOOK).await;
            taken(&world, 0);
            taken(&world, 1);
        }
    }
    assert_eq!(world.store.text("certs", "admission-path"), token);
}

#[tokio::test]
async fn a_wall_clock_that_is_set_opens_and_shuts_nothing() {
    let mut world = steady().await;
    for seconds in [-50, 50, -3000, 3000, -400 * 86_400, 400 * 86_400, -30] {
        world.set(seconds);
        for _ in 0..2 * GRACE / LOOK {
            world.pass(LOOK);
            for at in [0, 1] {
                world.replicas[at].look().await;
                taken(&world, at);
            }
        }
    }
}

#[tokio::test]
async fn a_configuration_that_is_deleted_and_made_again_opens_nothing() {
    let mut world = steady().await;
    let token = world.store.text("certs", "admission-path");
    world.store.state().webhooks = None;
    for _ in 0..2 * GRACE / LOOK {
        rest(&mut world, LOOK).await;
        for at in [0, 1] {
            // An API server may not have heard of it.
            assert!(world.paths(at).good(&token) && !world.paths(at).good("") && !world.paths(at).good("x"));
        }
    }
    assert_eq!(world.metric("wattlane_admission_closed"), 1.0);
    world.store.replace("another");
    for _ in 0..2 * GRACE / LOOK {
        rest(&mut world, LOOK).await;
        taken(&world, 0);
        taken(&world, 1);
    }
    assert_eq!(world.store.asked(), [token.clone(), token]);
    assert!(!world.store.state().asked.contains(""));
}

/// What changes tokens and paths, each with one replica that sees nothing of it for as long as it may.
#[tokio::test]
async fn a_replica_that_sees_nothing_for_a_while_shuts_no_api_server_out() {
    let changes: [(&str, Change); 6] = [
        ("a new certificate", |world| world.pass(LEAF * 3 / 4)),
        ("the token deleted", |world| {
            world.store.meddle("certs", "admission-path", None)
        }),
        ("the Secret emptied", |world| {
            let version = world.store.state().stamp();
            let mut state = world.store.state();
            let secret = state.secrets.get_mut("certs").expect("there");
            secret["metadata"]["resourceVersion"] = version;
            secret["data"] = json!({});
        }),
        ("the Secret garbled", |world| {
            world.store.meddle("certs", "admission-path", Some(b"A b/"))
        }),
        ("the configuration replaced", |world| world.store.replace("u")),
        ("the configuration made again", |world| world.store.replace("another")),
    ];
    for (what, change) in changes {
        // From when on, in looks after the change, and until less than the grace later.
        for from in (0..2 * GRACE / LOOK).step_by(4) {
            let mut world = steady().await;
            let before = world.store.text("certs", "admission-path");
            change(&world);
            for round in 0..4 * GRACE / LOOK {
                world.pass(LOOK);
                world.replicas[0].look().await;
                taken(&world, 0);
                if !(from..from + GRACE / LOOK - 1).contains(&round) {
                    world.replicas[1].look().await;
                }
                for ending in world.store.asked() {
                    assert!(world.paths(1).good(&ending), "{what}, blind from {from}, round {round}");
                }
                assert!(!world.paths(1).good(""), "{what}, blind from {from}, round {round}");
            }
            let after = world.store.text("certs", "admission-path");
            let asked = world.store.asked();
            assert_eq!(asked, [after.clone(), after.clone()], "{what}");
            assert_eq!(after == before, what.starts_with("the configuration"), "{what}");
            assert_eq!(
                (world.paths(0).good(&before), world.paths(1).good(&before)),
                (after == before, after == before)
            );
        }
    }
}

/// Replicas come and go one after the other, as in a rolling update, while the token changes.
#[tokio::test]
async fn a_rolling_update_in_the_middle_of_a_change_shuts_nobody_out() {
    for first in (0..2 * GRACE / LOOK).step_by(3) {
        let mut world = steady().await;
        world.store.meddle("certs", "admission-path", None);
        for round in 0..4 * GRACE / LOOK {
            world.pass(LOOK);
            for at in [0, 1] {
                if round == first + 3 * i64::try_from(at).expect("small") {
                    world.restart(at);
                }
                assert_eq!(world.replicas[at].look().await, [""; 0]);
                taken(&world, at);
            }
        }
        let token = world.store.text("certs", "admission-path");
        assert_eq!(world.store.asked(), [token.clone(), token]);
    }
}
