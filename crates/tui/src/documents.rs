//! The documents of the API, as far as they are shown.

pub mod mind;

use serde::Deserialize;
use serde_json::Value;
use stepback_model::time::Timestamp;

/// One page of a list.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Page<T> {
    /// What is on it.
    pub items: Vec<T>,
    /// Where the next one begins.
    pub next_cursor: Option<String>,
}

/// A recorded run.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Session {
    /// Its id.
    pub id: String,
    /// Where it ran.
    pub workspace: String,
    /// Who ran.
    pub agent: String,
    /// The first prompt.
    pub title: Option<String>,
    /// When it began.
    pub started_at: Timestamp,
    /// When it last did something.
    pub seen_at: Option<Timestamp>,
    /// `active`, `idle`, `stopped`, `ended`, `prepared`.
    pub status: String,
    /// Model turns.
    pub iterations: u64,
    /// What it costs.
    pub cost_usd: f64,
}

impl Session {
    /// When it last did something, as far as is known.
    pub fn seen(&self) -> Timestamp {
        self.seen_at.unwrap_or(self.started_at)
    }

    /// Enough of its id to tell it from others.
    pub fn short(&self) -> &str {
        self.id.get(..8).unwrap_or(&self.id)
    }
}

/// A step.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Step {
    /// Its id.
    pub id: String,
    /// Its number in the workspace.
    pub number: u64,
    /// What it is.
    pub kind: String,
    /// When.
    pub at: Timestamp,
    /// A short name.
    pub label: Option<String>,
    /// Free text.
    pub note: Option<String>,
    /// Tags.
    pub tags: Vec<String>,
    /// One line.
    pub summary: String,
    /// The step it grew from.
    pub parent: Option<String>,
    /// Its session.
    pub session: String,
    /// The model turn.
    pub iteration: u64,
    /// The sub-agent.
    pub worker: Option<String>,
    /// The tool or model.
    pub tool: Option<String>,
    /// Whether it went wrong.
    pub failed: bool,
    /// How long it took.
    pub duration_us: Option<u64>,
    /// Whether it has files of its own.
    pub checkpoint: bool,
}

impl Step {
    /// Whether something went wrong, as `timeline::is_error` has it.
    pub fn is_error(&self) -> bool {
        self.kind != "gap" && (self.failed || self.kind == "error")
    }
}

/// A named line of steps, or a rerun that will become one.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Branch {
    /// Its name.
    pub name: String,
    /// Its newest step.
    pub tip: Option<Step>,
    /// Whether the workspace stands on it.
    pub present: bool,
}

/// Steps in a row that are on one branch, all of them left behind or none.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct BranchSpan {
    /// The number of the first.
    pub first: u64,
    /// The number of the last.
    pub last: u64,
    /// The branch.
    pub branch: Option<String>,
    /// Whether a rewind has left them behind.
    pub rolled_back: bool,
}

/// On which branches a session was, and what of it was left behind.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Lines {
    /// Its steps, oldest first.
    pub stretches: Vec<BranchSpan>,
}

impl Lines {
    /// Where a step is; nothing is known of one that has just been made.
    pub fn of(&self, number: u64) -> Option<&BranchSpan> {
        let at = self.stretches.partition_point(|stretch| stretch.last < number);
        self.stretches.get(at).filter(|stretch| stretch.first <= number)
    }

    /// Whether the session was on more than one branch.
    pub fn is_branched(&self) -> bool {
        self.stretches.windows(2).any(|two| two[0].branch != two[1].branch)
    }
}

/// A path in a state.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Entry {
    /// Where.
    pub path: String,
    /// Where, as the end of an address.
    pub address: String,
    /// `file`, `directory`, `symlink`, `excluded`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Bytes.
    pub size: Option<u64>,
    /// Where a link points.
    pub target: Option<String>,
    /// Why it is not stored.
    pub reason: Option<String>,
}

impl Entry {
    /// Whether it holds others.
    pub fn is_dir(&self) -> bool {
        self.kind == "directory"
    }
}

/// Where a repository stood.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Repository {
    /// Its git directory.
    pub path: String,
    /// The branch.
    pub branch: Option<String>,
    /// The commit.
    pub commit: Option<String>,
    /// A merge or the like.
    pub in_progress: Option<String>,
    /// Stashes.
    pub stashes: u32,
}

/// What was true at a step.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct State {
    /// Repositories.
    pub git: Vec<Repository>,
    /// Files.
    pub items: Vec<Entry>,
    /// More of them.
    pub next_cursor: Option<String>,
}

/// Something that was said.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct StatusMessage {
    /// Who.
    pub role: Option<String>,
    /// What.
    pub text: String,
}

/// What happened to a path.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Changed {
    /// Where.
    pub path: String,
    /// `created`, `modified`, …
    pub kind: String,
    /// Where it was before.
    pub from: Option<String>,
    /// The lines.
    pub text: Option<String>,
}

/// A path that will change.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Planned {
    /// Where.
    pub path: String,
    /// What happens to it.
    pub action: String,
}

/// A path that is left alone.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LeftAlone {
    /// Where.
    pub path: String,
    /// Why.
    pub reason: String,
}

/// A change that stays.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct KeptChange {
    /// The path.
    pub path: String,
    /// Its author in words.
    pub by: String,
}

/// What will happen.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Plan {
    /// Its id.
    pub id: String,
    /// `rewind`, `undo`, …
    pub kind: String,
    /// In words.
    pub summary: String,
    /// Every path.
    pub items: Vec<Planned>,
    /// What stays.
    pub left_alone: Vec<LeftAlone>,
    /// What the user or another session changed, and stays.
    pub kept: Vec<KeptChange>,
    /// What would change if everything went back.
    pub everything_changes: Vec<String>,
    /// Why nothing changes.
    pub unchanged_because: Option<String>,
    /// What to know.
    pub warnings: Vec<String>,
    /// The operation that is taken back.
    pub operation: Option<String>,
    /// Where to agree.
    pub apply: String,
}

/// What became of a path.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Outcome {
    /// Whether it was done.
    pub done: bool,
}

/// What stepback did.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Operation {
    /// Its id.
    pub id: String,
    /// In words.
    pub summary: String,
}

/// What was done.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Applied {
    /// The operation.
    pub operation: Operation,
    /// What became of every path.
    pub items: Vec<Outcome>,
    /// Whether something was left alone because of a later change.
    pub partial: bool,
}

/// An agent that waits.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Stop {
    /// Its id.
    pub id: String,
    /// Where.
    pub workspace: String,
    /// The session.
    pub session: String,
    /// The agent.
    pub agent: String,
    /// What it wants to run.
    pub tool: String,
    /// With this.
    pub input: Value,
    /// What came out, if it has run.
    pub output: Option<Value>,
    /// Whether the call can run with another input.
    pub can_edit_input: bool,
    /// Why it stopped.
    pub reason: String,
    /// The step it stopped at.
    pub step: u64,
    /// When it will answer by itself.
    pub until: Timestamp,
}

/// A condition that stops agents.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Breakpoint {
    /// Its number.
    pub id: u64,
    /// In words.
    pub description: String,
    /// Another condition.
    pub condition: Option<String>,
    /// Whether it is in force.
    pub enabled: bool,
    /// How often it held.
    pub hits: u64,
    /// Whether it only records.
    pub log: bool,
}

/// What was done to a session.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Controlled {
    /// Whether it stops at its next call.
    pub paused: bool,
}

/// A part of a text that was found.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Snippet {
    /// The part.
    pub text: String,
}

/// A step that was found.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Hit {
    /// Its number.
    pub number: u64,
    /// What it is.
    pub kind: String,
    /// Its session.
    pub session: String,
    /// The agent.
    pub agent: Option<String>,
    /// One line.
    pub summary: String,
    /// What was found.
    pub snippets: Vec<Snippet>,
}

/// What was found.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Hits {
    /// The steps.
    pub items: Vec<Hit>,
    /// How many in all.
    pub total: u64,
    /// Whether all steps were looked at.
    pub complete: bool,
}

/// What went wrong.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Problem {
    /// The HTTP status.
    pub status: u16,
    /// What happened.
    pub detail: String,
    /// What to do.
    pub hints: Vec<String>,
    /// The plan as it would be now.
    pub plan: Option<Box<Plan>>,
}
