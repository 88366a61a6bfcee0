//! wattlane's answer to a case, in process: objects -> convert -> index -> placement on one node.

use std::sync::Arc;

use serde_json::Value;
use wattlane::convert::{self, Object};
use wattlane::index::{Change, Index};
use wattlane::model::{Classified, Classifier, Device, Labels, Name, WattOrigin};
use wattlane::placement::{Context, Demand, Rules, place};
use wattlane::selector::Selectors;

use super::case::{Case, NODE};

/// No device has a wattage class, so that the one-class rule, which Kubernetes does not know, never bites.
struct NoClasses;

impl Classifier for NoClasses {
    fn classify(&self, _: &Name, _: &Device, _: &Labels, _: &Labels) -> Classified {
        Classified {
            class: None,
            watts: None,
            origin: WattOrigin::Unknown,
        }
    }
}

/// One AllocationResult a claim, in order; or the refusal, as `reason: words`.
pub(crate) fn answer(case: &Case) -> Result<Vec<Value>, String> {
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
    let pod = pod.expect("a case has a pod");
    let snapshot = index.publish().expect("something changed");
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
