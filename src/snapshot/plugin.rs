//! Which driver's devices a device plugin may have given away: the one question whose answer the API does not hold.
//! Answered generously. A wrong yes keeps cards of a node unused and says so; a wrong no gives a card twice.

use super::Snapshot;
use crate::model::{DeviceClass, Labels};

impl Snapshot {
    /// Whether a vendor's device plugin offers cards, or parts of them, under this name.
    pub fn names_cards(resource: &str) -> bool {
        driver_of(resource).is_some()
    }

    /// How a node's device plugin gives parts of devices under the name of whole ones, in words: by time-slicing or MPS, or
    /// as partitions by a strategy that names them so (MIG's `single`, AMD's), by what the vendors' labellers say of the
    /// node. Renamed ones (`gpu.shared`, `mig-1g.10gb`) say it themselves. None: it does not.
    ///
    /// Not by `nvidia.com/mig.strategy`: that is the plugin's setting, on nodes whose cards are whole, too.
    pub fn gives_parts(resource: &str, labels: &Labels) -> Option<&'static str> {
        let label = |key: &str| labels.get(key).map_or("", |value| value);
        let replicas = labels.get(format!("{resource}.replicas").as_str());
        let several = replicas.is_some_and(|n| n.parse::<u32>().is_ok_and(|n| n > 1));
        let product = label("nvidia.com/gpu.product");
        if several || resource == "nvidia.com/gpu" && product.ends_with("-SHARED") {
            return Some("in parts that several pods share");
        }
        let cut = match resource {
            // `-MIG-1g.10gb`, and `-MIG-INVALID` where the cards are cut as the strategy cannot say.
            "nvidia.com/gpu" => product.contains("-MIG-") || labels.contains_key("nvidia.com/gpu.slices.gi"),
            // `cpx_nps4`; a whole card is in one piece (`spx_nps1`).
            "amd.com/gpu" => {
                let mode = label("amd.com/compute-memory-partition");
                !mode.is_empty() && !mode.starts_with("spx")
            }
            _ => false,
        };
        cut.then_some("as partitions of cards")
    }

    /// Whether a pod that was given the extended resource without a claim may hold devices of the driver. `named`: the
    /// DeviceClass that the policy has for the resource.
    pub fn may_hold(&self, resource: &str, named: Option<&str>, driver: &str) -> bool {
        // No device plugin can offer the implicit name of a DeviceClass.
        if resource.starts_with("deviceclass.resource.kubernetes.io/") {
            return false;
        }
        if let Some(known) = driver_of(resource) {
            return known == driver;
        }
        if named.is_some_and(|class| is_of_driver(class, driver)) {
            return true;
        }
        let class = self.class_for(resource, named);
        class.is_some_and(|class| is_of_driver(&class.name, driver) || selects(class, driver))
    }
}

/// The DRA driver of the devices that the vendors' device plugins offer under this name. Only cards: `nvidia.com` is
/// also the domain of NICs.
fn driver_of(resource: &str) -> Option<&'static str> {
    let (domain, name) = resource.split_once('/')?;
    match domain {
        // Whole, shared (`gpu.shared`), as MIG instances, passed through, and as virtual GPUs.
        "nvidia.com" if ["gpu", "mig-", "pgpu", "vgpu"].iter().any(|p| name.starts_with(p)) => Some("gpu.nvidia.com"),
        // Cards, and partitions by their mode (`cpx_nps4`).
        "amd.com" => Some("gpu.amd.com"),
        // The monitoring resources are a look at every card, and no card.
        "gpu.intel.com" if !name.ends_with("_monitoring") => Some("gpu.intel.com"),
        _ => None,
    }
}

/// By the names that drivers' charts give their classes: `gpu.x.com`, and `mig.x.com` or `vfio.gpu.x.com` beside it.
fn is_of_driver(class: &str, driver: &str) -> bool {
    let below = class
        .strip_suffix(driver)
        .is_some_and(|before| before.is_empty() || before.ends_with('.'));
    let vendor = |name: &str| name.split_once('.').map(|(_, vendor)| vendor.to_owned());
    below || (driver.starts_with("gpu.") && vendor(class).is_some() && vendor(class) == vendor(driver))
}

/// A class of any name says its driver in its selectors.
fn selects(class: &DeviceClass, driver: &str) -> bool {
    class.selectors.iter().any(|text| text.contains(driver))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn holds(snapshot: &Snapshot, resource: &str, named: Option<&str>) -> Vec<&'static str> {
        let drivers = [
            "gpu.nvidia.com",
            "compute-domain.nvidia.com",
            "gpu.amd.com",
            "gpu.example.com",
            "dra.net",
        ];
        drivers
            .into_iter()
            .filter(|driver| snapshot.may_hold(resource, named, driver))
            .collect()
    }

    #[test]
    fn the_cards_of_the_vendors_and_nothing_else_of_theirs() {
        let s = Snapshot::default();
        for resource in ["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb"] {
            assert_eq!(holds(&s, resource, None), ["gpu.nvidia.com"], "{resource}");
        }
        assert_eq!(holds(&s, "amd.com/gpu", None), ["gpu.amd.com"]);
        for resource in ["nvidia.com/hostdev", "rdma/hca", "example.com/gpu", "memory"] {
            assert!(holds(&s, resource, None).is_empty(), "{resource}");
        }
        // Whatever class the policy has for it: the plugin's cards are the vendor's.
        assert_eq!(holds(&s, "nvidia.com/gpu", Some("gpu.example.com")), ["gpu.nvidia.com"]);
    }

    #[test]
    fn parts_under_the_name_of_whole_cards_are_told_by_the_labels() {
        let parts = |resource: &str, labels: &[(&str, &str)]| {
            let labels = labels.iter().map(|(k, v)| ((*k).into(), (*v).into()));
            Snapshot::gives_parts(resource, &Arc::new(labels.collect())).is_some()
        };
        let replicas = |n| [("nvidia.com/gpu.replicas", n)];
        assert!(parts("nvidia.com/gpu", &replicas("4")));
        assert!(parts(
            "nvidia.com/gpu",
            &[("nvidia.com/gpu.product", "Tesla-T4-SHARED")]
        ));
        assert!(parts(
            "nvidia.com/mig-1g.10gb",
            &[("nvidia.com/mig-1g.10gb.replicas", "2")]
        ));
        for whole in ["0", "1", "", "x"] {
            assert!(!parts("nvidia.com/gpu", &replicas(whole)), "{whole}");
        }
        assert!(!parts("nvidia.com/gpu", &[("nvidia.com/gpu.product", "Tesla-T4")]));
        assert!(!parts("nvidia.com/gpu", &[("nvidia.com/mig-1g.10gb.replicas", "2")]));
        assert!(!parts("amd.com/gpu", &[("nvidia.com/gpu.product", "Tesla-T4-SHARED")]));
        for product in ["NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", "NVIDIA-A30-MIG-INVALID"] {
            let labels = [("nvidia.com/gpu.product", product), ("nvidia.com/gpu.replicas", "1")];
            assert!(parts("nvidia.com/gpu", &labels), "{product}");
            assert!(!parts("nvidia.com/mig-1g.10gb", &labels), "it says it itself");
        }
        // The setting is on nodes with whole cards, too.
        let whole = [
            ("nvidia.com/mig.strategy", "single"),
            ("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"),
        ];
        assert!(!parts("nvidia.com/gpu", &whole));
        let amd = |mode| [("amd.com/compute-memory-partition", mode)];
        assert!(parts("amd.com/gpu", &amd("cpx_nps4")) && !parts("amd.com/gpu", &amd("spx_nps1")));
    }

    #[test]
    fn a_class_says_whose_devices_a_resource_of_any_name_is() {
        let mut s = Snapshot::default();
        assert_eq!(holds(&s, "acme.io/card", Some("mig.nvidia.com")), ["gpu.nvidia.com"]);
        assert_eq!(
            holds(&s, "acme.io/card", Some("vfio.gpu.nvidia.com")),
            ["gpu.nvidia.com"]
        );
        let class = |name: &str, resource: Option<&str>, selector: &str| {
            Arc::new(DeviceClass {
                name: name.into(),
                selectors: vec![selector.into()],
                config: vec![],
                extended_resource: resource.map(Into::into),
                created: 0,
                unsupported: None,
            })
        };
        let big = class("big", None, "device.driver == 'gpu.example.com'");
        s.classes.insert("big".into(), big);
        let net = class("net", Some("acme.io/nic"), "device.driver == \"dra.net\"");
        s.classes.insert("net".into(), net);
        assert_eq!(holds(&s, "acme.io/card", Some("big")), ["gpu.example.com"]);
        assert_eq!(holds(&s, "acme.io/nic", None), ["dra.net"]);
        assert!(holds(&s, "deviceclass.resource.kubernetes.io/net", None).is_empty());
    }
}
