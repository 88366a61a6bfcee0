//! Gives every device its class and watts: the policy's classes first, then the product table.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Policy, board_power, class_name};
use crate::model::{Classified, Classifier, Device, Labels, Name, WattOrigin};

/// Products remembered; a driver that invents names must not grow our memory.
const MOST_PRODUCTS: usize = 1024;

/// Classes and watts by one policy. Used by the index task, so its lock is never waited for.
#[derive(Debug)]
pub struct PolicyClassifier {
    policy: Arc<Policy>,
    /// Devices each class's selector failed on, by position in `policy.classes`.
    errors: Vec<AtomicU64>,
    /// Derived class and table watts by product name: many devices then share one text.
    derived: Mutex<HashMap<Name, Derived>>,
}

/// Class and watts of a product by its name alone, as far as the name says.
type Derived = (Option<Name>, Option<u32>);

impl PolicyClassifier {
    pub fn new(policy: Arc<Policy>) -> Self {
        let errors = policy.classes.iter().map(|_| AtomicU64::new(0)).collect();
        Self {
            policy,
            errors,
            derived: Mutex::default(),
        }
    }

    /// How many times each class's `match` failed on a device, where it did.
    pub fn errors(&self) -> impl Iterator<Item = (&Name, u64)> {
        let classes = self.policy.classes.iter().map(|c| &c.name);
        classes
            .zip(self.errors.iter().map(|e| e.load(Ordering::Relaxed)))
            .filter(|(_, n)| *n > 0)
    }

    fn derive(&self, product: &Name) -> Derived {
        let mut derived = self.derived.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = derived.get(product) {
            return known.clone();
        }
        let watts = board_power(product).and_then(|p| p.watts());
        let class = class_name(product, watts).map(Name::from);
        if derived.len() < MOST_PRODUCTS {
            derived.insert(product.clone(), (class.clone(), watts));
        }
        (class, watts)
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
                        if errors.fetch_add(1, Ordering::Relaxed) == 0 {
                            tracing::warn!(
                                class = %class.name, %driver, device = %device.name, error = %e.0,
                                "the match of a policy class fails on a device, which therefore is not of that class; \
                                 begin it with device.driver == \"…\" && (said once for each class)"
                            );
                        }
                        false
                    })
            })
    }
}

impl Classifier for PolicyClassifier {
    /// `annotations` will carry what was measured on the node, which then wins over both sources here.
    fn classify(&self, driver: &Name, device: &Device, labels: &Labels, _annotations: &Labels) -> Classified {
        let product = product(driver, device);
        let (derived, table) = product.map_or((None, None), |p| self.derive(p));
        let chosen = self
            .policy_class(driver, device, labels)
            .and_then(|at| self.policy.classes.get(at));
        let (watts, origin) = match (chosen.and_then(|c| c.watts), table) {
            // What a part of a card draws is not known, whatever the card is limited to.
            _ if is_partition(driver, device) => (None, WattOrigin::Unknown),
            (Some(watts), _) => (Some(watts), WattOrigin::Policy),
            (None, Some(watts)) => (Some(watts), WattOrigin::Table),
            (None, None) => (None, WattOrigin::Unknown),
        };
        Classified {
            class: chosen.map(|c| c.name.clone()).or(derived),
            watts,
            origin,
        }
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

fn is_partition(driver: &Name, device: &Device) -> bool {
    device
        .string(driver, "type")
        .is_some_and(|t| &**t == "mig" || t.ends_with("-partition"))
}
