//! The real `wattlane serve` as a child process, on one core of its own.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tokio::process::{Child, Command};

use crate::client;

pub(crate) struct Server {
    // Killed when dropped.
    pub(crate) child: Child,
    pid: u32,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) begun: Instant,
    /// From start to the first `/readyz` that says yes.
    pub(crate) ready_after: Duration,
}

/// What it places on.
#[derive(Clone, Copy)]
pub(crate) enum Cluster<'a> {
    /// The embedded cluster of a file or folder.
    Files(&'a Path),
    /// The API server of a kubeconfig.
    Kubeconfig(&'a Path),
}

/// `wattlane` beside this program: the same build.
pub(crate) fn binary() -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("wattlane");
    if !path.is_file() {
        bail!(
            "{} is not there: run `cargo build --release --workspace` first",
            path.display()
        );
    }
    Ok(path)
}

fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?)
}

/// Makes the certificates of one run.
pub(crate) async fn certificates(pki: &Path) -> anyhow::Result<()> {
    let output = Command::new(binary()?)
        .args(["certs", "--dns", "localhost", "--out"])
        .arg(pki)
        .output()
        .await?;
    if !output.status.success() {
        bail!("wattlane certs: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// `core`: pin the server to this core (by taskset), None: do not pin.
pub(crate) async fn start(cluster: Cluster<'_>, pki: &Path, core: Option<usize>) -> anyhow::Result<Server> {
    spawn(serve(cluster, core, "warn")?, pki).await
}

/// The command; what it says of itself, from this level on, goes to stderr.
pub(crate) fn serve(cluster: Cluster<'_>, core: Option<usize>, level: &str) -> anyhow::Result<Command> {
    let mut command = pinned(&binary()?, core);
    command
        .args(["serve", "--log-level", level])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    match cluster {
        Cluster::Files(files) => command.arg("--cluster").arg(files),
        Cluster::Kubeconfig(config) => command.args(["--cluster", "kube"]).env("KUBECONFIG", config),
    };
    Ok(command)
}

/// A command on one core.
pub(crate) fn pinned(program: &Path, core: Option<usize>) -> Command {
    match core {
        Some(core) => {
            let mut command = Command::new("taskset");
            command.arg("-c").arg(core.to_string()).arg(program);
            command
        }
        None => Command::new(program),
    }
}

/// Starts what takes the flags of `serve` about addresses and certificates, and waits until it is ready.
pub(crate) async fn spawn(mut command: Command, pki: &Path) -> anyhow::Result<Server> {
    let (address, admin) = (free_address()?, free_address()?);
    command.args(["--listen", &address.to_string(), "--admin-listen", &admin.to_string()]);
    for (flag, file) in [
        ("--tls-cert", "tls.crt"),
        ("--tls-key", "tls.key"),
        ("--client-ca", "ca.crt"),
    ] {
        command.arg(flag).arg(pki.join(file));
    }
    let begun = Instant::now();
    let mut child = command.kill_on_drop(true).spawn().context("start the server")?;
    let pid = child.id().context("the server has ended")?;
    while begun.elapsed() < Duration::from_secs(120) {
        if let Some(status) = child.try_wait()? {
            bail!("the server ended: {status}");
        }
        if matches!(client::plain(admin, "/readyz").await, Ok((http::StatusCode::OK, _))) {
            return Ok(Server {
                child,
                pid,
                address,
                admin,
                begun,
                ready_after: begun.elapsed(),
            });
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    bail!("the server was not ready after two minutes")
}

impl Server {
    /// For how long its threads have run, those that have ended not counted.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let mut nanos = 0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.pid))? {
            // "running, waiting, slices"; a thread may end in between.
            let times = std::fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
            nanos += times.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
        }
        Ok(Duration::from_nanos(nanos))
    }

    /// Resident memory now and at its highest, in bytes.
    pub(crate) fn resident(&self) -> anyhow::Result<(u64, u64)> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
            let kib: u64 = line?.split_whitespace().next()?.parse().ok()?;
            Some(kib << 10)
        };
        field("VmRSS")
            .zip(field("VmHWM"))
            .context("/proc says nothing of its memory")
    }
}
