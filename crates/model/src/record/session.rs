//! Sessions, what is recorded about one while it runs, and its open calls.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{StepKind, first_half};
use crate::hash::{Hash, ObjectKind};
use crate::ids::{SessionId, StepId, WorkspaceId};
use crate::time::Timestamp;

/// One recorded run of one agent, or of the user at the command line, in one workspace.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Session {
    /// Id of the session; see [`Session::id_of`].
    pub id: SessionId,
    /// The workspace it runs in.
    pub workspace: WorkspaceId,
    /// The agent's stable name, or [`Session::PERSON`] for the user.
    pub agent: String,
    /// When it began.
    pub started_at: Timestamp,
    /// What is known about it so far.
    pub info: SessionInfo,
}

/// What is known about a session; it changes while the session runs. It is written with every step, so fields with their
/// default value are not written.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionInfo {
    /// The agent's own id of the session.
    #[serde(skip_serializing_if = "is_default")]
    pub external: Option<String>,
    /// The directory the agent runs in, if not the root of the workspace.
    #[serde(skip_serializing_if = "is_default")]
    pub directory: Option<String>,
    /// The file to which the agent writes the conversation.
    #[serde(skip_serializing_if = "is_default")]
    pub transcript: Option<String>,
    /// How the agent was started, if stepback started it; a rerun starts it the same way.
    #[serde(skip_serializing_if = "is_default")]
    pub started: Option<LaunchCommand>,
    /// The model, as last reported.
    #[serde(skip_serializing_if = "is_default")]
    pub model: Option<String>,
    /// The first prompt, shortened.
    #[serde(skip_serializing_if = "is_default")]
    pub title: Option<String>,
    /// The time of its latest activity.
    #[serde(skip_serializing_if = "is_default")]
    pub seen_at: Option<Timestamp>,
    /// When it ended; `None` if no end was reported.
    #[serde(skip_serializing_if = "is_default")]
    pub ended_at: Option<Timestamp>,
    /// The session and step it was forked from.
    #[serde(skip_serializing_if = "is_default")]
    pub forked_from: Option<(SessionId, StepId)>,
    /// Whether it was imported from the agent's own record instead of being recorded live.
    #[serde(skip_serializing_if = "is_default")]
    pub imported: bool,
    /// The number of model turns so far.
    #[serde(skip_serializing_if = "is_default")]
    pub iteration: u64,
    /// The turn that had ended when the last checkpoint was made for this session.
    #[serde(skip_serializing_if = "is_default")]
    pub looked: u64,
    /// Events that were not recorded as steps, because the settings leave them out.
    #[serde(skip_serializing_if = "is_default")]
    pub skipped: SkippedEvents,
    /// The agent's id of the current turn, if it has one.
    #[serde(skip_serializing_if = "is_default")]
    pub turn: Option<String>,
    /// Calls that began and have not ended, and those that ended since the last scan.
    #[serde(skip_serializing_if = "is_default")]
    pub open: Vec<OpenCall>,
    /// Start steps of calls that were closed without a reported end, the newest last. A checkpoint that was made while such
    /// a call was still considered running names it as an author; that attribution is not certain.
    #[serde(skip_serializing_if = "is_default")]
    pub abandoned: Vec<StepId>,
    /// Start steps of calls whose end was reported after they had been closed without one, the newest last.
    #[serde(skip_serializing_if = "is_default")]
    pub ended_late: Vec<StepId>,
    /// The last message of the conversation so far.
    #[serde(skip_serializing_if = "is_default")]
    pub tip: Option<Hash>,
    /// How far the transcript was read, in the format of its reader.
    #[serde(skip_serializing_if = "is_default")]
    pub cursor: Option<serde_json::Value>,
    /// The task list, the memory, the environment and the reasoning, as last seen.
    #[serde(skip_serializing_if = "is_default")]
    pub slots: StateRefs,
    /// The tasks that have begun and not ended, by the worker that works on each; the main agent has no name.
    #[serde(skip_serializing_if = "is_default")]
    pub working_on: BTreeMap<String, String>,
    /// Number of the step up to which changes are no longer listed.
    #[serde(skip_serializing_if = "is_default")]
    pub cleared: Option<u64>,
    /// The prompt that the agent is working on.
    #[serde(skip_serializing_if = "is_default")]
    pub prompt: Option<StepId>,
    /// Cost so far, in millionths of a dollar.
    #[serde(skip_serializing_if = "is_default")]
    pub cost: u64,
    /// Tokens that models read and wrote so far, as far as they were reported with the events.
    #[serde(skip_serializing_if = "is_default")]
    pub tokens: u64,
    /// What of both belongs to the last day on which something was used.
    #[serde(skip_serializing_if = "is_default")]
    pub last_day: DaySpending,
}

/// What a session used on one day.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DaySpending {
    /// The day, in days since the epoch, in universal time.
    pub day: i64,
    /// Cost, in millionths of a dollar.
    pub cost: u64,
    /// Tokens.
    pub tokens: u64,
}

impl DaySpending {
    /// The day of a moment.
    pub fn day_of(at: Timestamp) -> i64 {
        const DAY_MICROS: i64 = 24 * 3_600_000_000;
        at.as_micros().div_euclid(DAY_MICROS)
    }
}

impl SessionInfo {
    /// Adds what was used at a moment.
    pub fn add_spending(&mut self, at: Timestamp, cost: u64, tokens: u64) {
        if cost == 0 && tokens == 0 {
            return;
        }
        self.cost = self.cost.saturating_add(cost);
        self.tokens = self.tokens.saturating_add(tokens);
        let day = DaySpending::day_of(at);
        // What a slow reporter tells about an earlier day is part of the sums only.
        if day > self.last_day.day {
            self.last_day = DaySpending { day, ..DaySpending::default() };
        }
        if day == self.last_day.day {
            self.last_day.cost = self.last_day.cost.saturating_add(cost);
            self.last_day.tokens = self.last_day.tokens.saturating_add(tokens);
        }
    }

    /// The number of events that were skipped and that no step names yet.
    pub fn pending_skipped(&self) -> u64 {
        self.skipped.pending.values().sum()
    }
}

/// Whether a field can be left out: a missing field reads as its default.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Events of a session that were not recorded as steps, because the recorder's settings leave them out.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SkippedEvents {
    /// How many there were, by kind, since the last step that says so.
    #[serde(skip_serializing_if = "is_default")]
    pub pending: BTreeMap<StepKind, u64>,
    /// How many there were in all.
    #[serde(skip_serializing_if = "is_default")]
    pub total: u64,
    /// How many events of each sampled kind were reported: one in so many of them is recorded.
    #[serde(skip_serializing_if = "is_default")]
    pub sampled: BTreeMap<StepKind, u64>,
    /// Ids of calls whose start was skipped, the newest last: their ends are skipped too.
    #[serde(skip_serializing_if = "is_default")]
    pub calls: Vec<String>,
}

/// The command that started an agent, with its surroundings.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LaunchCommand {
    /// The command and its arguments.
    pub argv: Vec<String>,
    /// The directory in which it was started.
    pub directory: String,
    /// The home directory at that time.
    pub home: String,
    /// The directory for temporary files at that time.
    pub temp: String,
}

/// The parts of a state that do not come from the workspace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StateRefs {
    /// See [`crate::state::WorkspaceState::memory`].
    pub memory: Option<Hash>,
    /// See [`crate::state::WorkspaceState::task`].
    pub task: Option<Hash>,
    /// See [`crate::state::WorkspaceState::env`].
    pub env: Option<Hash>,
    /// See [`crate::state::WorkspaceState::reasoning`].
    pub reasoning: Option<Hash>,
}

/// A call that began and has not ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OpenCall {
    /// The agent's id of the call.
    pub call: String,
    /// The step at which it began.
    pub step: StepId,
    /// Name of the tool, if known.
    pub tool: Option<String>,
    /// When the call began.
    pub at: Timestamp,
    /// The sub-agent that made the call; `None` for the main agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Whether it can change anything.
    pub changes: bool,
    /// Paths it names, relative to the workspace.
    pub paths: Vec<String>,
    /// Whether it changes nothing but the paths it names, as an editing tool does and a shell does not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_named: bool,
    /// Whether another call of the same worker has ended since this one began: the next call belongs to another batch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overtaken: bool,
    /// Whether its input was changed at a breakpoint, so that its end may come with another id.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub edited: bool,
    /// Whether it has ended, and the workspace was not scanned since.
    #[serde(default)]
    pub ended: bool,
    /// Whether it was closed without a reported end: it may have been refused, interrupted or killed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut_short: bool,
    /// Whether `step` does not exist, because the settings leave it out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unrecorded: bool,
    /// How long it waited at a breakpoint before it ran, in microseconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub waited: u64,
}

impl Session {
    /// The agent name of the session that holds the user's own commands.
    pub const PERSON: &'static str = "person";
    /// The external id of the session that holds an agent's gaps: events for which not even the session is known.
    pub const GAPS: &'static str = "gaps";

    /// The id of the session that `agent` calls `external`. It is derived from its arguments, so that several processes can
    /// record one session without coordination.
    pub fn id_of(workspace: WorkspaceId, agent: &str, external: &str) -> SessionId {
        let name = format!("session {workspace} {agent} {external}");
        SessionId::from_bytes(first_half(Hash::of(ObjectKind::Blob, name.as_bytes())))
    }
}
