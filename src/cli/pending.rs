//! A pod of the files that waits to be created: through admission, then into the cluster in memory.

use anyhow::Context as _;
use serde_json::Value;

use crate::admission::{Decision, Request};
use crate::app::Core;
use crate::cluster::embedded::Embedded;
use crate::cluster::strict;
use crate::index::Kind;

/// What came of it.
#[derive(Default)]
pub(super) struct Created {
    /// Admission's refusal, or the API server's.
    pub(super) refused: Option<String>,
    pub(super) warnings: Vec<String>,
}

impl Created {
    fn warn(&mut self, pod: &Value, warnings: Vec<String>) {
        warnings.iter().for_each(|w| say(pod, w));
        self.warnings.extend(warnings);
    }
}

pub(super) async fn create(core: &Core, embedded: &Embedded, mut pod: Value) -> anyhow::Result<Created> {
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text("namespace"), text("name"));
    let mut created = Created {
        refused: None,
        warnings: doubts(&pod),
    };
    let request = Request {
        namespace: &namespace,
        operation: "CREATE",
        object: &pod,
    };
    if let Some(why) = invalid(&pod) {
        created.refused = Some(why);
        return Ok(created);
    }
    match core.admitter.admit(&request, false).await {
        Decision::LeaveAlone { warnings, .. } => created.warn(&pod, warnings),
        Decision::Refuse(refused) => {
            created.refused = Some(refused.message);
            return Ok(created);
        }
        Decision::Patch { ops, warnings, .. } => {
            created.warn(&pod, warnings);
            json_patch::patch(&mut pod, &ops).context("admission's patch does not apply")?;
        }
    }
    let stored = embedded.create_pod(pod).await;
    stored.map_err(|e| anyhow::anyhow!("creating {namespace}/{name} in memory: {e}"))?;
    Ok(created)
}

/// What Kubernetes would find odd in the manifest; said on stderr.
pub(super) fn doubts(pod: &Value) -> Vec<String> {
    let doubts = strict::doubts(Kind::Pod, pod);
    doubts.iter().for_each(|doubt| say(pod, doubt));
    doubts
}

/// What the API server would refuse, and the cluster in memory does not need.
pub(super) fn invalid(pod: &Value) -> Option<String> {
    let empty = pod["spec"]["containers"].as_array().is_none_or(Vec::is_empty);
    empty.then(|| "spec.containers: a pod needs at least one container".to_owned())
}

/// A line about the pod, on stderr.
pub(super) fn say(pod: &Value, what: &str) {
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
    super::note(&format!("Pod {}/{}: {what}", text("namespace"), text("name")));
}
