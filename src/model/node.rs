//! Nodes, namespaces, and the part of label selection that slices and allocations use.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Name, Room};

/// Labels or annotations, shared between snapshots.
pub type Labels = Arc<BTreeMap<Name, Name>>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub name: Name,
    pub uid: Name,
    pub labels: Labels,
    /// Annotations with our prefix (`wattlane.dev/`), nothing else.
    pub annotations: Labels,
    /// Extended resources (a name with a `/`) with an allocatable amount above zero, i.e. those a
    /// device plugin serves on this node.
    pub extended_resources: Vec<Name>,
    /// CPU and memory for pods. None: not published.
    pub allocatable: Option<Room>,
    pub unschedulable: bool,
    /// key, value, effect. Used by the embedded cluster's stand-in for kube-scheduler; the real one
    /// has looked at them before it calls us.
    pub taints: Vec<(Name, Name, Name)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    pub name: Name,
    pub labels: Labels,
    pub deleting: bool,
}

impl Namespace {
    /// Whether the namespace opted in to wattlane.
    pub fn enabled(&self) -> bool {
        self.labels.get("wattlane.dev/enabled").is_some_and(|v| &**v == "true")
    }

    /// Whether claims of this namespace may ask for admin access.
    pub fn admin_access(&self) -> bool {
        self.labels
            .get("resource.kubernetes.io/admin-access")
            .is_some_and(|v| &**v == "true")
    }
}

/// One `matchExpressions` or `matchFields` entry (core/v1 NodeSelectorRequirement).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Requirement {
    pub key: Name,
    /// In, NotIn, Exists, DoesNotExist, Gt, Lt; any other matches nothing.
    pub operator: Name,
    pub values: Vec<Name>,
}

impl Requirement {
    fn matches(&self, value: Option<&str>) -> bool {
        let holds = |v: &str| self.values.iter().any(|x| &**x == v);
        let number = |t: &str| t.parse::<i64>().ok();
        let compare = |less: bool| {
            let (Some(have), [want]) = (value.and_then(number), self.values.as_slice()) else {
                return false;
            };
            number(want).is_some_and(|want| if less { have < want } else { have > want })
        };
        match &*self.operator {
            "In" => value.is_some_and(holds),
            "NotIn" => value.is_none_or(|v| !holds(v)),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            "Gt" => compare(false),
            "Lt" => compare(true),
            _ => false,
        }
    }
}

/// Requirements are ANDed. A term without any matches nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct NodeSelectorTerm {
    pub expressions: Vec<Requirement>,
    pub fields: Vec<Requirement>,
}

/// Terms are ORed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct NodeSelector {
    pub terms: Vec<NodeSelectorTerm>,
}

impl NodeSelector {
    /// The selector an allocation of node-local devices carries.
    pub fn for_node(name: &Name) -> Self {
        let field = Requirement {
            key: "metadata.name".into(),
            operator: "In".into(),
            values: vec![name.clone()],
        };
        Self {
            terms: vec![NodeSelectorTerm {
                expressions: vec![],
                fields: vec![field],
            }],
        }
    }

    pub fn matches(&self, node: &Node) -> bool {
        self.terms.iter().any(|t| {
            !(t.expressions.is_empty() && t.fields.is_empty())
                && t.expressions
                    .iter()
                    .all(|r| r.matches(node.labels.get(&r.key).map(|v| &**v)))
                && t.fields
                    .iter()
                    .all(|r| &*r.key == "metadata.name" && r.matches(Some(&node.name)))
        })
    }
}
