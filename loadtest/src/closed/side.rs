//! The two sides: the same kube-scheduler, alone with the in-tree plugin, or with wattlane as its extender. Starts their
//! programs, ends them, and reads what they say of themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use serde_json::{Value, json};
use wattlane::cluster::Call;

use super::page::Page;
use super::plane::process::free_ports;
use super::plane::users::User;
use super::plane::{Plane, extender, manifests};
use crate::scrape::Inside;
use crate::server;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Side {
    /// As it comes: it looks at a part of the nodes that grows smaller with their number.
    InTree,
    /// It looks at all nodes, as wattlane does.
    InTreeAll,
    Wattlane,
    /// The binary that `--other` names.
    WattlaneOther,
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Self::InTree => "in-tree",
            Self::InTreeAll => "in-tree-all",
            Self::Wattlane => "wattlane",
            Self::WattlaneOther => "wattlane-other",
        }
    }

    /// The names of its processes: its kube-scheduler, and wattlane.
    fn processes(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::InTree => ("scheduler-in-tree", None),
            Self::InTreeAll => ("scheduler-in-tree-all", None),
            Self::Wattlane => ("scheduler-wattlane", Some("wattlane")),
            Self::WattlaneOther => ("scheduler-wattlane-other", Some("wattlane-other")),
        }
    }

    fn is_ours(self) -> bool {
        self.processes().1.is_some()
    }

    /// What its pods say.
    pub(crate) fn scheduler(self) -> &'static str {
        match self.is_ours() {
            true => "wattlane",
            false => "default-scheduler",
        }
    }

    pub(crate) fn percentage(self) -> u32 {
        match self {
            Self::InTree => 0,
            Self::InTreeAll | Self::Wattlane | Self::WattlaneOther => 100,
        }
    }

    fn user(self) -> User {
        match self.is_ours() {
            true => User::WattlaneScheduler,
            false => User::Scheduler,
        }
    }
}

pub(crate) struct Sides {
    scheduler: u16,
    listen: u16,
    admin: u16,
    /// Those that have run before.
    known: BTreeSet<Side>,
    other: Option<PathBuf>,
}

impl Sides {
    pub(crate) async fn new(plane: &Plane, other: Option<PathBuf>) -> Result<Self> {
        let [scheduler, listen, admin] = free_ports()?;
        server::certificates(&plane.dir().join("certificates")).await?;
        let policy = &manifests::manifest("policy.yaml")?[0]["data"]["policy.yaml"];
        std::fs::write(plane.dir().join("policy.yaml"), policy.as_str().unwrap_or_default())?;
        Ok(Self {
            scheduler,
            listen,
            admin,
            known: BTreeSet::new(),
            other,
        })
    }

    /// Starts the side's programs and waits until they are ready.
    pub(crate) async fn start(&mut self, plane: &mut Plane, side: Side) -> Result<()> {
        let first = self.known.insert(side);
        let (scheduler, wattlane) = side.processes();
        if let Some(name) = wattlane {
            match first {
                true => plane.run(name, self.serve(plane, side)?)?,
                false => plane.revive(name)?,
            }
            plane
                .healthy(&format!("http://127.0.0.1:{}/readyz", self.admin))
                .await?;
        }
        match first {
            true => {
                let config = plane.write(&format!("{side}.json"), &self.config(plane, side)?)?;
                let env = extender::env()?;
                let env: Vec<_> = env
                    .iter()
                    .map(|(name, value)| (name.as_str(), value.as_str()))
                    .collect();
                plane.scheduler(scheduler, side.user(), &config, self.scheduler, &env)?;
            }
            false => plane.revive(scheduler)?,
        }
        plane
            .healthy(&format!("https://127.0.0.1:{}/readyz", self.scheduler))
            .await
    }

    pub(crate) fn stop(&self, plane: &mut Plane, side: Side) -> Result<()> {
        let (scheduler, wattlane) = side.processes();
        plane.kill(scheduler)?;
        wattlane.map_or(Ok(()), |name| plane.kill(name))
    }

    /// As in the manifest, with the same limits of the client on both sides and without a lease to wait for.
    fn config(&self, plane: &Plane, side: Side) -> Result<Value> {
        let mut config = extender::config(self.listen, &plane.dir().join("certificates"))?;
        config["clientConnection"] = json!({"kubeconfig": plane.kubeconfig(side.user()), "qps": 1000, "burst": 2000});
        config["leaderElection"] = json!({"leaderElect": false});
        config["percentageOfNodesToScore"] = json!(side.percentage());
        if let (true, Some(config)) = (!side.is_ours(), config.as_object_mut()) {
            config.remove("profiles");
            config.remove("extenders");
        }
        Ok(config)
    }

    fn serve(&self, plane: &Plane, side: Side) -> Result<Command> {
        let other = self.other.clone().filter(|_| side == Side::WattlaneOther);
        let mut command = Command::new(other.map_or_else(server::binary, Ok)?);
        let pki = plane.dir().join("certificates");
        command
            .args(["serve", "--cluster", "kube", "--log-level", "warn"])
            .args(["--listen", &format!("127.0.0.1:{}", self.listen)])
            .args(["--admin-listen", &format!("127.0.0.1:{}", self.admin)])
            .arg("--policy")
            .arg(plane.dir().join("policy.yaml"))
            .args(extender::callers()?)
            .env("KUBECONFIG", plane.kubeconfig(User::Wattlane));
        for (flag, file) in [
            ("--tls-cert", "tls.crt"),
            ("--tls-key", "tls.key"),
            ("--client-ca", "ca.crt"),
        ] {
            command.arg(flag).arg(pki.join(file));
        }
        Ok(command)
    }

    /// What the side's programs have counted up to now, and the processor time of all.
    pub(crate) async fn look(&self, plane: &Plane, side: Side) -> Result<Look> {
        let page = plane
            .page(&format!("https://127.0.0.1:{}/metrics", self.scheduler))
            .await?;
        let admin = std::net::SocketAddr::from(([127, 0, 0, 1], self.admin));
        let wattlane = match side.is_ours() {
            true => Some(crate::client::plain(admin, "/metrics").await?.1),
            false => None,
        };
        Ok(Look {
            scheduler: Page::read(&page),
            wattlane,
            seconds: plane
                .running()
                .chain([("loadtest", std::process::id())])
                .map(|(name, id)| (name, processor_seconds(id)))
                .collect(),
        })
    }
}

/// Counters at one moment.
pub(crate) struct Look {
    scheduler: Page,
    wattlane: Option<String>,
    /// Of processor, by program.
    seconds: BTreeMap<&'static str, f64>,
}

impl Look {
    /// What has come since `before`.
    pub(crate) fn since(&self, before: &Self) -> Value {
        let seconds: serde_json::Map<_, _> = self
            .seconds
            .iter()
            .map(|(name, now)| {
                let then = before.seconds.get(name).copied().unwrap_or(0.0);
                ((*name).to_owned(), json!(now - then))
            })
            .collect();
        let scheduler = self.scheduler.since(&before.scheduler);
        let mut report = json!({
            "processorSeconds": seconds,
            "scheduler": {
                "cycleMs": scheduler.mean("scheduler_scheduling_algorithm_duration_seconds", "") * 1e3,
                "points": scheduler.means("scheduler_framework_extension_point_duration_seconds", "extension_point"),
                "attempts": scheduler.counts("scheduler_schedule_attempts_total", "result"),
            },
        });
        if let (Some(then), Some(now)) = (&before.wattlane, &self.wattlane) {
            let of = |name: &str, label: &str, value: &str| {
                let label = format!("{label}=\"{value}\"");
                Inside::read(now, name, &label)
                    .since(&Inside::read(then, name, &label))
                    .json()
            };
            let counters = Page::read(now).since(&Page::read(then));
            let verbs: BTreeMap<_, _> = ["filter", "prioritize", "bind"]
                .map(|v| (v, of("wattlane_request_duration_seconds", "verb", v)))
                .into();
            let calls: BTreeMap<_, _> = Call::ALL
                .map(|c| (c.as_str(), of("wattlane_api_call_duration_seconds", "call", c.as_str())))
                .into();
            report["wattlane"] = json!({
                "verbs": verbs,
                "calls": calls,
                "binds": counters.counts("wattlane_binds_total", "outcome"),
                "holds": counters.counts("wattlane_holds_ended_total", "outcome"),
                "snapshots": counters.count("wattlane_publications_total"),
            });
        }
        report
    }
}

/// User and system time of a process; 0 where it has gone.
fn processor_seconds(id: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    // The name is in brackets and may hold spaces. Then state (3), utime (14) and stime (15), in hundredths of a second.
    let rest = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<f64> = rest
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|f| f.parse().ok())
        .collect();
    fields.iter().sum::<f64>() / 100.0
}
