//! What of the files is probably not meant so: sentences for the user. Nothing is changed here.

use std::collections::HashSet;
use std::path::PathBuf;

use super::state::State;
use crate::index::{Key, Kind, Object};
use crate::model::{Name, NodeScope, Pod};

pub(super) struct Doubts {
    said: Vec<String>,
    nodes: HashSet<Name>,
    /// Pods on nodes that do not exist: how many, and the first with its node.
    astray: Option<(usize, Key, Name)>,
}

impl Doubts {
    /// `empty`: files without an object; `odd`: what was said of single objects. The nodes are those of the files, or those that were assumed.
    pub(super) fn new(state: &State, empty: &[PathBuf], odd: Vec<String>) -> Self {
        let no_object = |path: &PathBuf| format!("{}: no Kubernetes object in this file", path.display());
        let mut said: Vec<String> = empty.iter().map(no_object).collect();
        let nodes = state.others.keys().filter(|(kind, _)| *kind == Kind::Node);
        let nodes: HashSet<Name> = nodes.map(|(_, key)| key.name.clone()).collect();
        if nodes.is_empty() {
            said.push("no Node in the files, and no ResourceSlice that names one".to_owned());
        }
        said.extend(odd);
        said.extend(slices(state, &nodes));
        Self {
            said,
            nodes,
            astray: None,
        }
    }

    /// A pod that was bound before.
    pub(super) fn on_node(&mut self, pod: &Pod) {
        if pod.holds() && !self.nodes.contains(&pod.node_name) {
            let first = || (0, pod.key.clone(), pod.node_name.clone());
            self.astray.get_or_insert_with(first).0 += 1;
        }
    }

    pub(super) fn said(mut self) -> Vec<String> {
        self.said.extend(self.astray.map(|(count, pod, node)| {
            format!(
                "pods whose spec.nodeName is no Node of the files: {count} (the first is {pod}, on {node}); no scheduler \
                 sees such a pod, and nothing is placed for it"
            )
        }));
        self.said
    }
}

fn slices(state: &State, nodes: &HashSet<Name>) -> Option<String> {
    let mut astray = state.others.values().filter_map(|object| match object {
        Object::Slice(slice) => match &slice.nodes {
            NodeScope::Node(node) if !nodes.contains(node) => Some((&slice.name, node)),
            _ => None,
        },
        _ => None,
    });
    let (slice, node) = astray.next()?;
    Some(format!(
        "ResourceSlices whose spec.nodeName is no Node of the files: {} (the first is {slice}, of {node}); nobody gets \
         their devices",
        astray.count() + 1
    ))
}
