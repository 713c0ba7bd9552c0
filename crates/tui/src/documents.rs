//! The documents of the HTTP API, reduced to the fields that are shown.

pub mod mind;

use serde::Deserialize;
use serde_json::Value;
use stepback_model::time::Timestamp;

/// One page of a list.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Page<T> {
    /// The items of this page.
    pub items: Vec<T>,
    /// The cursor of the next page; `None` on the last page.
    pub next_cursor: Option<String>,
}

/// A recorded session.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Session {
    /// The id of the session.
    pub id: String,
    /// The id of the workspace it ran in.
    pub workspace: String,
    /// The name of the agent.
    pub agent: String,
    /// The first prompt; `None` if there was none.
    pub title: Option<String>,
    /// When the session began.
    pub started_at: Timestamp,
    /// When it was last active.
    pub seen_at: Option<Timestamp>,
    /// `active`, `idle`, `stopped`, `ended`, `prepared`.
    pub status: String,
    /// The number of model turns.
    pub iterations: u64,
    /// The cost in US dollars.
    pub cost_usd: f64,
}

impl Session {
    /// Returns when it was last active, as far as is known.
    pub fn seen(&self) -> Timestamp {
        self.seen_at.unwrap_or(self.started_at)
    }

    /// Returns enough of its id to tell it from others.
    pub fn short(&self) -> &str {
        self.id.get(..8).unwrap_or(&self.id)
    }
}

/// A recorded step.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Step {
    /// The id of the step.
    pub id: String,
    /// Its number in the workspace.
    pub number: u64,
    /// The kind of step.
    pub kind: String,
    /// When the step was recorded.
    pub at: Timestamp,
    /// A short name, if the step has one.
    pub label: Option<String>,
    /// Free text, if the step has a note.
    pub note: Option<String>,
    /// The tags of the step.
    pub tags: Vec<String>,
    /// A description on one line.
    pub summary: String,
    /// The id of its parent step.
    pub parent: Option<String>,
    /// The id of its session.
    pub session: String,
    /// The number of its model turn.
    pub iteration: u64,
    /// The sub-agent that made it; `None` for the agent itself.
    pub worker: Option<String>,
    /// The tool or model.
    pub tool: Option<String>,
    /// Whether it failed.
    pub failed: bool,
    /// How long it took, in microseconds.
    pub duration_us: Option<u64>,
    /// Whether it has files of its own.
    pub checkpoint: bool,
}

impl Step {
    /// Whether it is an error, as defined by `timeline::is_error`.
    pub fn is_error(&self) -> bool {
        self.kind != "gap" && (self.failed || self.kind == "error")
    }
}

/// A named line of steps, or a rerun that will become one.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Branch {
    /// The name of the branch.
    pub name: String,
    /// Its newest step.
    pub tip: Option<Step>,
    /// Whether it is the workspace's current branch.
    pub present: bool,
}

/// Consecutive steps on one branch, either all rolled back or none.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct BranchSpan {
    /// The number of the first step.
    pub first: u64,
    /// The number of the last step.
    pub last: u64,
    /// The name of the branch.
    pub branch: Option<String>,
    /// Whether a rewind has rolled them back.
    pub rolled_back: bool,
}

/// The branches that a session's steps are on, and which steps were rolled back.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Lines {
    /// The spans of the session, oldest first.
    pub stretches: Vec<BranchSpan>,
}

impl Lines {
    /// Returns the span of a step; `None` for one that was just recorded.
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
    /// The path, for display.
    pub path: String,
    /// The path as the end of a URL.
    pub address: String,
    /// `file`, `directory`, `symlink`, `excluded`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The size in bytes.
    pub size: Option<u64>,
    /// The target of a symbolic link.
    pub target: Option<String>,
    /// Why it is not stored.
    pub reason: Option<String>,
}

impl Entry {
    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == "directory"
    }
}

/// The state of a git repository.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Repository {
    /// The path of its git directory.
    pub path: String,
    /// The branch that is checked out.
    pub branch: Option<String>,
    /// The commit that is checked out.
    pub commit: Option<String>,
    /// A merge or similar operation in progress.
    pub in_progress: Option<String>,
    /// The number of stashes.
    pub stashes: u32,
}

/// The state at a step.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct State {
    /// The git repositories.
    pub git: Vec<Repository>,
    /// The files of this page.
    pub items: Vec<Entry>,
    /// The cursor of the next page of files.
    pub next_cursor: Option<String>,
}

/// A message of a conversation.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct StatusMessage {
    /// The role of the author.
    pub role: Option<String>,
    /// The text of the message.
    pub text: String,
}

/// A changed path.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Changed {
    /// The path, for display.
    pub path: String,
    /// `created`, `modified`, …
    pub kind: String,
    /// The previous path of a renamed file.
    pub from: Option<String>,
    /// The changed lines as a diff.
    pub text: Option<String>,
}

/// A path that a plan will change.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Planned {
    /// The path, for display.
    pub path: String,
    /// The change that will be made to it.
    pub action: String,
}

/// A path that is left alone.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LeftAlone {
    /// The path, for display.
    pub path: String,
    /// Why it is left alone.
    pub reason: String,
}

/// A change that a rewind keeps.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct KeptChange {
    /// The path, for display.
    pub path: String,
    /// A description of its author.
    pub by: String,
}

/// What an operation will do.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Plan {
    /// The id of the plan.
    pub id: String,
    /// `rewind`, `undo`, …
    pub kind: String,
    /// A description on one line.
    pub summary: String,
    /// Every path that will change.
    pub items: Vec<Planned>,
    /// Paths that are left alone.
    pub left_alone: Vec<LeftAlone>,
    /// Changes of the user or of another session that are kept.
    pub kept: Vec<KeptChange>,
    /// Paths that the same plan with `everything` would change and this one does not, or only in part.
    pub everything_changes: Vec<String>,
    /// Why nothing changes.
    pub unchanged_because: Option<String>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// The operation that is undone.
    pub operation: Option<String>,
    /// The path to post to in order to confirm.
    pub apply: String,
}

/// The result for one path.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Outcome {
    /// Whether the change was made.
    pub done: bool,
}

/// An operation of stepback.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Operation {
    /// The id of the operation.
    pub id: String,
    /// A description on one line.
    pub summary: String,
}

/// The result of an applied plan.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Applied {
    /// The operation.
    pub operation: Operation,
    /// The result for every path.
    pub items: Vec<Outcome>,
    /// Whether something was left alone because of a later change.
    pub partial: bool,
}

/// An agent that waits.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Stop {
    /// The id of the stop.
    pub id: String,
    /// The id of its workspace.
    pub workspace: String,
    /// The id of its session.
    pub session: String,
    /// The name of the agent.
    pub agent: String,
    /// The tool that it calls.
    pub tool: String,
    /// The input of the call.
    pub input: Value,
    /// The output of the call, if it has run.
    pub output: Option<Value>,
    /// Whether the call can run with another input.
    pub can_edit_input: bool,
    /// Why it stopped.
    pub reason: String,
    /// The number of the step it stopped at.
    pub step: u64,
    /// When it will continue by itself.
    pub until: Timestamp,
}

/// A condition that stops agents.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Breakpoint {
    /// The number of the breakpoint.
    pub id: u64,
    /// A description on one line.
    pub description: String,
    /// An additional condition.
    pub condition: Option<String>,
    /// Whether it is enabled.
    pub enabled: bool,
    /// How often it was hit.
    pub hits: u64,
    /// Whether it only logs instead of stopping.
    pub log: bool,
}

/// The control state of a session.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Controlled {
    /// Whether it stops at its next call.
    pub paused: bool,
}

/// An excerpt that matches a search.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Snippet {
    /// The text of the excerpt.
    pub text: String,
}

/// A step that matches a search.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Hit {
    /// The number of the step.
    pub number: u64,
    /// The kind of step.
    pub kind: String,
    /// The id of its session.
    pub session: String,
    /// The name of the agent.
    pub agent: Option<String>,
    /// A description on one line.
    pub summary: String,
    /// The matching excerpts.
    pub snippets: Vec<Snippet>,
}

/// The results of a search.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Hits {
    /// The matching steps.
    pub items: Vec<Hit>,
    /// The total number of matches.
    pub total: u64,
    /// Whether all steps were searched.
    pub complete: bool,
}

/// An error document of the API.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Problem {
    /// The HTTP status.
    pub status: u16,
    /// What happened.
    pub detail: String,
    /// What the user can do.
    pub hints: Vec<String>,
    /// The current plan, if the confirmed one was out of date.
    pub plan: Option<Box<Plan>>,
}
