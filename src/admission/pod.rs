//! Reads the few fields of a pod's JSON that admission looks at. A field of the wrong type reads as absent: the API
//! server has decoded the pod before it asks us, so this is about not panicking, not about validation.

use serde_json::{Map, Value};

/// A pod as it came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pod<'a>(pub(super) &'a Value);

/// When a container runs, which decides whose devices it may share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// One after another, before everything that follows.
    Init,
    /// A restartable init container: runs beside everything that follows.
    Sidecar,
    Regular,
}

/// A container and where it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Container<'a> {
    pub(super) phase: Phase,
    /// `initContainers` or `containers`.
    pub(super) list: &'static str,
    pub(super) at: usize,
    pub(super) json: &'a Value,
}

impl<'a> Container<'a> {
    pub(super) fn name(&self) -> &'a str {
        self.json["name"].as_str().unwrap_or("?")
    }

    /// `limits` or `requests`.
    pub(super) fn amounts(&self, which: &str) -> Option<&'a Map<String, Value>> {
        self.json["resources"][which].as_object()
    }
}

impl<'a> Pod<'a> {
    fn text(self, part: &str, key: &str) -> Option<&'a str> {
        let value = self.0["metadata"][part][key].as_str()?.trim();
        (!value.is_empty()).then_some(value)
    }

    /// Trimmed; empty counts as absent.
    pub(super) fn annotation(self, key: &str) -> Option<&'a str> {
        self.text("annotations", key)
    }

    /// The keys of all annotations, in order.
    pub(super) fn annotations(self) -> impl Iterator<Item = &'a str> {
        let all = self.0["metadata"]["annotations"].as_object();
        all.into_iter().flat_map(|all| all.keys().map(String::as_str))
    }

    pub(super) fn label(self, key: &str) -> Option<&'a str> {
        self.text("labels", key)
    }

    /// A text field of the spec; empty counts as absent.
    pub(super) fn spec_text(self, key: &str) -> Option<&'a str> {
        self.0["spec"][key].as_str().filter(|v| !v.is_empty())
    }

    pub(super) fn spec_list(self, key: &str) -> &'a [Value] {
        self.0["spec"][key].as_array().map_or(&[], Vec::as_slice)
    }

    pub(super) fn owned_by_daemon_set(self) -> bool {
        let owners = self.0["metadata"]["ownerReferences"].as_array();
        owners.is_some_and(|o| {
            o.iter().any(|owner| {
                owner["kind"] == "DaemonSet" && owner["apiVersion"].as_str().is_some_and(|v| v.starts_with("apps/"))
            })
        })
    }

    /// Init containers, then the others, in the order of the manifest. Ephemeral containers cannot have resources.
    pub(super) fn containers(self) -> impl Iterator<Item = Container<'a>> {
        ["initContainers", "containers"].into_iter().flat_map(move |list| {
            self.spec_list(list)
                .iter()
                .enumerate()
                .map(move |(at, json)| Container {
                    phase: match list {
                        "containers" => Phase::Regular,
                        _ if json["restartPolicy"] == "Always" => Phase::Sidecar,
                        _ => Phase::Init,
                    },
                    list,
                    at,
                    json,
                })
        })
    }
}
