//! From the events of one kind's watch to changes of the index. No I/O: `watch` moves what this returns.

use kube::runtime::watcher::Event;

use super::raw::Raw;
use crate::convert;
use crate::index::{Change, Key, Kind, Object};

/// An object that could not be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Undecodable {
    pub(super) key: Key,
    pub(super) why: String,
}

/// What one event amounts to.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) change: Option<Change>,
    pub(super) undecodable: Option<Undecodable>,
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
                let (key, read) = self.read(raw);
                match read {
                    Ok(object) => {
                        self.pending.get_or_insert_default().push(object);
                        Outcome::default()
                    }
                    Err(why) => Outcome {
                        change: None,
                        undecodable: Some(Undecodable { key, why }),
                    },
                }
            }
            Event::InitDone => Outcome {
                change: self.pending.take().map(|objects| Change::Reset(self.kind, objects)),
                undecodable: None,
            },
            Event::Apply(raw) => {
                let (key, read) = self.read(raw);
                match read {
                    Ok(object) => Outcome {
                        change: Some(Change::Upsert(object)),
                        undecodable: None,
                    },
                    // What is known of it is out of date, and its deletion will not be readable either.
                    Err(why) => Outcome {
                        change: Some(Change::Remove(self.kind, key.clone())),
                        undecodable: Some(Undecodable { key, why }),
                    },
                }
            }
            Event::Delete(raw) => Outcome {
                change: Some(Change::Remove(self.kind, raw.key())),
                undecodable: None,
            },
        }
    }

    fn read(&self, raw: Raw) -> (Key, Result<Object, String>) {
        let key = raw.key();
        let read = convert::of_kind(self.kind, &raw.into_doc()).map_err(|e| e.without_object());
        (key, read)
    }
}
