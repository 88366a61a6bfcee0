//! `wattlane simulate`: the whole service on loopback over TLS with the embedded cluster, and every pending pod sent
//! through it the way kube-apiserver and kube-scheduler would: admission, filter, prioritize, bind.
//!
//! Owns the order of the calls and what is read back afterwards; `report` prints it.

mod report;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use self::report::{Placed, Report, Row};
use super::{Output, client::Client, load_policy, pending, standin, unclaimed};
use crate::app::{self, Core, Net};
use crate::cluster::Cluster;
use crate::cluster::embedded::Embedded;
use crate::model::{DEFAULT_SCHEDULER, DeviceId, Name, Pod};
use crate::placement::{self, Context, Demand};
use crate::snapshot::{PoolState, Slots, Snapshot};

/// The story of the mixed node, run when no files are given.
const SCENARIO: &str = include_str!("scenario.yaml");

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Files or folders of Kubernetes objects (YAML or JSON). None: the built-in mixed-wattage scenario.
    files: Vec<PathBuf>,
    /// Placement policy (YAML).
    #[arg(long)]
    policy: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

pub(super) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let embedded = match args.files.as_slice() {
        [] => Embedded::from_yaml("built-in scenario", SCENARIO)?,
        files => Embedded::load(files)?,
    };
    super::say_assumptions(&embedded);
    let embedded = Arc::new(embedded);
    let core = Core::start(embedded.clone(), load_policy(args.policy.as_deref())).await?;
    let mut app = app::serve(core.clone(), Net::loopback()).await?;
    let trust = app
        .ca_pem
        .clone()
        .context("the service made no certificate of its own")?;
    let client = Client::connect(app.address, "localhost", &trust).await?;

    let listed = core.reader.load().pools.clone();
    let mut walk = Walk {
        embedded,
        core,
        client,
        listed,
    };
    let mut rows = vec![];
    for pod in walk.embedded.pending() {
        rows.push(walk.pod(pod).await?);
    }
    let report = Report::new(rows, &walk.core.reader.load());
    app.shutdown().await?;
    report.print(args.output)?;
    Ok(ExitCode::from(u8::from(!report.all_placed())))
}

struct Walk {
    embedded: Arc<Embedded>,
    core: Core,
    client: Client,
    /// What would be taken had list order placed every pod of this run so far.
    listed: Slots<Arc<PoolState>>,
}

impl Walk {
    /// One pod from creation to binding. A "no" of the service ends up in the row; an error is a fault.
    async fn pod(&mut self, manifest: Value) -> anyhow::Result<Row> {
        let mut row = Row::of(&manifest);
        let found = pending::look(&manifest);
        row.warnings = found.warnings;
        if let Some(why) = found.refused {
            row.error = Some(format!("creating the pod: {why}"));
            return Ok(row);
        }
        let admitted = match self.admit(manifest, &mut row).await? {
            Ok(pod) => pod,
            Err(refusal) => {
                row.error = Some(refusal);
                return Ok(row);
            }
        };
        row.scheduler_name = admitted["spec"]["schedulerName"]
            .as_str()
            .unwrap_or(DEFAULT_SCHEDULER)
            .into();
        let created = match self.embedded.create_pod(admitted.clone()).await {
            Ok(pod) => pod,
            Err(e) => {
                row.error = Some(format!("creating the pod: {e}"));
                return Ok(row);
            }
        };
        self.core.index.flush().await?;
        row.left_alone = unclaimed::why(&self.core, &self.core.reader.load(), &created);
        let sent = self
            .embedded
            .pod_json(&created.key.namespace, &created.key.name)
            .unwrap_or(admitted);

        let Some(node) = self.choose(&sent, &mut row).await? else {
            return Ok(row);
        };
        self.before_bind(&created, &node, &mut row);
        let body = json!({"PodName": created.key.name, "PodNamespace": created.key.namespace, "PodUID": created.uid, "Node": node});
        let (_, answer) = self.client.post("/extender/bind", body.to_string()).await?;
        let answer: Value = serde_json::from_slice(&answer).context("the answer of bind")?;
        if let Some(error) = answer["Error"].as_str().filter(|e| !e.is_empty()) {
            row.error = Some(error.to_owned());
            return Ok(row);
        }
        self.core.index.flush().await?;
        row.node = Some(node.to_string());
        self.read_back(&created, &mut row).await?;
        Ok(row)
    }

    /// The pod as admission leaves it, or the message it was refused with.
    async fn admit(&mut self, mut pod: Value, row: &mut Row) -> anyhow::Result<Result<Value, String>> {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "simulate", "operation": "CREATE", "dryRun": false,
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "namespace": pod["metadata"]["namespace"], "name": pod["metadata"]["name"],
                "userInfo": {"username": "simulate"}, "object": pod,
            },
        });
        let (status, body) = self.client.post("/admission/mutate", review.to_string()).await?;
        if !status.is_success() {
            bail!(
                "admission answered {status}: {}",
                String::from_utf8_lossy(&body).trim_end()
            );
        }
        let answer: Value = serde_json::from_slice(&body).context("the answer of admission")?;
        let response = &answer["response"];
        for warning in response["warnings"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            pending::say(&pod, warning);
            row.warnings.push(warning.to_owned());
        }
        if response["allowed"] != json!(true) {
            return Ok(Err(response["status"]["message"]
                .as_str()
                .unwrap_or("refused without a message")
                .to_owned()));
        }
        if let Some(patch) = response["patch"].as_str() {
            use base64::Engine as _;
            let patch = base64::engine::general_purpose::STANDARD
                .decode(patch)
                .context("the patch")?;
            let patch: json_patch::Patch = serde_json::from_slice(&patch).context("the patch")?;
            json_patch::patch(&mut pod, &patch).context("the patch does not apply")?;
        }
        Ok(Ok(pod))
    }

    /// Filter, then prioritize when more than one node is left, as kube-scheduler does.
    async fn choose(&mut self, pod: &Value, row: &mut Row) -> anyhow::Result<Option<Name>> {
        let snapshot = self.core.reader.load();
        let mut names: Vec<Name> = vec![];
        for (_, entry) in snapshot.nodes() {
            match standin::refuses(pod, &entry.node, &snapshot) {
                Some(why) => _ = row.refused.insert(entry.node.name.to_string(), why),
                None => names.push(entry.node.name.clone()),
            }
        }
        names.sort_unstable();
        if names.is_empty() {
            row.error = Some(match row.refused.is_empty() {
                true => "no Node in the files".to_owned(),
                false => "no node passes the scheduler's own rules".to_owned(),
            });
            return Ok(None);
        }
        let answer = self.ask("/extender/filter", pod, &names).await?;
        if let Some(error) = answer["Error"].as_str().filter(|e| !e.is_empty()) {
            row.error = Some(error.to_owned());
            return Ok(None);
        }
        for field in ["FailedNodes", "FailedAndUnresolvableNodes"] {
            for (node, why) in answer[field].as_object().into_iter().flatten() {
                row.refused
                    .insert(node.clone(), why.as_str().unwrap_or_default().to_owned());
            }
        }
        let left: Vec<Name> = answer["NodeNames"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(Name::from)
            .collect();
        let best = match left.as_slice() {
            [] => {
                row.error = Some("no node can take it".to_owned());
                return Ok(None);
            }
            [only] => only.clone(),
            several => {
                let scores = self.ask("/extender/prioritize", pod, several).await?;
                let scores: BTreeMap<&str, i64> = scores
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(|s| Some((s["Host"].as_str()?, s["Score"].as_i64()?)))
                    .collect();
                let score = |name: &Name| scores.get(&**name).copied().unwrap_or_default();
                // The first of the best: kube-scheduler would draw among equals, which wattlane never leaves it.
                let top = several.iter().map(score).max().unwrap_or_default();
                several.iter().find(|n| score(n) == top).unwrap_or(&several[0]).clone()
            }
        };
        Ok(Some(best))
    }

    async fn ask(&mut self, path: &str, pod: &Value, names: &[Name]) -> anyhow::Result<Value> {
        let body = json!({"Pod": pod, "Nodes": null, "NodeNames": names});
        let (status, answer) = self.client.post(path, body.to_string()).await?;
        if !status.is_success() {
            bail!(
                "{path} answered {status}: {}",
                String::from_utf8_lossy(&answer).trim_end()
            );
        }
        serde_json::from_slice(&answer).with_context(|| format!("the answer of {path}"))
    }

    /// What can only be said before the devices are taken: the cost of the choice, and what list order would take.
    fn before_bind(&mut self, pod: &Pod, node: &Name, row: &mut Row) {
        let snapshot = self.core.reader.load();
        let rules = self.core.rules();
        let context = Context {
            snapshot: &snapshot,
            selectors: &self.core.selectors,
            rules: &rules,
        };
        let (Ok(demand), Some(entry)) = (Demand::of(context, pod), snapshot.node_named(node)) else {
            return;
        };
        if let Ok(placement) = placement::place(context, &demand, entry) {
            row.link_cost = placement.cost.links;
        }
        // The same cluster with the history of list order: this node, else the first by name that has enough.
        let history = Snapshot {
            pools: self.listed.clone(),
            ..Snapshot::clone(&snapshot)
        };
        let context = Context {
            snapshot: &history,
            ..context
        };
        let mut others: Vec<_> = history
            .nodes()
            .map(|(_, entry)| entry)
            .filter(|e| e.node.name != *node)
            .collect();
        others.sort_by(|a, b| a.node.name.cmp(&b.node.name));
        let found = std::iter::once(entry)
            .chain(others)
            .find_map(|entry| Some((entry, placement::list_order(context, &demand, entry)?)));
        if let Some((entry, devices)) = found {
            row.list_order = devices.iter().map(|id| Placed::device(&snapshot, id)).collect();
            row.list_order_node = Some(entry.node.name.to_string());
            take(&mut self.listed, &devices);
        }
    }

    /// The devices as the claims say them now: not what was planned, what was written.
    async fn read_back(&self, pod: &Pod, row: &mut Row) -> anyhow::Result<()> {
        let snapshot = self.core.reader.load();
        for entry in &pod.claims {
            let Some(name) = entry.claim_name() else { continue };
            let key = pod.claim_key(name);
            let claim = self
                .embedded
                .claim(&key)
                .await?
                .with_context(|| format!("claim {key} is gone"))?;
            for result in claim.allocation.iter().flat_map(|a| &a.results) {
                let device = Placed::device(&snapshot, &result.id);
                row.devices.push(Placed {
                    claim: name.to_string(),
                    request: result.request.to_string(),
                    admin_access: result.admin_access,
                    ..device
                });
            }
        }
        Ok(())
    }
}

/// Marks the devices as given whole.
fn take(pools: &mut Slots<Arc<PoolState>>, devices: &[DeviceId]) {
    for (ix, state) in (0..).zip(pools.clone().iter()) {
        let Some(state) = state else { continue };
        let pool = &state.pool;
        let of_it = |id: &&DeviceId| id.driver == pool.driver && id.pool == pool.name;
        let here: Vec<&DeviceId> = devices.iter().filter(of_it).collect();
        if !here.is_empty() {
            let mut state = PoolState::clone(state);
            for at in here.into_iter().filter_map(|id| pool.by_name.get(&id.device)) {
                state.taken.insert(*at as usize);
            }
            pools.put(ix, Some(Arc::new(state)));
        }
    }
}
