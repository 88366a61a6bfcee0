//! `status.allocation` of a ResourceClaim, in both directions.

use serde::Deserialize;
use serde_json::{Map as Object, Value, json};

use super::claim::{Opaque, RawToleration, tolerations, undomained};
use super::node::{RawSelector, selector, selector_json};
use super::read::{Amount, List, Map, Names};
use crate::model::{
    AllocatedConfig, Allocation, ConfigSource, Consumer, DeviceId, DeviceResult, Effect, Name, Toleration,
};

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawAllocation<'a> {
    #[serde(borrow)]
    devices: Option<RawDevices<'a>>,
    #[serde(borrow)]
    node_selector: Option<RawSelector<'a>>,
    #[serde(borrow)]
    pub(super) allocation_timestamp: Option<&'a str>,
}

#[derive(Deserialize, Default)]
struct RawDevices<'a> {
    #[serde(borrow)]
    results: List<RawResult<'a>>,
    #[serde(borrow)]
    config: List<RawConfig<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct RawResult<'a> {
    request: &'a str,
    driver: &'a str,
    pool: &'a str,
    device: &'a str,
    admin_access: Option<bool>,
    #[serde(borrow)]
    tolerations: List<RawToleration<'a>>,
    #[serde(borrow)]
    binding_conditions: List<&'a str>,
    #[serde(borrow)]
    binding_failure_conditions: List<&'a str>,
    #[serde(borrow, rename = "shareID")]
    share_id: Option<&'a str>,
    #[serde(borrow)]
    consumed_capacity: Map<'a, Amount>,
}

#[derive(Deserialize)]
struct RawConfig<'a> {
    source: &'a str,
    #[serde(borrow)]
    requests: List<&'a str>,
    #[serde(borrow)]
    opaque: Option<Opaque<'a>>,
}

/// An entry of `status.reservedFor`.
#[derive(Deserialize)]
pub(super) struct RawConsumer<'a> {
    pub(super) resource: &'a str,
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
}

pub(super) fn allocation(raw: RawAllocation<'_>, names: &mut Names) -> Allocation {
    let (results, config) = raw.devices.map_or((None, None), |d| (d.results, d.config));
    Allocation {
        results: results.into_iter().flatten().map(|r| result(r, names)).collect(),
        config: config
            .into_iter()
            .flatten()
            .filter_map(|c| {
                // A config of a kind that is not known is the driver's business, not ours.
                let opaque = c.opaque?;
                Some(AllocatedConfig {
                    source: match c.source {
                        "FromClass" => ConfigSource::FromClass,
                        _ => ConfigSource::FromClaim,
                    },
                    requests: names.all(c.requests),
                    driver: names.of(opaque.driver),
                    parameters: opaque.parameters.to_string().into(),
                })
            })
            .collect(),
        node_selector: raw.node_selector.map(|s| selector(s, names).into()),
    }
}

/// What a claim holds, from the names of its devices alone: each is taken whole. For a status that cannot be read.
/// None: not even that can be.
pub(super) fn salvage(claim: &Value) -> Option<Option<RawAllocation<'_>>> {
    let status = match claim.get("status") {
        None | Some(Value::Null) => return Some(None),
        Some(status) => status.as_object()?,
    };
    let allocation = match status.get("allocation") {
        None | Some(Value::Null) => return Some(None),
        Some(allocation) => allocation,
    };
    let results = allocation.get("devices")?.get("results")?.as_array()?.iter().map(|r| {
        let text = |field: &str| r.get(field)?.as_str();
        Some(RawResult {
            request: text("request").unwrap_or_default(),
            driver: text("driver")?,
            pool: text("pool")?,
            device: text("device")?,
            ..RawResult::default()
        })
    });
    Some(Some(RawAllocation {
        devices: Some(RawDevices {
            results: Some(results.collect::<Option<_>>()?),
            config: None,
        }),
        // Matches no node: where the devices are was not read, so nobody is sent there.
        node_selector: Some(RawSelector::default()),
        ..RawAllocation::default()
    }))
}

fn result(raw: RawResult<'_>, names: &mut Names) -> DeviceResult {
    let driver = names.of(raw.driver);
    DeviceResult {
        request: names.of(raw.request),
        admin_access: raw.admin_access.unwrap_or(false),
        tolerations: tolerations(raw.tolerations, names, &mut |_| {}),
        binding_conditions: names.all(raw.binding_conditions),
        binding_failure_conditions: names.all(raw.binding_failure_conditions),
        share_id: raw.share_id.map(Name::from),
        consumed_capacity: raw
            .consumed_capacity
            .into_iter()
            .flatten()
            .map(|(name, amount)| (undomained(name), amount.0))
            .collect(),
        id: DeviceId {
            driver,
            pool: names.of(raw.pool),
            device: names.of(raw.device),
        },
    }
}

/// `status.allocation` as the API has it. Without `allocationTimestamp`: the API server's clients set it,
/// and this code has no clock.
pub fn allocation_json(allocation: &Allocation) -> Value {
    let results: Vec<Value> = allocation.results.iter().map(result_json).collect();
    let mut devices = json!({"results": results});
    if !allocation.config.is_empty() {
        devices["config"] = allocation.config.iter().map(config_json).collect();
    }
    let mut out = json!({"devices": devices});
    if let Some(selector) = &allocation.node_selector {
        out["nodeSelector"] = selector_json(selector);
    }
    out
}

/// One entry of `devices.results`.
pub fn result_json(result: &DeviceResult) -> Value {
    let mut out = json!({
        "request": &*result.request,
        "driver": &*result.id.driver,
        "pool": &*result.id.pool,
        "device": &*result.id.device,
    });
    if result.admin_access {
        out["adminAccess"] = true.into();
    }
    if !result.tolerations.is_empty() {
        out["tolerations"] = result.tolerations.iter().map(toleration_json).collect();
    }
    if !result.binding_conditions.is_empty() {
        out["bindingConditions"] = texts(&result.binding_conditions);
    }
    if !result.binding_failure_conditions.is_empty() {
        out["bindingFailureConditions"] = texts(&result.binding_failure_conditions);
    }
    if let Some(id) = &result.share_id {
        out["shareID"] = (&**id).into();
    }
    if !result.consumed_capacity.is_empty() {
        let amounts = result
            .consumed_capacity
            .iter()
            .map(|(name, amount)| (name.to_string(), Value::from(amount.to_string())));
        out["consumedCapacity"] = amounts.collect::<Object<_, _>>().into();
    }
    out
}

/// An entry of `status.reservedFor`.
pub fn consumer_json(consumer: &Consumer) -> Value {
    json!({"resource": &*consumer.resource, "name": &*consumer.name, "uid": &*consumer.uid})
}

fn config_json(config: &AllocatedConfig) -> Value {
    let source = match config.source {
        ConfigSource::FromClass => "FromClass",
        ConfigSource::FromClaim => "FromClaim",
    };
    // Text that came out of JSON; should it not be, the driver gets to see it as a string.
    let parameters = serde_json::from_str(&config.parameters).unwrap_or_else(|_| Value::from(&*config.parameters));
    let mut out = json!({"source": source, "opaque": {"driver": &*config.driver, "parameters": parameters}});
    if !config.requests.is_empty() {
        out["requests"] = texts(&config.requests);
    }
    out
}

fn toleration_json(toleration: &Toleration) -> Value {
    let mut out = json!({"operator": if toleration.value.is_some() { "Equal" } else { "Exists" }});
    if let Some(key) = &toleration.key {
        out["key"] = (&**key).into();
    }
    if let Some(value) = toleration.value.as_ref().filter(|v| !v.is_empty()) {
        out["value"] = (&**value).into();
    }
    let effect = match toleration.effect {
        Some(Effect::NoSchedule) => Some("NoSchedule"),
        Some(Effect::NoExecute) => Some("NoExecute"),
        Some(Effect::None) => Some("None"),
        Some(Effect::Unknown) | None => None,
    };
    if let Some(effect) = effect {
        out["effect"] = effect.into();
    }
    if let Some(seconds) = toleration.seconds {
        out["tolerationSeconds"] = seconds.into();
    }
    out
}

fn texts(names: &[Name]) -> Value {
    names.iter().map(|n| &**n).collect()
}
