//! What pods ask for: ResourceClaims, templates and DeviceClasses (resource.k8s.io/v1).

use std::sync::Arc;

use super::{Allocation, DeviceCondition, Labels, Name, NamespacedName, QualifiedName, Quantity, Toleration};

/// Selectors are CEL source here; `selector` compiles them. The text is the identity.
pub type SelectorText = Name;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceClass {
    pub name: Name,
    pub selectors: Vec<SelectorText>,
    /// Opaque configuration every claim of the class carries: (driver, JSON text).
    pub config: Vec<(Name, Arc<str>)>,
    pub extended_resource: Option<Name>,
    /// Seconds since the epoch: of two classes for one extended resource the newer wins.
    pub created: i64,
    /// A part this code does not know (a selector kind, say): requests of this class are refused with it.
    pub unsupported: Option<Name>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Count {
    Exactly(u32),
    All,
}

/// What one request, or one alternative of a `firstAvailable` list, asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRequest {
    pub class: Name,
    pub selectors: Vec<SelectorText>,
    pub count: Count,
    pub admin_access: bool,
    pub tolerations: Vec<Toleration>,
    /// Consumable capacity asked for. A name without a domain keeps the empty domain: it means a capacity that the
    /// slice, too, spells without one.
    pub capacity: Vec<(QualifiedName, Quantity)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubRequest {
    pub name: Name,
    pub request: DeviceRequest,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestKind {
    Exactly(DeviceRequest),
    /// In order of preference.
    FirstAvailable(Vec<SubRequest>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub name: Name,
    pub kind: RequestKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConstraintKind {
    MatchAttribute,
    DistinctAttribute,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constraint {
    pub kind: ConstraintKind,
    /// Fully qualified in the API; a name without a domain keeps the empty domain and means the
    /// driver of whatever device is looked at.
    pub attribute: QualifiedName,
    /// Request names, or `request/subrequest`; empty means all requests of the claim.
    pub requests: Vec<Name>,
}

/// Opaque driver configuration of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigEntry {
    /// Request names, or `request/subrequest`; empty means all.
    pub requests: Vec<Name>,
    pub driver: Name,
    /// JSON text, passed on untouched.
    pub parameters: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ClaimSpec {
    pub requests: Vec<Request>,
    pub constraints: Vec<Constraint>,
    pub config: Vec<ConfigEntry>,
    /// A part this code does not know, in words: the claim is refused with it.
    pub unsupported: Option<Name>,
}

/// An entry of `status.reservedFor`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Consumer {
    /// Plural resource; `pods` for pods.
    pub resource: Name,
    pub name: Name,
    pub uid: Name,
}

/// Names of templates that admission makes begin so: for whole cards, and for partitions of cards.
pub const CARDS: &str = "wl-";
pub const PARTITIONS: &str = "wlp-";
/// Those of templates for a part of a card's consumable capacity.
pub const SLOT_TEMPLATES: &str = "wl-slot-";
/// The alternative that is a whole card, in a template that asks for a partition first.
pub const CARD: &str = "card";

/// Hexadecimal digits at the end of such a name: of the hash of the content.
pub const NAME_HASH: usize = 10;

/// Such a name without its hash. None: it is none.
pub fn unhashed(name: &str) -> Option<&str> {
    let (rest, hash) = name.rsplit_once('-')?;
    let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    (hash.len() == NAME_HASH && hash.bytes().all(hex)).then_some(rest)
}

/// What keeps an allocated claim from vanishing (k8s.io/api/resource/v1 `Finalizer`).
pub const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    pub key: NamespacedName,
    pub uid: Name,
    pub resource_version: Name,
    /// Has a deletionTimestamp.
    pub deleting: bool,
    /// Has the finalizer [`FINALIZER`].
    pub protected: bool,
    /// UID of the pod that owns it, where it was made from a template.
    pub owner_pod: Option<Name>,
    /// Has our label; said of claims with the name of a shared one only.
    pub managed: bool,
    /// As that of a template, and of the same claims only.
    pub last_used: i64,
    pub spec: Arc<ClaimSpec>,
    pub allocation: Option<Arc<Allocation>>,
    /// `allocation.allocationTimestamp`, in seconds since the epoch.
    pub allocated_at: Option<i64>,
    /// What drivers report of the allocated devices, as far as somebody waits for it.
    pub conditions: Vec<DeviceCondition>,
    pub reserved_for: Vec<Consumer>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimTemplate {
    pub key: NamespacedName,
    pub uid: Name,
    pub resource_version: Name,
    pub deleting: bool,
    pub labels: Labels,
    /// When admission last answered with it, as far as the object says; else when it was made. Seconds since the epoch.
    pub last_used: i64,
    /// Claims made from it get annotations or labels. Which, nobody here reads; ours never do.
    pub marks_claims: bool,
    pub spec: Arc<ClaimSpec>,
}

/// Resource versions are numbers that grow (said so by the API since 1.35, true of etcd always); others can only be equal.
pub fn not_older(seen: &str, than: &str) -> bool {
    match (seen.parse::<u64>(), than.parse::<u64>()) {
        (Ok(seen), Ok(than)) => seen >= than,
        _ => seen == than,
    }
}
