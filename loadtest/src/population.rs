//! A whole cluster as an API server would list it: nodes of eight cards, and pods of which the first hold some by their
//! claims. Objects are of the size real ones have, since most of that is what a watch reads and throws away. Made when asked
//! for: 50,000 pods are a quarter of a gigabyte.

use serde_json::{Value, json};

use crate::fixture::{self, node_name};
use crate::options;

#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Population {
    /// 8 at least, since the one node where "one fits" is number 7.
    #[arg(long, default_value_t = 5000, value_parser = options::nodes())]
    pub(crate) nodes: usize,
    /// Pods that are there all the time.
    #[arg(long, default_value_t = 50_000, value_parser = options::within(0, 1_000_000))]
    pub(crate) pods: usize,
}

/// What it is made of, in the API's words; of the last two there are none.
pub(crate) const KINDS: [&str; 8] = [
    "namespaces",
    "deviceclasses",
    "nodes",
    "resourceslices",
    "resourceclaims",
    "pods",
    "resourceclaimtemplates",
    "runtimeclasses",
];
const TEAMS: usize = 50;
/// Pods with two cards each, on every node: four of its eight stay free.
const HOLDERS: usize = 2;

impl Population {
    /// Pods that hold cards.
    fn holders(self) -> usize {
        self.pods.min(self.nodes * HOLDERS)
    }

    pub(crate) fn count(self, plural: &str) -> usize {
        match plural {
            "namespaces" => 1 + TEAMS,
            "deviceclasses" => 1,
            "nodes" | "resourceslices" => self.nodes,
            "resourceclaims" => fixture::Fit::ALL.len() + self.holders(),
            "pods" => self.pods,
            _ => 0,
        }
    }

    /// Object `i` of a kind.
    pub(crate) fn object(self, plural: &str, i: usize) -> Value {
        let nth = |kind: &str, n: usize| fixture::objects().into_iter().filter(|o| o["kind"] == kind).nth(n);
        let mut object = match plural {
            "namespaces" if i > 0 => {
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("team-{}", i - 1)}})
            }
            "namespaces" => nth("Namespace", i).unwrap_or_default(),
            "deviceclasses" => nth("DeviceClass", i).unwrap_or_default(),
            "nodes" => node(i),
            "resourceslices" => fixture::slice(i),
            "resourceclaims" => match i.checked_sub(fixture::Fit::ALL.len()) {
                Some(holder) => self.held(holder),
                None => nth("ResourceClaim", i).unwrap_or_default(),
            },
            _ => self.pod(i),
        };
        let meta = &mut object["metadata"];
        for (key, value) in [
            ("uid", format!("{i:08x}-0000-4000-8000-{:012x}", plural.len())),
            ("resourceVersion", (1 + i).to_string()),
            ("creationTimestamp", "2026-01-01T00:00:00Z".to_owned()),
        ] {
            if meta[key].is_null() {
                meta[key] = value.into();
            }
        }
        object
    }

    fn pod(self, i: usize) -> Value {
        let name = format!("server-7d9c8b6f5d-{i:05}");
        let claim = (i < self.holders()).then(|| claim_name(i));
        pod(
            &name,
            &team(i),
            &pod_uid(i),
            claim.as_deref(),
            Some(&node_name(i % self.nodes)),
        )
    }

    fn held(self, i: usize) -> Value {
        // The first pods are spread over the nodes, so that the second on a node has the next two cards.
        let cards = i / self.nodes * 2;
        let user = Some((format!("server-7d9c8b6f5d-{i:05}"), pod_uid(i)));
        claim(
            &claim_name(i),
            &team(i),
            user,
            Some((&node_name(i % self.nodes), cards)),
        )
    }
}

fn team(i: usize) -> String {
    format!("team-{}", i % TEAMS)
}

fn claim_name(i: usize) -> String {
    format!("server-7d9c8b6f5d-{i:05}-gpu-x7k2p")
}

fn pod_uid(i: usize) -> String {
    format!("0f3a9c1e-7b2d-4e58-9a61-{i:012x}")
}

fn managed(fields: &str) -> Value {
    let entry = |manager: &str| {
        json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {fields: {"f:containers": {"k:{\"name\":\"server\"}": {
                ".": {}, "f:args": {}, "f:env": {}, "f:image": {}, "f:imagePullPolicy": {}, "f:name": {},
                "f:resources": {"f:claims": {}, "f:limits": {}, "f:requests": {}}, "f:terminationMessagePath": {}}}}}}})
    };
    json!([entry("kube-controller-manager"), entry("kubelet")])
}

fn conditions(kinds: &[&str]) -> Value {
    let each = kinds.iter().map(|kind| {
        json!({"type": kind, "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "AsItShouldBe", "message": "all is as it should be"})
    });
    each.collect()
}

/// A bound pod runs, others wait. `claim`: the claim with its cards.
pub(crate) fn pod(name: &str, namespace: &str, uid: &str, claim: Option<&str>, node: Option<&str>) -> Value {
    let env: Vec<_> = (0..12)
        .map(|i| json!({"name": format!("SETTING_{i}"), "value": "some-value-of-usual-length"}))
        .collect();
    let volume = "kube-api-access-x7k2p";
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": namespace, "uid": uid, "generateName": "server-7d9c8b6f5d-",
            "labels": {"app": "server", "pod-template-hash": "7d9c8b6f5d", "app.kubernetes.io/part-of": "platform"},
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "9090"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "server-7d9c8b6f5d",
                "uid": "8a0e3f0c-5a31-4b44-9d6d-9f2c5a1f2a10", "controller": true, "blockOwnerDeletion": true}],
            "managedFields": managed("f:template"),
        },
        "spec": {
            "schedulerName": "wattlane", "restartPolicy": "Always", "serviceAccountName": "default",
            "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "terminationGracePeriodSeconds": 30, "priority": 0,
            "containers": [{
                "name": "server", "image": "registry.example.com/platform/server:1.2.3", "imagePullPolicy": "IfNotPresent",
                "args": ["--port", "8080", "--config", "/etc/server/config.yaml"], "env": env,
                "resources": {"requests": {"cpu": "8", "memory": "64Gi"}, "limits": {"memory": "64Gi"}},
                "volumeMounts": [{"name": volume, "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            }],
            "volumes": [{"name": volume, "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}]}}],
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
        },
        "status": {"phase": "Pending", "qosClass": "Burstable"},
    });
    if let Some(claim) = claim {
        pod["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimTemplateName": "wl-gpu-nvidia-com-x2"}]);
        pod["spec"]["containers"][0]["resources"]["claims"] = json!([{"name": "gpu"}]);
        pod["status"]["resourceClaimStatuses"] = json!([{"name": "gpu", "resourceClaimName": claim}]);
    }
    if let Some(node) = node {
        pod["spec"]["nodeName"] = node.into();
        pod["status"]["phase"] = "Running".into();
        pod["status"]["conditions"] = conditions(&["PodScheduled", "Initialized", "ContainersReady", "Ready"]);
        pod["status"]["containerStatuses"] = json!([{
            "name": "server", "ready": true, "restartCount": 0, "started": true, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            "image": "registry.example.com/platform/server:1.2.3",
            "imageID": "registry.example.com/platform/server@sha256:3a1b7c0f5d2e4a6b8c9d0e1f2a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d",
            "containerID": "containerd://9d0e1f2a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d3a1b7c0f5d2e4a6b8c"}]);
        pod["status"]["podIPs"] = json!([{"ip": "10.0.0.1"}]);
    }
    pod
}

/// A claim for two cards. `user`: name and UID of its pod; `at`: the node, and the first of the two that it was given there.
pub(crate) fn claim(name: &str, namespace: &str, user: Option<(String, String)>, at: Option<(&str, usize)>) -> Value {
    let mut claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace, "finalizers": ["resource.kubernetes.io/delete-protection"],
            "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"}, "managedFields": managed("f:devices")},
        "spec": {"devices": {"requests": [fixture::Fit::All.request()]}},
        "status": {},
    });
    if let Some((pod, uid)) = user {
        claim["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid, "controller": true, "blockOwnerDeletion": true}]);
        if at.is_some() {
            claim["status"]["reservedFor"] = json!([{"resource": "pods", "name": pod, "uid": uid}]);
        }
    }
    if let Some((node, first)) = at {
        let result = |card: usize| json!({"request": "gpu", "driver": "gpu.nvidia.com", "pool": node, "device": format!("gpu-{card}")});
        claim["status"]["allocation"] = json!({
            "devices": {"results": [result(first), result(first + 1)]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]}});
    }
    claim
}

pub(crate) fn node(i: usize) -> Value {
    let name = node_name(i);
    let amounts = json!({"cpu": "192", "memory": "2113409500Ki", "ephemeral-storage": "7000Gi", "hugepages-2Mi": "0", "pods": "110"});
    let images: Vec<_> = (0..20)
        .map(|n| {
            let digest = format!("registry.example.com/platform/image-{n}@sha256:3a1b7c0f5d2e4a6b8c9d0e1f2a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c{n:02}");
            json!({"names": [digest, format!("registry.example.com/platform/image-{n}:1.2.3")], "sizeBytes": 4_000_000_000_u64 + n})
        })
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                "node.kubernetes.io/instance-type": "p5.48xlarge", "topology.kubernetes.io/region": "eu-west-1",
                "topology.kubernetes.io/zone": format!("eu-west-1{}", ["a", "b", "c"][i % 3]),
                "topology.kubernetes.io/rack": format!("rack-{}", i / 16), "pool": "gpu",
            },
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true", "node.alpha.kubernetes.io/ttl": "0"},
            "managedFields": managed("f:status"),
        },
        "spec": {"podCIDR": "10.1.0.0/24", "providerID": format!("aws:///eu-west-1a/i-{i:017x}")},
        "status": {
            "capacity": amounts, "allocatable": amounts, "images": images,
            "conditions": conditions(&["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]),
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": name}],
            "nodeInfo": {"kernelVersion": "6.8.0", "osImage": "Linux", "containerRuntimeVersion": "containerd://2.1.0",
                "kubeletVersion": "v1.36.0", "architecture": "amd64", "operatingSystem": "linux"},
        },
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_card_is_held_twice_and_names_are_of_one_object() {
        let all = Population { nodes: 3, pods: 10 };
        let mut cards = HashSet::new();
        for kind in KINDS {
            let names: HashSet<_> = (0..all.count(kind))
                .map(|i| all.object(kind, i)["metadata"]["name"].to_string())
                .collect();
            assert_eq!(names.len(), all.count(kind), "{kind}");
        }
        for i in 0..all.count("resourceclaims") {
            let claim = all.object("resourceclaims", i);
            let results = claim["status"]["allocation"]["devices"]["results"].as_array();
            for result in results.into_iter().flatten() {
                assert!(cards.insert(result.to_string()), "{result} twice");
            }
        }
        assert_eq!(cards.len(), 3 * HOLDERS * 2);
    }
}
