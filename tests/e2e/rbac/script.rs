//! All that wattlane does with the API, each thing once, on objects made for it. To cover a new operation, write a step
//! and name it in `play`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use wattlane::cluster::kube::KubeCluster;
use wattlane::cluster::secrets::CertStore as _;
use wattlane::cluster::{Cluster as _, Event, LeaseWrite, WatchStatus};
use wattlane::index::{Index, Kind, Object};
use wattlane::model::{self, Allocation, Claim, DeviceId, DeviceResult, NamespacedName, NodeSelector};
use wattlane::policy::{Policy, PolicyClassifier};

use crate::manifests::{SYSTEM, apply};
use crate::objects::{self, DRIVER, SERVER};
use crate::plane::Plane;
use crate::users::User;

const NAMESPACE: &str = "default";
const NODE: &str = "node-1";
/// Longer than anything here takes; only what is silent, not refused, comes near it.
const SILENT: Duration = Duration::from_secs(20);

pub(super) struct World {
    wattlane: KubeCluster,
    admin: kube::Client,
    runs: AtomicU32,
}

impl World {
    pub(super) async fn new(plane: &Plane) -> Result<Self> {
        let admin = plane.client();
        objects::node(admin.clone(), NODE, json!({})).await?;
        apply(&admin, &objects::device_class(), "").await?;
        apply(&admin, &objects::slice(NODE, &[SERVER]), "").await?;
        Ok(Self {
            wattlane: KubeCluster::connect(Some(&plane.kubeconfig(User::Wattlane))).await?,
            admin,
            runs: AtomicU32::new(0),
        })
    }

    /// Does everything; returns what failed. A step does not need those before it.
    pub(super) async fn play(&self) -> Vec<String> {
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        let mut failed = vec![];
        let mut note = |step: &str, result: Result<()>| {
            if let Err(e) = result {
                failed.push(format!("{step}: {e:#}"));
            }
        };
        note("watches", self.watches().await);
        note("allocation", self.allocation(&format!("allocation-{run}")).await);
        note("binding", self.binding(&format!("binding-{run}")).await);
        note("poke", self.poke(&format!("poke-{run}")).await);
        note("template", self.template(&format!("template-{run}")).await);
        note("template's end", self.no_template(&format!("swept-{run}")).await);
        note("event", self.event(&format!("event-{run}")).await);
        note("lease", self.lease().await);
        note("label", self.label(&format!("label-{run}")).await);
        note("certificates", self.certificates().await);
        failed
    }

    /// Every kind is listed, and its watch answers.
    async fn watches(&self) -> Result<()> {
        let policy = Arc::new(Policy::default());
        let index = Index::new(Arc::new(PolicyClassifier::new(policy)));
        let running = wattlane::publish::spawn(index, Arc::new(|_, _| false));
        let seen = Arc::<Seen>::default();
        let watching = self.wattlane.watch(running.index, seen.clone());
        let settled = async {
            loop {
                if let Some(verdict) = seen.verdict() {
                    return verdict;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            ended = watching => ended.context("the watches ended"),
            verdict = settled => verdict,
            () = tokio::time::sleep(SILENT) => Err(anyhow::anyhow!("silent: {:?}", seen.0)),
        }
    }

    /// A claim is allocated, reserved for one more pod, and freed.
    async fn allocation(&self, name: &str) -> Result<()> {
        let key = NamespacedName::new(NAMESPACE, name);
        let object = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": DRIVER}}]}}});
        apply(&self.admin, &object, NAMESPACE).await?;
        let claim: Claim = self.wattlane.claim(&key).await?.context("no claim")?;
        // Pods that exist: the claim controller frees what is reserved for others.
        let first = self.pod(&format!("{name}-first")).await?.1.consumer();
        let second = self.pod(&format!("{name}-second")).await?.1.consumer();
        let written = self.wattlane.allocate(&claim, &allocation(), &first).await?;
        self.wattlane.reserve(&written, &second).await?;
        self.wattlane.unreserve(&key, &claim.uid, &second, false).await?;
        self.wattlane.unreserve(&key, &claim.uid, &first, true).await?;
        let freed = self.wattlane.claim(&key).await?.context("no claim")?;
        ensure!(freed.allocation.is_none(), "not freed");
        Ok(())
    }

    async fn pod(&self, name: &str) -> Result<(NamespacedName, model::Pod)> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "example.com/c:1"}]},
        }))?;
        let pods: Api<Pod> = Api::namespaced(self.admin.clone(), NAMESPACE);
        pods.create(&PostParams::default(), &pod).await?;
        let key = NamespacedName::new(NAMESPACE, name);
        let pod = self.wattlane.pod(&key).await?.context("no pod")?;
        Ok((key, pod))
    }

    async fn binding(&self, name: &str) -> Result<()> {
        let (key, pod) = self.pod(name).await?;
        Ok(self.wattlane.bind(&key, &pod.uid, NODE).await?)
    }

    async fn poke(&self, name: &str) -> Result<()> {
        let (key, pod) = self.pod(name).await?;
        Ok(self.wattlane.poke(&key, &pod.uid).await?)
    }

    async fn event(&self, name: &str) -> Result<()> {
        let (key, pod) = self.pod(name).await?;
        let event = Event {
            kind: Kind::Pod,
            key,
            uid: pod.uid,
            reason: "Tried",
            note: "said by a test".to_owned(),
        };
        Ok(self.wattlane.event(&event).await?)
    }

    /// Created, read and renewed.
    async fn lease(&self) -> Result<()> {
        let leases: Api<Lease> = Api::namespaced(self.admin.clone(), SYSTEM);
        if let Err(e) = leases.delete("wattlane", &DeleteParams::default()).await {
            ensure!(matches!(&e, kube::Error::Api(s) if s.code == 404), "{e}");
        }
        let key = NamespacedName::new(SYSTEM, "wattlane");
        let mut write = LeaseWrite {
            replaces: None,
            holder: "a test".into(),
            duration: Duration::from_secs(15),
            transitions: 0,
            acquired: true,
        };
        self.wattlane.write_lease(&key, &write).await?;
        let made = self.wattlane.lease(&key).await?.context("no Lease")?;
        write.replaces = Some(made.version);
        self.wattlane.write_lease(&key, &write).await?;
        Ok(())
    }

    async fn label(&self, name: &str) -> Result<()> {
        let (key, _) = self.pod(name).await?;
        self.wattlane.label_leader(&key, true).await?;
        Ok(self.wattlane.label_leader(&key, false).await?)
    }

    /// Read and written, each Secret and the webhook configuration.
    async fn certificates(&self) -> Result<()> {
        for name in ["wattlane-certs", "wattlane-scheduler-client"] {
            let secret = self.wattlane.secret(&NamespacedName::new(SYSTEM, name)).await?;
            self.wattlane.put_secret(&secret).await?;
        }
        let hook = self.wattlane.webhooks("wattlane").await?;
        let same = json!([{"op": "test", "path": "/metadata/name", "value": hook["metadata"]["name"]}]);
        Ok(self.wattlane.patch_webhooks("wattlane", &same).await.map(drop)?)
    }

    async fn no_template(&self, name: &str) -> Result<()> {
        let object = template(name);
        apply(&self.admin, &object, NAMESPACE).await?;
        let templates: Api<ResourceClaimTemplate> = Api::namespaced(self.admin.clone(), NAMESPACE);
        let mut made = serde_json::to_value(templates.get(name).await?)?;
        (made["apiVersion"], made["kind"]) = (object["apiVersion"].clone(), object["kind"].clone());
        let made = wattlane::convert::object(&made)?;
        let Some(Object::Template(made)) = made else {
            bail!("{made:?} is no template");
        };
        Ok(self.wattlane.remove_template(&made).await?)
    }

    /// Made, and found the second time.
    async fn template(&self, name: &str) -> Result<()> {
        let template = template(name);
        self.wattlane.ensure_template(&template).await?;
        Ok(self.wattlane.ensure_template(&template).await?)
    }
}

fn template(name: &str) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app.kubernetes.io/managed-by": "wattlane"}},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": DRIVER}}]}}},
    })
}

fn allocation() -> Allocation {
    let card = DeviceResult {
        request: "gpu".into(),
        id: DeviceId {
            driver: DRIVER.into(),
            pool: NODE.into(),
            device: "gpu-0".into(),
        },
        ..DeviceResult::default()
    };
    Allocation {
        results: vec![card],
        config: vec![],
        node_selector: Some(Arc::new(NodeSelector::for_node(&NODE.into()))),
    }
}

/// Signs of life by kind, and the first that broke.
#[derive(Debug, Default)]
struct Seen(Mutex<(BTreeMap<&'static str, u32>, Option<&'static str>)>);

impl Seen {
    /// None: not all have shown themselves yet. The first sign of life is the list, the second the watch's answer.
    fn verdict(&self) -> Option<Result<()>> {
        let seen = self.0.lock().expect("not poisoned");
        if let Some(kind) = seen.1 {
            return Some(Err(anyhow::anyhow!("the watch of {kind} broke")));
        }
        let alive = |kind: &Kind| seen.0.get(kind.as_str()).is_some_and(|n| *n >= 2);
        Kind::ALL.iter().all(alive).then_some(Ok(()))
    }
}

impl WatchStatus for Seen {
    fn alive(&self, kind: Kind) {
        *self.0.lock().expect("not poisoned").0.entry(kind.as_str()).or_default() += 1;
    }

    fn restarted(&self, kind: Kind) {
        self.0.lock().expect("not poisoned").1 = Some(kind.as_str());
    }

    fn undecodable(&self, _: Kind) {}
}
