//! Makes a case smaller for as long as it keeps what is interesting about it.

use serde_json::Value;

use super::case::Case;

/// Fields that an object may do without.
const OPTIONAL: [&str; 15] = [
    "taints",
    "tolerations",
    "capacity",
    "attributes",
    "constraints",
    "config",
    "selectors",
    "requestPolicy",
    "consumesCounters",
    "allowMultipleAllocations",
    "bindsToNode",
    "adminAccess",
    "labels",
    "requests",
    "effect",
];
const LIMIT: usize = 3000;

/// Greedy: takes away one thing after the other, again and again, until nothing can go.
pub(crate) fn shrink(case: &Case, mut interesting: impl FnMut(&Case) -> bool) -> Case {
    let mut best = case.clone();
    let mut tried = 0;
    loop {
        let before = best.clone();
        let mut at = 0;
        while tried < LIMIT {
            let mut step = at;
            let mut smaller = best.clone();
            if !remove(&mut smaller.doc, &mut step, "") {
                break; // no removal number `at`
            }
            tried += 1;
            if interesting(&smaller) { best = smaller } else { at += 1 }
        }
        if best == before || tried >= LIMIT {
            return best;
        }
    }
}

/// Carries out the removal number `step`, counting through the document. False: there are fewer.
fn remove(value: &mut Value, step: &mut usize, key: &str) -> bool {
    match value {
        // Emptied, these would no longer be legal, or mean the opposite.
        Value::Array(_) if matches!(key, "nodeSelectorTerms" | "validValues" | "values" | "consumesCounters") => false,
        Value::Array(list)
            if list.len() == 1 && (key == "firstAvailable" || key == "requests" && list[0].is_object()) =>
        {
            remove(&mut list[0], step, key)
        }
        Value::Array(list) => {
            if *step < list.len() {
                list.remove(*step);
                return true;
            }
            *step -= list.len();
            list.iter_mut().any(|v| remove(v, step, key))
        }
        Value::Object(map) => {
            let named = matches!(key, "attributes" | "capacity" | "labels");
            let legal = |k: &&String, v: &Value| k.as_str() != "requests" || !v[0].is_object();
            let gone: Vec<_> = map
                .iter()
                .filter(|(k, v)| named || OPTIONAL.contains(&k.as_str()) && legal(k, v))
                .map(|(k, _)| k.clone())
                .collect();
            if let Some(name) = gone.get(*step) {
                map.remove(name);
                return true;
            }
            *step -= gone.len();
            map.iter_mut().any(|(k, v)| remove(v, step, k))
        }
        Value::Number(n) if key == "count" && n.as_i64() > Some(1) => {
            if *step == 0 {
                *value = 1.into();
                return true;
            }
            *step -= 1;
            false
        }
        _ => false,
    }
}
