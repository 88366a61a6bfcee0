//! A pod that asks for a partition, from admission to the device: what it says, what it claims, where it goes.
//!
//! On small clusters written here, and on slices of real drivers where they are at hand.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use wattlane::admission::{Decision, Request, Template, decide};
use wattlane::convert;
use wattlane::index::{Change, Index};
use wattlane::placement::{self, Context, Demand};
use wattlane::policy::{Policy, PolicyClassifier};
use wattlane::selector::Selectors;
use wattlane::snapshot::{NodeEntry, Snapshot};

const POLICY: &str = "
apiVersion: wattlane.dev/v1alpha1
kind: PlacementPolicy
defaults:
  deviceClasses: {example.com/gpu: gpu.example.com}
  partitionClasses: {example.com/gpu: gpu.example.com}
";

const CLASSES: [(&str, &str); 4] = [
    (
        "gpu.nvidia.com",
        "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'",
    ),
    (
        "mig.nvidia.com",
        "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'mig'",
    ),
    ("gpu.amd.com", "device.driver == 'gpu.amd.com'"),
    ("gpu.example.com", "device.driver == 'gpu.example.com'"),
];

struct World {
    index: Index,
    snapshot: Arc<Snapshot>,
    selectors: Selectors,
    policy: Arc<Policy>,
    pods: u32,
}

impl World {
    fn new(policy: &str) -> Self {
        let selectors = Selectors::new();
        let policy = Arc::new(Policy::read(policy, &selectors).expect("the policy is valid"));
        let mut world = Self {
            index: Index::new(Arc::new(PolicyClassifier::new(policy.clone()))),
            snapshot: Arc::default(),
            selectors,
            policy,
            pods: 0,
        };
        world.apply(json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "ml", "labels": {"wattlane.dev/enabled": "true"}}}));
        for (name, cel) in CLASSES {
            world.apply(
                json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name},
                "spec": {"selectors": [{"cel": {"expression": cel}}]}}),
            );
        }
        world
    }

    /// A cluster of slices of the data set, and the nodes they name. None: the data is not here.
    fn of_files(names: &[&str]) -> Option<Self> {
        let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/data/resourceslices"));
        let mut world = Self::new(POLICY);
        for name in names {
            let text = std::fs::read_to_string(folder.join(format!("{name}.yaml"))).ok()?;
            for slice in serde_saphyr::from_multiple::<Value>(&text).expect("YAML") {
                if let Some(node) = slice["spec"]["nodeName"].as_str() {
                    world.node(node);
                }
                world.apply(slice);
            }
        }
        Some(world)
    }

    fn node(&mut self, name: &str) {
        self.apply(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name}}));
    }

    fn pool(&mut self, node: &str, driver: &str, sets: &[Value], devices: &[Value]) {
        self.node(node);
        let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 2});
        let slice = |name: String, key: &str, content: &[Value]| {
            json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name},
                "spec": {"driver": driver, "nodeName": node, "pool": pool, key: content}})
        };
        self.apply(slice(format!("{node}-0"), "sharedCounters", sets));
        self.apply(slice(format!("{node}-1"), "devices", devices));
    }

    fn apply(&mut self, object: Value) {
        let object = convert::object(&object)
            .expect("readable")
            .expect("of a kind that is kept");
        self.index.apply(Change::Upsert(object));
        if let Some(snapshot) = self.index.publish() {
            self.snapshot = snapshot;
        }
    }

    /// Admits the pod, makes its claims and gives it the best devices of the best node: `node: device device`.
    fn run(&mut self, limits: Value, annotations: Value) -> Result<String, String> {
        let name = format!("pod-{}", self.pods);
        self.pods += 1;
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "ml", "uid": name, "annotations": annotations},
            "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]}});
        let request = Request {
            namespace: "ml",
            operation: "CREATE",
            object: &pod,
        };
        let (ops, templates) = match decide(&self.snapshot, &self.policy, &request) {
            Decision::Patch { ops, templates, .. } => (ops, templates),
            Decision::Refuse(refused) => return Err(format!("admission: {}", refused.message)),
            Decision::LeaveAlone { reason, .. } => return Err(format!("left alone: {}", reason.as_str())),
        };
        json_patch::patch(&mut pod, &ops).expect("the patch applies");
        let mut statuses = vec![];
        for claim in pod["spec"]["resourceClaims"].as_array().expect("claims") {
            let (of_pod, template) = (
                claim["name"].as_str().expect("a name"),
                &claim["resourceClaimTemplateName"],
            );
            let template = templates.iter().find(|t| *template == *t.name()).expect("its template");
            let claim_name = format!("{name}-{of_pod}");
            statuses.push(json!({"name": of_pod, "resourceClaimName": claim_name}));
            let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": true}]);
            self.apply(json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                "metadata": {"name": claim_name, "namespace": "ml", "uid": claim_name, "ownerReferences": owner},
                "spec": template.object("ml")["spec"]["spec"]}));
        }
        pod["status"] = json!({"resourceClaimStatuses": statuses});
        let pod = convert::pod(&pod).expect("a pod");
        let rules = self.policy.rules();
        let ctx = Context {
            snapshot: &self.snapshot,
            selectors: &self.selectors,
            rules: &rules,
        };
        let demand = Demand::of(ctx, &pod).map_err(|r| r.to_string())?;
        let nodes: Vec<&Arc<NodeEntry>> = self.snapshot.nodes().map(|(_, n)| n).collect();
        let scores = placement::scores(ctx, &demand, &nodes);
        let Some((_, best)) = scores.iter().zip(&nodes).find(|(s, _)| **s == placement::BEST) else {
            let said = nodes.iter().map(|n| placement::place(ctx, &demand, n).map(|_| ()));
            return Err(said
                .filter_map(Result::err)
                .map(|r| r.to_string())
                .collect::<Vec<_>>()
                .join("; "));
        };
        let placed = placement::place(ctx, &demand, best).map_err(|r| r.to_string())?;
        let results = placed.claims.iter().flat_map(|c| &c.allocation.results);
        let devices: Vec<&str> = results.map(|r| &*r.id.device).collect();
        let said = format!("{}: {}", best.node.name, devices.join(" "));
        for of_claim in placed.claims {
            let mut claim = (*of_claim.claim).clone();
            claim.allocation = Some(of_claim.allocation);
            self.index.apply(Change::Upsert(convert::Object::Claim(claim)));
        }
        if let Some(snapshot) = self.index.publish() {
            self.snapshot = snapshot;
        }
        Ok(said)
    }

    fn asks(&mut self, resource: &str, count: u32) -> Result<String, String> {
        self.run(json!({ resource: count.to_string() }), json!({}))
    }

    fn needs(&mut self, resource: &str, memory: &str) -> Result<String, String> {
        self.run(json!({ resource: "1" }), json!({"wattlane.dev/memory": memory}))
    }

    fn fits(&self, node: &str) -> BTreeMap<String, u32> {
        let node = self.snapshot.node_named(node).expect("a node");
        let fits = self.snapshot.fits(node).into_iter();
        fits.map(|(profile, n)| (profile.to_string(), n)).collect()
    }
}

fn refused(said: Result<String, String>) -> String {
    said.expect_err("must be refused")
}

/// Of a card of eight memory slices: whole, and cut in the ways that the tests need.
fn cut_card(card: u32) -> (Value, Vec<Value>) {
    let set = format!("gpu-{card}-set");
    let counters = |taken: &dyn Fn(u32) -> bool, sms: u32| {
        let mut counters = json!({"multiprocessors": {"value": sms.to_string()}});
        for i in 0..8 {
            counters[format!("memory-slice-{i}")] = json!({"value": u32::from(taken(i)).to_string()});
        }
        counters
    };
    let device = |name: String, kind: Value, mib: u32, taken: &dyn Fn(u32) -> bool, sms: u32| {
        let mut attributes = json!({"productName": {"string": "NVIDIA H100 80GB HBM3"}});
        for (key, value) in kind.as_object().expect("attributes") {
            attributes[key] = json!({"string": value});
        }
        json!({"name": name, "attributes": attributes, "capacity": {"memory": {"value": format!("{mib}Mi")}},
            "consumesCounters": [{"counterSet": set, "counters": counters(taken, sms)}]})
    };
    let whole = json!({"type": "gpu", "uuid": format!("GPU-{card}")});
    let mut devices = vec![device(format!("gpu-{card}"), whole, 81152, &|_| true, 132)];
    let profiles: [(&str, u32, u32, u32, &[u32]); 3] = [
        ("1g.10gb", 9984, 1, 16, &[0, 1, 2, 3, 4, 5, 6]),
        ("3g.40gb", 40448, 4, 60, &[0, 4]),
        ("7g.80gb", 81152, 8, 132, &[0]),
    ];
    for (profile, mib, slices, sms, starts) in profiles {
        for start in starts {
            let name = format!("gpu-{card}-mig-{}-{start}", profile.replace('.', ""));
            let taken = |i: u32| (*start..start + slices).contains(&i);
            devices.push(device(
                name,
                json!({"type": "mig", "profile": profile}),
                mib,
                &taken,
                sms,
            ));
        }
    }
    (json!({"name": set, "counters": counters(&|_| true, 132)}), devices)
}

fn cut_cards(count: u32) -> (Vec<Value>, Vec<Value>) {
    let (sets, devices): (Vec<_>, Vec<_>) = (0..count).map(cut_card).unzip();
    (sets, devices.into_iter().flatten().collect())
}

fn whole_card(name: &str, product: &str, mib: u32) -> Value {
    json!({"name": name, "attributes": {"type": {"string": "gpu"}, "productName": {"string": product}},
        "capacity": {"memory": {"value": format!("{mib}Mi")}}})
}

#[test]
fn partitions_and_whole_cards_keep_off_each_other() {
    let mut world = World::new(POLICY);
    let (sets, devices) = cut_cards(2);
    world.pool("n", "gpu.nvidia.com", &sets, &devices);
    assert_eq!(
        world.asks("nvidia.com/mig-3g.40gb", 1).as_deref(),
        Ok("n: gpu-0-mig-3g40gb-4")
    );
    assert_eq!(world.asks("nvidia.com/gpu", 1).as_deref(), Ok("n: gpu-1"));
    // What is left is beside the first, and nothing of it is a card.
    assert_eq!(
        world.asks("nvidia.com/mig-3g.40gb", 1).as_deref(),
        Ok("n: gpu-0-mig-3g40gb-0")
    );
    assert_eq!(
        refused(world.asks("nvidia.com/gpu", 1)),
        "counters or capacity are left for 0 of 1 gpu.nvidia.com device, 1 asked"
    );
    assert_eq!(
        refused(world.asks("nvidia.com/mig-1g.10gb", 1)),
        "counters or capacity are left for 0 of 14 mig.nvidia.com devices, 1 asked"
    );
    let said = refused(world.asks("nvidia.com/mig-2g.20gb", 1));
    assert_eq!(
        said,
        "admission: nvidia.com/mig-2g.20gb: no device of this cluster is a \"2g.20gb\"; gpu.nvidia.com offers 1g.10gb \
         (0 still fit), 3g.40gb (0 still fit), 7g.80gb (0 still fit)"
    );
}

#[test]
fn memory_goes_to_the_smallest_partition_then_larger_then_a_card() {
    let mut world = World::new(POLICY);
    let (sets, devices) = cut_cards(1);
    world.pool("cut", "gpu.nvidia.com", &sets, &devices);
    // 72 W, and yet a card.
    world.pool(
        "a-whole",
        "gpu.nvidia.com",
        &[],
        &[whole_card("gpu-0", "NVIDIA L4", 23034)],
    );
    let mut next = || world.needs("nvidia.com/gpu", "9Gi").expect("fits");
    assert!(next().starts_with("cut: gpu-0-mig-1g10gb-"));
    let mut next = || world.needs("nvidia.com/gpu", "20Gi");
    assert!(next().expect("a half").starts_with("cut: gpu-0-mig-3g40gb-"));
    assert_eq!(next().as_deref(), Ok("a-whole: gpu-0"), "the other half is begun");
    refused(next());
    let said = refused(world.needs("nvidia.com/gpu", "100Gi"));
    assert_eq!(
        said,
        "admission: wattlane.dev/memory: nothing of nvidia.com/gpu here has 100Gi; the largest device has 81152Mi"
    );
}

#[test]
fn on_whole_cards_memory_takes_a_card_that_has_it() {
    let mut world = World::new(POLICY);
    world.pool(
        "n",
        "gpu.nvidia.com",
        &[],
        &[
            whole_card("gpu-0", "NVIDIA H100 80GB HBM3", 81152),
            whole_card("gpu-1", "NVIDIA L4", 23034),
            whole_card("gpu-2", "NVIDIA A10", 22000),
        ],
    );
    assert_eq!(world.needs("nvidia.com/gpu", "22Gi").as_deref(), Ok("n: gpu-1"));
    assert_eq!(world.needs("nvidia.com/gpu", "22Gi").as_deref(), Ok("n: gpu-0"));
    refused(world.needs("nvidia.com/gpu", "22Gi"));
}

/// Before anything of the request too many is looked up.
#[test]
fn the_requests_of_a_pod_are_bounded() {
    let mut world = World::new(POLICY);
    let (sets, devices) = cut_cards(1);
    world.pool("n", "gpu.nvidia.com", &sets, &devices);
    let decided = |count: usize, last: &str| {
        let mut containers: Vec<Value> = (0..count)
            .map(|i| json!({"name": format!("c{i}"), "resources": {"limits": {"nvidia.com/mig-1g.10gb": "1"}}}))
            .collect();
        containers.push(json!({"name": "last", "resources": {"limits": {last: "1"}}}));
        let pod = json!({"metadata": {"name": "p", "namespace": "ml"}, "spec": {"containers": containers}});
        let request = Request {
            namespace: "ml",
            operation: "CREATE",
            object: &pod,
        };
        match decide(&world.snapshot, &world.policy, &request) {
            Decision::Patch { .. } => String::new(),
            Decision::Refuse(refused) => refused.message,
            Decision::LeaveAlone { reason, .. } => panic!("{}", reason.as_str()),
        }
    };
    assert_eq!(decided(127, "nvidia.com/mig-3g.40gb"), "");
    assert!(decided(127, "nvidia.com/mig-9g.90gb").contains("no device of this cluster is"));
    assert_eq!(
        decided(128, "nvidia.com/mig-9g.90gb"),
        "more than 128 requests for devices in one pod"
    );
}

/// A copy of a treated pod names a template that may have been swept: it is made again, of whatever class.
#[test]
fn what_a_copy_names_is_made_again() {
    let policy = "
apiVersion: wattlane.dev/v1alpha1
kind: PlacementPolicy
defaults:
  deviceClasses: {nvidia.com/mig-3g.40gb: gpu.example.com, example.com/gpu: gpu.nvidia.com}
";
    let mut world = World::new(policy);
    let (sets, mut devices) = cut_cards(1);
    devices.push(whole_card("gpu-9", "NVIDIA L4", 24 << 10));
    world.pool("n", "gpu.nvidia.com", &sets, &devices);
    let of_example = json!({"name": "gpu-0", "capacity": {"memory": {"value": "20Gi"}}});
    world.pool("m", "gpu.example.com", &[], &[of_example]);
    for (resource, annotations) in [
        ("nvidia.com/mig-3g.40gb", json!({})),
        ("nvidia.com/mig-1g.10gb", json!({})),
        ("nvidia.com/gpu", json!({"wattlane.dev/memory": "20Gi"})),
        ("example.com/gpu", json!({"wattlane.dev/memory": "10Gi"})),
    ] {
        let mut pod = json!({"metadata": {"name": "p", "namespace": "ml", "annotations": annotations},
            "spec": {"containers": [{"name": "c", "resources": {"limits": {resource: "1"}}}]}});
        let decided = |pod: &Value| {
            let request = Request {
                namespace: "ml",
                operation: "CREATE",
                object: pod,
            };
            decide(&world.snapshot, &world.policy, &request)
        };
        let Decision::Patch { ops, templates, .. } = decided(&pod) else {
            panic!("{resource}: {:?}", decided(&pod))
        };
        json_patch::patch(&mut pod, &ops).expect("the patch applies");
        // Something is left to do, so that the copy is looked at.
        pod["spec"]["schedulerName"] = json!("default-scheduler");
        let Decision::Patch { templates: again, .. } = decided(&pod) else {
            panic!("{resource}: {:?}", decided(&pod))
        };
        let objects = |all: &[Template]| all.iter().map(|t| t.object("ml")).collect::<Vec<_>>();
        assert!(!templates.is_empty());
        assert_eq!(objects(&again), objects(&templates), "{resource}");
    }
}

/// Sizes beyond what a list can name are one last alternative, and nothing too small is among them.
#[test]
fn many_sizes_of_partitions() {
    let mut world = World::new(POLICY);
    let part = |i: u32| {
        json!({"name": format!("mig-{i}"), "capacity": {"memory": {"value": format!("{i}Gi")}},
            "attributes": {"type": {"string": "mig"}, "profile": {"string": format!("{i}g")}, "productName": {"string": "NVIDIA B200"}}})
    };
    let parts: Vec<Value> = (1..=20).rev().map(part).collect();
    world.pool("n", "gpu.nvidia.com", &[], &parts);
    for size in 4..=10 {
        assert_eq!(
            world.needs("nvidia.com/gpu", "4Gi").as_deref(),
            Ok(&*format!("n: mig-{size}"))
        );
    }
    for _ in 11..=20 {
        world.needs("nvidia.com/gpu", "4Gi").expect("one of the larger");
    }
    refused(world.needs("nvidia.com/gpu", "4Gi"));
}

#[test]
fn the_limit_of_a_namespace_counts_cards() {
    let policy = format!("{POLICY}namespaces:\n- {{match: {{}}, maxGpusPerPod: 1}}\n");
    let mut world = World::new(&policy);
    let (sets, devices) = cut_cards(2);
    world.pool("n", "gpu.nvidia.com", &sets, &devices);
    // Seven of one card are one card; eight would be of two.
    let said = world.asks("nvidia.com/mig-1g.10gb", 7).expect("one card");
    assert_eq!(said.matches("gpu-0-mig").count(), 7, "{said}");
    let mut world = World::new(&policy);
    world.pool("n", "gpu.nvidia.com", &sets, &devices);
    assert_eq!(
        refused(world.asks("nvidia.com/mig-1g.10gb", 8)),
        "the pod asks for 2 GPUs; the policy of namespace ml allows 1 a pod"
    );
    let said = refused(world.run(json!({"nvidia.com/mig-1g.10gb": "1", "nvidia.com/gpu": "1"}), json!({})));
    assert!(
        said.starts_with("admission: the pod asks for 2 GPUs at least"),
        "{said}"
    );
}

#[test]
fn what_others_ask_for_decides_where_a_partition_goes() {
    let place = |mix: &str| {
        let mut world = World::new(&format!("{POLICY}placement: {{demandMix: {mix}}}\n"));
        let (sets, devices) = cut_cards(1);
        world.pool("n", "gpu.nvidia.com", &sets, &devices);
        world.asks("nvidia.com/mig-3g.40gb", 1).expect("fits")
    };
    // Beside it there are four small ones or three. Where nobody wants those, the first place is as good.
    assert_eq!(place("{}"), "n: gpu-0-mig-3g40gb-4");
    assert_eq!(place("{1g.10gb: 0}"), "n: gpu-0-mig-3g40gb-0");
}

#[test]
fn the_example_driver() {
    let set = |card: u32| json!({"name": format!("gpu-{card}"), "counters": {"memory": {"value": "80Gi"}}});
    let device = |card: u32, part: Option<u32>| {
        let gib = if part.is_some() { 20 } else { 80 };
        let name = part.map_or_else(|| format!("gpu-{card}"), |p| format!("gpu-{card}-part-{p}"));
        let mut attributes = json!({"model": {"string": "M"}, "uuid": {"string": format!("gpu-{card}")}});
        if let Some(part) = part {
            attributes["partition"] = json!({"int": part});
        }
        let memory = json!({"memory": {"value": format!("{gib}Gi")}});
        json!({"name": name, "attributes": attributes, "capacity": memory,
            "consumesCounters": [{"counterSet": format!("gpu-{card}"), "counters": memory}]})
    };
    let mut world = World::new(POLICY);
    let parts = |card| (0..4).map(move |p| device(card, Some(p))).chain([device(card, None)]);
    let devices: Vec<Value> = (0..2).flat_map(parts).collect();
    world.pool("n", "gpu.example.com", &[set(0), set(1)], &devices);
    assert_eq!(world.needs("example.com/gpu", "20Gi").as_deref(), Ok("n: gpu-0-part-0"));
    // Never a partition, never the card that one is of.
    assert_eq!(world.asks("example.com/gpu", 1).as_deref(), Ok("n: gpu-1"));
    for part in 1..4 {
        assert_eq!(
            world.needs("example.com/gpu", "1Gi").as_deref(),
            Ok(&*format!("n: gpu-0-part-{part}"))
        );
    }
    refused(world.needs("example.com/gpu", "1Gi"));
    refused(world.asks("example.com/gpu", 1));
}

fn amd(name: &str, kind: &str, attributes: Value, gib: u32) -> Value {
    let mut all = json!({"type": {"string": kind}, "productName": {"string": "AMD_Instinct_MI300X_OAM"}});
    for (key, value) in attributes.as_object().expect("attributes") {
        all[key] = json!({"string": value});
    }
    json!({"name": name, "attributes": all, "capacity": {"memory": {"value": format!("{gib}Gi")}}})
}

#[test]
fn static_partitions_of_amd_of_both_releases() {
    let mut world = World::new(POLICY);
    let old = |i: u32| {
        let of = json!({"partitionProfile": "cpx_nps4", "parentPciAddr": "0000:05:00.0"});
        amd(&format!("old-{i}"), "amdgpu-partition", of, 24)
    };
    let new = |i: u32| {
        let of = json!({"partitionProfile": "dpx_nps2", "resource.kubernetes.io/pciBusID": "0000:05:00.0"});
        amd(&format!("new-{i}"), "amdgpu-partition", of, 96)
    };
    world.pool("old", "gpu.amd.com", &[], &(0..8).map(old).collect::<Vec<_>>());
    world.pool("new", "gpu.amd.com", &[], &(0..2).map(new).collect::<Vec<_>>());
    let whole = amd("gpu-0", "amdgpu", json!({"partitionProfile": "spx_nps1"}), 192);
    world.pool("whole", "gpu.amd.com", &[], &[whole]);
    assert_eq!(world.asks("amd.com/cpx_nps4", 2).as_deref(), Ok("old: old-0 old-1"));
    let by_annotation = |p: &str| (json!({"amd.com/gpu": "1"}), json!({"wattlane.dev/partition": p}));
    let (limits, annotations) = by_annotation("dpx_nps2");
    assert_eq!(world.run(limits, annotations).as_deref(), Ok("new: new-0"));
    assert_eq!(world.needs("amd.com/gpu", "20Gi").as_deref(), Ok("old: old-2"));
    assert_eq!(world.needs("amd.com/gpu", "90Gi").as_deref(), Ok("new: new-1"));
    assert_eq!(world.asks("amd.com/gpu", 1).as_deref(), Ok("whole: gpu-0"));
    refused(world.asks("amd.com/gpu", 1));
    let (limits, annotations) = by_annotation("qpx_nps1");
    let said = refused(world.run(limits, annotations));
    assert_eq!(
        said,
        "admission: wattlane.dev/partition: no device of this cluster is a \"qpx_nps1\"; gpu.amd.com offers spx_nps1, \
         cpx_nps4 (5 still fit), dpx_nps2 (0 still fit)"
    );
}

/// One device for each mode of a card, a mutex between them; equal partitions are shares of it.
fn auto_card(card: u32, tainted: bool) -> (Value, Vec<Value>) {
    let set = format!("gpu-{card}-mutex");
    let draws = json!([{"counterSet": set, "counters": {"partition-mode": {"value": "1"}}}]);
    let modes = [("spx", "nps1", 1, 192), ("dpx", "nps2", 2, 96), ("cpx", "nps4", 8, 24)];
    let devices = modes.map(|(compute, memory, parts, gib)| {
        let kind = if parts == 1 { "amdgpu" } else { "amdgpu-partition" };
        let of = json!({"computePartition": compute, "memoryPartition": memory});
        let mut device = amd(&format!("gpu-{card}-{compute}-{memory}"), kind, of, gib);
        // What one allocation takes of each capacity is said by policies; without one it is all of it.
        let one = |value: String, all: String| json!({"value": all, "requestPolicy": {"default": value, "validValues": [value]}});
        device["capacity"] = json!({
            "memory": one(format!("{gib}Gi"), format!("{}Gi", gib * parts)),
            "partitions": {"value": parts.to_string(), "requestPolicy": {"default": "1"}},
        });
        device["allowMultipleAllocations"] = json!(true);
        device["consumesCounters"] = draws.clone();
        if tainted && memory != "nps4" {
            device["taints"] = json!([{"key": "gpu.amd.com/memory-partition-conflict", "effect": "NoExecute"}]);
        }
        device
    });
    (
        json!({"name": set, "counters": {"partition-mode": {"value": "1"}}}),
        devices.into(),
    )
}

#[test]
fn partitions_that_the_driver_of_amd_makes() {
    let mut world = World::new(POLICY);
    for (node, tainted) in [("free", false), ("nps4", true)] {
        let (sets, devices): (Vec<_>, Vec<_>) = (0..2).map(|card| auto_card(card, tainted)).unzip();
        world.pool(
            node,
            "gpu.amd.com",
            &sets,
            &devices.into_iter().flatten().collect::<Vec<_>>(),
        );
    }
    assert_eq!(world.fits("free")["cpx_nps4"], 16);
    assert_eq!(world.fits("free")["dpx_nps2"], 4);
    assert_eq!((world.fits("nps4")["cpx_nps4"], world.fits("nps4")["whole"]), (16, 0));
    // A whole card is one that is in one piece, where the node's memory mode lets it be.
    assert_eq!(world.asks("amd.com/gpu", 1).as_deref(), Ok("free: gpu-0-spx-nps1"));
    assert_eq!(world.fits("free")["cpx_nps4"], 8);
    for _ in 0..2 {
        assert_eq!(world.asks("amd.com/dpx_nps2", 1).as_deref(), Ok("free: gpu-1-dpx-nps2"));
    }
    refused(world.asks("amd.com/dpx_nps2", 1));
    refused(world.asks("amd.com/gpu", 1));
    for left in (0..16).rev() {
        let said = world.asks("amd.com/cpx_nps4", 1).expect("a share");
        assert!(said.starts_with("nps4: gpu-"), "{said}");
        assert_eq!(world.fits("nps4")["cpx_nps4"], left);
    }
    refused(world.asks("amd.com/cpx_nps4", 1));
}

#[test]
fn mig_of_both_shapes_as_published() {
    for file in ["nvidia-dynamic-mig-h100-split", "nvidia-dynamic-mig-h100-combined-1.34"] {
        let Some(mut world) = World::of_files(&[file]) else {
            return;
        };
        let said = world.asks("nvidia.com/mig-3g.40gb", 1).expect("fits");
        let (_, device) = said.split_once(": ").expect("a device");
        let (card, other) = if device.starts_with("gpu-0-") {
            ("gpu-0", "gpu-1")
        } else {
            ("gpu-1", "gpu-0")
        };
        assert!(
            device.starts_with(&format!("{card}-mig-3g40gb-")) && device.ends_with("-4"),
            "{said}"
        );
        assert!(
            world
                .asks("nvidia.com/gpu", 1)
                .expect("a card")
                .ends_with(&format!(": {other}"))
        );
        refused(world.asks("nvidia.com/gpu", 1));
        // On the card that is begun, where its place was left.
        assert!(
            world
                .asks("nvidia.com/mig-4g.40gb", 1)
                .expect("fits")
                .contains(&format!(": {card}-mig-4g40gb"))
        );
        refused(world.asks("nvidia.com/mig-1g.10gb", 1));
    }
}

#[test]
fn media_engines_as_published() {
    let Some(mut world) = World::of_files(&["nvidia-dynamic-mig-rtxpro6000"]) else {
        return;
    };
    let plain = world.asks("nvidia.com/mig-1g.24gb-me", 1).expect("without engines");
    let all = world
        .asks("nvidia.com/mig-1g.24gb.me.all", 1)
        .expect("with all of them");
    assert_ne!(plain, all);
    let mut world = World::of_files(&["nvidia-dynamic-mig-rtxpro6000"]).expect("it is here");
    let gfx = world.run(
        json!({"nvidia.com/gpu": "1"}),
        json!({"wattlane.dev/partition": "1g.24gb+gfx"}),
    );
    gfx.expect("by annotation");
}

#[test]
fn static_mig_as_published() {
    let Some(mut world) = World::of_files(&["nvidia-static-mig-a100-80gb"]) else {
        return;
    };
    assert!(
        world
            .asks("nvidia.com/mig-1g.10gb.me", 1)
            .expect("fits")
            .contains("mig-1g10gb")
    );
    assert!(
        world
            .needs("nvidia.com/gpu", "19Gi")
            .expect("fits")
            .contains("mig-2g20gb")
    );
    assert!(
        world
            .needs("nvidia.com/gpu", "19Gi")
            .expect("fits")
            .contains("mig-3g40gb")
    );
    assert!(
        world
            .needs("nvidia.com/gpu", "19Gi")
            .expect("the other card")
            .ends_with(": gpu-1")
    );
    refused(world.needs("nvidia.com/gpu", "19Gi"));
}

#[test]
fn amd_as_published() {
    let files = [
        "amd-2025-10-cpx-nps4-mi300x",
        "amd-2026-08-cpx-nps4-mi300x",
        "amd-2026-08-dpx-nps2-mi300x",
    ];
    let Some(mut world) = World::of_files(&files) else {
        return;
    };
    assert!(refused(world.asks("amd.com/gpu", 1)).contains("partition"));
    let dpx: Vec<String> = (0..2)
        .map(|_| world.asks("amd.com/dpx_nps2", 1).expect("fits"))
        .collect();
    assert_ne!(dpx[0], dpx[1]);
    assert!(
        world
            .asks("amd.com/cpx_nps4", 8)
            .expect("of one node")
            .matches("gpu-")
            .count()
            >= 8
    );
}

#[test]
fn autopartition_and_the_example_driver_as_published() {
    let Some(mut world) = World::of_files(&["amd-2026-08-autopartition-mi300x", "example-driver-partitions"]) else {
        return;
    };
    assert_eq!(
        world.asks("amd.com/gpu", 1).as_deref(),
        Ok("amd-mi300x-d1: gpu-0-spx-nps1")
    );
    let cpx = world.asks("amd.com/cpx_nps4", 1).expect("fits");
    assert!(cpx.ends_with("-cpx-nps4"), "{cpx}");
    assert_eq!(
        world.asks("amd.com/dpx_nps2", 1).expect("fits").split(':').next(),
        Some("amd-mi300x-d1")
    );
    assert!(
        world
            .needs("example.com/gpu", "20Gi")
            .expect("fits")
            .contains("gpu-0-partition-")
    );
    assert!(world.asks("example.com/gpu", 1).expect("the other").contains("gpu-1"));
    refused(world.asks("example.com/gpu", 1));
}
