//! Refusals in words: how many devices were left at each step, and which step left too few. No node names, so that
//! equal situations on many nodes share one text.

use std::sync::{Mutex, PoisonError};

use super::demand::{Alternative, Meant};
use super::wish::Wishes;
use crate::model::{Effect, Name, Reason, Refusal, Taint};
use crate::snapshot::{PoolHealth, Wiring};
use crate::topology::{Fabric, MOST_CARDS};

/// Devices left after each step, in the order of the steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stages {
    /// Match class and selectors.
    pub(super) matched: u32,
    /// ... and the pod's device annotations.
    pub(super) wished: u32,
    /// ... and are not taken.
    pub(super) free: u32,
    /// ... and are of the mode that the node has.
    pub(super) agreed: u32,
    /// ... and have no taint in the way.
    pub(super) tolerated: u32,
    /// ... and have counters and capacity left.
    pub(super) roomy: u32,
}

/// What one request (alternative) found on one node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shortage<'a> {
    pub(super) alternative: &'a Alternative,
    pub(super) asked: u32,
    /// Mode All: `asked` is all there are.
    pub(super) all: bool,
    pub(super) stages: Stages,
    /// A taint that kept a free device away, with the device.
    pub(super) taint: Option<(&'a Name, &'a Taint)>,
    /// A mode of the node that kept a free device away: attribute, and what is in use.
    pub(super) mode: Option<(&'static str, &'a Name)>,
    /// Driver and health of a pool that yields nothing.
    pub(super) unhealthy: Option<(&'a Name, &'a PoolHealth)>,
    /// Usable devices by wattage class, None for those without; each class once.
    pub(super) by_class: &'a [(Option<&'a Name>, u32)],
    pub(super) wishes: &'a Wishes,
    pub(super) mix: bool,
}

impl Shortage<'_> {
    /// None: this request alone would find enough.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        let s = self.stages;
        let n = self.asked;
        let class = &self.alternative.class.name;
        let asked = if self.all {
            format!("all {n} asked")
        } else {
            format!("{n} asked")
        };
        let (reason, words) = if s.matched < n || (self.all && n == 0) {
            match self.unhealthy {
                Some((driver, health)) => (unhealthy_reason(health), unhealthy(driver, health)),
                None if s.matched == 0 && self.alternative.meant == Meant::Cards => (
                    Reason::NoMatchingDevice,
                    format!("no whole {class} device: partitions and shared devices are not given to a plain request"),
                ),
                None if s.matched == 0 && self.alternative.request.selectors.is_empty() => {
                    (Reason::NoMatchingDevice, format!("no {class} device"))
                }
                None if s.matched == 0 => (
                    Reason::NoMatchingDevice,
                    format!(
                        "no {class} device matches the selectors of request {}",
                        self.alternative.name
                    ),
                ),
                None => (
                    Reason::NoMatchingDevice,
                    format!(
                        "only {} matching {}, {asked}",
                        devices(s.matched, class),
                        if s.matched == 1 { "is there" } else { "are there" }
                    ),
                ),
            }
        } else if s.wished < n {
            let words = format!(
                "{} of {} fit {}, {asked}",
                s.wished,
                devices(s.matched, class),
                self.wishes.words()
            );
            (Reason::WrongClass, words)
        } else if s.free < n {
            let words = format!(
                "{} of {} that match {} free, {asked}",
                s.free,
                devices(s.wished, class),
                verb(s.free)
            );
            (Reason::NotEnoughFree, words)
        } else if s.agreed < n {
            (Reason::NodeMode, self.mode_words(&asked))
        } else if s.tolerated < n {
            let words = match self.taint {
                Some((device, taint)) if s.tolerated == 0 => format!("{device} has taint {}", taint_words(taint)),
                Some((device, taint)) => format!(
                    "{} of {} free {class} devices {} untainted, {asked}: {device} has taint {}",
                    s.tolerated,
                    s.agreed,
                    verb(s.tolerated),
                    taint_words(taint)
                ),
                None => format!("free {class} devices are tainted"),
            };
            (Reason::Tainted, words)
        } else if s.roomy < n {
            let words = format!(
                "counters or capacity are left for {} of {}, {asked}",
                s.roomy,
                devices(s.tolerated, class)
            );
            (Reason::CapacityExhausted, words)
        } else {
            return self.class_refusal(&asked);
        };
        Some(Refusal::new(reason, words))
    }

    fn mode_words(&self, asked: &str) -> String {
        let (s, class) = (self.stages, &self.alternative.class.name);
        let others = self.mode.map_or_else(
            || "the others are of another".to_owned(),
            |(of, mode)| format!("all of a node have one {of}, and {mode} is in use"),
        );
        format!(
            "{} of {} free {class} devices {} of the node's mode, {asked}: {others}",
            s.agreed,
            s.free,
            verb(s.agreed)
        )
    }

    fn class_refusal(&self, asked: &str) -> Option<Refusal> {
        let class = &self.alternative.class.name;
        if self.alternative.request.admin_access {
            // Looking at devices is not running on them.
            return None;
        }
        let unclassed = self.by_class.iter().find(|c| c.0.is_none()).map_or(0, |c| c.1);
        if let Some(want) = &self.wishes.class {
            let have = self.by_class.iter().find(|c| c.0 == Some(want)).map_or(0, |c| c.1);
            if have >= self.asked {
                return None;
            }
            let words = format!(
                "{have} free of class {want}{}, {asked}{}",
                self.wishes.whose_class(),
                listed("; free: ", self.by_class)
            );
            return Some(Refusal::new(Reason::WrongClass, words));
        }
        let best = self.by_class.iter().filter(|c| c.0.is_some()).map(|c| c.1).max();
        if self.mix || best.unwrap_or(0) + unclassed >= self.asked {
            return None;
        }
        let words = format!(
            "needs {} free {class} devices of one class{}",
            self.asked,
            listed(": free: ", self.by_class)
        );
        Some(Refusal::new(Reason::MixedClasses, words))
    }
}

/// The cards are there, but not near one another.
pub(super) fn unlinked(asked: u32, class: &str, wiring: Option<&Wiring>) -> Refusal {
    let what = match wiring.map(|w| w.shape.fabric()) {
        None => format!("how its cards are connected is not known (or they are more than {MOST_CARDS})"),
        Some(Fabric::Some) => format!("no {asked} free {class} devices that all reach each other by NVLink or XGMI"),
        Some(Fabric::None) => format!("no {asked} free {class} devices below one PCIe root (the node has no NVLink)"),
        Some(Fabric::Unknown) => {
            format!("no {asked} free {class} devices of which NVLink or XGMI is known; a probe on the node would tell")
        }
    };
    Refusal::new(Reason::Topology, format!("topology required: {what}"))
}

pub(super) fn unhealthy_reason(health: &PoolHealth) -> Reason {
    match health {
        PoolHealth::Held(_) | PoolHealth::Lost(_) => Reason::UnknownHolder,
        _ => Reason::PoolIncomplete,
    }
}

pub(super) fn unhealthy(driver: &Name, health: &PoolHealth) -> String {
    match health {
        PoolHealth::Incomplete { have, want } => {
            format!("{driver} is publishing its devices: {have} of {want} slices are there")
        }
        PoolHealth::Invalid(why) => format!("what {driver} publishes is invalid: {why}"),
        PoolHealth::Held(who) => format!(
            "{who}, and may hold any device of {driver} here: make it anew with a claim (label its namespace \
             wattlane.dev/enabled=true), or delete it"
        ),
        PoolHealth::Lost(what) => format!(
            "{what}, which {driver} does not publish any more: it may be a part of any card here, and nothing is given until \
             the claim is gone or the device is back"
        ),
        PoolHealth::Complete => format!("{driver} is complete"),
    }
}

/// `2 x a and 1 x b`, with what goes before; empty where no class has any.
pub(super) fn listed(before: &str, by_class: &[(Option<&Name>, u32)]) -> String {
    let mut some: Vec<_> = by_class.iter().filter(|c| c.1 > 0).collect();
    some.sort_by_key(|c| (std::cmp::Reverse(c.1), c.0));
    let parts: Vec<String> = some
        .iter()
        .map(|(class, n)| format!("{n} x {}", class.map_or("(no class)", |c| c)))
        .collect();
    match parts.split_last() {
        None => String::new(),
        Some((last, [])) => format!("{before}{last}"),
        Some((last, rest)) => format!("{before}{} and {last}", rest.join(", ")),
    }
}

fn devices(n: u32, class: &str) -> String {
    format!("{n} {class} device{}", if n == 1 { "" } else { "s" })
}

fn verb(n: u32) -> &'static str {
    if n == 1 { "is" } else { "are" }
}

pub(super) fn taint_words(taint: &Taint) -> String {
    let effect = match taint.effect {
        Effect::NoSchedule => "NoSchedule",
        Effect::NoExecute => "NoExecute",
        Effect::None => "None",
        Effect::Unknown => "unknown",
    };
    if taint.value.is_empty() {
        format!("{}:{effect}", taint.key)
    } else {
        format!("{}={}:{effect}", taint.key, taint.value)
    }
}

/// Texts written for this demand: thousands of nodes in a handful of situations share a handful of texts. The lock is
/// the request's own; nobody waits for it.
#[derive(Debug, Default)]
pub(super) struct Texts(Mutex<Vec<(Situation, Option<Refusal>)>>);

/// More distinct situations than this are written out each time.
const KEPT: usize = 64;

#[derive(Debug)]
struct Situation {
    stages: Stages,
    taint: Option<(Name, Taint)>,
    mode: Option<(&'static str, Name)>,
    unhealthy: Option<(Name, PoolHealth)>,
    by_class: Vec<(Option<Name>, u32)>,
}

impl Texts {
    /// `shortage.refusal()`; all calls on one `Texts` must be about the same alternative.
    pub(super) fn refusal(&self, shortage: &Shortage<'_>) -> Option<Refusal> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, refusal)) = known.iter().find(|(s, _)| s.is(shortage)) {
            return refusal.clone();
        }
        let refusal = shortage.refusal();
        if known.len() < KEPT {
            known.push((Situation::of(shortage), refusal.clone()));
        }
        refusal
    }
}

impl Situation {
    fn of(s: &Shortage<'_>) -> Self {
        Self {
            stages: s.stages,
            taint: s.taint.map(|(d, t)| (d.clone(), t.clone())),
            mode: s.mode.map(|(of, mode)| (of, mode.clone())),
            unhealthy: s.unhealthy.map(|(d, h)| (d.clone(), h.clone())),
            by_class: s.by_class.iter().map(|(c, n)| (c.cloned(), *n)).collect(),
        }
    }

    fn is(&self, s: &Shortage<'_>) -> bool {
        self.stages == s.stages
            && self.mode.as_ref().map(|(of, mode)| (*of, mode)) == s.mode
            && self.taint.as_ref().map(|(d, t)| (d, t)) == s.taint
            && self.unhealthy.as_ref().map(|(d, h)| (d, h)) == s.unhealthy
            && self.by_class.len() == s.by_class.len()
            && self
                .by_class
                .iter()
                .zip(s.by_class)
                .all(|(a, b)| a.0.as_ref() == b.0 && a.1 == b.1)
    }
}
