//! Schedules with one aim each: many pods want the few cards of one node, and the one thing happens that a certain guard
//! of the binder or of the election is there for. In the general mix these meet too seldom to show that a guard is gone.

use serde_json::{Value, json};
use wattlane::index::Kind;

use super::rng::Rng;
use super::scenario::{self, Act, Cards, Odds, Plant, SERVER, Scenario, Whom};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// The general mix of `scenario`.
    Mix,
    /// The leader hangs or is cut off in the middle of its writes until another leads: the fence, and the end of a term.
    HungLeader,
    /// What the last leader gave has not reached the next one's watch: a new leader lists first.
    StaleSuccessor,
    /// Binds that are undone while the watch is behind: a freed claim is waited for.
    SlowUndo,
    /// Binds that cannot be undone while the watch is behind: their devices stay reserved.
    StuckUndo,
}

/// The first twice: it is the one that most often comes to nothing.
const AIMS: [Aim; 5] = [
    Aim::HungLeader,
    Aim::HungLeader,
    Aim::StaleSuccessor,
    Aim::SlowUndo,
    Aim::StuckUndo,
];

impl Aim {
    /// Half of all are the mix.
    pub(crate) fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xa1);
        match rng.percent(50) {
            true => Self::Mix,
            false => *rng.pick(&AIMS),
        }
    }

    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Mix => "(the general mix)",
            Self::HungLeader => "(aim: hung leader)",
            Self::StaleSuccessor => "(aim: stale successor)",
            Self::SlowUndo => "(aim: slow undo)",
            Self::StuckUndo => "(aim: stuck undo)",
        }
    }

    pub(crate) fn draw(self, seed: u64) -> Scenario {
        let mut rng = Rng::new(seed ^ 0xa13d);
        let mut drawn = crowd(self, &mut rng);
        match self {
            Self::Mix => {}
            Self::HungLeader => hung_leader(&mut drawn, &mut rng),
            Self::StaleSuccessor => stale_successor(&mut drawn, &mut rng),
            Self::SlowUndo => slow_undo(&mut drawn, &mut rng),
            Self::StuckUndo => {
                slow_undo(&mut drawn, &mut rng);
                drawn.odds.refused_undo = rng.range(300, 900);
                drawn.odds.failed_undo = *rng.pick(&[0, 500, 900]);
            }
        }
        drawn
    }
}

/// One node of one to three cards, and many more pods than that; some of them end, so that the next can have theirs.
fn crowd(aim: Aim, rng: &mut Rng) -> Scenario {
    let cards = rng.range(1, 3);
    let pods = rng.range(cards + 3, cards + 9);
    let calm_at = rng.range(55, 75) * 1000;
    let mut objects = vec![scenario::namespace(), scenario::node(0)];
    objects.extend(scenario::classes());
    objects.push(scenario::slice("n0", Cards::Whole, cards, SERVER));
    objects.extend((1..=2).map(|n| scenario::template("gpu", n)));
    let mut acts = vec![];
    for i in 0..pods {
        // Half at once, the others over all the time.
        let at = match i <= pods / 2 {
            true if aim == Aim::StaleSuccessor => rng.range(200, 1500),
            true => rng.range(1000, 4000),
            false => rng.range(4000, calm_at - 15_000),
        };
        acts.push((at, Act::Create(usize::try_from(i).expect("few pods"))));
    }
    for _ in 0..rng.below(pods) {
        let n = rng.below(1000);
        let act = rng.pick(&[Act::Finish(n), Act::Delete(n), Act::ForceDelete(n)]).clone();
        acts.push((rng.range(4000, calm_at), act));
    }
    let twos = if cards > 1 { 15 } else { 0 };
    Scenario {
        replicas: 1,
        plants: vec![Plant {
            cards: Cards::Whole,
            count: cards,
            watts: 600,
        }],
        objects,
        pods: (0..pods)
            .map(|i| pod(i, if rng.percent(twos) { 2 } else { 1 }))
            .collect(),
        policy: "apiVersion: wattlane.dev/v1alpha1\nkind: PlacementPolicy\n".to_owned(),
        budget: None,
        slots: None,
        odds: Odds::default(),
        snaps: vec![],
        hangs: vec![],
        aim,
        acts,
        calm_at,
    }
}

fn pod(i: u64, count: u64) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": scenario::NS, "name": format!("p{i}")},
        "spec": {"schedulerName": "wattlane",
            "resourceClaims": [{"name": "c", "resourceClaimTemplateName": format!("gpu-{count}")}],
            "containers": [{"name": "c", "image": "x", "resources": {"claims": [{"name": "c"}]}}]},
        "status": {"phase": "Pending"}})
}

fn hung_leader(drawn: &mut Scenario, rng: &mut Rng) {
    drawn.replicas = 2;
    // Longer than the Lease, so that another leads by then.
    let long = |rng: &mut Rng| rng.range(16_000, 35_000);
    match rng.below(3) {
        0 | 1 => {
            let mut at = 0;
            for _ in 0..rng.range(1, 3) {
                at += rng.range(1, 4);
                drawn.hangs.push((at, long(rng)));
            }
        }
        _ => {
            drawn
                .acts
                .push((rng.range(1000, 5000), Act::Partition(Whom::Leader, long(rng))));
            // What it sent before is still on its way.
            drawn.odds.late = rng.range(0, 400);
        }
    }
}

fn stale_successor(drawn: &mut Scenario, rng: &mut Rng) {
    drawn.replicas = 2;
    let kind = *rng.pick(&[Kind::Claim, Kind::Claim, Kind::Claim, Kind::Pod]);
    let stall = Act::Stall(Whom::Follower, kind, rng.range(20_000, 60_000));
    // A watch is in order: a claim that is seen comes after every allocation before it. So claims come first, and their
    // node's cards only when the follower sees no claims any more.
    drawn.acts.push((100, Act::DriverGone(0, rng.range(3000, 5000))));
    drawn.acts.push((rng.range(2000, 2900), stall));
    let end = match rng.below(3) {
        0 => Act::Crash(Whom::Leader),
        1 => Act::Freeze(Whom::Leader, rng.range(20_000, 50_000)),
        _ => Act::Partition(Whom::Leader, rng.range(20_000, 50_000)),
    };
    drawn.acts.push((rng.range(5500, 12_000), end));
    // Its queue is tried again.
    drawn.acts.push((rng.range(22_000, 40_000), Act::RestartScheduler));
}

fn slow_undo(drawn: &mut Scenario, rng: &mut Rng) {
    drawn.odds.refused_binding = rng.range(200, 700);
    drawn.odds.trickle = rng.range(300, 3000);
    drawn.odds.slow_watches = rng.percent(50);
    drawn.odds.second_bind = *rng.pick(&[0, 300, 700]);
}
