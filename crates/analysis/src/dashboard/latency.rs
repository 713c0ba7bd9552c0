//! Durations of very many calls in little space: how many fell into each of many narrow ranges, so that summaries can be added up.
//!
//! Each range is 2 % wider than the one before it, so a percentile that is read from the ranges is at most 1 % away from the exact one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How far a percentile may be away from the exact one, as a part of it.
pub const LATENCY_ERROR: f64 = 0.01;

/// Counts of durations by range.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LatencyHistogram {
    /// How many durations are in each range. A range is the exponent of its upper bound.
    #[serde(rename = "n")]
    counts: BTreeMap<u16, u64>,
    /// The sum of all durations, in microseconds.
    #[serde(rename = "s")]
    sum: u64,
    /// The longest, in microseconds.
    #[serde(rename = "m")]
    max: u64,
}

/// The ratio of the bounds of a range.
fn ratio() -> f64 {
    (1.0 + LATENCY_ERROR) / (1.0 - LATENCY_ERROR)
}

impl LatencyHistogram {
    /// Adds a duration in microseconds.
    pub fn add(&mut self, micros: u64) {
        // 0 and 1 are in the first range; the largest number is in range 2219.
        let range = if micros <= 1 { 0.0 } else { ((micros as f64).ln() / ratio().ln()).ceil() };
        *self.counts.entry(range as u16).or_default() += 1;
        self.sum = self.sum.saturating_add(micros);
        self.max = self.max.max(micros);
    }

    /// Adds the durations of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (range, count) in &other.counts {
            let own = self.counts.entry(*range).or_default();
            *own = own.saturating_add(*count);
        }
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.counts.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The sum of all durations, in microseconds.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The longest duration, in microseconds.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The duration that so many percent did not exceed, in microseconds; `None` without durations.
    pub fn percentile(&self, percent: u64) -> Option<u64> {
        let count = self.count();
        let rank = u128::from(count) * u128::from(percent.min(100));
        let rank = rank.div_ceil(100).max(1);
        let mut seen = 0_u128;
        for (range, in_range) in &self.counts {
            seen += u128::from(*in_range);
            if seen >= rank {
                // The middle of the range, in the sense that both bounds are equally far away in percent.
                let upper = ratio().powi(i32::from(*range));
                let middle = 2.0 * upper / (1.0 + ratio());
                return Some((middle.round() as u64).min(self.max));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_one_percent() {
        let mut histogram = LatencyHistogram::default();
        let mut durations: Vec<u64> = Vec::new();
        let mut random = 7_u64;
        for _ in 0..5000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // From microseconds to hours.
            let duration = 1_u64 << (random >> 59) | (random >> 33 & 0xff);
            durations.push(duration);
            histogram.add(duration);
        }
        durations.sort_unstable();
        for percent in [1, 25, 50, 90, 95, 99, 100] {
            let exact = durations[(durations.len() * percent).div_ceil(100) - 1] as f64;
            let read = histogram.percentile(percent as u64).unwrap() as f64;
            assert!((read - exact).abs() <= exact * LATENCY_ERROR + 1.0, "p{percent}: {read} for {exact}");
        }
        assert_eq!(histogram.max(), *durations.last().unwrap());
    }

    #[test]
    fn merging_is_the_same_as_adding() {
        let (mut one, mut other, mut both) =
            (LatencyHistogram::default(), LatencyHistogram::default(), LatencyHistogram::default());
        for micros in [0, 1, 2, 900, 1000, 5_000_000, u64::MAX] {
            one.add(micros);
            both.add(micros);
        }
        for micros in [3, 1000, u64::MAX] {
            other.add(micros);
            both.add(micros);
        }
        one.merge(&other);
        assert_eq!(one, both);
        assert_eq!((both.count(), both.sum()), (10, u64::MAX));
        assert_eq!(LatencyHistogram::default().percentile(50), None);
        let text = serde_json::to_string(&both).unwrap();
        assert_eq!(serde_json::from_str::<LatencyHistogram>(&text).unwrap(), both);
    }
}
