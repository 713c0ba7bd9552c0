//! Documents of timelines: a session in numbers, and step by step.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use stepback_engine::branch_graph::BranchLine;
use stepback_history::timeline::Summary;
use stepback_model::time::Timestamp;
use utoipa::ToSchema;

use crate::documents::StepDocument;

/// A session in numbers.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct SummaryDocument {
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

impl SummaryDocument {
    /// The document of a summary, with the number of checkpoints in it.
    pub fn of(summary: &Summary, checkpoints: u64) -> Self {
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

/// A lane of the timeline: the steps of the main agent, or of one of its sub-agents, on one branch.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct LaneDocument {
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
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TipDocument {
    /// The name of the branch.
    pub name: String,
    /// The number of its newest step.
    pub number: u64,
    /// Whether it is the current branch of the workspace.
    pub present: bool,
    /// Where it forked from another branch; none for the first branch.
    pub from: Option<PartingDocument>,
    /// The number of its first own checkpoint; none if it has none yet.
    pub first: Option<u64>,
    /// Number of its own checkpoints.
    pub own: u64,
}

/// The point where a branch forked from another one.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PartingDocument {
    /// The name of the other branch.
    pub branch: String,
    /// The number of the newest step that both have.
    pub number: u64,
}

impl TipDocument {
    /// The documents of all branches of a workspace.
    pub fn all(lines: &[BranchLine]) -> Vec<Self> {
        let of = |line: &BranchLine| Self {
            name: line.name.clone(),
            number: line.tip,
            present: line.present,
            from: line.from.and_then(|(place, number)| {
                let branch = lines.get(place)?.name.clone();
                Some(PartingDocument { branch, number })
            }),
            first: line.first,
            own: line.own,
        };
        lines.iter().map(of).collect()
    }
}

/// Consecutive steps of a session on one branch, either all rolled back or none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct StretchDocument {
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
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct LinesDocument {
    /// The branches of the workspace; a branch comes before those that forked from it.
    pub branches: Vec<TipDocument>,
    /// The steps of the session as stretches, oldest first.
    pub stretches: Vec<StretchDocument>,
}

/// A step with its position on the timeline.
#[derive(Clone, Debug, Serialize, ToSchema)]
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
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TimelineDocument {
    /// The id of the session.
    pub session: String,
    /// The whole session in numbers, the same on every page.
    pub summary: SummaryDocument,
    /// The lanes, in the order of their index.
    pub lanes: Vec<LaneDocument>,
    /// The branches of the workspace.
    pub branches: Vec<TipDocument>,
    /// Steps, oldest first.
    pub items: Vec<TimelineStepDocument>,
    /// Where the next page begins; none after the last.
    pub next_cursor: Option<String>,
}

/// A checkpoint that did not grow from the checkpoint before it: after a rewind, or on another branch.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ForkDocument {
    /// The number of the step it grew from.
    pub from: u64,
    /// The number of the checkpoint.
    pub to: u64,
}

/// All steps of a session as columns: the first entries of all columns belong to the first step, and so on.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct MarksDocument {
    /// The id of the session.
    pub session: String,
    /// The session in numbers.
    pub summary: SummaryDocument,
    /// The lanes, in the order of their index.
    pub lanes: Vec<LaneDocument>,
    /// The branches of the workspace.
    pub branches: Vec<TipDocument>,
    /// Where a checkpoint did not grow from the one before it.
    pub forks: Vec<ForkDocument>,
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

/// A message of a conversation.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct MessageDocument {
    /// The number of the message, from 1.
    pub number: u64,
    /// `user`, `assistant`, `tool` or `system`; none if the message has no role.
    pub role: Option<String>,
    /// The text of the message.
    pub text: String,
    /// The whole message: parts, model, times; or the line as the agent wrote it.
    #[schema(value_type = Object)]
    pub message: Value,
}
