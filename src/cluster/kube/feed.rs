//! From the events of one kind's watch to changes of the index. No I/O: `watch` moves what this returns.

use kube::runtime::watcher::Event;

use super::raw::Raw;
use crate::index::{Change, Kind, Object, Unreadable};

/// What one event amounts to.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) change: Option<Change>,
    pub(super) unreadable: Option<Unreadable>,
}

pub(super) struct Feed {
    kind: Kind,
    /// Objects of a relist under way. It is published whole, when it is complete: half a list would look like
    /// deletions, and a deleted claim like free devices.
    pending: Option<Vec<Object>>,
}

impl Feed {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, pending: None }
    }

    pub(super) fn take(&mut self, event: Event<Raw>) -> Outcome {
        match event {
            Event::Init => {
                self.pending = Some(vec![]);
                Outcome::default()
            }
            Event::InitApply(raw) => {
                let object = self.read(raw);
                let unreadable = unreadable(&object);
                // A list without a pod takes out what was known of it, as the pod itself would.
                if !matches!(&object, Object::Pod(pod) if !pod.counts()) {
                    self.pending.get_or_insert_default().push(object);
                }
                Outcome {
                    change: None,
                    unreadable,
                }
            }
            Event::InitDone => Outcome {
                change: self.pending.take().map(|objects| Change::Reset(self.kind, objects)),
                unreadable: None,
            },
            Event::Apply(raw) => {
                let object = self.read(raw);
                let unreadable = unreadable(&object);
                Outcome {
                    change: Some(Change::Upsert(object)),
                    unreadable,
                }
            }
            Event::Delete(raw) => Outcome {
                change: Some(Change::Remove(self.kind, raw.key())),
                unreadable: None,
            },
        }
    }

    /// One that cannot be read is handed on as that, never left out: what is not there is free.
    fn read(&self, raw: Raw) -> Object {
        let key = raw.key();
        raw.object(self.kind).unwrap_or_else(|error| {
            let why = error.without_object().into();
            Object::Unreadable(Unreadable {
                kind: self.kind,
                key,
                why,
            })
        })
    }
}

fn unreadable(object: &Object) -> Option<Unreadable> {
    match object {
        Object::Unreadable(unreadable) => Some(unreadable.clone()),
        _ => None,
    }
}
