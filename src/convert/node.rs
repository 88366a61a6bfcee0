//! Nodes, namespaces, RuntimeClasses, and node selectors in both directions.

use serde::Deserialize;
use serde_json::{Value, json};

use super::ConvertError;
use super::read::{Amount, List, Map, Meta, Names, labels, read};
use crate::model::{Name, Namespace, Node, NodeSelector, NodeSelectorTerm, Quantity, Requirement, Room};

#[derive(Deserialize)]
struct Root<'a> {
    #[serde(borrow)]
    metadata: Meta<'a>,
    #[serde(borrow, default)]
    spec: Option<Spec<'a>>,
    #[serde(borrow, default)]
    status: Option<Status<'a>>,
}

#[derive(Deserialize)]
struct Spec<'a> {
    unschedulable: Option<bool>,
    #[serde(borrow)]
    taints: List<RawTaint<'a>>,
}

#[derive(Deserialize)]
struct RawTaint<'a> {
    key: &'a str,
    #[serde(borrow)]
    value: Option<&'a str>,
    #[serde(borrow)]
    effect: Option<&'a str>,
}

#[derive(Deserialize)]
struct Status<'a> {
    #[serde(borrow)]
    allocatable: Map<'a, Amount>,
}

pub fn node(value: &Value) -> Result<Node, ConvertError> {
    of(read(value)?)
}

/// As `pod_of_text`: most of a node is what its kubelet says of images and conditions.
pub fn node_of_text(text: &str) -> Option<Node> {
    of(serde_json::from_str(text).ok()?).ok()
}

fn of(root: Root<'_>) -> Result<Node, ConvertError> {
    let mut names = Names::default();
    let (unschedulable, taints) = root.spec.map_or((None, None), |s| (s.unschedulable, s.taints));
    let allocatable = root.status.and_then(|s| s.allocatable);
    let amount = |name: &str| Some(allocatable.as_ref()?.get(name)?.0);
    let room = amount("cpu").zip(amount("memory"));
    Ok(Node {
        name: root.metadata.name()?.into(),
        uid: root.metadata.uid(),
        labels: root.metadata.labels(),
        annotations: labels(root.metadata.annotations.as_ref(), |k| k.starts_with("wattlane.dev/")),
        extended_resources: allocatable
            .into_iter()
            .flatten()
            .filter(|(name, amount)| is_extended(name) && amount.0 > Quantity::ZERO)
            .map(|(name, _)| names.of(name))
            .collect(),
        allocatable: room.map(|(cpu, memory)| Room::of(cpu, memory)),
        unschedulable: unschedulable.unwrap_or(false),
        taints: taints
            .into_iter()
            .flatten()
            .map(|t| {
                let mut name = |t: Option<&str>| names.of(t.unwrap_or_default());
                (name(Some(t.key)), name(t.value), name(t.effect))
            })
            .collect(),
    })
}

/// Whether a resource name is one that a device plugin or DRA serves (`IsExtendedResourceName` upstream).
pub(super) fn is_extended(name: &str) -> bool {
    name.split_once('/').is_some_and(|(domain, _)| {
        // `kubernetes.io/…` is native; `deviceclass.resource.kubernetes.io/…` is the implicit name of a DeviceClass.
        !domain.starts_with("requests.")
            && (domain == "deviceclass.resource.kubernetes.io"
                || !(domain == "kubernetes.io" || domain.ends_with(".kubernetes.io")))
    })
}

#[derive(Deserialize)]
struct NamespaceRoot<'a> {
    #[serde(borrow)]
    metadata: Meta<'a>,
    #[serde(borrow, default)]
    status: Option<Phase<'a>>,
}

#[derive(Deserialize)]
struct Phase<'a> {
    #[serde(borrow)]
    phase: Option<&'a str>,
}

pub fn namespace(value: &Value) -> Result<Namespace, ConvertError> {
    let root: NamespaceRoot<'_> = read(value)?;
    let terminating = root.status.is_some_and(|s| s.phase == Some("Terminating"));
    Ok(Namespace {
        name: root.metadata.name()?.into(),
        labels: root.metadata.labels(),
        deleting: root.metadata.deleting() || terminating,
    })
}

#[derive(Deserialize)]
struct MetaRoot<'a> {
    #[serde(borrow)]
    metadata: Meta<'a>,
}

pub fn runtime_class(value: &Value) -> Result<Name, ConvertError> {
    let root: MetaRoot<'_> = read(value)?;
    Ok(root.metadata.name()?.into())
}

/// core/v1 NodeSelector.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawSelector<'a> {
    #[serde(borrow)]
    node_selector_terms: List<RawTerm<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawTerm<'a> {
    #[serde(borrow)]
    match_expressions: List<RawRequirement<'a>>,
    #[serde(borrow)]
    match_fields: List<RawRequirement<'a>>,
}

#[derive(Deserialize)]
struct RawRequirement<'a> {
    key: &'a str,
    operator: &'a str,
    #[serde(borrow)]
    values: List<&'a str>,
}

pub(super) fn selector(raw: RawSelector<'_>, names: &mut Names) -> NodeSelector {
    let mut requirements = |list: List<RawRequirement<'_>>| -> Vec<Requirement> {
        list.into_iter()
            .flatten()
            .map(|r| Requirement {
                key: names.of(r.key),
                operator: names.of(r.operator),
                values: names.all(r.values),
            })
            .collect()
    };
    NodeSelector {
        terms: raw
            .node_selector_terms
            .into_iter()
            .flatten()
            .map(|t| NodeSelectorTerm {
                expressions: requirements(t.match_expressions),
                fields: requirements(t.match_fields),
            })
            .collect(),
    }
}

pub(super) fn selector_json(selector: &NodeSelector) -> Value {
    let requirements = |list: &[Requirement]| -> Vec<Value> {
        list.iter()
            .map(|r| {
                let mut out = json!({"key": &*r.key, "operator": &*r.operator});
                if !r.values.is_empty() {
                    out["values"] = r.values.iter().map(|v| &**v).collect();
                }
                out
            })
            .collect()
    };
    let terms = selector.terms.iter().map(|t| {
        let mut term = json!({});
        if !t.expressions.is_empty() {
            term["matchExpressions"] = requirements(&t.expressions).into();
        }
        if !t.fields.is_empty() {
            term["matchFields"] = requirements(&t.fields).into();
        }
        term
    });
    json!({"nodeSelectorTerms": terms.collect::<Vec<_>>()})
}
