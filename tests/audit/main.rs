//! The audit, fed with small clusters in which one thing is wrong.

mod service;
mod world;

use serde_json::json;
use wattlane::audit::{Kind, liftable};
use wattlane::{admission, model::NamespacedName};
use world::{World, claim, plugin_pod, pod, result, slice};

#[test]
fn nothing_where_all_is_in_order() {
    let mut world = World::new();
    world.put(plugin_pod("elsewhere", "plain", ""));
    let mut finished = plugin_pod("finished", "ml", "n1");
    finished["status"] = json!({"phase": "Succeeded"});
    world.put(finished);
    world.put(
        claim("free", "n1", &[], None)
            .as_object()
            .map(|c| {
                let mut c = c.clone();
                c.remove("status");
                c.into()
            })
            .expect("an object"),
    );
    assert!(world.found().is_empty());
}

#[test]
fn a_device_in_two_allocations() {
    let mut world = World::new();
    world.put(pod("b", "n1", &["cb"]));
    world.put(claim("cb", "n1", &["gpu-0"], Some("b")));
    assert_eq!(world.found(), ["device-given-twice Device gpu.nvidia.com/n1/gpu-0"]);
    assert!(world.words().contains("ml/ca, ml/cb"), "{}", world.words());
    let subject = world.findings()[0].subject.clone().expect("a claim");
    assert_eq!(subject.to_string(), "ResourceClaim ml/cb");

    // A look at it is none; neither is the other card.
    let mut admin = claim("cb", "n1", &["gpu-0", "gpu-1"], Some("b"));
    admin["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = json!(true);
    world.put(admin);
    assert!(world.found().is_empty());

    // Twice in one claim, and one card under two names.
    world.put(claim("cb", "n1", &["gpu-1", "gpu-1"], Some("b")));
    assert_eq!(world.found(), ["device-given-twice Device gpu.nvidia.com/n1/gpu-1"]);
    let mut twins = slice("n1", &["gpu-0", "vfio-0"]);
    twins["spec"]["devices"][1]["attributes"]["uuid"] = json!({"string": "GPU-n1-gpu-0"});
    world.put(twins);
    world.put(claim("cb", "n1", &["vfio-0"], Some("b")));
    assert_eq!(world.found(), ["device-given-twice Device gpu.nvidia.com/n1/gpu-0"]);
    assert!(world.words().contains("ml/cb (as vfio-0)"), "{}", world.words());
}

#[test]
fn shares_and_counters_beyond_what_there_is() {
    let mut world = World::new();
    let draws = json!([{"counterSet": "card", "counters": {"slots": {"value": "4"}}}]);
    let mut s = slice("n2", &["shared", "half-0", "half-1"]);
    s["spec"]["sharedCounters"] = json!([{"name": "card", "counters": {"slots": {"value": "7"}}}]);
    s["spec"]["devices"][0]["allowMultipleAllocations"] = json!(true);
    s["spec"]["devices"][0]["capacity"] = json!({"memory": {"value": "10Gi"}});
    for half in [1, 2] {
        s["spec"]["devices"][half]["consumesCounters"] = draws.clone();
    }
    world.put(s);
    world.put(pod("b", "n2", &["cb"]));
    let share = |id: &str, memory: &str| {
        let mut share = result("n2", "shared");
        share["shareID"] = json!(id);
        share["consumedCapacity"] = json!({"memory": memory});
        share
    };
    let mut shares = claim("cb", "n2", &[], Some("b"));
    shares["status"]["allocation"]["devices"]["results"] =
        json!([share("x", "6Gi"), share("y", "4Gi"), result("n2", "half-0")]);
    world.put(shares.clone());
    assert!(world.found().is_empty());
    shares["status"]["allocation"]["devices"]["results"] = json!([
        share("x", "6Gi"),
        share("y", "5Gi"),
        result("n2", "half-0"),
        result("n2", "half-1")
    ]);
    world.put(shares.clone());
    assert_eq!(
        world.found(),
        [
            "capacity-overdrawn Device gpu.nvidia.com/n2/shared",
            "counters-overdrawn CounterSet gpu.nvidia.com/n2/card",
            // Both halves draw the board's watts once: not the point here, and above the budget.
            "budget-exceeded PowerDomain rack=n2",
        ]
    );
    // The whole device beside a share of it, and one share twice.
    for second in [result("n2", "shared"), share("x", "1Gi")] {
        shares["status"]["allocation"]["devices"]["results"] = json!([share("x", "6Gi"), second]);
        world.put(shares.clone());
        assert_eq!(world.found(), ["device-given-twice Device gpu.nvidia.com/n2/shared"]);
    }
}

#[test]
fn a_device_that_vanished() {
    let mut world = World::new();
    let mut smaller = slice("n1", &["gpu-1"]);
    smaller["spec"]["pool"] = json!({"name": "n1", "generation": 2, "resourceSliceCount": 2});
    world.put(smaller.clone());
    assert!(world.found().is_empty(), "in the middle of an update nobody can say");
    smaller["spec"]["pool"]["resourceSliceCount"] = json!(1);
    world.put(smaller);
    assert_eq!(world.found(), ["device-vanished ResourceClaim ml/ca"]);
    assert!(world.words().contains("gpu.nvidia.com/n1/gpu-0"), "{}", world.words());
    world.remove(&slice("n1", &[]));
    assert_eq!(world.found(), ["device-vanished ResourceClaim ml/ca"]);
    // It comes back, and is still taken.
    world.put(slice("n1", &["gpu-0", "gpu-1"]));
    assert!(world.found().is_empty());
    let snapshot = world.snapshot();
    let pool = snapshot
        .pools
        .iter()
        .flatten()
        .find(|p| &*p.pool.name == "n1")
        .expect("published");
    assert!(pool.taken.contains(0) && !pool.taken.contains(1));
}

#[test]
fn a_pod_of_the_device_plugin_beside_the_driver() {
    let mut world = World::new();
    world.put(plugin_pod("old", "plain", "n1"));
    assert_eq!(world.found(), ["unknown-holder Pod plain/old"]);
    let words = world.words();
    assert!(
        words.contains("has 1 nvidia.com/gpu") && words.contains("node n1") && words.contains("1 given by claims"),
        "{words}"
    );
    // The driver publishes nothing there.
    world.remove(&slice("n1", &[]));
    world.remove(&claim("ca", "n1", &[], None));
    world.remove(&pod("a", "n1", &[]));
    assert!(world.found().is_empty());
}

#[test]
fn a_pod_on_a_node_without_its_devices() {
    let mut world = World::new();
    let mut unallocated = claim("ca", "n1", &["gpu-0"], Some("a"));
    unallocated["status"] = json!({});
    world.put(unallocated);
    assert_eq!(world.found(), ["pod-without-devices Pod ml/a"]);
    assert!(world.words().contains("claim ca is not allocated"));
    world.remove(&claim("ca", "n1", &[], None));
    assert!(world.words().contains("claim ca does not exist"));
    // Reserved for another, which is there.
    world.put(claim("ca", "n1", &["gpu-0"], Some("b")));
    world.put(pod("b", "", &["ca"]));
    assert_eq!(world.found(), ["pod-without-devices Pod ml/a"]);
    assert!(world.words().contains("claim ca is not reserved for it"));
    let mut never = pod("a", "n1", &[]);
    never["spec"]["resourceClaims"] = json!([{"name": "x", "resourceClaimTemplateName": "t"}]);
    world.put(never.clone());
    assert!(world.words().contains("its claim x was never made"));
    // The controller found that it needs none; and one that goes away gives its claims back first.
    never["status"] = json!({"resourceClaimStatuses": [{"name": "x"}]});
    world.put(never.clone());
    assert!(world.found().is_empty());
    never["status"] = json!({});
    never["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    world.put(never);
    assert!(world.found().is_empty());
}

#[test]
fn a_pod_on_another_node_than_its_devices() {
    let mut world = World::new();
    world.put(pod("a", "n2", &["ca"]));
    assert_eq!(world.found(), ["pod-on-other-node Pod ml/a"]);
    assert!(world.words().contains("n2") && world.words().contains("gpu.nvidia.com/n1/gpu-0"));
    // A device that is reached from everywhere is nobody's.
    let mut everywhere = claim("ca", "n1", &["gpu-0"], Some("a"));
    everywhere["status"]["allocation"]["nodeSelector"] = json!(null);
    world.put(everywhere);
    assert!(world.found().is_empty());
}

#[test]
fn an_allocation_whose_pod_is_gone() {
    let mut world = World::new();
    world.put(claim("ca", "n1", &["gpu-0"], None));
    world.remove(&pod("a", "n1", &[]));
    assert_eq!(world.found(), ["allocation-without-pod ResourceClaim ml/ca"]);
    assert!(world.words().contains("reserved for no pod"));
    world.put(claim("ca", "n1", &["gpu-0"], Some("a")));
    assert!(
        world.words().contains("pod a is gone, or has no claims:"),
        "{}",
        world.words()
    );
    let mut another = pod("a", "n1", &[]);
    another["metadata"]["uid"] = json!("another");
    world.put(another);
    assert!(world.words().contains("another has its name"));
    let mut finished = pod("a", "n1", &["ca"]);
    finished["status"] = json!({"phase": "Failed"});
    world.put(finished);
    assert!(world.words().contains("pod a has finished"));
    // It lives, and asks for something else.
    for idle in [pod("a", "n1", &["other"]), plugin_pod("a", "ml", "")] {
        world.put(idle);
        let claims = world
            .findings()
            .into_iter()
            .filter(|f| f.kind == Kind::AllocationWithoutPod);
        let words: Vec<_> = claims.map(|f| f.message).collect();
        assert!(
            matches!(words.as_slice(), [w] if w.contains("pod a does not use it:")),
            "{words:?}"
        );
    }
    // In-tree DRA made the claim for it, and the pod's status may not say so yet.
    let mut extended = claim("ca", "n1", &["gpu-0"], Some("a"));
    extended["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "a", "controller": true}]);
    world.put(extended);
    let unused = |f: &wattlane::audit::Finding| f.kind == Kind::AllocationWithoutPod;
    assert!(!world.findings().iter().any(unused));
    let mut said = plugin_pod("a", "ml", "n1");
    said["status"] = json!({"extendedResourceClaimStatus": {"resourceClaimName": "ca"}});
    world.put(said);
    world.put(claim("ca", "n1", &["gpu-0"], Some("a")));
    assert!(!world.findings().iter().any(unused));
    // One of several is enough, and what is not a pod we do not watch.
    let mut both = claim("ca", "n1", &["gpu-0"], Some("a"));
    both["status"]["reservedFor"] =
        json!([{"resource": "pods", "name": "a", "uid": "a"}, {"resource": "pods", "name": "b", "uid": "b"}]);
    world.put(both.clone());
    world.remove(&pod("a", "n1", &[]));
    world.put(pod("b", "", &["ca"]));
    assert!(world.found().is_empty());
    both["status"]["reservedFor"] = json!([{"apiGroup": "x.dev", "resource": "jobs", "name": "a", "uid": "a"}]);
    world.remove(&pod("b", "", &[]));
    world.put(both);
    assert!(world.found().is_empty());
}

#[test]
fn an_allocation_that_no_allocator_may_make() {
    let mut world = World::new();
    let mut wide = claim("ca", "n1", &["gpu-0"], Some("a"));
    wide["spec"]["devices"]["requests"][0]["exactly"]["count"] = json!(2);
    world.put(wide.clone());
    assert_eq!(world.found(), ["allocation-odd ResourceClaim ml/ca"]);
    assert!(
        world.words().contains("fewer devices than its requests ask for: r."),
        "{}",
        world.words()
    );
    let results = |second: serde_json::Value| json!([result("n1", "gpu-0"), second]);
    wide["status"]["allocation"]["devices"]["results"] = results(result("n1", "gpu-1"));
    world.put(wide.clone());
    assert!(world.found().is_empty());
    // Of another request.
    wide["status"]["allocation"]["devices"]["results"][1]["request"] = json!("rr");
    world.put(wide.clone());
    assert_eq!(world.found(), ["allocation-odd ResourceClaim ml/ca"]);
    wide["status"]["allocation"]["devices"]["results"] = results(result("n2", "gpu-0"));
    world.put(wide.clone());
    assert_eq!(world.found(), ["allocation-odd ResourceClaim ml/ca"]);
    assert!(world.words().contains("on several nodes (n1, n2)"), "{}", world.words());
    // One pool that all nodes reach beside the card.
    let mut everywhere = slice("fabric", &["gpu-0"]);
    everywhere["spec"]["nodeName"] = json!(null);
    everywhere["spec"]["allNodes"] = json!(true);
    world.put(everywhere);
    wide["status"]["allocation"]["devices"]["results"] = results(result("fabric", "gpu-0"));
    world.put(wide.clone());
    assert!(world.found().is_empty());

    // One alternative of several, with all its devices.
    let class = |name: &str, count: u32| json!({"name": name, "deviceClassName": world::DRIVER, "count": count});
    let mut first = claim("ca", "n1", &["gpu-0"], Some("a"));
    first["spec"]["devices"]["requests"] = json!([{"name": "r", "firstAvailable": [class("two", 2), class("one", 1)]}]);
    for (request, odd) in [("r/one", false), ("r/two", true), ("r", true)] {
        first["status"]["allocation"]["devices"]["results"][0]["request"] = json!(request);
        world.put(first.clone());
        assert_eq!(!world.found().is_empty(), odd, "{request}");
    }
    // All there are is at least one.
    let mut all = claim("ca", "n1", &["gpu-0"], Some("a"));
    all["spec"]["devices"]["requests"][0]["exactly"]["allocationMode"] = json!("All");
    world.put(all.clone());
    assert!(world.found().is_empty());
    all["status"]["allocation"]["devices"]["results"] = json!([]);
    world.put(all);
    assert_eq!(world.found(), ["allocation-odd ResourceClaim ml/ca"]);
}

#[test]
fn a_claim_in_use_that_nothing_protects() {
    let mut world = World::new();
    let mut bare = claim("ca", "n1", &["gpu-0"], Some("a"));
    for finalizers in [json!(null), json!([]), json!(["example.com/other"])] {
        bare["metadata"]["finalizers"] = finalizers;
        world.put(bare.clone());
        assert_eq!(world.found(), ["claim-unprotected ResourceClaim ml/ca"]);
    }
    assert!(world.words().contains("gpu.nvidia.com/n1/gpu-0"), "{}", world.words());
    // Not in use, or not of a driver of this cluster.
    bare["status"]["reservedFor"] = json!([]);
    world.put(bare.clone());
    assert_eq!(world.kinds(), [Kind::PodWithoutDevices, Kind::AllocationWithoutPod]);
    bare["status"]["reservedFor"] = json!([{"resource": "pods", "name": "a", "uid": "a"}]);
    bare["status"]["allocation"]["devices"]["results"][0]["driver"] = json!("nic.example.com");
    world.put(bare);
    assert_eq!(world.kinds(), [Kind::DeviceVanished]);
}

#[test]
fn pods_that_went_past_wattlane() {
    assert_eq!(
        (admission::ADMITTED, admission::WEBHOOK),
        ("wattlane.dev/admitted", "wattlane.dev/webhook")
    );
    let mut world = World::new();
    let waiting = plugin_pod("waiting", "ml", "");
    world.put(waiting.clone());
    assert_eq!(world.found(), ["pod-untreated Pod ml/waiting"]);
    assert!(world.words().contains("default-scheduler may place it"));
    let gone = world.findings()[0].clone();
    assert_eq!(gone.subject.map(|s| s.uid.to_string()).as_deref(), Some("waiting"));

    // Not one that admission would have touched.
    let change = |pointer: &str, value: serde_json::Value| {
        let mut pod = waiting.clone();
        let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
        pod.pointer_mut(parent).expect("there")[key] = value;
        pod
    };
    for left_alone in [
        change("/metadata/labels", json!({"wattlane.dev/webhook": "ignore"})),
        change("/metadata/annotations", json!({"wattlane.dev/webhook": "ignore"})),
        change("/metadata/annotations", json!({"kubernetes.io/config.mirror": "x"})),
        change(
            "/metadata/ownerReferences",
            json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "uid": "d", "controller": true}]),
        ),
        change("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
        change("/metadata/namespace", json!("plain")),
        change("/spec/schedulerName", json!("volcano")),
        change(
            "/spec/containers",
            json!([{"name": "c", "resources": {"limits": {"amd.com/gpu": "1"}}}]),
        ),
    ] {
        world.remove(&waiting);
        world.put(left_alone.clone());
        assert!(world.found().is_empty(), "{left_alone}");
        world.remove(&left_alone);
    }
    // Its author named our scheduler; what admission makes of the resource is missing all the same. Claims need nothing.
    world.put(change("/spec/schedulerName", json!("wattlane")));
    assert_eq!(world.found(), ["pod-untreated Pod ml/waiting"]);
    // So is it where the policy sends pods of some classes and namespaces.
    for scheduler in ["wattlane-big", "wattlane-team"] {
        world.put(change("/spec/schedulerName", json!(scheduler)));
        assert_eq!(world.found(), ["pod-untreated Pod ml/waiting"]);
        let mut placed = pod("waiting", "n2", &["cb"]);
        placed["spec"]["schedulerName"] = json!(scheduler);
        world.put(placed);
        world.put(claim("cb", "n2", &["gpu-0"], Some("waiting")));
        assert!(world.found().is_empty(), "{scheduler} is ours");
        world.remove(&claim("cb", "n2", &[], None));
    }
    world.put(pod("waiting", "", &["ca"]));
    assert!(world.found().is_empty());

    let mut taken = pod("taken", "n2", &["cb"]);
    taken["spec"]["schedulerName"] = json!("volcano");
    world.put(taken);
    world.put(claim("cb", "n2", &["gpu-0"], Some("taken")));
    assert_eq!(world.found(), ["other-scheduler Pod ml/taken"]);
    assert!(world.words().contains("volcano put it on node n2"));
}

#[test]
fn a_gate_is_taken_off_where_admission_had_nothing_to_do() {
    let mut world = World::new();
    let gates = |mut pod: serde_json::Value, name: &str| {
        pod["metadata"]["name"] = json!(name);
        pod["spec"]["schedulingGates"] = json!([{"name": "wattlane.dev/admission"}]);
        pod
    };
    let mut amd = plugin_pod("", "ml", "");
    amd["spec"]["containers"][0]["resources"]["limits"] = json!({"amd.com/gpu": "1"});
    world.put(gates(plugin_pod("", "ml", ""), "missed"));
    let mut big = plugin_pod("", "ml", "");
    big["spec"]["schedulerName"] = json!("wattlane-big");
    world.put(gates(big, "missed-big"));
    world.put(gates(plugin_pod("", "unknown", ""), "unknown"));
    world.put(gates(amd, "no-class"));
    world.put(gates(pod("", "", &["ca"]), "treated"));
    // Its author says that it was treated, and wattlane's scheduler would place it.
    let mut forged = plugin_pod("", "ml", "");
    forged["metadata"]["annotations"] = json!({"wattlane.dev/admitted": "v1"});
    forged["spec"]["schedulerName"] = json!("wattlane");
    world.put(gates(forged, "forged"));
    let mut other = plugin_pod("other-gate", "ml", "");
    other["spec"]["schedulingGates"] = json!([{"name": "example.com/quota"}]);
    world.put(other);
    let snapshot = world.snapshot();
    let lifted = |namespace: &str, name: &str| {
        let pod = snapshot.pods.get(&NamespacedName::new(namespace, name)).expect("kept");
        liftable(&snapshot, world.policy(), pod)
    };
    assert!(lifted("ml", "no-class") && lifted("ml", "treated"));
    assert!(!lifted("ml", "missed") && !lifted("ml", "missed-big") && !lifted("ml", "forged"));
    assert!(!lifted("unknown", "unknown") && !lifted("ml", "other-gate"));
    let missed = world
        .findings()
        .into_iter()
        .find(|f| f.object == "Pod ml/missed")
        .expect("found");
    assert!(
        missed
            .message
            .contains("waits behind the scheduling gate wattlane.dev/admission"),
        "{}",
        missed.message
    );
}

/// Admission claims what resources of partitions name, so the audit knows such a pod for one that it missed.
#[test]
fn a_pod_that_asks_for_a_partition_is_told_as_one_that_asks_for_a_card() {
    let mut world = World::new();
    let gated = |resource: &str| {
        let mut pod = plugin_pod("part", "ml", "");
        pod["spec"]["containers"][0]["resources"]["limits"] = json!({resource: "1"});
        pod["spec"]["schedulingGates"] = json!([{"name": "wattlane.dev/admission"}]);
        pod
    };
    let ours = |resource: &str, world: &mut World| {
        world.put(gated(resource));
        let snapshot = world.snapshot();
        let pod = snapshot.pods.get(&NamespacedName::new("ml", "part")).expect("kept");
        let lifted = liftable(&snapshot, world.policy(), pod);
        assert_eq!(world.found().is_empty(), lifted);
        !lifted
    };
    let mig = "nvidia.com/mig-1g.10gb.me";
    assert!(!ours(mig, &mut world), "no class to claim it from");
    for class in ["mig.nvidia.com", "gpu.amd.com"] {
        world.put(
            json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": class}, "spec": {}}),
        );
    }
    // Admission refuses what nobody has: it is not let past.
    assert!(ours(mig, &mut world));
    assert!(ours("amd.com/cpx_nps4", &mut world));
    assert!(!ours("amd.com/cpx_nps9", &mut world), "no partition");
    let plugin = |names: &[&str]| {
        let amounts: serde_json::Map<String, serde_json::Value> =
            names.iter().map(|n| ((*n).to_owned(), json!("1"))).collect();
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n3"}, "status": {"allocatable": amounts}})
    };
    world.put(plugin(&[mig, "amd.com/cpx_nps4"]));
    assert!(!ours(mig, &mut world), "the plugin has it");
    let mut cut = slice("n2", &["gpu-0", "mig-0"]);
    cut["spec"]["devices"][1]["attributes"]["type"] = json!({"string": "mig"});
    cut["spec"]["devices"][1]["attributes"]["profile"] = json!({"string": "1g.10gb+me"});
    world.put(cut);
    assert!(ours(mig, &mut world), "a driver has it, too");
    assert!(
        world.words().contains("never passed wattlane's webhook"),
        "{}",
        world.words()
    );
    assert!(!ours("amd.com/cpx_nps4", &mut world), "of another vendor");
}

#[test]
fn a_budget_that_is_exceeded() {
    let mut world = World::new();
    world.put(slice("n1", &["gpu-0", "gpu-1", "gpu-2"]));
    world.put(claim("ca", "n1", &["gpu-0", "gpu-1", "gpu-2"], Some("a")));
    assert_eq!(world.found(), ["budget-exceeded PowerDomain rack=n1"]);
    assert!(
        world.words().contains("1800 W, the budget is 1500 W"),
        "{}",
        world.words()
    );
}

/// Which cards a pod of the device plugin holds is not known, how many are: the dearest that are left count.
#[test]
fn cards_that_are_held_unseen_draw_power() {
    let mut world = World::new();
    let used = |world: &mut World, rack: &str| {
        let snapshot = world.snapshot();
        let watts = snapshot
            .power
            .domains()
            .find(|d| &*d.budget.value == rack)
            .map(|d| d.used.watts);
        watts.expect("the domain")
    };
    let asks = |name: &str, node: &str, count: u32| {
        let mut pod = plugin_pod(name, "plain", node);
        pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = json!(count);
        pod
    };
    world.put(asks("old", "n1", 1));
    world.put(asks("many", "n2", 9));
    assert_eq!((used(&mut world, "n1"), used(&mut world, "n2")), (1200, 1200));
    // One more claim on n1 leaves the plugin's pod the same card or none.
    world.put(pod("b", "n1", &["cb"]));
    world.put(claim("cb", "n1", &["gpu-1"], Some("b")));
    assert_eq!(used(&mut world, "n1"), 1200);
    for gone in [
        pod("b", "n1", &[]),
        claim("cb", "n1", &[], None),
        asks("old", "n1", 1),
        asks("many", "n2", 1),
    ] {
        world.remove(&gone);
    }
    assert_eq!((used(&mut world, "n1"), used(&mut world, "n2")), (600, 0));
}

#[test]
fn kinds_are_told_apart() {
    let mut names: Vec<_> = Kind::ALL.into_iter().flat_map(|k| [k.as_str(), k.reason()]).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 2 * Kind::ALL.len());
    for kind in Kind::ALL {
        assert!(kind.as_str().bytes().all(|b| b.is_ascii_lowercase() || b == b'-'));
        assert_eq!(kind.as_str().replace('-', ""), kind.reason().to_lowercase());
    }
}

#[test]
fn more_pods_than_slots_have_a_shared_claim() {
    let mut world = World::new();
    let name = "wl-share-chat-x2-0123456789";
    let mut shared = claim(name, "n1", &["gpu-1"], Some("b"));
    for user in ["b", "c", "d"] {
        world.put(pod(user, "n1", &[name]));
    }
    let users = |names: &[&str]| -> serde_json::Value {
        let of = |u: &&str| json!({"resource": "pods", "name": u, "uid": u});
        names.iter().map(of).collect()
    };
    shared["status"]["reservedFor"] = users(&["b", "c"]);
    world.put(shared.clone());
    assert!(
        !world.found().iter().any(|f| f.starts_with("slots-overdrawn")),
        "{:?}",
        world.found()
    );
    shared["status"]["reservedFor"] = users(&["b", "c", "d"]);
    world.put(shared);
    assert_eq!(world.found(), [format!("slots-overdrawn ResourceClaim ml/{name}")]);
    assert!(
        world.words().contains("shared by 3 pods (b, c, d), and has 2 slots"),
        "{}",
        world.words()
    );
}
