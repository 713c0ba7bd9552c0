//! The measurements of a run, and their statistics.
//!
//! Every sample is kept, so that a stored result can be compared with goals later; the report uses medians.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::measure::clock::Cost;
use crate::measure::manifest::DiskUse;

/// All samples of one operation on one tree, by system.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// The operation's name, as `--only` takes it.
    pub operation: String,
    /// The samples of each system, in the order taken.
    pub samples: BTreeMap<&'static str, Vec<Cost>>,
}

/// The rows of one tree.
#[derive(Clone, Debug, Default)]
pub struct TreeResults {
    /// The tree's name.
    pub name: String,
    /// Its number of files.
    pub files: usize,
    /// One row per operation.
    pub rows: Vec<Row>,
}

/// One byte changed in a large file: time and growth of the store.
#[derive(Clone, Debug)]
pub struct LargeFile {
    /// The system.
    pub system: &'static str,
    /// The checkpoint of each repetition.
    pub samples: Vec<Cost>,
    /// Bytes the store grew by in each repetition.
    pub added: Vec<u64>,
}

/// A store after many small checkpoints.
#[derive(Clone, Debug)]
pub struct StoreSize {
    /// The system.
    pub system: &'static str,
    /// How many checkpoints followed the first.
    pub checkpoints: usize,
    /// The size right after the last.
    pub size: DiskUse,
    /// The size after the system's own garbage collection, where it has one.
    pub compacted: Option<DiskUse>,
}

/// Everything a run of `bench files` found.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// Per tree.
    pub trees: Vec<TreeResults>,
    /// The large file.
    pub large_file: Vec<LargeFile>,
    /// Stores after many checkpoints, measured on the tree with this name.
    pub stores: Vec<StoreSize>,
    /// Problems with stepback; any entry makes the run fail.
    pub failures: Vec<String>,
    /// What went wrong with peers; only told.
    pub notes: Vec<String>,
}

impl Results {
    /// Records a problem of a system.
    pub fn record_problem(&mut self, system: &str, problem: String) {
        let list = if system == "stepback" { &mut self.failures } else { &mut self.notes };
        let line = format!("{system}: {problem}");
        if !list.contains(&line) {
            eprintln!("  ! {line}");
            list.push(line);
        }
    }

    /// The tree whose size is nearest to the middle one of the generated trees.
    pub fn middle_tree(&self) -> Option<&TreeResults> {
        self.trees.iter().min_by_key(|tree| tree.files.abs_diff(8_000))
    }

    /// The tree with the most files.
    pub fn largest_tree(&self) -> Option<&TreeResults> {
        self.trees.iter().max_by_key(|tree| tree.files)
    }

    /// All measurements as JSON; times in milliseconds, sizes in bytes.
    pub fn to_json(&self) -> Value {
        let size = |size: &DiskUse| json!({ "allocated": size.allocated, "apparent": size.apparent, "linked": size.linked });
        json!({
            "trees": self.trees.iter().map(TreeResults::to_json).collect::<Vec<_>>(),
            "large_file": self.large_file.iter().map(|row| json!({
                "system": row.system, "added_bytes": row.added, "samples": samples_json(&row.samples),
            })).collect::<Vec<_>>(),
            "stores": self.stores.iter().map(|store| json!({
                "system": store.system, "checkpoints": store.checkpoints, "size": size(&store.size),
                "compacted": store.compacted.as_ref().map(size),
            })).collect::<Vec<_>>(),
            "failures": self.failures,
            "notes": self.notes,
        })
    }
}

impl TreeResults {
    /// The row of an operation.
    pub fn row(&self, operation: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.operation == operation)
    }

    fn to_json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let systems: BTreeMap<&str, Value> =
                row.samples.iter().map(|(system, costs)| (*system, samples_json(costs))).collect();
            json!({ "operation": row.operation, "systems": systems })
        });
        json!({ "name": self.name, "files": self.files, "operations": rows.collect::<Vec<_>>() })
    }
}

impl Row {
    /// The median wall time of a system in milliseconds.
    pub fn median_wall(&self, system: &str) -> Option<f64> {
        self.samples.get(system).and_then(|costs| median(costs.iter().map(|cost| ms(cost.wall))))
    }

    /// The median CPU time of a system in milliseconds.
    pub fn median_cpu(&self, system: &str) -> Option<f64> {
        self.samples.get(system).and_then(|costs| median(costs.iter().map(|cost| ms(cost.cpu))))
    }

    /// The fastest of some systems, with its median wall time.
    pub fn fastest<'a>(&self, systems: impl Iterator<Item = &'a str>) -> Option<(&'a str, f64)> {
        systems
            .filter_map(|system| Some((system, self.median_wall(system)?)))
            .min_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// A duration in milliseconds.
pub fn ms(duration: std::time::Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// The middle value; of an even number of values the mean of the middle two.
pub fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

/// The value below which `percent` of all values lie, by the nearest-rank method.
pub fn percentile(values: &[f64], percent: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// Samples as JSON, rounded to microseconds.
pub fn samples_json(costs: &[Cost]) -> Value {
    let rounded = |value: f64| (value * 1e3).round() / 1e3;
    let list = |value: fn(&Cost) -> f64| costs.iter().map(|cost| rounded(value(cost))).collect::<Vec<_>>();
    json!({
        "wall_ms": list(|cost| ms(cost.wall)),
        "cpu_ms": list(|cost| ms(cost.cpu)),
        "peak_memory_bytes": costs.iter().map(|cost| cost.peak_memory).max(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_percentiles() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), Some(2.5));
        assert_eq!(median(std::iter::empty()), None);
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(percentile(&hundred, 50.0), Some(50.0));
        assert_eq!(percentile(&hundred, 99.0), Some(99.0));
        assert_eq!(percentile(&[7.0], 90.0), Some(7.0));
        assert_eq!(percentile(&[], 90.0), None);
    }

    #[test]
    fn only_stepback_failures_fail_a_run() {
        let mut results = Results::default();
        results.record_problem("cline", "left a file behind".to_owned());
        results.record_problem("stepback", "wrong mode".to_owned());
        results.record_problem("stepback", "wrong mode".to_owned());
        assert_eq!((results.notes.len(), results.failures.len()), (1, 1));
    }
}
