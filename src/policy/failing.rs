//! Why the `match` of a class fails on devices, and what helps.

use super::Policy;
use crate::model::alike::{closest, hint};
use crate::model::{Device, Labels, Name};
use crate::snapshot::Pool;

/// Names offered where one is missing.
const MOST_OFFERED: usize = 8;

/// A device as the classifier sees it.
pub(super) struct Seen<'s> {
    pub(super) pool: &'s Pool,
    pub(super) device: &'s Device,
    pub(super) labels: Labels,
    pub(super) annotations: Labels,
}

pub(super) struct Failing {
    devices: u64,
    /// One of them, with the evaluator's words and what helps. None: it did not happen again.
    example: Option<String>,
}

impl Failing {
    /// Evaluates it once more, until a device tells most: one whose driver the match names should have an answer.
    pub(super) fn of<'s>(policy: &Policy, class: &Name, devices: u64, all: impl Iterator<Item = Seen<'s>>) -> Self {
        let mut failing = Self { devices, example: None };
        let Some(at) = policy.classes.iter().position(|c| c.name == *class) else {
            return failing;
        };
        let (earlier, selector) = (&policy.classes[..at], &policy.classes[at].selector);
        for seen in all {
            let (driver, labels) = (&seen.pool.driver, Some(&seen.labels));
            let taken = earlier
                .iter()
                .any(|c| c.selector.matches(driver, seen.device, labels) == Ok(true));
            let Err(error) = selector.matches(driver, seen.device, labels) else {
                continue;
            };
            let named = selector.text().contains(&**driver);
            if taken || (!named && failing.example.is_some()) {
                continue;
            }
            let help = match named {
                true => for_own(&seen, &error.0),
                false => "; ask for the driver first (device.driver == \"…\" && …)".to_owned(),
            };
            let id = format!("{driver}/{}/{}", seen.pool.name, seen.device.name);
            failing.example = Some(format!("{} on {id}{help}", error.0));
            if named {
                break;
            }
        }
        failing
    }

    pub(super) fn words(&self) -> String {
        let n = self.devices;
        let why = self.example.as_deref().unwrap_or_default();
        match n {
            1 => format!("fails on one device, which therefore is not of this class: {why}"),
            _ => format!("fails on {n} devices, which therefore are not of this class: {why}"),
        }
    }
}

/// What helps on a device of a driver that the match is about.
fn for_own(seen: &Seen<'_>, error: &str) -> String {
    let Some(key) = error.strip_prefix("no such key: ") else {
        return String::new();
    };
    let driver = &seen.pool.driver;
    let attributes = seen.device.attributes.iter().map(|(name, _)| name);
    let names = attributes.chain(seen.device.capacity.iter().map(|(name, _)| name));
    let names: Vec<&str> = names.filter(|n| n.domain == *driver).map(|n| &*n.name).collect();
    if let Some(hint) = hint(names.iter().copied(), key) {
        return hint;
    }
    let names = closest(names, key);
    let shown: Vec<&str> = names.iter().take(MOST_OFFERED).copied().collect();
    let more = match names.len().saturating_sub(MOST_OFFERED) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    format!(
        "; it has {}{more}. Where only some devices have {key}, ask for it first: \"{key}\" in device.attributes[\"{driver}\"]",
        shown.join(", ")
    )
}
