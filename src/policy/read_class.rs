//! Reads `classes`: names, selectors, watts, and what admission adds to pods of a class.

use std::collections::BTreeSet;

use serde_json::Value;

use super::fields::{Field, Fields};
use super::names;
use super::read::{Reader, names_of};
use super::types::{Class, PodPatch};
use crate::model::{Name, Quantity};

/// No board comes near; a typing error (600 kW) does.
const MOST_BOARD_WATTS: u64 = 10_000;

impl Reader<'_> {
    pub(super) fn classes(&mut self, field: Field) -> Vec<Class> {
        let mut seen = BTreeSet::new();
        let mut classes = vec![];
        for mut raw in field.mappings(&mut self.errors) {
            let name = raw.text_needed("name", &mut self.errors);
            self.check(raw.at("name"), &name, names::dns_label);
            if !seen.insert(name.clone()) {
                self.error(raw.at("name"), "is the name of an earlier class already");
            }
            let matches = raw.text_needed("match", &mut self.errors);
            let selector = self.selectors.selector(&Name::from(matches.trim()));
            if let Some(e) = selector.compile_error() {
                self.error(raw.at("match"), format!("does not compile: {}", e.0));
            }
            let watts = self.watts(raw.field("watts"), 1..=MOST_BOARD_WATTS);
            self.no_sharing(raw.field("sharing"));
            classes.push(Class {
                name: name.into(),
                selector,
                watts: watts.and_then(|w| u32::try_from(w).ok()),
                patch: self.patch(raw.field("patch")),
            });
            raw.close(&mut self.errors);
        }
        classes
    }

    /// A switch of a later version: whoever sets it counts on it.
    pub(super) fn no_sharing(&mut self, sharing: Field) {
        if sharing.is_given() {
            let message = "sharing devices between pods is not built in this version: leave it out";
            self.error(sharing.path, message);
        }
    }

    pub(super) fn patch(&mut self, field: Field) -> PodPatch {
        let Some(mut raw) = field.mapping(&mut self.errors) else {
            return PodPatch::default();
        };
        let scheduler_name = self.scheduler(raw.field("schedulerName"));
        let runtime_class_name = self.name(raw.field("runtimeClassName"), names::dns_subdomain);
        let node_selector = raw.field("nodeSelector").text_map(&mut self.errors);
        let labels = raw.field("labels").text_map(&mut self.errors);
        let annotations = raw.field("annotations").text_map(&mut self.errors);
        let path = raw.path.clone();
        let at = |field: &str, key: &str| format!("{path}.{field}[{key:?}]");
        for (field, map, values_are_labels) in [
            ("nodeSelector", &node_selector, true),
            ("labels", &labels, true),
            ("annotations", &annotations, false),
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
        let size = raw.field("sharedMemory").text(&mut self.errors);
        if let Some(size) = &size
            && !size.parse::<Quantity>().is_ok_and(|q| q > Quantity::ZERO)
        {
            self.error(raw.at("sharedMemory"), "must be a size above zero, like 8Gi");
        }
        let tolerations = raw.field("tolerations").mappings(&mut self.errors);
        let patch = PodPatch {
            scheduler_name,
            tolerations: tolerations.into_iter().map(|t| self.toleration(t)).collect(),
            runtime_class_name,
            node_selector: names_of(node_selector),
            annotations: names_of(annotations),
            labels: names_of(labels),
            shared_memory: size.map(Name::from),
        };
        raw.close(&mut self.errors);
        patch
    }

    /// The rules of core/v1: what passes here, the API server takes.
    fn toleration(&mut self, mut raw: Fields) -> Value {
        let texts = ["key", "operator", "value", "effect"].map(|key| raw.field(key).text(&mut self.errors));
        let [key, operator, value, effect] = texts.each_ref().map(Option::as_deref);
        let seconds = raw.field("tolerationSeconds").whole(&mut self.errors);
        match operator.unwrap_or("Equal") {
            "Exists" if value.is_some_and(|v| !v.is_empty()) => {
                self.error(raw.at("value"), "must be left out with operator Exists");
            }
            "Exists" => {}
            "Equal" if key.unwrap_or_default().is_empty() => {
                self.error(raw.at("key"), "is needed unless the operator is Exists");
            }
            "Equal" => {}
            _ => self.error(raw.at("operator"), "must be Exists or Equal"),
        }
        if let Some(key) = key.filter(|k| !k.is_empty()) {
            self.check(raw.at("key"), key, names::qualified);
        }
        if let Some(value) = value {
            self.check(raw.at("value"), value, names::label_value);
        }
        match effect {
            None | Some("" | "NoSchedule" | "PreferNoSchedule" | "NoExecute") => {}
            Some(_) => self.error(raw.at("effect"), "must be NoSchedule, PreferNoSchedule or NoExecute"),
        }
        if seconds.is_some() && effect != Some("NoExecute") {
            self.error(raw.at("tolerationSeconds"), "needs effect NoExecute");
        }
        let fields = [
            ("key", key.map(Value::from)),
            ("operator", operator.map(Value::from)),
            ("value", value.map(Value::from)),
            ("effect", effect.map(Value::from)),
            ("tolerationSeconds", seconds.map(Value::from)),
        ];
        let fields = fields.into_iter().filter_map(|(k, v)| Some((k.to_owned(), v?)));
        let toleration = fields.collect();
        raw.close(&mut self.errors);
        Value::Object(toleration)
    }
}
