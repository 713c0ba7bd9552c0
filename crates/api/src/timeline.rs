//! Timelines: a session in numbers, on lanes, and step by step.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stepback_model::time::Timestamp;
use utoipa::ToSchema;

use crate::steps::StepDocument;

/// A session in numbers.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct SessionSummaryDocument {
    /// Number of steps.
    pub steps: u64,
    /// The number of the first step.
    pub first: Option<u64>,
    /// The number of the last step.
    pub last: Option<u64>,
    /// When the first step happened.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Timestamp>,
    /// When the last step happened.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    /// The time between the two, in microseconds.
    pub duration_us: u64,
    /// The highest model turn.
    pub iterations: u64,
    /// Number of steps that failed.
    pub errors: u64,
    /// Number of checkpoints.
    pub checkpoints: u64,
    /// Number of steps by kind.
    pub kinds: BTreeMap<String, u64>,
    /// Number of calls by tool.
    pub tools: BTreeMap<String, u64>,
}

/// A lane of the timeline: the steps of the main agent, or of one of its sub-agents, on one branch.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct TimelineLaneDocument {
    /// The branch; none if the workspace has none yet.
    pub branch: Option<String>,
    /// The sub-agent; none for the main agent.
    pub worker: Option<String>,
    /// Number of steps on it.
    pub steps: u64,
    /// Number of its steps that failed.
    pub errors: u64,
}

/// A branch: its newest step, and where it forked from another branch.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct BranchLineDocument {
    /// The name of the branch.
    pub name: String,
    /// The number of its newest step.
    pub number: u64,
    /// Whether it is the current branch of the workspace.
    pub present: bool,
    /// Where it forked from another branch; none for the first branch.
    pub from: Option<BranchForkDocument>,
    /// The number of its first own checkpoint; none if it has none yet.
    pub first: Option<u64>,
    /// Number of its own checkpoints.
    pub own: u64,
}

/// The point where a branch forked from another one.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct BranchForkDocument {
    /// The name of the other branch.
    pub branch: String,
    /// The number of the newest step that both have.
    pub number: u64,
}

/// Consecutive steps of a session on one branch, either all rolled back or none.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct BranchSpanDocument {
    /// The number of the first step.
    pub first: u64,
    /// The number of the last step.
    pub last: u64,
    /// The branch; none if the workspace has none yet.
    pub branch: Option<String>,
    /// Whether a rewind has rolled them back.
    pub rolled_back: bool,
}

/// The branches that a session was on, and which of its steps were rolled back.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct BranchLinesDocument {
    /// The branches of the workspace; a branch comes before those that forked from it.
    pub branches: Vec<BranchLineDocument>,
    /// The steps of the session as stretches, oldest first.
    pub stretches: Vec<BranchSpanDocument>,
}

impl BranchLinesDocument {
    /// Returns the span of a step; `None` for one that was just recorded.
    pub fn find_span(&self, number: u64) -> Option<&BranchSpanDocument> {
        let at = self.stretches.partition_point(|stretch| stretch.last < number);
        self.stretches.get(at).filter(|stretch| stretch.first <= number)
    }

    /// Whether the session was on more than one branch.
    pub fn is_branched(&self) -> bool {
        self.stretches.windows(2).any(|two| two[0].branch != two[1].branch)
    }
}

/// A step with its position on the timeline.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct TimelineStepDocument {
    /// The step.
    #[serde(flatten)]
    pub step: StepDocument,
    /// The index of its lane, from 0.
    pub lane: u64,
    /// Microseconds since the first step of the session.
    pub since_start_us: u64,
    /// Whether a rewind has rolled it back.
    pub rolled_back: bool,
    /// Names of branches whose newest step it is.
    pub branches: Vec<String>,
}

/// A page of the timeline of a session.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct TimelineDocument {
    /// The id of the session.
    pub session: String,
    /// The whole session in numbers, the same on every page.
    pub summary: SessionSummaryDocument,
    /// The lanes, in the order of their index.
    pub lanes: Vec<TimelineLaneDocument>,
    /// The branches of the workspace.
    pub branches: Vec<BranchLineDocument>,
    /// Steps, oldest first.
    pub items: Vec<TimelineStepDocument>,
    /// Where the next page begins; none after the last.
    pub next_cursor: Option<String>,
}

/// A checkpoint that did not grow from the checkpoint before it: after a rewind, or on another branch.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct TimelineForkDocument {
    /// The number of the step it grew from.
    pub from: u64,
    /// The number of the checkpoint.
    pub to: u64,
}

/// A message between two agents, drawn from the lane of its step to that of its receiver.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct TimelineMessageDocument {
    /// The number of the step.
    pub number: u64,
    /// The index of the receiver's lane.
    pub to: u64,
    /// The intention.
    pub performative: String,
}

/// All steps of a session as columns: the first entries of all columns belong to the first step, and so on.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct TimelineMarksDocument {
    /// The id of the session.
    pub session: String,
    /// The session in numbers.
    pub summary: SessionSummaryDocument,
    /// The lanes, in the order of their index.
    pub lanes: Vec<TimelineLaneDocument>,
    /// The branches of the workspace.
    pub branches: Vec<BranchLineDocument>,
    /// Where a checkpoint did not grow from the one before it.
    pub forks: Vec<TimelineForkDocument>,
    /// Messages between agents whose receivers have lanes, oldest first; of many, the newest.
    pub messages: Vec<TimelineMessageDocument>,
    /// The kinds that `kind` refers to, counted from 0.
    pub kinds: Vec<String>,
    /// The tools that `tool` refers to, counted from 1.
    pub tools: Vec<String>,
    /// The difference to the number of the step before.
    pub number: Vec<u64>,
    /// Microseconds since the step before; for the first, since the session began.
    pub at_us: Vec<u64>,
    /// The index in `kinds`.
    pub kind: Vec<u64>,
    /// The index in `tools`, from 1; 0 for none.
    pub tool: Vec<u64>,
    /// The index in `lanes`, from 0.
    pub lane: Vec<u64>,
    /// The duration in microseconds; 0 if it is not known.
    pub duration_us: Vec<u64>,
    /// Bits: 1 failed; 2 is a checkpoint; 4 rolled back by a rewind; 8 has a label, note or tag.
    pub flags: Vec<u8>,
}
