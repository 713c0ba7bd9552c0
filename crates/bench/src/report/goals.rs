//! The performance goals of the project, each judged on the numbers of the same run.
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
    /// What is to be reached, and where.
    pub what: String,
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
    let one = |goal: &Goal| json!({ "goal": goal.what, "outcome": goal.outcome_label(), "measured": goal.measured });
    goals.iter().map(one).collect()
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
                let what = format!("{}, {operation}: under {limit} ms", tree.name);
                goals.push(at_most(what, row.median_wall("stepback"), limit, "ms"));
            }
        }
    }
    goals.extend(memory_goal(results));
    goals
}

fn near_limit(tree: &TreeResults, row: &Row) -> Goal {
    let what = format!("{}, {}: at most 1.3 × the bare limit + 5 ms", tree.name, row.operation);
    match (row.median_wall("stepback"), row.median_wall("limit")) {
        (Some(ours), Some(limit)) => {
            let allowed = limit * 1.3 + 5.0;
            let measured = format!("{ours:.1} ms, {allowed:.1} ms allowed ({:.2} × the limit)", ours / limit);
            Goal { what, outcome: judge_outcome(ours <= allowed), measured }
        }
        _ => not_measured(what),
    }
}

fn times_faster<'a>(
    tree: &TreeResults,
    row: &Row,
    factor: f64,
    than: &str,
    among: impl Iterator<Item = &'a str>,
) -> Goal {
    let speed =
        if factor > 1.0 { format!("at least {factor} × faster than") } else { "no slower than".to_owned() };
    let what = format!("{}, {}: {speed} {than}", tree.name, row.operation);
    match (row.median_wall("stepback"), row.fastest(among)) {
        (Some(ours), Some((peer, theirs))) => {
            let ratio = theirs / ours;
            let measured = format!("{ratio:.2} × ({ours:.1} ms, {peer} {theirs:.1} ms)");
            Goal { what, outcome: judge_outcome(ratio >= factor), measured }
        }
        _ => not_measured(what),
    }
}

fn large_file(results: &Results) -> Vec<Goal> {
    if results.large_file.is_empty() {
        return Vec::new();
    }
    let found = |system: &str| results.large_file.iter().find(|row| row.system == system);
    let wall =
        |system: &str| found(system).and_then(|row| median(row.samples.iter().map(|cost| ms(cost.wall))));
    let mut goals = Vec::new();
    for peer in ["restic", "borg"] {
        let what = format!("one byte in 200 MB: at least 10 × faster than {peer}");
        goals.push(match (wall("stepback"), wall(peer)) {
            (Some(ours), Some(theirs)) => Goal {
                what,
                outcome: judge_outcome(theirs / ours >= 10.0),
                measured: format!("{:.1} × ({ours:.1} ms, {theirs:.1} ms)", theirs / ours),
            },
            _ => not_measured(what),
        });
    }
    let added = found("stepback").and_then(|row| row.added.iter().max());
    let megabytes = added.map(|bytes| *bytes as f64 / 1e6);
    goals.push(at_most("one byte in 200 MB: at most 1 MB stored".to_owned(), megabytes, 1.0, "MB"));
    goals
}

fn store_size(results: &Results) -> Option<Goal> {
    let first = results.stores.first()?;
    let what = format!(
        "bytes on disk after {} checkpoints of 10 files: no more than the smallest peer",
        first.checkpoints
    );
    let size = |allocated: u64| allocated as f64 / 1e6;
    let ours = results.stores.iter().find(|store| store.system == "stepback");
    let peer =
        results.stores.iter().filter(|store| is_peer(store.system)).min_by_key(|store| store.size.allocated);
    Some(match (ours, peer) {
        (Some(ours), Some(peer)) => Goal {
            what,
            outcome: judge_outcome(ours.size.allocated <= peer.size.allocated),
            measured: format!(
                "{:.1} MB, {} {:.1} MB",
                size(ours.size.allocated),
                peer.system,
                size(peer.size.allocated)
            ),
        },
        _ => not_measured(what),
    })
}

fn memory_goal(results: &Results) -> Option<Goal> {
    let tree = results.largest_tree()?;
    let row = tree.row("first")?;
    let what = format!("{}, first: under 200 MB of memory", tree.name);
    let peak = row.samples.get("stepback").and_then(|costs| costs.iter().map(|cost| cost.peak_memory).max());
    Some(at_most(what, peak.map(|bytes| bytes as f64 / 1e6), 200.0, "MB"))
}

/// A value that must not be above a limit.
pub fn at_most(what: String, value: Option<f64>, limit: f64, unit: &str) -> Goal {
    match value {
        Some(value) => {
            Goal { what, outcome: judge_outcome(value <= limit), measured: format!("{value:.1} {unit}") }
        }
        None => not_measured(what),
    }
}

/// A goal that is reached by a value of at least `limit`.
pub fn at_least(what: String, value: Option<f64>, limit: f64, unit: &str) -> Goal {
    match value {
        Some(value) => {
            Goal { what, outcome: judge_outcome(value >= limit), measured: format!("{value:.0} {unit}") }
        }
        None => not_measured(what),
    }
}

fn judge_outcome(reached: bool) -> GoalOutcome {
    if reached { GoalOutcome::Pass } else { GoalOutcome::Miss }
}

fn not_measured(what: String) -> Goal {
    Goal { what, outcome: GoalOutcome::NotMeasured, measured: "–".to_owned() }
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
