//! The closed sets that stand in metric labels. A name of a pod or a text of an error never does.

/// What was done about the certificates of the Secret.
pub(super) const ROTATIONS: [&str; 9] = [
    "look", "begin", "announce", "switch", "sign", "path", "tidy", "bundle", "client",
];
/// `healed`: something was missing, unusable or reset. `conflict`: another replica was first.
pub(super) const ROTATED: [&str; 4] = ["done", "healed", "conflict", "error"];

/// What a request is about. Closed set: metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Filter,
    Prioritize,
    Bind,
    Preempt,
    Mutate,
    /// No route of ours.
    Other,
}

impl Verb {
    pub const ALL: [Self; 6] = [
        Self::Filter,
        Self::Prioritize,
        Self::Bind,
        Self::Preempt,
        Self::Mutate,
        Self::Other,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Prioritize => "prioritize",
            Self::Bind => "bind",
            Self::Preempt => "preempt",
            Self::Mutate => "mutate",
            Self::Other => "other",
        }
    }
}

/// What became of a policy in the file. Closed set: metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyLoad {
    Taken,
    /// It is wrong: the one before stays.
    Refused,
    Unreadable,
}

impl PolicyLoad {
    pub const ALL: [Self; 3] = [Self::Taken, Self::Refused, Self::Unreadable];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Taken => "taken",
            Self::Refused => "refused",
            Self::Unreadable => "unreadable",
        }
    }
}

/// How a request ended. Closed set: metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Ok,
    /// Filter left no node, bind or admission said no: an answer, but not the one hoped for.
    Refused,
    BadRequest,
    Forbidden,
    NotFound,
    TooLarge,
    /// The body did not arrive in time.
    Timeout,
    /// A bind that another replica would have taken.
    NotLeader,
    /// Turned away because too much is going on.
    Shed,
    /// The cluster has not been read yet.
    NotReady,
    NotBuilt,
    Error,
    Panic,
    /// The caller went away before the answer.
    Gone,
}

impl Outcome {
    pub const ALL: [Self; 14] = [
        Self::Ok,
        Self::Refused,
        Self::BadRequest,
        Self::Forbidden,
        Self::NotFound,
        Self::TooLarge,
        Self::Timeout,
        Self::NotLeader,
        Self::Shed,
        Self::NotReady,
        Self::NotBuilt,
        Self::Error,
        Self::Panic,
        Self::Gone,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused => "refused",
            Self::BadRequest => "bad_request",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::TooLarge => "too_large",
            Self::Timeout => "timeout",
            Self::NotLeader => "not_leader",
            Self::Shed => "shed",
            Self::NotReady => "not_ready",
            Self::NotBuilt => "not_built",
            Self::Error => "error",
            Self::Panic => "panic",
            Self::Gone => "gone",
        }
    }
}

/// What admission did with a review. Closed set: metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
    Patched,
    /// A pod, left as it is.
    Unchanged,
    Denied,
    /// Not the creation of a pod.
    Skipped,
}

impl Admitted {
    pub const ALL: [Self; 4] = [Self::Patched, Self::Unchanged, Self::Denied, Self::Skipped];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Patched => "patched",
            Self::Unchanged => "unchanged",
            Self::Denied => "denied",
            Self::Skipped => "skipped",
        }
    }
}

/// How a bind ended. Closed set: metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Claims allocated and pod bound.
    Bound,
    /// It was bound there already.
    Already,
    /// Bound; there was no claim to allocate.
    WithoutClaims,
    /// Placement said no at the last moment, or the devices failed.
    Refused,
    /// Claims allocated; their devices are not ready yet.
    Awaited,
    /// This replica does not bind, or no longer.
    NotLeader,
    /// Somebody else changed an object, or took a device.
    Conflict,
    /// The API failed.
    Error,
}

impl Bound {
    pub const ALL: [Self; 8] = [
        Self::Bound,
        Self::Already,
        Self::WithoutClaims,
        Self::Refused,
        Self::Awaited,
        Self::NotLeader,
        Self::Conflict,
        Self::Error,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bound => "bound",
            Self::Already => "already",
            Self::WithoutClaims => "without_claims",
            Self::Refused => "refused",
            Self::Awaited => "awaited",
            Self::NotLeader => "not_leader",
            Self::Conflict => "conflict",
            Self::Error => "error",
        }
    }
}

/// What became of devices that pin a pod to a node where it was not bound. Closed set: metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenBack {
    /// They are free again.
    Done,
    /// There was nothing to give back when the API was asked: the pod is bound or gone, or others use its claims.
    Kept,
    /// Too many at one time: the pod's next refusal asks again.
    Shed,
    /// The API failed.
    Error,
}

impl GivenBack {
    pub const ALL: [Self; 4] = [Self::Done, Self::Kept, Self::Shed, Self::Error];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Kept => "kept",
            Self::Shed => "shed",
            Self::Error => "error",
        }
    }
}

/// Where a connection comes in. Closed set: metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// Extender and admission.
    Tls,
    Admin,
}

impl Port {
    pub const ALL: [Self; 2] = [Self::Tls, Self::Admin];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tls => "tls",
            Self::Admin => "admin",
        }
    }
}
