//! Percentiles of one series of samples, and the middle of several measurements.

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

/// The middle one; of an even number the mean of the middle two. None: there is none that is a number.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let sorted = ascending(values);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some((lower + upper) / 2.0)
}

/// Without those of which there is nothing to say (NaN).
fn ascending(values: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Of the same measurement several times: median, range, and each value in its turn (null: not a number).
pub(crate) fn spread(values: &[f64]) -> Value {
    let sorted = ascending(values);
    json!({"median": median(values), "least": sorted.first(), "most": sorted.last(), "samples": values})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_an_even_number_is_between_two() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[f64::NAN]), None);
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
        assert_eq!(median(&[9.0, 1.0, f64::NAN, 2.0]), Some(2.0));
        assert_eq!(median(&[9.0, 1.0, 4.0, 2.0]), Some(3.0));
    }

    #[test]
    fn a_spread_keeps_each_value() {
        let expected = json!({"median": 2.0, "least": 1.0, "most": 3.0, "samples": [3.0, null, 1.0]});
        assert_eq!(spread(&[3.0, f64::NAN, 1.0]), expected);
    }

    #[test]
    fn quantiles_are_of_the_nearest_rank() {
        let series = Series::new((1..=200).rev().map(Duration::from_millis).collect(), Duration::ZERO, 0);
        assert_eq!([0.5, 0.99, 1.0].map(|q| series.quantile(q)), [100.0, 198.0, 200.0]);
    }
}
