//! Pods, from a watch, a file or a kube-scheduler extender request: the same JSON.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::ConvertError;
use super::claim::seconds;
use super::node::is_extended;
use super::read::{Amount, List, Map, Meta, Names, labels, read};
use crate::model::{
    DEFAULT_SCHEDULER, GATE, MIRROR, Name, NamespacedName, Pod, PodClaim, PodClaimSource, Quantity, Room,
};

#[derive(Deserialize)]
struct Root<'a> {
    #[serde(borrow)]
    metadata: Meta<'a>,
    #[serde(borrow, default)]
    spec: Option<Spec<'a>>,
    #[serde(borrow, default)]
    status: Option<Status<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(borrow)]
    scheduler_name: Option<&'a str>,
    #[serde(borrow)]
    node_name: Option<&'a str>,
    #[serde(borrow)]
    resource_claims: List<RawClaim<'a>>,
    #[serde(borrow)]
    containers: List<Container<'a>>,
    #[serde(borrow)]
    init_containers: List<Container<'a>>,
    #[serde(borrow)]
    scheduling_gates: List<Gate<'a>>,
    #[serde(borrow)]
    overhead: Map<'a, Amount>,
}

#[derive(Deserialize)]
struct Gate<'a> {
    name: &'a str,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawClaim<'a> {
    name: &'a str,
    #[serde(borrow)]
    resource_claim_name: Option<&'a str>,
    #[serde(borrow)]
    resource_claim_template_name: Option<&'a str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container<'a> {
    #[serde(borrow)]
    resources: Option<Resources<'a>>,
    #[serde(borrow)]
    restart_policy: Option<&'a str>,
}

#[derive(Deserialize)]
struct Resources<'a> {
    #[serde(borrow)]
    limits: Map<'a, Amount>,
    #[serde(borrow)]
    requests: Map<'a, Amount>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    #[serde(borrow)]
    phase: Option<&'a str>,
    #[serde(borrow)]
    resource_claim_statuses: List<ClaimStatus<'a>>,
    #[serde(borrow)]
    extended_resource_claim_status: Option<ExtendedClaim<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaimStatus<'a> {
    name: &'a str,
    #[serde(borrow)]
    resource_claim_name: Option<&'a str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExtendedClaim<'a> {
    #[serde(borrow)]
    resource_claim_name: Option<&'a str>,
    #[serde(borrow)]
    request_mappings: List<Mapping<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mapping<'a> {
    resource_name: &'a str,
}

/// Annotations and labels of pods that anybody here reads.
pub fn is_read(key: &str) -> bool {
    let prefixes = ["wattlane.dev/", "nvidia.com/", "amd.com/", "hami.io/"];
    key == MIRROR || prefixes.iter().any(|prefix| key.starts_with(prefix))
}

pub fn pod(value: &Value) -> Result<Pod, ConvertError> {
    of(read(value)?)
}

/// The same of JSON text, without a tree of it. None: it cannot be read so, which `pod` may take all the same (a key that
/// comes twice, a name with an escape in it), and else has words for.
pub fn pod_of_text(text: &str) -> Option<Pod> {
    of(serde_json::from_str(text).ok()?).ok()
}

fn of(root: Root<'_>) -> Result<Pod, ConvertError> {
    let Root { metadata, spec, status } = root;
    let spec = spec.ok_or_else(|| ConvertError::at("spec", "missing"))?;
    let (phase, statuses, extended) = status.map_or((None, None, None), |s| {
        (s.phase, s.resource_claim_statuses, s.extended_resource_claim_status)
    });
    let statuses = statuses.unwrap_or_default();
    let claim = |raw: RawClaim<'_>| PodClaim {
        name: raw.name.into(),
        source: match (raw.resource_claim_name, raw.resource_claim_template_name) {
            (Some(name), None) => PodClaimSource::Claim(name.into()),
            (None, Some(name)) => PodClaimSource::Template(name.into()),
            _ => PodClaimSource::Other,
        },
        generated: statuses
            .iter()
            .find(|s| s.name == raw.name)
            .map(|s| s.resource_claim_name.map(Name::from)),
    };
    let claims = spec.resource_claims.into_iter().flatten().map(claim).collect();
    let (extended_claim, mappings) = extended.map_or((None, None), |e| (e.resource_claim_name, e.request_mappings));
    let mut claimed: Vec<Name> = mappings.into_iter().flatten().map(|m| m.resource_name.into()).collect();
    claimed.sort();
    claimed.dedup();
    let mirror = metadata.annotations.as_ref().is_some_and(|a| a.contains_key(MIRROR));
    let owners = metadata.owner_references.iter().flatten();
    let of_daemon_set = owners.filter(|o| o.kind == "DaemonSet");
    let of_daemon_set = of_daemon_set
        .filter_map(|o| o.api_version)
        .any(|v| v.starts_with("apps/"));
    Ok(Pod {
        key: NamespacedName::new(metadata.namespace(), metadata.name()?),
        uid: metadata.uid(),
        created: seconds(metadata.creation_timestamp).unwrap_or_default(),
        labels: labels(metadata.labels.as_ref(), is_read),
        annotations: labels(metadata.annotations.as_ref(), is_read),
        scheduler_name: spec
            .scheduler_name
            .filter(|n| !n.is_empty())
            .unwrap_or(DEFAULT_SCHEDULER)
            .into(),
        node_name: spec.node_name.unwrap_or_default().into(),
        finished: matches!(phase, Some("Succeeded" | "Failed")),
        deleting: metadata.deleting(),
        claims,
        room: room(&spec.containers, &spec.init_containers, &spec.overhead),
        extended_resources: extended_resources(spec.containers, spec.init_containers),
        extended_resource_claim: extended_claim.map(Name::from),
        claimed_resources: claimed,
        fixed: mirror || of_daemon_set,
        gated: spec
            .scheduling_gates
            .into_iter()
            .flatten()
            .any(|gate| gate.name == GATE),
    })
}

/// CPU and memory as kube-scheduler counts them, but for an init container beside sidecars that began before it.
fn room(containers: &List<Container<'_>>, init: &List<Container<'_>>, overhead: &Map<'_, Amount>) -> Room {
    let of = |amounts: &dyn Fn(&str) -> Option<Quantity>| {
        let amount = |name| amounts(name).unwrap_or(Quantity::ZERO);
        Room::of(amount("cpu"), amount("memory"))
    };
    // A limit alone stands for the request.
    let asked = |c: &Container<'_>| {
        let resources = c.resources.as_ref();
        let in_map = |map: &Map<'_, Amount>, name: &str| Some(map.as_ref()?.get(name)?.0);
        of(&|name| resources.and_then(|r| in_map(&r.requests, name).or_else(|| in_map(&r.limits, name))))
    };
    let sidecar = |c: &&Container<'_>| c.restart_policy == Some("Always");
    let running = containers.iter().flatten().chain(init.iter().flatten().filter(sidecar));
    let running = running.fold(Room::default(), |sum, c| sum.plus(asked(c)));
    let first = init.iter().flatten().filter(|c| !sidecar(c)).map(asked);
    let most = first.fold(running, |most, room| Room {
        cpu: most.cpu.max(room.cpu),
        memory: most.memory.max(room.memory),
    });
    most.plus(of(&|name| Some(overhead.as_ref()?.get(name)?.0)))
}

/// What the pod needs at once: containers and sidecars together, or the largest init container.
fn extended_resources(containers: List<Container<'_>>, init: List<Container<'_>>) -> Vec<(Name, Quantity)> {
    let mut names = Names::default();
    let mut running: BTreeMap<Name, Quantity> = BTreeMap::new();
    let mut largest: BTreeMap<Name, Quantity> = BTreeMap::new();
    let containers = containers.into_iter().flatten().map(|c| (false, c));
    let init = init.into_iter().flatten().map(|c| (true, c));
    for (is_init, container) in containers.chain(init) {
        let Some(resources) = container.resources else { continue };
        // Equal by API validation where both are set; a limit alone stands for the request.
        let mut wanted = resources.requests.unwrap_or_default();
        wanted.extend(resources.limits.unwrap_or_default());
        for (name, amount) in wanted.into_iter().filter(|(name, _)| is_extended(name)) {
            let (name, Amount(amount)) = (names.of(name), amount);
            if !is_init || container.restart_policy == Some("Always") {
                let sum = running.entry(name).or_insert(Quantity::ZERO);
                *sum = sum.plus(amount);
            } else {
                let most = largest.entry(name).or_insert(Quantity::ZERO);
                *most = (*most).max(amount);
            }
        }
    }
    for (name, amount) in largest {
        let have = running.entry(name).or_insert(Quantity::ZERO);
        *have = (*have).max(amount);
    }
    running.into_iter().filter(|(_, q)| !q.is_zero()).collect()
}
