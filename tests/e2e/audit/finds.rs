//! An audit that finds nothing is worth something only if it would have found it.

use anyhow::Result;
use serde_json::{Value, from_value, json};

use super::{Audit, Damage, FINALIZER};
use crate::objects::{MAXQ, SERVER, gpu_pod, slice};

fn pod(name: &str, node: &str, claim: &str) -> Result<Value> {
    let mut pod = serde_json::to_value(gpu_pod(name, 1)?)?;
    pod["metadata"] = json!({"name": name, "namespace": "models", "uid": name});
    pod["spec"]["nodeName"] = json!(node);
    pod["spec"]["resourceClaims"] = json!([{"name": "gpus", "resourceClaimName": claim}]);
    Ok(pod)
}

fn claim(name: &str, node: &str, devices: &[&str], pod: &str) -> Value {
    let result = |device| json!({"request": "gpus", "driver": "gpu.nvidia.com", "pool": node, "device": device});
    let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    json!({
        "metadata": {"name": name, "namespace": "models", "finalizers": [FINALIZER]},
        "spec": {},
        "status": {
            "allocation": {
                "devices": {"results": devices.iter().map(result).collect::<Vec<_>>()},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
            },
            "reservedFor": [{"resource": "pods", "name": pod, "uid": pod}],
        },
    })
}

/// Two pods, each with a card of its own on n1, after a change that should not be there.
fn audit(change: impl FnOnce(&mut [Value; 2], &mut [Value; 2])) -> Result<Audit> {
    let mut pods = [pod("a", "n1", "claim-a")?, pod("b", "n1", "claim-b")?];
    let mut claims = [
        claim("claim-a", "n1", &["gpu-0"], "a"),
        claim("claim-b", "n1", &["gpu-1"], "b"),
    ];
    change(&mut pods, &mut claims);
    let slices = json!([slice("n1", &[SERVER, MAXQ]), slice("n2", &[SERVER])]);
    Audit::of(
        from_value(json!(pods))?,
        from_value(json!(claims))?,
        from_value(slices)?,
    )
}

fn after(change: impl FnOnce(&mut [Value; 2], &mut [Value; 2])) -> Result<()> {
    audit(change)?.check()
}

fn found(change: impl FnOnce(&mut [Value; 2], &mut [Value; 2])) -> String {
    after(change).expect_err("a finding").to_string()
}

#[test]
fn nothing_in_order() {
    after(|_, _| ()).expect("no finding");
}

#[test]
fn damage_is_counted() {
    let damage = |change: fn(&mut [Value; 2], &mut [Value; 2])| {
        let Damage { twice, leaks } = audit(change).and_then(|a| a.damage()).expect("counted");
        (twice, leaks)
    };
    assert_eq!(damage(|_, _| ()), (0, 0));
    assert_eq!(
        damage(|_, c| c[1]["status"]["allocation"] = c[0]["status"]["allocation"].clone()),
        (1, 0)
    );
    assert_eq!(damage(|p, _| p[0]["metadata"]["uid"] = json!("another")), (0, 1));
    assert_eq!(damage(|p, _| p[0]["spec"]["nodeName"] = Value::Null), (0, 1));
    assert_eq!(damage(|_, c| c[0]["status"]["reservedFor"] = json!([])), (0, 1));
    assert_eq!(
        damage(|p, c| {
            p[0]["spec"]["nodeName"] = Value::Null;
            c[0]["status"]["allocation"] = Value::Null;
        }),
        (0, 1)
    );
}

#[test]
fn a_device_given_twice() {
    let text = found(|_, claims| claims[1] = claim("claim-b", "n1", &["gpu-0"], "b"));
    assert!(text.contains("is given to"), "{text}");
}

#[test]
fn a_device_that_does_not_exist() {
    let text = found(|_, claims| claims[1] = claim("claim-b", "n1", &["gpu-7"], "b"));
    assert!(text.contains("no such device"), "{text}");
}

#[test]
fn a_pod_away_from_its_devices() {
    let text = found(|_, claims| claims[1] = claim("claim-b", "n2", &["gpu-0"], "b"));
    assert!(text.contains("is bound to n1"), "{text}");
}

#[test]
fn a_bound_pod_without_devices() {
    let text = found(|_, claims| claims[1]["status"] = json!({}));
    assert!(text.contains("is bound to n1"), "{text}");
}

#[test]
fn a_claim_reserved_for_another() {
    let text = found(|_, claims| claims[1] = claim("claim-b", "n1", &["gpu-1"], "a"));
    assert!(text.contains("not reserved for b"), "{text}");
}

#[test]
fn an_allocation_that_deletion_would_not_wait_for() {
    let text = found(|_, claims| claims[1]["metadata"]["finalizers"] = json!([]));
    assert!(text.contains("without finalizer"), "{text}");
}

#[test]
fn an_allocation_that_names_no_node() {
    let text = found(|_, claims| claims[1]["status"]["allocation"]["nodeSelector"] = json!(null));
    assert!(text.contains("nodeSelector"), "{text}");
}
