//! The parts of the check that look at one result or one field alone: taints, attribute values, config, nodeSelector.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::case::{Case, NODE, items, requests, text};
use super::check::{Violation, results};
use super::world::{Found, World, id};

pub(crate) fn taints(f: &Found<'_>, ask: &Value, result: &Value, found: &mut Vec<Violation>) {
    let tolerations = items(&ask["tolerations"]);
    for taint in items(&f.device["taints"]) {
        let blocks = matches!(text(&taint["effect"]), "NoSchedule" | "NoExecute");
        let tolerated = tolerations.iter().any(|t| {
            (t["effect"].is_null() || t["effect"] == taint["effect"])
                && (t["key"].is_null() || t["key"] == taint["key"])
                && (t["operator"] == "Exists" || text(&t["value"]) == text(&taint["value"]))
        });
        if blocks && !tolerated {
            found.push(format!("taint: {} is not tolerated on {}", taint, id(result)));
        }
    }
    if items(&result["tolerations"]) != tolerations {
        found.push(format!("tolerations: {} were not copied", ask["tolerations"]));
    }
}

/// The values of an attribute as a set; a single value is a set of one. The type is part of the value.
pub(crate) fn values(world: &World<'_>, result: &Value, attribute: &str) -> Option<BTreeSet<String>> {
    let attributes = &world.devices.get(&id(result))?.device["attributes"];
    let short = attribute
        .strip_prefix(text(&result["driver"]))
        .and_then(|rest| rest.strip_prefix('/'));
    let value = attributes.get(attribute).or_else(|| attributes.get(short?))?;
    let (kind, value) = value.as_object()?.iter().next()?;
    let kind = kind.trim_end_matches('s');
    let list = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
    Some(list.iter().map(|v| format!("{kind} {v}")).collect())
}

/// Each class's configuration once, with the requests it is for; then the claim's.
pub(crate) fn config(case: &Case, claim: &Value, allocation: &Value, found: &mut Vec<Violation>) {
    let names: BTreeSet<_> = results(allocation).iter().map(|r| text(&r["request"])).collect();
    let chosen: Vec<_> = requests(claim)
        .into_iter()
        .filter(|(full, ..)| names.contains(full.as_str()))
        .collect();
    let mut want: Vec<Value> = vec![];
    let mut classes: Vec<&str> = vec![];
    for (_, ask, _) in &chosen {
        let class = text(&ask["deviceClassName"]);
        if !classes.contains(&class) {
            classes.push(class);
        }
    }
    for class in classes {
        let of: Vec<_> = chosen
            .iter()
            .filter(|(_, ask, _)| ask["deviceClassName"] == class)
            .map(|(n, ..)| n)
            .collect();
        let spec = case.list("classes").iter().find(|c| c["metadata"]["name"] == class);
        for entry in spec.map_or(&[][..], |s| items(&s["spec"]["config"])) {
            want.push(json!({"source": "FromClass", "requests": of, "opaque": entry["opaque"]}));
        }
    }
    for entry in items(&claim["spec"]["devices"]["config"]) {
        let named = items(&entry["requests"]);
        let used = chosen
            .iter()
            .any(|(full, _, parent)| named.iter().any(|n| n == full || n == parent));
        if named.is_empty() || used {
            want.push(json!({"source": "FromClaim", "requests": named, "opaque": entry["opaque"]}));
        }
    }
    let mut have: Vec<Value> = items(&allocation["devices"]["config"])
        .iter()
        .map(|c| json!({"source": c["source"], "requests": items(&c["requests"]), "opaque": c["opaque"]}))
        .collect();
    // Upstream repeats an entry for each request it names; drivers read the last that applies, so once is enough.
    have.dedup();
    if have != want {
        found.push(format!("config: is {have:?}, should be {want:?}"));
    }
}

/// Any device of the node alone: the node by name. Else what the devices' selectors ask for, each once. Else nothing.
pub(crate) fn node_selector(world: &World<'_>, allocation: &Value, found: &mut Vec<Violation>) {
    let mut local = false;
    let mut wanted = BTreeSet::new();
    for result in results(allocation) {
        let Some(f) = world.devices.get(&id(result)) else {
            continue;
        };
        let per_device = f.slice["spec"]["perDeviceNodeSelection"] == true;
        let scope = if per_device { f.device } else { &f.slice["spec"] };
        local |= scope["nodeName"].is_string() || f.device["bindsToNode"] == true;
        for term in items(&scope["nodeSelector"]["nodeSelectorTerms"]) {
            wanted.extend(items(&term["matchExpressions"]).iter().map(requirement));
        }
    }
    let selector = &allocation["nodeSelector"];
    let terms = items(&selector["nodeSelectorTerms"]);
    if local {
        let name = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]}]);
        let is = terms.len() == 1 && terms[0]["matchFields"] == name[0]["matchFields"];
        if !is || !items(&terms[0]["matchExpressions"]).is_empty() {
            found.push(format!("nodeSelector: {selector} should be the node's name"));
        }
        return;
    }
    let have: BTreeSet<_> = terms
        .iter()
        .flat_map(|t| items(&t["matchExpressions"]))
        .map(requirement)
        .collect();
    let fields = terms.iter().any(|t| !items(&t["matchFields"]).is_empty());
    if have != wanted || fields || terms.len() != usize::from(!wanted.is_empty()) {
        found.push(format!("nodeSelector: {selector} should ask for {wanted:?}"));
    }
}

fn requirement(r: &Value) -> String {
    json!([r["key"], r["operator"], items(&r["values"])]).to_string()
}
