//! The decision about one pod, as a pure function.

use serde_json::Value;

use super::amend::{Edits, amend};
use super::ask::{self, Ask, MOST_ASKS};
use super::offer::Offers;
use super::plan::Plan;
use super::pod::Pod;
use super::refuse::{Refused, list, shown};
use super::shared::Shared;
use super::template::{Template, devices_in};
use super::{Skip, class, gate, parts, plan, share, skip, wish};
use crate::model::{Name, NamespacedName, PARTITIONS};
use crate::policy::{NamespaceRule, PodPatch, Policy, named_by};
use crate::snapshot::Snapshot;

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
        /// Of a pod that was treated earlier: as those of a patch, they may be gone.
        templates: Vec<Template>,
        shared: Vec<Shared>,
        warnings: Vec<String>,
    },
    Patch {
        /// Never empty.
        ops: json_patch::Patch,
        /// To exist in the namespace before the answer goes out; sorted, no duplicates.
        templates: Vec<Template>,
        /// As the templates; what pods share their devices by.
        shared: Vec<Shared>,
        warnings: Vec<String>,
    },
    Refuse(Refused),
}

/// What becomes of a pod without our gate.
enum Treated {
    Leave {
        reason: Skip,
        /// Of one that was treated in an earlier life.
        templates: Vec<Template>,
        shared: Vec<Shared>,
        warnings: Vec<String>,
    },
    Amended {
        /// Another than it was.
        pod: Value,
        templates: Vec<Template>,
        shared: Vec<Shared>,
        warnings: Vec<String>,
    },
}

impl Treated {
    /// One that needs nothing of us.
    fn left(reason: Skip, warnings: Vec<String>) -> Self {
        Self::Leave {
            reason,
            templates: vec![],
            shared: vec![],
            warnings,
        }
    }
}

/// Decides. Applied to the result of its own patch it finds nothing left to do.
pub fn decide(snapshot: &Snapshot, policy: &Policy, request: &Request<'_>) -> Decision {
    let lifted = gate::without(request.object);
    let object = lifted.as_ref().unwrap_or(request.object);
    let ungated = Request { object, ..*request };
    match treat(snapshot, policy, &ungated) {
        Err(refused) => Decision::Refuse(refused),
        Ok(Treated::Amended {
            pod,
            templates,
            shared,
            warnings,
        }) => Decision::Patch {
            ops: json_patch::diff(request.object, &pod),
            templates,
            shared,
            warnings,
        },
        Ok(Treated::Leave {
            reason,
            templates,
            shared,
            warnings,
        }) => match lifted.is_none() || gate::stays(reason) {
            true => Decision::LeaveAlone {
                reason,
                templates,
                shared,
                warnings,
            },
            false => Decision::Patch {
                ops: json_patch::diff(request.object, object),
                templates,
                shared,
                warnings,
            },
        },
    }
}

fn treat(snapshot: &Snapshot, policy: &Policy, request: &Request<'_>) -> Result<Treated, Refused> {
    let pod = Pod(request.object);
    if let Some(reason) = skip::before_reading(snapshot, policy, request, pod) {
        return Ok(Treated::left(reason, vec![]));
    }
    // The memory of a slot is the slot's business.
    let wish = match share::wish(pod) {
        Some(_) => None,
        None => parts::wish(pod)?,
    };
    let offers = Offers::new(snapshot, policy);
    let asks = ask::read(&offers, pod, wish.as_ref())?;
    if wish.is_some() {
        said_once(&asks)?;
    }
    let labels = snapshot.namespaces.get(request.namespace).map(|n| &n.labels);
    let rule = labels.and_then(|l| policy.namespace_rule(l));
    let sharing = rule.and_then(|r| r.sharing.as_ref());
    let slot = share::wanted(snapshot, sharing, request.namespace, pod, &asks)?;
    let plan = match &slot {
        Some(slot) => slot.plan(),
        None => plan::plan(pod, &asks),
    };
    let converted = !plan.served.is_empty();
    let mut warnings = wish::warnings(policy, pod, &asks, slot.is_some());
    if !converted && pod.spec_list("resourceClaims").is_empty() {
        let reason = match asks.as_slice() {
            [] => Skip::NothingAsked,
            _ => Skip::NoDeviceClass,
        };
        return Ok(Treated::left(reason, warnings));
    }
    wish::unreadable(pod)?;
    parts::unlinked(policy, pod, &asks)?;
    limit(snapshot, policy, request.namespace, rule, pod, (&plan, slot.is_some()))?;
    let mut class = class::choose(snapshot, policy, rule, pod, converted)?;
    match &slot {
        Some(slot) => {
            class = share::class(sharing, pod, class)?;
            warnings.push(slot.warning.clone());
        }
        None => parts::of_class(&offers, &asks, class.as_ref(), wish.as_ref())?,
    }
    warnings.extend(class.as_ref().and_then(|c| wish::overruled(pod, c, converted)));
    let of_class = class.as_ref().and_then(|c| policy.class(c)).map(|c| &c.patch);
    let of_namespace = rule.map(|r| &r.patch);
    let patches: Vec<&PodPatch> = of_class.into_iter().chain(of_namespace).collect();
    let named = |patch: Option<&'_ PodPatch>| patch.and_then(|p| p.runtime_class_name.clone());
    // A pod of somebody else's claims may be about other devices: only what its class says is about its own.
    let of_others = || named(of_namespace).filter(|_| converted);
    let wanted = match named(of_class).or_else(of_others) {
        Some(wanted) => Some(wanted),
        None => default_runtime_class(policy, pod, &plan)?,
    };
    let scheduler = patches.iter().find_map(|p| p.scheduler_name.as_ref());
    let named = pod.spec_text("schedulerName").is_some_and(|s| policy.schedules(s));
    let edits = Edits {
        plan: &plan,
        slot: slot.as_ref(),
        scheduler: (!named).then(|| scheduler.unwrap_or(&policy.defaults.scheduler_name)),
        class: class.as_ref(),
        runtime_class: runtime_class(snapshot, pod, wanted.as_ref())?,
        patches: &patches,
    };
    let amended = amend(request.object, &edits)?;
    let named = templates_named(&offers, pod);
    let mut shared = share::named(snapshot, sharing, request.object);
    if amended == *request.object {
        return Ok(Treated::Leave {
            reason: Skip::AlreadyTreated,
            templates: named,
            shared,
            warnings,
        });
    }
    let made = plan.claims.into_iter().map(|c| c.template);
    let mut templates: Vec<Template> = made.chain(named).collect();
    templates.sort();
    templates.dedup();
    shared.extend(slot.map(|s| s.shared));
    Ok(Treated::Amended {
        pod: amended,
        templates,
        shared,
        warnings,
    })
}

/// Templates of ours that the pod names already: it comes from an earlier call, or is a copy of a pod that was treated
/// long ago, whose template may be gone.
fn templates_named(offers: &Offers<'_>, pod: Pod<'_>) -> Vec<Template> {
    let claims = pod.spec_list("resourceClaims").iter().take(MOST_ASKS);
    let names = claims.filter_map(|c| c["resourceClaimTemplateName"].as_str());
    let template = |name| Template::named(offers.snapshot, name).or_else(|| parts::template_named(offers, pod, name));
    names.filter_map(template).collect()
}

/// An annotation that says which part of a card is meant speaks of every card of the pod.
fn said_once(asks: &[Ask]) -> Result<(), Refused> {
    match asks.iter().find(|a| named_by(&a.resource).is_some()) {
        Some(ask) => Err(Refused::new(
            422,
            format!(
                "the pod asks for {} and has an annotation that says which part of a card is meant: write one of them",
                ask.resource
            ),
        )),
        None => Ok(()),
    }
}

/// Counts what the pod holds while it runs: new claims, and claims it has already (ours from an earlier call, or its
/// own, as far as we know what is in them).
fn limit(
    snapshot: &Snapshot,
    policy: &Policy,
    namespace: &str,
    rule: Option<&NamespaceRule>,
    pod: Pod<'_>,
    (plan, slot): (&Plan, bool),
) -> Result<(), Refused> {
    let Some(most) = rule.and_then(|r| r.max_gpus_per_pod) else {
        return Ok(());
    };
    // Those the policy names, and those that stand in for them here.
    let pairs = || policy.defaults.device_classes.iter();
    let stand_ins: Vec<Name> = pairs().filter_map(|(r, c)| ask::device_class(snapshot, r, c)).collect();
    let gpu_class = |class: &Name| pairs().any(|(_, c)| c == class) || stand_ins.contains(class);
    let known = |claim: &Value| -> Option<u32> {
        if let Some(name) = claim["resourceClaimTemplateName"].as_str() {
            if name.starts_with(PARTITIONS) {
                return None;
            }
            let template = snapshot.templates.get(&NamespacedName::new(namespace, name));
            return template
                .map(|t| devices_in(&t.spec, gpu_class))
                .or_else(|| Template::count_in(name));
        }
        let name = claim["resourceClaimName"].as_str()?;
        let claim = snapshot.claim(&NamespacedName::new(namespace, name))?;
        Some(devices_in(&claim.spec, gpu_class))
    };
    let existing = pod.spec_list("resourceClaims").iter();
    // How many cards partitions are of is seen when they are placed: one at least, beside those that are given whole.
    let of_parts = |c: &Value| {
        c["resourceClaimTemplateName"]
            .as_str()
            .is_some_and(|n| n.starts_with(PARTITIONS))
    };
    let parts = plan.has_parts() || existing.clone().any(of_parts);
    let new = plan.cards().saturating_add(u32::from(parts) + u32::from(slot));
    let asked = existing.filter_map(known).fold(new, u32::saturating_add);
    if asked <= most {
        return Ok(());
    }
    let gpus = if parts { "GPUs at least" } else { "GPUs" };
    let message = format!("the pod asks for {asked} {gpus}; the policy of this namespace allows {most} a pod");
    Err(Refused::new(403, message))
}

/// The RuntimeClass that the policy has for the vendor of the devices that are claimed for the pod.
fn default_runtime_class(policy: &Policy, pod: Pod<'_>, plan: &Plan) -> Result<Option<Name>, Refused> {
    let of = |resource: &Name| policy.defaults.runtime_classes.get(resource);
    let mut wanted = plan
        .served
        .iter()
        .filter_map(|(_, ask)| Some((&ask.resource, of(&ask.cards)?)));
    let Some((resource, class)) = wanted.next() else {
        return Ok(None);
    };
    match wanted.find(|(_, other)| *other != class) {
        Some((other, another)) if pod.spec_text("runtimeClassName").is_none() => Err(Refused::new(
            422,
            format!(
                "the policy has the RuntimeClass {class} for {resource} and {another} for {other}, and a pod can have one: \
                 set runtimeClassName, or ask for one of them"
            ),
        )),
        _ => Ok(Some(class.clone())),
    }
}

/// The RuntimeClass to set: none where the pod has one. One that the cluster does not have would leave the pod unable
/// to start, or, worse, start it without its device.
fn runtime_class<'a>(snapshot: &Snapshot, pod: Pod<'_>, wanted: Option<&'a Name>) -> Result<Option<&'a Name>, Refused> {
    if pod.spec_text("runtimeClassName").is_some() {
        return Ok(None);
    }
    let Some(wanted) = wanted else {
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
