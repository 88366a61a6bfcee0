//! Watches: each kind comes to each client by a way of its own, in order within the kind and in no order between kinds;
//! late, doubled, stalled, or broken, after which the client lists again.

use std::sync::Arc;

use tokio::sync::mpsc;
use wattlane::index::Kind;

use super::host::{Event, Feed, Host, Who};
use super::store::Entry;

pub(crate) struct Cursor {
    id: u64,
    feed: mpsc::UnboundedSender<Feed>,
    /// Position in the kind's log.
    next: usize,
    /// A step is due.
    busy: bool,
    /// Usual delay of this watch in milliseconds.
    usual: u64,
    pub(crate) stalled_until: u64,
}

impl Host {
    pub(crate) fn feed(&mut self, event: Event) {
        match event {
            Event::List { to, kind, feed } => {
                if !self.alive(to) {
                    return;
                }
                if self.is_cut(to.0) {
                    // Tried again until it gets through.
                    let again = self.now + self.rng.range(300, 2000);
                    return self.later(again, Event::List { to, kind, feed });
                }
                let list = |(object, raw): (&wattlane::index::Object, &Arc<serde_json::Value>)| {
                    Arc::new(Entry {
                        kind,
                        key: object.key(),
                        raw: Some(raw.clone()),
                        object: Some(object.clone()),
                        old: None,
                    })
                };
                let entries = self.store.all(kind).map(list).collect();
                self.cursor_ids += 1;
                let most = if self.odds.slow_watches { 2500 } else { 30 };
                let took = self.rng.range(2, most.min(400));
                let cursor = Cursor {
                    id: self.cursor_ids,
                    feed: feed.clone(),
                    next: self.store.log(kind).len(),
                    busy: true,
                    usual: self.rng.range(0, most),
                    stalled_until: 0,
                };
                let id = cursor.id;
                self.cursors.insert((to.0, kind), cursor);
                self.later(self.now + took, Event::Listed { entries, feed });
                self.later(
                    self.now + took + 1,
                    Event::Step {
                        who: to.0,
                        kind,
                        cursor: id,
                    },
                );
            }
            Event::Listed { entries, feed } => drop(feed.send(Feed::List(entries))),
            Event::Step { who, kind, cursor } => self.step(who, kind, cursor),
            _ => {}
        }
    }

    /// Something of the kind was written.
    pub(crate) fn announce(&mut self, kind: Kind) {
        let all = self.cursors.iter_mut().filter(|((_, k), c)| *k == kind && !c.busy);
        let mut due = vec![];
        for ((who, _), cursor) in all {
            cursor.busy = true;
            due.push((*who, cursor.id, cursor.usual, cursor.stalled_until));
        }
        for (who, cursor, usual, stalled) in due {
            let at = (self.now + usual + self.rng.range(0, 5)).max(stalled);
            self.later(at, Event::Step { who, kind, cursor });
        }
    }

    fn step(&mut self, who: Who, kind: Kind, id: u64) {
        if self.cursors.get(&(who, kind)).is_none_or(|c| c.id != id) {
            return;
        }
        let odds = &self.odds;
        let (broken, stalled, doubled) = (odds.broken_watch, odds.stalled_watch, odds.doubled_event);
        if self.is_cut(who) {
            let again = self.now + 500;
            return self.later(again, Event::Step { who, kind, cursor: id });
        }
        let stall = self.cursors.get(&(who, kind)).map_or(0, |c| c.stalled_until);
        if stall > self.now {
            return self.later(stall, Event::Step { who, kind, cursor: id });
        }
        if self.rng.permille(broken) {
            self.count("watch broken, listed again");
            self.note(|| format!("{who:?} {} watch breaks", kind.as_str()));
            self.cursors.remove(&(who, kind));
            return;
        }
        if self.rng.permille(stalled) {
            self.count("watch stalled");
            let until = self.now + self.rng.range(500, 30_000);
            self.note(|| format!("{who:?} {} watch stalls until {until}", kind.as_str()));
            return self.later(until, Event::Step { who, kind, cursor: id });
        }
        let log = self.store.log(kind);
        let Some(cursor) = self.cursors.get_mut(&(who, kind)) else {
            return;
        };
        let Some(entry) = log.get(cursor.next) else {
            cursor.busy = false;
            return;
        };
        let _ = cursor.feed.send(Feed::Event(entry.clone()));
        cursor.next += 1;
        let more = cursor.next < log.len();
        cursor.busy = more;
        let entry = entry.clone();
        if self.rng.permille(doubled) {
            self.count("event doubled");
            if let Some(cursor) = self.cursors.get(&(who, kind)) {
                let _ = cursor.feed.send(Feed::Event(entry.clone()));
            }
        }
        self.note(|| {
            format!(
                "{who:?} sees {} {} {}",
                kind.as_str(),
                entry.key,
                if entry.raw.is_some() { "" } else { "gone" }
            )
        });
        if more {
            let most = match (who, kind) {
                (Who::Replica(_), Kind::Claim) => self.odds.trickle.max(6),
                _ => 6,
            };
            let next = self.now + self.rng.range(0, most);
            self.later(next, Event::Step { who, kind, cursor: id });
        }
    }
}
