//! manifests/guard on the real API server: who may give and free cards, and who is left alone by it.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::binding::bound;
use crate::cluster::{Cluster, NAMESPACE, run};
use crate::manifests::manifest;
use crate::objects::{self, DRIVER, SERVER};
use crate::refusal::refused;
use crate::users::User;
use crate::wait::{SOON, until};

const OTHER: &str = "nic.example.com";
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

fn claim(name: &str, class: &str) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": class}}]}}})
}

fn pod(name: &str, claim: &str, scheduler: &str) -> Result<Pod> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"wattlane.dev/webhook": "ignore"}},
        "spec": {
            "schedulerName": scheduler,
            "terminationGracePeriodSeconds": 0,
            "resourceClaims": [{"name": "r", "resourceClaimName": claim}],
            "containers": [{"name": "c", "image": "example.com/c:1", "resources": {"claims": [{"name": "r"}]}}],
        },
    }))?)
}

fn allocation(driver: &str, pool: &str) -> Value {
    json!({"devices": {"results": [{"request": "r", "driver": driver, "pool": pool, "device": "gpu-0"}]}})
}

/// All that a tenant could want of claims: the role `edit` has some of it, a careless administrator grants the rest.
async fn careless_role(cluster: &Cluster) -> Result<()> {
    let rules = json!([{"apiGroups": ["resource.k8s.io"], "verbs": ["*"],
        "resources": ["resourceclaims", "resourceclaims/status", "resourceclaims/binding", "resourceclaims/driver"]}]);
    let rbac = "rbac.authorization.k8s.io";
    let role = json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": "careless"}, "rules": rules});
    let binding = json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "careless"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "careless"},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": "tenant"}]});
    cluster.apply(&role, "").await?;
    cluster.apply(&binding, "").await
}

struct Tenant(Api<ResourceClaim>);

impl Tenant {
    async fn status(&self, claim: &str, status: Value) -> kube::Result<ResourceClaim> {
        let patch = Patch::Merge(json!({"status": status}));
        self.0.patch_status(claim, &PatchParams::default(), &patch).await
    }

    async fn denied(&self, claim: &str, status: Value) -> Result<()> {
        denied(self.status(claim, status.clone()).await, &status)
    }
}

fn denied<T: std::fmt::Debug>(result: kube::Result<T>, what: &Value) -> Result<()> {
    match result {
        Err(kube::Error::Api(e)) if e.message.contains("given and freed by wattlane only, not by") => Ok(()),
        other => anyhow::bail!("{what}: {other:?}"),
    }
}

#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn cards_are_given_and_freed_by_wattlane_only() {
    run(async |cluster: &mut Cluster| {
        let client = cluster.client();
        for object in manifest("../guard/policy.yaml")? {
            cluster.apply(&object, "").await?;
        }
        objects::node(client.clone(), "node-1", json!({})).await?;
        cluster.apply(&objects::slice("node-1", &[SERVER, SERVER]), "").await?;
        let mut nics = objects::slice("node-1", &["a NIC"]);
        nics["metadata"]["name"] = json!("node-1-nics");
        nics["spec"]["driver"] = json!(OTHER);
        cluster.apply(&nics, "").await?;
        let class = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": OTHER},
            "spec": {"selectors": [{"cel": {"expression": format!("device.driver == '{OTHER}'")}}]}});
        cluster.apply(&class, "").await?;
        for (name, class) in [
            ("mine", DRIVER),
            ("used", DRIVER),
            ("wanted", DRIVER),
            ("nic", OTHER),
            ("free-nic", OTHER),
        ] {
            cluster.apply(&claim(name, class), NAMESPACE).await?;
        }
        careless_role(cluster).await?;
        let tenant = Tenant(Api::namespaced(cluster.plane().connect(User::Tenant).await?, NAMESPACE));
        let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), NAMESPACE);

        // A card taken that nobody gave. The policy and the role take a moment to be in force: until then, nothing is kept.
        let dry_run = PatchParams {
            dry_run: true,
            ..PatchParams::default()
        };
        until("the guard", SOON, async || {
            let taken = json!({"status": {"allocation": allocation(DRIVER, "node-1")}});
            let tried = tenant.0.patch_status("mine", &dry_run, &Patch::Merge(&taken)).await;
            denied(tried, &taken)?;
            tenant
                .denied("mine", json!({"allocation": allocation(DRIVER, "node-1")}))
                .await
        })
        .await?;
        // The API server takes a driver's name in any letter case.
        let loud = allocation(&DRIVER.to_uppercase(), "node-1");
        tenant.denied("mine", json!({"allocation": loud})).await?;
        // Given nothing, the claim would count as allocated, and its pod would run without a card.
        for nothing in [
            json!({}),
            json!({"devices": {}}),
            json!({"devices": {"results": []}}),
            json!({"devices": {"results": []}, "nodeSelector": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}]}}),
        ] {
            tenant.denied("mine", json!({"allocation": nothing})).await?;
        }
        // Not even an administrator by accident; wattlane as ever.
        let admin = Tenant(claims.clone());
        admin
            .denied("mine", json!({"allocation": allocation(DRIVER, "node-1")}))
            .await?;
        let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
        let create = PostParams::default();
        pods.create(&create, &pod("user", "used", "wattlane")?).await?;
        ensure!(bound(cluster, "user").await?.devices.len() == 1);

        // A card freed that is in use: by its allocation, by its user, by the finalizer (a claim that is deleted holds nothing).
        tenant
            .denied("used", json!({"allocation": null, "reservedFor": null}))
            .await?;
        tenant.denied("used", json!({"reservedFor": null})).await?;
        tenant
            .denied(
                "used",
                json!({"reservedFor": [{"resource": "pods", "name": "ghost", "uid": "ghost"}]}),
            )
            .await?;
        let bare = json!({"metadata": {"finalizers": null}});
        denied(
            tenant
                .0
                .patch("used", &PatchParams::default(), &Patch::Merge(&bare))
                .await,
            &bare,
        )?;
        let held = claims.get("used").await?;
        ensure!(
            held.metadata
                .finalizers
                .as_ref()
                .is_some_and(|f| f.iter().any(|f| f == FINALIZER))
        );

        // Everything else of such a claim, and claims of other drivers.
        let labelled = Patch::Merge(json!({"metadata": {"labels": {"team": "a"}}}));
        tenant
            .0
            .patch("used", &PatchParams::default(), &labelled)
            .await
            .context("a label")?;
        let card = held.status.as_ref().and_then(|s| {
            s.allocation
                .as_ref()?
                .devices
                .as_ref()?
                .results
                .as_ref()?
                .first()
                .cloned()
        });
        let card = card.context("no card")?;
        let devices =
            json!([{"driver": card.driver, "pool": card.pool, "device": card.device, "data": {"driver": "said so"}}]);
        tenant
            .status("used", json!({"devices": devices}))
            .await
            .context("what a driver says")?;
        let finalizer = Patch::Merge(json!({"metadata": {"finalizers": [FINALIZER]}}));
        tenant.0.patch("free-nic", &PatchParams::default(), &finalizer).await?;
        tenant
            .status("free-nic", json!({"allocation": allocation(OTHER, "node-1")}))
            .await
            .context("another driver's device")?;
        tenant
            .status("free-nic", json!({"allocation": null}))
            .await
            .context("and back")?;

        // The default scheduler: other drivers' devices as ever, cards not, and the pod says why.
        pods.create(&create, &pod("plain", "nic", "default-scheduler")?).await?;
        until("the default scheduler to bind it", SOON, async || {
            let pod = pods.get("plain").await?;
            ensure!(pod.spec.and_then(|s| s.node_name).is_some(), "{:?}", pod.status);
            Ok(())
        })
        .await?;
        pods.create(&create, &pod("stray", "wanted", "default-scheduler")?)
            .await?;
        let said = refused(cluster, "stray").await?;
        ensure!(
            said.contains("given and freed by wattlane only, not by system:kube-scheduler"),
            "{said}"
        );
        let wanted = claims.get("wanted").await?.status.unwrap_or_default();
        ensure!(wanted.allocation.is_none(), "{wanted:?}");

        // The claim controller frees what its pod has done with.
        pods.delete("user", &DeleteParams::default().grace_period(0)).await?;
        until("the claim to be freed", SOON, async || {
            let status = claims.get("used").await?.status.unwrap_or_default();
            ensure!(
                status.allocation.is_none() && status.reserved_for.is_none(),
                "{status:?}"
            );
            Ok(())
        })
        .await?;
        pods.create(&create, &pod("next", "used", "wattlane")?).await?;
        ensure!(bound(cluster, "next").await?.devices.len() == 1);
        Ok(())
    })
    .await;
}
