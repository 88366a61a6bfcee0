//! A control plane with wattlane in it, installed from manifests/base as a cluster administrator would: its RBAC, its
//! policy, its webhook and its kube-scheduler, with certificates of either kind.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use crate::manifests::{SYSTEM, apply, manifest};
use crate::objects;
use crate::plane::{Plane, extender};
use crate::process::free_ports;
use crate::replicas::{self, Replicas};
use crate::users::User;
use crate::wait::{SOON, until};

/// The namespace that has opted in, in every test.
pub(crate) const NAMESPACE: &str = "models";

pub(crate) const WATTLANE: &str = "wattlane";

pub(crate) struct Cluster {
    plane: Plane,
    client: kube::Client,
    listen: u16,
    admin: u16,
    /// Where kube-scheduler finds the extender: wattlane itself, or what leads to the replica that leads.
    extender: u16,
    replicas: Option<Replicas>,
    certificates: Certificates,
}

/// Where wattlane's certificates are.
#[derive(Clone, Copy, PartialEq)]
enum Certificates {
    /// Files that `wattlane certs` makes.
    Files,
    /// The Secrets of the manifest, with these --tls-lifetimes.
    Kept(&'static str),
}

/// Runs a test in a cluster of its own. Logs are printed when it fails; nothing is left running either way.
pub(crate) async fn run(test: impl AsyncFnOnce(&mut Cluster) -> Result<()>) {
    Box::pin(run_with(&[], test)).await;
}

/// With certificates that wattlane keeps itself, of short lives.
pub(crate) async fn run_kept(lifetimes: &'static str, test: impl AsyncFnOnce(&mut Cluster) -> Result<()>) {
    Box::pin(run_in(&[], Certificates::Kept(lifetimes), false, test)).await;
}

/// With more flags for kube-apiserver.
pub(crate) async fn run_with(flags: &[&str], test: impl AsyncFnOnce(&mut Cluster) -> Result<()>) {
    Box::pin(run_in(flags, Certificates::Files, false, test)).await;
}

/// With two replicas, `replicas::A` and `B`, of which one leads; admission is B's.
pub(crate) async fn run_replicas(test: impl AsyncFnOnce(&mut Cluster) -> Result<()>) {
    Box::pin(run_in(&[], Certificates::Files, true, test)).await;
}

async fn run_in(
    flags: &[&str],
    certificates: Certificates,
    replicated: bool,
    test: impl AsyncFnOnce(&mut Cluster) -> Result<()>,
) {
    let mut cluster = Box::pin(Cluster::start(flags, certificates, replicated))
        .await
        .unwrap_or_else(|e| panic!("no cluster: {e:#}"));
    let outcome = test(&mut cluster).await.and_then(|()| cluster.plane.all_alive());
    if let Err(e) = outcome {
        cluster.plane.report();
        panic!("{e:#}");
    }
}

impl Cluster {
    async fn start(flags: &[&str], certificates: Certificates, replicated: bool) -> Result<Self> {
        let plane = Plane::start_with(flags).await?;
        let [listen, admin, scheduler] = free_ports()?;
        let replicas = match replicated {
            true => Some(Replicas::start(plane.client(), listen, admin).await?),
            false => None,
        };
        let mut cluster = Self {
            client: plane.client(),
            plane,
            listen,
            admin,
            extender: replicas.as_ref().map_or(listen, |r| r.port),
            replicas,
            certificates,
        };
        match cluster.install(scheduler).await {
            Ok(()) => Ok(cluster),
            Err(e) => {
                cluster.plane.report();
                Err(e)
            }
        }
    }

    async fn install(&mut self, scheduler_port: u16) -> Result<()> {
        if self.certificates == Certificates::Files {
            self.make_certificates(&["--dns", "localhost,127.0.0.1"])?;
        }
        for file in ["namespace.yaml", "rbac.yaml", "certs.yaml", "scheduler.yaml"] {
            for object in manifest(file)? {
                // Deployments would become pods that nothing here can run.
                if object["kind"] != "Deployment" {
                    self.apply(&object, SYSTEM).await?;
                }
            }
        }
        self.apply(&objects::namespace(NAMESPACE, true), "").await?;
        self.apply(&objects::device_class(), "").await?;
        let policy = &manifest("policy.yaml")?[0]["data"]["policy.yaml"];
        std::fs::write(self.policy(), policy.as_str().context("policy.yaml holds no policy")?)?;
        match self.replicas.is_some() {
            true => {
                for name in [replicas::A, replicas::B] {
                    self.apply(&replicas::pod(name), SYSTEM).await?;
                    self.start_replica(name).await?;
                }
            }
            false => self.start_wattlane().await?,
        }
        self.register_webhook().await?;
        if self.certificates != Certificates::Files {
            self.make_certificates(&["--from-secret", "wattlane-system/wattlane-certs"])?;
        }
        self.start_scheduler(scheduler_port).await
    }

    fn make_certificates(&self, of: &[&str]) -> Result<()> {
        let made = Command::new(env!("CARGO_BIN_EXE_wattlane"))
            .arg("certs")
            .args(of)
            .arg("--out")
            .arg(self.certificates())
            .env("KUBECONFIG", self.plane.kubeconfig(User::Admin))
            .output()?;
        ensure!(
            made.status.success(),
            "wattlane certs: {}",
            String::from_utf8_lossy(&made.stderr)
        );
        Ok(())
    }

    /// Starts `wattlane serve` and waits until it is ready.
    async fn start_wattlane(&mut self) -> Result<()> {
        self.serve(WATTLANE, self.listen, self.admin, &[]).await
    }

    /// Starts a replica as its pod would.
    async fn start_replica(&mut self, name: &'static str) -> Result<()> {
        let replicas = self.replicas.as_ref().context("a cluster with replicas")?;
        let (listen, admin) = replicas.ports(name);
        self.serve(name, listen, admin, &[("POD_NAMESPACE", SYSTEM), ("POD_NAME", name)])
            .await
    }

    async fn serve(&mut self, name: &'static str, listen: u16, admin: u16, env: &[(&str, &str)]) -> Result<()> {
        let certificates = self.certificates();
        let mut command = Command::new(env!("CARGO_BIN_EXE_wattlane"));
        command
            .args(["serve", "--cluster", "kube"])
            // Every second: a finding that may pass is believed in the second look.
            .args(["--audit-every", "1"])
            .args(["--listen", &format!("127.0.0.1:{listen}")])
            .args(["--admin-listen", &format!("127.0.0.1:{admin}")])
            .arg("--policy")
            .arg(self.policy())
            .envs(env.iter().copied())
            .env("KUBECONFIG", self.plane.kubeconfig(User::Wattlane));
        match self.certificates {
            Certificates::Files => command
                .arg("--tls-cert")
                .arg(certificates.join("tls.crt"))
                .arg("--tls-key")
                .arg(certificates.join("tls.key"))
                .arg("--client-ca")
                .arg(certificates.join("ca.crt"))
                .args(extender::callers()?),
            Certificates::Kept(lifetimes) => command
                .args(["--tls-secret", "wattlane-system/wattlane-certs"])
                .args(["--tls-client-secret", "wattlane-system/wattlane-scheduler-client"])
                .args(["--tls-name", "127.0.0.1,wattlane.wattlane-system.svc"])
                .args(["--tls-lifetimes", lifetimes]),
        };
        self.plane.run(name, command)?;
        self.plane.healthy(&format!("http://127.0.0.1:{admin}/readyz")).await
    }

    pub(crate) async fn wattlane_ready(&mut self) -> Result<()> {
        let ready = format!("http://127.0.0.1:{}/readyz", self.admin);
        self.plane.healthy(&ready).await
    }

    /// As the kubelet ends a container; waits for its end.
    pub(crate) async fn terminate(&mut self, name: &str) -> Result<()> {
        self.plane.terminate(name).await
    }

    /// Stops a process as it stands: it answers nothing, and keeps its connections. It counts as alive.
    pub(crate) fn freeze(&mut self, name: &str) -> Result<()> {
        self.plane.process(name)?.signal("STOP").context("SIGSTOP")
    }

    pub(crate) fn thaw(&mut self, name: &str) -> Result<()> {
        self.plane.process(name)?.signal("CONT").context("SIGCONT")
    }

    /// What a process has written so far.
    pub(crate) fn log(&mut self, name: &str) -> Result<String> {
        Ok(self.plane.process(name)?.log())
    }

    /// A replica that was killed, again; returns when it is ready.
    pub(crate) async fn revive_replica(&mut self, name: &str) -> Result<()> {
        self.plane.revive(name)?;
        let replicas = self.replicas.as_ref().context("a cluster with replicas")?;
        let (_, admin) = replicas.ports(name);
        self.plane.healthy(&format!("http://127.0.0.1:{admin}/readyz")).await
    }

    /// Another policy than the manifests'; wattlane starts anew with it.
    pub(crate) async fn use_policy(&mut self, policy: &str) -> Result<()> {
        self.kill(WATTLANE)?;
        std::fs::write(self.policy(), policy)?;
        self.revive(WATTLANE).await
    }

    /// SIGKILL for wattlane or a part of the control plane, in the middle of whatever it does.
    pub(crate) fn kill(&mut self, name: &str) -> Result<()> {
        self.plane.kill(name)
    }

    /// Starts what was killed, and waits until API server and wattlane are ready again.
    pub(crate) async fn revive(&mut self, name: &str) -> Result<()> {
        self.revive_part(name).await?;
        self.wattlane_ready().await
    }

    /// Starts what was killed of the control plane, and waits for the API server alone.
    pub(crate) async fn revive_part(&mut self, name: &str) -> Result<()> {
        self.plane.revive(name)?;
        self.plane.api_ready().await
    }

    /// See `Plane::all_alive`.
    pub(crate) fn all_alive(&mut self) -> Result<()> {
        self.plane.all_alive()
    }

    /// Forgets the history of all objects.
    pub(crate) async fn compact(&self) -> Result<()> {
        self.plane.compact().await
    }

    /// The configuration of the manifest, at an address that exists here.
    async fn register_webhook(&mut self) -> Result<()> {
        self.apply_webhook("Ignore").await?;
        // The API server learns of it by a watch of its own.
        let pods: Api<Pod> = Api::namespaced(self.client(), NAMESPACE);
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        until("the webhook to be asked", SOON, async || {
            self.plane.all_alive()?;
            let pod = pods
                .create(&dry_run, &objects::gpu_pod("is-the-webhook-there", 1)?)
                .await?;
            let scheduler = pod.spec.and_then(|s| s.scheduler_name);
            ensure!(
                scheduler.as_deref() == Some("wattlane"),
                "a pod's schedulerName is {scheduler:?}"
            );
            Ok(())
        })
        .await
    }

    pub(crate) async fn apply_webhook(&self, failure_policy: &str) -> Result<()> {
        let bundle = match self.certificates {
            Certificates::Files => {
                let ca = std::fs::read(self.certificates().join("ca.crt"))?;
                Some(base64::engine::general_purpose::STANDARD.encode(ca))
            }
            Certificates::Kept(_) => None,
        };
        for mut object in manifest("webhook.yaml")? {
            for webhook in object["webhooks"]
                .as_array_mut()
                .context("no webhooks in webhook.yaml")?
            {
                // What wattlane keeps has no path in the manifest; with files the component of that name puts it in.
                ensure!(
                    webhook["clientConfig"]["service"]["path"].is_null(),
                    "a path in webhook.yaml"
                );
                let path = match self.certificates {
                    Certificates::Files => wattlane::server::ADMISSION,
                    Certificates::Kept(_) => "",
                };
                let url = format!("https://127.0.0.1:{}{path}", self.listen);
                webhook["clientConfig"] = json!({"url": url});
                if let Some(bundle) = &bundle {
                    webhook["clientConfig"]["caBundle"] = json!(bundle);
                }
                webhook["failurePolicy"] = json!(failure_policy);
            }
            self.apply(&object, "").await?;
        }
        Ok(())
    }

    /// The second kube-scheduler with the configuration of the manifest; only addresses and paths are put in.
    async fn start_scheduler(&mut self, port: u16) -> Result<()> {
        let mut config = extender::config(self.extender, &self.certificates())?;
        config["clientConnection"] = json!({"kubeconfig": self.plane.kubeconfig(User::WattlaneScheduler)});
        let path = self.plane.write("wattlane-scheduler.json", &config)?;
        let env = extender::env()?;
        let env: Vec<_> = env
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        self.plane
            .scheduler("wattlane-scheduler", User::WattlaneScheduler, &path, port, &env)?;
        self.plane.healthy(&format!("https://127.0.0.1:{port}/readyz")).await
    }

    /// Server-side apply of any object.
    pub(crate) async fn apply(&self, object: &Value, namespace: &str) -> Result<()> {
        apply(&self.client, object, namespace).await
    }

    /// As cluster administrator.
    pub(crate) fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Of the ServiceAccount wattlane, which has nothing but its role.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.plane.kubeconfig(User::Wattlane)
    }

    pub(crate) fn plane(&self) -> &Plane {
        &self.plane
    }

    /// That of a replica.
    pub(crate) fn replica(&self, name: &str) -> Result<u16> {
        let replicas = self.replicas.as_ref().context("a cluster with replicas")?;
        Ok(replicas.ports(name).0)
    }

    /// The port of extender and admission.
    pub(crate) fn port(&self) -> u16 {
        self.listen
    }

    pub(crate) fn certificates(&self) -> PathBuf {
        self.plane.dir().join("certificates")
    }

    fn policy(&self) -> PathBuf {
        self.plane.dir().join("policy.yaml")
    }
}
