mod text;

use serde_json::{Value, json};

use super::*;
use crate::model::{
    AttributeValue, Claim, ConstraintKind, Count, Effect, NodeScope, PodClaimSource, Quantity, Readiness, RequestKind,
    Slice,
};

fn quantity(text: &str) -> Quantity {
    text.parse().unwrap()
}

fn slice_json(version: &str, devices: Value) -> Value {
    json!({
        "apiVersion": format!("resource.k8s.io/{version}"), "kind": "ResourceSlice",
        "metadata": {"name": "s1", "managedFields": null},
        "spec": {
            "driver": "gpu.test", "nodeName": "n1",
            "pool": {"name": "n1", "generation": 3, "resourceSliceCount": 2},
            "devices": devices,
            "sharedCounters": [{"name": "set", "counters": {"b": {"value": "2"}, "a": {"value": 1}}}],
        },
    })
}

fn as_slice(value: &Value) -> Slice {
    match object(value).unwrap() {
        Some(Object::Slice(s)) => s,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_slice_reads_the_same_in_every_version() {
    let body = json!({
        "attributes": {
            "model": {"string": "X"}, "gpu.test/index": {"int": 4}, "other.dev/v": {"version": "1.2.3"},
            "on": {"bool": true}, "numa": {"ints": [0, 1]},
        },
        "capacity": {"memory": {"value": "80Gi", "requestPolicy": {
            "default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}}, "cores": {"value": 8}},
        "taints": [{"key": "k", "effect": "NoSchedule"}, {"key": "k", "value": "v", "effect": "Later"}],
        "consumesCounters": [{"counterSet": "set", "counters": {"b": {"value": "1"}}}],
        "allowMultipleAllocations": true,
    });
    let mut flat = body.clone();
    flat["name"] = "d0".into();
    let v1 = as_slice(&slice_json("v1", json!([flat])));
    assert_eq!(v1.unsupported, None);
    assert_eq!(v1, as_slice(&slice_json("v1beta2", json!([flat]))));
    assert_eq!(
        v1,
        as_slice(&slice_json("v1beta1", json!([{"name": "d0", "basic": body}])))
    );

    let device = &v1.devices[0];
    let names: Vec<String> = device.attributes.iter().map(|(q, _)| q.to_string()).collect();
    assert_eq!(
        names,
        [
            "gpu.test/index",
            "gpu.test/model",
            "gpu.test/numa",
            "gpu.test/on",
            "other.dev/v"
        ]
    );
    assert_eq!(device.attribute("gpu.test", "index"), Some(&AttributeValue::Int(4)));
    assert_eq!(
        device.attribute("gpu.test", "numa"),
        Some(&AttributeValue::Ints([0, 1].into()))
    );
    let memory = device.capacity("gpu.test", "memory").unwrap();
    assert_eq!(memory.value, quantity("80Gi"));
    let range = memory.policy.as_ref().unwrap().valid_range.unwrap();
    assert_eq!(range, (quantity("1Gi"), None, Some(quantity("1Gi"))));
    assert_eq!(device.taints[1].effect, Effect::Unknown);
    let counters: Vec<&str> = v1.counter_sets[0].counters.iter().map(|(n, _)| &**n).collect();
    assert_eq!(counters, ["a", "b"]);
    assert_eq!(
        (v1.generation, v1.slice_count, &v1.nodes),
        (3, 2, &NodeScope::Node("n1".into()))
    );
}

#[test]
fn a_device_that_cannot_be_read_spoils_its_pool_and_says_where() {
    let bad = as_slice(&slice_json(
        "v1",
        json!([{"name": "d0"}, {"name": "d1", "capacity": {"memory": {"value": "80Gigs"}}}]),
    ));
    assert_eq!(
        (&*bad.driver, &*bad.pool, bad.generation, bad.devices.len()),
        ("gpu.test", "n1", 3, 0)
    );
    let why = bad.unsupported.unwrap();
    assert!(
        why.starts_with("spec.devices[1].capacity.memory.value: ") && why.contains("80Gigs"),
        "{why}"
    );

    let sized = |capacity: Value, shared: bool| {
        let device = json!({"name": "d0", "allowMultipleAllocations": shared, "capacity": capacity});
        as_slice(&slice_json("v1", json!([device]))).unsupported
    };
    let (one, twice) = (
        json!({"gpu.test/memory": {"value": "999999E"}}),
        json!({"gpu.test/memory": {"value": "1"}, "memory": {"value": "2"}}),
    );
    assert_eq!((sized(one, true), sized(twice.clone(), false)), (None, None));
    assert_eq!(
        sized(twice, true).as_deref(),
        Some("device d0: capacity gpu.test/memory is there with and without its domain")
    );
    assert_eq!(
        sized(json!({"memory": {"value": "1e400"}}), false).as_deref(),
        Some("device d0: capacity memory is larger than can be counted")
    );
    let mut counters = slice_json("v1", json!([]));
    counters["spec"]["sharedCounters"] = json!([{"name": "card", "counters": {"slots": {"value": "1000000E"}}}]);
    assert_eq!(
        as_slice(&counters).unsupported.as_deref(),
        Some("counter card/slots is larger than can be counted")
    );

    let newer = as_slice(&slice_json(
        "v1",
        json!([{"name": "d0", "attributes": {"x": {"quantity": "1"}}}]),
    ));
    assert_eq!(
        newer.unsupported.as_deref(),
        Some("device d0: attribute x has a type that is not known here")
    );
}

#[test]
fn per_device_scopes() {
    let mut value = slice_json(
        "v1",
        json!([{"name": "a", "nodeName": "n7"}, {"name": "b", "allNodes": true}, {"name": "c"},
               {"name": "d", "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions":
                   [{"key": "rack", "operator": "In", "values": ["r1"]}]}]}}]),
    );
    value["spec"]["nodeName"] = Value::Null;
    value["spec"]["perDeviceNodeSelection"] = true.into();
    let slice = as_slice(&value);
    assert_eq!(slice.nodes, NodeScope::PerDevice);
    let scopes: Vec<_> = slice.devices.iter().map(|d| d.nodes.clone().unwrap()).collect();
    assert_eq!(
        scopes[..3],
        [NodeScope::Node("n7".into()), NodeScope::All, NodeScope::Nowhere]
    );
    assert!(matches!(&scopes[3], NodeScope::Selector(s) if s.terms.len() == 1));
}

#[test]
fn versions_that_are_not_read_are_refused_by_name() {
    let error = object(&slice_json("v1alpha3", json!([]))).unwrap_err().to_string();
    assert_eq!(
        error,
        "ResourceSlice s1: apiVersion: resource.k8s.io/v1alpha3 is not read (known: v1, v1beta2, v1beta1); \
         write the object again with `kubectl get resourceslices.v1.resource.k8s.io -o yaml` from a cluster that serves v1"
    );
    // Kinds of the group that nobody here reads are skipped, whatever their version.
    let request = json!({"apiVersion": "resource.k8s.io/v1alpha3", "kind": "ResourcePoolStatusRequest", "metadata": {"name": "r"}});
    assert_eq!(object(&request), Ok(None));
    assert_eq!(object(&json!({"apiVersion": "v1", "kind": "Service"})), Ok(None));
    assert_eq!(object(&json!("text")), Ok(None));
}

fn claim_json(version: &str, devices: Value) -> Value {
    json!({
        "apiVersion": format!("resource.k8s.io/{version}"), "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "ns", "uid": "u", "resourceVersion": "7", "ownerReferences":
            [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pod-uid", "controller": true}]},
        "spec": {"devices": devices},
    })
}

fn as_claim(value: &Value) -> Claim {
    match object(value).unwrap() {
        Some(Object::Claim(c)) => c,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_claim_reads_the_same_in_every_version() {
    let body = json!({
        "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2,
        "selectors": [{"cel": {"expression": "true"}}],
        "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute"}, {"key": "k", "value": "v"}],
        "capacity": {"requests": {"memory": "10Gi"}},
    });
    let mut inline = body.clone();
    inline["name"] = "r".into();
    let constraints = json!([{"matchAttribute": "gpu.test/numa"}, {"distinctAttribute": "id", "requests": ["r"]}]);
    let v1 = as_claim(&claim_json(
        "v1",
        json!({"requests": [{"name": "r", "exactly": body}], "constraints": constraints}),
    ));
    let old = as_claim(&claim_json(
        "v1beta1",
        json!({"requests": [inline], "constraints": constraints}),
    ));
    assert_eq!(v1, old);
    assert_eq!(v1.spec.unsupported, None);
    assert_eq!(v1.owner_pod.as_deref(), Some("pod-uid"));
    let RequestKind::Exactly(request) = &v1.spec.requests[0].kind else {
        panic!()
    };
    assert_eq!((&*request.class, request.count), ("gpu", Count::Exactly(2)));
    assert_eq!(
        (&*request.capacity[0].0.domain, &*request.capacity[0].0.name),
        ("", "memory")
    );
    assert_eq!(
        (
            request.tolerations[0].value.clone(),
            request.tolerations[1].value.as_deref()
        ),
        (None, Some("v"))
    );
    assert_eq!(v1.spec.constraints[1].kind, ConstraintKind::DistinctAttribute);
    assert_eq!(&*v1.spec.constraints[0].attribute.domain, "gpu.test");
}

#[test]
fn first_available_keeps_its_order() {
    let claim = as_claim(&claim_json(
        "v1",
        json!({"requests": [{"name": "r", "firstAvailable": [
            {"name": "big", "deviceClassName": "a"}, {"name": "all", "deviceClassName": "b", "allocationMode": "All"}]}]}),
    ));
    let RequestKind::FirstAvailable(list) = &claim.spec.requests[0].kind else {
        panic!()
    };
    let short: Vec<_> = list.iter().map(|s| (&*s.name, s.request.count)).collect();
    assert_eq!(short, [("big", Count::Exactly(1)), ("all", Count::All)]);
}

#[test]
fn what_is_not_known_is_named() {
    for (devices, words) in [
        (
            json!({"requests": [{"name": "r"}]}),
            "request r is of a kind that is not known here",
        ),
        (
            json!({"requests": [{"name": "r", "exactly": {"deviceClassName": "g", "selectors": [{"jq": {}}]}}]}),
            "request r has a selector of a kind that is not known here",
        ),
        (
            json!({"requests": [{"name": "r", "exactly": {"deviceClassName": "g", "allocationMode": "Some"}}]}),
            "request r has the allocation mode \"Some\", not known here",
        ),
        (
            json!({"requests": [{"name": "r", "exactly": {"deviceClassName": "g", "count": 0}}]}),
            "request r has a count that is not a positive number",
        ),
        (
            json!({"constraints": [{"sameRack": true}]}),
            "constraint 0 is of a kind that is not known here",
        ),
        (
            json!({"config": [{"clear": {}}]}),
            "config 0 is of a kind that is not known here",
        ),
        (
            json!({"requests": "two"}),
            "spec.devices.requests: invalid type: string \"two\", expected a sequence",
        ),
    ] {
        let claim = as_claim(&claim_json("v1", devices));
        assert_eq!(claim.spec.unsupported.as_deref(), Some(words));
    }
}

/// Of what drivers report only what is waited for is kept, and of a report that cannot be read nothing.
#[test]
fn binding_conditions_are_read_from_the_status() {
    let device = |name: &str, conditions: Value| json!({"driver": "gpu.test", "pool": "n1", "device": name, "conditions": conditions});
    let given = |name: &str, waits: Value| {
        json!({"request": "r", "driver": "gpu.test", "pool": "n1", "device": name, "bindingConditions": waits,
            "bindingFailureConditions": ["Broken"]})
    };
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "R", "message": "m"});
    let mut value = claim_json("v1", json!({"requests": []}));
    let of = |value: &mut Value, devices: Value| {
        value["status"] = json!({"devices": devices, "allocation": {"allocationTimestamp": "2026-11-29T16:00:00Z",
            "devices": {"results": [given("d0", json!(["Ready"])), given("d1", json!([]))]}}});
        as_claim(value)
    };
    let awaited = "condition Ready of device gpu.test/n1/d0";
    for (devices, readiness) in [
        (json!(null), Readiness::Awaited(format!("{awaited} (not reported yet)"))),
        (
            json!([7, device("d0", json!("?"))]),
            Readiness::Awaited(format!("{awaited} (not reported yet)")),
        ),
        (
            json!([device("d9", json!([condition("Ready", "True")]))]),
            Readiness::Awaited(format!("{awaited} (not reported yet)")),
        ),
        (
            json!([device("d0", json!([condition("Ready", "Unknown")]))]),
            Readiness::Awaited(format!("{awaited} (R: m)")),
        ),
        (
            json!([device("d0", json!([condition("Ready", "True")]))]),
            Readiness::Ready,
        ),
        // A device without binding conditions is not asked whether it failed, as in-tree.
        (
            json!([
                device("d0", json!([condition("Ready", "True")])),
                device("d1", json!([condition("Broken", "True")]))
            ]),
            Readiness::Ready,
        ),
        (
            json!([device(
                "d0",
                json!([condition("Ready", "True"), condition("Broken", "True")])
            )]),
            Readiness::Failed("device gpu.test/n1/d0 reports Broken: R: m".to_owned()),
        ),
    ] {
        assert_eq!(of(&mut value, devices).readiness(), readiness);
    }
    let claim = of(
        &mut value,
        json!([device(
            "d0",
            json!([condition("Temperature", "True"), condition("Ready", "True")])
        )]),
    );
    let kept: Vec<_> = claim.conditions.iter().map(|c| &*c.kind).collect();
    assert_eq!((kept, claim.allocated_at), (vec!["Ready"], Some(1_795_968_000)));
}

/// Whatever is wrong with the spec: the devices are held.
#[test]
fn an_allocation_counts_even_where_the_spec_cannot_be_read() {
    let mut value = claim_json("v1", json!(["?"]));
    value["status"] = json!({"allocation": {"devices": {"results":
        [{"request": "r", "driver": "gpu.test", "pool": "n1", "device": "d0"}]}}});
    let claim = as_claim(&value);
    assert!(claim.spec.unsupported.is_some());
    assert_eq!(claim.allocation.unwrap().results[0].id.to_string(), "gpu.test/n1/d0");
}

#[test]
fn an_allocation_survives_the_way_there_and_back() {
    let value = json!({
        "devices": {
            "results": [
                {"request": "r/big", "driver": "gpu.test", "pool": "n1", "device": "d0",
                 "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30},
                                 {"key": "k", "operator": "Equal", "value": "v"}],
                 "bindingConditions": ["ready"], "bindingFailureConditions": ["failed"],
                 "shareID": "a671734a-e8e5-11e4-8fde-42010af09327",
                 "consumedCapacity": {"gpu.test/slots": "1", "memory": "10Gi", "other.dev/x": "1500m"}},
                {"request": "r2", "driver": "gpu.test", "pool": "n1", "device": "d1", "adminAccess": true},
            ],
            "config": [{"source": "FromClass", "requests": ["r"],
                        "opaque": {"driver": "gpu.test", "parameters": {"kind": "GpuConfig", "n": [1, null]}}},
                       {"source": "FromClaim", "opaque": {"driver": "gpu.test", "parameters": {}}}],
        },
        "nodeSelector": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
            {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]},
    });
    let claim = claim(&json!({"metadata": {"name": "c"}, "spec": {}, "status": {"allocation": value}})).unwrap();
    assert_eq!(allocation_json(&claim.allocation.unwrap()), value);
}

#[test]
fn a_pod_is_trimmed_to_what_is_read() {
    let value = json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"app": "x"}, "annotations":
            {"wattlane.dev/class": " fast ", "kubectl.kubernetes.io/last-applied-configuration": "{}", "hami.io/a": "b"}},
        "spec": {
            "resourceClaims": [{"name": "own", "resourceClaimName": "c1"}, {"name": "t", "resourceClaimTemplateName": "tpl"},
                {"name": "none", "resourceClaimTemplateName": "tpl"}, {"name": "later", "resourceClaimTemplateName": "tpl"}],
            "containers": [
                {"name": "a", "resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "500m"}}},
                {"name": "b", "resources": {"limits": {"nvidia.com/gpu": 2}, "requests": {"nvidia.com/gpu": 2}}}],
            "initContainers": [
                {"name": "i", "resources": {"limits": {"nvidia.com/gpu": "4", "amd.com/gpu": "1"}}},
                {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"nvidia.com/gpu": "1"}}}],
        },
        "status": {"phase": "Pending", "resourceClaimStatuses":
            [{"name": "t", "resourceClaimName": "p-t-x"}, {"name": "none"}]},
    });
    let pod = pod(&value).unwrap();
    assert_eq!(pod.annotation("wattlane.dev/class"), Some("fast"));
    assert_eq!(pod.annotations.len(), 2);
    let names: Vec<Option<&str>> = pod.claims.iter().map(|c| c.claim_name().map(|n| &**n)).collect();
    assert_eq!(names, [Some("c1"), Some("p-t-x"), None, None]);
    assert_eq!(
        (&pod.claims[2].generated, &pod.claims[3].generated),
        (&Some(None), &None)
    );
    assert_eq!(pod.claims[3].source, PodClaimSource::Template("tpl".into()));
    let wanted: Vec<(&str, Quantity)> = pod.extended_resources.iter().map(|(n, q)| (&**n, *q)).collect();
    assert_eq!(
        wanted,
        [("amd.com/gpu", quantity("1")), ("nvidia.com/gpu", quantity("4"))]
    );
    assert_eq!((&*pod.scheduler_name, &*pod.node_name), ("default-scheduler", ""));
}

#[test]
fn what_a_pod_was_given_without_a_claim() {
    let mut value = json!({
        "metadata": {"name": "p", "annotations": {"kubernetes.io/config.mirror": "x"}},
        "spec": {"nodeName": "n", "schedulingGates": [{"name": "other"}, {"name": "wattlane.dev/admission"}],
            "containers": [{"name": "c", "resources": {"limits": {"a.com/x": "1", "b.com/y": "2"}}}]},
        "status": {"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings":
            [{"containerName": "c", "resourceName": "b.com/y", "requestName": "r"}]}},
    });
    let unclaimed = |pod: &crate::model::Pod| pod.unclaimed().map(|(n, _)| n.to_string()).collect::<Vec<_>>();
    let read = pod(&value).unwrap();
    assert_eq!(unclaimed(&read), ["a.com/x"]);
    assert!(read.holds() && read.gated && read.fixed);
    // It does not say for what: for all of it.
    value["status"]["extendedResourceClaimStatus"]["requestMappings"] = json!([]);
    assert!(unclaimed(&pod(&value).unwrap()).is_empty());
    value["status"] = json!({"phase": "Failed"});
    value["metadata"] = json!({"name": "p", "ownerReferences": [{"apiVersion": "x.io/v1", "kind": "DaemonSet", "name": "d", "uid": "d"}]});
    let read = pod(&value).unwrap();
    assert_eq!(unclaimed(&read), ["a.com/x", "b.com/y"]);
    assert!(!read.holds() && !read.fixed);
    value["metadata"]["ownerReferences"][0]["apiVersion"] = json!("apps/v1");
    assert!(pod(&value).unwrap().fixed);
}

#[test]
fn a_claim_with_a_status_that_is_not_understood_holds_what_it_names() {
    let claim = |status: Value| {
        claim(&json!({"metadata": {"name": "c", "namespace": "ns", "uid": "u"}, "spec": {}, "status": status}))
    };
    let device = json!({"request": "r", "driver": "gpu.test", "pool": "n1", "device": "d0", "tolerations": 7});
    let read = claim(json!({"allocation": {"devices": {"results": [device]}}})).unwrap();
    let allocation = read.allocation.expect("it is allocated");
    assert_eq!(allocation.results[0].id.to_string(), "gpu.test/n1/d0");
    assert_eq!(
        allocation.node_selector.as_ref().map(|s| s.terms.len()),
        Some(0),
        "no node will do"
    );
    let words = read.spec.unsupported.clone().expect("it is not given anything");
    assert!(
        words.contains("status.allocation.devices.results[0].tolerations"),
        "{words}"
    );

    assert_eq!(
        claim(json!({"reservedFor": 7, "allocation": null})).unwrap().allocation,
        None
    );
    // What it holds cannot be told at all.
    for allocation in [
        json!(7),
        json!({"devices": []}),
        json!({"devices": {"results": [{"driver": "d", "pool": 1}]}}),
    ] {
        claim(json!({"allocation": allocation})).expect_err("unreadable");
    }
}

#[test]
fn parameters_that_would_not_come_out_as_they_went_in_are_not_passed_on() {
    let deep = |levels| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    for (parameters, words) in [
        (json!({"a": "\u{fffd}"}), Some("hold what is not read here")),
        (deep(65), Some("are nested too deeply")),
        (deep(64), None),
    ] {
        let config = json!([{"opaque": {"driver": "x.test", "parameters": parameters}}]);
        let meta = json!({"name": "c"});
        let claim = claim(&json!({"metadata": meta, "spec": {"devices": {"config": config}}})).unwrap();
        let class = device_class(&json!({"metadata": meta, "spec": {"config": config}})).unwrap();
        for said in [claim.spec.unsupported.as_deref(), class.unsupported.as_deref()] {
            let expected = words.map(|w| format!("its parameters for x.test {w}"));
            assert!(said.is_some() == expected.is_some(), "{said:?}");
            assert!(
                said.unwrap_or("").starts_with(&expected.unwrap_or_default()),
                "{said:?}"
            );
        }
    }
}

#[test]
fn a_bad_object_says_where() {
    for (value, words) in [
        (
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}),
            "Pod default/p: spec: missing",
        ),
        (
            // What YAML 1.1 makes of an unquoted `on`; kubectl refuses it too.
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {"gpu": true}}}),
            "Node n: metadata.labels.gpu: invalid type: boolean `true`, expected a string",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {}}),
            "Namespace: metadata.name: missing: every object needs a name",
        ),
    ] {
        assert_eq!(object(&value).unwrap_err().to_string(), words);
    }
}

#[test]
fn a_node_keeps_what_device_plugins_serve() {
    let node = node(&json!({
        "metadata": {"name": "n", "annotations": {"wattlane.dev/x": "1", "other": "2"}},
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "64", "nvidia.com/gpu": "8", "amd.com/gpu": "0", "kubernetes.io/batch": "1"}},
    }))
    .unwrap();
    assert_eq!(node.extended_resources, ["nvidia.com/gpu".into()]);
    assert_eq!(node.annotations.len(), 1);
    assert_eq!(node.taints, [("a".into(), "".into(), "NoSchedule".into())]);
}

#[test]
fn a_class_reads_selectors_config_and_age() {
    let class = device_class(&json!({
        "metadata": {"name": "gpu", "creationTimestamp": "2026-01-02T03:04:05Z"},
        "spec": {"selectors": [{"cel": {"expression": "a"}}], "extendedResourceName": "nvidia.com/gpu",
                 "config": [{"opaque": {"driver": "gpu.test", "parameters": {"a": 1}}}]},
    }))
    .unwrap();
    assert_eq!(class.created, 1_767_323_045);
    assert_eq!(class.extended_resource.as_deref(), Some("nvidia.com/gpu"));
    assert_eq!(class.config, [("gpu.test".into(), "{\"a\":1}".into())]);
    assert_eq!(class.unsupported, None);
}
