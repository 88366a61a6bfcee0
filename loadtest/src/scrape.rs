//! How long requests took inside the server, by its own histogram: from a request's head to its answer, the body and what
//! there is to wait for included, TLS not.

use serde_json::{Value, json};

use crate::client::plain;
use crate::server::Server;

/// Cumulative counts by upper bound, in seconds, and the sum of all durations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inside {
    buckets: Vec<(f64, f64)>,
    sum: f64,
}

impl Inside {
    pub(crate) async fn scrape(server: &Server, verb: &str) -> anyhow::Result<Self> {
        let (_, page) = plain(server.admin, "/metrics").await?;
        Ok(Self::read(
            &page,
            "wattlane_request_duration_seconds",
            &format!("verb=\"{verb}\""),
        ))
    }

    /// The series of a page that carries the label.
    pub(crate) fn read(page: &str, name: &str, label: &str) -> Self {
        let mut inside = Self::default();
        for line in page.lines().filter(|l| l.contains(label)) {
            let Some(rest) = line.strip_prefix(name).and_then(|l| l.strip_prefix('_')) else {
                continue;
            };
            let value = line.rsplit(' ').next().and_then(|v| v.parse().ok()).unwrap_or(0.0);
            let bound = line.split("le=\"").nth(1).and_then(|l| l.split('"').next());
            match bound {
                Some("+Inf") => inside.buckets.push((f64::INFINITY, value)),
                Some(bound) => inside.buckets.extend(bound.parse().ok().map(|b| (b, value))),
                None if rest.starts_with("sum") => inside.sum = value,
                None => {}
            }
        }
        inside
    }

    /// What came since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let count = |at: usize| before.buckets.get(at).map_or(0.0, |b| b.1);
        let buckets = self.buckets.iter().enumerate();
        Self {
            buckets: buckets.map(|(at, (bound, n))| (*bound, n - count(at))).collect(),
            sum: self.sum - before.sum,
        }
    }

    /// Of both together.
    pub(crate) fn plus(mut self, other: &Self) -> Self {
        // The first has no buckets yet.
        self.buckets.resize(other.buckets.len(), (0.0, 0.0));
        for (ours, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *ours = (theirs.0, ours.1 + theirs.1);
        }
        self.sum += other.sum;
        self
    }

    /// Upper bound of the bucket that holds the quantile, in ms.
    fn at_most(&self, q: f64) -> Option<f64> {
        let total = self.buckets.last()?.1;
        let holds = self.buckets.iter().find(|(_, n)| *n >= q * total && total > 0.0)?;
        Some(holds.0 * 1e3)
    }

    /// Mean, and bounds of the median and the 99th percentile, all in ms.
    pub(crate) fn json(&self) -> Value {
        let total = self.buckets.last().map_or(0.0, |b| b.1);
        json!({"count": total, "meanMs": (total > 0.0).then(|| self.sum / total * 1e3),
            "p50MsAtMost": self.at_most(0.5), "p99MsAtMost": self.at_most(0.99)})
    }
}

#[cfg(test)]
mod tests {
    use super::Inside;

    #[test]
    fn what_came_in_between_is_added_up() {
        let page = |counts: [u32; 3], sum: f64| {
            let bounds = ["0.001", "0.002", "+Inf"];
            let lines = bounds
                .iter()
                .zip(counts)
                .map(|(le, n)| format!("d_bucket{{verb=\"f\",le=\"{le}\"}} {n}\n"));
            let page = lines.collect::<String>() + &format!("d_sum{{verb=\"f\"}} {sum}\nd_sum{{verb=\"g\"}} 9\n");
            Inside::read(&page, "d", "verb=\"f\"")
        };
        let since = page([5, 15, 15], 0.04).since(&page([5, 5, 5], 0.01));
        let both = Inside::default().plus(&since).plus(&page([10, 10, 10], 0.01)).json();
        assert_eq!((&both["count"], &both["meanMs"]), (&20.0.into(), &2.0.into()));
        assert_eq!((&both["p50MsAtMost"], &both["p99MsAtMost"]), (&1.0.into(), &2.0.into()));
    }
}
