//! The flags of `serve` about several replicas.

use std::hash::{BuildHasher, Hasher, RandomState};

use anyhow::Context as _;

use crate::leader::{Settings, Timing};
use crate::model::NamespacedName;

#[derive(Debug, clap::Args)]
pub(super) struct Election {
    /// Bind only while holding a Lease, so that several replicas can run. Default: yes where there is a Kubernetes
    /// cluster and the Lease's namespace is known.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    leader_elect: Option<bool>,
    /// Namespace of the Lease.
    #[arg(long, env = "POD_NAMESPACE")]
    lease_namespace: Option<String>,
    /// Name of the Lease.
    #[arg(long, default_value = "wattlane")]
    lease_name: String,
    /// This replica's pod, in the Lease's namespace: it carries the label wattlane.dev/leader while it leads.
    #[arg(long, env = "POD_NAME")]
    pod_name: Option<String>,
}

impl Election {
    /// None: no election, this is the one replica. `kubernetes`: the cluster is one, not files.
    ///
    /// # Errors
    /// An election is wanted where there can be none.
    pub(super) fn settings(&self, kubernetes: bool) -> anyhow::Result<Option<Settings>> {
        let namespace = self.lease_namespace.as_deref().filter(|n| !n.is_empty());
        let wanted = self.leader_elect.unwrap_or(kubernetes && namespace.is_some());
        if !wanted {
            if kubernetes {
                tracing::warn!(
                    "no leader election: a second replica could give a device twice; set POD_NAMESPACE or --lease-namespace"
                );
            }
            return Ok(None);
        }
        anyhow::ensure!(kubernetes, "--leader-elect: files have no Lease; leave it out");
        let namespace = namespace.context("--leader-elect needs --lease-namespace (or POD_NAMESPACE)")?;
        let pod = self.pod_name.as_deref().filter(|n| !n.is_empty());
        // A restarted process must not take its predecessor's record for its own. Randomly keyed: as random as needed.
        let random = RandomState::new().build_hasher().finish();
        Ok(Some(Settings {
            lease: NamespacedName::new(namespace, self.lease_name.as_str()),
            identity: format!("{}_{random:016x}", pod.unwrap_or("wattlane")).into(),
            pod: pod.map(|name| NamespacedName::new(namespace, name)),
            timing: Timing::default(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        election: Election,
    }

    fn settings(args: &[&str], kubernetes: bool) -> anyhow::Result<Option<Settings>> {
        let args = std::iter::once("wattlane").chain(args.iter().copied());
        Line::try_parse_from(args)?.election.settings(kubernetes)
    }

    #[test]
    fn it_is_held_where_it_can_be_unless_told_otherwise() {
        let ns = "--lease-namespace=system";
        let on = settings(&[ns, "--pod-name=w-1"], true).expect("fine").expect("on");
        assert_eq!(on.lease.to_string(), "system/wattlane");
        assert!(on.identity.starts_with("w-1_"));
        assert_eq!(on.pod.map(|p| p.to_string()).as_deref(), Some("system/w-1"));
        let off = |args: &[&str], kubernetes| settings(args, kubernetes).expect("fine").is_none();
        assert!(off(&[ns], false));
        assert!(off(&[], true));
        assert!(off(&[ns, "--leader-elect=false"], true));
        assert!(settings(&["--leader-elect"], true).is_err(), "no namespace");
        assert!(settings(&[ns, "--leader-elect"], false).is_err(), "files");
        let other = settings(&[ns, "--pod-name=w-1"], true).expect("fine").expect("on");
        assert_ne!(on.identity, other.identity, "each process its own");
    }
}
