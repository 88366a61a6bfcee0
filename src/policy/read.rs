//! From the text of a policy file to a `Policy`, or to everything that is wrong with it, each with its place.
//!
//! The file is refused as a whole: half a policy is a policy nobody wrote. `wattlane check` and the service both call
//! this and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::OnceLock;

use serde_json::Value;
use serde_saphyr::UserMessageFormatter;

use super::fields::{Errors, Field, Fields};
use super::types::{Defaults, NodeOrder, Placement, Policy, PowerDomain};
use super::{names, watts};
use crate::model::{DEFAULT_SCHEDULER, Name};
use crate::placement::Topology;
use crate::selector::Selectors;

const API_VERSION: &str = "wattlane.dev/v1alpha1";
const KIND: &str = "PlacementPolicy";
/// Under which a ConfigMap holds the policy.
const KEY: &str = "policy.yaml";
const MOST_DOMAIN_WATTS: u64 = 1_000_000_000;
/// A weight of `demandMix`: sums of them over all partitions of a card stay far below what a key holds.
const MOST_WEIGHT: u32 = 1000;
/// Labels by which nodes are near or far.
const MOST_LEVELS: usize = 8;

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
    /// Everything that is wrong, section by section, up to twenty and how many there are more; never an empty list.
    pub fn read(text: &str, selectors: &Selectors) -> Result<Self, Vec<PolicyError>> {
        let mut reader = Reader {
            selectors,
            errors: Errors::default(),
        };
        let policy = reader.policy(text);
        match policy {
            Some(policy) if reader.errors.is_empty() => Ok(policy),
            _ => Err(reader.errors.into_list()),
        }
    }
}

/// Collects errors while it reads. `classes` is in `read_class`, `namespaces` in `read_namespace`.
pub(super) struct Reader<'a> {
    pub(super) selectors: &'a Selectors,
    pub(super) errors: Errors,
}

impl Reader<'_> {
    pub(super) fn error(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.errors.say(path, message);
    }

    pub(super) fn check(&mut self, path: impl Into<String>, text: &str, rule: fn(&str) -> Result<(), &'static str>) {
        if let Err(accepted) = rule(text) {
            let shown: String = text.chars().take(64).collect();
            self.error(path, format!("{shown:?} is not valid: {accepted}"));
        }
    }

    fn yaml(&mut self, text: &str) -> Option<Value> {
        let read = serde_saphyr::from_str(text).map_err(|e| {
            let why = e.without_snippet().render_with_formatter(&UserMessageFormatter);
            self.error("", format!("not readable as YAML: {why}"));
        });
        read.ok()
    }

    /// The policy's document, also out of the ConfigMap that `manifests/base` has it in.
    fn root(&mut self, text: &str) -> Option<Value> {
        let root = self.yaml(text)?;
        if root["apiVersion"] != "v1" || root["kind"] != "ConfigMap" {
            return Some(root);
        }
        let Some(inner) = root["data"][KEY].as_str() else {
            self.error(
                "",
                format!("this is a ConfigMap without data[{KEY:?}], which is where a {KIND} would be"),
            );
            return None;
        };
        self.yaml(inner)
    }

    fn policy(&mut self, text: &str) -> Option<Policy> {
        let root = self.root(text)?;
        let Value::Object(root) = root else {
            self.error(
                "",
                format!("expected a {KIND}: a mapping with apiVersion, kind and its sections"),
            );
            return None;
        };
        let mut root = Fields::of(String::new(), root);
        for (key, want) in [("apiVersion", API_VERSION), ("kind", KIND)] {
            let field = root.field(key);
            if field.any().as_ref().and_then(Value::as_str) != Some(want) {
                self.error(key, format!("must be {want}"));
            }
        }
        // Whatever tools put there.
        root.field("metadata");
        let policy = Policy {
            classes: self.classes(root.field("classes")),
            placement: self.placement(root.field("placement")),
            power: self.power(root.field("power")),
            namespaces: self.namespaces(root.field("namespaces")),
            defaults: self.defaults(root.field("defaults")),
            allowed: OnceLock::new(),
        };
        root.close(&mut self.errors);
        Some(policy)
    }

    fn placement(&mut self, field: Field) -> Placement {
        let Some(mut raw) = field.mapping(&mut self.errors) else {
            return Placement::default();
        };
        let words = [("pack", NodeOrder::Pack), ("spread", NodeOrder::Spread)];
        let nodes = self.choice(raw.field("nodes"), &words);
        let mix_classes = self.choice(raw.field("mixClasses"), &[("never", false), ("allow", true)]);
        let words = [
            ("preferred", Topology::Preferred),
            ("none", Topology::None),
            ("required", Topology::Required),
        ];
        let topology = self.choice(raw.field("topology"), &words);
        let nearness = raw.field("nearness");
        let at = nearness.path.clone();
        let nearness = self.texts(nearness, names::qualified);
        let demand_mix = self.demand_mix(raw.field("demandMix"));
        raw.close(&mut self.errors);
        Placement {
            nodes,
            mix_classes,
            topology,
            nearness: nearness.map(|labels| self.nearness(&at, labels)),
            demand_mix: demand_mix.into(),
        }
    }

    fn demand_mix(&mut self, field: Field) -> Vec<(Name, u32)> {
        let mut mix = vec![];
        for (profile, field) in field.entries(&mut self.errors) {
            let at = field.path.clone();
            self.check(at.as_str(), &profile, names::profile);
            match field.needed(&mut self.errors).count(&mut self.errors) {
                Some(weight) if weight > MOST_WEIGHT => self.error(at, format!("must be at most {MOST_WEIGHT}")),
                Some(weight) => mix.push((profile.into(), weight)),
                None => {}
            }
        }
        mix
    }

    fn nearness(&mut self, at: &str, labels: Vec<String>) -> Vec<Name> {
        if labels.len() > MOST_LEVELS {
            self.error(at, format!("{} labels; at most {MOST_LEVELS}", labels.len()));
        }
        labels.into_iter().map(Name::from).collect()
    }

    /// A list of names of the given kind; each is looked at, whatever the others are. None: left out, or not a list of texts.
    pub(super) fn texts(&mut self, field: Field, rule: fn(&str) -> Result<(), &'static str>) -> Option<Vec<String>> {
        let given = field.is_list();
        let items = field.list(&mut self.errors);
        let (entries, mut texts) = (items.len(), vec![]);
        for item in items {
            let at = item.path.clone();
            if let Some(text) = item.item(&mut self.errors).and_then(|i| i.text(&mut self.errors)) {
                self.check(at, &text, rule);
                texts.push(text);
            }
        }
        (given && texts.len() == entries).then_some(texts)
    }

    fn choice<T: Copy + Default>(&mut self, field: Field, words: &[(&str, T)]) -> T {
        let path = field.path.clone();
        let Some(given) = field.text(&mut self.errors) else {
            return T::default();
        };
        if let Some((_, value)) = words.iter().find(|(w, _)| *w == given) {
            return *value;
        }
        let known: Vec<_> = words.iter().map(|(w, _)| *w).collect();
        self.error(path, format!("must be one of {}", known.join(", ")));
        T::default()
    }

    fn power(&mut self, field: Field) -> Vec<PowerDomain> {
        let mut seen = BTreeSet::new();
        let mut domains = vec![];
        for mut raw in field.mappings(&mut self.errors) {
            let at = raw.at("label");
            let label = raw.text_needed("label", &mut self.errors);
            self.check(at.as_str(), &label, names::qualified);
            if !seen.insert(label.clone()) {
                self.error(at, "has budgets in an earlier entry already");
            }
            let (budget, budgets) = (raw.field("budget"), raw.field("budgets"));
            if !budget.is_given() && !budgets.is_given() {
                self.error(raw.path.as_str(), "needs a budget, or budgets by label value");
            }
            let budget = self.budget(budget);
            let mut by_value = BTreeMap::new();
            for (value, field) in budgets.entries(&mut self.errors) {
                self.check(field.path.as_str(), &value, names::label_value);
                if let Some(budget) = self.budget(field) {
                    by_value.insert(Name::from(value), budget);
                }
            }
            raw.close(&mut self.errors);
            domains.push(PowerDomain {
                label: label.into(),
                budget,
                budgets: by_value,
            });
        }
        domains
    }

    /// Nothing at all is a budget too: of a rack that is being emptied.
    fn budget(&mut self, field: Field) -> Option<u64> {
        self.watts(field, 0..=MOST_DOMAIN_WATTS)
    }

    pub(super) fn watts(&mut self, field: Field, range: RangeInclusive<u64>) -> Option<u64> {
        let path = field.path.clone();
        let value = field.any()?;
        watts::read(&value, range).map_err(|e| self.error(path, e)).ok()
    }

    /// A name of the given kind, or the like.
    pub(super) fn name(&mut self, field: Field, rule: fn(&str) -> Result<(), &'static str>) -> Option<Name> {
        let path = field.path.clone();
        let name = field.text(&mut self.errors)?;
        self.check(path, &name, rule);
        Some(name.into())
    }

    pub(super) fn scheduler(&mut self, field: Field) -> Option<Name> {
        let path = field.path.clone();
        let name = self.name(field, names::dns_subdomain)?;
        if &*name == DEFAULT_SCHEDULER {
            self.error(path, "must be a scheduler that calls wattlane, not default-scheduler");
        }
        Some(name)
    }

    /// `deviceClasses` and `partitionClasses` add to the built-in pairs, or replaces one of them.
    fn defaults(&mut self, field: Field) -> Defaults {
        let mut defaults = Defaults::default();
        let Some(mut raw) = field.mapping(&mut self.errors) else {
            return defaults;
        };
        if let Some(name) = self.scheduler(raw.field("schedulerName")) {
            defaults.scheduler_name = name;
        }
        let of_nvidia = self.name(raw.field("runtimeClassName"), names::dns_subdomain);
        let by_resource = raw.field("runtimeClassNames").entries(&mut self.errors);
        for (resource, field) in raw.field("deviceClasses").entries(&mut self.errors) {
            self.check(field.path.as_str(), &resource, names::extended_resource);
            if let Some(class) = self.name(field, names::dns_subdomain) {
                defaults.device_classes.insert(resource.into(), class);
            }
        }
        for (resource, field) in raw.field("partitionClasses").entries(&mut self.errors) {
            if !defaults.device_classes.contains_key(&*resource) {
                self.not_claimed(&field, &defaults);
            }
            if let Some(class) = self.name(field, names::dns_subdomain) {
                defaults.partition_classes.insert(resource.into(), class);
            }
        }
        // One name is NVIDIA's: where theirs is the only runtime there is, nobody needs to say so.
        let nvidia =
            |(resource, class): &(&Name, &Name)| resource.starts_with("nvidia.com/") || class.ends_with(".nvidia.com");
        let nvidia = defaults
            .device_classes
            .iter()
            .filter(nvidia)
            .map(|(resource, _)| resource.clone());
        defaults.runtime_classes = nvidia.filter_map(|r| Some((r, of_nvidia.clone()?))).collect();
        defaults.one_runtime = defaults.runtime_classes.keys().cloned().collect();
        for (resource, field) in by_resource {
            if !defaults.device_classes.contains_key(&*resource) {
                self.not_claimed(&field, &defaults);
            }
            if let Some(name) = self.name(field, names::dns_subdomain) {
                defaults.one_runtime.remove(&*resource);
                defaults.runtime_classes.insert(resource.into(), name);
            }
        }
        raw.close(&mut self.errors);
        defaults
    }

    fn not_claimed(&mut self, field: &Field, defaults: &Defaults) {
        let known: Vec<&str> = defaults.device_classes.keys().map(|r| &**r).collect();
        let message = format!("is none of deviceClasses, which are {}", known.join(", "));
        self.error(field.path.as_str(), message);
    }
}

pub(super) fn names_of(map: BTreeMap<String, String>) -> BTreeMap<Name, Name> {
    map.into_iter().map(|(k, v)| (k.into(), v.into())).collect()
}
