//! The audit of the service: every minute the same look as `wattlane audit`, into a metric, the log, and events on what was
//! found. Also takes the gate of manifests/gated off pods that need nothing of wattlane's admission.

use std::time::Duration;

use super::Core;
use crate::audit::{self, Finding, Rounds, SubjectKind};
use crate::cluster::Event;
use crate::index::Kind;
use crate::metrics::Unready;
use crate::model::{Name, NamespacedName};

/// Events of one round; the rest has its turn in the next ones.
const EVENTS: usize = 20;
/// Gates taken off in one round.
const GATES: usize = 200;

/// One look at the cluster.
struct Look {
    findings: Vec<Finding>,
    /// Pods that wait behind our gate for nothing.
    gated: Vec<(NamespacedName, Name)>,
}

impl Core {
    /// Looks again and again until the service stops. `leads`: whether this replica is the one that does.
    pub fn spawn_audit(&self, every: Duration, leads: impl Fn() -> bool + Send + Sync + 'static) {
        let core = self.clone();
        self.supervise("audit", async move { run(&core, every, leads).await });
    }
}

/// Until it is dropped.
async fn run(core: &Core, every: Duration, leads: impl Fn() -> bool) {
    let mut rounds = Rounds::default();
    loop {
        tokio::time::sleep(every).await;
        if !leads() {
            rounds = Rounds::default();
            core.metrics.audited(&[]);
            continue;
        }
        // What one kind says about another, both must be fresh for.
        let blind = |m: &Unready| matches!(m, Unready::NotListed(_) | Unready::Stale(..));
        if !core.readiness.missing().iter().any(blind) {
            round(core, &mut rounds).await;
        }
    }
}

async fn round(core: &Core, rounds: &mut Rounds) {
    let Some(look) = look(core).await else { return };
    for (pod, uid) in look.gated.iter().take(GATES) {
        match core.cluster.lift_gate(pod, uid).await {
            Ok(()) => tracing::info!(%pod, "scheduling gate taken off: it needs nothing of admission"),
            Err(error) => tracing::warn!(%pod, %error, "scheduling gate not taken off"),
        }
    }
    let standing = rounds.next(look.findings);
    core.metrics.audited(&standing);
    let untold: Vec<&Finding> = standing.iter().filter(|f| !rounds.is_told(f)).collect();
    for finding in untold.into_iter().take(EVENTS) {
        tracing::warn!(
            kind = finding.kind.as_str(),
            object = finding.object,
            "{}",
            finding.message
        );
        let Some(event) = event(finding) else {
            rounds.told(finding);
            continue;
        };
        match core.cluster.event(&event).await {
            Ok(()) => rounds.told(finding),
            // Tried again in the next round.
            Err(error) => tracing::warn!(object = finding.object, %error, "event not written"),
        }
    }
}

/// On a thread for long work: it reads every pod and claim.
async fn look(core: &Core) -> Option<Look> {
    let (snapshot, policy) = (core.reader.load(), core.policy.load_full());
    let looked = tokio::task::spawn_blocking(move || {
        let gated = snapshot
            .pods
            .iter()
            .filter(|(_, pod)| audit::liftable(&snapshot, &policy, pod));
        Look {
            gated: gated.map(|(key, pod)| (key.clone(), pod.uid.clone())).collect(),
            findings: audit::audit(&snapshot, &policy),
        }
    });
    looked
        .await
        .inspect_err(|error| tracing::error!(%error, "the audit failed"))
        .ok()
}

fn event(finding: &Finding) -> Option<Event> {
    let subject = finding.subject.as_ref()?;
    Some(Event {
        kind: match subject.kind {
            SubjectKind::Pod => Kind::Pod,
            SubjectKind::Claim => Kind::Claim,
        },
        key: subject.key.clone(),
        uid: subject.uid.clone(),
        reason: finding.kind.reason(),
        note: match finding.object == subject.to_string() {
            true => finding.message.clone(),
            false => format!("{} {}", finding.object, finding.message),
        },
    })
}
