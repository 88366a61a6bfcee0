//! The command line: one file for each subcommand. Nothing else of the crate prints.

mod audit;
pub mod certs;
pub mod check;
mod client;
mod election;
mod explain;
mod named;
mod pending;
mod probe;
mod serve;
mod simulate;
mod slots;
mod standin;
mod unclaimed;
mod watts;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};

use crate::app::{Core, PolicySource};
use crate::cluster::embedded::{Embedded, Skipped};
use crate::cluster::kube::KubeCluster;
use crate::model::{Classified, DeviceId, NamespacedName};
use crate::policy::Policy;
use crate::selector::Selectors;
use crate::snapshot::{Pool, Snapshot};

/// Tasks that a thread goes on with between two looks at what else has arrived. A large body is read in pieces, after each of which its
/// connection waits for its turn again: at Tokio's 61, where nothing else is ready, nobody else is seen before it is through.
const LOOKS: u32 = 4;

/// Exit code for unusable input; 1 is the answer "no".
const UNUSABLE: u8 = 2;

#[derive(Debug, clap::Parser)]
#[command(
    name = "wattlane",
    version,
    about = "GPU placement for Kubernetes by wattage class and topology"
)]
struct Cli {
    #[command(flatten)]
    log: crate::app::LogArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// The TLS service: scheduler extender, admission webhook, metrics
    Serve(Box<serve::Args>),
    /// Where would these pods go: the whole service on loopback, on a cluster held in memory
    Simulate(simulate::Args),
    /// What each node says to one pod, and what it would get there; writes nothing
    Explain(explain::Args),
    /// Validates a policy and says what its classes match
    Check(CheckArgs),
    /// Devices given twice, pods and allocations without each other, pods that went past wattlane, budgets exceeded
    Audit(audit::Args),
    /// What this node's cards are and how they are connected; --publish writes it to the Node
    Probe(probe::Args),
    /// Makes a CA, serving and client certificates, and puts the caBundle where it belongs
    Certs(certs::Args),
}

#[derive(Debug, clap::Args)]
struct CheckArgs {
    /// The policy (YAML), or the ConfigMap that holds it.
    #[arg(required_unless_present = "cluster")]
    policy: Option<PathBuf>,
    /// Count what the classes match here: `kube`, or files or folders of objects; may be repeated.
    #[arg(long, num_args = 1..)]
    cluster: Vec<PathBuf>,
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Output {
    #[default]
    Table,
    /// One JSON document on stdout and nothing else.
    Json,
}

/// `--cluster`
#[derive(Debug, clap::Args)]
pub(crate) struct ClusterArg {
    /// `kube` (in-cluster, else kubeconfig), or files or folders of Kubernetes objects; may be repeated.
    #[arg(long, default_value = "kube", num_args = 1..)]
    cluster: Vec<PathBuf>,
}

impl ClusterArg {
    /// None: the Kubernetes API.
    fn files(&self) -> Option<Vec<PathBuf>> {
        (self.cluster != [Path::new("kube")]).then(|| self.cluster.clone())
    }

    /// The parts that decide, over the cluster; Some: which is in memory, from files.
    async fn core(&self, policy: PolicySource) -> anyhow::Result<(Core, Option<Arc<Embedded>>)> {
        core_of(&self.cluster, policy).await
    }
}

async fn connect() -> anyhow::Result<KubeCluster> {
    let connected = KubeCluster::connect(None).await;
    connected.context("cannot reach the Kubernetes API")
}

async fn core_of(cluster: &[PathBuf], policy: PolicySource) -> anyhow::Result<(Core, Option<Arc<Embedded>>)> {
    if cluster == [Path::new("kube")] {
        return Ok((Core::start(Arc::new(connect().await?), policy).await?, None));
    }
    let embedded = Arc::new(Embedded::load(cluster)?);
    say_assumptions(&embedded);
    Ok((Core::start(embedded.clone(), policy).await?, Some(embedded)))
}

/// Runs the command line; the exit code is the contract's.
pub fn main() -> ExitCode {
    let cli = <Cli as clap::Parser>::parse();
    let level = if matches!(cli.command, Command::Serve(_)) {
        "info"
    } else {
        "warn"
    };
    if let Err(e) = cli.log.install(level) {
        return unusable(&e.context("--log-level"));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .event_interval(LOOKS)
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(e) => return unusable(&anyhow::Error::new(e).context("cannot start the runtime")),
    };
    let result = runtime.block_on(async {
        match &cli.command {
            Command::Serve(args) => serve::run(args).await,
            Command::Simulate(args) => simulate::run(args).await,
            Command::Explain(args) => explain::run(args).await,
            Command::Check(args) => run_check(args).await,
            Command::Audit(args) => audit::run(args).await,
            Command::Probe(args) => probe::run(args).await,
            Command::Certs(args) => certs::run_any(args).await,
        }
    });
    // A bind that is still looking after itself was waited for by `serve`; nothing else is worth waiting for.
    runtime.shutdown_background();
    result.unwrap_or_else(|e| unusable(&e))
}

fn unusable(error: &anyhow::Error) -> ExitCode {
    // Who reads the first lines of a table only has what they wanted.
    let closed = |e: &std::io::Error| e.kind() == std::io::ErrorKind::BrokenPipe;
    if error.downcast_ref().is_some_and(closed) {
        return ExitCode::SUCCESS;
    }
    note(&format!("{error:#}"));
    ExitCode::from(UNUSABLE)
}

/// A line for the person at the terminal, on stderr.
fn note(text: &str) {
    use std::io::Write as _;
    // Nobody is there to hear of a closed stderr.
    let _ = writeln!(std::io::stderr(), "wattlane: {text}");
}

/// What was made of the files beyond what is in them: filled in, doubtful, or left aside. A Deployment handed to
/// `simulate` must not pass for a cluster without pods.
fn say_assumptions(embedded: &Embedded) {
    const SHOWN: usize = 8;
    embedded
        .assumptions()
        .iter()
        .for_each(|text| note(&format!("assumed: {text}")));
    embedded.doubts().iter().for_each(|text| note(text));
    let skipped = embedded.skipped();
    if skipped.is_empty() {
        return;
    }
    let shown = |(kind, of): (&String, &Skipped)| match of.count {
        1 => format!("{kind} (1, in {})", of.file.display()),
        n => format!("{kind} ({n}, the first in {})", of.file.display()),
    };
    let mut kinds: Vec<_> = skipped.iter().take(SHOWN).map(shown).collect();
    if skipped.len() > SHOWN {
        kinds.push(format!("and {} more kinds", skipped.len() - SHOWN));
    }
    note(&format!("not looked at: {}", kinds.join(", ")));
}

fn load_policy(path: Option<&Path>) -> PolicySource {
    path.map_or(PolicySource::Default, PolicySource::read)
}

impl CheckArgs {
    /// The policy and the cluster's files. Behind `--cluster FILE` the policy looks like one more of those: it is the last.
    fn paths(&self) -> anyhow::Result<(&Path, &[PathBuf])> {
        match (&self.policy, self.cluster.as_slice()) {
            (Some(policy), cluster) => Ok((policy, cluster)),
            (None, [cluster @ .., policy]) if !cluster.is_empty() => Ok((policy, cluster)),
            _ => bail!("which policy? wattlane check POLICY --cluster FILES"),
        }
    }
}

async fn run_check(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let (path, cluster) = args.paths()?;
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    // What is drawn of its power domains is added up by the policy itself, where it can be read.
    let source = match Policy::read(&text, &Selectors::new()) {
        Ok(_) => PolicySource::File {
            path: path.to_owned(),
            text: Ok(text.clone()),
            kept: None,
        },
        Err(_) => PolicySource::Default,
    };
    let core = match cluster {
        [] => None,
        cluster => Some(core_of(cluster, source).await?.0),
    };
    let snapshot = core.as_ref().map(|core| core.reader.load());
    let report = check::check(&text, snapshot.as_deref());
    let mut out = std::io::stdout().lock();
    match args.output {
        Output::Json => report.write_json(&mut out)?,
        Output::Table => report.write_text(&mut out)?,
    }
    Ok(ExitCode::from(report.exit_code()))
}

/// `[NAMESPACE/]NAME` of a Secret.
fn secret_name(text: &str, namespace: &str) -> anyhow::Result<NamespacedName> {
    let (namespace, name) = text.split_once('/').unwrap_or((namespace, text));
    anyhow::ensure!(
        !namespace.is_empty() && !name.is_empty() && !name.contains('/'),
        "{text:?} is no [NAMESPACE/]NAME"
    );
    Ok(NamespacedName::new(namespace, name))
}

/// The pool of a device, with its position, and the device's in it. None: it is not published.
fn placed_in<'s>(snapshot: &'s Snapshot, id: &DeviceId) -> Option<(usize, &'s Pool, usize)> {
    let mut pools = snapshot.pools.iter().enumerate();
    let (ix, pool) = pools.find_map(|(ix, state)| {
        let pool = &state?.pool;
        (pool.driver == id.driver && pool.name == id.pool).then_some((ix, pool))
    })?;
    let at = *pool.by_name.get(&id.device)? as usize;
    (at < pool.devices.len()).then_some((ix, pool, at))
}

/// What the snapshot says of a device. None: it is not published.
fn classified<'s>(snapshot: &'s Snapshot, id: &DeviceId) -> Option<&'s Classified> {
    let (_, pool, at) = placed_in(snapshot, id)?;
    Some(&pool.devices[at].classified)
}

/// Columns padded to their widest cell, the last one not at all.
fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let widths: [usize; N] =
        std::array::from_fn(|i| rows.iter().map(|r| r[i].chars().count()).max().unwrap_or_default());
    let mut text = String::new();
    for row in rows {
        for (i, (cell, width)) in row.iter().zip(widths).enumerate() {
            text += cell;
            if i + 1 < N {
                text.extend(std::iter::repeat_n(' ', width - cell.chars().count() + 2));
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::{Cli, table};

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn columns_line_up() {
        let rows = [["a", "bb", "c"], ["aaa", "b", "cc"]].map(|r| r.map(str::to_owned));
        assert_eq!(table(&rows), "a    bb  c\naaa  b   cc\n");
    }
}
