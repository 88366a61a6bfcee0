//! ResourceClaimTemplates by content: equal asks of a namespace share one template, and its name says what is in it.

use std::sync::Arc;

use serde_json::{Value, json};

use super::ask::MOST_DEVICES;
use super::naming;
use crate::convert::MANAGED_BY;
use crate::model::{
    CARD, CARDS, ClaimSpec, ClaimTemplate, Count, DeviceRequest, Name, NamespacedName, PARTITIONS, Request,
    RequestKind, SubRequest, unhashed,
};
use crate::snapshot::Snapshot;

const REQUEST: &str = "gpu";

/// One request for `count` devices: whole ones of a DeviceClass, or parts of cards.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Template {
    pub device_class: Name,
    pub count: u32,
    /// None: whole cards of the DeviceClass.
    pub parts: Option<Parts>,
}

/// Parts of cards by profile or by memory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Parts {
    /// What was asked for (`3g.40gb`, `20Gi`), for the template's name.
    pub label: Name,
    /// In order of preference, 1 to 8; the one called `card` is a whole card.
    pub choices: Vec<Choice>,
}

/// One way to serve a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Choice {
    /// A DNS label.
    pub name: Name,
    pub device_class: Name,
    /// CEL.
    pub selector: Name,
}

impl Parts {
    /// Whether a partition may come of it.
    pub(super) fn some_are_parts(&self) -> bool {
        self.choices.iter().any(Choice::is_part)
    }

    /// Whether nothing else may.
    pub(super) fn all_are_parts(&self) -> bool {
        self.choices.iter().all(Choice::is_part)
    }
}

impl Choice {
    fn is_part(&self) -> bool {
        &*self.name != CARD
    }
}

impl Template {
    pub(super) fn of_parts(parts: Parts, count: u32) -> Option<Self> {
        Some(Self {
            device_class: parts.choices.first()?.device_class.clone(),
            count,
            parts: Some(parts),
        })
    }

    /// Whether it may give a partition.
    pub(super) fn is_of_parts(&self) -> bool {
        self.parts.as_ref().is_some_and(Parts::some_are_parts)
    }

    /// `wl-gpu-nvidia-com-x2-<hash>`, `wlp-3g-40gb-x1-<hash>`: readable, and unique by the hash of the spec. The beginning
    /// says to placement whether partitions are meant.
    pub fn name(&self) -> Name {
        let label = self.parts.as_ref().map_or(&self.device_class, |p| &p.label);
        let prefix = if self.is_of_parts() { PARTITIONS } else { CARDS };
        let hash = naming::hash(&self.spec().to_string());
        format!("{prefix}{}-x{}-{hash}", naming::label(label), self.count).into()
    }

    /// The number of devices in a template of ours, by its name alone: a template made a moment ago may not have
    /// come through the watch yet.
    pub(super) fn count_in(name: &str) -> Option<u32> {
        name.starts_with(CARDS).then(|| Self::counted(name))?
    }

    /// The same of cards and partitions.
    pub(super) fn counted(name: &str) -> Option<u32> {
        let rest = name.strip_prefix(CARDS).or_else(|| name.strip_prefix(PARTITIONS))?;
        let (_, count) = unhashed(rest)?.rsplit_once("-x")?;
        count.parse().ok()
    }

    /// The template of ours that a pod names, made of one of the cluster's DeviceClasses. It may have been removed since.
    pub(super) fn named(snapshot: &Snapshot, name: &str) -> Option<Self> {
        let count = Self::count_in(name).filter(|n| (1..=MOST_DEVICES).contains(n))?;
        let classes = snapshot.classes.iter().map(|(class, _)| class);
        let templates = classes.map(|class| Self {
            device_class: class.clone(),
            count,
            parts: None,
        });
        templates.into_iter().find(|t| *t.name() == *name)
    }

    /// What an object says, if it is exactly what we would write: label, content, and the name of that content.
    pub(super) fn made(object: &ClaimTemplate) -> Option<Self> {
        let [request] = object.spec.requests.as_slice() else {
            return None;
        };
        let count = Self::counted(&object.key.name)?;
        let choice = |name: &Name, wanted: &DeviceRequest| Choice {
            name: name.clone(),
            device_class: wanted.class.clone(),
            selector: wanted.selectors.first().cloned().unwrap_or_default(),
        };
        let choices: Vec<Choice> = match &request.kind {
            RequestKind::Exactly(wanted) if wanted.selectors.is_empty() => vec![],
            RequestKind::Exactly(wanted) => vec![choice(&request.name, wanted)],
            RequestKind::FirstAvailable(list) => list.iter().map(|s| choice(&s.name, &s.request)).collect(),
        };
        // What the label was is lost in the name, but for what the name shows of it.
        let label = object.key.name.trim_start_matches(CARDS).trim_start_matches(PARTITIONS);
        let label = label.rsplit_once("-x").map_or(label, |(label, _)| label);
        let template = match (&request.kind, choices.is_empty()) {
            (RequestKind::Exactly(wanted), true) => Self {
                device_class: wanted.class.clone(),
                count,
                parts: None,
            },
            _ => Self::of_parts(
                Parts {
                    label: label.into(),
                    choices,
                },
                count,
            )?,
        };
        template.is(object).then_some(template)
    }

    /// Whether the object is this template, ours and with our content.
    pub(super) fn is(&self, object: &ClaimTemplate) -> bool {
        let ours = object.labels.get(MANAGED_BY.0).is_some_and(|v| &**v == MANAGED_BY.1);
        ours && object.key.name == self.name() && !object.marks_claims && *object.spec == self.claim_spec()
    }

    pub fn key(&self, namespace: &str) -> NamespacedName {
        NamespacedName::new(namespace, self.name())
    }

    fn spec(&self) -> Value {
        let of = |class: &str| json!({"deviceClassName": class, "allocationMode": "ExactCount", "count": self.count});
        let choice = |c: &Choice| {
            let mut request = of(&c.device_class);
            request["selectors"] = json!([{"cel": {"expression": &*c.selector}}]);
            request
        };
        let request = match self.choices() {
            [] => json!({"name": REQUEST, "exactly": of(&self.device_class)}),
            [one] => json!({"name": &*one.name, "exactly": choice(one)}),
            several => {
                let named = |c: &Choice| {
                    let mut request = choice(c);
                    request["name"] = json!(&*c.name);
                    request
                };
                json!({"name": REQUEST, "firstAvailable": several.iter().map(named).collect::<Vec<_>>()})
            }
        };
        json!({"devices": {"requests": [request]}})
    }

    fn choices(&self) -> &[Choice] {
        self.parts.as_ref().map_or(&[], |p| &p.choices)
    }

    /// The whole object (resource.k8s.io/v1).
    pub fn object(&self, namespace: &str) -> Value {
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {
                "name": &*self.name(),
                "namespace": namespace,
                "labels": {MANAGED_BY.0: MANAGED_BY.1},
            },
            "spec": {"spec": self.spec()},
        })
    }

    /// What the cache holds once the watch has shown it.
    pub fn claim_spec(&self) -> ClaimSpec {
        let of = |class: &Name, selector: Option<&Name>| DeviceRequest {
            class: class.clone(),
            selectors: selector.into_iter().cloned().collect(),
            count: Count::Exactly(self.count),
            admin_access: false,
            tolerations: vec![],
            capacity: vec![],
        };
        let choice = |c: &Choice| of(&c.device_class, Some(&c.selector));
        let (name, kind) = match self.choices() {
            [] => (REQUEST.into(), RequestKind::Exactly(of(&self.device_class, None))),
            [one] => (one.name.clone(), RequestKind::Exactly(choice(one))),
            several => {
                let sub = |c: &Choice| SubRequest {
                    name: c.name.clone(),
                    request: choice(c),
                };
                (
                    REQUEST.into(),
                    RequestKind::FirstAvailable(several.iter().map(sub).collect()),
                )
            }
        };
        ClaimSpec {
            requests: vec![Request { name, kind }],
            ..ClaimSpec::default()
        }
    }
}

/// Devices of the given DeviceClasses that a claim spec asks for. All: counted as none, since the number depends on
/// the node.
pub(super) fn devices_in(spec: &Arc<ClaimSpec>, classes: impl Fn(&Name) -> bool) -> u32 {
    let count = |r: &DeviceRequest| match r.count {
        Count::Exactly(n) if classes(&r.class) && !r.admin_access => n,
        _ => 0,
    };
    let of = |request: &Request| match &request.kind {
        RequestKind::Exactly(r) => count(r),
        RequestKind::FirstAvailable(subs) => subs.iter().map(|s| count(&s.request)).max().unwrap_or(0),
    };
    spec.requests.iter().fold(0, |sum, r| sum.saturating_add(of(r)))
}

#[cfg(test)]
mod tests {
    use super::Template;

    fn template(class: &str, count: u32) -> Template {
        Template {
            device_class: class.into(),
            count,
            parts: None,
        }
    }

    #[test]
    fn names_say_what_is_inside_and_are_read_back() {
        let name = template("gpu.nvidia.com", 2).name();
        assert!(name.starts_with("wl-gpu-nvidia-com-x2-"), "{name}");
        assert_eq!(Template::count_in(&name), Some(2));
        assert_eq!(Template::count_in(&template(&"a.".repeat(100), 31).name()), Some(31));
        for foreign in [
            "",
            "wl-",
            "gpu-x2-0123456789",
            "wl-gpu-x2-01234",
            "wl-gpu-x-0123456789",
            "wl-x2-012345678z",
        ] {
            assert_eq!(Template::count_in(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn what_differs_has_another_name() {
        let base = template("gpu.nvidia.com", 2);
        assert_eq!(base.name(), base.clone().name());
        assert_ne!(base.name(), template("gpu.nvidia.com", 3).name());
        // Equal but for the spelling that the readable part loses.
        assert_ne!(base.name(), template("gpu-nvidia.com", 2).name());
    }
}
