//! Is every device given once, and has every bound pod what it was promised? Read from the API server alone, so that
//! wattlane's own bookkeeping is not asked about itself.

mod finds;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{NodeSelector, Pod};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::api::{Api, ListParams};

use crate::wait::Hopeless;

pub(crate) const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// driver, pool, name
type DeviceId = (String, String, String);

/// What the API server holds at one moment. Pods before claims: a claim that is allocated in between is no finding.
pub(crate) struct Audit {
    pub(crate) pods: Vec<Pod>,
    /// By namespace and name.
    claims: BTreeMap<(String, String), ResourceClaim>,
    devices: BTreeMap<DeviceId, Device>,
}

struct Device {
    node: String,
    product: String,
}

/// What must never be, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Damage {
    /// Devices that are in more than one allocation.
    pub(crate) twice: usize,
    /// Claims that are allocated or reserved, and not for a bound pod that exists.
    pub(crate) leaks: usize,
}

/// What one bound pod was given.
pub(crate) struct Given {
    pub(crate) node: String,
    pub(crate) devices: BTreeSet<DeviceId>,
    /// The distinct product names of the devices.
    pub(crate) products: BTreeSet<String>,
}

impl Audit {
    pub(crate) async fn read(client: kube::Client) -> Result<Self> {
        let all = ListParams::default();
        let pods = Api::<Pod>::all(client.clone()).list(&all).await?.items;
        let claims = Api::<ResourceClaim>::all(client.clone()).list(&all).await?.items;
        let slices = Api::<ResourceSlice>::all(client).list(&all).await?.items;
        Self::of(pods, claims, slices)
    }

    fn of(pods: Vec<Pod>, claims: Vec<ResourceClaim>, slices: Vec<ResourceSlice>) -> Result<Self> {
        Ok(Self {
            pods,
            claims: claims.into_iter().map(|c| (key(&c.metadata), c)).collect(),
            devices: devices(slices)?,
        })
    }

    /// Fails when a device is in two allocations, an allocation names a device that does not exist or lies on two
    /// nodes, or a bound pod's claim is not allocated to it, on its node.
    pub(crate) fn check(&self) -> Result<()> {
        // One list is one moment, and nothing that comes later makes a device given twice right: no more waiting.
        self.check_claims().map_err(|e| Hopeless(format!("{e:#}")))?;
        // Pods and claims are two lists. A pod may have been deleted in between, with its claim.
        for pod in &self.pods {
            self.given(pod)?;
        }
        Ok(())
    }

    /// For a moment in which no bind is under way.
    pub(crate) fn damage(&self) -> Result<Damage> {
        let on_a_node = |p: &&Pod| p.spec.as_ref().is_some_and(|s| s.node_name.is_some());
        let uids = self.pods.iter().filter(on_a_node).map(|p| p.metadata.uid.as_deref());
        let bound: BTreeSet<&str> = uids.flatten().collect();
        let mut owners: BTreeMap<DeviceId, usize> = BTreeMap::new();
        let mut leaks = 0;
        for (key, claim) in &self.claims {
            let (_, given) = self.given_to_claim(key)?;
            let status = claim.status.as_ref();
            let reserved = status.and_then(|s| s.reserved_for.as_deref()).unwrap_or_default();
            let unused = !given.is_empty() && reserved.is_empty();
            let strange = reserved.iter().any(|c| !bound.contains(c.uid.as_str()));
            leaks += usize::from(unused || strange);
            for device in given {
                *owners.entry(device).or_default() += 1;
            }
        }
        let twice = owners.values().filter(|n| **n > 1).count();
        Ok(Damage { twice, leaks })
    }

    fn check_claims(&self) -> Result<()> {
        let mut owner: BTreeMap<DeviceId, &(String, String)> = BTreeMap::new();
        for (key, claim) in &self.claims {
            let (_, given) = self.given_to_claim(key)?;
            for device in given {
                let before = owner.insert(device.clone(), key);
                ensure!(before.is_none(), "{device:?} is given to {before:?} and to {key:?}");
            }
            let reserved = claim
                .status
                .as_ref()
                .and_then(|s| s.reserved_for.as_ref())
                .map_or(0, Vec::len);
            ensure!(
                reserved <= 1,
                "claim {key:?} is reserved for {reserved} pods; the tests share none"
            );
        }
        Ok(())
    }

    /// What a pod holds: None while it is not bound.
    pub(crate) fn given(&self, pod: &Pod) -> Result<Option<Given>> {
        let (namespace, name) = key(&pod.metadata);
        let spec = pod.spec.as_ref().context("a pod without spec")?;
        let Some(node) = spec.node_name.clone() else {
            return Ok(None);
        };
        let uid = pod.metadata.uid.as_deref().context("a pod without uid")?;
        let mut held = BTreeSet::new();
        for claim in claim_names(pod)? {
            let key = (namespace.clone(), claim);
            let (on, given) = self.given_to_claim(&key)?;
            ensure!(
                on.as_ref() == Some(&node),
                "{name} is bound to {node}, its claim {key:?} lies on {on:?}"
            );
            let reserved = self.claims[&key]
                .status
                .as_ref()
                .and_then(|s| s.reserved_for.as_deref());
            let for_it = reserved
                .unwrap_or_default()
                .iter()
                .any(|c| c.resource == "pods" && c.uid == uid);
            ensure!(
                for_it,
                "claim {key:?} is not reserved for {name}, which is bound: {reserved:?}"
            );
            held.extend(given);
        }
        let products = held.iter().map(|d| self.devices[d].product.clone()).collect();
        Ok(Some(Given {
            node,
            devices: held,
            products,
        }))
    }

    /// The node and the devices of a claim; none of either while it is not allocated.
    fn given_to_claim(&self, key: &(String, String)) -> Result<(Option<String>, BTreeSet<DeviceId>)> {
        let claim = self.claims.get(key).with_context(|| format!("no claim {key:?}"))?;
        let Some(allocation) = claim.status.as_ref().and_then(|s| s.allocation.as_ref()) else {
            return Ok((None, BTreeSet::new()));
        };
        let finalizers = claim.metadata.finalizers.as_deref().unwrap_or_default();
        ensure!(
            finalizers.iter().any(|f| f == FINALIZER),
            "claim {key:?} is allocated without finalizer"
        );
        let mut node = None;
        let mut given = BTreeSet::new();
        let results = allocation
            .devices
            .as_ref()
            .and_then(|d| d.results.as_deref())
            .unwrap_or_default();
        ensure!(!results.is_empty(), "claim {key:?} is allocated to nothing");
        for result in results {
            let id = (result.driver.clone(), result.pool.clone(), result.device.clone());
            let device = self
                .devices
                .get(&id)
                .with_context(|| format!("claim {key:?} has {id:?}: no such device"))?;
            let other = node.replace(&device.node).filter(|other| *other != &device.node);
            ensure!(
                other.is_none(),
                "claim {key:?} has devices of {} and {other:?}",
                device.node
            );
            ensure!(given.insert(id.clone()), "claim {key:?} has {id:?} twice");
        }
        let selected = allocation.node_selector.as_ref().and_then(only_node);
        ensure!(
            selected == node.map(String::as_str),
            "claim {key:?}: nodeSelector for {selected:?}, devices of {node:?}"
        );
        Ok((node.cloned(), given))
    }
}

/// Names of the pod's claims. An error while the controller has not made one of them.
fn claim_names(pod: &Pod) -> Result<Vec<String>> {
    let spec = pod.spec.as_ref().context("a pod without spec")?;
    let made = pod
        .status
        .as_ref()
        .and_then(|s| s.resource_claim_statuses.as_deref())
        .unwrap_or_default();
    let claims = spec.resource_claims.as_deref().unwrap_or_default();
    claims
        .iter()
        .map(|claim| {
            let from_template = || made.iter().find(|m| m.name == claim.name)?.resource_claim_name.clone();
            let name = claim.resource_claim_name.clone().or_else(from_template);
            name.with_context(|| format!("claim {} of {:?} is not made yet", claim.name, pod.metadata.name))
        })
        .collect()
}

/// The node of a selector that is exactly `metadata.name In [node]`.
fn only_node(selector: &NodeSelector) -> Option<&str> {
    let [term] = &selector.node_selector_terms[..] else {
        return None;
    };
    let [field] = term.match_fields.as_deref()? else {
        return None;
    };
    let [node] = field.values.as_deref()? else { return None };
    (field.key == "metadata.name" && field.operator == "In" && term.match_expressions.is_none()).then_some(node)
}

fn devices(slices: Vec<ResourceSlice>) -> Result<BTreeMap<DeviceId, Device>> {
    let mut devices = BTreeMap::new();
    for slice in slices {
        let spec = slice.spec;
        let node = spec.node_name.context("a slice for no one node; the tests have none")?;
        for device in spec.devices.unwrap_or_default() {
            let attributes = device.attributes.unwrap_or_default();
            let product = attributes
                .get("productName")
                .and_then(|a| a.string.clone())
                .context("no productName")?;
            let id = (spec.driver.clone(), spec.pool.name.clone(), device.name);
            let node = node.clone();
            devices.insert(id, Device { node, product });
        }
    }
    Ok(devices)
}

fn key(metadata: &kube::core::ObjectMeta) -> (String, String) {
    (
        metadata.namespace.clone().unwrap_or_default(),
        metadata.name.clone().unwrap_or_default(),
    )
}
