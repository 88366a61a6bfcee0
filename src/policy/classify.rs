//! Gives every device its class and watts, and every node its power domains. Watts: a limit measured on the node, else
//! the policy's, else the product table's. Class: the policy's, else one derived from the product and its watts, so that
//! two cards of one product with different limits are of two classes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Policy, PowerDomain, board_power, class_name};
use crate::model::{Budget, Classified, Classifier, Device, Labels, Name, WattOrigin};
use crate::topology::{Report, annotation};

/// Products remembered; a driver that invents names must not grow our memory.
const MOST_PRODUCTS: usize = 1024;
/// Limits a probe may report, in watts; what is beyond is a fault of a tool, not a card.
const LIMITS: std::ops::RangeInclusive<u32> = 1..=10_000;

/// Classes and watts by one policy. Used by the index task, so its lock is never waited for.
#[derive(Debug)]
pub struct PolicyClassifier {
    policy: Arc<Policy>,
    /// Devices each class's selector failed on, by position in `policy.classes`.
    errors: Vec<AtomicU64>,
    /// Derived class and table watts by product name and measured limit: many devices then share one text.
    derived: Mutex<HashMap<(Name, Option<u32>), Derived>>,
    /// The report read last: a node's devices come one after the other.
    report: Mutex<Option<(Name, Arc<Report>)>>,
    /// Whoever asks says himself what failed.
    quiet: bool,
}

/// Class of a product by its name and watts, and its watts by its name, as far as the name says.
type Derived = (Option<Name>, Option<u32>);

impl PolicyClassifier {
    pub fn new(policy: Arc<Policy>) -> Self {
        let errors = policy.classes.iter().map(|_| AtomicU64::new(0)).collect();
        Self {
            policy,
            errors,
            derived: Mutex::default(),
            report: Mutex::default(),
            quiet: false,
        }
    }

    pub(super) fn quiet(policy: Arc<Policy>) -> Self {
        Self {
            quiet: true,
            ..Self::new(policy)
        }
    }

    /// How many times each class's `match` failed on a device, where it did.
    pub fn errors(&self) -> impl Iterator<Item = (&Name, u64)> {
        let classes = self.policy.classes.iter().map(|c| &c.name);
        classes
            .zip(self.errors.iter().map(|e| e.load(Ordering::Relaxed)))
            .filter(|(_, n)| *n > 0)
    }

    fn derive(&self, product: &Name, measured: Option<u32>) -> Derived {
        let mut derived = self.derived.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (product.clone(), measured);
        if let Some(known) = derived.get(&key) {
            return known.clone();
        }
        let watts = board_power(product).and_then(|p| p.watts());
        let class = class_name(product, measured.or(watts)).map(Name::from);
        if derived.len() < MOST_PRODUCTS {
            derived.insert(key, (class.clone(), watts));
        }
        (class, watts)
    }

    /// The limit a probe read for the device's card. A report that cannot be read measures nothing.
    fn measured(&self, device: &Device, annotations: &Labels) -> Option<u32> {
        let text = annotations.get(annotation::ANNOTATION)?;
        let report = {
            let mut last = self.report.lock().unwrap_or_else(PoisonError::into_inner);
            match &*last {
                Some((of, report)) if of == text => report.clone(),
                _ => {
                    let report = Arc::new(annotation::decode(text).unwrap_or_default());
                    *last = Some((text.clone(), report.clone()));
                    report
                }
            }
        };
        let card = report.card_for(device)?;
        card.power_limit_watts.filter(|w| LIMITS.contains(w))
    }

    /// Position of the first class that accepts the device.
    fn policy_class(&self, driver: &Name, device: &Device, labels: &Labels) -> Option<usize> {
        self.policy
            .classes
            .iter()
            .zip(&self.errors)
            .position(|(class, errors)| {
                class
                    .selector
                    .matches(driver, device, Some(labels))
                    .unwrap_or_else(|e| {
                        // Usual where a match reads one vendor's attributes without asking for the driver first.
                        if errors.fetch_add(1, Ordering::Relaxed) == 0 && !self.quiet {
                            tracing::warn!(
                                class = %class.name, %driver, device = %device.name, error = %e.0,
                                "the match of a policy class fails on a device, which therefore is not of that class: \
                                 `wattlane check` says what helps (said once for each class)"
                            );
                        }
                        false
                    })
            })
    }
}

impl Classifier for PolicyClassifier {
    fn classify(&self, driver: &Name, device: &Device, labels: &Labels, annotations: &Labels) -> Classified {
        let product = product(driver, device);
        let measured = self.measured(device, annotations);
        let (derived, table) = product.map_or((None, None), |p| self.derive(p, measured));
        let chosen = self
            .policy_class(driver, device, labels)
            .and_then(|at| self.policy.classes.get(at));
        let sources = [
            (measured, WattOrigin::Measured),
            (chosen.and_then(|c| c.watts), WattOrigin::Policy),
            (table, WattOrigin::Table),
        ];
        let known = sources.into_iter().find_map(|(watts, origin)| Some((watts?, origin)));
        // What a part of a card draws is not known, whatever the card is limited to.
        let own = known.filter(|_| !device.is_partition());
        Classified {
            class: chosen.map(|c| c.name.clone()).or(derived),
            watts: own.map(|(watts, _)| watts),
            origin: own.map_or(WattOrigin::Unknown, |(_, origin)| origin),
            board: known.map(|(watts, _)| watts),
        }
    }

    fn slots(&self, namespace: Option<&Labels>) -> u32 {
        let rule = namespace.and_then(|labels| self.policy.namespace_rule(labels));
        rule.and_then(|rule| rule.sharing.as_ref())
            .map_or(0, |sharing| sharing.slots)
    }

    fn budgets(&self, labels: &Labels) -> Vec<Budget> {
        let of = |domain: &PowerDomain| {
            let value = labels.get(&domain.label)?;
            let watts = domain.budgets.get(value).copied().or(domain.budget)?;
            Some(Budget {
                label: domain.label.clone(),
                value: value.clone(),
                watts,
            })
        };
        self.policy.power.iter().filter_map(of).collect()
    }

    fn device_class(&self, resource: &str) -> Option<Name> {
        self.policy.defaults.device_classes.get(resource).cloned()
    }

    fn named_budgets(&self) -> Vec<Budget> {
        let named = self.policy.power.iter().flat_map(|domain| {
            domain.budgets.iter().map(|(value, watts)| Budget {
                label: domain.label.clone(),
                value: value.clone(),
                watts: *watts,
            })
        });
        named.collect()
    }
}

/// The product a device says it is, in its driver's words. Partitions carry the product of their card.
fn product<'a>(driver: &Name, device: &'a Device) -> Option<&'a Name> {
    let text = |name| device.string(driver, name).filter(|v| !v.trim().is_empty());
    text("productName").or_else(|| text("model")).or_else(|| {
        // AMD: a PCI device id names the model. Older releases put a number of the single card there.
        text("deviceID").filter(|id| &**driver == "gpu.amd.com" && id.starts_with("0x"))
    })
}
