//! Objects that are there and cannot be read. What is known of one is from before, or nothing.
//!
//! One that gives is taken out: without its slice a pool is incomplete, without their template pods wait. One that takes
//! or forbids is another matter, since to be without it is to give more: a claim or a pod may hold devices, a node's
//! labels put them under a budget, a DeviceClass says which pods of a device plugin hold cards, a taint rule keeps some
//! from all. What was known of it stays, and while it cannot be read nothing is given.

use std::collections::BTreeMap;

use super::{Index, Key, Kind, Unreadable};
use crate::model::Name;

/// By kind and key, why. Only those that forbid giving.
#[derive(Default)]
pub(super) struct Unread(BTreeMap<(Kind, Key), Name>);

impl Unread {
    pub(super) fn keys(&self, kind: Kind) -> Vec<Key> {
        let of_kind = self.0.keys().filter(|(k, _)| *k == kind);
        of_kind.map(|(_, key)| key.clone()).collect()
    }

    /// The words of a refusal; None: everything is read.
    pub(super) fn words(&self) -> Option<String> {
        let ((kind, key), why) = self.0.first_key_value()?;
        let more = match self.0.len() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more objects)"),
        };
        let (kind, key) = (kind.as_str(), key.to_string());
        let key = key.trim_start_matches('/');
        Some(format!(
            "{kind} {key} cannot be read ({why}){more}: what it holds or forbids is not known, so nothing is given until it is deleted \
             or readable"
        ))
    }
}

impl Index {
    pub(super) fn set_unread(&mut self, object: Unreadable) {
        let Unreadable { kind, key, why } = object;
        match kind {
            Kind::Slice | Kind::Template | Kind::Namespace | Kind::RuntimeClass => self.remove(kind, &key),
            Kind::Claim | Kind::Pod | Kind::Node | Kind::Class | Kind::TaintRule => {
                self.unread.0.insert((kind, key), why);
                self.say_unread();
            }
        }
    }

    /// It was read, or is gone.
    pub(super) fn read_again(&mut self, kind: Kind, key: &Key) {
        if !self.unread.0.is_empty() && self.unread.0.remove(&(kind, key.clone())).is_some() {
            self.say_unread();
        }
    }

    fn say_unread(&mut self) {
        let words = self.unread.words().map(Name::from);
        if self.snapshot.unread != words {
            // Pods that were refused for it are worth another try.
            self.loosened |= words.is_none();
            self.snapshot.unread = words;
            self.changed = true;
        }
    }
}
