//! The world: one clock, one queue of what happens when, and the order in which processes run. Everything that passes
//! between two processes passes here. What is done with it: `network`, `feeds`, `acts`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use wattlane::index::Kind;
use wattlane::model::NamespacedName;

use super::checks::Checks;
use super::feeds::Cursor;
use super::keepers::{self, Duty};
use super::process::Process;
use super::quiet::Judge;
use super::replica::{Ask, Replica, SYSTEM, Told};
use super::rng::Rng;
use super::rules::{Answer, Request};
use super::scenario::{Act, Odds, Scenario};
use super::scheduler;
use super::store::{Entry, Store};
use super::tally::Outcome;

/// A watch's deliveries.
pub(crate) enum Feed {
    List(Vec<Arc<Entry>>),
    Event(Arc<Entry>),
}

/// What processes send.
pub(crate) enum Out {
    Api {
        request: Request,
        reply: oneshot::Sender<Answer>,
    },
    Watch {
        kind: Kind,
        feed: mpsc::UnboundedSender<Feed>,
    },
    /// The scheduler asks a replica.
    Ask { ask: Ask, reply: oneshot::Sender<Told> },
    /// A replica answers the scheduler.
    Told {
        ask: Ask,
        told: Told,
        reply: oneshot::Sender<Told>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    Replica(usize),
    Scheduler,
}

/// A process and its lives: what a dead one sent may still arrive, what is sent to it does not.
pub(crate) type Life = (Who, u64);

pub(crate) enum Event {
    Arrive {
        from: Life,
        request: Request,
        reply: Option<oneshot::Sender<Answer>>,
        fate: super::network::Fate,
    },
    Answered {
        answer: Answer,
        reply: oneshot::Sender<Answer>,
        to: Life,
    },
    Asked {
        ask: Ask,
        reply: oneshot::Sender<Told>,
    },
    Told {
        told: Told,
        reply: oneshot::Sender<Told>,
    },
    List {
        to: Life,
        kind: Kind,
        feed: mpsc::UnboundedSender<Feed>,
    },
    Listed {
        entries: Vec<Arc<Entry>>,
        feed: mpsc::UnboundedSender<Feed>,
    },
    Step {
        who: Who,
        kind: Kind,
        cursor: u64,
    },
    Duty(Duty),
    Act(Act),
    Start(usize),
    Calm,
    Look,
}

pub(crate) struct Slot {
    pub(crate) replica: Option<Replica>,
    /// Writes it sent in all its lives.
    pub(crate) writes: u64,
    /// Of them, to claims.
    pub(crate) claim_writes: u64,
    pub(crate) life: u64,
    pub(crate) died_at: u64,
    pub(crate) frozen_until: u64,
    pub(crate) cut_until: u64,
}

/// Longest step of the clock: how late a process that ran ahead may see what another did.
const STRIDE: u64 = 500;
/// After the end of the faults everything must have settled by then: what a bind waits for at most (600 s), and the
/// scheduler's own five minutes after that.
const SETTLED_BY: u64 = 1_200_000;

pub(crate) struct Host {
    pub(crate) now: u64,
    seq: u64,
    /// By time, then in the order they were put there.
    queue: BTreeMap<(u64, u64), Event>,
    pub(crate) store: Store,
    pub(crate) rng: Rng,
    pub(crate) odds: Odds,
    pub(crate) scenario: Scenario,
    pub(crate) slots: Vec<Slot>,
    pub(crate) scheduler: Process,
    pub(crate) scheduler_life: u64,
    pub(crate) cursors: BTreeMap<(Who, Kind), Cursor>,
    pub(crate) cursor_ids: u64,
    /// Connections nobody answers.
    pub(crate) silent: Vec<oneshot::Sender<Answer>>,
    checks: Checks,
    judge: Judge,
    outcome: Outcome,
    trace: Vec<String>,
    over: bool,
}

impl Host {
    /// Runs one schedule to its end: what it came to, and what happened.
    pub(crate) fn run(seed: u64) -> (Outcome, Vec<String>) {
        let scenario = Scenario::draw(seed);
        let mut rng = Rng::new(seed);
        let odds = scenario.odds.clone();
        let scheduler = scheduler::start(0, rng.fork(), odds.other_node, odds.second_bind);
        let slots = (0..scenario.replicas).map(|i| Slot {
            replica: Some(Replica::start(0, &scenario.policy, Self::candidate(&scenario, i, 0))),
            writes: 0,
            claim_writes: 0,
            life: 0,
            died_at: 0,
            frozen_until: 0,
            cut_until: 0,
        });
        let mut host = Self {
            now: 0,
            seq: 0,
            queue: BTreeMap::new(),
            store: Store::default(),
            rng,
            odds,
            slots: slots.collect(),
            scheduler,
            scheduler_life: 0,
            cursors: BTreeMap::new(),
            cursor_ids: 0,
            silent: vec![],
            checks: Checks {
                plants: scenario.plants.clone(),
                budget: scenario.budget,
                slots: scenario.slots,
            },
            judge: Judge::new(&scenario.policy),
            scenario,
            outcome: Outcome {
                seed,
                ..Outcome::default()
            },
            trace: vec![],
            over: false,
        };
        host.play();
        (host.outcome, host.trace)
    }

    /// Its pod, and a name of its own in each life.
    pub(crate) fn candidate(scenario: &Scenario, i: usize, life: u64) -> Option<(NamespacedName, String)> {
        let pod = NamespacedName::new(SYSTEM, format!("wattlane-{i}"));
        (scenario.replicas > 1).then(|| (pod, format!("{i}-{life}")))
    }

    fn play(&mut self) {
        for i in 0..self.slots.len() {
            self.store.create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": SYSTEM, "name": format!("wattlane-{i}")},
                "spec": {"nodeName": "control", "containers": []}, "status": {"phase": "Running"}}));
        }
        self.count(self.scenario.aim.words());
        for object in self.scenario.objects.clone() {
            self.store.create(object);
        }
        self.written();
        for (at, act) in std::mem::take(&mut self.scenario.acts) {
            self.later(at, Event::Act(act));
        }
        self.later(self.scenario.calm_at, Event::Calm);
        while !self.over {
            let next = self.next_at();
            let limit = self.run_processes(next.min(self.now + STRIDE));
            while self.next_at() <= limit && !self.over {
                let Some(((at, _), event)) = self.queue.pop_first() else {
                    break;
                };
                self.now = self.now.max(at);
                self.happen(event);
                self.written();
            }
            self.now = self.now.max(limit);
        }
        self.outcome.bound = self.store.log(Kind::Pod).iter().filter(|e| self.newly_bound(e)).count() as u64;
    }

    fn newly_bound(&self, entry: &Entry) -> bool {
        let node = |raw: &Option<Arc<serde_json::Value>>| {
            raw.as_ref()
                .is_some_and(|raw| !super::store::text(raw, "/spec/nodeName").is_empty())
        };
        node(&entry.raw) && !node(&entry.old)
    }

    /// Every process runs to `limit`, or to where something one of them sent arrives. Returns how far that was.
    fn run_processes(&mut self, mut limit: u64) -> u64 {
        // The scheduler first: it begins most of what the replicas do.
        let all = [Who::Scheduler]
            .into_iter()
            .chain((0..self.slots.len()).map(Who::Replica));
        for who in all.collect::<Vec<_>>() {
            loop {
                let (sent, at) = match self.process(who) {
                    Some(process) if process.now() < limit => {
                        process.run_until(limit);
                        (process.sent(), process.now())
                    }
                    _ => break,
                };
                for out in sent {
                    limit = limit.min(self.accept(who, at, out).max(self.now));
                }
            }
        }
        limit
    }

    fn process(&self, who: Who) -> Option<&Process> {
        match who {
            Who::Scheduler => Some(&self.scheduler),
            Who::Replica(i) => {
                let slot = &self.slots[i];
                let replica = slot.replica.as_ref().filter(|_| slot.frozen_until <= self.now);
                replica.map(|r| &r.process)
            }
        }
    }

    pub(crate) fn life(&self, who: Who) -> Life {
        match who {
            Who::Scheduler => (who, self.scheduler_life),
            Who::Replica(i) => (who, self.slots[i].life),
        }
    }

    pub(crate) fn alive(&self, life: Life) -> bool {
        let there = match life.0 {
            Who::Scheduler => true,
            Who::Replica(i) => self.slots[i].replica.is_some(),
        };
        there && self.life(life.0) == life
    }

    pub(crate) fn is_cut(&self, who: Who) -> bool {
        matches!(who, Who::Replica(i) if self.slots[i].cut_until > self.now)
    }

    pub(crate) fn later(&mut self, at: u64, event: Event) {
        self.seq += 1;
        self.queue.insert((at, self.seq), event);
    }

    fn next_at(&self) -> u64 {
        self.queue.first_key_value().map_or(u64::MAX, |((at, _), _)| *at)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Duty(duty) => {
                self.note(|| format!("keeper {duty:?}"));
                if keepers::perform(&mut self.store, &duty) {
                    let soon = self.now + self.rng.range(3, 60);
                    self.later(soon, Event::Duty(duty));
                }
            }
            Event::Act(act) => self.act(act),
            Event::Start(i) => self.start(i),
            Event::Calm => self.calm(),
            Event::Look => self.look(),
            Event::List { .. } | Event::Listed { .. } | Event::Step { .. } => self.feed(event),
            Event::Arrive { .. } | Event::Answered { .. } | Event::Asked { .. } | Event::Told { .. } => {
                self.deliver(event)
            }
        }
    }

    /// What follows from what was written: the rules are looked at, watches and keepers hear of it.
    fn written(&mut self) {
        for entry in self.store.take_fresh() {
            if let Err(broken) = self.checks.after(&self.store, &entry) {
                self.fail(broken);
            }
            self.announce(entry.kind);
            let due = keepers::duties(&self.store, &entry, self.odds.slow_keepers, &mut self.rng);
            for (after, duty) in due {
                self.later(self.now + after, Event::Duty(duty));
            }
        }
    }

    fn look(&mut self) {
        let since = self.now - self.scenario.calm_at;
        let replicas: Vec<&Replica> = self.slots.iter().filter_map(|s| s.replica.as_ref()).collect();
        let mut unsettled = self.judge.unsettled(&self.store, &self.checks, &replicas);
        if replicas.len() < self.slots.len() {
            unsettled.push("a replica is not up".to_owned());
        }
        if unsettled.is_empty() {
            self.outcome.settled = since;
            self.over = true;
        } else if since >= SETTLED_BY {
            self.fail(format!(
                "{} s after the last fault: {}",
                since / 1000,
                unsettled.join("; ")
            ));
        } else {
            let pause = (since / 20).clamp(500, 10_000);
            self.later(self.now + pause, Event::Look);
        }
    }

    pub(crate) fn fail(&mut self, why: String) {
        self.note(|| format!("BROKEN: {why}"));
        self.outcome.failure.get_or_insert(why);
        self.over = true;
    }

    pub(crate) fn count(&mut self, fault: &'static str) {
        *self.outcome.faults.entry(fault).or_default() += 1;
    }

    pub(crate) fn note(&mut self, words: impl FnOnce() -> String) {
        self.trace
            .push(format!("{:>9.3} {}", self.now as f64 / 1000.0, words()));
    }
}
