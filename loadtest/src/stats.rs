//! Percentiles of one series of samples.

use std::time::Duration;

use serde_json::{Value, json};

pub(crate) struct Series {
    sorted: Vec<Duration>,
    /// Wall time of the whole series.
    pub(crate) took: Duration,
    pub(crate) response_bytes: usize,
}

impl Series {
    pub(crate) fn new(mut samples: Vec<Duration>, took: Duration, response_bytes: usize) -> Self {
        samples.sort_unstable();
        Self {
            sorted: samples,
            took,
            response_bytes,
        }
    }

    /// In milliseconds; `q` from 0 to 1 (nearest rank).
    pub(crate) fn quantile(&self, q: f64) -> f64 {
        let rank = (q * self.sorted.len() as f64).ceil() as usize;
        self.sorted
            .get(rank.saturating_sub(1))
            .map_or(0.0, |d| d.as_secs_f64() * 1e3)
    }

    pub(crate) fn len(&self) -> usize {
        self.sorted.len()
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.sorted.len() as f64 / self.took.as_secs_f64()
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "requests": self.sorted.len(), "p50Ms": self.quantile(0.5), "p99Ms": self.quantile(0.99),
            "p999Ms": self.quantile(0.999), "perSecond": self.per_second(), "responseBytes": self.response_bytes,
            "samplesMicros": self.sorted.iter().map(|d| d.as_micros() as u64).collect::<Vec<_>>(),
        })
    }
}

/// Of the same measurement, several times.
pub(crate) fn median_and_range(mut values: Vec<f64>) -> Value {
    values.sort_by(f64::total_cmp);
    json!({"median": values.get(values.len() / 2), "lowest": values.first(), "highest": values.last()})
}
