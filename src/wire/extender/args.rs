//! ExtenderArgs of filter and prioritize.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::names::NodeNames;
use super::not_these;
use crate::convert::Text;
use crate::wire::WireError;

/// A whole node, for callers without `nodeCacheCapable`. Kept as text: it is only ever sent back.
#[derive(Clone, Debug)]
pub(super) struct NodeItem<'a> {
    pub(super) name: String,
    pub(super) raw: &'a RawValue,
}

/// ExtenderArgs of filter and prioritize.
#[derive(Debug)]
pub struct ExtenderArgs<'a> {
    pub pod: &'a RawValue,
    /// The nodes asked about, in the caller's order; answers are aligned with it.
    pub names: NodeNames<'a>,
    /// Given where the caller sent whole nodes; then it wants whole nodes back.
    pub(super) nodes: Option<Vec<NodeItem<'a>>>,
    /// Whether it sent `NodeNames`; then it wants names back.
    pub(super) by_name: bool,
}

impl<'a> ExtenderArgs<'a> {
    /// Unknown fields and nulls are fine; of a key that comes twice the last counts, as in Go.
    pub fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        // At once for the whole body, not for each of thousands of names.
        let text = std::str::from_utf8(body).map_err(|e| WireError(format!("not ExtenderArgs: {e}")))?;
        match Self::as_go_writes(text) {
            Some(args) => Ok(args),
            None => Self::as_anybody_writes(text),
        }
    }

    /// Field for field as kube-scheduler sends it with `nodeCacheCapable`. Thousands of names are most of a request, and cut
    /// at their quotes they cost a quarter of what a parser takes. What is not just so is None.
    fn as_go_writes(text: &'a str) -> Option<Self> {
        const BETWEEN: &str = r#","Nodes":null,"NodeNames":["#;
        let rest = text.strip_prefix(r#"{"Pod":"#)?;
        // Quotes within a string are escaped, so these are keys. Were they the pod's, it would not be whole before them.
        let at = memchr::memmem::find(rest.as_bytes(), BETWEEN.as_bytes())?;
        let (pod, names) = rest.split_at(at);
        let pod = serde_json::from_str::<&RawValue>(pod).ok()?;
        let names = NodeNames::plain(names[BETWEEN.len()..].strip_suffix("]}")?)?;
        pod.get().starts_with('{').then_some(Self {
            pod,
            names,
            nodes: None,
            by_name: true,
        })
    }

    fn as_anybody_writes(text: &'a str) -> Result<Self, WireError> {
        let raw: RawArgs<'a> = serde_json::from_str(text).map_err(|e| not_these("ExtenderArgs", &e))?;
        let pod = raw
            .pod
            .ok_or_else(|| WireError("ExtenderArgs: no Pod in it: nothing to place".into()))?;
        // An empty list beside whole nodes is how some callers write "none given".
        let whole = raw.nodes.as_ref().is_some_and(|n| !n.is_empty());
        let raw_names = raw.names.filter(|names| !(names.is_empty() && whole));
        let by_name = raw_names.is_some();
        let names = match (raw_names, &raw.nodes) {
            (Some(names), _) => names.into_iter().map(|name| name.0.into_owned()).collect(),
            (None, Some(nodes)) => nodes.iter().map(|n| n.name.clone()).collect(),
            (None, None) => vec![],
        };
        let names = NodeNames::read(names).ok_or_else(|| WireError("ExtenderArgs: too many names".into()))?;
        Ok(Self {
            pod,
            names,
            by_name: by_name || raw.nodes.is_none(),
            nodes: raw.nodes,
        })
    }
}

#[derive(Default)]
struct RawArgs<'a> {
    pod: Option<&'a RawValue>,
    nodes: Option<Vec<NodeItem<'a>>>,
    names: Option<Vec<Text<'a>>>,
}

impl<'de> Deserialize<'de> for RawArgs<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = RawArgs<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with Pod and Nodes or NodeNames")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut args = RawArgs::default();
                while let Some(Text(key)) = map.next_key()? {
                    if key.eq_ignore_ascii_case("pod") {
                        args.pod = map.next_value()?;
                    } else if key.eq_ignore_ascii_case("nodenames") {
                        args.names = map.next_value()?;
                    } else if key.eq_ignore_ascii_case("nodes") {
                        args.nodes = map.next_value::<Option<NodeList<'de>>>()?.map(|l| l.0);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(args)
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

struct NodeList<'a>(Vec<NodeItem<'a>>);

impl<'de> Deserialize<'de> for NodeList<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = NodeList<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a NodeList")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut items = vec![];
                while let Some(Text(key)) = map.next_key()? {
                    if key.eq_ignore_ascii_case("items") {
                        items = map.next_value::<Option<Vec<NodeItem<'de>>>>()?.unwrap_or_default();
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(NodeList(items))
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

impl<'de> Deserialize<'de> for NodeItem<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Node {
            metadata: Meta,
        }
        #[derive(Deserialize)]
        struct Meta {
            name: String,
        }
        let raw = <&RawValue>::deserialize(deserializer)?;
        let node: Node = serde_json::from_str(raw.get()).map_err(D::Error::custom)?;
        Ok(Self {
            name: node.metadata.name,
            raw,
        })
    }
}
