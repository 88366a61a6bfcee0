//! The control plane without wattlane: etcd, kube-apiserver, kube-controller-manager and the default kube-scheduler,
//! on loopback, in a temporary folder. Flags as little as they can be for a cluster without kubelets.
//!
//! Shared by path between tests/e2e and loadtest's closed loop, with what both need to put wattlane into it.
#![allow(dead_code, reason = "each of the two uses a part")]

pub(crate) mod extender;
pub(crate) mod manifests;
pub(crate) mod node;
pub(crate) mod process;
pub(crate) mod users;
pub(crate) mod wait;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard};

use self::process::{Process, free_ports};
use self::users::User;
use self::wait::{Hopeless, SOON, until};

const START: Duration = Duration::from_secs(90);
const ATTEMPTS: usize = 3;
const REVIVALS: u32 = 5;
/// The last words of a kube-scheduler that lost its lease.
const LEASE_LOST: &str = "Leaderelection lost";

pub(crate) struct Plane {
    /// In the order of their start; ended in the opposite order.
    processes: Vec<Process>,
    client: Option<kube::Client>,
    bin: PathBuf,
    reported: bool,
    /// How often a scheduler was started again.
    revivals: u32,
    /// etcd's port for clients.
    etcd: u16,
    /// Removed when all that writes into it has ended.
    dir: TempDir,
    _turn: MutexGuard<'static, ()>,
}

/// Two control planes at once would only make both slow.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

impl Plane {
    pub(crate) async fn start() -> Result<Self> {
        Self::start_with(&[]).await
    }

    /// `flags`: more flags for kube-apiserver, as for features that are off by default.
    pub(crate) async fn start_with(flags: &[&str]) -> Result<Self> {
        let bin = binaries()?;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let mut plane = Self {
                processes: vec![],
                client: None,
                reported: false,
                revivals: 0,
                etcd: 0,
                bin: bin.clone(),
                dir: tempfile::Builder::new().prefix("wattlane-e2e-").tempdir()?,
                _turn: ONE_AT_A_TIME.lock().await,
            };
            let Err(e) = plane.bring_up(flags).await else {
                return Ok(plane);
            };
            let port_lost = plane
                .processes
                .iter()
                .any(|p| p.log().contains("address already in use"));
            if !port_lost || attempts == ATTEMPTS {
                plane.report();
                return Err(e);
            }
        }
    }

    async fn bring_up(&mut self, flags: &[&str]) -> Result<()> {
        let [etcd, peer, api, controllers, scheduler] = free_ports()?;
        self.etcd = etcd;
        users::write(self.dir.path(), api)?;
        let bind = "--bind-address=127.0.0.1";
        let dir = self.dir.path().display().to_string();
        let [scheduling, controlling] =
            [User::Scheduler, User::Controllers].map(|user| self.kubeconfig(user).display().to_string());

        self.spawn(
            "etcd",
            &[
                &format!("--data-dir={dir}/etcd"),
                &format!("--listen-client-urls=http://127.0.0.1:{etcd}"),
                &format!("--advertise-client-urls=http://127.0.0.1:{etcd}"),
                &format!("--listen-peer-urls=http://127.0.0.1:{peer}"),
                "--unsafe-no-fsync",
            ],
        )?;
        let usual = [
            format!("--etcd-servers=http://127.0.0.1:{etcd}"),
            format!("--secure-port={api}"),
            bind.to_owned(),
            // Named, or it looks for a default route; and nobody reaches it through the `kubernetes` service.
            "--advertise-address=127.0.0.1".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--cert-dir={dir}/api"),
            format!("--token-auth-file={dir}/tokens.csv"),
            "--authorization-mode=RBAC".to_owned(),
            // It would hold every pod until its namespace has a ServiceAccount, which nobody makes here.
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            "--service-account-issuer=https://wattlane.test".to_owned(),
            format!("--service-account-key-file={dir}/sa.pub"),
            format!("--service-account-signing-key-file={dir}/sa.key"),
        ];
        let all: Vec<&str> = usual.iter().map(String::as_str).chain(flags.iter().copied()).collect();
        self.spawn("kube-apiserver", &all)?;
        self.api_ready().await?;
        self.client = Some(self.connect(User::Admin).await?);

        self.spawn(
            "kube-controller-manager",
            &[
                &format!("--kubeconfig={controlling}"),
                &format!("--authentication-kubeconfig={controlling}"),
                &format!("--authorization-kubeconfig={controlling}"),
                // Each controller as its own ServiceAccount, as kubeadm and the hosted clusters have it.
                "--use-service-account-credentials=true",
                "--leader-elect=false",
                &format!("--secure-port={controllers}"),
                bind,
                &format!("--cert-dir={dir}/controllers"),
                "--controllers=resourceclaim-controller,garbage-collector-controller,namespace-controller,\
             deployment-controller,replicaset-controller,job-controller",
                // Its 20 requests a second would make claims slower than a test wants to wait.
                "--kube-api-qps=2000",
                "--kube-api-burst=4000",
                "--concurrent-resourceclaim-syncs=50",
            ],
        )?;
        let config = self.write(
            "scheduler.json",
            &json!({
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "leaderElection": {"leaderElect": false},
                "clientConnection": {"kubeconfig": scheduling, "qps": 1000, "burst": 2000},
            }),
        )?;
        self.scheduler("kube-scheduler", User::Scheduler, &config, scheduler, &[])?;
        self.healthy(&format!("https://127.0.0.1:{controllers}/healthz"))
            .await?;
        self.healthy(&format!("https://127.0.0.1:{scheduler}/readyz")).await
    }

    pub(crate) async fn api_ready(&mut self) -> Result<()> {
        until("kube-apiserver", START, async || {
            self.all_alive()?;
            let client = self.connect(User::Admin).await?;
            let request = http::Request::get("/readyz").body(vec![])?;
            client.request_text(request).await.map(drop).map_err(Into::into)
        })
        .await
    }

    /// A kube-scheduler with a configuration of its own. Wait for `/readyz` on the port with `healthy`.
    pub(crate) fn scheduler(
        &mut self,
        name: &'static str,
        user: User,
        config: &Path,
        port: u16,
        env: &[(&str, &str)],
    ) -> Result<()> {
        let kubeconfig = self.kubeconfig(user).display().to_string();
        let dir = self.dir.path().display().to_string();
        let mut command = Command::new(self.bin.join("kube-scheduler"));
        command.envs(env.iter().copied()).args([
            &format!("--config={}", config.display()),
            &format!("--authentication-kubeconfig={kubeconfig}"),
            &format!("--authorization-kubeconfig={kubeconfig}"),
            &format!("--secure-port={port}"),
            "--bind-address=127.0.0.1",
            &format!("--cert-dir={dir}/{name}"),
        ]);
        self.run(name, command)
    }

    /// A JSON document in the folder, for a program that reads YAML.
    pub(crate) fn write(&self, name: &str, document: &serde_json::Value) -> Result<PathBuf> {
        let path = self.dir.path().join(name);
        std::fs::write(&path, serde_json::to_vec_pretty(document)?)?;
        Ok(path)
    }

    fn spawn(&mut self, binary: &'static str, args: &[&str]) -> Result<()> {
        let mut command = Command::new(self.bin.join(binary));
        command.args(args);
        self.run(binary, command)
    }

    /// Starts a process that belongs to this control plane.
    pub(crate) fn run(&mut self, name: &'static str, mut command: Command) -> Result<()> {
        command.current_dir(self.dir.path());
        let process = Process::start(name, command, self.dir.path())?;
        self.processes.push(process);
        Ok(())
    }

    /// SIGKILL for one process, which must have been alive.
    pub(crate) fn kill(&mut self, name: &str) -> Result<()> {
        let process = self.process(name)?;
        ensure!(!process.killed(), "{name} is killed already");
        ensure!(
            process.ended().is_none(),
            "{name} had ended by itself\n{}",
            process.tail()
        );
        process.kill();
        Ok(())
    }

    /// SIGTERM for one process; an error unless it ends well, and soon.
    pub(crate) async fn terminate(&mut self, name: &str) -> Result<()> {
        let process = self.process(name)?;
        ensure!(!process.killed(), "{name} is killed already");
        process.signal("TERM")?;
        let status = until(&format!("the end of {name}"), SOON, async || {
            process.ended().context("it runs")
        })
        .await?;
        ensure!(status.success(), "{name} ended with {status}\n{}", process.tail());
        process.kill();
        Ok(())
    }

    /// Starts a killed process again, as it was. Does not wait for it.
    pub(crate) fn revive(&mut self, name: &str) -> Result<()> {
        let process = self.process(name)?;
        ensure!(process.killed(), "{name} is alive");
        Ok(process.revive()?)
    }

    pub(crate) fn process(&mut self, name: &str) -> Result<&mut Process> {
        let process = self.processes.iter_mut().find(|p| p.name() == name);
        process.with_context(|| format!("{name} was never started"))
    }

    /// Forgets the history of all objects, as the API server does every five minutes: a watch that asks for an older
    /// version is answered 410.
    pub(crate) async fn compact(&self) -> Result<()> {
        let etcd = kube::Client::try_from(kube::Config::new(format!("http://127.0.0.1:{}", self.etcd).parse()?))?;
        let ask = async |path: &str, body: serde_json::Value| -> Result<serde_json::Value> {
            let request = http::Request::post(path).header("content-type", "application/json");
            Ok(etcd.request(request.body(serde_json::to_vec(&body)?)?).await?)
        };
        // Any read tells the revision of now; numbers of 64 bits are strings in this protocol.
        let read = ask("/v3/kv/range", json!({"key": "AA=="})).await?;
        let revision = read["header"]["revision"].clone();
        ask("/v3/kv/compaction", json!({"revision": revision, "physical": true})).await?;
        Ok(())
    }

    /// An error when a process has ended by itself: nothing that needs it will ever come. A kube-scheduler ends when it
    /// cannot renew its lease in time, as after the death of its API server; it is started again, as a kubelet would.
    pub(crate) fn all_alive(&mut self) -> Result<()> {
        for process in &mut self.processes {
            if let Some(status) = process.ended() {
                if process.log().contains(LEASE_LOST) && self.revivals < REVIVALS {
                    self.revivals += 1;
                    process.revive()?;
                    continue;
                }
                bail!(Hopeless(format!("{} ended by itself: {status}", process.name())));
            }
        }
        Ok(())
    }

    /// Waits until a health endpoint, `https://HOST:PORT/NAME`, says yes. Its certificate is not looked at: it is on loopback, and self-signed.
    pub(crate) async fn healthy(&mut self, url: &str) -> Result<()> {
        let (server, path) = url.rsplit_once('/').context("a URL has a path")?;
        let path = format!("/{path}");
        let mut config = kube::Config::new(server.parse()?);
        config.accept_invalid_certs = true;
        let client = kube::Client::try_from(config)?;
        until(url, START, async || {
            self.all_alive()?;
            let request = http::Request::get(&path).body(vec![])?;
            client.request_text(request).await.map(drop).map_err(Into::into)
        })
        .await
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn kubeconfig(&self, user: User) -> PathBuf {
        users::kubeconfig(self.dir.path(), user)
    }

    /// As cluster administrator.
    pub(crate) fn client(&self) -> kube::Client {
        self.client.clone().expect("set before start returns")
    }

    /// A page of a program that asks the API server who may read it, such as a scheduler's `/metrics`; its certificate is not
    /// looked at.
    pub(crate) async fn page(&self, url: &str) -> Result<String> {
        let uri: http::Uri = url.parse()?;
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig(User::Admin))?;
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let path = uri.path().to_owned();
        config.cluster_url = http::Uri::builder()
            .scheme(uri.scheme_str().context("a URL has a scheme")?)
            .authority(uri.authority().context("a URL has a host")?.as_str())
            .path_and_query("/")
            .build()?;
        config.root_cert = None;
        config.accept_invalid_certs = true;
        let client = kube::Client::try_from(config)?;
        Ok(client.request_text(http::Request::get(path).body(vec![])?).await?)
    }

    /// Name and process id of all that run.
    pub(crate) fn running(&self) -> impl Iterator<Item = (&'static str, u32)> {
        self.processes
            .iter()
            .filter(|p| !p.killed())
            .map(|p| (p.name(), p.id()))
    }

    pub(crate) async fn connect(&self, user: User) -> Result<kube::Client> {
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig(user))?;
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(kube::Client::try_from(config)?)
    }

    /// Prints the ends of the logs, for the reader of a failure.
    pub(crate) fn report(&mut self) {
        // etcd has yet to be the one with something to say.
        let tails = self.processes.iter().filter(|p| p.name() != "etcd").map(Process::tail);
        eprintln!("{}", tails.collect::<String>());
        self.reported = true;
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.reported {
            self.report();
        }
        // A client before its server, or the logs would end in complaints.
        while let Some(mut process) = self.processes.pop() {
            process.kill();
        }
        // For who wants to read whole logs: a folder a control plane.
        if let Some(keep) = std::env::var_os("WATTLANE_E2E_KEEP") {
            self.dir.disable_cleanup(true);
            let to = PathBuf::from(keep).join(self.dir.path().file_name().expect("a folder has a name"));
            if let Err(e) = std::fs::rename(self.dir.path(), &to) {
                eprintln!(
                    "kept in {}, not moved to {}: {e}",
                    self.dir.path().display(),
                    to.display()
                );
            }
        }
    }
}

/// The folder with the control plane's programs.
fn binaries() -> Result<PathBuf> {
    // Under the target folder, which is somewhere above this program, whatever CARGO_TARGET_DIR and --target say.
    let program = std::env::current_exe()?;
    let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
    let complete = |dir: &PathBuf| {
        ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"]
            .iter()
            .all(|b| dir.join(b).is_file())
    };
    let above = program.ancestors().skip(1).map(|dir| dir.join("controlplane/bin"));
    above.chain(assets).find(complete).context(
        "no folder with etcd, kube-apiserver, kube-controller-manager and kube-scheduler: run tests/controlplane/build (with the \
         CARGO_TARGET_DIR of this program), or name such a folder in KUBEBUILDER_ASSETS",
    )
}
