//! `status.devices` of a ResourceClaim: what drivers report of allocated devices.

use serde::Deserialize;
use serde_json::Value;

use super::read::List;
use crate::model::{Allocation, DeviceCondition, DeviceId, Name};

#[derive(Deserialize)]
struct RawDevice<'a> {
    driver: &'a str,
    pool: &'a str,
    device: &'a str,
    #[serde(borrow, rename = "shareID")]
    share_id: Option<&'a str>,
    #[serde(borrow)]
    conditions: List<RawCondition<'a>>,
}

#[derive(Deserialize)]
struct RawCondition<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    status: &'a str,
    reason: Option<&'a str>,
    message: Option<&'a str>,
}

/// Those the allocation names; drivers may report much else, and more often. An entry that cannot be read reports
/// nothing: whoever waits for it goes on waiting.
pub(super) fn conditions(claim: &Value, allocation: &Allocation) -> Vec<DeviceCondition> {
    let waiting = || allocation.results.iter().filter(|r| !r.binding_conditions.is_empty());
    if waiting().next().is_none() {
        return vec![];
    }
    let devices = claim.pointer("/status/devices").and_then(Value::as_array);
    let devices = devices
        .into_iter()
        .flatten()
        .filter_map(|d| RawDevice::deserialize(d).ok());
    let mut kept = vec![];
    for raw in devices {
        let id = DeviceId {
            driver: raw.driver.into(),
            pool: raw.pool.into(),
            device: raw.device.into(),
        };
        let Some(result) = waiting().find(|r| r.id == id && r.share_id.as_deref() == raw.share_id) else {
            continue;
        };
        let awaited = |kind: &str| {
            let mut kinds = result
                .binding_conditions
                .iter()
                .chain(&result.binding_failure_conditions);
            kinds.find(|k| &***k == kind).cloned()
        };
        kept.extend(raw.conditions.into_iter().flatten().filter_map(|c| {
            Some(DeviceCondition {
                device: id.clone(),
                share_id: result.share_id.clone(),
                kind: awaited(c.kind)?,
                holds: c.status == "True",
                words: words(c.reason.unwrap_or_default(), c.message.unwrap_or_default()),
            })
        }));
    }
    kept
}

fn words(reason: &str, message: &str) -> Name {
    match (reason, message) {
        (only, "") | ("", only) => only.into(),
        (reason, message) => format!("{reason}: {message}").into(),
    }
}
