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
    let mut created = look(&pod);
    if created.refused.is_some() {
        return Ok(created);
    }
    let request = Request {
        namespace: &namespace,
        operation: "CREATE",
        object: &pod,
    };
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

/// Before admission: what Kubernetes would find odd in the manifest, said on stderr; and what the API server would refuse, which
/// the cluster in memory does not need.
pub(super) fn look(pod: &Value) -> Created {
    let mut found = Created::default();
    found.warn(pod, strict::doubts(Kind::Pod, pod));
    if pod["spec"]["containers"].as_array().is_none_or(Vec::is_empty) {
        found.refused = Some("spec.containers: a pod needs at least one container".to_owned());
    }
    found
}

/// A line about the pod, on stderr.
pub(super) fn say(pod: &Value, what: &str) {
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
    super::note(&format!("Pod {}/{}: {what}", text("namespace"), text("name")));
}
