//! Two replicas of wattlane, and what the Service `wattlane-extender` and kube-proxy do in a real cluster: new
//! connections go to a pod that carries the leader's label, existing ones stay where they are.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
pub(crate) use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::cluster::Cluster;
use crate::manifests::SYSTEM;
use crate::process::free_ports;
use crate::wait::{SOON, until};

/// Names of the pods and of the processes.
pub(crate) const A: &str = "wattlane-a";
pub(crate) const B: &str = "wattlane-b";

pub(crate) struct Replicas {
    /// Of the stand-in for the Service.
    pub(crate) port: u16,
    /// listen and admin of A, then of B
    ports: [(u16, u16); 2],
    proxy: JoinHandle<()>,
}

impl Replicas {
    /// B gets the given ports.
    pub(crate) async fn start(client: kube::Client, listen: u16, admin: u16) -> Result<Self> {
        let [a, a_admin] = free_ports()?;
        let ports = [(a, a_admin), (listen, admin)];
        let service = TcpListener::bind(("127.0.0.1", 0)).await?;
        Ok(Self {
            port: service.local_addr()?.port(),
            ports,
            proxy: tokio::spawn(serve(service, client, [a, listen])),
        })
    }

    pub(crate) fn ports(&self, name: &str) -> (u16, u16) {
        self.ports[usize::from(name == B)]
    }
}

impl Drop for Replicas {
    fn drop(&mut self) {
        self.proxy.abort();
    }
}

async fn serve(service: TcpListener, client: kube::Client, ports: [u16; 2]) {
    while let Ok((stream, _)) = service.accept().await {
        let client = client.clone();
        tokio::spawn(async move {
            // No endpoint, or one that does not answer: the connection is closed, and tried again by its owner.
            let _ = forward(stream, client, ports).await;
        });
    }
}

async fn forward(mut stream: TcpStream, client: kube::Client, ports: [u16; 2]) -> Result<()> {
    let leaders = labelled(client).await?;
    let leader = leaders.first().context("no pod carries the label")?;
    let to = SocketAddr::from(([127, 0, 0, 1], ports[usize::from(leader == B)]));
    let mut replica = TcpStream::connect(to).await?;
    tokio::io::copy_bidirectional(&mut stream, &mut replica).await?;
    Ok(())
}

/// The pods that carry the leader's label.
pub(crate) async fn labelled(client: kube::Client) -> Result<Vec<String>> {
    let pods: Api<Pod> = Api::namespaced(client, SYSTEM);
    let found = pods
        .list(&ListParams::default().labels("wattlane.dev/leader=true"))
        .await?;
    Ok(found.items.into_iter().filter_map(|p| p.metadata.name).collect())
}

pub(crate) async fn lease(client: kube::Client) -> Result<Lease> {
    Ok(Api::namespaced(client, SYSTEM).get("wattlane").await?)
}

/// Empty: nobody.
pub(crate) fn holder(lease: &Lease) -> &str {
    let spec = lease.spec.as_ref();
    spec.and_then(|s| s.holder_identity.as_deref()).unwrap_or_default()
}

/// Who holds the Lease.
pub(crate) async fn leader(client: kube::Client) -> Result<&'static str> {
    let lease = lease(client).await?;
    let held = [A, B].into_iter().find(|name| holder(&lease).starts_with(name));
    held.with_context(|| format!("the Lease is held by {:?}", holder(&lease)))
}

pub(crate) fn other(name: &str) -> &'static str {
    if name == A { B } else { A }
}

/// Waits until the one with the Lease is the one with the label.
pub(crate) async fn settled(cluster: &Cluster) -> Result<()> {
    until("one leader with the label", SOON, async || {
        let leader = leader(cluster.client()).await?;
        let labelled = labelled(cluster.client()).await?;
        ensure!(labelled == [leader], "{leader} leads, the label is on {labelled:?}");
        Ok(())
    })
    .await
}

/// A replica's pod, as far as the label needs one: nobody runs it.
pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "wattlane"}},
        "spec": {
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "wattlane",
                "image": "wattlane",
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            }],
        },
    })
}
