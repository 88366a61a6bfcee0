//! The kinds we keep and one object of any of them. What to do with them is not decided here.

use crate::model::{Claim, ClaimTemplate, DeviceClass, Name, Namespace, NamespacedName, Node, Pod, Slice, TaintRule};

/// The kinds we watch. A closed set: metric label and readiness latch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Node,
    Pod,
    Namespace,
    Slice,
    Claim,
    Template,
    Class,
    RuntimeClass,
    TaintRule,
}

impl Kind {
    pub const ALL: [Self; 9] = [
        Self::Node,
        Self::Pod,
        Self::Namespace,
        Self::Slice,
        Self::Claim,
        Self::Template,
        Self::Class,
        Self::RuntimeClass,
        Self::TaintRule,
    ];

    /// The Kubernetes kind.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::Pod => "Pod",
            Self::Namespace => "Namespace",
            Self::Slice => "ResourceSlice",
            Self::Claim => "ResourceClaim",
            Self::Template => "ResourceClaimTemplate",
            Self::Class => "DeviceClass",
            Self::RuntimeClass => "RuntimeClass",
            Self::TaintRule => "DeviceTaintRule",
        }
    }

    /// The API group its kind belongs to; empty for the core group.
    pub fn group(self) -> &'static str {
        match self {
            Self::Node | Self::Pod | Self::Namespace => "",
            Self::Slice | Self::Claim | Self::Template | Self::Class | Self::TaintRule => "resource.k8s.io",
            Self::RuntimeClass => "node.k8s.io",
        }
    }

    pub fn namespaced(self) -> bool {
        matches!(self, Self::Pod | Self::Claim | Self::Template)
    }
}

/// One object of a kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    Node(Node),
    Pod(Pod),
    Namespace(Namespace),
    Slice(Slice),
    Claim(Claim),
    Template(ClaimTemplate),
    Class(DeviceClass),
    RuntimeClass(Name),
    TaintRule(TaintRule),
    Unreadable(Unreadable),
}

/// An object that is there and cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    pub kind: Kind,
    pub key: Key,
    /// Where in it, and what is wrong.
    pub why: Name,
}

/// Key of an object; cluster-scoped kinds have an empty namespace.
pub type Key = NamespacedName;

impl Object {
    pub fn kind(&self) -> Kind {
        match self {
            Self::Node(_) => Kind::Node,
            Self::Pod(_) => Kind::Pod,
            Self::Namespace(_) => Kind::Namespace,
            Self::Slice(_) => Kind::Slice,
            Self::Claim(_) => Kind::Claim,
            Self::Template(_) => Kind::Template,
            Self::Class(_) => Kind::Class,
            Self::RuntimeClass(_) => Kind::RuntimeClass,
            Self::TaintRule(_) => Kind::TaintRule,
            Self::Unreadable(o) => o.kind,
        }
    }

    pub fn key(&self) -> Key {
        let cluster = |name: &Name| Key::new("", name.clone());
        match self {
            Self::Node(o) => cluster(&o.name),
            Self::Namespace(o) => cluster(&o.name),
            Self::Slice(o) => cluster(&o.name),
            Self::Class(o) => cluster(&o.name),
            Self::RuntimeClass(name) => cluster(name),
            Self::TaintRule(o) => cluster(&o.name),
            Self::Pod(o) => o.key.clone(),
            Self::Claim(o) => o.key.clone(),
            Self::Template(o) => o.key.clone(),
            Self::Unreadable(o) => o.key.clone(),
        }
    }
}
