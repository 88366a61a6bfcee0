//! A pod of the files that waits to be created: through admission, then into the cluster in memory.

use anyhow::Context as _;
use serde_json::Value;

use crate::admission::{Decision, Request};
use crate::app::Core;
use crate::cluster::embedded::Embedded;

/// Some: admission's refusal.
pub(super) async fn create(core: &Core, embedded: &Embedded, mut pod: Value) -> anyhow::Result<Option<String>> {
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text("namespace"), text("name"));
    let request = Request {
        namespace: &namespace,
        operation: "CREATE",
        object: &pod,
    };
    match core.admitter.admit(&request, false).await {
        Decision::LeaveAlone { .. } => {}
        Decision::Refuse(refused) => return Ok(Some(refused.message)),
        Decision::Patch { ops, warnings, .. } => {
            json_patch::patch(&mut pod, &ops).context("admission's patch does not apply")?;
            warnings.iter().for_each(|w| super::note(&format!("{name}: {w}")));
        }
    }
    let created = embedded.create_pod(pod).await;
    created.map_err(|e| anyhow::anyhow!("creating {namespace}/{name} in memory: {e}"))?;
    Ok(None)
}
