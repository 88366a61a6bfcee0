//! Binding conditions: what a driver must have reported of an allocated device before its pod may be bound.
//!
//! Source of the rules: kube-scheduler's dynamicresources plugin (feature DRADeviceBindingConditions). How long to wait
//! is for whoever has a clock.

use super::{Claim, DeviceId, DeviceResult, Name};

/// An entry of `status.devices[].conditions`, with the device it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceCondition {
    pub device: DeviceId,
    pub share_id: Option<Name>,
    pub kind: Name,
    /// Status `True`; `False` and `Unknown` are the same here.
    pub holds: bool,
    /// Reason and message, for people; may be empty.
    pub words: Name,
}

/// Whether the pods of a claim may be bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Nothing is awaited: also of a claim that is not allocated.
    Ready,
    /// What, in words.
    Awaited(String),
    /// A binding failure condition holds: which, in words.
    Failed(String),
}

impl Claim {
    /// A failure of any device counts before anything that is still awaited.
    pub fn readiness(&self) -> Readiness {
        let results = self.allocation.iter().flat_map(|a| &a.results);
        let waiting = results.filter(|r| !r.binding_conditions.is_empty());
        let mut awaited = None;
        for result in waiting {
            if let Some((kind, Some(condition))) = self.first(result, &result.binding_failure_conditions, true) {
                let words = &condition.words;
                let because = if words.is_empty() {
                    String::new()
                } else {
                    format!(": {words}")
                };
                return Readiness::Failed(format!("device {} reports {kind}{because}", result.id));
            }
            if awaited.is_none() {
                awaited = self
                    .first(result, &result.binding_conditions, false)
                    .map(|(kind, condition)| {
                        let words = condition.map_or("not reported yet", |c| {
                            if c.words.is_empty() { "not true" } else { &c.words }
                        });
                        format!("condition {kind} of device {} ({words})", result.id)
                    });
            }
        }
        awaited.map_or(Readiness::Ready, Readiness::Awaited)
    }

    /// Whether the allocation names devices that have to report something first.
    pub fn has_binding_conditions(&self) -> bool {
        let mut results = self.allocation.iter().flat_map(|a| &a.results);
        results.any(|r| !r.binding_conditions.is_empty())
    }

    /// The first of the kinds that is (or is not) reported as true, with the report.
    fn first<'a>(
        &'a self,
        result: &'a DeviceResult,
        kinds: &'a [Name],
        holds: bool,
    ) -> Option<(&'a Name, Option<&'a DeviceCondition>)> {
        let mut reports = kinds.iter().map(|kind| {
            let about =
                |c: &&DeviceCondition| c.kind == *kind && c.device == result.id && c.share_id == result.share_id;
            (kind, self.conditions.iter().find(about))
        });
        reports.find(|(_, c)| c.is_some_and(|c| c.holds) == holds)
    }
}
