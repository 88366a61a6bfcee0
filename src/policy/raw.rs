//! The shape of the policy file as people write it. No rule beyond the shape: `read` has them.
//!
//! Lists stay lists of `Value`, so that one misspelt field costs its own item and not the errors of all the others.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawClass {
    pub(super) name: String,
    #[serde(rename = "match")]
    pub(super) matches: String,
    pub(super) watts: Option<Value>,
    pub(super) patch: Option<RawPatch>,
    /// Refused by its name.
    pub(super) sharing: Option<Value>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct RawPatch {
    pub(super) scheduler_name: Option<String>,
    pub(super) runtime_class_name: Option<String>,
    pub(super) tolerations: Vec<RawToleration>,
    pub(super) node_selector: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) shared_memory: Option<String>,
}

/// core/v1 Toleration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawToleration {
    pub(super) key: Option<String>,
    pub(super) operator: Option<String>,
    pub(super) value: Option<String>,
    pub(super) effect: Option<String>,
    pub(super) toleration_seconds: Option<i64>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct RawPlacement {
    pub(super) nodes: Option<String>,
    pub(super) mix_classes: Option<String>,
    pub(super) topology: Option<String>,
    pub(super) nearness: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawPower {
    pub(super) label: String,
    pub(super) budget: Option<Value>,
    #[serde(default)]
    pub(super) budgets: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawNamespace {
    #[serde(rename = "match")]
    pub(super) matches: BTreeMap<String, String>,
    pub(super) default_class: Option<String>,
    pub(super) allowed_classes: Option<Vec<String>>,
    pub(super) max_gpus_per_pod: Option<u32>,
    pub(super) patch: Option<RawPatch>,
    /// Refused by its name.
    pub(super) sharing: Option<Value>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct RawDefaults {
    pub(super) scheduler_name: Option<String>,
    pub(super) runtime_class_name: Option<String>,
    pub(super) device_classes: BTreeMap<String, String>,
}
