//! A cluster of eight-GPU nodes as files, and the pods that ask it for something.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;

use serde_json::{Value, json};

pub(crate) const GPUS: usize = 8;
/// The node that holds another product: what "one fits" looks for.
pub(crate) const ODD: usize = 7;

/// How many nodes can take the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Fit {
    All,
    One,
    None,
}

impl Fit {
    pub(crate) const ALL: [Self; 3] = [Self::All, Self::One, Self::None];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::One => "one",
            Self::None => "none",
        }
    }

    pub(crate) fn request(self) -> Value {
        let exactly = |count: usize, selector: &str| {
            let selectors: Vec<Value> = match selector {
                "" => vec![],
                text => vec![json!({"cel": {"expression": text}})],
            };
            json!({"name": "gpu", "exactly": {
                "deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": count, "selectors": selectors}})
        };
        match self {
            Self::All => exactly(2, ""),
            Self::One => exactly(2, "device.attributes['gpu.nvidia.com'].productName == 'NVIDIA B200'"),
            Self::None => exactly(GPUS + 1, ""),
        }
    }
}

pub(crate) fn node_name(i: usize) -> String {
    // The length of an ordinary cloud node name: names are most of the request's bytes.
    format!("gpu-pool-a-{i:05}.eu-west-1.compute.internal")
}

pub(crate) fn slice(i: usize) -> Value {
    let (product, memory) = if i == ODD {
        ("NVIDIA B200", "183359Mi")
    } else {
        ("NVIDIA H100 80GB HBM3", "81559Mi")
    };
    let device = |g: usize| {
        json!({
            "name": format!("gpu-{g}"),
            "attributes": {
                "type": {"string": "gpu"},
                "uuid": {"string": format!("GPU-{i:08x}-{g:04x}")},
                "productName": {"string": product},
                "brand": {"string": "Nvidia"},
                "architecture": {"string": "Hopper"},
                "cudaComputeCapability": {"version": "9.0.0"},
                "driverVersion": {"version": "580.95.5"},
                "cudaDriverVersion": {"version": "13.0.0"},
                "resource.kubernetes.io/pciBusID": {"string": format!("0000:{:02x}:00.0", 0x11 + 0x18 * g)},
                "resource.kubernetes.io/pcieRoot": {"string": format!("pci0000:{:02x}", 0x10 + 0x18 * g)},
            },
            "capacity": {"memory": {"value": memory}},
        })
    };
    let node = node_name(i);
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
        "metadata": {"name": format!("{node}-gpu.nvidia.com")},
        "spec": {
            "driver": "gpu.nvidia.com", "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": (0..GPUS).map(device).collect::<Vec<_>>(),
        },
    })
}

/// What kube-scheduler sends with nodeCacheCapable: Go's fields in Go's order, and nodes in one that is not that of their names.
pub(crate) fn asked(fit: Fit, nodes: usize) -> String {
    // Hits every node once: a prime that is no factor of their number.
    let step = if nodes.is_multiple_of(7919) { 7907 } else { 7919 };
    let names: Vec<_> = (0..nodes).map(|i| node_name(i * step % nodes)).collect();
    format!(r#"{{"Pod":{},"Nodes":null,"NodeNames":{}}}"#, pod(fit), json!(names))
}

/// The names of the nodes that can take the pod.
pub(crate) fn fitting(fit: Fit, nodes: usize) -> BTreeSet<String> {
    let fit = match fit {
        Fit::All => 0..nodes,
        Fit::One => ODD..ODD + 1,
        Fit::None => 0..0,
    };
    fit.map(node_name).collect()
}

/// The pod of a scenario as kube-scheduler would send it, with its claim made and known.
pub(crate) fn pod(fit: Fit) -> Value {
    let name = format!("fit-{}", fit.name());
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "bench", "uid": format!("pod-uid-{}", fit.name()),
            "labels": {"app": "llm", "pod-template-hash": "6d5f7c9b8d"},
            "annotations": {"prometheus.io/scrape": "true"},
        },
        "spec": {
            "schedulerName": "wattlane",
            "containers": [{
                "name": "server", "image": "example.com/llm:1",
                "args": ["--model", "/models/llm", "--tensor-parallel-size", "2"],
                "env": (0..12).map(|i| json!({"name": format!("SETTING_{i}"), "value": "some-value"})).collect::<Vec<_>>(),
                "resources": {"requests": {"cpu": "8", "memory": "64Gi"}, "limits": {"memory": "64Gi"}, "claims": [{"name": "gpu"}]},
                "volumeMounts": [{"name": "models", "mountPath": "/models"}],
            }],
            "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": format!("claim-{}", fit.name())}],
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        },
        "status": {"phase": "Pending"},
    })
}

/// A Deployment's pod as the API server hands it to the webhook, asking for two cards.
pub(crate) fn unadmitted() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "generateName": "llm-6d5f7c9b8d-", "namespace": "bench",
            "labels": {"app": "llm", "pod-template-hash": "6d5f7c9b8d"},
            "annotations": {"prometheus.io/scrape": "true"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "llm-6d5f7c9b8d",
                "uid": "8a0e3f0c-5a31-4b44-9d6d-9f2c5a1f2a10", "controller": true, "blockOwnerDeletion": true}],
        },
        "spec": {
            "schedulerName": "default-scheduler", "restartPolicy": "Always", "serviceAccountName": "default",
            "containers": [{
                "name": "server", "image": "example.com/llm:1", "imagePullPolicy": "IfNotPresent",
                "args": ["--model", "/models/llm", "--tensor-parallel-size", "2"],
                "env": (0..12).map(|i| json!({"name": format!("SETTING_{i}"), "value": "some-value"})).collect::<Vec<_>>(),
                "resources": {"requests": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "2"}, "limits": {"memory": "64Gi", "nvidia.com/gpu": "2"}},
                "volumeMounts": [{"name": "models", "mountPath": "/models"}],
            }],
            "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}],
        },
        "status": {},
    })
}

/// What kube-apiserver sends when a ReplicaSet makes a pod.
pub(crate) fn review(pod: &Value) -> Vec<u8> {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "operation": "CREATE", "dryRun": false,
        "kind": {"group": "", "version": "v1", "kind": "Pod"}, "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "bench", "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller"},
        "object": pod, "oldObject": null,
    }})
    .to_string()
    .into_bytes()
}

/// What there is beside nodes and their slices.
pub(crate) fn objects() -> Vec<Value> {
    let mut items = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bench", "labels": {"wattlane.dev/enabled": "true"}}}),
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu.nvidia.com"}, "spec": {"selectors": [
            {"cel": {"expression": "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"}}]}}),
    ];
    for fit in Fit::ALL {
        items.push(json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": format!("claim-{}", fit.name()), "namespace": "bench"},
            "spec": {"devices": {"requests": [fit.request()]}}}));
    }
    items
}

/// Writes the cluster as one JSON List.
pub(crate) fn write(nodes: usize, path: &Path) -> anyhow::Result<()> {
    let mut items = objects();
    for i in 0..nodes {
        items.push(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node_name(i)}}));
        items.push(slice(i));
    }
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    serde_json::to_writer(&mut file, &json!({"apiVersion": "v1", "kind": "List", "items": items}))?;
    file.flush()?;
    Ok(())
}
