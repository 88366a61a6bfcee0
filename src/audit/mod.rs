//! What is wrong in the cluster now: a snapshot and a policy in, findings out. Pure, so that `wattlane audit` and the loop
//! of the service cannot differ. Changes nothing.
//!
//! A snapshot is put together from several watches, and the controllers of the cluster take a moment for what they do:
//! `Kind::passes` says which findings may only be that, and `Rounds` waits for a second look before it believes them.

mod claims;
mod devices;
mod pods;
mod power;
mod rounds;

pub use pods::{liftable, untreated};
pub use rounds::Rounds;

use crate::model::{Claim, Name, NamespacedName, Pod};
use crate::policy::Policy;
use crate::snapshot::Snapshot;

/// Closed set: label of a metric, `kind` of the JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// One device in two allocations, of which at least one takes it whole.
    DeviceGivenTwice,
    /// Shares of a device add up to more than it has.
    CapacityOverdrawn,
    /// More pods have a shared claim than it has slots.
    SlotsOverdrawn,
    /// Partitions of a card take more of its counters than there is.
    CountersOverdrawn,
    /// Devices of several modes are in use on a node that has one for all.
    ModesMixed,
    /// An allocation names a device that its driver does not publish any more.
    DeviceVanished,
    /// A device plugin gave a pod its GPUs where a DRA driver publishes the same cards.
    UnknownHolder,
    /// A pod is on a node without the devices of its claims.
    PodWithoutDevices,
    /// A pod is on another node than its devices.
    PodOnOtherNode,
    /// Devices are allocated, and no pod uses them.
    AllocationWithoutPod,
    /// An allocation as no allocator may make it: on several nodes, or with fewer devices than were asked for.
    AllocationOdd,
    /// A claim in use that could be deleted under its pods.
    ClaimUnprotected,
    /// A waiting pod of an opted-in namespace that never passed admission.
    PodUntreated,
    /// A pod of an opted-in namespace that another scheduler put on a node.
    OtherScheduler,
    /// More watts are in use in a power domain than its budget.
    BudgetExceeded,
}

impl Kind {
    pub const ALL: [Self; 15] = [
        Self::DeviceGivenTwice,
        Self::CapacityOverdrawn,
        Self::SlotsOverdrawn,
        Self::CountersOverdrawn,
        Self::ModesMixed,
        Self::DeviceVanished,
        Self::UnknownHolder,
        Self::PodWithoutDevices,
        Self::PodOnOtherNode,
        Self::AllocationWithoutPod,
        Self::AllocationOdd,
        Self::ClaimUnprotected,
        Self::PodUntreated,
        Self::OtherScheduler,
        Self::BudgetExceeded,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::DeviceGivenTwice => "device-given-twice",
            Self::CapacityOverdrawn => "capacity-overdrawn",
            Self::SlotsOverdrawn => "slots-overdrawn",
            Self::CountersOverdrawn => "counters-overdrawn",
            Self::ModesMixed => "modes-mixed",
            Self::DeviceVanished => "device-vanished",
            Self::UnknownHolder => "unknown-holder",
            Self::PodWithoutDevices => "pod-without-devices",
            Self::PodOnOtherNode => "pod-on-other-node",
            Self::AllocationWithoutPod => "allocation-without-pod",
            Self::AllocationOdd => "allocation-odd",
            Self::ClaimUnprotected => "claim-unprotected",
            Self::PodUntreated => "pod-untreated",
            Self::OtherScheduler => "other-scheduler",
            Self::BudgetExceeded => "budget-exceeded",
        }
    }

    /// Reason of the Kubernetes event.
    pub fn reason(self) -> &'static str {
        match self {
            Self::DeviceGivenTwice => "DeviceGivenTwice",
            Self::CapacityOverdrawn => "CapacityOverdrawn",
            Self::SlotsOverdrawn => "SlotsOverdrawn",
            Self::CountersOverdrawn => "CountersOverdrawn",
            Self::ModesMixed => "ModesMixed",
            Self::DeviceVanished => "DeviceVanished",
            Self::UnknownHolder => "UnknownHolder",
            Self::PodWithoutDevices => "PodWithoutDevices",
            Self::PodOnOtherNode => "PodOnOtherNode",
            Self::AllocationWithoutPod => "AllocationWithoutPod",
            Self::AllocationOdd => "AllocationOdd",
            Self::ClaimUnprotected => "ClaimUnprotected",
            Self::PodUntreated => "PodUntreated",
            Self::OtherScheduler => "OtherScheduler",
            Self::BudgetExceeded => "BudgetExceeded",
        }
    }

    /// Whether it may be a moment between two watches, or before a controller has done its part. Claims come by one
    /// watch, in order: that a device is in two of them is never such a moment.
    pub fn passes(self) -> bool {
        self != Self::DeviceGivenTwice
    }
}

/// A namespaced object of the API, for an event on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub kind: SubjectKind,
    pub key: NamespacedName,
    pub uid: Name,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubjectKind {
    Pod,
    Claim,
}

impl Subject {
    fn pod(pod: &Pod) -> Self {
        Self {
            kind: SubjectKind::Pod,
            key: pod.key.clone(),
            uid: pod.uid.clone(),
        }
    }

    fn claim(claim: &Claim) -> Self {
        Self {
            kind: SubjectKind::Claim,
            key: claim.key.clone(),
            uid: claim.uid.clone(),
        }
    }
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            SubjectKind::Pod => "Pod",
            SubjectKind::Claim => "ResourceClaim",
        };
        write!(f, "{kind} {}", self.key)
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub kind: Kind,
    /// What it is about, like `Pod team/llm-0` or `Device gpu.nvidia.com/node-1/gpu-0`. With the kind: its identity.
    pub object: String,
    /// What, where, and what to do.
    pub message: String,
    /// Where an event about it belongs. None: the object is not one of the API.
    pub subject: Option<Subject>,
}

impl Finding {
    fn on(kind: Kind, subject: Subject, message: String) -> Self {
        Self {
            kind,
            object: subject.to_string(),
            message,
            subject: Some(subject),
        }
    }
}

/// Everything that is wrong, by kind and object.
pub fn audit(snapshot: &Snapshot, policy: &Policy) -> Vec<Finding> {
    let mut findings = vec![];
    devices::look(snapshot, &mut findings);
    claims::look(snapshot, &mut findings);
    pods::look(snapshot, policy, &mut findings);
    power::look(snapshot, &mut findings);
    findings.sort_by(|a, b| (a.kind, &a.object).cmp(&(b.kind, &b.object)));
    findings
}

/// `a, b and 3 more`
fn listed(names: impl IntoIterator<Item = impl std::fmt::Display>) -> String {
    const SHOWN: usize = 4;
    let names: Vec<String> = names.into_iter().map(|n| n.to_string()).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names[..SHOWN].join(", ")),
    }
}
