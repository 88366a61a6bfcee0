//! The simulated API server's objects: one counter of versions, one log of events a kind. Who may write what is in
//! `rules`; this only keeps.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use wattlane::convert;
use wattlane::index::{Kind, Object};
use wattlane::model::{Claim, NamespacedName, Pod};

/// One change of one object.
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    pub(crate) key: NamespacedName,
    pub(crate) raw: Option<Arc<Value>>,
    /// None: it is gone.
    pub(crate) object: Option<Object>,
    /// As it was before.
    pub(crate) old: Option<Arc<Value>>,
}

struct Stored {
    raw: Arc<Value>,
    object: Object,
}

#[derive(Default)]
pub(crate) struct Store {
    version: u64,
    uids: u64,
    objects: BTreeMap<(Kind, NamespacedName), Stored>,
    leases: BTreeMap<NamespacedName, Value>,
    logs: BTreeMap<Kind, Vec<Arc<Entry>>>,
    /// Written since the host last looked.
    fresh: Vec<Arc<Entry>>,
}

impl Store {
    pub(crate) fn raw(&self, kind: Kind, key: &NamespacedName) -> Option<&Arc<Value>> {
        Some(&self.objects.get(&(kind, key.clone()))?.raw)
    }

    pub(crate) fn all(&self, kind: Kind) -> impl Iterator<Item = (&Object, &Arc<Value>)> {
        let of_kind = self.objects.iter().filter(move |((k, _), _)| *k == kind);
        of_kind.map(|(_, stored)| (&stored.object, &stored.raw))
    }

    pub(crate) fn pod(&self, key: &NamespacedName) -> Option<&Pod> {
        match &self.objects.get(&(Kind::Pod, key.clone()))?.object {
            Object::Pod(pod) => Some(pod),
            _ => None,
        }
    }

    pub(crate) fn claim(&self, key: &NamespacedName) -> Option<&Claim> {
        match &self.objects.get(&(Kind::Claim, key.clone()))?.object {
            Object::Claim(claim) => Some(claim),
            _ => None,
        }
    }

    pub(crate) fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.all(Kind::Pod).filter_map(|(object, _)| match object {
            Object::Pod(pod) => Some(pod),
            _ => None,
        })
    }

    pub(crate) fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.all(Kind::Claim).filter_map(|(object, _)| match object {
            Object::Claim(claim) => Some(claim),
            _ => None,
        })
    }

    pub(crate) fn log(&self, kind: Kind) -> &[Arc<Entry>] {
        self.logs.get(&kind).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn take_fresh(&mut self) -> Vec<Arc<Entry>> {
        std::mem::take(&mut self.fresh)
    }

    /// A new object: the API server gives it a UID.
    pub(crate) fn create(&mut self, mut raw: Value) -> Arc<Value> {
        self.uids += 1;
        raw["metadata"]["uid"] = format!("u{}", self.uids).into();
        self.put(raw)
    }

    /// Stored with a new version; one that changes nothing is not written.
    pub(crate) fn put(&mut self, mut raw: Value) -> Arc<Value> {
        let kind = convert::kind(&raw).unwrap_or_else(|| panic!("not a kind of ours: {raw}"));
        let key = convert::key(kind, &raw).expect("an object has a name");
        let old = self.raw(kind, &key).cloned();
        if let Some(old) = old.as_ref().filter(|old| ***old == raw) {
            return old.clone();
        }
        self.version += 1;
        raw["metadata"]["resourceVersion"] = self.version.to_string().into();
        let object = convert::of_kind(kind, &raw).unwrap_or_else(|e| panic!("{e}: {raw}"));
        let raw = Arc::new(raw);
        let stored = Stored {
            raw: raw.clone(),
            object: object.clone(),
        };
        self.objects.insert((kind, key.clone()), stored);
        self.note(Entry {
            kind,
            key,
            raw: Some(raw.clone()),
            object: Some(object),
            old,
        });
        raw
    }

    pub(crate) fn remove(&mut self, kind: Kind, key: &NamespacedName) {
        if let Some(old) = self.objects.remove(&(kind, key.clone())) {
            self.version += 1;
            self.note(Entry {
                kind,
                key: key.clone(),
                raw: None,
                object: None,
                old: Some(old.raw),
            });
        }
    }

    fn note(&mut self, entry: Entry) {
        let entry = Arc::new(entry);
        self.logs.entry(entry.kind).or_default().push(entry.clone());
        self.fresh.push(entry);
    }

    pub(crate) fn lease(&self, key: &NamespacedName) -> Option<&Value> {
        self.leases.get(key)
    }

    pub(crate) fn put_lease(&mut self, key: &NamespacedName, mut raw: Value) -> Value {
        self.version += 1;
        raw["metadata"]["resourceVersion"] = self.version.to_string().into();
        if raw["metadata"]["uid"].is_null() {
            self.uids += 1;
            raw["metadata"]["uid"] = json!(format!("u{}", self.uids));
        }
        self.leases.insert(key.clone(), raw.clone());
        raw
    }
}

pub(crate) fn text<'a>(raw: &'a Value, pointer: &str) -> &'a str {
    raw.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
