//! ResourceSlices of resource.k8s.io v1, v1beta2 (the same shape) and v1beta1 (devices wrapped in `basic`).

use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::ConvertError;
use super::node::{RawSelector, selector};
use super::read::{Amount, List, Map, Meta, Names, Unsupported, read};
use crate::model::{
    AttributeValue, Capacity, CounterConsumption, CounterSet, Device, Effect, Name, NodeScope, QualifiedName, Quantity,
    RequestPolicy, Slice, Taint,
};

#[derive(Deserialize)]
struct Root<'a> {
    #[serde(borrow)]
    metadata: Meta<'a>,
    #[serde(borrow)]
    spec: Spec<'a>,
}

/// Without devices and counters: what must be readable so that the pool is known at all.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    metadata: Meta<'a>,
    #[serde(borrow)]
    spec: EnvelopeSpec<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EnvelopeSpec<'a> {
    driver: &'a str,
    #[serde(borrow)]
    pool: RawPool<'a>,
    #[serde(borrow)]
    node_name: Option<&'a str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    driver: &'a str,
    #[serde(borrow)]
    pool: RawPool<'a>,
    #[serde(borrow)]
    node_name: Option<&'a str>,
    all_nodes: Option<bool>,
    #[serde(borrow)]
    node_selector: Option<RawSelector<'a>>,
    per_device_node_selection: Option<bool>,
    #[serde(borrow)]
    devices: List<RawDevice<'a>>,
    #[serde(borrow)]
    shared_counters: List<RawCounterSet<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawPool<'a> {
    name: &'a str,
    generation: Option<i64>,
    resource_slice_count: Option<i64>,
}

#[derive(Deserialize)]
struct RawCounterSet<'a> {
    name: &'a str,
    #[serde(borrow)]
    counters: Map<'a, RawCounter>,
}

#[derive(Deserialize)]
struct RawCounter {
    value: Amount,
}

#[derive(Deserialize)]
struct RawDevice<'a> {
    name: &'a str,
    /// v1beta1
    #[serde(borrow)]
    basic: Option<RawBody<'a>>,
    // Flattened by hand: serde's flatten buffers everything and loses the path of an error.
    #[serde(borrow)]
    attributes: Map<'a, RawAttribute<'a>>,
    #[serde(borrow)]
    capacity: Map<'a, RawCapacity>,
    #[serde(borrow, rename = "consumesCounters")]
    consumes_counters: List<RawConsumption<'a>>,
    #[serde(borrow, rename = "nodeName")]
    node_name: Option<&'a str>,
    #[serde(rename = "allNodes")]
    all_nodes: Option<bool>,
    #[serde(borrow, rename = "nodeSelector")]
    node_selector: Option<RawSelector<'a>>,
    #[serde(borrow)]
    taints: List<RawTaint<'a>>,
    #[serde(rename = "bindsToNode")]
    binds_to_node: Option<bool>,
    #[serde(borrow, rename = "bindingConditions")]
    binding_conditions: List<&'a str>,
    #[serde(borrow, rename = "bindingFailureConditions")]
    binding_failure_conditions: List<&'a str>,
    #[serde(rename = "allowMultipleAllocations")]
    allow_multiple: Option<bool>,
    #[serde(borrow, rename = "nodeAllocatableResourceMappings")]
    node_resources: Map<'a, IgnoredAny>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct RawBody<'a> {
    #[serde(borrow)]
    attributes: Map<'a, RawAttribute<'a>>,
    #[serde(borrow)]
    capacity: Map<'a, RawCapacity>,
    #[serde(borrow)]
    consumes_counters: List<RawConsumption<'a>>,
    #[serde(borrow)]
    node_name: Option<&'a str>,
    all_nodes: Option<bool>,
    #[serde(borrow)]
    node_selector: Option<RawSelector<'a>>,
    #[serde(borrow)]
    taints: List<RawTaint<'a>>,
    binds_to_node: Option<bool>,
    #[serde(borrow)]
    binding_conditions: List<&'a str>,
    #[serde(borrow)]
    binding_failure_conditions: List<&'a str>,
    #[serde(rename = "allowMultipleAllocations")]
    allow_multiple: Option<bool>,
    #[serde(borrow, rename = "nodeAllocatableResourceMappings")]
    node_resources: Map<'a, IgnoredAny>,
}

#[derive(Deserialize)]
struct RawAttribute<'a> {
    int: Option<i64>,
    bool: Option<bool>,
    #[serde(borrow)]
    string: Option<&'a str>,
    #[serde(borrow)]
    version: Option<&'a str>,
    ints: List<i64>,
    bools: List<bool>,
    #[serde(borrow)]
    strings: List<&'a str>,
    #[serde(borrow)]
    versions: List<&'a str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawCapacity {
    value: Amount,
    request_policy: Option<RawPolicy>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawPolicy {
    default: Option<Amount>,
    valid_values: List<Amount>,
    valid_range: Option<RawRange>,
}

#[derive(Deserialize)]
struct RawRange {
    min: Amount,
    max: Option<Amount>,
    step: Option<Amount>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawConsumption<'a> {
    counter_set: &'a str,
    #[serde(borrow)]
    counters: Map<'a, RawCounter>,
}

#[derive(Deserialize)]
pub(super) struct RawTaint<'a> {
    pub(super) key: &'a str,
    #[serde(borrow)]
    pub(super) value: Option<&'a str>,
    pub(super) effect: &'a str,
}

/// Devices that cannot be read make their pool unusable, by name, and nothing else: only a slice whose
/// pool cannot be told is an error.
pub fn slice(value: &Value) -> Result<Slice, ConvertError> {
    match read::<Root<'_>>(value) {
        Ok(root) => of(root),
        Err(why) => {
            let Ok(Envelope { metadata, spec }) = read(value) else {
                return Err(why);
            };
            Ok(Slice {
                name: metadata.name()?.into(),
                driver: spec.driver.into(),
                pool: spec.pool.name.into(),
                generation: spec.pool.generation.unwrap_or(0),
                slice_count: spec.pool.resource_slice_count.unwrap_or(1),
                // With more than the node's name unreadable nobody would see the reason; that is what it is.
                nodes: spec
                    .node_name
                    .filter(|n| !n.is_empty())
                    .map_or(NodeScope::All, |n| NodeScope::Node(n.into())),
                devices: vec![],
                counter_sets: vec![],
                unsupported: Some(why.without_object().into()),
            })
        }
    }
}

fn of(root: Root<'_>) -> Result<Slice, ConvertError> {
    let Root { metadata, spec } = root;
    let mut reader = Reader {
        names: Names::default(),
        driver: spec.driver.into(),
        unsupported: Unsupported::default(),
    };
    let per_device = spec.per_device_node_selection == Some(true);
    let nodes = if per_device {
        NodeScope::PerDevice
    } else {
        reader.scope(spec.node_name, spec.all_nodes, spec.node_selector)
    };
    let devices = spec
        .devices
        .into_iter()
        .flatten()
        .map(|d| Arc::new(reader.device(d, per_device)))
        .collect();
    let counter_sets: Vec<_> = spec
        .shared_counters
        .into_iter()
        .flatten()
        .map(|set| CounterSet {
            name: reader.names.of(set.name),
            counters: reader.counters(set.counters),
        })
        .collect();
    for set in &counter_sets {
        for (counter, _) in set.counters.iter().filter(|(_, all)| all.is_capped()) {
            let words = format!("counter {}/{counter} is larger than can be counted", set.name);
            reader.unsupported.note(words);
        }
    }
    Ok(Slice {
        name: metadata.name()?.into(),
        pool: spec.pool.name.into(),
        generation: spec.pool.generation.unwrap_or(0),
        slice_count: spec.pool.resource_slice_count.unwrap_or(1),
        nodes,
        devices,
        counter_sets,
        driver: reader.driver,
        unsupported: reader.unsupported.into_inner(),
    })
}

struct Reader {
    names: Names,
    driver: Name,
    unsupported: Unsupported,
}

impl Reader {
    fn device(&mut self, raw: RawDevice<'_>, per_device: bool) -> Device {
        let body = raw.basic.unwrap_or(RawBody {
            attributes: raw.attributes,
            capacity: raw.capacity,
            consumes_counters: raw.consumes_counters,
            node_name: raw.node_name,
            all_nodes: raw.all_nodes,
            node_selector: raw.node_selector,
            taints: raw.taints,
            binds_to_node: raw.binds_to_node,
            binding_conditions: raw.binding_conditions,
            binding_failure_conditions: raw.binding_failure_conditions,
            allow_multiple: raw.allow_multiple,
            node_resources: raw.node_resources,
        });
        if body.node_resources.is_some_and(|m| !m.is_empty()) {
            // Giving such a device changes what else fits on the node, and nobody would account for it.
            self.unsupported.note(format!(
                "device {}: nodeAllocatableResourceMappings is not supported",
                raw.name
            ));
        }
        let mut attributes: Vec<_> = body
            .attributes
            .into_iter()
            .flatten()
            .filter_map(|(name, value)| {
                let value = self.attribute(value);
                if value.is_none() {
                    self.unsupported.note(format!(
                        "device {}: attribute {name} has a type that is not known here",
                        raw.name
                    ));
                }
                Some((self.qualified(name), value?))
            })
            .collect();
        sort(&mut attributes);
        let mut capacity: Vec<_> = body
            .capacity
            .into_iter()
            .flatten()
            .map(|(name, c)| {
                if c.value.0.is_capped() {
                    self.unsupported.note(format!(
                        "device {}: capacity {name} is larger than can be counted",
                        raw.name
                    ));
                }
                let capacity = Capacity {
                    value: c.value.0,
                    domain_written: name.contains('/'),
                    policy: c.request_policy.map(policy),
                };
                (self.qualified(name), capacity)
            })
            .collect();
        if let (Some(name), Some(true)) = (sort(&mut capacity), body.allow_multiple) {
            // Two amounts to the in-tree allocator, one to its selectors: what is left of them could not be told.
            self.unsupported.note(format!(
                "device {}: capacity {name} is there with and without its domain",
                raw.name
            ));
        }
        Device {
            name: raw.name.into(),
            attributes: attributes.into(),
            capacity: capacity.into(),
            taints: body.taints.into_iter().flatten().map(|t| self.taint(t)).collect(),
            consumes: body
                .consumes_counters
                .into_iter()
                .flatten()
                .map(|c| CounterConsumption {
                    counter_set: self.names.of(c.counter_set),
                    counters: self.counters(c.counters),
                })
                .collect(),
            nodes: per_device.then(|| self.scope(body.node_name, body.all_nodes, body.node_selector)),
            allow_multiple: body.allow_multiple.unwrap_or(false),
            binds_to_node: body.binds_to_node.unwrap_or(false),
            binding_conditions: self.names.all(body.binding_conditions).into(),
            binding_failure_conditions: self.names.all(body.binding_failure_conditions).into(),
        }
    }

    fn qualified(&mut self, text: &str) -> QualifiedName {
        match text.split_once('/') {
            Some((domain, name)) => QualifiedName {
                domain: self.names.of(domain),
                name: self.names.of(name),
            },
            None => QualifiedName {
                domain: self.driver.clone(),
                name: self.names.of(text),
            },
        }
    }

    fn attribute(&mut self, raw: RawAttribute<'_>) -> Option<AttributeValue> {
        Some(match raw {
            RawAttribute { int: Some(v), .. } => AttributeValue::Int(v),
            RawAttribute { bool: Some(v), .. } => AttributeValue::Bool(v),
            RawAttribute { string: Some(v), .. } => AttributeValue::String(self.names.of(v)),
            RawAttribute { version: Some(v), .. } => AttributeValue::Version(self.names.of(v)),
            RawAttribute { ints: Some(v), .. } => AttributeValue::Ints(v.into()),
            RawAttribute { bools: Some(v), .. } => AttributeValue::Bools(v.into()),
            RawAttribute { strings: Some(v), .. } => AttributeValue::Strings(self.names.all(Some(v)).into()),
            RawAttribute { versions: Some(v), .. } => AttributeValue::Versions(self.names.all(Some(v)).into()),
            _ => return None,
        })
    }

    fn taint(&mut self, raw: RawTaint<'_>) -> Taint {
        Taint {
            key: self.names.of(raw.key),
            value: self.names.of(raw.value.unwrap_or_default()),
            effect: effect(raw.effect),
        }
    }

    /// Sorted by name, since the map was.
    fn counters(&mut self, raw: Map<'_, RawCounter>) -> Box<[(Name, Quantity)]> {
        raw.into_iter()
            .flatten()
            .map(|(name, counter)| (self.names.of(name), counter.value.0))
            .collect()
    }

    fn scope(&mut self, node: Option<&str>, all: Option<bool>, raw: Option<RawSelector<'_>>) -> NodeScope {
        match (node.filter(|n| !n.is_empty()), raw) {
            (Some(node), _) => NodeScope::Node(self.names.of(node)),
            (None, Some(raw)) => NodeScope::Selector(Arc::new(selector(raw, &mut self.names))),
            (None, None) if all == Some(true) => NodeScope::All,
            (None, None) => NodeScope::Nowhere,
        }
    }
}

/// By name; of two spellings of one name the first counts. Returns one that is there twice.
fn sort<T>(list: &mut Vec<(QualifiedName, T)>) -> Option<QualifiedName> {
    let mut twice = None;
    list.sort_by(|a, b| a.0.cmp(&b.0));
    list.dedup_by(|later, first| {
        let same = later.0 == first.0;
        if same {
            twice = Some(first.0.clone());
        }
        same
    });
    twice
}

pub(super) fn effect(text: &str) -> Effect {
    match text {
        "None" => Effect::None,
        "NoSchedule" => Effect::NoSchedule,
        "NoExecute" => Effect::NoExecute,
        _ => Effect::Unknown,
    }
}

fn policy(raw: RawPolicy) -> RequestPolicy {
    let amount = |a: Option<Amount>| a.map(|a| a.0);
    RequestPolicy {
        default: amount(raw.default),
        valid_values: raw.valid_values.into_iter().flatten().map(|a| a.0).collect(),
        valid_range: raw.valid_range.map(|r| (r.min.0, amount(r.max), amount(r.step))),
    }
}
