//! Reads `sharing` of a rule for namespaces.

use super::fields::Field;
use super::names;
use super::read::Reader;
use super::sharing::{Sharing, Strategy};
use crate::model::Quantity;

/// Consumers of one claim (resource.k8s.io/v1).
const MOST_SLOTS: u32 = 256;
/// Clients of one MPS daemon on Volta and later.
const MOST_CLIENTS: u32 = 48;
const INTERVALS: [&str; 4] = ["Default", "Short", "Medium", "Long"];

impl Reader<'_> {
    /// Where it would be read as a promise that is not kept.
    pub(super) fn no_sharing(&mut self, sharing: Field) {
        if sharing.is_given() {
            let message = "is for rules of namespaces (namespaces[].sharing, and there class): leave it out here";
            self.error(sharing.path, message);
        }
    }

    pub(super) fn sharing(&mut self, field: Field) -> Option<Sharing> {
        let mut raw = field.mapping(&mut self.errors)?;
        let at = raw.at("slots");
        let slots = raw.field("slots").needed(&mut self.errors).count(&mut self.errors);
        let at_strategy = raw.at("strategy");
        let strategy = raw.text_needed("strategy", &mut self.errors);
        let interval = self.interval(raw.field("interval"));
        let strategy = match &*strategy {
            "time-slicing" => Strategy::TimeSlicing { interval },
            "mps" => {
                if interval.is_some() {
                    self.error(raw.at("interval"), "is for the strategy time-slicing");
                }
                Strategy::Mps
            }
            _ => {
                self.error(at_strategy, "must be time-slicing or mps");
                Strategy::TimeSlicing { interval: None }
            }
        };
        let most = match strategy {
            Strategy::Mps => MOST_CLIENTS,
            Strategy::TimeSlicing { .. } => MOST_SLOTS,
        };
        if slots.is_some_and(|n| !(2..=most).contains(&n)) {
            self.error(at, format!("must be 2 to {most} with this strategy"));
        }
        let size = raw.field("memoryPerSlot").text(&mut self.errors);
        if let Some(size) = &size
            && Quantity::size(size).is_none()
        {
            let message = "must be a size with its unit, a whole number of bytes, like 10Gi";
            self.error(raw.at("memoryPerSlot"), message);
        }
        let class = self.name(raw.field("class"), names::dns_label);
        raw.close(&mut self.errors);
        Some(Sharing {
            slots: slots.unwrap_or(2),
            strategy,
            memory_per_slot: size.map(Into::into),
            class,
        })
    }

    fn interval(&mut self, field: Field) -> Option<&'static str> {
        let path = field.path.clone();
        let given = field.text(&mut self.errors)?;
        let known = INTERVALS.into_iter().find(|i| *i == given);
        if known.is_none() {
            self.error(path, format!("must be one of {}", INTERVALS.join(", ")));
        }
        known
    }
}
