//! Findings about claims: allocations that no pod uses.

use super::{Finding, Kind, Subject, listed};
use crate::model::{Claim, Consumer, NamespacedName};
use crate::snapshot::Snapshot;

pub(super) fn look(snapshot: &Snapshot, findings: &mut Vec<Finding>) {
    findings.extend(snapshot.claims.iter().filter_map(|(_, claim)| unused(snapshot, claim)));
}

fn unused(snapshot: &Snapshot, claim: &Claim) -> Option<Finding> {
    let allocation = claim.allocation.as_ref()?;
    let mut gone = vec![];
    for consumer in &claim.reserved_for {
        // What is not a pod we do not watch.
        gone.push((&*consumer.resource == "pods").then(|| end(snapshot, claim, consumer))??);
    }
    let why = match gone.len() {
        0 => "reserved for no pod".to_owned(),
        _ => listed(gone),
    };
    let message = format!(
        "is allocated, and {why}: {} stay taken. The resource claim controller frees them within seconds. If this lasts longer \
         than a minute, see that kube-controller-manager is well; deleting the claim frees them, too",
        listed(allocation.results.iter().map(|r| &r.id))
    );
    Some(Finding::on(Kind::AllocationWithoutPod, Subject::claim(claim), message))
}

/// What became of the pod. None: it is there and uses the claim, or will.
fn end(snapshot: &Snapshot, claim: &Claim, consumer: &Consumer) -> Option<String> {
    let key = NamespacedName::new(claim.key.namespace.clone(), consumer.name.clone());
    let name = &consumer.name;
    match snapshot.pods.get(&key) {
        None => Some(format!("pod {name} is gone")),
        Some(pod) if pod.uid != consumer.uid => Some(format!("pod {name} is gone (another has its name)")),
        Some(pod) if pod.finished => Some(format!("pod {name} has finished")),
        Some(_) => None,
    }
}
