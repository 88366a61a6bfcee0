//! Calls on their way: which are lost before or after they took effect, which are late, which are turned away.

use serde_json::Value;
use tokio::sync::oneshot;

use super::host::{Event, Host, Life, Out, Who};
use super::replica::{Ask, SYSTEM, Told};
use super::rules::{self, Answer, Request};
use super::scenario::{Act, Whom};
use super::store::text;
use wattlane::index::Kind;
use wattlane::model::NamespacedName;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Good,
    /// Carried out, and the answer is lost: at once, or nobody ever hears of it.
    AnswerLost {
        silent: bool,
    },
    /// Turned away with this status before anything is done.
    TurnedAway(u16),
    /// Carried out, and then this is answered.
    DoneBut(u16),
    /// Nobody waits for it any more.
    Late,
}

/// What a killed process had sent is carried out within this time, or not at all: its connections are closed with it.
const LAST_WORDS: u64 = 200;

impl Host {
    /// Takes what a process sent; when it arrives.
    pub(crate) fn accept(&mut self, who: Who, at: u64, out: Out) -> u64 {
        let from = self.life(who);
        match out {
            Out::Api { request, reply } => self.send(from, at, request, reply),
            Out::Watch { kind, feed } => {
                let arrives = at + self.rng.range(1, 10);
                self.later(arrives, Event::List { to: from, kind, feed });
                arrives
            }
            Out::Ask { ask, reply } => {
                let arrives = at + self.rng.range(1, 3);
                if self.rng.permille(self.odds.lost_extender_call) {
                    self.count("extender call lost");
                    return arrives;
                }
                self.later(arrives, Event::Asked { ask, reply });
                arrives
            }
            Out::Told { ask, told, reply } => {
                let arrives = at + self.rng.range(1, 3);
                self.said(&ask, &told);
                if self.rng.permille(self.odds.lost_extender_call) {
                    self.count("extender answer lost");
                    return arrives;
                }
                self.later(arrives, Event::Told { told, reply });
                arrives
            }
        }
    }

    fn send(&mut self, from: Life, at: u64, request: Request, reply: oneshot::Sender<Answer>) -> u64 {
        let mut arrives = at + self.rng.range(1, 5);
        let reads = request.method == "GET";
        if let (Who::Replica(i), false) = (from.0, reads) {
            self.slots[i].writes += 1;
            self.snap(i, at);
            if request.path.contains("/resourceclaims/") {
                self.slots[i].claim_writes += 1;
                self.hang(i, at);
            }
        }
        if self.is_cut(from.0) || self.rng.permille(self.odds.lost_request) {
            self.count("request lost");
            self.note(|| format!("{from:?} {} {} is lost", request.method, request.path));
            self.lose(reply);
            return arrives;
        }
        let odds = self.odds.clone();
        if !reads && self.rng.permille(odds.late) {
            self.count("write carried out late");
            self.note(|| format!("{from:?} {} {} will be late", request.method, request.path));
            self.lose(reply);
            let late = at + self.rng.range(500, 55_000);
            // The server ends it at its own limit.
            if request.limit.is_some_and(|limit| late > arrives + limit) {
                self.count("late write ended by its timeout");
                return arrives;
            }
            self.later(
                late,
                Event::Arrive {
                    from,
                    request,
                    reply: None,
                    fate: Fate::Late,
                },
            );
            return late;
        }
        let (binding, undo) = (request.path.ends_with("/binding"), frees(&request));
        let fate = match () {
            () if binding && self.rng.permille(odds.refused_binding) => {
                self.count("binding forbidden");
                Fate::TurnedAway(403)
            }
            () if undo && self.rng.permille(odds.refused_undo) => {
                self.count("undo forbidden");
                Fate::TurnedAway(403)
            }
            () if undo && self.rng.permille(odds.failed_undo) => {
                self.count("undo failed");
                match self.rng.percent(50) {
                    true => Fate::TurnedAway(500),
                    false => Fate::AnswerLost { silent: false },
                }
            }
            () if self.rng.permille(odds.lost_answer) => {
                self.count("answer lost");
                Fate::AnswerLost {
                    silent: self.rng.percent(50),
                }
            }
            () if !reads && self.rng.permille(odds.conflict) => {
                self.count("409");
                Fate::TurnedAway(409)
            }
            () if self.rng.permille(odds.throttled) => {
                self.count("429");
                Fate::TurnedAway(429)
            }
            () if self.rng.permille(odds.server_error) => {
                self.count("500");
                match self.rng.percent(50) {
                    true => Fate::TurnedAway(500),
                    false => Fate::DoneBut(504),
                }
            }
            () => Fate::Good,
        };
        if self.rng.permille(odds.slow_call) {
            self.count("slow call");
            let slow = self.rng.range(50, 6000);
            // One that is held up for longer than it is wanted ends with it.
            arrives += request.limit.map_or(slow, |limit| slow.min(limit));
        }
        self.later(
            arrives,
            Event::Arrive {
                from,
                request,
                reply: Some(reply),
                fate,
            },
        );
        arrives
    }

    /// A replica that is to die or to hang at this very write does: before it is carried out, or just after.
    fn snap(&mut self, i: usize, at: u64) {
        let writes = self.slots[i].writes;
        let Some((_, hangs)) = self.scenario.snaps.iter().find(|(n, _)| *n == writes).copied() else {
            return;
        };
        if at >= self.scenario.calm_at {
            return;
        }
        let when = at + self.rng.range(0, 8);
        let act = match hangs {
            true => Act::Freeze(Whom::Nth(i as u64), self.rng.range(500, 25_000)),
            false => Act::Crash(Whom::Nth(i as u64)),
        };
        self.later(when, Event::Act(act));
    }

    fn hang(&mut self, i: usize, at: u64) {
        let writes = self.slots[i].claim_writes;
        let found = self.scenario.hangs.iter().find(|(n, _)| *n == writes);
        let Some((_, long)) = found.filter(|_| at < self.scenario.calm_at).copied() else {
            return;
        };
        self.later(at, Event::Act(Act::Freeze(Whom::Nth(i as u64), long)));
    }

    /// Half the time the caller hears that the connection broke, half the time nothing.
    fn lose(&mut self, reply: oneshot::Sender<Answer>) {
        match self.rng.percent(50) {
            true => drop(reply),
            false => self.silent.push(reply),
        }
    }

    pub(crate) fn deliver(&mut self, event: Event) {
        match event {
            Event::Arrive {
                from,
                request,
                reply,
                fate,
            } => self.arrive(from, &request, reply, fate),
            Event::Answered { answer, reply, to } => {
                if self.is_cut(to.0) {
                    self.lose(reply);
                } else if self.alive(to) {
                    let _ = reply.send(answer);
                }
            }
            Event::Asked { ask, reply } => {
                let chosen = self.route();
                // Nobody is there: the connection is refused.
                if let Some(replica) = chosen.and_then(|i| self.slots[i].replica.as_ref()) {
                    replica.ask(ask, reply);
                }
            }
            Event::Told { told, reply } => drop(reply.send(told)),
            _ => {}
        }
    }

    /// Where the Service of the extender leads: to the pod with the leader's label, now and then to one that was it.
    fn route(&mut self) -> Option<usize> {
        let all: Vec<usize> = (0..self.slots.len()).collect();
        if all.len() == 1 || self.rng.permille(self.odds.wrong_replica) {
            return Some(*self.rng.pick(&all));
        }
        let labelled = |i: &usize| {
            let pod = self
                .store
                .raw(Kind::Pod, &NamespacedName::new(SYSTEM, format!("wattlane-{i}")));
            pod.is_some_and(|raw| text(raw, "/metadata/labels/wattlane.dev~1leader") == "true")
        };
        let labelled: Vec<usize> = all.into_iter().filter(labelled).collect();
        (!labelled.is_empty()).then(|| *self.rng.pick(&labelled))
    }

    fn arrive(&mut self, from: Life, request: &Request, reply: Option<oneshot::Sender<Answer>>, fate: Fate) {
        if let (Who::Replica(i), false) = (from.0, self.alive(from)) {
            // One of several may have been cut off with its machine: then nothing closes its connections.
            if self.slots.len() == 1 && self.now > self.slots[i].died_at + LAST_WORDS {
                return;
            }
            self.count("carried out after the crash");
        }
        let answer = match fate {
            Fate::TurnedAway(status) => Answer::no(status, "made to fail"),
            _ => rules::answer(&mut self.store, request),
        };
        self.note(|| {
            format!(
                "{from:?} {} {} -> {} {fate:?} {}",
                request.method,
                request.path,
                answer.status,
                summary(request)
            )
        });
        let Some(reply) = reply else { return };
        let answer = match fate {
            Fate::AnswerLost { silent: true } => return self.silent.push(reply),
            Fate::AnswerLost { silent: false } => return,
            Fate::DoneBut(status) => Answer::no(status, "made to fail"),
            _ => answer,
        };
        let back = self.now + self.rng.range(1, 5);
        self.later(
            back,
            Event::Answered {
                answer,
                reply,
                to: from,
            },
        );
    }

    /// A bind that is called done must be.
    fn said(&mut self, ask: &Ask, told: &Told) {
        self.note(|| format!("wattlane says {told:?} to {}", words(ask)));
        let (Ask::Bind(body), Told::Bound) = (ask, told) else {
            return;
        };
        let args: Value = serde_json::from_slice(body).expect("our own words");
        let key = NamespacedName::new(text(&args, "/PodNamespace"), text(&args, "/PodName"));
        let pod = self.store.pod(&key).filter(|p| *p.uid == *text(&args, "/PodUID"));
        if let Some(node) = pod
            .map(|p| p.node_name.clone())
            .filter(|n| **n != *text(&args, "/Node"))
        {
            self.fail(format!(
                "bind of {key} to {} was called done, and it is on {node:?}",
                text(&args, "/Node")
            ));
        }
    }
}

fn words(ask: &Ask) -> String {
    let (verb, body) = match ask {
        Ask::Filter(body) => ("filter", body),
        Ask::Prioritize(body) => ("prioritize", body),
        Ask::Bind(body) => return format!("bind {}", String::from_utf8_lossy(body)),
    };
    let args: Value = serde_json::from_slice(body).expect("our own words");
    format!("{verb} {} {}", text(&args, "/Pod/metadata/name"), args["NodeNames"])
}

/// Whether it takes an allocation off a claim, or finds none to take.
fn frees(request: &Request) -> bool {
    let status = request.path.contains("/resourceclaims/") && request.path.ends_with("/status");
    status && request.method == "PUT" && request.body["status"]["allocation"].is_null()
}

/// The devices a write is about.
fn summary(request: &Request) -> String {
    let results = request.body["status"]["allocation"]["devices"]["results"].as_array();
    let devices: Vec<String> = results
        .into_iter()
        .flatten()
        .map(|r| format!("{}/{}", text(r, "/pool"), text(r, "/device")))
        .collect();
    match request.path.ends_with("/binding") {
        true => text(&request.body, "/target/name").to_owned(),
        false => devices.join(","),
    }
}
