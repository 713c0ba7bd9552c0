//! The performance goals of the project, each compared with the numbers of the same run.
//!
//! Goals are ratios to peers and to the bare limit, because absolute times move from machine to machine.
//! A goal whose numbers are missing is reported as not measured, never as reached.

use serde_json::{Value, json};

use crate::report::results::{Results, Row, TreeResults, median, ms};
use crate::systems::{ALL, GIT, is_peer};

/// How a goal came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoalOutcome {
    /// Reached.
    Pass,
    /// Missed.
    Miss,
    /// Some number is missing.
    NotMeasured,
}

/// One goal with its outcome.
#[derive(Clone, Debug)]
pub struct Goal {
    /// The goal, in words.
    pub description: String,
    /// How it came out.
    pub outcome: GoalOutcome,
    /// The measured ratio or value.
    pub measured: String,
}

impl Goal {
    /// The outcome as printed.
    pub fn outcome_label(&self) -> &'static str {
        match self.outcome {
            GoalOutcome::Pass => "PASS",
            GoalOutcome::Miss => "MISS",
            GoalOutcome::NotMeasured => "not measured",
        }
    }
}

/// Goals as JSON.
pub fn to_json(goals: &[Goal]) -> Value {
    let goal_json = |goal: &Goal| json!({ "goal": goal.description, "outcome": goal.outcome_label(), "measured": goal.measured });
    goals.iter().map(goal_json).collect()
}

/// Judges a run.
pub fn judge(results: &Results) -> Vec<Goal> {
    let mut goals = Vec::new();
    for tree in &results.trees {
        for operation in ["none", "change-1", "change-10"] {
            let Some(row) = tree.row(operation) else { continue };
            goals.push(near_limit(tree, row));
            goals.push(times_faster(
                tree,
                row,
                2.0,
                "the fastest peer",
                ALL.into_iter().filter(|name| is_peer(name)),
            ));
            goals.push(times_faster(tree, row, 3.0, "Cline's way", ["cline"].into_iter()));
        }
        if let Some(row) = tree.row("change-1000") {
            goals.push(times_faster(tree, row, 5.0, "every git way", GIT.into_iter()));
        }
        if let Some(row) = tree.row("first") {
            goals.push(times_faster(
                tree,
                row,
                5.0,
                "Cline's and Gemini's way",
                ["cline", "gemini"].into_iter(),
            ));
            goals.push(times_faster(tree, row, 1.0, "opencode's borrowing way", ["opencode"].into_iter()));
        }
        if let Some(row) = tree.row("restore-1000") {
            goals.push(times_faster(tree, row, 1.0, "every git way", GIT.into_iter()));
        }
        if let Some(row) = tree.row("path") {
            goals.push(times_faster(tree, row, 1.0, "opencode's 1-file restore", ["opencode"].into_iter()));
        }
    }
    goals.extend(large_file(results));
    goals.extend(store_size(results));
    if let Some(tree) = results.middle_tree() {
        for (operation, limit) in [("change-10", 100.0), ("restore-10", 200.0)] {
            if let Some(row) = tree.row(operation) {
                let description = format!("{}, {operation}: under {limit} ms", tree.name);
                goals.push(at_most(description, row.median_wall("stepback"), limit, "ms"));
            }
        }
    }
    goals.extend(memory_goal(results));
    goals
}

fn near_limit(tree: &TreeResults, row: &Row) -> Goal {
    let description = format!("{}, {}: at most 1.3 × the bare limit + 5 ms", tree.name, row.operation);
    match (row.median_wall("stepback"), row.median_wall("limit")) {
        (Some(stepback_ms), Some(limit_ms)) => {
            let allowed = limit_ms * 1.3 + 5.0;
            let measured = format!(
                "{stepback_ms:.1} ms, {allowed:.1} ms allowed ({:.2} × the limit)",
                stepback_ms / limit_ms
            );
            Goal { description, outcome: judge_outcome(stepback_ms <= allowed), measured }
        }
        _ => not_measured(description),
    }
}

fn times_faster<'a>(
    tree: &TreeResults,
    row: &Row,
    factor: f64,
    than: &str,
    systems: impl Iterator<Item = &'a str>,
) -> Goal {
    let speed =
        if factor > 1.0 { format!("at least {factor} × faster than") } else { "no slower than".to_owned() };
    let description = format!("{}, {}: {speed} {than}", tree.name, row.operation);
    match (row.median_wall("stepback"), row.fastest(systems)) {
        (Some(stepback_ms), Some((peer, peer_ms))) => {
            let ratio = peer_ms / stepback_ms;
            let measured = format!("{ratio:.2} × ({stepback_ms:.1} ms, {peer} {peer_ms:.1} ms)");
            Goal { description, outcome: judge_outcome(ratio >= factor), measured }
        }
        _ => not_measured(description),
    }
}

fn large_file(results: &Results) -> Vec<Goal> {
    if results.large_file.is_empty() {
        return Vec::new();
    }
    let row_of = |system: &str| results.large_file.iter().find(|row| row.system == system);
    let wall =
        |system: &str| row_of(system).and_then(|row| median(row.samples.iter().map(|cost| ms(cost.wall))));
    let mut goals = Vec::new();
    for peer in ["restic", "borg"] {
        let description = format!("one byte in 200 MB: at least 10 × faster than {peer}");
        goals.push(match (wall("stepback"), wall(peer)) {
            (Some(stepback_ms), Some(peer_ms)) => Goal {
                description,
                outcome: judge_outcome(peer_ms / stepback_ms >= 10.0),
                measured: format!("{:.1} × ({stepback_ms:.1} ms, {peer_ms:.1} ms)", peer_ms / stepback_ms),
            },
            _ => not_measured(description),
        });
    }
    let added = row_of("stepback").and_then(|row| row.added.iter().max());
    let megabytes = added.map(|bytes| *bytes as f64 / 1e6);
    goals.push(at_most("one byte in 200 MB: at most 1 MB stored".to_owned(), megabytes, 1.0, "MB"));
    goals
}

fn store_size(results: &Results) -> Option<Goal> {
    let first = results.stores.first()?;
    let description = format!(
        "bytes on disk after {} checkpoints of 10 files: no more than the smallest peer",
        first.checkpoints
    );
    let size = |allocated: u64| allocated as f64 / 1e6;
    let stepback_store = results.stores.iter().find(|store| store.system == "stepback");
    let peer =
        results.stores.iter().filter(|store| is_peer(store.system)).min_by_key(|store| store.size.allocated);
    Some(match (stepback_store, peer) {
        (Some(stepback_store), Some(peer)) => Goal {
            description,
            outcome: judge_outcome(stepback_store.size.allocated <= peer.size.allocated),
            measured: format!(
                "{:.1} MB, {} {:.1} MB",
                size(stepback_store.size.allocated),
                peer.system,
                size(peer.size.allocated)
            ),
        },
        _ => not_measured(description),
    })
}

fn memory_goal(results: &Results) -> Option<Goal> {
    let tree = results.largest_tree()?;
    let row = tree.row("first")?;
    let description = format!("{}, first: under 200 MB of memory", tree.name);
    let peak = row.samples.get("stepback").and_then(|costs| costs.iter().map(|cost| cost.peak_memory).max());
    Some(at_most(description, peak.map(|bytes| bytes as f64 / 1e6), 200.0, "MB"))
}

/// A value that must not be above a limit.
pub fn at_most(description: String, value: Option<f64>, limit: f64, unit: &str) -> Goal {
    match value {
        Some(value) => Goal {
            description,
            outcome: judge_outcome(value <= limit),
            measured: format!("{value:.1} {unit}"),
        },
        None => not_measured(description),
    }
}

/// A goal that is reached by a value of at least `limit`.
pub fn at_least(description: String, value: Option<f64>, limit: f64, unit: &str) -> Goal {
    match value {
        Some(value) => Goal {
            description,
            outcome: judge_outcome(value >= limit),
            measured: format!("{value:.0} {unit}"),
        },
        None => not_measured(description),
    }
}

fn judge_outcome(reached: bool) -> GoalOutcome {
    if reached { GoalOutcome::Pass } else { GoalOutcome::Miss }
}

fn not_measured(description: String) -> Goal {
    Goal { description, outcome: GoalOutcome::NotMeasured, measured: "–".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::clock::Cost;
    use std::time::Duration;

    fn results(operation: &str, times: &[(&'static str, u64)]) -> Results {
        let mut row = Row { operation: operation.to_owned(), ..Row::default() };
        for (system, milliseconds) in times {
            let cost = Cost { wall: Duration::from_millis(*milliseconds), ..Cost::default() };
            row.samples.insert(system, vec![cost]);
        }
        let tree = TreeResults { name: "small".to_owned(), files: 300, rows: vec![row] };
        Results { trees: vec![tree], ..Results::default() }
    }

    fn outcomes(results: &Results) -> Vec<GoalOutcome> {
        judge(results).iter().map(|goal| goal.outcome).collect()
    }

    #[test]
    fn ratios_are_taken_to_the_limit_the_fastest_peer_and_cline() {
        use GoalOutcome::{Miss, Pass};
        let good = results("none", &[("stepback", 15), ("limit", 10), ("cline", 60), ("opencode", 40)]);
        assert_eq!(outcomes(&good), [Pass, Pass, Pass]);
        let bad = results("none", &[("stepback", 19), ("limit", 10), ("cline", 50), ("opencode", 37)]);
        assert_eq!(outcomes(&bad), [Miss, Miss, Miss]);
    }

    #[test]
    fn a_missing_number_is_never_a_pass() {
        let unknown = results("first", &[("cline", 60), ("opencode", 40)]);
        assert!(outcomes(&unknown).iter().all(|outcome| *outcome == GoalOutcome::NotMeasured));
    }
}
