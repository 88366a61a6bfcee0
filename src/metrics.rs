//! Prometheus metrics and readiness. Owns its registry (no global one, so that tests and several services in a
//! process do not meet), and hands out counters whose labels come from closed sets only. Decides nothing.

mod labels;
mod readiness;
mod record;
mod series;
mod sharing;

use std::sync::Mutex;

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};

use crate::cluster::Call;
use crate::index::{HoldEnd, Kind};
use crate::model::{Name, Reason};

pub use labels::{Admitted, Bound, GivenBack, Outcome, PolicyLoad, Port, Verb};
pub use readiness::{Readiness, Unready};

type Sampler = Box<dyn Fn(&Metrics) + Send>;

/// The metrics of one service.
pub struct Metrics {
    registry: Registry,
    latency: Vec<Histogram>,
    calls: Vec<Histogram>,
    requests: IntCounterVec,
    verdicts: IntCounterVec,
    /// Verdicts that passed, which every filter adds to.
    fits: IntCounter,
    searches_cut: IntCounterVec,
    binds: IntCounterVec,
    admissions: IntCounterVec,
    policy_loads: IntCounterVec,
    policy_wrong: IntGauge,
    policy_hash: IntGauge,
    policy_since: IntGauge,
    pub snapshot_version: IntGauge,
    /// Seconds since a watch last showed a sign of life, the stalest of them.
    pub cache_age: prometheus::Gauge,
    publications: IntCounter,
    skips: IntCounterVec,
    swept: IntCounterVec,
    watch_restarts: IntCounterVec,
    watch_undecodable: IntCounterVec,
    watch_alive: IntGaugeVec,
    pub reservations: IntGauge,
    pub holds: IntGauge,
    holds_ended: IntCounterVec,
    given_back: IntCounterVec,
    pub refused_pods: IntGauge,
    pub pokes: IntCounter,
    /// Read, not counted here: see `Metrics::leadership`.
    leader: IntGauge,
    leader_changes: IntCounterVec,
    lease_failures: IntCounter,
    label_failures: IntCounter,
    audit_findings: IntGaugeVec,
    tls_reloads: IntCounterVec,
    pub tls_not_after: IntGauge,
    tls_rotations: IntCounterVec,
    /// When the CA that signs now expires, seconds since the epoch; 0: none is kept.
    pub tls_ca_not_after: IntGauge,
    /// From when on an announced CA signs, seconds since the epoch; 0: none is announced.
    pub tls_ca_switch: IntGauge,
    pub admission_closed: IntGauge,
    pub handshake_failures: IntCounter,
    pub connections: IntGauge,
    pub connections_total: IntCounter,
    connections_shed: IntCounterVec,
    power_budget: IntGaugeVec,
    power_used: IntGaugeVec,
    power_headroom: IntGaugeVec,
    power_domains: IntGauge,
    domain_series: series::Series<String, 1>,
    partitions_fit: IntGaugeVec,
    partition_series: IntGauge,
    /// Node and profile.
    fit_series: series::Series<Name, 2>,
    sharing: sharing::Sharing,
    samplers: Mutex<Vec<Sampler>>,
}

/// Power domains with series of their own; `wattlane_power_domains` says how many there are.
const MOST_DOMAINS: usize = 256;

/// Nodes times profiles with a series, in the order of the nodes' names.
const MOST_PARTITIONS: usize = 4096;

/// 50 µs to 10 s: filter's goal is below a millisecond, bind waits for the API server.
const BUCKETS: [f64; 19] = [
    0.00005, 0.0001, 0.0002, 0.0004, 0.0006, 0.0008, 0.001, 0.0015, 0.003, 0.006, 0.0125, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 10.0,
];

/// The verbs that look for devices.
const SEARCHING: [Verb; 3] = [Verb::Filter, Verb::Prioritize, Verb::Bind];

impl Metrics {
    /// # Errors
    /// A name registered twice or ill-formed: a mistake in this file, which its test would show.
    pub fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let r = &registry;
        let latency = HistogramVec::new(
            HistogramOpts::new(
                "wattlane_request_duration_seconds",
                "Time from a request's head to its answer, body included, by verb.",
            )
            .buckets(BUCKETS.to_vec()),
            &["verb"],
        )?;
        r.register(Box::new(latency.clone()))?;
        let calls = HistogramVec::new(
            HistogramOpts::new(
                "wattlane_api_call_duration_seconds",
                "Time of single calls to the Kubernetes API, watches apart, by kind.",
            )
            .buckets(BUCKETS.to_vec()),
            &["call"],
        )?;
        r.register(Box::new(calls.clone()))?;
        let verdicts = counters(
            r,
            "wattlane_node_verdicts_total",
            "What filter said of a node: fits, or the reason it does not.",
            &["reason"],
        )?;
        let build = gauges(r, "wattlane_build_info", "1, with the version as label.", &["version"])?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let metrics = Self {
            latency: Verb::ALL
                .iter()
                .map(|v| latency.with_label_values(&[v.as_str()]))
                .collect(),
            calls: Call::ALL
                .iter()
                .map(|c| calls.with_label_values(&[c.as_str()]))
                .collect(),
            requests: counters(
                r,
                "wattlane_requests_total",
                "Requests by verb and how they ended.",
                &["verb", "outcome"],
            )?,
            fits: verdicts.with_label_values(&["fits"]),
            verdicts,
            searches_cut: counters(
                r,
                "wattlane_searches_cut_total",
                "Searches of one node that ended at their step limit.",
                &["verb"],
            )?,
            binds: counters(r, "wattlane_binds_total", "Binds by how they ended.", &["outcome"])?,
            admissions: counters(
                r,
                "wattlane_admissions_total",
                "Admission reviews by what was done.",
                &["outcome"],
            )?,
            policy_loads: counters(
                r,
                "wattlane_policy_loads_total",
                "Policies that were read from the file, at the start and when it changed, by how that ended.",
                &["outcome"],
            )?,
            policy_wrong: gauge(
                r,
                "wattlane_policy_load_failed",
                "1 while the policy in the file is refused or unreadable, and an older one is in force.",
            )?,
            policy_hash: gauge(
                r,
                "wattlane_policy_hash",
                "Of the text of the policy in force: replicas with different numbers have different policies.",
            )?,
            policy_since: gauge(
                r,
                "wattlane_policy_load_timestamp_seconds",
                "When the policy in force was taken.",
            )?,
            snapshot_version: gauge(
                r,
                "wattlane_snapshot_version",
                "Version of the published snapshot; grows with every change.",
            )?,
            cache_age: registered(
                r,
                prometheus::Gauge::new(
                    "wattlane_cache_age_seconds",
                    "Seconds since the most silent watch showed a sign of life.",
                )?,
            )?,
            publications: counter(r, "wattlane_publications_total", "Snapshots published.")?,
            skips: counters(
                r,
                "wattlane_admission_skips_total",
                "Pods that admission left alone, by why.",
                &["reason"],
            )?,
            swept: counters(
                r,
                "wattlane_templates_swept_total",
                "Claim templates that no pod named any more, by what became of them.",
                &["outcome"],
            )?,
            watch_restarts: counters(
                r,
                "wattlane_watch_restarts_total",
                "Watches that broke and were started again.",
                &["kind"],
            )?,
            watch_undecodable: counters(
                r,
                "wattlane_watch_undecodable_total",
                "Watched objects that could not be read.",
                &["kind"],
            )?,
            watch_alive: gauges(
                r,
                "wattlane_watch_alive",
                "1 once the kind has been listed whole, and while it is not stale.",
                &["kind"],
            )?,
            reservations: gauge(
                r,
                "wattlane_reservations",
                "Reservations held: taken before an API write, not confirmed by the watch yet.",
            )?,
            holds: gauge(
                r,
                "wattlane_holds",
                "Devices held for pods that were sent to a node and not bound yet: holds.",
            )?,
            holds_ended: counters(
                r,
                "wattlane_holds_ended_total",
                "Holds by how they ended.",
                &["outcome"],
            )?,
            given_back: counters(
                r,
                "wattlane_given_back_total",
                "Pods that fit nowhere and hold devices on a node they were never bound to, by what became of these.",
                &["outcome"],
            )?,
            refused_pods: gauge(r, "wattlane_refused_pods", "Refused pods that wait to be poked.")?,
            pokes: counter(
                r,
                "wattlane_pokes_total",
                "Refused pods poked because they could fit now.",
            )?,
            leader: gauge(r, "wattlane_leader", "1 while this replica may bind.")?,
            leader_changes: counters(
                r,
                "wattlane_leader_changes_total",
                "Leadership gained and lost by this replica.",
                &["change"],
            )?,
            lease_failures: counter(
                r,
                "wattlane_lease_renew_failures_total",
                "Renewals of the Lease we held that failed or were not answered.",
            )?,
            label_failures: counter(
                r,
                "wattlane_leader_label_failures_total",
                "Failed tries to put the leader's label on our pod, or off.",
            )?,
            audit_findings: gauges(
                r,
                "wattlane_audit_findings",
                "What the last look of the audit found, and not only for a moment.",
                &["kind"],
            )?,
            tls_reloads: counters(
                r,
                "wattlane_tls_reloads_total",
                "New certificate files, taken or refused.",
                &["outcome"],
            )?,
            tls_not_after: gauge(
                r,
                "wattlane_tls_certificate_expiry_timestamp_seconds",
                "When the serving certificate expires.",
            )?,
            tls_rotations: counters(
                r,
                "wattlane_tls_rotations_total",
                "What was done about the certificates of the Secret, and how it ended.",
                &["action", "outcome"],
            )?,
            tls_ca_not_after: gauge(
                r,
                "wattlane_tls_ca_expiry_timestamp_seconds",
                "When the CA that signs now expires; 0 without --tls-secret.",
            )?,
            tls_ca_switch: gauge(
                r,
                "wattlane_tls_ca_switch_timestamp_seconds",
                "From when on an announced CA signs; 0 while none is announced.",
            )?,
            admission_closed: gauge(
                r,
                "wattlane_admission_closed",
                "1 while admission is asked by the token in its path only.",
            )?,
            handshake_failures: counter(
                r,
                "wattlane_tls_handshake_failures_total",
                "TLS handshakes that failed or took too long.",
            )?,
            connections: gauge(r, "wattlane_connections", "Open connections.")?,
            connections_total: counter(r, "wattlane_connections_total", "Connections accepted.")?,
            connections_shed: counters(
                r,
                "wattlane_connections_shed_total",
                "Connections closed because all seats were taken: the one used least, or the new one.",
                &["port"],
            )?,
            power_budget: gauges(
                r,
                "wattlane_power_budget_watts",
                "Budget of each power domain of the policy.",
                &["domain"],
            )?,
            power_used: gauges(
                r,
                "wattlane_power_used_watts",
                "Class watts of everything allocated, reserved or held in the power domain, each card once.",
                &["domain"],
            )?,
            power_headroom: gauges(
                r,
                "wattlane_power_headroom_watts",
                "Budget less what is used; below 0 where the budget was lowered, 0 where something of unknown watts is in use.",
                &["domain"],
            )?,
            power_domains: gauge(
                r,
                "wattlane_power_domains",
                "Power domains with a budget; the first 256 by name have series of their own.",
            )?,
            domain_series: series::Series::default(),
            partitions_fit: gauges(
                r,
                "wattlane_partitions_fit",
                "How many partitions of a profile alone still fit on a node, beside what is given.",
                &["node", "profile"],
            )?,
            partition_series: gauge(
                r,
                "wattlane_partition_series",
                "Profiles, summed over the nodes that have any; the first 4096 by node have a series of their own.",
            )?,
            fit_series: series::Series::default(),
            sharing: sharing::Sharing::new(r)?,
            samplers: Mutex::default(),
            registry,
        };
        metrics.preset();
        Ok(metrics)
    }

    /// Every series exists from the start: a rate over a counter that appears late misses its first step.
    fn preset(&self) {
        for verb in Verb::ALL {
            for outcome in Outcome::ALL {
                self.requests.with_label_values(&[verb.as_str(), outcome.as_str()]);
            }
        }
        for reason in Reason::ALL {
            self.verdicts.with_label_values(&[reason.as_str()]);
        }
        for verb in SEARCHING {
            self.searches_cut.with_label_values(&[verb.as_str()]);
        }
        for bound in Bound::ALL {
            self.binds.with_label_values(&[bound.as_str()]);
        }
        for admitted in Admitted::ALL {
            self.admissions.with_label_values(&[admitted.as_str()]);
        }
        for kind in Kind::ALL {
            self.watch_restarts.with_label_values(&[kind.as_str()]);
            self.watch_undecodable.with_label_values(&[kind.as_str()]);
            self.watch_alive.with_label_values(&[kind.as_str()]);
        }
        for load in PolicyLoad::ALL {
            self.policy_loads.with_label_values(&[load.as_str()]);
        }
        for end in HoldEnd::ALL {
            self.holds_ended.with_label_values(&[end.as_str()]);
        }
        for given in GivenBack::ALL {
            self.given_back.with_label_values(&[given.as_str()]);
        }
        for change in ["gained", "lost"] {
            self.leader_changes.with_label_values(&[change]);
        }
        self.audited(&[]);
        for action in labels::ROTATIONS {
            for outcome in labels::ROTATED {
                self.tls_rotations.with_label_values(&[action, outcome]);
            }
        }
        for port in Port::ALL {
            self.connections_shed.with_label_values(&[port.as_str()]);
        }
        for outcome in ["taken", "refused"] {
            self.tls_reloads.with_label_values(&[outcome]);
        }
    }

    /// Runs `sample` before every rendering: for values that are read rather than counted.
    pub fn on_render(&self, sample: impl Fn(&Self) + Send + 'static) {
        let mut samplers = self.samplers.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        samplers.push(Box::new(sample));
    }

    /// Prometheus text format.
    pub fn render(&self) -> String {
        {
            let samplers = self.samplers.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            samplers.iter().for_each(|s| s(self));
        }
        // Writing numbers into a string does not fail; should it ever, an empty page says so loudest.
        TextEncoder::new()
            .encode_to_string(&self.registry.gather())
            .unwrap_or_default()
    }
}

fn registered<C: prometheus::core::Collector + Clone + 'static>(r: &Registry, collector: C) -> prometheus::Result<C> {
    r.register(Box::new(collector.clone()))?;
    Ok(collector)
}

fn counter(r: &Registry, name: &str, help: &str) -> prometheus::Result<IntCounter> {
    registered(r, IntCounter::new(name, help)?)
}

fn counters(r: &Registry, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntCounterVec> {
    registered(r, IntCounterVec::new(Opts::new(name, help), labels)?)
}

fn gauge(r: &Registry, name: &str, help: &str) -> prometheus::Result<IntGauge> {
    registered(r, IntGauge::new(name, help)?)
}

fn gauges(r: &Registry, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntGaugeVec> {
    registered(r, IntGaugeVec::new(Opts::new(name, help), labels)?)
}

#[cfg(test)]
mod tests;
