//! Reasons that are the pod's own or its claims': most hold for every node.

use serde_json::{Value, json};

use super::reasons::{nowhere, one_node, says};
use super::world::{annotated, ask, asking, gpu, mixed, pod, pod_of, request};

#[test]
fn claims_that_are_not_there() {
    let mut world = one_node(&mixed());
    assert_eq!(
        nowhere(&world, &pod("p", &["c"])),
        "claim_missing: claim c is not there yet"
    );
    let from_template = |status: Value| {
        pod_of(
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default", "uid": "uid-p"},
            "spec": {"containers": [{"name": "c"}], "resourceClaims": [{"name": "mine", "resourceClaimTemplateName": "t"}]},
            "status": {"resourceClaimStatuses": status}}),
        )
    };
    assert_eq!(
        nowhere(&world, &from_template(json!([]))),
        "claim_missing: claim mine is not there yet"
    );
    let generated = from_template(json!([{"name": "mine", "resourceClaimName": "p-mine"}]));
    assert_eq!(
        nowhere(&world, &generated),
        "claim_missing: claim p-mine is not there yet"
    );
    world.claim("p-mine", ask(1));
    assert_eq!(
        nowhere(&world, &generated),
        "claim_unusable: claim p-mine was not made for this pod"
    );
    let owned_by = |uid: &str| json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": true}]});
    world.claim_with("p-mine", ask(1), owned_by("uid-other"), json!({}));
    assert_eq!(
        nowhere(&world, &generated),
        "claim_unusable: claim p-mine was not made for this pod"
    );
    world.claim_with("p-mine", ask(1), owned_by("uid-p"), json!({}));
    assert_eq!(world.devices(&generated, "n"), ["gpu-1"]);
    // The controller says that none is needed.
    assert!(
        world
            .demand(&from_template(json!([{"name": "mine"}])))
            .expect("nothing to place")
            .is_empty()
    );
}

#[test]
fn claims_that_cannot_be_used() {
    let mut world = one_node(&mixed());
    world.claim_with(
        "c",
        ask(1),
        json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        json!({}),
    );
    assert_eq!(
        nowhere(&world, &pod("p", &["c"])),
        "claim_unusable: claim c is being deleted"
    );

    let consumer = |uid: String| json!({"resource": "pods", "name": "x", "uid": uid});
    let full: Vec<_> = (0..256).map(|i| consumer(format!("u{i}"))).collect();
    let allocation =
        json!({"devices": {"results": [{"request": "r", "driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-0"}]}});
    world.claim_with(
        "full",
        ask(1),
        json!({}),
        json!({"allocation": allocation, "reservedFor": full}),
    );
    assert_eq!(
        nowhere(&world, &pod("p", &["full"])),
        "limit: claim full is used by 256 pods, the most it may have"
    );
    let mut ours = full[1..].to_vec();
    ours.push(consumer("uid-p".into()));
    world.claim_with(
        "full",
        ask(1),
        json!({}),
        json!({"allocation": allocation, "reservedFor": ours}),
    );
    assert_eq!(world.devices(&pod("p", &["full"]), "n"), ["gpu-0"]);
}

#[test]
fn limits_of_a_claim() {
    let devices: Vec<_> = (0..40).map(|i| gpu(&format!("g{i:02}"), "x", 1)).collect();
    let mut world = one_node(&devices);
    world.claim("c", ask(33));
    assert_eq!(
        nowhere(&world, &pod("p", &["c"])),
        "limit: claim c asks for 33 devices: at most 32 go into one claim"
    );
    assert_eq!(
        says(&mut world, asking(json!({"allocationMode": "All"}))),
        "limit: claim c would get 40 devices: at most 32 go into one claim"
    );
    world.claim("c", ask(32));
    assert_eq!(world.devices(&pod("p", &["c"]), "n").len(), 32);
    // An alternative that is too large gives way to one that is not.
    let list = json!({"requests": [{"name": "r", "firstAvailable": [
        {"name": "all", "deviceClassName": "gpu", "allocationMode": "All"},
        {"name": "some", "deviceClassName": "gpu", "count": 20}]},
        request("s", json!({"count": 12}))]});
    world.claim("c", list);
    assert_eq!(world.devices(&pod("p", &["c"]), "n").len(), 32);

    let names: Vec<String> = (0..65).map(|i| format!("c{i}")).collect();
    for name in &names {
        world.claim(name, ask(1));
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(
        nowhere(&world, &pod("p", &names)),
        "limit: 65 claims in one pod: at most 64 are placed"
    );
}

#[test]
fn an_extended_resource_that_only_dra_serves() {
    let mut world = one_node(&mixed());
    let asks = |resource: &str| {
        pod_of(
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default", "uid": "u"},
            "spec": {"containers": [{"name": "c", "resources": {"limits": {resource: "1"}, "requests": {resource: "1"}}}]}}),
        )
    };
    let plain = asks("nvidia.com/gpu");
    assert!(world.demand(&asks("example.com/nic")).expect("not mapped").is_empty());
    // Not mapped, but a device plugin's: where the same cards are claimed it could give one that is in use.
    let claimed = "unserved_extended_resource: gpu.nvidia.com gives the devices here by claims, and the device plugin could \
         give the pod one that is in use: make the pod anew with a claim for its nvidia.com/gpu";
    assert_eq!(world.refused(&plain, "n"), claimed);
    world.node("empty", &[]);
    assert_eq!(world.check(&plain, "empty"), Ok(()));
    let mapping = |name: &str, created: &str| {
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
            "metadata": {"name": name, "creationTimestamp": created}, "spec": {"extendedResourceName": "nvidia.com/gpu"}})
    };
    // The newest class with the name, then the first by name.
    for (name, created) in [
        ("old", "2025-01-01T00:00:00Z"),
        ("b", "2026-01-01T00:00:00Z"),
        ("a", "2026-01-01T00:00:00Z"),
    ] {
        world.apply(mapping(name, created));
    }
    for i in 0..8 {
        world.apply(mapping(&format!("c{i}"), "2025-06-01T00:00:00Z"));
    }
    assert_eq!(
        world.refused(&plain, "n"),
        "unserved_extended_resource: nvidia.com/gpu is DeviceClass a, and the pod has no claim for it: \
         it would run without a device"
    );
    assert_eq!(
        world.refused(&asks("deviceclass.resource.kubernetes.io/gpu"), "n"),
        "unserved_extended_resource: deviceclass.resource.kubernetes.io/gpu is DeviceClass gpu, and the pod has no claim \
         for it: it would run without a device"
    );
    // A node with a device plugin serves it, unless its cards are claimed.
    for node in ["n", "empty"] {
        world.apply(
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "uid": node},
            "status": {"allocatable": {"nvidia.com/gpu": "4"}}}),
        );
    }
    assert_eq!(world.refused(&plain, "n"), claimed);
    assert_eq!(world.check(&plain, "empty"), Ok(()));
}

#[test]
fn cards_that_a_pod_of_the_device_plugin_may_hold() {
    let mut world = one_node(&mixed());
    world.claim("c", ask(1));
    let mut old = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "old", "namespace": "ml", "uid": "old"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}});
    world.apply(old.clone());
    let held = "pod ml/old has nvidia.com/gpu from the device plugin, and may hold any device of gpu.nvidia.com here: make it \
         anew with a claim (label its namespace wattlane.dev/enabled=true), or delete it";
    assert_eq!(world.refused(&pod("p", &["c"]), "n"), format!("unknown_holder: {held}"));
    assert_eq!(
        says(&mut world, asking(json!({"allocationMode": "All"}))),
        format!("unknown_holder: all devices asked, but {held}")
    );
    old["status"] = json!({"phase": "Failed"});
    world.apply(old);
    world.claim("c", ask(1));
    assert_eq!(world.devices(&pod("p", &["c"]), "n").len(), 1);
}

#[test]
fn annotations_that_cannot_be_read() {
    let mut world = one_node(&mixed());
    world.claim("c", ask(1));
    let says = |key: &str, value: &str| nowhere(&world, &annotated("p", &["c"], json!({key: value})));
    assert_eq!(
        says("wattlane.dev/mix-classes", "yes"),
        "invalid_request: annotation wattlane.dev/mix-classes is \"yes\", not true or false"
    );
    assert_eq!(
        says("nvidia.com/use-gputype", ", ,"),
        "invalid_request: annotation nvidia.com/use-gputype is \", ,\", not a comma-separated list"
    );
}
