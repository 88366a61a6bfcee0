//! What is assumed where the files lack a whole kind, so that a ResourceSlice alone makes a cluster. Each assumption
//! is a sentence for the user; a kind of which there is a single object is taken to be complete.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::load;
use super::state::State;
use crate::index::{Key, Kind, Object};
use crate::model::{DeviceClass, Labels, Name, Namespace, Node, NodeScope};

/// DeviceClasses as the drivers' charts install them: name, driver, and the `type` attribute where one driver
/// publishes several kinds of device.
const CLASSES: &[(&str, &str, Option<&str>)] = &[
    ("gpu.nvidia.com", "gpu.nvidia.com", Some("gpu")),
    ("mig.nvidia.com", "gpu.nvidia.com", Some("mig")),
    ("vfio.gpu.nvidia.com", "gpu.nvidia.com", Some("vfio")),
    ("gpu.amd.com", "gpu.amd.com", None),
    ("gpu.intel.com", "gpu.intel.com", None),
    ("gpu.example.com", "gpu.example.com", None),
];

/// Fills in the kinds that are missing; `pods` are all pods of the files.
pub(super) fn fill_in<'a>(state: &mut State, pods: impl Iterator<Item = &'a Key>) -> Vec<String> {
    let mut said = vec![];
    said.extend(nodes(state));
    said.extend(namespaces(state, pods));
    said.extend(classes(state));
    said
}

/// An opted-in namespace.
pub(super) fn namespace(name: &Name) -> Namespace {
    named(Namespace {
        name: name.clone(),
        labels: labels("wattlane.dev/enabled", "true"),
        deleting: false,
    })
}

/// With the label that the API server puts on every namespace, whatever was written there.
pub(super) fn named(mut namespace: Namespace) -> Namespace {
    Arc::make_mut(&mut namespace.labels).insert("kubernetes.io/metadata.name".into(), namespace.name.clone());
    namespace
}

fn labels(key: &str, value: &str) -> Labels {
    Arc::new([(Name::from(key), Name::from(value))].into())
}

fn has(state: &State, kind: Kind) -> bool {
    state.others.keys().any(|(k, _)| *k == kind)
}

fn nodes(state: &mut State) -> Option<String> {
    if has(state, Kind::Node) {
        return None;
    }
    let mut names: BTreeSet<Name> = BTreeSet::new();
    for object in state.others.values() {
        let Object::Slice(slice) = object else { continue };
        let of_devices = slice.devices.iter().filter_map(|d| d.nodes.as_ref());
        names.extend(
            std::iter::once(&slice.nodes)
                .chain(of_devices)
                .filter_map(|scope| match scope {
                    NodeScope::Node(name) => Some(name.clone()),
                    _ => None,
                }),
        );
    }
    if names.is_empty() {
        return None;
    }
    let sentence = format!(
        "no Node in the files: {} that ResourceSlices name {} assumed, with no label but kubernetes.io/hostname",
        match names.len() {
            1 => "the one".to_owned(),
            n => format!("the {n}"),
        },
        if names.len() == 1 { "is" } else { "are" },
    );
    for name in names {
        let key = Key::new("", name.clone());
        let node = Node {
            uid: load::uid(Kind::Node, &key, 0),
            labels: labels("kubernetes.io/hostname", &name),
            name,
            annotations: Labels::default(),
            extended_resources: vec![],
            allocatable: None,
            unschedulable: false,
            taints: vec![],
        };
        state.others.insert((Kind::Node, key), Object::Node(node));
    }
    Some(sentence)
}

fn namespaces<'a>(state: &mut State, pods: impl Iterator<Item = &'a Key>) -> Option<String> {
    let mut names: BTreeSet<Name> = pods.map(|key| key.namespace.clone()).collect();
    let used = state.claims.keys().chain(state.templates.keys());
    names.extend(used.map(|key| key.namespace.clone()));
    let default = Key::new("", "default");
    if !state.namespaces.is_empty() {
        // Every cluster has it, and it is easily left out: the namespace of objects that name none.
        if state.namespaces.contains_key(&default) || !names.contains(&default.name) {
            return None;
        }
        let namespace = named(Namespace {
            name: default.name.clone(),
            labels: Labels::default(),
            deleting: false,
        });
        state.namespaces.insert(default, namespace);
        return Some("Namespace default, which every cluster has, not opted in".to_owned());
    }
    state.any_namespace = true;
    let nothing = names.is_empty();
    names.insert(default.name);
    for name in &names {
        state.namespaces.insert(Key::new("", name.clone()), namespace(name));
    }
    (!nothing).then(|| {
        "no Namespace in the files: those of the pods and claims are assumed, opted in (wattlane.dev/enabled=true)"
            .to_owned()
    })
}

fn classes(state: &mut State) -> Option<String> {
    if has(state, Kind::Class) {
        return None;
    }
    for (name, driver, kind) in CLASSES {
        let mut selector = format!("device.driver == '{driver}'");
        if let Some(kind) = kind {
            selector.push_str(&format!(" && device.attributes['{driver}'].type == '{kind}'"));
        }
        let class = DeviceClass {
            name: (*name).into(),
            selectors: vec![selector.into()],
            config: vec![],
            extended_resource: None,
            created: 0,
            unsupported: None,
        };
        let key = Key::new("", *name);
        state.others.insert((Kind::Class, key), Object::Class(class));
    }
    let names: Vec<&str> = CLASSES.iter().map(|(name, ..)| *name).collect();
    Some(format!(
        "no DeviceClass in the files: those that the drivers' charts install are assumed ({})",
        names.join(", ")
    ))
}
