//! How manifests/base puts wattlane beside a kube-scheduler: the scheduler's configuration and whom wattlane lets call.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::manifests::manifest;

/// The KubeSchedulerConfiguration of the manifest, with the extender at this port and the pair of `wattlane certs` in the
/// folder. Its `clientConnection` is the caller's.
pub(crate) fn config(port: u16, certificates: &Path) -> Result<Value> {
    let documents = manifest("scheduler.yaml")?;
    let text = documents.iter().find_map(|d| d["data"]["config.yaml"].as_str());
    let mut config: Value = serde_saphyr::from_str(text.context("no config.yaml in scheduler.yaml")?)?;
    let extender = &mut config["extenders"][0];
    extender["urlPrefix"] = json!(format!("https://127.0.0.1:{port}/extender"));
    extender["tlsConfig"] = json!({
        "caFile": certificates.join("ca.crt"),
        "certFile": certificates.join("client.crt"),
        "keyFile": certificates.join("client.key"),
    });
    Ok(config)
}

/// The environment that the manifest gives that scheduler.
pub(crate) fn env() -> Result<Vec<(String, String)>> {
    let documents = manifest("scheduler.yaml")?;
    let deployment = documents.iter().find(|d| d["kind"] == "Deployment");
    let container =
        &deployment.context("no Deployment in scheduler.yaml")?["spec"]["template"]["spec"]["containers"][0];
    let env = container["env"].as_array().context("no env in scheduler.yaml")?;
    let pairs = env.iter().filter_map(|e| {
        let text = |key: &str| e[key].as_str().map(str::to_owned);
        Some((text("name")?, text("value")?))
    });
    Ok(pairs.collect())
}

/// Whom the manifest lets call, as flags of `wattlane serve`.
pub(crate) fn callers() -> Result<Vec<String>> {
    let patch = manifest("../mounted/deployment.yaml")?;
    let added = patch.iter().filter_map(Value::as_array).flatten();
    let names: Vec<String> = added
        .filter_map(|op| op["value"].as_str())
        .filter(|a| a.contains("client-name"))
        .map(str::to_owned)
        .collect();
    ensure!(!names.is_empty(), "manifests/mounted names no caller of the extender");
    Ok(names)
}
