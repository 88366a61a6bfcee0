//! Reading pieces of JSON into typed shapes with the path of what is wrong. Knows no kind.
//!
//! The shapes used here read only what is used: unknown fields are skipped, `null` is absent (Go clients
//! write it), and text is borrowed until a model value is made of it.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use serde_json::Value;

use super::ConvertError;
use crate::model::{Labels, Name, Quantity};

/// A list that may be absent or null.
pub(super) type List<T> = Option<Vec<T>>;
/// A map that may be absent or null.
pub(super) type Map<'a, T> = Option<BTreeMap<&'a str, T>>;

/// Reads the shape; the error carries the path from the object's root.
pub(super) fn read<'a, T: Deserialize<'a>>(value: &'a Value) -> Result<T, ConvertError> {
    serde_path_to_error::deserialize(value).map_err(|e| {
        let path = e.path().to_string();
        ConvertError::at(
            if path == "." { "" } else { &path },
            e.into_inner().to_string().replace("a borrowed string", "a string"),
        )
    })
}

/// Names repeat a lot within an object (a slice says the same sixteen attribute names for every
/// device): each text is kept once per object.
#[derive(Default)]
pub(super) struct Names(HashSet<Name>);

impl Names {
    pub(super) fn of(&mut self, text: &str) -> Name {
        if let Some(name) = self.0.get(text) {
            return name.clone();
        }
        let name: Name = text.into();
        self.0.insert(name.clone());
        name
    }

    pub(super) fn all(&mut self, list: List<&str>) -> Vec<Name> {
        list.into_iter().flatten().map(|t| self.of(t)).collect()
    }
}

/// The first part of an object that this code does not know, in words.
#[derive(Default)]
pub(super) struct Unsupported(Option<Name>);

impl Unsupported {
    pub(super) fn note(&mut self, words: impl Into<Name>) {
        if self.0.is_none() {
            self.0 = Some(words.into());
        }
    }

    pub(super) fn into_inner(self) -> Option<Name> {
        self.0
    }
}

/// `metadata`, as far as it is used.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Meta<'a> {
    #[serde(borrow)]
    name: Option<&'a str>,
    #[serde(borrow)]
    namespace: Option<&'a str>,
    #[serde(borrow)]
    pub(super) uid: Option<&'a str>,
    #[serde(borrow)]
    pub(super) resource_version: Option<&'a str>,
    #[serde(borrow)]
    pub(super) labels: Map<'a, Text<'a>>,
    #[serde(borrow)]
    pub(super) annotations: Map<'a, Text<'a>>,
    #[serde(borrow)]
    pub(super) creation_timestamp: Option<&'a str>,
    #[serde(borrow)]
    pub(super) deletion_timestamp: Option<&'a str>,
    #[serde(borrow)]
    pub(super) owner_references: List<Owner<'a>>,
    #[serde(borrow)]
    pub(super) finalizers: List<&'a str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Owner<'a> {
    #[serde(borrow)]
    pub(super) api_version: Option<&'a str>,
    pub(super) kind: &'a str,
    pub(super) uid: &'a str,
    pub(super) controller: Option<bool>,
}

impl<'a> Meta<'a> {
    pub(super) fn name(&self) -> Result<&'a str, ConvertError> {
        self.name
            .filter(|n| !n.is_empty())
            .ok_or_else(|| ConvertError::at("metadata.name", "missing: every object needs a name"))
    }

    /// An object without a namespace is in `default`, as kubectl has it.
    pub(super) fn namespace(&self) -> &'a str {
        self.namespace.filter(|n| !n.is_empty()).unwrap_or("default")
    }

    pub(super) fn uid(&self) -> Name {
        self.uid.unwrap_or_default().into()
    }

    pub(super) fn deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    pub(super) fn labels(&self) -> Labels {
        labels(self.labels.as_ref(), |_| true)
    }
}

/// Those labels or annotations whose key is wanted.
pub(super) fn labels(map: Option<&BTreeMap<&str, Text<'_>>>, wanted: impl Fn(&str) -> bool) -> Labels {
    let map = map.into_iter().flatten();
    Arc::new(
        map.filter(|(k, _)| wanted(k))
            .map(|(k, v)| (Name::from(*k), Name::from(&*v.0)))
            .collect(),
    )
}

/// A string that borrows from the input where it can. (serde's own `Cow` always copies inside a list.)
///
/// Where it borrows from JSON text, it stood there between quotes without an escape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text<'a>(pub Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Words;
        impl<'de> Visitor<'de> for Words {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Words)
    }
}

/// A quantity, written as a string or as a number.
#[derive(Clone, Copy)]
pub(super) struct Amount(pub(super) Quantity);

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Amount;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a quantity (like 2, 500m, 16Gi)")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Amount, E> {
                text.trim().parse().map(Amount).map_err(E::custom)
            }
            fn visit_i64<E: de::Error>(self, n: i64) -> Result<Amount, E> {
                Ok(Amount(Quantity::from_integer(n)))
            }
            fn visit_u64<E: de::Error>(self, n: u64) -> Result<Amount, E> {
                self.visit_str(&n.to_string())
            }
            fn visit_f64<E: de::Error>(self, n: f64) -> Result<Amount, E> {
                self.visit_str(&n.to_string())
            }
        }
        deserializer.deserialize_any(Text)
    }
}
