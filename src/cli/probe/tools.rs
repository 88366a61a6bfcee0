//! Runs the vendors' tools of this node: each with a deadline, and no more of its output than is read.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use anyhow::bail;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;

use crate::topology::text::MAX_BYTES;

/// `nvidia-smi` without persistence mode wakes every card first: seconds on a large machine.
const DEADLINE: Duration = Duration::from_secs(60);
/// Of what a tool complains, in bytes.
const COMPLAINT: usize = 4096;

type Calls = &'static [(&'static str, &'static [&'static str])];

/// In this order; the first vendor whose tool is there answers. A machine with cards of both is read as NVIDIA's.
const VENDORS: &[Calls] = &[
    &[
        ("nvidia-smi", &["topo", "-m"]),
        (
            "nvidia-smi",
            &[
                "--query-gpu=index,uuid,name,enforced.power.limit,power.limit,pci.bus_id",
                "--format=csv",
            ],
        ),
    ],
    &[
        ("amd-smi", &["list", "--json"]),
        ("amd-smi", &["static", "--asic", "--bus", "--limit", "--numa", "--json"]),
        ("amd-smi", &["topology", "--json"]),
    ],
    &[(
        "rocm-smi",
        &[
            "--showtopo",
            "--showbus",
            "--showuniqueid",
            "--showmaxpower",
            "--showproductname",
            "--json",
        ],
    )],
];

/// The outputs of the calls that worked. One that fails leaves out what it would have said: limits without a matrix are
/// worth having, and the other way round.
///
/// # Errors
/// No tool, or none of its calls worked, with what it said.
pub(super) async fn ask() -> anyhow::Result<Vec<String>> {
    let mut why = vec![];
    for calls in VENDORS {
        let mut outputs = vec![];
        for (tool, args) in *calls {
            match call(tool, args).await {
                Ok(output) => outputs.push(output),
                Err(CallError::Missing) => break,
                Err(CallError::Failed(text)) => {
                    let text = format!("{tool} {}: {text}", args.join(" "));
                    super::super::note(&text);
                    why.push(text);
                }
            }
        }
        if !outputs.is_empty() {
            return Ok(outputs);
        }
    }
    if why.is_empty() {
        bail!(
            "neither nvidia-smi, amd-smi nor rocm-smi is on this machine's PATH: mount the driver's tools, or give captured \
             text with --topo and --query"
        );
    }
    bail!("{}", why.join("; "))
}

enum CallError {
    Missing,
    Failed(String),
}

async fn call(tool: &str, args: &[&str]) -> Result<String, CallError> {
    let failed = |text: String| CallError::Failed(text);
    let spawned = Command::new(tool)
        .args(args)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ends with this future, whoever drops it.
        .kill_on_drop(true)
        .spawn();
    let mut child = spawned.map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => CallError::Missing,
        _ => failed(format!("cannot be started: {e}")),
    })?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let all = async { tokio::join!(bounded(stdout, MAX_BYTES), bounded(stderr, COMPLAINT), child.wait()) };
    let Ok((stdout, stderr, status)) = tokio::time::timeout(DEADLINE, all).await else {
        return Err(failed(format!("no answer within {} s", DEADLINE.as_secs())));
    };
    let status = status.map_err(|e| failed(e.to_string()))?;
    // This one ends with an error code on some releases, and it is the answer.
    if status.success() || stdout.contains("No devices were found") {
        return Ok(stdout);
    }
    let said = [stderr.trim(), stdout.trim()].into_iter().find(|t| !t.is_empty());
    let said: String = said.unwrap_or_default().chars().take(300).collect();
    Err(failed(format!("{status}: {said}")))
}

/// Keeps the first bytes and reads on, so that the tool never waits for a full pipe.
async fn bounded(from: Option<impl AsyncRead + Unpin>, most: usize) -> String {
    let mut kept = vec![];
    if let Some(mut from) = from {
        let read = (&mut from).take(most as u64).read_to_end(&mut kept).await;
        if read.is_ok() {
            // What is lost is more than anybody reads.
            let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
        }
    }
    String::from_utf8_lossy(&kept).into_owned()
}
