//! The real `wattlane serve` as a child process, on the embedded cluster and one core of its own.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tokio::process::{Child, Command};

use crate::client;

pub(crate) struct Server {
    // Killed when dropped.
    _child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    /// From start to the first `/readyz` that says yes.
    pub(crate) ready_after: Duration,
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
pub(crate) async fn start(cluster: &Path, pki: &Path, core: Option<usize>) -> anyhow::Result<Server> {
    let (address, admin) = (free_address()?, free_address()?);
    let binary = binary()?;
    let mut command = match core {
        Some(core) => {
            let mut command = Command::new("taskset");
            command.arg("-c").arg(core.to_string()).arg(&binary);
            command
        }
        None => Command::new(&binary),
    };
    command.arg("serve").arg("--cluster").arg(cluster);
    command.args([
        "--log-level",
        "warn",
        "--listen",
        &address.to_string(),
        "--admin-listen",
        &admin.to_string(),
    ]);
    for (flag, file) in [
        ("--tls-cert", "tls.crt"),
        ("--tls-key", "tls.key"),
        ("--client-ca", "ca.crt"),
    ] {
        command.arg(flag).arg(pki.join(file));
    }
    let begun = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("start wattlane")?;
    while begun.elapsed() < Duration::from_secs(120) {
        if let Some(status) = child.try_wait()? {
            bail!("wattlane serve ended: {status}");
        }
        if matches!(client::plain(admin, "/readyz").await, Ok((http::StatusCode::OK, _))) {
            return Ok(Server {
                _child: child,
                address,
                admin,
                ready_after: begun.elapsed(),
            });
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    bail!("wattlane serve was not ready after two minutes")
}
