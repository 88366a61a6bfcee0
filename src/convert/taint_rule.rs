//! DeviceTaintRules (resource.k8s.io v1alpha3, v1beta2).

use serde::Deserialize;
use serde_json::Value;

use super::ConvertError;
use super::read::{Meta, read};
use super::slice::{RawTaint, effect};
use crate::model::{Name, Taint, TaintRule};

#[derive(Deserialize)]
struct Root<'a> {
    #[serde(borrow)]
    metadata: Meta<'a>,
    #[serde(borrow)]
    spec: Spec<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(borrow)]
    device_selector: Option<Selector<'a>>,
    #[serde(borrow)]
    taint: RawTaint<'a>,
}

/// Whatever else narrows a rule (selectors, in the first version) is not looked at: it then taints more, not less.
#[derive(Deserialize, Default)]
struct Selector<'a> {
    #[serde(borrow)]
    driver: Option<&'a str>,
    #[serde(borrow)]
    pool: Option<&'a str>,
    #[serde(borrow)]
    device: Option<&'a str>,
}

pub fn taint_rule(value: &Value) -> Result<TaintRule, ConvertError> {
    let Root { metadata, spec } = read(value)?;
    let selector = spec.device_selector.unwrap_or_default();
    Ok(TaintRule {
        name: metadata.name()?.into(),
        driver: selector.driver.map(Name::from),
        pool: selector.pool.map(Name::from),
        device: selector.device.map(Name::from),
        taint: Taint {
            key: spec.taint.key.into(),
            value: spec.taint.value.unwrap_or_default().into(),
            effect: effect(spec.taint.effect),
        },
    })
}
