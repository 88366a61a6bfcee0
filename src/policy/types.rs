//! A policy that has been checked: every value in it is legal and means one thing.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::model::{Labels, Name};
use crate::placement::{NamespaceLimits, Rules, Topology};
use crate::selector::Selector;

/// One wattage class of the operator's.
#[derive(Clone, Debug)]
pub struct Class {
    /// A DNS label, unique in the policy.
    pub name: Name,
    /// Compiled without an error.
    pub selector: Arc<Selector>,
    /// Board power of a whole card. None: what the product table says.
    pub watts: Option<u32>,
    pub patch: PodPatch,
}

/// What admission adds to the pods of a class or of a namespace. Nothing a pod says itself is replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodPatch {
    /// Another scheduler that calls wattlane than that of the defaults.
    pub scheduler_name: Option<Name>,
    pub runtime_class_name: Option<Name>,
    /// core/v1 Tolerations as JSON, only the fields that are set.
    pub tolerations: Vec<Value>,
    pub node_selector: BTreeMap<Name, Name>,
    pub annotations: BTreeMap<Name, Name>,
    pub labels: BTreeMap<Name, Name>,
    /// Size of a memory-backed /dev/shm for containers with more than one device, as a quantity.
    pub shared_memory: Option<Name>,
}

/// Which of several equally good nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum NodeOrder {
    /// Fullest first.
    #[default]
    Pack,
    /// Emptiest first.
    Spread,
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Placement {
    pub nodes: NodeOrder,
    /// Let a pod that does not say so itself hold devices of several classes.
    pub mix_classes: bool,
    pub topology: Topology,
    /// Node labels that say how near two nodes are, narrowest first. None: the usual ones.
    pub nearness: Option<Vec<Name>>,
}

/// Power domains: one for each value of a node label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PowerDomain {
    pub label: Name,
    /// Watts of every domain not named in `budgets`. None: those have no budget.
    pub budget: Option<u64>,
    /// Watts by label value.
    pub budgets: BTreeMap<Name, u64>,
}

/// What pods of some namespaces get and may ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceRule {
    /// Labels the namespace must carry, all of them. Empty: every namespace.
    pub matches: BTreeMap<Name, Name>,
    /// Of pods that name no class. Always set where `allowed_classes` is.
    pub default_class: Option<Name>,
    /// None: every class.
    pub allowed_classes: Option<Vec<Name>>,
    pub max_gpus_per_pod: Option<u32>,
    /// Beside what the pod's class adds, which comes first.
    pub patch: PodPatch,
}

impl NamespaceRule {
    pub fn allows(&self, class: &str) -> bool {
        self.allowed_classes
            .as_ref()
            .is_none_or(|allowed| allowed.iter().any(|c| &**c == class))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// The scheduler of treated pods.
    pub scheduler_name: Name,
    /// By extended resource, of pods for which it is claimed and whose class and namespace say nothing. Runtimes are of a
    /// vendor: NVIDIA's does nothing for AMD's cards, or fails.
    pub runtime_classes: BTreeMap<Name, Name>,
    /// Extended resource -> DeviceClass of the claims that replace it.
    pub device_classes: BTreeMap<Name, Name>,
}

impl Default for Defaults {
    fn default() -> Self {
        let pairs = [("nvidia.com/gpu", "gpu.nvidia.com"), ("amd.com/gpu", "gpu.amd.com")];
        Self {
            scheduler_name: "wattlane".into(),
            runtime_classes: BTreeMap::new(),
            device_classes: pairs.into_iter().map(|(r, c)| (r.into(), c.into())).collect(),
        }
    }
}

/// The whole file. `Policy::read` makes it; the default is what holds without a file.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// First match wins.
    pub classes: Vec<Class>,
    pub placement: Placement,
    pub power: Vec<PowerDomain>,
    /// First match wins.
    pub namespaces: Vec<NamespaceRule>,
    pub defaults: Defaults,
    /// `namespaces` as placement reads them; made when first asked for.
    pub allowed: OnceLock<Arc<[NamespaceLimits]>>,
}

impl Policy {
    /// What placement needs to know of it.
    pub fn rules(&self) -> Rules {
        Rules {
            mix_classes: self.placement.mix_classes,
            spread: self.placement.nodes == NodeOrder::Spread,
            topology: self.placement.topology,
            demand: Arc::default(),
            allowed: self.allowed.get_or_init(|| self.namespace_limits()).clone(),
            nearness: self
                .placement
                .nearness
                .clone()
                .unwrap_or_else(|| Rules::default().nearness),
        }
    }

    fn namespace_limits(&self) -> Arc<[NamespaceLimits]> {
        let rules = self.namespaces.iter().map(|rule| NamespaceLimits {
            matches: rule.matches.clone(),
            classes: rule.allowed_classes.clone(),
            most_cards: rule.max_gpus_per_pod,
        });
        rules.collect()
    }

    /// Whether pods are sent to this scheduler: by the defaults, or by the patch of a class or of a namespace.
    pub fn schedules(&self, scheduler: &str) -> bool {
        let classes = self.classes.iter().map(|c| &c.patch);
        let patches = classes.chain(self.namespaces.iter().map(|n| &n.patch));
        let mut named = patches.filter_map(|p| p.scheduler_name.as_ref());
        &*self.defaults.scheduler_name == scheduler || named.any(|n| &**n == scheduler)
    }

    pub fn class(&self, name: &str) -> Option<&Class> {
        self.classes.iter().find(|c| &*c.name == name)
    }

    /// The first rule that the labels of a namespace satisfy.
    pub fn namespace_rule(&self, labels: &Labels) -> Option<&NamespaceRule> {
        self.namespaces
            .iter()
            .find(|rule| rule.matches.iter().all(|(k, v)| labels.get(k) == Some(v)))
    }
}
