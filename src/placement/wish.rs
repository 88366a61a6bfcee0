//! What a pod's annotations ask of its devices. Reads them once per request; knows nothing of nodes.

use super::Topology;
use super::allowed::{Allowed, Slots};
use crate::model::{CLASS, Name, Pod, Reason, Refusal};
use crate::snapshot::PoolDevice;

pub(super) use crate::model::MIX;
use crate::model::TOPOLOGY;

const USE_TYPE: &str = "nvidia.com/use-gputype";
const NO_TYPE: &str = "nvidia.com/nouse-gputype";
const USE_UUID: &str = "nvidia.com/use-gpuuuid";
const NO_UUID: &str = "nvidia.com/nouse-gpuuuid";
/// HAMi's `nvidia.com/` keys speak of the devices of this driver, whatever attributes they have.
const NVIDIA: &str = "gpu.nvidia.com";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wishes {
    /// Wattage class by its exact name.
    pub(super) class: Option<Name>,
    /// Not the pod asks for that class, but this group's members hold it.
    pub(super) class_of_group: Option<Name>,
    /// The pod's own word on devices of several classes, over the policy's.
    pub(super) mix: Option<bool>,
    /// The pod's own word on links, over the policy's.
    pub(super) topology: Option<Topology>,
    /// Lower-case parts of product names; empty: any.
    use_type: Vec<String>,
    no_type: Vec<String>,
    /// Exact UUIDs; empty: any.
    use_uuid: Vec<String>,
    no_uuid: Vec<String>,
    /// What the pod's namespace may use. None: everything.
    pub(super) allowed: Option<Allowed>,
}

impl Wishes {
    pub(super) fn of(pod: &Pod) -> Result<Self, Refusal> {
        let class = match pod.annotation(CLASS) {
            Some(text) if text.contains(|c: char| c == ',' || c.is_whitespace()) => {
                return Err(unreadable(CLASS, text, "one class name"));
            }
            text => text.map(Name::from),
        };
        let mix = match pod.annotation(MIX) {
            None => None,
            Some("true") => Some(true),
            Some("false") => Some(false),
            Some(text) => return Err(unreadable(MIX, text, "true or false")),
        };
        let topology = match pod.annotation(TOPOLOGY) {
            None => None,
            Some("required") => Some(Topology::Required),
            Some("preferred") => Some(Topology::Preferred),
            Some("none") => Some(Topology::None),
            Some(text) => return Err(unreadable(TOPOLOGY, text, "required, preferred or none")),
        };
        let lower = |list: Vec<String>| list.into_iter().map(|t| t.to_lowercase()).collect();
        Ok(Self {
            class,
            class_of_group: None,
            mix,
            topology,
            use_type: lower(list(pod, USE_TYPE)?),
            no_type: lower(list(pod, NO_TYPE)?),
            use_uuid: list(pod, USE_UUID)?,
            no_uuid: list(pod, NO_UUID)?,
            allowed: None,
        })
    }

    /// The pod shares a device, which policy may hold to one class.
    pub(super) fn shares(&mut self, slots: Option<&Slots>) -> Result<(), Refusal> {
        let Some(only) = slots.and_then(|s| s.class.as_ref()) else {
            return Ok(());
        };
        match &self.class {
            Some(class) if class != only => {
                let words = format!("the pod asks for class {class}, but devices of class {only} only are shared here");
                Err(Refusal::new(Reason::WrongClass, words))
            }
            _ => {
                self.class = Some(only.clone());
                Ok(())
            }
        }
    }

    /// Whether the namespace may use devices of the class.
    pub(super) fn allow(&self, class: Option<&Name>) -> bool {
        self.allowed.as_ref().is_none_or(|allowed| allowed.admits(class))
    }

    /// Where a class comes from that the pod does not name.
    pub(super) fn whose_class(&self) -> String {
        let group = self.class_of_group.as_ref();
        group.map_or_else(String::new, |g| {
            format!(" (which group {g} holds; {MIX}: \"true\" allows others)")
        })
    }

    /// No wish that has to be looked up device by device.
    pub(super) fn any_device(&self) -> bool {
        self.use_type.is_empty() && self.no_type.is_empty() && self.use_uuid.is_empty() && self.no_uuid.is_empty()
    }

    /// HAMi's reading: part of the product name without regard to case, whole UUIDs. Devices of other drivers that
    /// have no such attribute (a NIC beside the GPUs) are not what the pod speaks of.
    pub(super) fn admit(&self, driver: &str, device: &PoolDevice) -> bool {
        if self.any_device() {
            return true;
        }
        let text = |name| device.device.string(driver, name);
        let named = |value: Option<&Name>, want: &[String], not: &[String], is: &dyn Fn(&str, &str) -> bool| match value
        {
            Some(v) => (want.is_empty() || want.iter().any(|w| is(v, w))) && !not.iter().any(|w| is(v, w)),
            None => want.is_empty() || driver != NVIDIA,
        };
        let product = text("productName").map(|p| Name::from(p.to_lowercase()));
        named(product.as_ref(), &self.use_type, &self.no_type, &|v, w| v.contains(w))
            && named(text("uuid"), &self.use_uuid, &self.no_uuid, &|v, w| v == w)
    }

    /// The device wishes in words, for a refusal.
    pub(super) fn words(&self) -> String {
        let mut parts = vec![];
        for (key, list) in [
            (USE_TYPE, &self.use_type),
            (NO_TYPE, &self.no_type),
            (USE_UUID, &self.use_uuid),
            (NO_UUID, &self.no_uuid),
        ] {
            if !list.is_empty() {
                parts.push(format!("{key}={}", list.join(",")));
            }
        }
        let own = parts.join(" ");
        match &self.allowed {
            None => own,
            Some(allowed) if own.is_empty() => allowed.words(),
            Some(allowed) => format!("{own} and {}", allowed.words()),
        }
    }
}

fn list(pod: &Pod, key: &str) -> Result<Vec<String>, Refusal> {
    let Some(text) = pod.annotation(key) else {
        return Ok(vec![]);
    };
    let list: Vec<String> = text
        .split(',')
        .map(|t| t.trim().to_owned())
        .filter(|t| !t.is_empty())
        .collect();
    if list.is_empty() {
        return Err(unreadable(key, text, "a comma-separated list"));
    }
    Ok(list)
}

fn unreadable(key: &str, text: &str, want: &str) -> Refusal {
    let text: String = text.chars().take(64).collect();
    Refusal::new(
        Reason::InvalidRequest,
        format!("annotation {key} is {text:?}, not {want}"),
    )
}
