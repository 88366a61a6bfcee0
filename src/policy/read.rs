//! From the text of a policy file to a `Policy`, or to everything that is wrong with it, each with its place.
//!
//! The file is refused as a whole: half a policy is a policy nobody wrote. `wattlane check` and the service both call
//! this and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::raw::{RawDefaults, RawNamespace, RawPlacement, RawPower};
use super::types::{Defaults, NamespaceRule, NodeOrder, Placement, Policy, PowerDomain};
use super::{names, watts};
use crate::model::{DEFAULT_SCHEDULER, Name};
use crate::placement::Topology;
use crate::selector::Selectors;

const API_VERSION: &str = "wattlane.dev/v1alpha1";
const KIND: &str = "PlacementPolicy";
const MOST_DOMAIN_WATTS: u64 = 1_000_000_000;
/// Bounds the work of classifying a device, and of reporting errors.
const MOST_ITEMS: usize = 256;
/// Labels by which nodes are near or far.
const MOST_LEVELS: usize = 8;
const SECTIONS: [&str; 8] = [
    "apiVersion",
    "kind",
    "metadata",
    "classes",
    "placement",
    "power",
    "namespaces",
    "defaults",
];

/// One thing that is wrong with a policy file.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct PolicyError {
    /// Where: `classes[1].watts`. Empty: the file itself.
    pub path: String,
    /// What is wrong, and what is accepted.
    pub message: String,
}

impl std::fmt::Display for PolicyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.path.as_str() {
            "" => f.write_str(&self.message),
            path => write!(f, "{path}: {}", self.message),
        }
    }
}

impl std::error::Error for PolicyError {}

impl Policy {
    /// Reads a policy file. Selectors of classes are compiled through `selectors`.
    ///
    /// # Errors
    /// Everything that is wrong, in the order of the file's sections; never an empty list.
    pub fn read(text: &str, selectors: &Selectors) -> Result<Self, Vec<PolicyError>> {
        let mut reader = Reader {
            selectors,
            errors: vec![],
        };
        let policy = reader.policy(text);
        match policy {
            Some(policy) if reader.errors.is_empty() => Ok(policy),
            _ => Err(reader.errors),
        }
    }
}

/// Collects errors while it reads. The sections about classes are in `read_class`.
pub(super) struct Reader<'a> {
    pub(super) selectors: &'a Selectors,
    errors: Vec<PolicyError>,
}

impl Reader<'_> {
    pub(super) fn error(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.errors.push(PolicyError {
            path: path.into(),
            message: message.into(),
        });
    }

    pub(super) fn check(&mut self, path: impl Into<String>, text: &str, rule: fn(&str) -> Result<(), &'static str>) {
        if let Err(accepted) = rule(text) {
            let shown: String = text.chars().take(64).collect();
            self.error(path, format!("{shown:?} is not valid: {accepted}"));
        }
    }

    fn policy(&mut self, text: &str) -> Option<Policy> {
        let root: Value = match serde_saphyr::from_str(text) {
            Ok(root) => root,
            Err(e) => {
                self.error("", format!("not readable as YAML: {}", e.without_snippet()));
                return None;
            }
        };
        let Value::Object(mut root) = root else {
            self.error("", format!("expected a {KIND}, a mapping of {}", SECTIONS.join(", ")));
            return None;
        };
        for key in root.keys().filter(|k| !SECTIONS.contains(&k.as_str())) {
            self.errors.push(PolicyError {
                path: key.clone(),
                message: format!("unknown field; known are {}", SECTIONS.join(", ")),
            });
        }
        for (key, want) in [("apiVersion", API_VERSION), ("kind", KIND)] {
            if root.get(key).and_then(Value::as_str) != Some(want) {
                self.error(key, format!("must be {want}"));
            }
        }
        Some(Policy {
            classes: self.classes(&mut root),
            placement: self.placement(&mut root),
            power: self.power(&mut root),
            namespaces: self.namespaces(&mut root),
            defaults: self.defaults(&mut root),
            allowed: OnceLock::new(),
        })
    }

    /// The items of a list section that have the right shape, with their paths.
    pub(super) fn list<T: DeserializeOwned>(
        &mut self,
        root: &mut Map<String, Value>,
        section: &str,
    ) -> Vec<(String, T)> {
        let items = match root.remove(section) {
            None | Some(Value::Null) => return vec![],
            Some(Value::Array(items)) => items,
            Some(_) => {
                self.error(section, "must be a list");
                return vec![];
            }
        };
        if items.len() > MOST_ITEMS {
            self.error(section, format!("has {} entries; at most {MOST_ITEMS}", items.len()));
            return vec![];
        }
        let items = items.into_iter().enumerate();
        items
            .filter_map(|(i, item)| {
                let path = format!("{section}[{i}]");
                Some((path.clone(), self.shape(&path, item)?))
            })
            .collect()
    }

    fn shape<T: DeserializeOwned>(&mut self, path: &str, value: Value) -> Option<T> {
        // serde would read a list as the fields in order.
        if !value.is_object() {
            self.error(path, "must be a mapping");
            return None;
        }
        serde_json::from_value(value)
            .map_err(|e| self.error(path, e.to_string()))
            .ok()
    }

    fn section<T: DeserializeOwned + Default>(&mut self, root: &mut Map<String, Value>, section: &str) -> T {
        match root.remove(section) {
            None | Some(Value::Null) => T::default(),
            Some(value) => self.shape(section, value).unwrap_or_default(),
        }
    }

    fn placement(&mut self, root: &mut Map<String, Value>) -> Placement {
        let raw: RawPlacement = self.section(root, "placement");
        let nodes = self.choice(
            "placement.nodes",
            raw.nodes,
            &[("pack", NodeOrder::Pack), ("spread", NodeOrder::Spread)],
        );
        let mix = self.choice(
            "placement.mixClasses",
            raw.mix_classes,
            &[("never", false), ("allow", true)],
        );
        let words = [
            ("preferred", Topology::Preferred),
            ("none", Topology::None),
            ("required", Topology::Required),
        ];
        let topology = self.choice("placement.topology", raw.topology, &words);
        Placement {
            nodes,
            mix_classes: mix,
            topology,
            nearness: raw.nearness.map(|labels| self.nearness(labels)),
        }
    }

    fn nearness(&mut self, labels: Vec<String>) -> Vec<Name> {
        if labels.len() > MOST_LEVELS {
            self.error(
                "placement.nearness",
                format!("{} labels; at most {MOST_LEVELS}", labels.len()),
            );
        }
        for (i, label) in labels.iter().enumerate() {
            self.check(format!("placement.nearness[{i}]"), label, names::qualified);
        }
        labels.into_iter().map(Name::from).collect()
    }

    fn choice<T: Copy + Default>(&mut self, path: &str, given: Option<String>, words: &[(&str, T)]) -> T {
        let Some(given) = given else {
            return T::default();
        };
        if let Some((_, value)) = words.iter().find(|(w, _)| *w == given) {
            return *value;
        }
        let known: Vec<_> = words.iter().map(|(w, _)| *w).collect();
        self.error(path, format!("must be one of {}", known.join(", ")));
        T::default()
    }

    fn power(&mut self, root: &mut Map<String, Value>) -> Vec<PowerDomain> {
        let mut seen = BTreeSet::new();
        let mut domains = vec![];
        for (path, raw) in self.list::<RawPower>(root, "power") {
            self.check(format!("{path}.label"), &raw.label, names::qualified);
            if !seen.insert(raw.label.clone()) {
                self.error(format!("{path}.label"), "has budgets in an earlier entry already");
            }
            if raw.budget.is_none() && raw.budgets.is_empty() {
                self.error(path.as_str(), "needs a budget, or budgets by label value");
            }
            let budget = raw.budget.and_then(|b| self.budget(format!("{path}.budget"), &b));
            let mut budgets = BTreeMap::new();
            for (value, b) in raw.budgets {
                let at = format!("{path}.budgets[{value:?}]");
                self.check(at.as_str(), &value, names::label_value);
                if let Some(b) = self.budget(at, &b) {
                    budgets.insert(Name::from(value), b);
                }
            }
            domains.push(PowerDomain {
                label: raw.label.into(),
                budget,
                budgets,
            });
        }
        domains
    }

    /// Nothing at all is a budget too: of a rack that is being emptied.
    fn budget(&mut self, path: String, value: &Value) -> Option<u64> {
        watts::read(value, 0..=MOST_DOMAIN_WATTS)
            .map_err(|e| self.error(path, e))
            .ok()
    }

    fn namespaces(&mut self, root: &mut Map<String, Value>) -> Vec<NamespaceRule> {
        let mut rules = vec![];
        for (path, raw) in self.list::<RawNamespace>(root, "namespaces") {
            for (key, value) in &raw.matches {
                let at = format!("{path}.match[{key:?}]");
                self.check(at.as_str(), key, names::qualified);
                self.check(at, value, names::label_value);
            }
            if let Some(class) = &raw.default_class {
                self.check(format!("{path}.defaultClass"), class, names::dns_label);
            }
            self.no_sharing(&path, raw.sharing.as_ref());
            let mut default = raw.default_class;
            if let Some(allowed) = &raw.allowed_classes {
                for (i, class) in allowed.iter().enumerate() {
                    self.check(format!("{path}.allowedClasses[{i}]"), class, names::dns_label);
                }
                match (allowed.as_slice(), &default) {
                    ([], _) => self.error(
                        format!("{path}.allowedClasses"),
                        "allows nothing: leave it out to allow every class",
                    ),
                    ([only], None) => default = Some(only.clone()),
                    // Without one a pod that names no class could get a card of any class.
                    (_, None) => self.error(
                        format!("{path}.defaultClass"),
                        "is needed where several classes are allowed, for pods that name none",
                    ),
                    (_, Some(class)) if !allowed.contains(class) => {
                        self.error(
                            format!("{path}.defaultClass"),
                            format!("{class:?} is not in allowedClasses"),
                        );
                    }
                    _ => {}
                }
            }
            rules.push(NamespaceRule {
                matches: names_of(raw.matches),
                default_class: default.map(Name::from),
                allowed_classes: raw.allowed_classes.map(|a| a.into_iter().map(Name::from).collect()),
                max_gpus_per_pod: raw.max_gpus_per_pod,
                patch: self.patch(&format!("{path}.patch"), raw.patch.unwrap_or_default()),
            });
        }
        rules
    }

    pub(super) fn scheduler(&mut self, path: String, name: &str) {
        self.check(path.as_str(), name, names::dns_subdomain);
        if name == DEFAULT_SCHEDULER {
            self.error(path, "must be a scheduler that calls wattlane, not default-scheduler");
        }
    }

    /// `deviceClasses` adds to the built-in pairs, or replaces one of them.
    fn defaults(&mut self, root: &mut Map<String, Value>) -> Defaults {
        let raw: RawDefaults = self.section(root, "defaults");
        let mut defaults = Defaults::default();
        if let Some(name) = raw.scheduler_name {
            self.scheduler("defaults.schedulerName".to_owned(), &name);
            defaults.scheduler_name = name.into();
        }
        if let Some(name) = raw.runtime_class_name {
            self.check("defaults.runtimeClassName", &name, names::dns_subdomain);
            defaults.runtime_class_name = Some(name.into());
        }
        for (resource, class) in raw.device_classes {
            let at = format!("defaults.deviceClasses[{resource:?}]");
            self.check(at.as_str(), &resource, names::extended_resource);
            self.check(at, &class, names::dns_subdomain);
            defaults.device_classes.insert(resource.into(), class.into());
        }
        defaults
    }
}

pub(super) fn names_of(map: BTreeMap<String, String>) -> BTreeMap<Name, Name> {
    map.into_iter().map(|(k, v)| (k.into(), v.into())).collect()
}
