//! Reads a policy file field by field, so that each error has its place and none hides another. What is of the wrong
//! type is said once and then counts as left out; what nobody asked for is unknown.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::read::PolicyError;
use crate::model::alike;

/// Bounds the work of classifying a device, and of reading.
const MOST_ITEMS: usize = 256;
/// Who repairs twenty reads the file again anyway.
const MOST_ERRORS: usize = 20;

/// What is wrong so far.
#[derive(Default)]
pub(super) struct Errors {
    said: Vec<PolicyError>,
    /// Places without a value that could be read: nothing that follows from it is worth saying.
    broken: BTreeSet<String>,
    more: usize,
}

impl Errors {
    pub(super) fn say(&mut self, path: impl Into<String>, message: impl Into<String>) {
        let path = path.into();
        if self.broken.contains(&path) {
            return;
        }
        if self.said.len() == MOST_ERRORS {
            self.more += 1;
            return;
        }
        let message = message.into();
        self.said.push(PolicyError { path, message });
    }

    /// As `say`, of a value that cannot be used at all.
    fn unusable(&mut self, path: &str, message: impl Into<String>) {
        self.say(path, message);
        self.broken.insert(path.to_owned());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.said.is_empty()
    }

    pub(super) fn into_list(mut self) -> Vec<PolicyError> {
        if self.more > 0 {
            let message = format!("and {} more", self.more);
            self.said.push(PolicyError {
                path: String::new(),
                message,
            });
        }
        self.said
    }
}

/// A value with its place. Null reads as left out; where the key is there it is an error when the mapping is closed.
pub(super) struct Field {
    pub(super) path: String,
    value: Value,
}

/// A mapping that is read field by field, and then closed.
pub(super) struct Fields {
    pub(super) path: String,
    map: Map<String, Value>,
    known: Vec<&'static str>,
    /// Keys without a value, as a template leaves them whose value was not set. To take them for left out would make no
    /// limit of a limit.
    empty: Vec<&'static str>,
}

impl Fields {
    pub(super) fn of(path: String, map: Map<String, Value>) -> Self {
        Self {
            path,
            map,
            known: vec![],
            empty: vec![],
        }
    }

    pub(super) fn at(&self, key: &str) -> String {
        match self.path.as_str() {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        }
    }

    /// Each once.
    pub(super) fn field(&mut self, key: &'static str) -> Field {
        self.known.push(key);
        let found = self.map.remove(key);
        if found == Some(Value::Null) {
            self.empty.push(key);
        }
        Field {
            path: self.at(key),
            value: found.unwrap_or_default(),
        }
    }

    /// A text that may not be left out.
    pub(super) fn text_needed(&mut self, key: &'static str, errors: &mut Errors) -> String {
        self.field(key).needed(errors).text(errors).unwrap_or_default()
    }

    /// What is left is unknown.
    pub(super) fn close(self, errors: &mut Errors) {
        for key in &self.empty {
            errors.say(self.at(key), "has no value: give it one, or leave it out");
        }
        for key in self.map.keys() {
            let shown: String = key.chars().take(64).collect();
            let hint = alike::hint(self.known.iter().copied(), key)
                .unwrap_or_else(|| format!("; known are {}", self.known.join(", ")));
            errors.say(self.at(&shown), format!("unknown field{hint}"));
        }
    }
}

/// What stands there instead of what is expected.
fn found(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a mapping".to_owned(),
        Value::String(text) => format!("the text {:?}", text.chars().take(64).collect::<String>()),
        Value::Bool(b) => format!("{b}"),
        Value::Number(n) => format!("the number {n}"),
    }
}

impl Field {
    pub(super) fn is_given(&self) -> bool {
        !self.value.is_null()
    }

    pub(super) fn is_list(&self) -> bool {
        self.value.is_array()
    }

    /// As it is, for those who read several types.
    pub(super) fn any(self) -> Option<Value> {
        self.is_given().then_some(self.value)
    }

    fn wrong<T>(self, expected: &str, errors: &mut Errors) -> Option<T> {
        let message = format!("must be {expected}, not {}", found(&self.value));
        errors.unusable(&self.path, message);
        None
    }

    pub(super) fn text(self, errors: &mut Errors) -> Option<String> {
        match self.value {
            Value::Null => None,
            Value::String(text) => Some(text),
            // YAML reads unquoted digits, true and the like as something else.
            Value::Number(_) | Value::Bool(_) => self.wrong("a text (put it in quotes)", errors),
            _ => self.wrong("a text", errors),
        }
    }

    /// It may not be left out.
    pub(super) fn needed(self, errors: &mut Errors) -> Self {
        if !self.is_given() {
            errors.unusable(&self.path, "is needed");
        }
        self
    }

    pub(super) fn whole(self, errors: &mut Errors) -> Option<i64> {
        match self.value {
            Value::Null => None,
            Value::Number(ref n) if n.is_i64() => n.as_i64(),
            _ => self.wrong("a whole number", errors),
        }
    }

    pub(super) fn count(self, errors: &mut Errors) -> Option<u32> {
        let read = self.value.as_u64().and_then(|n| u32::try_from(n).ok());
        match self.value {
            Value::Null => None,
            _ if read.is_some() => read,
            _ => self.wrong("a whole number, 0 or more", errors),
        }
    }

    pub(super) fn list(self, errors: &mut Errors) -> Vec<Self> {
        let path = self.path.clone();
        let items = match self.value {
            Value::Null => return vec![],
            Value::Array(items) => items,
            _ => return self.wrong("a list", errors).unwrap_or_default(),
        };
        if items.len() > MOST_ITEMS {
            errors.unusable(&path, format!("has {} entries; at most {MOST_ITEMS}", items.len()));
            return vec![];
        }
        let field = |(i, value)| Self {
            path: format!("{path}[{i}]"),
            value,
        };
        items.into_iter().enumerate().map(field).collect()
    }

    /// An entry of a list: nothing is no entry.
    pub(super) fn item(self, errors: &mut Errors) -> Option<Self> {
        match self.value {
            Value::Null => self.wrong("an entry", errors),
            _ => Some(self),
        }
    }

    /// None: left out, or no mapping.
    pub(super) fn mapping(self, errors: &mut Errors) -> Option<Fields> {
        match self.value {
            Value::Null => None,
            Value::Object(map) => Some(Fields::of(self.path, map)),
            _ => self.wrong("a mapping", errors),
        }
    }

    /// The mappings of a list.
    pub(super) fn mappings(self, errors: &mut Errors) -> Vec<Fields> {
        let items = self.list(errors);
        items
            .into_iter()
            .filter_map(|i| i.item(errors)?.mapping(errors))
            .collect()
    }

    /// A mapping with keys of the author's own.
    pub(super) fn entries(self, errors: &mut Errors) -> Vec<(String, Self)> {
        let path = self.path.clone();
        let Some(Fields { map, .. }) = self.mapping(errors) else {
            return vec![];
        };
        let field = |(key, value): (String, Value)| {
            let shown: String = key.chars().take(253).collect();
            let path = format!("{path}[{shown:?}]");
            (key, Self { path, value })
        };
        map.into_iter().map(field).collect()
    }

    /// Such a mapping to texts.
    pub(super) fn text_map(self, errors: &mut Errors) -> BTreeMap<String, String> {
        let entries = self.entries(errors).into_iter();
        entries
            .filter_map(|(key, field)| Some((key, field.item(errors)?.text(errors)?)))
            .collect()
    }
}
