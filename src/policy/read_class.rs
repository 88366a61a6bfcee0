//! Reads `classes`: names, selectors, watts, and what admission adds to pods of a class.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::raw::{RawClass, RawPatch, RawToleration};
use super::read::{Reader, names_of};
use super::types::{Class, PodPatch};
use super::{names, watts};
use crate::model::{Name, Quantity};

/// No board comes near; a typing error (600 kW) does.
const MOST_BOARD_WATTS: u64 = 10_000;

impl Reader<'_> {
    pub(super) fn classes(&mut self, root: &mut Map<String, Value>) -> Vec<Class> {
        let mut seen = BTreeSet::new();
        let mut classes = vec![];
        for (path, raw) in self.list::<RawClass>(root, "classes") {
            self.check(format!("{path}.name"), &raw.name, names::dns_label);
            if !seen.insert(raw.name.clone()) {
                self.error(format!("{path}.name"), "is the name of an earlier class already");
            }
            let selector = self.selectors.selector(&Name::from(raw.matches.trim()));
            if let Some(e) = selector.compile_error() {
                self.error(format!("{path}.match"), format!("does not compile: {}", e.0));
            }
            let watts = raw.watts.filter(|w| !w.is_null()).and_then(|w| {
                watts::read(&w, 1..=MOST_BOARD_WATTS)
                    .map_err(|e| self.error(format!("{path}.watts"), e))
                    .ok()
            });
            self.no_sharing(&path, raw.sharing.as_ref());
            classes.push(Class {
                name: raw.name.into(),
                selector,
                watts: watts.and_then(|w| u32::try_from(w).ok()),
                patch: self.patch(&format!("{path}.patch"), raw.patch.unwrap_or_default()),
            });
        }
        classes
    }

    /// A switch of a later version: whoever sets it counts on it.
    pub(super) fn no_sharing(&mut self, path: &str, sharing: Option<&Value>) {
        if sharing.is_some_and(|s| !s.is_null()) {
            self.error(
                format!("{path}.sharing"),
                "sharing devices between pods is not built in this version: leave it out",
            );
        }
    }

    pub(super) fn patch(&mut self, path: &str, raw: RawPatch) -> PodPatch {
        if let Some(name) = &raw.scheduler_name {
            self.scheduler(format!("{path}.schedulerName"), name);
        }
        if let Some(name) = &raw.runtime_class_name {
            self.check(format!("{path}.runtimeClassName"), name, names::dns_subdomain);
        }
        let at = |field: &str, key: &str| format!("{path}.{field}[{key:?}]");
        for (field, map, values_are_labels) in [
            ("nodeSelector", &raw.node_selector, true),
            ("labels", &raw.labels, true),
            ("annotations", &raw.annotations, false),
        ] {
            for (key, value) in map {
                self.check(at(field, key), key, names::qualified);
                if values_are_labels {
                    self.check(at(field, key), value, names::label_value);
                }
                if field != "nodeSelector" && key.starts_with("wattlane.dev/") {
                    self.error(
                        at(field, key),
                        "keys of wattlane.dev/ belong to wattlane and to the pod's author",
                    );
                }
            }
        }
        if let Some(size) = &raw.shared_memory
            && !size.parse::<Quantity>().is_ok_and(|q| q > Quantity::ZERO)
        {
            self.error(format!("{path}.sharedMemory"), "must be a size above zero, like 8Gi");
        }
        let tolerations = raw.tolerations.into_iter().enumerate();
        let tolerations = tolerations.map(|(i, t)| self.toleration(&format!("{path}.tolerations[{i}]"), t));
        PodPatch {
            scheduler_name: raw.scheduler_name.map(Name::from),
            tolerations: tolerations.collect(),
            runtime_class_name: raw.runtime_class_name.map(Name::from),
            node_selector: names_of(raw.node_selector),
            annotations: names_of(raw.annotations),
            labels: names_of(raw.labels),
            shared_memory: raw.shared_memory.map(Name::from),
        }
    }

    /// The rules of core/v1: what passes here, the API server takes.
    fn toleration(&mut self, path: &str, raw: RawToleration) -> Value {
        let operator = raw.operator.as_deref().unwrap_or("Equal");
        match operator {
            "Exists" if raw.value.as_deref().is_some_and(|v| !v.is_empty()) => {
                self.error(format!("{path}.value"), "must be left out with operator Exists");
            }
            "Exists" => {}
            "Equal" if raw.key.as_deref().unwrap_or_default().is_empty() => {
                self.error(format!("{path}.key"), "is needed unless the operator is Exists");
            }
            "Equal" => {}
            _ => self.error(format!("{path}.operator"), "must be Exists or Equal"),
        }
        if let Some(key) = raw.key.as_deref().filter(|k| !k.is_empty()) {
            self.check(format!("{path}.key"), key, names::qualified);
        }
        if let Some(value) = raw.value.as_deref() {
            self.check(format!("{path}.value"), value, names::label_value);
        }
        match raw.effect.as_deref() {
            None | Some("" | "NoSchedule" | "PreferNoSchedule" | "NoExecute") => {}
            Some(_) => self.error(
                format!("{path}.effect"),
                "must be NoSchedule, PreferNoSchedule or NoExecute",
            ),
        }
        if raw.toleration_seconds.is_some() && raw.effect.as_deref() != Some("NoExecute") {
            self.error(format!("{path}.tolerationSeconds"), "needs effect NoExecute");
        }
        let fields = [
            ("key", raw.key.map(Value::from)),
            ("operator", raw.operator.map(Value::from)),
            ("value", raw.value.map(Value::from)),
            ("effect", raw.effect.map(Value::from)),
            ("tolerationSeconds", raw.toleration_seconds.map(Value::from)),
        ];
        let fields = fields.into_iter().filter_map(|(k, v)| Some((k.to_owned(), v?)));
        Value::Object(fields.collect())
    }
}
