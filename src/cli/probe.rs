//! `wattlane probe`: what a node would publish about its cards, from the vendors' tools or from captured text; with
//! `--publish` it does publish it, as one annotation of the Node.

mod output;
mod tools;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::signal::unix::{SignalKind, signal};

use super::Output;
use crate::cluster::kube::KubeCluster;
use crate::topology::annotation::{ANNOTATION, encode};
use crate::topology::text::{self, Reading};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Captured `nvidia-smi topo -m`, `amd-smi topology --json` or `rocm-smi --showtopo`, instead of running the tools; `-`
    /// reads the standard input.
    #[arg(long, value_name = "FILE")]
    topo: Option<PathBuf>,
    /// Captured `nvidia-smi --query-gpu=index,uuid,name,enforced.power.limit,power.limit,pci.bus_id --format=csv`, `amd-smi
    /// static --json` or `list --json`.
    #[arg(long, value_name = "FILE")]
    query: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    /// Write it to the Node as the annotation wattlane.dev/topology-report, or remove that where there are no cards.
    #[arg(long)]
    publish: bool,
    /// The Node to write to.
    #[arg(long, env = "NODE_NAME", requires = "publish")]
    node: Option<String>,
    /// Do so again and again, so often: 90s, 5m, 1h. Without it once.
    #[arg(long, requires = "publish", allow_hyphen_values = true, value_parser = interval)]
    interval: Option<Duration>,
    /// Kubeconfig for --publish; else $KUBECONFIG, ~/.kube/config, or the pod's ServiceAccount.
    #[arg(long, value_name = "FILE", requires = "publish")]
    kubeconfig: Option<PathBuf>,
}

/// 10 seconds to a day.
fn interval(text: &str) -> Result<Duration, String> {
    let wrong = || "write 90s, 5m or 1h, between 10s and 24h".to_owned();
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
    let factor = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(wrong()),
    };
    let seconds = number.parse::<u32>().ok().and_then(|n| n.checked_mul(factor));
    let seconds = seconds.filter(|s| (10..=86_400).contains(s)).ok_or_else(wrong)?;
    Ok(Duration::from_secs(seconds.into()))
}

pub(super) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if !args.publish {
        let reading = read(args).await?;
        let mut out = std::io::stdout().lock();
        match args.output {
            Output::Json => output::json(&reading, &mut out)?,
            Output::Table => output::table(&reading, &mut out)?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let Some(node) = args.node.as_deref().filter(|n| !n.is_empty()) else {
        bail!("--publish needs the name of this node: --node, or NODE_NAME in the environment");
    };
    let cluster = KubeCluster::connect(args.kubeconfig.as_deref())
        .await
        .context("cannot reach the Kubernetes API")?;
    let Some(interval) = args.interval else {
        publish(args, &cluster, node).await?;
        return Ok(ExitCode::SUCCESS);
    };
    // The first process of a container has no default action for these.
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let rounds = async {
        loop {
            ticks.tick().await;
            // A tool that fails now and then must not take away what was right a moment ago: the annotation stays.
            if let Err(e) = publish(args, &cluster, node).await {
                super::note(&format!("not published: {e:#}"));
            }
        }
    };
    tokio::select! {
        () = rounds => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(ExitCode::SUCCESS)
}

async fn publish(args: &Args, cluster: &KubeCluster, node: &str) -> anyhow::Result<()> {
    let reading = read(args).await?;
    reading
        .doubts
        .iter()
        .for_each(|d| super::note(&format!("not known: {d}")));
    let text = match reading.report.cards.is_empty() {
        true => None,
        false => Some(encode(&reading.report).map_err(anyhow::Error::msg)?),
    };
    let written = cluster.annotate_node(node, ANNOTATION, text.as_deref()).await;
    written.map_err(|e| anyhow::anyhow!("{e}"))
}

async fn read(args: &Args) -> anyhow::Result<Reading> {
    let files: Vec<&Path> = [&args.topo, &args.query].into_iter().flatten().map(|p| &**p).collect();
    let texts = match files.as_slice() {
        [] => tools::ask().await?,
        files => files.iter().map(|path| captured(path)).collect::<anyhow::Result<_>>()?,
    };
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    text::read(&texts).map_err(|e| match files.as_slice() {
        [] => anyhow::anyhow!("the tools of this node: {e}"),
        files => {
            let names: Vec<_> = files.iter().map(|p| p.display().to_string()).collect();
            anyhow::anyhow!("{}: {e}", names.join(", "))
        }
    })
}

/// Captures come from terminals of all kinds: what is no UTF-8 is kept as something that cannot be read.
fn captured(path: &Path) -> anyhow::Result<String> {
    use std::io::Read as _;
    let mut bytes = vec![];
    // One byte more than is read, so that what is too long is noticed.
    let most = text::MAX_BYTES as u64 + 1;
    let read = match path.to_str() {
        Some("-") => std::io::stdin().lock().take(most).read_to_end(&mut bytes),
        _ => std::fs::File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes)),
    };
    read.with_context(|| format!("cannot read {}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::interval;
    use std::time::Duration;

    #[test]
    fn intervals() {
        assert_eq!(interval("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(interval("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(interval("24h"), Ok(Duration::from_secs(86_400)));
        for bad in ["", "s", "5", "9s", "25h", "-5m", "5 m", "4294967295h", "5µ"] {
            assert!(interval(bad).is_err(), "{bad}");
        }
    }
}
