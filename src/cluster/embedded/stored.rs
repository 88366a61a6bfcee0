//! Pods as they are kept: as JSON text, which as a tree would be many times that, and of tens of thousands few are asked
//! for again.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::convert;
use crate::model::Pod;

/// A pod as JSON text, in two parts.
pub(super) struct StoredPod {
    /// All that comes before `spec`.
    own: Box<str>,
    /// The rest of the text.
    spec: Arc<str>,
}

/// What pods of one workload say alike: most of each.
#[derive(Default)]
pub(super) struct Specs(BTreeSet<Arc<str>>);

impl Specs {
    fn shared(&mut self, spec: String) -> Arc<str> {
        if let Some(known) = self.0.get(&*spec) {
            return known.clone();
        }
        let spec: Arc<str> = spec.into();
        self.0.insert(spec.clone());
        spec
    }
}

impl StoredPod {
    pub(super) fn of(json: Value) -> Self {
        Self::with(json, String::into)
    }

    /// As `of`; what others have as well is kept once.
    pub(super) fn sharing(json: Value, specs: &mut Specs) -> Self {
        Self::with(json, |spec| specs.shared(spec))
    }

    fn with(mut json: Value, keep: impl FnOnce(String) -> Arc<str>) -> Self {
        let mut rest = json.get_mut("spec").map(Value::take).unwrap_or_default();
        let node = rest.as_object_mut().and_then(|spec| spec.remove("nodeName"));
        if let Some(pod) = json.as_object_mut() {
            pod.remove("spec");
        }
        // Both are objects that go on.
        let (mut own, mut rest) = (json.to_string(), rest.to_string());
        own.truncate(own.len() - 1);
        own.push_str(r#","spec":{"#);
        if let Some(node) = node {
            own.push_str(&format!(r#""nodeName":{node}"#));
            if rest != "{}" {
                own.push(',');
            }
        }
        rest.remove(0);
        rest.push('}');
        Self {
            own: own.into(),
            spec: keep(rest),
        }
    }

    fn text(&self) -> String {
        [&*self.own, &*self.spec].concat()
    }

    pub(super) fn json(&self) -> Value {
        // It was written by us.
        serde_json::from_str(&self.text()).unwrap_or_default()
    }

    /// What the index reads of it. None: never, since it is stored when that can be read.
    pub(super) fn pod(&self) -> Option<Pod> {
        convert::pod_of_text(&self.text()).or_else(|| convert::pod(&self.json()).ok())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_comes_back_as_it_was_and_shares_its_spec() {
        let pod =
            |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec, "status": {"phase": "Running"}});
        let mut specs = Specs::default();
        let on = |node: &str| json!({"nodeName": node, "containers": [{"name": "c\"}"}]});
        let pods = [
            pod("a", on("n1")),
            pod("b", on("n2")),
            pod("c", json!({"containers": []})),
            pod("d", json!({"nodeName": "n1"})),
            pod("e", json!({})),
        ];
        for json in &pods {
            assert_eq!(StoredPod::of(json.clone()).json(), *json);
            assert_eq!(StoredPod::sharing(json.clone(), &mut specs).json(), *json);
            assert!(StoredPod::of(json.clone()).pod().is_some(), "{json}");
        }
        assert_eq!(specs.0.len(), 3);
    }
}
