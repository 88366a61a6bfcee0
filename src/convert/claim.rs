//! ResourceClaims, their templates and DeviceClasses of resource.k8s.io v1, v1beta2 (the same shape) and
//! v1beta1 (the request inline, without `exactly`).

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::ConvertError;
use super::allocation::{RawAllocation, RawConsumer, allocation, salvage};
use super::conditions::conditions;
use super::read::{Amount, List, Map, Meta, Names, Unsupported, read};
use super::slice::effect;
use crate::model::{
    Claim, ClaimSpec, ClaimTemplate, ConfigEntry, Constraint, ConstraintKind, Consumer, Count, DeviceClass,
    DeviceRequest, Effect, FINALIZER, Name, NamespacedName, QualifiedName, Quantity, Request, RequestKind, Share,
    SubRequest, Toleration,
};

#[derive(Deserialize)]
struct Only<'a> {
    #[serde(borrow)]
    metadata: Meta<'a>,
}

#[derive(Deserialize)]
struct OnlyStatus<'a> {
    #[serde(borrow, default)]
    status: Option<Status<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    #[serde(borrow)]
    allocation: Option<RawAllocation<'a>>,
    #[serde(borrow)]
    reserved_for: List<RawConsumer<'a>>,
}

/// The parts that are used of a whole object are read apart from one another: whatever is wrong with a
/// claim's spec, the devices it holds must count.
#[derive(Deserialize)]
struct OnlySpec<'a> {
    #[serde(borrow)]
    spec: RawSpec<'a>,
}

#[derive(Deserialize)]
struct RawSpec<'a> {
    #[serde(borrow)]
    devices: Option<RawDevices<'a>>,
}

#[derive(Deserialize)]
struct RawDevices<'a> {
    #[serde(borrow)]
    requests: List<RawRequest<'a>>,
    #[serde(borrow)]
    constraints: List<RawConstraint<'a>>,
    #[serde(borrow)]
    config: List<RawConfig<'a>>,
}

/// A request of any version, and a sub-request: they differ in what may be there.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawRequest<'a> {
    #[serde(borrow)]
    name: Option<&'a str>,
    #[serde(borrow)]
    exactly: Option<Box<RawRequest<'a>>>,
    #[serde(borrow)]
    first_available: List<RawRequest<'a>>,
    #[serde(borrow)]
    device_class_name: Option<&'a str>,
    #[serde(borrow)]
    selectors: List<RawSelector<'a>>,
    #[serde(borrow)]
    allocation_mode: Option<&'a str>,
    count: Option<i64>,
    admin_access: Option<bool>,
    #[serde(borrow)]
    tolerations: List<RawToleration<'a>>,
    #[serde(borrow)]
    capacity: Option<RawCapacity<'a>>,
}

#[derive(Deserialize)]
struct RawCapacity<'a> {
    #[serde(borrow)]
    requests: Map<'a, Amount>,
}

#[derive(Deserialize)]
struct RawSelector<'a> {
    #[serde(borrow)]
    cel: Option<Cel<'a>>,
}

#[derive(Deserialize)]
struct Cel<'a> {
    expression: &'a str,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawToleration<'a> {
    #[serde(borrow)]
    key: Option<&'a str>,
    #[serde(borrow)]
    operator: Option<&'a str>,
    #[serde(borrow)]
    value: Option<&'a str>,
    #[serde(borrow)]
    effect: Option<&'a str>,
    toleration_seconds: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawConstraint<'a> {
    #[serde(borrow)]
    requests: List<&'a str>,
    #[serde(borrow)]
    match_attribute: Option<&'a str>,
    #[serde(borrow)]
    distinct_attribute: Option<&'a str>,
}

#[derive(Deserialize)]
struct RawConfig<'a> {
    #[serde(borrow)]
    requests: List<&'a str>,
    #[serde(borrow)]
    opaque: Option<Opaque<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Opaque<'a> {
    pub(super) driver: &'a str,
    /// Any JSON; written out again as text.
    #[serde(default)]
    pub(super) parameters: Value,
}

/// Levels of parameters that are passed on. An allocation holds them deeper than the claim does, and must be readable, too.
const DEEPEST: usize = 64;

pub fn claim(value: &Value) -> Result<Claim, ConvertError> {
    let Only { metadata } = read(value)?;
    let mut names = Names::default();
    let mut wrong = None;
    let status = match read::<OnlyStatus<'_>>(value) {
        Ok(OnlyStatus { status }) => status.unwrap_or_default(),
        Err(why) => {
            wrong = Some(Name::from(why.without_object()));
            let allocation = salvage(value).ok_or(why)?;
            Status {
                allocation,
                reserved_for: None,
            }
        }
    };
    let (allocated, reserved) = (status.allocation, status.reserved_for);
    let allocated_at = allocated.as_ref().and_then(|a| seconds(a.allocation_timestamp));
    let allocation = allocated.map(|a| Arc::new(allocation(a, &mut names)));
    let mut spec = spec(value, "", &mut names);
    spec.unsupported = wrong.or(spec.unsupported);
    let conditions = allocation.as_deref().map_or_else(Vec::new, |a| conditions(value, a));
    let key = NamespacedName::new(metadata.namespace(), metadata.name()?);
    let shared = Share::of_name(&key.name).is_some();
    let labels = metadata.labels.as_ref().filter(|_| shared);
    Ok(Claim {
        key,
        uid: metadata.uid(),
        resource_version: metadata.resource_version.unwrap_or_default().into(),
        deleting: metadata.deleting(),
        protected: metadata.finalizers.iter().flatten().any(|f| *f == FINALIZER),
        owner_pod: metadata
            .owner_references
            .iter()
            .flatten()
            .find(|o| o.kind == "Pod" && o.controller == Some(true))
            .map(|o| o.uid.into()),
        managed: labels.is_some_and(|l| l.get(MANAGED_BY.0).is_some_and(|by| by.0 == MANAGED_BY.1)),
        last_used: if shared { last_used(&metadata) } else { 0 },
        spec: Arc::new(spec),
        allocation,
        allocated_at,
        conditions,
        reserved_for: reserved
            .into_iter()
            .flatten()
            .map(|c| Consumer {
                resource: names.of(c.resource),
                name: c.name.into(),
                uid: c.uid.into(),
            })
            .collect(),
    })
}

/// Whether there is more in it than empty parts. As deep as it could be read.
fn says_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(list) => list.iter().any(says_something),
        Value::Object(map) => map.values().any(says_something),
        _ => true,
    }
}

pub(super) fn seconds(time: Option<&str>) -> Option<i64> {
    Some(time?.parse::<jiff::Timestamp>().ok()?.as_second())
}

/// Annotation of our templates and shared claims: when admission last answered with it (RFC 3339).
pub const TEMPLATE_LAST_USED: &str = "wattlane.dev/last-used";

fn last_used(metadata: &Meta<'_>) -> i64 {
    let noted = metadata.annotations.as_ref().and_then(|a| a.get(TEMPLATE_LAST_USED));
    let used = seconds(noted.map(|text| &*text.0)).or_else(|| seconds(metadata.creation_timestamp));
    used.unwrap_or_default()
}

/// Label of what wattlane makes.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "wattlane");

pub fn template(value: &Value) -> Result<ClaimTemplate, ConvertError> {
    let Only { metadata } = read(value)?;
    // The template's `spec` is a whole object of its own: metadata and the claim's spec.
    let inner = value.get("spec").unwrap_or(&Value::Null);
    Ok(ClaimTemplate {
        key: NamespacedName::new(metadata.namespace(), metadata.name()?),
        uid: metadata.uid(),
        resource_version: metadata.resource_version.unwrap_or_default().into(),
        deleting: metadata.deleting(),
        labels: metadata.labels(),
        last_used: last_used(&metadata),
        marks_claims: inner.get("metadata").is_some_and(says_something),
        spec: Arc::new(spec(inner, "spec.", &mut Names::default())),
    })
}

fn spec(object: &Value, path: &str, names: &mut Names) -> ClaimSpec {
    let mut unsupported = Unsupported::default();
    let raw = match read::<OnlySpec<'_>>(object) {
        Ok(OnlySpec { spec }) => spec.devices,
        Err(why) => {
            unsupported.note(format!("{path}{}", why.without_object()));
            None
        }
    };
    let (requests, constraints, config) = raw.map_or((None, None, None), |d| (d.requests, d.constraints, d.config));
    let requests = requests
        .into_iter()
        .flatten()
        .filter_map(|r| request(r, names, &mut unsupported))
        .collect();
    let constraints = constraints
        .into_iter()
        .flatten()
        .enumerate()
        .filter_map(|(i, c)| {
            let (kind, attribute) = match (c.match_attribute, c.distinct_attribute) {
                (Some(a), None) => (ConstraintKind::MatchAttribute, a),
                (None, Some(a)) => (ConstraintKind::DistinctAttribute, a),
                _ => {
                    unsupported.note(format!("constraint {i} is of a kind that is not known here"));
                    return None;
                }
            };
            Some(Constraint {
                kind,
                attribute: undomained(attribute),
                requests: names.all(c.requests),
            })
        })
        .collect();
    let config = config
        .into_iter()
        .flatten()
        .enumerate()
        .filter_map(|(i, c)| {
            let Some(opaque) = c.opaque else {
                unsupported.note(format!("config {i} is of a kind that is not known here"));
                return None;
            };
            Some(ConfigEntry {
                requests: names.all(c.requests),
                driver: names.of(opaque.driver),
                parameters: parameters(&opaque, &mut unsupported),
            })
        })
        .collect();
    ClaimSpec {
        requests,
        constraints,
        config,
        unsupported: unsupported.into_inner(),
    }
}

/// As they will stand in the allocation. Those that would not be what was written are not passed on: a reader of JSON
/// has limits that Go does not have, and what is beyond them comes here as U+FFFD.
fn parameters(opaque: &Opaque<'_>, unsupported: &mut Unsupported) -> Arc<str> {
    let text = opaque.parameters.to_string();
    let wrong = if text.contains('\u{fffd}') {
        "hold what is not read here (text that is not Unicode, a number beyond all measure, or too many levels)"
    } else if is_deeper(&opaque.parameters, DEEPEST) {
        "are nested too deeply"
    } else {
        return text.into();
    };
    unsupported.note(format!("its parameters for {} {wrong}", opaque.driver));
    text.into()
}

fn is_deeper(value: &Value, levels: usize) -> bool {
    let mut below: Box<dyn Iterator<Item = &Value>> = match value {
        Value::Array(list) => Box::new(list.iter()),
        Value::Object(map) => Box::new(map.values()),
        _ => return false,
    };
    levels == 0 || below.any(|v| is_deeper(v, levels - 1))
}

/// A name as it is written: without a domain it keeps the empty domain.
pub(super) fn undomained(text: &str) -> QualifiedName {
    QualifiedName::parse(text, &Name::from(""))
}

fn request(raw: RawRequest<'_>, names: &mut Names, unsupported: &mut Unsupported) -> Option<Request> {
    let name = names.of(raw.name.unwrap_or_default());
    let kind = match raw {
        RawRequest {
            exactly: Some(inner), ..
        } => RequestKind::Exactly(body(*inner, &name, names, unsupported)?),
        RawRequest {
            first_available: Some(list),
            ..
        } if !list.is_empty() => {
            let alternatives = list.into_iter().filter_map(|sub| {
                let sub_name = names.of(sub.name.unwrap_or_default());
                let request = body(sub, &format!("{name}/{sub_name}"), names, unsupported)?;
                Some(SubRequest {
                    name: sub_name,
                    request,
                })
            });
            RequestKind::FirstAvailable(alternatives.collect())
        }
        // v1beta1
        inline if inline.device_class_name.is_some() => RequestKind::Exactly(body(inline, &name, names, unsupported)?),
        _ => {
            unsupported.note(format!("request {name} is of a kind that is not known here"));
            return None;
        }
    };
    Some(Request { name, kind })
}

fn body(raw: RawRequest<'_>, name: &str, names: &mut Names, unsupported: &mut Unsupported) -> Option<DeviceRequest> {
    let Some(class) = raw.device_class_name.filter(|c| !c.is_empty()) else {
        unsupported.note(format!("request {name} names no DeviceClass"));
        return None;
    };
    let count = match raw.allocation_mode.unwrap_or("ExactCount") {
        "All" => Count::All,
        "ExactCount" | "" => match u32::try_from(raw.count.unwrap_or(1)) {
            Ok(n) if n > 0 => Count::Exactly(n),
            _ => {
                unsupported.note(format!("request {name} has a count that is not a positive number"));
                return None;
            }
        },
        mode => {
            unsupported.note(format!(
                "request {name} has the allocation mode {mode:?}, not known here"
            ));
            return None;
        }
    };
    let requests = raw.capacity.and_then(|c| c.requests);
    let mut capacity: Vec<(QualifiedName, Quantity)> = requests
        .into_iter()
        .flatten()
        .map(|(name, amount)| (undomained(name), amount.0))
        .collect();
    capacity.sort_by(|a, b| a.0.cmp(&b.0));
    Some(DeviceRequest {
        class: names.of(class),
        selectors: selectors(raw.selectors, &format!("request {name}"), names, unsupported),
        count,
        admin_access: raw.admin_access.unwrap_or(false),
        tolerations: tolerations(raw.tolerations, names, &mut |why| {
            unsupported.note(format!("request {name}: {why}"));
        }),
        capacity,
    })
}

fn selectors(raw: List<RawSelector<'_>>, place: &str, names: &mut Names, unsupported: &mut Unsupported) -> Vec<Name> {
    raw.into_iter()
        .flatten()
        .filter_map(|s| {
            if s.cel.is_none() {
                unsupported.note(format!("{place} has a selector of a kind that is not known here"));
            }
            Some(names.of(s.cel?.expression))
        })
        .collect()
}

/// A toleration that is not understood tolerates nothing, and is told.
pub(super) fn tolerations(
    raw: List<RawToleration<'_>>,
    names: &mut Names,
    unknown: &mut dyn FnMut(String),
) -> Vec<Toleration> {
    raw.into_iter()
        .flatten()
        .filter_map(|t| {
            let value = match t.operator.filter(|o| !o.is_empty()).unwrap_or("Equal") {
                "Equal" => Some(names.of(t.value.unwrap_or_default())),
                "Exists" => None,
                other => {
                    unknown(format!("the toleration operator {other:?} is not known here"));
                    return None;
                }
            };
            let effect = t.effect.filter(|e| !e.is_empty()).map(effect);
            if effect == Some(Effect::Unknown) {
                unknown("a toleration's effect is not known here".to_owned());
                return None;
            }
            Some(Toleration {
                key: t.key.filter(|k| !k.is_empty()).map(|k| names.of(k)),
                value,
                effect,
                seconds: t.toleration_seconds,
            })
        })
        .collect()
}

#[derive(Deserialize)]
struct ClassRoot<'a> {
    #[serde(borrow)]
    spec: ClassSpec<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct ClassSpec<'a> {
    #[serde(borrow)]
    selectors: List<RawSelector<'a>>,
    #[serde(borrow)]
    config: List<RawConfig<'a>>,
    #[serde(borrow)]
    extended_resource_name: Option<&'a str>,
}

pub fn device_class(value: &Value) -> Result<DeviceClass, ConvertError> {
    let Only { metadata } = read(value)?;
    let (mut names, mut unsupported) = (Names::default(), Unsupported::default());
    let spec = match read::<ClassRoot<'_>>(value) {
        Ok(root) => root.spec,
        Err(why) => {
            unsupported.note(why.without_object());
            ClassSpec::default()
        }
    };
    Ok(DeviceClass {
        name: metadata.name()?.into(),
        selectors: selectors(spec.selectors, "the class", &mut names, &mut unsupported),
        config: spec
            .config
            .into_iter()
            .flatten()
            .filter_map(|c| {
                if c.opaque.is_none() {
                    unsupported.note("the class has a config of a kind that is not known here");
                }
                let opaque = c.opaque?;
                let parameters = parameters(&opaque, &mut unsupported);
                Some((names.of(opaque.driver), parameters))
            })
            .collect(),
        extended_resource: spec.extended_resource_name.filter(|n| !n.is_empty()).map(Name::from),
        created: seconds(metadata.creation_timestamp).unwrap_or(0),
        unsupported: unsupported.into_inner(),
    })
}
