//! What the API says of pods and claims at the end of a wave, and whether it is right.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{Api, ListParams};

use super::world::{CARDS_A_POD, NAMESPACE};

/// Counts of what must not be.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Devices in more than one allocation, or twice in one.
    pub(crate) given_twice: usize,
    /// Devices of another node than the pod's (a node's pool carries its name).
    pub(crate) elsewhere: usize,
    /// Bound pods without a claim that is reserved for them and has as many devices as they asked for.
    pub(crate) without: usize,
}

pub(crate) async fn read(client: &kube::Client) -> Result<Found> {
    let all = ListParams::default();
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), NAMESPACE);
    Ok(judge(&pods.list(&all).await?.items, &claims.list(&all).await?.items))
}

fn judge(pods: &[Pod], claims: &[ResourceClaim]) -> Found {
    let mut found = Found::default();
    let node = |pod: &Pod| pod.spec.as_ref().and_then(|s| s.node_name.clone());
    let bound: BTreeMap<_, _> = pods
        .iter()
        .filter_map(|pod| Some((pod.metadata.uid.as_deref()?, node(pod)?)))
        .collect();
    let mut given = BTreeSet::new();
    let mut served = BTreeSet::new();
    for status in claims.iter().filter_map(|claim| claim.status.as_ref()) {
        let devices = status
            .allocation
            .as_ref()
            .and_then(|a| a.devices.as_ref()?.results.as_ref());
        let devices = devices.map(Vec::as_slice).unwrap_or_default();
        found.given_twice += devices
            .iter()
            .filter(|d| !given.insert((&d.driver, &d.pool, &d.device)))
            .count();
        for holder in status.reserved_for.iter().flatten() {
            let Some((uid, node)) = bound.get_key_value(holder.uid.as_str()) else {
                continue;
            };
            found.elsewhere += devices.iter().filter(|d| d.pool != *node).count();
            if devices.len() == CARDS_A_POD {
                served.insert(*uid);
            }
        }
    }
    found.without = bound.keys().filter(|uid| !served.contains(*uid)).count();
    found
}

#[cfg(test)]
mod tests {
    use super::{Found, judge};
    use serde_json::{Value, json};

    fn pod(uid: &str, node: &str) -> Value {
        json!({"metadata": {"uid": uid}, "spec": {"containers": [], "nodeName": node}})
    }

    fn claim(uid: &str, devices: &[(&str, &str)]) -> Value {
        let results: Vec<_> = devices
            .iter()
            .map(|(pool, device)| json!({"request": "gpu", "driver": "d", "pool": pool, "device": device}))
            .collect();
        json!({"metadata": {}, "spec": {}, "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": "p", "uid": uid}]}})
    }

    fn found(claims: Value) -> Found {
        let pods: Vec<_> = serde_json::from_value(json!([pod("a", "n1"), pod("b", "n2")])).expect("pods");
        let claims: Vec<_> = serde_json::from_value(claims).expect("claims");
        judge(&pods, &claims)
    }

    #[test]
    fn each_wrong_is_found() {
        let good = claim("a", &[("n1", "0"), ("n1", "1")]);
        let none = Found::default();
        assert_eq!(found(json!([good, claim("b", &[("n2", "0"), ("n2", "1")])])), none);
        let twice = found(json!([good, claim("b", &[("n2", "0"), ("n2", "0")])]));
        assert_eq!(
            twice,
            Found {
                given_twice: 1,
                ..Found::default()
            }
        );
        let both = found(json!([good, claim("b", &[("n1", "1"), ("n2", "0")])]));
        assert_eq!(
            both,
            Found {
                given_twice: 1,
                elsewhere: 1,
                without: 0
            }
        );
        assert_eq!(
            found(json!([good])),
            Found {
                without: 1,
                ..Found::default()
            }
        );
        let few = found(json!([good, claim("b", &[("n2", "0")])]));
        assert_eq!(
            few,
            Found {
                without: 1,
                ..Found::default()
            }
        );
    }
}
