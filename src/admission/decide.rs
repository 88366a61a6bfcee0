//! The decision about one pod, as a pure function.

use serde_json::Value;

use super::amend::{Edits, amend};
use super::ask::{self, HAMI};
use super::pod::Pod;
use super::refuse::{Refused, list, shown};
use super::template::{Template, devices_in};
use super::{Skip, class, plan, skip};
use crate::model::{Name, NamespacedName};
use crate::policy::{ClassPatch, NamespaceRule, Policy};
use crate::snapshot::Snapshot;

/// Containers of a pod that may ask for devices: bounds the work, far above any real pod.
const MOST_ASKS: usize = 128;
/// The API server cuts warnings behind this many characters.
const WARNING: usize = 256;
const MOST_WARNINGS: usize = 8;

/// Annotations HAMi reads and wattlane does not.
const HAMI_WISHES: [&str; 4] = [
    "hami.io/gpu-scheduler-policy",
    "hami.io/node-scheduler-policy",
    "nvidia.com/numa-bind",
    "nvidia.com/vgpu-mode",
];

/// What is to be decided.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// That of the AdmissionRequest: the object's own may still be empty.
    pub namespace: &'a str,
    /// `CREATE`, or another verb that is answered without looking.
    pub operation: &'a str,
    /// The pod as JSON.
    pub object: &'a Value,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    LeaveAlone {
        reason: Skip,
        warnings: Vec<String>,
    },
    Patch {
        /// Never empty.
        ops: json_patch::Patch,
        /// To exist in the namespace before the answer goes out; sorted, no duplicates.
        templates: Vec<Template>,
        warnings: Vec<String>,
    },
    Refuse(Refused),
}

/// Decides. Applied to the result of its own patch it finds nothing left to do.
pub fn decide(snapshot: &Snapshot, policy: &Policy, request: &Request<'_>) -> Decision {
    let pod = Pod(request.object);
    if let Some(reason) = skip::before_reading(snapshot, policy, request, pod) {
        return Decision::LeaveAlone {
            reason,
            warnings: vec![],
        };
    }
    treat(snapshot, policy, request, pod).unwrap_or_else(Decision::Refuse)
}

fn treat(snapshot: &Snapshot, policy: &Policy, request: &Request<'_>, pod: Pod<'_>) -> Result<Decision, Refused> {
    let asks = ask::read(snapshot, policy, pod)?;
    if asks.len() > MOST_ASKS {
        let why = format!("more than {MOST_ASKS} requests for devices in one pod");
        return Err(Refused::new(422, why));
    }
    let plan = plan::plan(pod, &asks);
    let converted = !plan.claims.is_empty();
    let warnings = warnings(policy, pod, &asks);
    if !converted && pod.spec_list("resourceClaims").is_empty() {
        let reason = match asks.as_slice() {
            [] => Skip::NothingAsked,
            _ => Skip::NoDeviceClass,
        };
        return Ok(Decision::LeaveAlone { reason, warnings });
    }
    let labels = snapshot.namespaces.get(request.namespace).map(|n| &n.labels);
    let rule = labels.and_then(|l| policy.namespace_rule(l));
    limit(snapshot, policy, request.namespace, rule, pod, plan.devices())?;
    let class = class::choose(snapshot, policy, rule, pod, converted)?;
    let patch = class.as_ref().and_then(|c| policy.class(c)).map(|c| &c.patch);
    let edits = Edits {
        plan: &plan,
        scheduler: &policy.defaults.scheduler_name,
        class: class.as_ref(),
        runtime_class: runtime_class(snapshot, policy, pod, patch, converted)?,
        patch,
    };
    let ops = json_patch::diff(request.object, &amend(request.object, &edits)?);
    if ops.0.is_empty() {
        return Ok(Decision::LeaveAlone {
            reason: Skip::AlreadyTreated,
            warnings,
        });
    }
    let mut templates: Vec<Template> = plan.claims.into_iter().map(|c| c.template).collect();
    templates.sort();
    templates.dedup();
    Ok(Decision::Patch {
        ops,
        templates,
        warnings,
    })
}

/// Counts what the pod holds while it runs: new claims, and claims it has already (ours from an earlier call, or its
/// own, as far as we know what is in them).
fn limit(
    snapshot: &Snapshot,
    policy: &Policy,
    namespace: &str,
    rule: Option<&NamespaceRule>,
    pod: Pod<'_>,
    new: u32,
) -> Result<(), Refused> {
    let Some(most) = rule.and_then(|r| r.max_gpus_per_pod) else {
        return Ok(());
    };
    let gpu_class = |class: &Name| policy.defaults.device_classes.values().any(|c| c == class);
    let known = |claim: &Value| -> Option<u32> {
        if let Some(name) = claim["resourceClaimTemplateName"].as_str() {
            let template = snapshot.templates.get(&NamespacedName::new(namespace, name));
            return template
                .map(|t| devices_in(&t.spec, gpu_class))
                .or_else(|| Template::count_in(name));
        }
        let name = claim["resourceClaimName"].as_str()?;
        let claim = snapshot.claim(&NamespacedName::new(namespace, name))?;
        Some(devices_in(&claim.spec, gpu_class))
    };
    let existing = pod.spec_list("resourceClaims").iter().filter_map(known);
    let asked = existing.fold(new, u32::saturating_add);
    if asked <= most {
        return Ok(());
    }
    let message = format!("the pod asks for {asked} GPUs; the policy of this namespace allows {most} a pod");
    Err(Refused::new(403, message))
}

/// The RuntimeClass to set: none where the pod has one. One that the cluster does not have would leave the pod unable
/// to start, or, worse, start it without its device.
fn runtime_class<'a>(
    snapshot: &Snapshot,
    policy: &'a Policy,
    pod: Pod<'_>,
    patch: Option<&'a ClassPatch>,
    converted: bool,
) -> Result<Option<&'a Name>, Refused> {
    if pod.spec_text("runtimeClassName").is_some() {
        return Ok(None);
    }
    let default = policy.defaults.runtime_class_name.as_ref().filter(|_| converted);
    let Some(wanted) = patch.and_then(|p| p.runtime_class_name.as_ref()).or(default) else {
        return Ok(None);
    };
    // None known: the API server's own check decides.
    if snapshot.runtime_classes.is_empty() || snapshot.runtime_classes.contains_key(wanted) {
        return Ok(Some(wanted));
    }
    let mut there: Vec<&Name> = snapshot.runtime_classes.iter().map(|(name, ())| name).collect();
    there.sort();
    Err(Refused::new(
        422,
        format!(
            "the policy gives this pod the RuntimeClass {}, which this cluster does not have; there is: {}. \
             Set runtimeClassName, or have the policy corrected",
            shown(wanted),
            list(&there)
        ),
    ))
}

/// What works but may surprise.
fn warnings(policy: &Policy, pod: Pod<'_>, asks: &[ask::Ask]) -> Vec<String> {
    let mut said: Vec<String> = vec![];
    let mut say = |text: String| {
        let text: String = text.chars().take(WARNING).collect();
        if said.len() < MOST_WARNINGS && !said.contains(&text) {
            said.push(text);
        }
    };
    for ask in asks.iter().filter(|a| a.device_class.is_none()) {
        let named = policy.defaults.device_classes.get(&ask.resource);
        say(format!(
            "wattlane: {} is left to the device plugin: this cluster has no DeviceClass {} to claim it from",
            ask.resource,
            named.map_or("?", |n| n)
        ));
    }
    for container in pod.containers() {
        let amounts = ["limits", "requests"].into_iter().filter_map(|w| container.amounts(w));
        for key in amounts.flat_map(|m| m.keys()) {
            let whole_cards = asks
                .iter()
                .any(|a| (a.list, a.at) == (container.list, container.at) && a.device_class.is_some());
            if HAMI.contains(&key.as_str()) {
                say(match whole_cards {
                    true => format!("wattlane: {key} is dropped: the container gets whole cards"),
                    false => format!("wattlane: {key} is not acted on: ask for nvidia.com/gpu"),
                });
            } else if key.starts_with("nvidia.com/mig-") {
                say(format!(
                    "wattlane: {key} is left as it is: partitions are not claimed in this version"
                ));
            }
        }
    }
    for key in HAMI_WISHES.into_iter().filter(|k| pod.annotation(k).is_some()) {
        say(format!("wattlane: the annotation {key} is not read"));
    }
    said
}
