//! What is counted, and how: one method for each thing that can happen.

use std::time::Duration;

use super::{Admitted, Bound, GivenBack, MOST_DOMAINS, MOST_PARTITIONS, Metrics, Outcome, PolicyLoad, Port, Verb};
use prometheus::IntCounter;

use crate::audit;
use crate::cluster::{Call, CallStatus};
use crate::index::{HoldEnd, Kind};
use crate::model::{Name, Reason};

impl CallStatus for Metrics {
    fn called(&self, call: Call, took: Duration) {
        if let Some(histogram) = self.calls.get(call as usize) {
            histogram.observe(took.as_secs_f64());
        }
    }
}

/// To what was counted elsewhere.
fn catch_up(counter: &IntCounter, total: u64) {
    counter.inc_by(total.saturating_sub(counter.get()));
}

impl Metrics {
    /// Snapshots published since the start.
    pub fn published(&self, total: u64) {
        catch_up(&self.publications, total);
    }

    pub fn request(&self, verb: Verb, outcome: Outcome, took: Duration) {
        if let Some(histogram) = self.latency.get(verb as usize) {
            histogram.observe(took.as_secs_f64());
        }
        self.requests
            .with_label_values(&[verb.as_str(), outcome.as_str()])
            .inc();
    }

    /// Nodes one filter let pass.
    pub fn nodes_fit(&self, count: usize) {
        self.fits.inc_by(count as u64);
    }

    /// Nodes one filter refused for a reason.
    pub fn nodes_refused(&self, reason: Reason, count: usize) {
        self.verdicts.with_label_values(&[reason.as_str()]).inc_by(count as u64);
    }

    /// Searches that ended at their step limit, in one of the verbs that search.
    pub fn searches_cut(&self, verb: Verb, count: u32) {
        if count > 0 {
            self.searches_cut
                .with_label_values(&[verb.as_str()])
                .inc_by(count.into());
        }
    }

    /// The policy whose text has this hash is in force from this time on (seconds since the epoch).
    pub fn policy_in_force(&self, hash: i64, since: i64) {
        self.policy_hash.set(hash);
        self.policy_since.set(since);
    }

    /// The policy's file was read, or could not be.
    pub fn policy_read(&self, how: PolicyLoad) {
        self.policy_loads.with_label_values(&[how.as_str()]).inc();
        self.policy_wrong.set(i64::from(how != PolicyLoad::Taken));
    }

    pub fn bind(&self, outcome: Bound) {
        self.binds.with_label_values(&[outcome.as_str()]).inc();
    }

    /// Holds that ended so since the start.
    pub fn holds_ended(&self, how: HoldEnd, count: u64) {
        catch_up(&self.holds_ended.with_label_values(&[how.as_str()]), count);
    }

    pub fn given_back(&self, outcome: GivenBack) {
        self.given_back.with_label_values(&[outcome.as_str()]).inc();
    }

    pub fn admission(&self, outcome: Admitted) {
        self.admissions.with_label_values(&[outcome.as_str()]).inc();
    }

    /// Why pods are left alone: the whole closed set, which admission owns. Its series exist from then on.
    pub fn preset_skips(&self, reasons: impl IntoIterator<Item = &'static str>) {
        for reason in reasons {
            self.skips.with_label_values(&[reason]);
        }
    }

    /// A pod that admission left alone; the reason is one of `admission::Skip`.
    pub fn skipped(&self, reason: &'static str) {
        self.skips.with_label_values(&[reason]).inc();
    }

    /// What becomes of templates nobody needs: the closed set, as for skips.
    pub fn preset_swept(&self, outcomes: impl IntoIterator<Item = &'static str>) {
        for outcome in outcomes {
            self.swept.with_label_values(&[outcome]);
        }
    }

    pub fn swept(&self, outcome: &'static str) {
        self.swept.with_label_values(&[outcome]).inc();
    }

    pub fn watch_restarted(&self, kind: Kind) {
        self.watch_restarts.with_label_values(&[kind.as_str()]).inc();
    }

    pub fn watch_undecodable(&self, kind: Kind) {
        self.watch_undecodable.with_label_values(&[kind.as_str()]).inc();
    }

    /// A connection closed so that others could have its seat, or because none was free.
    pub fn connection_shed(&self, port: Port) {
        self.connections_shed.with_label_values(&[port.as_str()]).inc();
    }

    pub fn tls_reload(&self, taken: bool) {
        let outcome = if taken { "taken" } else { "refused" };
        self.tls_reloads.with_label_values(&[outcome]).inc();
    }

    /// Where the election stands: whether this replica may bind, and what has happened since the start.
    pub fn leadership(&self, leads: bool, gained: u64, lost: u64, renew_failures: u64, label_failures: u64) {
        self.leader.set(i64::from(leads));
        let gain = self.leader_changes.with_label_values(&["gained"]);
        let loss = self.leader_changes.with_label_values(&["lost"]);
        for (counter, total) in [
            (&gain, gained),
            (&loss, lost),
            (&self.lease_failures, renew_failures),
            (&self.label_failures, label_failures),
        ] {
            catch_up(counter, total);
        }
    }

    /// An action on the certificates of the Secret and how it ended, of the closed sets in `labels`.
    pub fn tls_rotation(&self, action: &'static str, outcome: &'static str) {
        self.tls_rotations.with_label_values(&[action, outcome]).inc();
    }

    /// The power domains as they are now: `label=value`, budget and use in watts, and whether all that is in use is
    /// known. Series of domains that are gone go too.
    pub fn power<'d>(&self, domains: impl Iterator<Item = (String, u64, u64, bool)> + 'd) {
        let mut domains: Vec<_> = domains.collect();
        domains.sort();
        self.power_domains.set(i64::try_from(domains.len()).unwrap_or(i64::MAX));
        domains.truncate(MOST_DOMAINS);
        let gauges = [&self.power_budget, &self.power_used, &self.power_headroom];
        self.domain_series.only(domains.iter().map(|d| [d.0.clone()]), &gauges);
        let watts = |w: u64| i64::try_from(w).unwrap_or(i64::MAX);
        for (domain, budget, used, known) in domains {
            let headroom = watts(budget).saturating_sub(watts(used));
            let headroom = if known { headroom } else { headroom.min(0) };
            for (gauge, value) in gauges.iter().zip([watts(budget), watts(used), headroom]) {
                gauge.with_label_values(&[&domain]).set(value);
            }
        }
    }

    /// What still fits, by node and profile. Series of nodes and profiles that are gone go too.
    pub fn partitions(&self, mut fits: Vec<(Name, Name, u32)>) {
        fits.sort();
        self.partition_series.set(i64::try_from(fits.len()).unwrap_or(i64::MAX));
        fits.truncate(MOST_PARTITIONS);
        let now = fits.iter().map(|f| [f.0.clone(), f.1.clone()]);
        self.fit_series.only(now, &[&self.partitions_fit]);
        for (node, profile, count) in fits {
            self.partitions_fit
                .with_label_values(&[&*node, &*profile])
                .set(count.into());
        }
    }

    /// What the audit found now, counted by kind; nothing on a replica that does not look.
    pub fn audited(&self, findings: &[audit::Finding]) {
        for kind in audit::Kind::ALL {
            let count = findings.iter().filter(|f| f.kind == kind).count();
            let gauge = self.audit_findings.with_label_values(&[kind.as_str()]);
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}
