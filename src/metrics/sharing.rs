//! Metrics of devices that pods share: how many there are, and the slots that are left by node and pool.

use std::collections::BTreeMap;

use prometheus::{IntGauge, IntGaugeVec, Opts, Registry};

use super::series::Series;

/// Nodes and pools with series of their own.
const MOST: usize = 256;

pub(super) struct Sharing {
    devices: IntGauge,
    left: IntGaugeVec,
    /// Node and pool.
    series: Series<String, 2>,
}

impl Sharing {
    pub(super) fn new(r: &Registry) -> prometheus::Result<Self> {
        let devices = IntGauge::new(
            "wattlane_shared_claims",
            "Allocated claims that several pods share; the first 256 nodes and pools have series of their slots.",
        )?;
        let left = IntGaugeVec::new(
            Opts::new(
                "wattlane_share_slots_left",
                "Slots left on shared devices, reservations and holds taken off.",
            ),
            &["node", "pool"],
        )?;
        r.register(Box::new(devices.clone()))?;
        r.register(Box::new(left.clone()))?;
        Ok(Self {
            devices,
            left,
            series: Series::default(),
        })
    }
}

impl super::Metrics {
    /// The allocated shared claims as they are now: node, pool and slots left. Series of what is gone go too.
    pub fn sharing(&self, claims: impl Iterator<Item = (String, String, usize)>) {
        let Sharing { devices, left, series } = &self.sharing;
        let mut sums: BTreeMap<[String; 2], i64> = BTreeMap::new();
        let mut count = 0;
        for (node, pool, slots) in claims {
            count += 1;
            *sums.entry([node, pool]).or_default() += i64::try_from(slots).unwrap_or(i64::MAX);
        }
        devices.set(count);
        series.only(sums.keys().take(MOST).cloned(), &[left]);
        for (labels, slots) in sums.into_iter().take(MOST) {
            left.with_label_values(&labels).set(slots);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::metrics::Metrics;

    #[test]
    fn slots_add_up_by_node_and_pool_and_go_with_their_claims() {
        let metrics = Metrics::new().expect("registers");
        let of = |node: &str, left| (node.to_owned(), format!("d/{node}"), left);
        metrics.sharing([of("n1", 2), of("n1", 3), of("n2", 0)].into_iter());
        let page = metrics.render();
        for line in [
            "wattlane_shared_claims 3",
            "wattlane_share_slots_left{node=\"n1\",pool=\"d/n1\"} 5",
            "wattlane_share_slots_left{node=\"n2\",pool=\"d/n2\"} 0",
        ] {
            assert!(page.lines().any(|l| l == line), "{line}:\n{page}");
        }
        metrics.sharing(std::iter::once(of("n2", 1)));
        let page = metrics.render();
        assert!(
            !page.contains("n1") && page.contains("wattlane_shared_claims 1\n"),
            "{page}"
        );
        metrics.sharing((0..300).map(|i| of(&format!("x{i:03}"), 1)));
        let page = metrics.render();
        assert!(page.contains("x255") && !page.contains("x256"), "bounded");
    }
}
