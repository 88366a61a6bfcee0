//! wattlane's answer to a case, in process: objects -> convert -> index -> placement on one node.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use wattlane::convert::{self, Object};
use wattlane::index::{Change, Index};
use wattlane::model::{Classified, Classifier, Device, Labels, Name, Pod, RequestKind, SubRequest, WattOrigin};
use wattlane::placement::{Context, Demand, Rules, place};
use wattlane::selector::Selectors;
use wattlane::snapshot::Snapshot;

use super::case::{Case, NODE};
use super::upstream::Matches;

/// No device has a wattage class, so that the one-class rule, which Kubernetes does not know, never bites.
struct NoClasses;

impl Classifier for NoClasses {
    fn classify(&self, _: &Name, _: &Device, _: &Labels, _: &Labels) -> Classified {
        Classified {
            class: None,
            watts: None,
            origin: WattOrigin::Unknown,
            board: None,
        }
    }
}

/// The snapshot wattlane makes of a case, and the pod.
pub(crate) fn load(case: &Case) -> (Arc<Snapshot>, Pod) {
    let mut index = Index::new(Arc::new(NoClasses));
    let mut pod = None;
    for value in case.objects() {
        let object = convert::object(&value)
            .unwrap_or_else(|e| panic!("{e:?} in {value}"))
            .unwrap_or_else(|| panic!("unknown kind: {value}"));
        if let Object::Pod(p) = &object {
            pod = Some(p.clone());
        }
        index.apply(Change::Upsert(object));
    }
    (
        index.publish().expect("something changed"),
        pod.expect("a case has a pod"),
    )
}

/// One AllocationResult a claim, in order; or the refusal, as `reason: words`.
pub(crate) fn answer(case: &Case) -> Result<Vec<Value>, String> {
    let (snapshot, pod) = load(case);
    let (selectors, rules) = (Selectors::new(), Rules::default());
    let ctx = Context {
        snapshot: &snapshot,
        selectors: &selectors,
        rules: &rules,
    };
    let refused = |r: wattlane::model::Refusal| format!("{}: {}", r.reason.as_str(), r.message);
    let demand = Demand::of(ctx, &pod).map_err(refused)?;
    let node = snapshot.node_named(NODE).expect("the node was loaded");
    let placement = place(ctx, &demand, node).map_err(refused)?;
    assert!(
        placement.claims.iter().all(|c| !c.existing),
        "no claim of the pod was allocated"
    );
    Ok(placement
        .claims
        .iter()
        .map(|c| convert::allocation_json(&c.allocation))
        .collect())
}

/// What our selectors say: by `claim/request[/subrequest]` and `driver/pool/device`, as the oracle's `matches`.
pub(crate) fn matches(case: &Case) -> Matches {
    let selectors = Selectors::new();
    let mut devices = vec![];
    let mut classes: BTreeMap<Name, Vec<Name>> = BTreeMap::new();
    let mut claims = vec![];
    for value in case.objects() {
        match convert::object(&value) {
            Ok(Some(Object::Slice(slice))) => {
                let id = |d: &Device| format!("{}/{}/{}", slice.driver, slice.pool, d.name);
                devices.extend(slice.devices.iter().map(|d| (id(d), slice.driver.clone(), d.clone())));
            }
            Ok(Some(Object::Class(class))) => {
                classes.insert(class.name.clone(), class.selectors.clone());
            }
            Ok(Some(Object::Claim(claim))) if claim.allocation.is_none() => claims.push(claim),
            _ => {}
        }
    }
    let mut all = Matches::new();
    for claim in &claims {
        for request in &claim.spec.requests {
            let asks = match &request.kind {
                RequestKind::Exactly(ask) => vec![(request.name.to_string(), ask)],
                RequestKind::FirstAvailable(subs) => {
                    let full = |s: &SubRequest| format!("{}/{}", request.name, s.name);
                    subs.iter().map(|s| (full(s), &s.request)).collect()
                }
            };
            for (name, ask) in asks {
                let Some(of_class) = classes.get(&ask.class) else {
                    continue;
                };
                let texts: Vec<&Name> = of_class.iter().chain(&ask.selectors).collect();
                let row = devices
                    .iter()
                    .map(|(id, driver, device)| (id.clone(), both(&selectors, &texts, driver, device)));
                all.insert(format!("{}/{name}", claim.key.name), row.collect());
            }
        }
    }
    all
}

/// All of the selectors, in order, up to the first that says no or fails.
fn both(selectors: &Selectors, texts: &[&Name], driver: &Name, device: &Device) -> Value {
    for text in texts {
        match selectors.selector(text).matches(driver, device, None) {
            Ok(true) => {}
            Ok(false) => return false.into(),
            Err(error) => return (*error.0).into(),
        }
    }
    true.into()
}
