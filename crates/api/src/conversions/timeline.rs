//! Timelines as documents.

use stepback_engine::branch_graph::{BranchLine, BranchSpan, TimelineFork, TimelineLane};
use stepback_history::timeline::Summary;

use crate::timeline::{
    BranchForkDocument, BranchLineDocument, BranchSpanDocument, SessionSummaryDocument, TimelineForkDocument,
    TimelineLaneDocument,
};

impl SessionSummaryDocument {
    /// The document of a summary, with the number of checkpoints in it.
    pub fn from_summary(summary: &Summary, checkpoints: u64) -> Self {
        Self {
            steps: summary.steps,
            first: summary.numbers.map(|(first, _)| first),
            last: summary.numbers.map(|(_, last)| last),
            started_at: summary.times.map(|(first, _)| first),
            ended_at: summary.times.map(|(_, last)| last),
            duration_us: summary.duration_us,
            iterations: summary.iterations,
            errors: summary.errors,
            checkpoints,
            kinds: summary.kinds.iter().map(|(kind, count)| (kind.as_str().to_owned(), *count)).collect(),
            tools: summary.tools.clone(),
        }
    }
}

impl TimelineLaneDocument {
    /// The document of a lane.
    pub fn from_lane(lane: &TimelineLane) -> Self {
        Self {
            branch: lane.branch.clone(),
            worker: lane.worker.clone(),
            steps: lane.steps,
            errors: lane.errors,
        }
    }
}

impl BranchLineDocument {
    /// The documents of all branches of a workspace.
    pub fn from_lines(lines: &[BranchLine]) -> Vec<Self> {
        let of = |line: &BranchLine| Self {
            name: line.name.clone(),
            number: line.tip,
            present: line.present,
            from: line.from.and_then(|(place, number)| {
                let branch = lines.get(place)?.name.clone();
                Some(BranchForkDocument { branch, number })
            }),
            first: line.first,
            own: line.own,
        };
        lines.iter().map(of).collect()
    }
}

impl BranchSpanDocument {
    /// The document of consecutive steps.
    pub fn from_span(span: BranchSpan) -> Self {
        let BranchSpan { first, last, branch, rolled_back } = span;
        Self { first, last, branch, rolled_back }
    }
}

impl TimelineForkDocument {
    /// The document of a fork.
    pub fn from_fork(fork: &TimelineFork) -> Self {
        Self { from: fork.from, to: fork.to }
    }
}
