//! A child process with its log in a file, which does not outlive the test: not when the test ends, not when it
//! panics, and not when the test program is killed.

use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// Lines of a log that are worth printing when a test fails.
const TAIL_LINES: usize = 30;
const TAIL_WIDTH: usize = 400;
/// Every component without client certificates says this all the time, and means nothing by it.
const NOISE: &str = "extension-apiserver-authentication";

pub(crate) struct Process {
    name: &'static str,
    /// For another life.
    command: Command,
    killed: bool,
    child: Child,
    /// A shell that waits for the end of its standard input, which this program holds open, and then kills the child.
    /// It is what remains when this program is killed and no destructor runs.
    guard: Child,
    log: PathBuf,
}

impl Process {
    pub(crate) fn start(name: &'static str, mut command: Command, dir: &Path) -> io::Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let (child, guard) = spawn(name, &mut command, &log)?;
        Ok(Self {
            name,
            command,
            killed: false,
            child,
            guard,
            log,
        })
    }

    /// Another life of a process that was killed.
    pub(crate) fn revive(&mut self) -> io::Result<()> {
        (self.child, self.guard) = spawn(self.name, &mut self.command, &self.log)?;
        self.killed = false;
        Ok(())
    }

    /// The exit status, when it has ended by itself.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        if self.killed {
            return None;
        }
        self.child.try_wait().ok().flatten()
    }

    /// SIGKILL, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.killed = true;
        // The guard first: it must not fire at a process id that somebody else has by then.
        end(&mut self.guard);
        end(&mut self.child);
    }

    /// `TERM` is what the kubelet sends: see `ended`; then `kill` tidies up.
    pub(crate) fn signal(&mut self, signal: &str) -> io::Result<()> {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([&format!("-{signal}"), &id]).status()?;
        match sent.success() {
            true => Ok(()),
            false => Err(io::Error::other(format!("kill: {sent}"))),
        }
    }

    pub(crate) fn killed(&self) -> bool {
        self.killed
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read(&self.log).map_or_else(|e| e.to_string(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    pub(crate) fn tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().filter(|line| !line.contains(NOISE)).collect();
        let tail = &lines[lines.len().saturating_sub(TAIL_LINES)..];
        let cut: Vec<String> = tail
            .iter()
            .map(|line| line.chars().take(TAIL_WIDTH).collect())
            .collect();
        format!("---- {} (last lines) ----\n{}\n", self.name, cut.join("\n"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The child, and the guard that ends it.
fn spawn(name: &str, command: &mut Command, log: &Path) -> io::Result<(Child, Child)> {
    // Appended to: the log of a process that was restarted tells of both lives.
    let out = File::options().create(true).append(true).open(log)?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out)
        // Not in the terminal's group: Ctrl-C ends the test program, and the guard does the rest.
        .process_group(0)
        .spawn()
        .map_err(|e| io::Error::new(e.kind(), format!("{name} does not start: {e}")))?;
    let guard = Command::new("sh")
        .args(["-c", r#"read -r _; kill -9 "$0""#, &child.id().to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    if guard.is_err() {
        end(&mut child);
    }
    guard.map(|guard| (child, guard))
}

/// Errors say that it is gone already, which is what is wanted.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Loopback ports nobody listens on now. Somebody else may take one before it is used: whoever starts a process
/// with one of them tries again.
pub(crate) fn free_ports<const N: usize>() -> io::Result<[u16; N]> {
    let mut ports = [0; N];
    // All are held until the last is known, or the kernel could name one twice.
    let mut held = Vec::with_capacity(N);
    for port in &mut ports {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}
