//! Two replicas with one API server and one clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use wattlane::certs::rotation::Lifetimes;
use wattlane::certs::{DAY, ephemeral, trust};
use wattlane::keeper::{InUse, Keeper, Settings};
use wattlane::metrics::{Metrics, Readiness};
use wattlane::model::NamespacedName;
use wattlane::server::{Material, Paths, Tls, TlsOptions};

use crate::store::Store;

pub(crate) const AUTHORITY: i64 = 400 * DAY;
pub(crate) const OVERLAP: i64 = 120 * DAY;
pub(crate) const LEAF: i64 = 90 * DAY;
const START: i64 = 1_800_000_000;

pub(crate) struct World {
    pub(crate) store: Arc<Store>,
    clock: Arc<AtomicI64>,
    pub(crate) replicas: [Keeper; 2],
    tls: [Arc<Tls>; 2],
    pub(crate) metrics: Arc<Metrics>,
}

pub(crate) fn names() -> Vec<String> {
    ["wattlane.ns.svc", "127.0.0.1"].map(str::to_owned).to_vec()
}

fn tls() -> Arc<Tls> {
    let made = ephemeral(&["nobody".to_owned()]).expect("makes");
    let options = TlsOptions {
        cert: Material::Text(made.pair.cert),
        key: Material::Text(made.pair.key),
        client_ca: Some(Material::Text(made.ca_cert)),
        client_names: vec![],
        admission_names: vec![],
    };
    Arc::new(Tls::load(options).expect("loads"))
}

fn replica(
    store: &Arc<Store>,
    clock: &Arc<AtomicI64>,
    metrics: &Arc<Metrics>,
    (jitter, tls): (f64, Arc<Tls>),
) -> Keeper {
    let settings = Settings {
        secret: NamespacedName::new("ns", "certs"),
        client: Some(NamespacedName::new("ns", "client")),
        webhooks: "wattlane".to_owned(),
        names: names(),
        lifetimes: Lifetimes::new(AUTHORITY, OVERLAP, LEAF).expect("fit"),
    };
    let clock = clock.clone();
    Keeper::new(
        settings,
        store.clone(),
        Box::new(move || clock.load(Ordering::Relaxed)),
        jitter,
        tls,
        metrics.clone(),
        Arc::new(Readiness::new(metrics.clone(), None)),
    )
}

impl World {
    pub(crate) fn new() -> Self {
        let store = Arc::new(Store::default());
        let clock = Arc::new(AtomicI64::new(START));
        let metrics = Arc::new(Metrics::new().expect("registers"));
        let tls = [tls(), tls()];
        let replicas = [0, 1].map(|at| replica(&store, &clock, &metrics, ([0.0, 0.7][at], tls[at].clone())));
        Self {
            store,
            clock,
            replicas,
            tls,
            metrics,
        }
    }

    pub(crate) fn now(&self) -> i64 {
        self.clock.load(Ordering::Relaxed)
    }

    pub(crate) fn pass(&self, seconds: i64) {
        self.clock.fetch_add(seconds, Ordering::Relaxed);
    }

    /// Each looks once, and has nothing to complain of.
    pub(crate) async fn look(&mut self) {
        for replica in &mut self.replicas {
            assert_eq!(replica.look().await, [""; 0]);
        }
    }

    /// Nothing is left to do after that.
    pub(crate) async fn settle(&mut self) {
        self.look().await;
        self.look().await;
    }

    /// What the replicas serve, each thing once: to verify is slow.
    pub(crate) fn in_use(&self) -> Vec<&InUse> {
        let mut all: Vec<_> = self.replicas.iter().filter_map(Keeper::in_use).collect();
        all.dedup();
        all
    }

    /// What kube-apiserver would say of every replica that serves, by the caBundle of either webhook as it is now.
    pub(crate) fn apiserver_is_well(&self) -> Result<(), String> {
        let [a, b] = [self.store.bundle(0), self.store.bundle(1)];
        for used in self.in_use() {
            for bundle in if a == b { vec![&a] } else { vec![&a, &b] } {
                trust::serves(bundle, used.cert.as_bytes(), &names(), self.now())
                    .map_err(|e| format!("webhook: {e:#}"))?;
            }
        }
        Ok(())
    }

    /// What would be said of a client by every replica.
    pub(crate) fn may_call(&self, client: &str) -> Result<(), String> {
        for used in self.in_use() {
            let trusted = trust::authorities(used.bundle.as_bytes());
            trust::calls(&trusted, client.as_bytes(), self.now()).map_err(|e| format!("client: {e:#}"))?;
        }
        Ok(())
    }

    /// What a server takes for a path of admission.
    pub(crate) fn paths(&self, at: usize) -> &Paths {
        self.tls[at].paths()
    }

    /// The sum of `wattlane_tls_rotations_total` over what the two labels name.
    pub(crate) fn count(&self, action: &str, outcome: &str) -> f64 {
        self.metric(&format!(
            "wattlane_tls_rotations_total{{action=\"{action}\",outcome=\"{outcome}\"}}"
        ))
    }

    pub(crate) fn metric(&self, series: &str) -> f64 {
        let page = self.metrics.render();
        let value = page.lines().find_map(|l| l.strip_prefix(series)?.strip_prefix(' '));
        value.expect("a series").parse().expect("a number")
    }
}
