//! A session at a glance, and step by step.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use stepback_engine::branch_graph::Line;
use stepback_engine::timeline::Summary;
use stepback_model::time::Timestamp;
use utoipa::ToSchema;

use crate::documents::StepDocument;

/// What a session is about, at a glance.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct SummaryDocument {
    /// How many steps there are.
    pub steps: u64,
    /// The number of the first one.
    pub first: Option<u64>,
    /// The number of the last one.
    pub last: Option<u64>,
    /// When the first one was made.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Timestamp>,
    /// When the last one was made.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    /// The time between them, in microseconds.
    pub duration_us: u64,
    /// The highest model turn.
    pub iterations: u64,
    /// How many went wrong.
    pub errors: u64,
    /// How many have files of their own.
    pub checkpoints: u64,
    /// How many there are of each kind.
    pub kinds: BTreeMap<String, u64>,
    /// How often each tool was called.
    pub tools: BTreeMap<String, u64>,
}

impl SummaryDocument {
    /// Of a summary, and the number of checkpoints in it.
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

/// Steps that belong side by side: those of the agent itself, or of one of its sub-agents, on one branch.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct LaneDocument {
    /// The branch; none if the workspace has none yet.
    pub branch: Option<String>,
    /// The sub-agent; none for the agent itself.
    pub worker: Option<String>,
    /// How many steps it has.
    pub steps: u64,
    /// How many of them went wrong.
    pub errors: u64,
}

/// A branch: where it stands, and where it left another one.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TipDocument {
    /// Its name.
    pub name: String,
    /// The number of its newest step.
    pub number: u64,
    /// Whether the workspace stands on it.
    pub present: bool,
    /// Where it left another branch; none for the first.
    pub from: Option<PartingDocument>,
    /// The number of the first kept step that is its own; none if it has none yet.
    pub first: Option<u64>,
    /// How many kept steps are its own.
    pub own: u64,
}

/// Where a branch left another one.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PartingDocument {
    /// The other branch.
    pub branch: String,
    /// The number of the newest step that both have.
    pub number: u64,
}

impl TipDocument {
    /// All branches of a workspace.
    pub fn all(lines: &[Line]) -> Vec<Self> {
        let of = |line: &Line| Self {
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

/// Steps of a session in a row that are on one branch, all of them left behind or none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct StretchDocument {
    /// The number of the first.
    pub first: u64,
    /// The number of the last.
    pub last: u64,
    /// The branch; none if the workspace has none yet.
    pub branch: Option<String>,
    /// Whether a rewind has left them behind.
    pub rolled_back: bool,
}

/// On which branches a session was, and what of it was left behind.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct LinesDocument {
    /// The branches of the workspace: one that others left comes before them.
    pub branches: Vec<TipDocument>,
    /// The steps of the session, oldest first.
    pub stretches: Vec<StretchDocument>,
}

/// A step with its place on the timeline.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TimelineStepDocument {
    /// The step.
    #[serde(flatten)]
    pub step: StepDocument,
    /// Which of the lanes it is on, counted from 0.
    pub lane: u64,
    /// Microseconds since the first step of the session.
    pub since_start_us: u64,
    /// Whether a rewind has left it behind.
    pub rolled_back: bool,
    /// Branches whose newest step it is.
    pub branches: Vec<String>,
}

/// A session as something one can go through.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TimelineDocument {
    /// The session.
    pub session: String,
    /// What all of it is about, whatever page this is.
    pub summary: SummaryDocument,
    /// The lanes.
    pub lanes: Vec<LaneDocument>,
    /// The branches of the workspace.
    pub branches: Vec<TipDocument>,
    /// Steps, oldest first.
    pub items: Vec<TimelineStepDocument>,
    /// Where the next page begins; none after the last.
    pub next_cursor: Option<String>,
}

/// A kept step that grew from elsewhere than from the kept step before it: after a rewind, or on another branch.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ForkDocument {
    /// The number of the step it grew from.
    pub from: u64,
    /// Its own number.
    pub to: u64,
}

/// All steps of a session as columns: the first entries of all belong to the first step, and so on.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct MarksDocument {
    /// The session.
    pub session: String,
    /// What all of it is about.
    pub summary: SummaryDocument,
    /// The lanes.
    pub lanes: Vec<LaneDocument>,
    /// The branches of the workspace.
    pub branches: Vec<TipDocument>,
    /// Where the line goes on from elsewhere.
    pub forks: Vec<ForkDocument>,
    /// The kinds that `kind` counts, from 0.
    pub kinds: Vec<String>,
    /// The tools that `tool` counts, from 1.
    pub tools: Vec<String>,
    /// By how much the number is higher than that of the step before.
    pub number: Vec<u64>,
    /// Microseconds since the step before; for the first, since the session began.
    pub at_us: Vec<u64>,
    /// Which of `kinds`.
    pub kind: Vec<u64>,
    /// Which of `tools`; 0 is none.
    pub tool: Vec<u64>,
    /// Which of `lanes`.
    pub lane: Vec<u64>,
    /// How long it took; 0 if nobody knows.
    pub duration_us: Vec<u64>,
    /// 1: it went wrong; 2: it has files of its own; 4: a rewind has left it behind; 8: it has a label, note or tag.
    pub flags: Vec<u8>,
}

/// Something that was said.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct MessageDocument {
    /// Counts from 1.
    pub number: u64,
    /// `user`, `assistant`, `tool` or `system`; none if the message does not say.
    pub role: Option<String>,
    /// What was said, as text.
    pub text: String,
    /// All of it: parts, model, times; or the line as the agent wrote it.
    #[schema(value_type = Object)]
    pub message: Value,
}
