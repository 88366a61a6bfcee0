//! What people and machines do: pods come and go, processes die, hang and are cut off, drivers restart; and the end of it.

use serde_json::Value;
use wattlane::index::Kind;
use wattlane::model::NamespacedName;

use super::host::{Event, Host, Who};
use super::replica::{Replica, SYSTEM};
use super::rules;
use super::scenario::{Act, Odds, Whom};
use super::scheduler;
use super::store::text;

impl Host {
    pub(crate) fn act(&mut self, act: Act) {
        self.note(|| format!("{act:?}"));
        match act {
            Act::Create(i) => {
                let mut pod = self.scenario.pods[i].clone();
                let second = self.now / 1000;
                pod["metadata"]["creationTimestamp"] =
                    format!("2026-01-01T00:{:02}:{:02}Z", second / 60, second % 60).into();
                let key = NamespacedName::new("team", format!("p{i}"));
                if self.store.pod(&key).is_none() {
                    self.store.create(pod);
                } else if self.now < self.scenario.calm_at {
                    let again = self.now + 2000;
                    self.later(again, Event::Act(Act::Create(i)));
                }
            }
            Act::Delete(n) => self.delete(n, false),
            Act::ForceDelete(n) => self.delete(n, true),
            Act::Finish(n) => {
                let running: Vec<_> = self
                    .store
                    .pods()
                    .filter(|p| !p.node_name.is_empty() && !p.finished && &*p.key.namespace != SYSTEM)
                    .collect();
                let Some(key) = nth(&running, n).map(|p| p.key.clone()) else {
                    return;
                };
                self.count("pod finished");
                let mut raw = Value::clone(self.store.raw(Kind::Pod, &key).expect("just seen"));
                raw["status"]["phase"] = "Succeeded".into();
                self.store.put(raw);
            }
            Act::Crash(i) => {
                let i = self.whom(i);
                let slot = &mut self.slots[i];
                if slot.replica.take().is_some() {
                    slot.died_at = self.now;
                    slot.frozen_until = 0;
                    slot.cut_until = 0;
                    self.cursors.retain(|(who, _), _| *who != Who::Replica(i));
                    self.count("crash");
                    let up = self.now + self.rng.range(300, 8000);
                    self.later(up, Event::Start(i));
                }
            }
            Act::Freeze(i, long) => {
                let i = self.whom(i);
                self.slots[i].frozen_until = self.now + long;
                self.count("replica frozen");
                self.later(self.now + long, Event::Act(Act::Thaw(i)));
            }
            Act::Thaw(i) => {
                let slot = &mut self.slots[i];
                if slot.frozen_until <= self.now {
                    slot.frozen_until = 0;
                    if let Some(replica) = &slot.replica {
                        replica.process.wake(self.now);
                    }
                }
            }
            Act::Partition(i, long) => {
                let i = self.whom(i);
                self.slots[i].cut_until = self.now + long;
                self.count("partition");
            }
            Act::Stall(i, kind, long) => {
                let who = Who::Replica(self.whom(i));
                if let Some(cursor) = self.cursors.get_mut(&(who, kind)) {
                    cursor.stalled_until = self.now + long;
                    self.count("watch stalled");
                }
            }
            Act::Relist => {
                self.count("every watch relisted");
                self.cursors.clear();
            }
            Act::RestartScheduler => {
                self.count("scheduler restarted");
                self.cursors.retain(|(who, _), _| *who != Who::Scheduler);
                self.scheduler_life += 1;
                let rng = self.rng.fork();
                self.scheduler = scheduler::start(self.now, rng, self.odds.other_node, self.odds.second_bind);
            }
            Act::DriverGone(n, long) => {
                let key = NamespacedName::new("", format!("n{n}"));
                let Some(raw) = self.store.raw(Kind::Slice, &key).map(|raw| Value::clone(raw)) else {
                    return;
                };
                self.count("driver restarted");
                self.store.remove(Kind::Slice, &key);
                self.later(self.now + long, Event::Act(Act::DriverBack(Box::new(raw))));
            }
            Act::DriverBack(raw) => drop(self.store.create(*raw)),
        }
    }

    fn whom(&self, whom: Whom) -> usize {
        let lease = self.store.lease(&NamespacedName::new(SYSTEM, "wattlane"));
        let holder = lease.and_then(|raw| text(raw, "/spec/holderIdentity").split('-').next()?.parse().ok());
        let leader: usize = holder.unwrap_or(0);
        match whom {
            Whom::Nth(n) => usize::try_from(n).expect("few replicas"),
            Whom::Leader => leader,
            Whom::Follower => (leader + 1) % self.slots.len(),
        }
    }

    fn delete(&mut self, n: u64, force: bool) {
        let pods: Vec<_> = self
            .store
            .pods()
            .filter(|p| !p.deleting && &*p.key.namespace != SYSTEM)
            .collect();
        let Some((key, bound)) = nth(&pods, n).map(|p| (p.key.clone(), !p.node_name.is_empty() && !p.finished)) else {
            return;
        };
        self.note(|| format!("delete {key}"));
        if bound && !force {
            self.count("running pod deleted");
            rules::mark_deleted(&mut self.store, Kind::Pod, &key);
        } else {
            self.count(if bound {
                "running pod deleted by force"
            } else {
                "waiting pod deleted"
            });
            self.store.remove(Kind::Pod, &key);
        }
        // As a StatefulSet does.
        if self.rng.percent(40)
            && let Some(i) = key.name.strip_prefix('p').and_then(|i| i.parse().ok())
        {
            self.count("pod made again by its name");
            let again = self.now + self.rng.range(1, 3000);
            self.later(again, Event::Act(Act::Create(i)));
        }
    }

    pub(crate) fn start(&mut self, i: usize) {
        let slot = &mut self.slots[i];
        if slot.replica.is_none() {
            slot.life += 1;
            let elected = Host::candidate(&self.scenario, i, slot.life);
            slot.replica = Some(Replica::start(self.now, &self.scenario.policy, elected));
            self.note(|| format!("replica {i} starts"));
        }
    }

    /// No more faults. What is under way goes on.
    pub(crate) fn calm(&mut self) {
        self.note(|| "the faults end".to_owned());
        self.odds = Odds::default();
        for i in 0..self.slots.len() {
            self.slots[i].cut_until = 0;
            if self.slots[i].frozen_until > 0 {
                self.slots[i].frozen_until = self.now;
                self.act(Act::Thaw(i));
            }
        }
        self.later(self.now + 1000, Event::Look);
    }
}

fn nth<T>(from: &[T], n: u64) -> Option<&T> {
    from.get(usize::try_from(n).ok()?.checked_rem(from.len())?)
}
