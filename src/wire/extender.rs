//! The scheduler extender protocol (k8s.io/kube-scheduler/extender/v1): arguments in, answers out.
//!
//! Go marshals these types without JSON tags and reads them without regard to case; other callers write lower case.
//! So keys are read in any case, and answers are written with Go's names, field for field. Answers are written
//! straight into bytes: at thousands of nodes a tree of maps costs more than the placement itself.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::WireError;
use super::json::write_string;
use crate::convert::Text;

/// A node's name as the caller wrote it. Where it borrows, it can be written between quotes as it is: that is what makes an
/// answer with thousands of node names cheap.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct NodeName<'a>(#[serde(borrow)] Text<'a>);

impl NodeName<'_> {
    pub fn as_str(&self) -> &str {
        &self.0.0
    }

    fn write(&self, out: &mut Vec<u8>) {
        match &self.0.0 {
            // See `Text`: borrowed means free of anything to escape.
            Cow::Borrowed(text) => {
                out.push(b'"');
                out.extend_from_slice(text.as_bytes());
                out.push(b'"');
            }
            Cow::Owned(text) => write_string(out, text),
        }
    }
}

/// A whole node, for callers without `nodeCacheCapable`. Kept as text: it is only ever sent back.
#[derive(Clone, Debug)]
pub struct NodeItem<'a> {
    pub name: NodeName<'a>,
    raw: &'a RawValue,
}

/// ExtenderArgs of filter and prioritize.
#[derive(Debug)]
pub struct ExtenderArgs<'a> {
    pub pod: &'a RawValue,
    /// The nodes asked about, in the caller's order; answers are aligned with it.
    pub names: Vec<NodeName<'a>>,
    /// Given where the caller sent whole nodes; then it wants whole nodes back.
    nodes: Option<Vec<NodeItem<'a>>>,
    /// Whether it sent `NodeNames`; then it wants names back.
    by_name: bool,
}

impl<'a> ExtenderArgs<'a> {
    /// Unknown fields and nulls are fine; of a key that comes twice the last counts, as in Go.
    pub fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        // At once for the whole body, not for each of thousands of names.
        let text = std::str::from_utf8(body).map_err(|e| WireError(format!("not ExtenderArgs: {e}")))?;
        let raw = match serde_json::from_str::<RawArgs<'a, PlainNames<'a>>>(text) {
            Ok(raw) => raw.named(|plain| plain.0),
            Err(_) => serde_json::from_str(text).map_err(|e| not_these("ExtenderArgs", &e))?,
        };
        let pod = raw
            .pod
            .ok_or_else(|| WireError("ExtenderArgs: no Pod in it: nothing to place".into()))?;
        // An empty list beside whole nodes is how some callers write "none given".
        let whole = raw.nodes.as_ref().is_some_and(|n| !n.is_empty());
        let raw_names = raw.names.filter(|names| !(names.is_empty() && whole));
        let by_name = raw_names.is_some();
        let names = match (raw_names, &raw.nodes) {
            (Some(names), _) => names,
            (None, Some(nodes)) => nodes.iter().map(|n| n.name.clone()).collect(),
            (None, None) => vec![],
        };
        Ok(Self {
            pod,
            names,
            by_name: by_name || raw.nodes.is_none(),
            nodes: raw.nodes,
        })
    }
}

fn not_these(what: &str, error: &serde_json::Error) -> WireError {
    WireError(format!("not {what}: {error}"))
}

/// `N`: how the names are read.
struct RawArgs<'a, N = Vec<NodeName<'a>>> {
    pod: Option<&'a RawValue>,
    nodes: Option<Vec<NodeItem<'a>>>,
    names: Option<N>,
}

impl<'a, N> RawArgs<'a, N> {
    fn named<M>(self, names: impl FnOnce(N) -> M) -> RawArgs<'a, M> {
        RawArgs {
            pod: self.pod,
            nodes: self.nodes,
            names: self.names.map(names),
        }
    }
}

/// A list of names as Go writes it: without space between them and without escapes. Thousands of names are most of a request,
/// and found by their quotes they cost half of what a parser takes. Anything else is an error, and read the usual way.
struct PlainNames<'a>(Vec<NodeName<'a>>);

impl<'a> PlainNames<'a> {
    fn of(list: &'a str) -> Option<Self> {
        /// Shorter than most names with their quotes, so that the list seldom grows.
        const NAME: usize = 24;
        let mut rest = list.strip_prefix("[\"")?;
        let mut names = Vec::with_capacity(list.len() / NAME);
        loop {
            let end = memchr::memchr2(b'"', b'\\', rest.as_bytes())?;
            let (name, after) = rest.split_at(end);
            names.push(NodeName(Text(Cow::Borrowed(name))));
            match after {
                "\"]" => return Some(Self(names)),
                _ => rest = after.strip_prefix("\",\"")?,
            }
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for PlainNames<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let list = <&RawValue>::deserialize(deserializer)?;
        Self::of(list.get()).ok_or_else(|| serde::de::Error::custom("not plain"))
    }
}

impl<'de, N: Deserialize<'de>> Deserialize<'de> for RawArgs<'de, N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<N>(PhantomData<N>);
        impl<'de, N: Deserialize<'de>> Visitor<'de> for Fields<N> {
            type Value = RawArgs<'de, N>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with Pod and Nodes or NodeNames")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut args = RawArgs {
                    pod: None,
                    nodes: None,
                    names: None,
                };
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
        deserializer.deserialize_map(Fields(PhantomData))
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
        struct Node<'a> {
            #[serde(borrow)]
            metadata: Meta<'a>,
        }
        #[derive(Deserialize)]
        struct Meta<'a> {
            #[serde(borrow)]
            name: NodeName<'a>,
        }
        let raw = <&RawValue>::deserialize(deserializer)?;
        let node: Node<'de> = serde_json::from_str(raw.get()).map_err(serde::de::Error::custom)?;
        Ok(Self {
            name: node.metadata.name,
            raw,
        })
    }
}

/// Aligned with the names of the request: whether the node fits, or in which words not. Of thousands of nodes few are
/// refused in different words, so each text is here once.
#[derive(Clone, Debug, Default)]
pub struct Verdicts {
    words: Vec<Arc<str>>,
    /// Position of the words and one more; 0: it fits.
    of: Vec<u32>,
}

impl Verdicts {
    /// Texts looked at to find an equal one.
    const LOOK_BACK: usize = 8;

    pub fn with_capacity(nodes: usize) -> Self {
        Self {
            words: vec![],
            of: Vec::with_capacity(nodes),
        }
    }

    /// The verdict on the next node; None: it fits.
    #[inline]
    pub fn push(&mut self, refusal: Option<&Arc<str>>) {
        let code = refusal.map_or(0, |words| self.code(words));
        self.of.push(code);
    }

    /// Refuses a node with other words.
    pub fn replace(&mut self, at: usize, words: &Arc<str>) {
        let code = self.code(words);
        if let Some(slot) = self.of.get_mut(at) {
            *slot = code;
        }
    }

    fn code(&mut self, words: &Arc<str>) -> u32 {
        let first = self.words.len().saturating_sub(Self::LOOK_BACK);
        let same = |known: &Arc<str>| Arc::ptr_eq(known, words);
        let at = match self.words[first..].iter().rposition(same) {
            Some(at) => first + at,
            None => {
                self.words.push(words.clone());
                self.words.len() - 1
            }
        };
        // There are no more words than nodes, and no body has so many of them.
        u32::try_from(at + 1).unwrap_or(u32::MAX)
    }

    pub fn len(&self) -> usize {
        self.of.len()
    }

    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// None fits, Some says why not.
    pub fn iter(&self) -> impl Iterator<Item = Option<&Arc<str>>> {
        let words = |code: &u32| self.words.get((*code as usize).checked_sub(1)?);
        self.of.iter().map(words)
    }

    /// Positions of the nodes that fit.
    pub fn fitting(&self) -> impl Iterator<Item = usize> + '_ {
        let all = self.of.iter().enumerate();
        all.filter_map(|(at, code)| (*code == 0).then_some(at))
    }

    /// A verdict that is not there is a refusal: nothing passes by accident.
    fn code_of(&self, at: usize) -> u32 {
        self.of.get(at).copied().unwrap_or(u32::MAX)
    }
}

impl FromIterator<Option<Arc<str>>> for Verdicts {
    fn from_iter<I: IntoIterator<Item = Option<Arc<str>>>>(verdicts: I) -> Self {
        let mut all = Self::default();
        verdicts.into_iter().for_each(|verdict| all.push(verdict.as_ref()));
        all
    }
}

/// Writes ExtenderFilterResult. `verdicts` is aligned with `args.names`. Every
/// refusal goes into FailedAndUnresolvableNodes: evicting pods cannot change what an extender says during
/// the in-tree dry run, so a node in FailedNodes would only cost time and confuse the event.
/// A node without a verdict (there are too few) is refused.
pub fn filter_result(args: &ExtenderArgs<'_>, verdicts: &Verdicts) -> Vec<u8> {
    // Each text is escaped once.
    let mut written = vec![];
    let texts = verdicts.words.iter().map(|words| {
        let start = written.len();
        write_string(&mut written, words);
        start..written.len()
    });
    let texts: Vec<_> = texts.collect();
    let judged = || {
        args.names
            .iter()
            .zip(0..)
            .map(|(name, at)| (name, verdicts.code_of(at)))
    };
    let passed = || judged().filter_map(|(name, code)| (code == 0).then_some(name));
    let refusal = |code: u32| match texts.get((code as usize).wrapping_sub(1)) {
        Some(range) => &written[range.clone()],
        None => br#""wattlane gave no verdict on this node""#,
    };
    let bytes = judged().map(|(name, code)| {
        let words = if code == 0 { 0 } else { refusal(code).len() };
        name.as_str().len() + words + 4
    });
    // Of whole nodes that pass there is no telling; names that were escaped take more.
    let mut out = Vec::with_capacity(256 + bytes.sum::<usize>());
    out.extend_from_slice(br#"{"Nodes":"#);
    match &args.nodes {
        None => out.extend_from_slice(b"null"),
        Some(nodes) => {
            out.extend_from_slice(br#"{"metadata":{},"items":["#);
            let fits: HashSet<&str> = passed().map(NodeName::as_str).collect();
            let mut list = Comma::default();
            for node in nodes.iter().filter(|n| fits.contains(n.name.as_str())) {
                list.next(&mut out);
                out.extend_from_slice(node.raw.get().as_bytes());
            }
            out.extend_from_slice(b"]}");
        }
    }
    out.extend_from_slice(br#","NodeNames":"#);
    if args.by_name {
        out.push(b'[');
        let mut list = Comma::default();
        for name in passed() {
            list.next(&mut out);
            name.write(&mut out);
        }
        out.push(b']');
    } else {
        out.extend_from_slice(b"null");
    }
    out.extend_from_slice(br#","FailedNodes":{},"FailedAndUnresolvableNodes":{"#);
    let mut list = Comma::default();
    for (name, code) in judged().filter(|(_, code)| *code != 0) {
        list.next(&mut out);
        name.write(&mut out);
        out.push(b':');
        out.extend_from_slice(refusal(code));
    }
    out.extend_from_slice(br#"},"Error":""}"#);
    out
}

/// Writes the HostPriorityList; `scores` is aligned with `args.names`, a missing one is 0.
pub fn prioritize_result(args: &ExtenderArgs<'_>, scores: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 + args.names.len() * 56);
    out.push(b'[');
    let mut list = Comma::default();
    for (name, score) in args
        .names
        .iter()
        .zip(scores.iter().copied().chain(std::iter::repeat(0)))
    {
        list.next(&mut out);
        out.extend_from_slice(br#"{"Host":"#);
        name.write(&mut out);
        out.extend_from_slice(br#","Score":"#);
        match score {
            0..=9 => out.push(b'0' + score),
            _ => out.extend_from_slice(score.to_string().as_bytes()),
        }
        out.push(b'}');
    }
    out.push(b']');
    out
}

/// ExtenderBindingArgs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BindArgs {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub node: String,
}

impl BindArgs {
    /// All four must be there: a bind without the pod's UID could hit another pod of the same name.
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        let args: Self = serde_json::from_slice(body).map_err(|e| not_these("ExtenderBindingArgs", &e))?;
        for (field, value) in [
            ("PodName", &args.name),
            ("PodNamespace", &args.namespace),
            ("PodUID", &args.uid),
            ("Node", &args.node),
        ] {
            if value.is_empty() {
                return Err(WireError(format!("ExtenderBindingArgs: {field} is missing or empty")));
            }
        }
        Ok(args)
    }
}

impl<'de> Deserialize<'de> for BindArgs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = BindArgs;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with PodName, PodNamespace, PodUID and Node")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut args = BindArgs::default();
                while let Some(Text(key)) = map.next_key()? {
                    let field = match &*key.to_ascii_lowercase() {
                        "podname" => &mut args.name,
                        "podnamespace" => &mut args.namespace,
                        "poduid" => &mut args.uid,
                        "node" => &mut args.node,
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                    *field = map.next_value::<Option<String>>()?.unwrap_or_default();
                }
                Ok(args)
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

/// Writes ExtenderBindingResult; None: bound.
pub fn bind_result(error: Option<&str>) -> Vec<u8> {
    let mut out = br#"{"Error":"#.to_vec();
    write_string(&mut out, error.unwrap_or_default());
    out.push(b'}');
    out
}

/// Separators of a list.
#[derive(Default)]
struct Comma(bool);

impl Comma {
    fn next(&mut self, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.0, true) {
            out.push(b',');
        }
    }
}

#[cfg(test)]
mod tests;
