//! Why a pod was left alone: a closed set, the label of a metric.

use super::pod::Pod;
use super::{WEBHOOK, decide::Request};
use crate::model::{DEFAULT_SCHEDULER, MIRROR};
use crate::policy::Policy;
use crate::snapshot::Snapshot;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Skip {
    /// Not the creation of a pod.
    NotCreate,
    /// The namespace is not in our cache: we cannot know whether it opted in.
    UnknownNamespace,
    NotOptedIn,
    /// The pod's own label or annotation.
    OptedOut,
    /// It has a nodeName: no scheduler will see it.
    Assigned,
    /// A static pod's image in the API.
    Mirror,
    /// DaemonSet pods go to a node each, whatever devices it has.
    DaemonSet,
    /// It names a scheduler that is neither the default nor ours.
    OtherScheduler,
    /// No devices asked for.
    NothingAsked,
    /// Devices asked for, but no DeviceClass to claim them from: a cluster without DRA for them.
    NoDeviceClass,
    /// Nothing left to do: wattlane was here before.
    AlreadyTreated,
}

impl Skip {
    pub const ALL: [Self; 11] = [
        Self::NotCreate,
        Self::UnknownNamespace,
        Self::NotOptedIn,
        Self::OptedOut,
        Self::Assigned,
        Self::Mirror,
        Self::DaemonSet,
        Self::OtherScheduler,
        Self::NothingAsked,
        Self::NoDeviceClass,
        Self::AlreadyTreated,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotCreate => "not_create",
            Self::UnknownNamespace => "unknown_namespace",
            Self::NotOptedIn => "not_opted_in",
            Self::OptedOut => "opted_out",
            Self::Assigned => "assigned",
            Self::Mirror => "mirror",
            Self::DaemonSet => "daemon_set",
            Self::OtherScheduler => "other_scheduler",
            Self::NothingAsked => "nothing_asked",
            Self::NoDeviceClass => "no_device_class",
            Self::AlreadyTreated => "already_treated",
        }
    }
}

/// Pods that are not ours to touch, whatever they ask for.
pub(super) fn before_reading(
    snapshot: &Snapshot,
    policy: &Policy,
    request: &Request<'_>,
    pod: Pod<'_>,
) -> Option<Skip> {
    if request.operation != "CREATE" {
        return Some(Skip::NotCreate);
    }
    let Some(namespace) = snapshot.namespaces.get(request.namespace) else {
        return Some(Skip::UnknownNamespace);
    };
    if !namespace.enabled() {
        return Some(Skip::NotOptedIn);
    }
    if pod.label(WEBHOOK) == Some("ignore") || pod.annotation(WEBHOOK) == Some("ignore") {
        return Some(Skip::OptedOut);
    }
    if pod.annotation(MIRROR).is_some() {
        return Some(Skip::Mirror);
    }
    if pod.spec_text("nodeName").is_some() {
        return Some(Skip::Assigned);
    }
    if pod.owned_by_daemon_set() {
        return Some(Skip::DaemonSet);
    }
    let scheduler = pod.spec_text("schedulerName").unwrap_or(DEFAULT_SCHEDULER);
    (scheduler != DEFAULT_SCHEDULER && !policy.schedules(scheduler)).then_some(Skip::OtherScheduler)
}
