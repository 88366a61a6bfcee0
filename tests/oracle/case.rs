//! One case: the cluster one pod meets, as Kubernetes JSON. Rendered for the oracle as it is, for wattlane as a
//! list of objects. Owns the document's shape; does not know how cases are made or judged.

use serde_json::{Value, json};

pub(crate) const NAMESPACE: &str = "default";
pub(crate) const NODE: &str = "n1";

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Case {
    /// `node`, `slices`, `classes`, `claims` (of the pod, to allocate), `allocated` (claims of others).
    pub(crate) doc: Value,
}

impl Case {
    pub(crate) fn list(&self, field: &str) -> &[Value] {
        self.doc[field].as_array().map_or(&[], Vec::as_slice)
    }

    /// The document the oracle reads: one line, with the selectors' results asked for.
    pub(crate) fn line(&self) -> String {
        let mut doc = self.doc.clone();
        doc["matches"] = json!(true);
        doc.to_string()
    }

    /// Every object, as `kubectl get -o json` would list them.
    pub(crate) fn objects(&self) -> Vec<Value> {
        let of = |field: &str, api: &str, kind: &str| {
            let typed = |object: &Value| {
                let mut object = object.clone();
                object["apiVersion"] = json!(api);
                object["kind"] = json!(kind);
                object
            };
            self.list(field).iter().map(typed).collect::<Vec<_>>()
        };
        let mut node = self.doc["node"].clone();
        node["apiVersion"] = json!("v1");
        node["kind"] = json!("Node");
        // Claims that ask for admin access are legal only in such a namespace.
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "uid": "ns",
            "labels": {"resource.kubernetes.io/admin-access": "true"}}});
        let mut objects = vec![namespace, node];
        objects.extend(of("classes", "resource.k8s.io/v1", "DeviceClass"));
        objects.extend(of("slices", "resource.k8s.io/v1", "ResourceSlice"));
        objects.extend(of("allocated", "resource.k8s.io/v1", "ResourceClaim"));
        objects.extend(of("claims", "resource.k8s.io/v1", "ResourceClaim"));
        objects.push(self.pod());
        objects
    }

    pub(crate) fn pod(&self) -> Value {
        let claims: Vec<_> = self
            .list("claims")
            .iter()
            .map(|c| json!({"name": c["metadata"]["name"], "resourceClaimName": c["metadata"]["name"]}))
            .collect();
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "pod", "namespace": NAMESPACE, "uid": "pod-uid"},
            "spec": {"schedulerName": "wattlane", "resourceClaims": claims,
                "containers": [{"name": "c", "image": "i", "resources": {"claims": claims.iter()
                    .map(|c| json!({"name": c["name"]})).collect::<Vec<_>>()}}]}})
    }
}

/// A list inside a document; empty where it is missing.
pub(crate) fn items(of: &Value) -> &[Value] {
    of.as_array().map_or(&[], Vec::as_slice)
}

/// Text inside a document; empty where it is missing.
pub(crate) fn text(of: &Value) -> &str {
    of.as_str().unwrap_or("")
}

/// Requests and sub-requests of a claim: (full name, what it asks for, name of the request).
pub(crate) fn requests(claim: &Value) -> Vec<(String, &Value, &str)> {
    let mut all = vec![];
    for request in items(&claim["spec"]["devices"]["requests"]) {
        let name = text(&request["name"]);
        if request["exactly"].is_object() {
            all.push((name.to_owned(), &request["exactly"], name));
        }
        for sub in items(&request["firstAvailable"]) {
            all.push((format!("{name}/{}", text(&sub["name"])), sub, name));
        }
    }
    all
}
