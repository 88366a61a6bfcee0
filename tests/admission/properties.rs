//! What must hold for every pod: treated once, nothing touched that is not ours, nobody gets fewer devices than asked.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};
use wattlane::admission::{Decision, Request, Template, decide};

use super::world;

const RESOURCES: [&str; 4] = [
    "nvidia.com/gpu",
    "amd.com/gpu",
    "nvidia.com/mig-1g.10gb",
    "nvidia.com/mig-3g.40gb",
];

/// What a template gives: whole cards of a class, or partitions of a profile.
fn gives(template: &Template) -> String {
    let parts = template.parts.as_ref();
    parts.map_or(&template.device_class, |p| &p.label).to_string()
}

fn amounts() -> impl Strategy<Value = Value> {
    let amount = || prop_oneof![3 => Just(None), 4 => (0_u32..5).prop_map(Some)];
    let seldom = || prop_oneof![6 => Just(None), 2 => (0_u32..3).prop_map(Some)];
    let all = (amount(), amount(), seldom(), seldom());
    (all, 0..3_u8, any::<bool>()).prop_map(|((nvidia, amd, small, half), style, hami)| {
        let mut limits = json!({"cpu": "2"});
        for (name, n) in RESOURCES.into_iter().zip([nvidia, amd, small, half]) {
            if let Some(n) = n {
                limits[name] = json!(n.to_string());
            }
        }
        if hami {
            limits["nvidia.com/gpumem"] = json!("1000");
        }
        match style {
            0 => json!({"limits": limits}),
            1 => json!({"requests": limits}),
            _ => json!({"limits": limits, "requests": limits}),
        }
    })
}

fn container() -> impl Strategy<Value = Value> {
    (amounts(), 0..4_u8).prop_map(|(resources, extra)| {
        let mut container = json!({"name": "c", "image": "i", "resources": resources});
        match extra {
            0 => container["volumeMounts"] = json!([{"name": "s", "mountPath": "/dev/shm"}]),
            1 => container["volumeMounts"] = json!([{"name": "d", "mountPath": "/data"}]),
            2 => container["resources"]["claims"] = json!([{"name": "own"}]),
            _ => {}
        }
        container
    })
}

prop_compose! {
    fn pod()(
        init in prop::collection::vec((container(), any::<bool>()), 0..4),
        containers in prop::collection::vec(container(), 1..4),
        class in prop::option::of(prop::sample::select(vec!["server-600w", "l4-72w", " h20-500w ", ""])),
        own in any::<bool>(),
        runtime in any::<bool>(),
        scheduler in prop::option::of(prop::sample::select(vec!["default-scheduler", "wattlane", "wattlane-batch"])),
    ) -> Value {
        let init: Vec<Value> = init.into_iter().map(|(mut c, sidecar)| {
            if sidecar { c["restartPolicy"] = json!("Always"); }
            c
        }).collect();
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {"initContainers": init, "containers": containers}});
        if let Some(class) = class { pod["metadata"]["annotations"] = json!({"wattlane.dev/class": class, "other": "1"}); }
        if own { pod["spec"]["resourceClaims"] = json!([{"name": "wl-gpu-1", "resourceClaimName": "x"}]); }
        if runtime { pod["spec"]["runtimeClassName"] = json!("runc"); }
        if let Some(scheduler) = scheduler { pod["spec"]["schedulerName"] = json!(scheduler); }
        pod
    }
}

fn treat(pod: &Value, namespace: &str) -> Decision {
    let request = Request {
        namespace,
        operation: "CREATE",
        object: pod,
    };
    decide(&world::snapshot(), &world::policy(), &request)
}

/// The pod without everything that the documentation says may change, where it may change.
fn untouchable(pod: &Value, before: &Value) -> Value {
    let mut pod = pod.clone();
    let keep = |list: &mut Value, old: &Value| {
        if let Some(list) = list.as_array_mut() {
            list.truncate(old.as_array().map_or(0, Vec::len));
        }
    };
    let strip_empty = |parent: &mut Value, key: &str| {
        let empty = match &parent[key] {
            Value::Array(a) => a.is_empty(),
            Value::Object(o) => o.is_empty(),
            v => v.is_null(),
        };
        if empty && let Some(parent) = parent.as_object_mut() {
            parent.remove(key);
        }
    };
    // Maps only gain keys: drop those that were not there.
    let keep_keys = |map: &mut Value, old: &Value| {
        if let Some(map) = map.as_object_mut() {
            map.retain(|k, _| old.get(k).is_some());
        }
    };
    for key in ["annotations", "labels"] {
        keep_keys(&mut pod["metadata"][key], &before["metadata"][key]);
        strip_empty(&mut pod["metadata"], key);
    }
    // A blank class is as good as none and may be filled in.
    if before["metadata"]["annotations"]["wattlane.dev/class"] == "" {
        pod["metadata"]["annotations"]["wattlane.dev/class"] = json!("");
    }
    let spec = &mut pod["spec"];
    keep_keys(&mut spec["nodeSelector"], &before["spec"]["nodeSelector"]);
    spec["schedulerName"] = Value::Null;
    if before["spec"]["runtimeClassName"].is_null() {
        spec["runtimeClassName"] = Value::Null;
    }
    for key in ["resourceClaims", "volumes", "tolerations"] {
        keep(&mut spec[key], &before["spec"][key]);
    }
    for key in [
        "resourceClaims",
        "volumes",
        "tolerations",
        "nodeSelector",
        "schedulerName",
        "runtimeClassName",
    ] {
        strip_empty(spec, key);
    }
    for list in ["initContainers", "containers"] {
        for (i, container) in spec[list].as_array_mut().expect("a list").iter_mut().enumerate() {
            let old = &before["spec"][list][i];
            keep(&mut container["volumeMounts"], &old["volumeMounts"]);
            strip_empty(container, "volumeMounts");
            let resources = &mut container["resources"];
            keep(&mut resources["claims"], &old["resources"]["claims"]);
            strip_empty(resources, "claims");
            for which in ["limits", "requests"] {
                if let Some(amounts) = resources[which].as_object_mut() {
                    amounts.retain(|k, _| !RESOURCES.contains(&k.as_str()) && k != "nvidia.com/gpumem");
                }
                strip_empty(resources, which);
            }
        }
    }
    pod
}

/// Asked for, by what a template says it gives.
fn asked(container: &Value) -> BTreeMap<String, u32> {
    let of = |name: &str| {
        let amount = ["limits", "requests"]
            .into_iter()
            .find_map(|w| container["resources"][w][name].as_str());
        amount.and_then(|a| a.parse::<u32>().ok()).filter(|n| *n > 0)
    };
    let given = ["gpu.nvidia.com", "gpu.amd.com", "1g.10gb", "3g.40gb"];
    RESOURCES
        .into_iter()
        .zip(given)
        .filter_map(|(r, c)| Some((c.to_owned(), of(r)?)))
        .collect()
}

/// A path as a place in the document: list positions by number, members by name.
fn place(path: &str) -> Vec<(u64, String)> {
    let parts = path.split('/').skip(1).map(|p| p.replace("~1", "/").replace("~0", "~"));
    parts
        .map(|p| p.parse().map_or((0, p.clone()), |n| (n, String::new())))
        .collect()
}

/// What Kubernetes would count for the pod, were these extended resources, by DeviceClass.
fn needed(pod: &Value) -> BTreeMap<String, u32> {
    let (mut most, mut beside): (BTreeMap<String, u32>, BTreeMap<String, u32>) = Default::default();
    for list in ["initContainers", "containers"] {
        for container in pod["spec"][list].as_array().into_iter().flatten() {
            for (class, count) in asked(container) {
                let running = beside.entry(class.clone()).or_default();
                let now = *running + count;
                if list == "containers" || container["restartPolicy"] == "Always" {
                    *running = now;
                }
                let most = most.entry(class).or_default();
                *most = now.max(*most);
            }
        }
    }
    most
}

/// Any JSON, with the words in it that admission looks for.
fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3..40_i64).prop_map(Value::from),
        prop::sample::select(vec!["", "2", "1500m", "Always", "wl-shm", "/dev/shm", "é", "a/b~c"])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let key = prop::sample::select(vec![
            "name",
            "limits",
            "requests",
            "claims",
            "nvidia.com/gpu",
            "annotations",
            "wattlane.dev/class",
            "emptyDir",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key.prop_map(str::to_owned), inner, 0..4)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn treated_once_and_nothing_else_touched(pod in pod(), namespace in prop::sample::select(vec!["ml", "serving", "research", "batch"])) {
        if let Decision::Patch { ops, .. } = treat(&pod, namespace) {
            let mut after = pod.clone();
            json_patch::patch(&mut after, &ops).expect("the patch applies");
            let again = treat(&after, namespace);
            prop_assert!(
                matches!(again, Decision::LeaveAlone { reason: wattlane::admission::Skip::AlreadyTreated, .. }),
                "{again:?}"
            );
            prop_assert_eq!(untouchable(&after, &pod), untouchable(&pod, &pod));
        }
    }

    #[test]
    fn every_container_gets_what_it_asked_for_and_shares_with_nobody_beside_it(pod in pod()) {
        let Decision::Patch { ops, templates, .. } = treat(&pod, "ml") else {
            return Ok(());
        };
        let mut after = pod.clone();
        json_patch::patch(&mut after, &ops).expect("the patch applies");
        let template_of = |name: &str| -> Option<&Template> { templates.iter().find(|t| *t.name() == *name) };
        let claims: BTreeMap<&str, &Template> = after["spec"]["resourceClaims"].as_array().map(|claims| {
            claims.iter().filter_map(|c| Some((c["name"].as_str()?, template_of(c["resourceClaimTemplateName"].as_str()?)?))).collect()
        }).unwrap_or_default();
        let mut beside: Vec<&str> = vec![];
        for list in ["initContainers", "containers"] {
            for (i, container) in after["spec"][list].as_array().expect("a list").iter().enumerate() {
                let had = pod["spec"][list][i]["resources"]["claims"].as_array().map_or(0, Vec::len);
                let given: Vec<&str> = container["resources"]["claims"].as_array()
                    .map(|c| c.iter().skip(had).filter_map(|c| c["name"].as_str()).collect()).unwrap_or_default();
                let mut got: BTreeMap<String, u32> = BTreeMap::new();
                for template in given.iter().filter_map(|name| claims.get(name)) {
                    *got.entry(gives(template)).or_default() += template.count;
                }
                prop_assert!(given.iter().all(|name| claims.contains_key(name)), "{given:?}");
                prop_assert_eq!(got, asked(&pod["spec"][list][i]));
                let alone = list == "initContainers" && container["restartPolicy"] != "Always";
                if !alone {
                    for name in &given {
                        prop_assert!(!beside.contains(name), "{} is used twice at once", name);
                    }
                    beside.extend(given.iter().copied());
                } else {
                    // A sidecar that started before runs beside this one.
                    let started: Vec<&str> = beside.clone();
                    prop_assert!(given.iter().all(|n| !started.contains(n)));
                }
            }
        }
        let mut taken: BTreeMap<String, u32> = BTreeMap::new();
        for template in claims.values() {
            *taken.entry(gives(template)).or_default() += template.count;
        }
        prop_assert_eq!(taken, needed(&pod));
        prop_assert_eq!(templates.iter().collect::<std::collections::BTreeSet<_>>().len(), templates.len());
    }

    /// Every operation is needed, none is of a kind that can fail on what is there, and they come in the order of the
    /// document, whoever asks.
    #[test]
    fn the_patch_is_minimal_and_in_the_order_of_the_document(pod in pod(), namespace in prop::sample::select(vec!["ml", "serving", "batch"])) {
        let Decision::Patch { ops, .. } = treat(&pod, namespace) else {
            return Ok(());
        };
        let mut after = pod.clone();
        json_patch::patch(&mut after, &ops).expect("the patch applies");
        let places: Vec<Vec<(u64, String)>> = ops.0.iter().map(|op| place(op.path().as_str())).collect();
        prop_assert!(places.is_sorted_by(|a, b| a < b), "{ops:?}");
        for left_out in 0..ops.0.len() {
            let mut fewer = ops.clone();
            fewer.0.remove(left_out);
            let mut other = pod.clone();
            if json_patch::patch(&mut other, &fewer).is_ok() {
                prop_assert_ne!(&other, &after, "{} is not needed", ops.0[left_out]);
            }
        }
        let Decision::Patch { ops: again, .. } = treat(&pod, namespace) else {
            panic!("decided otherwise the second time");
        };
        prop_assert_eq!(ops, again);
    }

    /// The API server sends well-typed pods only; others must end in an answer, too, and in a patch that applies.
    #[test]
    fn nonsense_is_answered(mut pod in pod(), at in 0..12_usize, value in json_value()) {
        let places = [
            "/metadata", "/metadata/annotations", "/spec", "/spec/containers", "/spec/containers/0",
            "/spec/containers/0/resources", "/spec/containers/0/resources/limits", "/spec/initContainers",
            "/spec/containers/0/resources/claims", "/spec/resourceClaims", "/spec/containers/0/volumeMounts", "",
        ];
        if let Some(place) = pod.pointer_mut(places[at]) {
            *place = value;
        }
        if let Decision::Patch { ops, .. } = treat(&pod, "serving") {
            json_patch::patch(&mut pod, &ops).expect("the patch applies");
        }
    }
}
