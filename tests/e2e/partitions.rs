//! Partitions of a card on a real control plane: two that exclude each other, and a driver that publishes others.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};

use crate::audit::Audit;
use crate::binding::bound;
use crate::cluster::{Cluster, NAMESPACE, run};
use crate::findings::audit;
use crate::objects::{self, DRIVER};
use crate::refusal::refused;
use crate::wait::{SOON, until};

const NODE: &str = "cut-1";

/// Profile, first slice, slices: as of a card of eight.
type Cut = (&'static str, u32, u32);

const HALVES: [Cut; 2] = [("3g.40gb", 0, 4), ("3g.40gb", 4, 4)];
const ALL: Cut = ("7g.80gb", 0, 8);

/// One card that can be cut, as published from Kubernetes 1.35 on: counters in one slice, devices in another.
async fn publish(cluster: &Cluster, generation: u32, cuts: &[Cut]) -> Result<()> {
    let counters = |first: u32, end: u32| -> Value {
        let of = |i: u32| json!({"value": u32::from((first..end).contains(&i)).to_string()});
        (0..8)
            .map(|i| (format!("memory-slice-{i}"), of(i)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let device = |(profile, first, slices): &Cut| {
        json!({
            "name": format!("gpu-0-mig-{}-{first}", profile.replace('.', "")),
            "attributes": {
                "type": {"string": "mig"},
                "profile": {"string": profile},
                "parentUUID": {"string": "GPU-0"},
                "productName": {"string": "NVIDIA H100 80GB HBM3"},
            },
            "capacity": {"memory": {"value": format!("{}Gi", 10 * slices)}},
            "consumesCounters": [{"counterSet": "gpu-0", "counters": counters(*first, first + slices)}],
        })
    };
    let slice = |name: &str, key: &str, content: Value| {
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": format!("{NODE}-{name}")},
            "spec": {"driver": DRIVER, "nodeName": NODE, key: content,
                "pool": {"name": NODE, "generation": generation, "resourceSliceCount": 2}}})
    };
    let sets = json!([{"name": "gpu-0", "counters": counters(0, 8)}]);
    cluster.apply(&slice("counters", "sharedCounters", sets), "").await?;
    let devices: Vec<Value> = cuts.iter().map(device).collect();
    cluster.apply(&slice("devices", "devices", devices.into()), "").await
}

async fn start(cluster: &Cluster, cuts: &[Cut]) -> Result<()> {
    let expression = format!("device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'mig'");
    let class = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "mig.nvidia.com"},
        "spec": {"selectors": [{"cel": {"expression": expression}}]}});
    cluster.apply(&class, "").await?;
    objects::node(cluster.client(), NODE, json!({})).await?;
    publish(cluster, 1, cuts).await
}

fn pod(name: &str, profile: &str) -> Result<Pod> {
    let limits = json!({ format!("nvidia.com/mig-{profile}"): "1" });
    let container = json!({"name": "c", "image": "example.com/llm:1", "resources": {"limits": limits}});
    Ok(serde_json::from_value(
        json!({"metadata": {"name": name}, "spec": {"containers": [container]}}),
    )?)
}

/// Creates the pod, as soon as admission knows what the driver publishes.
async fn create(cluster: &Cluster, name: &str, profile: &str) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(cluster.client(), NAMESPACE);
    let pod = pod(name, profile)?;
    until(&format!("pod {name} to be admitted"), SOON, async || {
        pods.create(&PostParams::default(), &pod).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn of_two_placements_that_exclude_each_other_one_is_bound_and_the_other_refused() {
    run(async |cluster: &mut Cluster| {
        start(cluster, &[ALL, HALVES[0], HALVES[1]]).await?;
        let pods: Api<Pod> = Api::namespaced(cluster.client(), NAMESPACE);
        create(cluster, "warm-up", "3g.40gb").await?;
        bound(cluster, "warm-up").await?;
        pods.delete("warm-up", &DeleteParams::default().grace_period(0)).await?;
        // At once, so that both may be filtered before either is bound.
        let (params, pair) = (PostParams::default(), [pod("all", "7g.80gb")?, pod("half", "3g.40gb")?]);
        let (all, half) = tokio::join!(pods.create(&params, &pair[0]), pods.create(&params, &pair[1]));
        all?;
        half?;
        let (first, second) = until("one of them to be bound", SOON, async || {
            let audit = Audit::read(cluster.client()).await?;
            audit.check()?;
            let placed = |p: &&Pod| p.spec.as_ref().is_some_and(|s| s.node_name.is_some());
            let placed = audit.pods.iter().find(placed).context("none is bound")?;
            match placed.metadata.name.as_deref() {
                Some("all") => Ok(("all", "half")),
                _ => Ok(("half", "all")),
            }
        })
        .await?;
        bound(cluster, first).await?;
        let why = refused(cluster, second).await?;
        ensure!(why.contains("counters or capacity are left for 0 of"), "{why}");
        let still = pods.get(second).await?.spec.and_then(|s| s.node_name);
        ensure!(still.is_none(), "both are bound");
        // What the first held is the second's once it has gone.
        pods.delete(first, &DeleteParams::default().grace_period(0)).await?;
        let given = bound(cluster, second).await?;
        ensure!(given.devices.len() == 1, "{:?}", given.devices);
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn what_a_driver_publishes_anew_decides_the_next_pod_and_a_device_that_vanished_is_not_given_again() {
    run(async |cluster: &mut Cluster| {
        start(cluster, &[HALVES[1]]).await?;
        let pods: Api<Pod> = Api::namespaced(cluster.client(), NAMESPACE);
        create(cluster, "half", "3g.40gb").await?;
        bound(cluster, "half").await?;
        let denied = async |name: &str, profile: &str| -> Result<String> {
            match pods.create(&PostParams::default(), &pod(name, profile)?).await {
                Ok(_) => anyhow::bail!("a {profile} is admitted"),
                Err(kube::Error::Api(status)) => Ok(status.message),
                Err(e) => Err(e.into()),
            }
        };
        let why = denied("small", "2g.20gb").await?;
        ensure!(
            why.contains("no device of this cluster is a \"2g.20gb\"; gpu.nvidia.com offers 3g.40gb (0 still fit)"),
            "{why}"
        );
        // Somebody makes another partition beside it.
        publish(cluster, 2, &[HALVES[1], ("2g.20gb", 0, 2)]).await?;
        create(cluster, "small", "2g.20gb").await?;
        let given = bound(cluster, "small").await?;
        ensure!(
            given.devices.iter().any(|d| d.2 == "gpu-0-mig-2g20gb-0"),
            "{:?}",
            given.devices
        );
        ensure!(audit(cluster)?.1.is_empty());

        // And destroys it under the pod.
        publish(cluster, 3, &[HALVES[1]]).await?;
        until("the next pod to be refused", SOON, async || {
            denied("late", "2g.20gb").await.map(drop)
        })
        .await?;
        let found = audit(cluster)?;
        let vanished = found
            .1
            .iter()
            .any(|f| f.starts_with("device-vanished ResourceClaim") && f.contains("small"));
        ensure!(found.0 == Some(1) && vanished, "{found:?}");
        // What overlaps it is given to nobody meanwhile.
        publish(cluster, 4, &[HALVES[1], HALVES[0]]).await?;
        create(cluster, "over", "3g.40gb").await?;
        let why = refused(cluster, "over").await?;
        ensure!(why.contains("counters or capacity are left for 0 of"), "{why}");
        // It comes back, and is the first pod's as long as that is there.
        publish(cluster, 5, &[HALVES[1], ("2g.20gb", 0, 2)]).await?;
        create(cluster, "waits", "2g.20gb").await?;
        let why = refused(cluster, "waits").await?;
        ensure!(why.contains("0 of 1 mig.nvidia.com device"), "{why}");
        pods.delete("small", &DeleteParams::default().grace_period(0)).await?;
        bound(cluster, "waits").await?;
        Ok(())
    })
    .await;
}
