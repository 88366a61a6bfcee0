//! What a policy says of devices that pods share, and the drivers' words for it.

use serde_json::{Value, json};

use crate::model::{Name, Quantity};
use crate::placement::Slots;

/// The driver whose sharing configuration is written (`resource.nvidia.com/v1beta1`, `GpuConfig`).
pub const SHARING_DRIVER: &str = "gpu.nvidia.com";

/// How several pods use one device at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// One after the other, in turns; `interval` as the driver names it. Nothing is limited.
    TimeSlicing { interval: Option<&'static str> },
    /// Side by side through one MPS daemon, which limits compute and, where told, memory of each.
    Mps,
}

/// What pods of some namespaces may share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// Pods of one device at most. 2 or more.
    pub slots: u32,
    pub strategy: Strategy,
    /// Memory of each pod, as a quantity: what MPS limits it to, and what it takes of a device with consumable capacity.
    pub memory_per_slot: Option<Name>,
    /// The only class whose devices are shared. None: any.
    pub class: Option<Name>,
}

impl Sharing {
    /// What placement holds pods to.
    pub(super) fn slots(&self) -> Slots {
        Slots {
            most: self.slots,
            class: self.class.clone(),
        }
    }

    /// The opaque parameters of a claim that is shared.
    pub fn parameters(&self) -> Value {
        let sharing = match self.strategy {
            Strategy::TimeSlicing { interval } => json!({
                "strategy": "TimeSlicing",
                "timeSlicingConfig": {"interval": interval.unwrap_or("Default")},
            }),
            Strategy::Mps => {
                let mut config = json!({"defaultActiveThreadPercentage": (100 / self.slots.max(1)).max(1)});
                if let Some(memory) = &self.memory_per_slot {
                    config["defaultPinnedDeviceMemoryLimit"] = json!(&**memory);
                }
                json!({"strategy": "MPS", "mpsConfig": config})
            }
        };
        json!({"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": sharing})
    }

    /// What all slots of a card together are promised, in bytes. None: nothing is kept, and so nothing promised.
    pub fn promised(&self) -> Option<i64> {
        let each = self
            .memory_per_slot
            .as_ref()
            .filter(|_| self.strategy == Strategy::Mps)?;
        Some(Quantity::size(each)?.saturating_mul(i64::from(self.slots)))
    }

    /// `4 slots, time-slicing`
    pub fn words(&self) -> String {
        let strategy = match self.strategy {
            Strategy::TimeSlicing { interval: None } => "time-slicing".to_owned(),
            Strategy::TimeSlicing { interval: Some(i) } => format!("time-slicing ({i})"),
            Strategy::Mps => "mps".to_owned(),
        };
        let memory = self.memory_per_slot.as_ref().map(|m| format!(", {m} each"));
        let class = self.class.as_ref().map(|c| format!(", class {c}"));
        format!(
            "{} slots, {strategy}{}{}",
            self.slots,
            memory.unwrap_or_default(),
            class.unwrap_or_default()
        )
    }

    /// What a slot is not, in one sentence.
    pub fn not_isolated(&self) -> &'static str {
        match self.strategy {
            Strategy::TimeSlicing { .. } => {
                "time-slicing isolates nothing: memory and compute are everybody's, and one pod's fault can end the others"
            }
            Strategy::Mps if self.memory_per_slot.is_some() => {
                "MPS limits memory and compute but does not isolate: one pod's fault can end the others"
            }
            Strategy::Mps => "MPS limits compute only, memory is everybody's, and one pod's fault can end the others",
        }
    }
}
