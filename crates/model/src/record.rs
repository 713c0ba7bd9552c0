//! The records of the log: workspaces, sessions, steps, checkpoints and operations.
//!
//! These are facts with numbers and times; everything large hangs off a state hash. Records are serialised as JSON where
//! a backend keeps them as documents, so field names are part of the format (`docs/spec/store.md`).

use serde::{Deserialize, Serialize};

use crate::hash::{Hash, ObjectKind};
use crate::ids::{OpId, SessionId, StepId, WorkspaceId};
use crate::json::Root;
use crate::time::Timestamp;

/// A directory tree that agents work in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Workspace {
    /// Its id.
    pub id: WorkspaceId,
    /// Absolute path of the root, raw bytes.
    pub root: Vec<u8>,
    /// When stepback first saw it.
    pub created_at: Timestamp,
}

impl Workspace {
    /// How the root of a workspace begins that is no directory of any machine that stepback runs on: agents elsewhere report
    /// to it. The root of every other one is an absolute path.
    pub const REMOTE: &'static [u8] = b"remote:";

    /// The name of a workspace that is no directory here.
    pub fn remote_name(&self) -> Option<&[u8]> {
        self.root.strip_prefix(Self::REMOTE)
    }
}

/// One recorded run of one agent, or of the person at the command line, in one workspace.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// Where it runs.
    pub workspace: WorkspaceId,
    /// Who runs: an agent's name, or [`Session::PERSON`].
    pub agent: String,
    /// When it began.
    pub started_at: Timestamp,
    /// What is known about it by now.
    pub info: SessionInfo,
}

/// What is known about a session; it grows while the session runs. It is written with every step, so that what is not known is
/// not written.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionInfo {
    /// The agent's own id of it.
    #[serde(skip_serializing_if = "is_default")]
    pub external: Option<String>,
    /// Where the agent runs, if not at the root of the workspace.
    #[serde(skip_serializing_if = "is_default")]
    pub directory: Option<String>,
    /// The file the agent writes the conversation to.
    #[serde(skip_serializing_if = "is_default")]
    pub transcript: Option<String>,
    /// How the agent was started, if we did it: what a rerun starts again.
    #[serde(skip_serializing_if = "is_default")]
    pub started: Option<Started>,
    /// The model, as last seen.
    #[serde(skip_serializing_if = "is_default")]
    pub model: Option<String>,
    /// The first prompt, shortened.
    #[serde(skip_serializing_if = "is_default")]
    pub title: Option<String>,
    /// When it last did something.
    #[serde(skip_serializing_if = "is_default")]
    pub seen_at: Option<Timestamp>,
    /// When it ended, if it said so.
    #[serde(skip_serializing_if = "is_default")]
    pub ended_at: Option<Timestamp>,
    /// The session and step it was forked from.
    #[serde(skip_serializing_if = "is_default")]
    pub forked_from: Option<(SessionId, StepId)>,
    /// Whether it was taken from the agent's own record instead of being watched.
    #[serde(skip_serializing_if = "is_default")]
    pub imported: bool,
    /// Model turns so far.
    #[serde(skip_serializing_if = "is_default")]
    pub iteration: u64,
    /// The turn at which files were last looked at.
    #[serde(skip_serializing_if = "is_default")]
    pub looked: u64,
    /// The agent's id of the present turn, if it has one.
    #[serde(skip_serializing_if = "is_default")]
    pub turn: Option<String>,
    /// Calls that began and have not ended.
    #[serde(skip_serializing_if = "is_default")]
    pub open: Vec<OpenCall>,
    /// The last message of the conversation so far.
    #[serde(skip_serializing_if = "is_default")]
    pub tip: Option<Hash>,
    /// How far the transcript was read, in the words of whoever reads it.
    #[serde(skip_serializing_if = "is_default")]
    pub cursor: Option<serde_json::Value>,
    /// The task list, the memory and the environment as last seen.
    #[serde(skip_serializing_if = "is_default")]
    pub slots: Slots,
    /// Changes up to this step are no longer listed.
    #[serde(skip_serializing_if = "is_default")]
    pub cleared: Option<u64>,
    /// The prompt that is being worked on.
    #[serde(skip_serializing_if = "is_default")]
    pub prompt: Option<StepId>,
    /// What it costs so far, in millionths of a dollar.
    #[serde(skip_serializing_if = "is_default")]
    pub cost: u64,
}

/// Whether a field need not be written: one that is missing has its default.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// How an agent was started.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Started {
    /// The command.
    pub argv: Vec<String>,
    /// Where it was given.
    pub directory: String,
    /// The home directory.
    pub home: String,
    /// Where temporary files are.
    pub temp: String,
}

/// Slots of a state that do not come from the workspace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Slots {
    /// See [`crate::state::State::memory`].
    pub memory: Option<Hash>,
    /// See [`crate::state::State::task`].
    pub task: Option<Hash>,
    /// See [`crate::state::State::env`].
    pub env: Option<Hash>,
    /// See [`crate::state::State::reasoning`].
    pub reasoning: Option<Hash>,
}

/// A call that began and has not ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OpenCall {
    /// The agent's id of the call.
    pub call: String,
    /// The step at which it began.
    pub step: StepId,
    /// The tool.
    pub tool: Option<String>,
    /// When.
    pub at: Timestamp,
    /// The sub-agent that called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Whether it can change something.
    pub changes: bool,
    /// Paths it names, relative to the workspace.
    pub paths: Vec<String>,
    /// Whether it is over, but nobody has looked since at what it did.
    #[serde(default)]
    pub ended: bool,
    /// Whether nobody said that it ended: the session just went on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut_short: bool,
}

impl Session {
    /// The agent name of the session that a person's own commands belong to.
    pub const PERSON: &'static str = "person";
    /// What the session is called that holds the gaps of an agent: events of which not even the session is known.
    pub const GAPS: &'static str = "gaps";

    /// The id of the session that `agent` calls `external`: the same one whoever asks, so that several processes can record
    /// one session without asking each other.
    pub fn id_of(workspace: WorkspaceId, agent: &str, external: &str) -> SessionId {
        let name = format!("session {workspace} {agent} {external}");
        SessionId::from_bytes(first_half(Hash::of(ObjectKind::Blob, name.as_bytes())))
    }
}

/// Enough of a hash for an id.
fn first_half(hash: Hash) -> [u8; 16] {
    let mut id = [0; 16];
    id.copy_from_slice(&hash.as_bytes()[..16]);
    id
}

/// What a step is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepKind {
    /// A task came up.
    TaskCreated,
    /// A task was given to somebody.
    TaskAssigned,
    /// Work on a task began.
    TaskStarted,
    /// A task is done.
    TaskCompleted,
    /// A task was given up.
    TaskFailed,
    /// A tool is about to run: the moment before its effect.
    ToolStart,
    /// A tool has run.
    ToolEnd,
    /// A model is about to be asked.
    ModelStart,
    /// A model has answered.
    ModelEnd,
    /// Anything else an agent did: a session began or ended, a message was shown, a sub-agent stopped.
    AgentStep,
    /// Something was decided: a permission given, a call denied.
    Decision,
    /// Something other than files changed: the conversation was compacted, the model switched.
    StateChange,
    /// A person said something.
    UserInput,
    /// Something went wrong.
    Error,
    /// A state was kept.
    Checkpoint,
    /// The workspace was taken to another state (by a rewind, an undo or a redo).
    Rewind,
    /// A branch was made.
    BranchCreated,
    /// Another branch is the present one.
    BranchSwitched,
    /// An agent was stopped at a breakpoint.
    BreakpointHit,
    /// Something could not be recorded.
    Gap,
    /// What an agent thinks changed: a hypothesis, evidence, a belief, a gap in its knowledge, a check, a note.
    Reasoning,
}

impl StepKind {
    /// Every kind.
    pub const ALL: [Self; 21] = [
        Self::TaskCreated,
        Self::TaskAssigned,
        Self::TaskStarted,
        Self::TaskCompleted,
        Self::TaskFailed,
        Self::ToolStart,
        Self::ToolEnd,
        Self::ModelStart,
        Self::ModelEnd,
        Self::AgentStep,
        Self::Decision,
        Self::StateChange,
        Self::UserInput,
        Self::Error,
        Self::Checkpoint,
        Self::Rewind,
        Self::BranchCreated,
        Self::BranchSwitched,
        Self::BreakpointHit,
        Self::Gap,
        Self::Reasoning,
    ];

    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TaskCreated => "task-created",
            Self::TaskAssigned => "task-assigned",
            Self::TaskStarted => "task-started",
            Self::TaskCompleted => "task-completed",
            Self::TaskFailed => "task-failed",
            Self::ToolStart => "tool-start",
            Self::ToolEnd => "tool-end",
            Self::ModelStart => "model-start",
            Self::ModelEnd => "model-end",
            Self::AgentStep => "agent-step",
            Self::Decision => "decision",
            Self::StateChange => "state-change",
            Self::UserInput => "user-input",
            Self::Error => "error",
            Self::Checkpoint => "checkpoint",
            Self::Rewind => "rewind",
            Self::BranchCreated => "branch-created",
            Self::BranchSwitched => "branch-switched",
            Self::BreakpointHit => "breakpoint-hit",
            Self::Gap => "gap",
            Self::Reasoning => "reasoning",
        }
    }

    /// Parses the stable name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    /// Whether such steps are made by stepback itself, and never reported by anybody.
    pub fn is_own(self) -> bool {
        matches!(
            self,
            Self::Checkpoint | Self::Rewind | Self::BranchCreated | Self::BranchSwitched | Self::Reasoning
        )
    }
}

/// One fact in a session's log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Step {
    /// Its id.
    pub id: StepId,
    /// The session it belongs to.
    pub session: SessionId,
    /// `#1`, `#2`, … within the workspace, whatever session it belongs to. Zero until the store has assigned it.
    pub number: u64,
    /// The step whose state this one grew from. After a rewind this is not the step before it.
    pub parent: Option<StepId>,
    /// What it is.
    pub kind: StepKind,
    /// When.
    pub at: Timestamp,
    /// The state after it.
    pub state: Hash,
    /// One line for people.
    pub summary: String,
    /// What else is known of it.
    #[serde(flatten)]
    pub facts: Facts,
}

impl Step {
    /// The id of the step that records an event of this kind which the agent calls `key`: the same one however often the
    /// event is delivered. Ids of one session have the same last four bytes, so that a store can keep them together.
    pub fn id_of(session: SessionId, kind: StepKind, key: &str) -> StepId {
        let name = format!("step {session} {} {key}", kind.as_str());
        let mut id = first_half(Hash::of(ObjectKind::Blob, name.as_bytes()));
        id[12..].copy_from_slice(&session.as_bytes()[..4]);
        StepId::from_bytes(id)
    }
}

/// What is known of a step besides its place in history; most of it only of what agents do.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Facts {
    /// The model turn it belongs to, counted from 1; 0 for what happened before the first.
    pub iteration: u64,
    /// The sub-agent that did it.
    pub worker: Option<String>,
    /// The agent's id of the call it starts or ends.
    pub call: Option<String>,
    /// The tool or model.
    pub tool: Option<String>,
    /// Whether it went wrong.
    pub failed: bool,
    /// How long it took, in microseconds.
    pub duration: Option<u64>,
    /// Input, output, error and the rest: a [`crate::json`] value.
    pub detail: Option<Root>,
}

/// What made a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trigger {
    /// A person asked for it.
    Manual,
    /// stepback made it by itself, before changing something.
    Automatic,
    /// A timer made it.
    Scheduled,
}

impl Trigger {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::Automatic => "automatic",
            Self::Scheduled => "scheduled",
        }
    }

    /// Parses the stable name.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Manual, Self::Automatic, Self::Scheduled].into_iter().find(|trigger| trigger.as_str() == text)
    }
}

/// What a person may say about a checkpoint, now or later.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Annotation {
    /// A short name that points can use.
    pub label: Option<String>,
    /// Free text.
    pub note: Option<String>,
    /// Tags, in the order given.
    pub tags: Vec<String>,
}

/// A step, and what is said about it. With a trigger it is a checkpoint: its state has files of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checkpoint {
    /// The step.
    pub step: Step,
    /// Label, note and tags.
    pub annotation: Annotation,
    /// What made it a checkpoint; a step without files of its own has none.
    pub trigger: Option<Trigger>,
    /// The operation that deleted or pruned it, if one did; such a checkpoint is hidden, and its bytes may be freed.
    pub hidden_by: Option<OpId>,
}

/// The two states a file-changing operation went between.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Move {
    /// The step that holds what was there before.
    pub before: StepId,
    /// The step that holds what was there after.
    pub after: StepId,
    /// The step that `after` grows from: the target of a rewind, or `before` when only some changes were undone.
    pub onto: StepId,
    /// Whether git directories were part of it.
    pub git: bool,
    /// What it took back of which session, if not everything: a [`crate::json`] value, the detail of `after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Hash>,
    /// The branch that was left and the one that was entered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branches: Option<(String, String)>,
    /// The session that asked for it, if an agent did so by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<SessionId>,
}

/// What an operation did, with what is needed to take it back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Action {
    /// A checkpoint was created.
    CheckpointCreate {
        /// It.
        step: StepId,
    },
    /// Label, note or tags changed.
    CheckpointAnnotate {
        /// Of this checkpoint.
        step: StepId,
        /// From these.
        before: Annotation,
        /// To these.
        after: Annotation,
    },
    /// Checkpoints were hidden because a person deleted them.
    CheckpointDelete {
        /// These.
        steps: Vec<StepId>,
    },
    /// Checkpoints were hidden by a retention rule.
    Prune {
        /// These.
        steps: Vec<StepId>,
    },
    /// A branch was made.
    BranchCreate {
        /// Its name.
        name: String,
        /// The step it begins at.
        step: StepId,
    },
    /// A branch was forgotten.
    BranchDelete {
        /// Its name.
        name: String,
        /// Its newest step.
        step: StepId,
    },
    /// A branch got another name.
    BranchRename {
        /// The name it had.
        from: String,
        /// The name it has.
        to: String,
        /// Its newest step.
        step: StepId,
    },
    /// The list of changes began anew.
    ChangesClear {
        /// Changes up to this step were not listed before.
        before: Option<u64>,
        /// Changes up to this step are not listed now.
        after: u64,
    },
    /// The workspace was taken to another state.
    Rewind {
        /// Between these states.
        moved: Move,
    },
    /// Another operation was taken back.
    Undo {
        /// That one.
        op: OpId,
        /// The states it went between, when files changed.
        moved: Option<Move>,
    },
    /// An undo was taken back.
    Redo {
        /// The operation that is in force again.
        op: OpId,
        /// The states it went between, when files changed.
        moved: Option<Move>,
    },
}

impl Action {
    /// The stable name of the kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::CheckpointCreate { .. } => "checkpoint-create",
            Self::CheckpointAnnotate { .. } => "checkpoint-annotate",
            Self::CheckpointDelete { .. } => "checkpoint-delete",
            Self::Prune { .. } => "prune",
            Self::BranchCreate { .. } => "branch-create",
            Self::BranchDelete { .. } => "branch-delete",
            Self::BranchRename { .. } => "branch-rename",
            Self::ChangesClear { .. } => "changes-clear",
            Self::Rewind { .. } => "rewind",
            Self::Undo { .. } => "undo",
            Self::Redo { .. } => "redo",
        }
    }

    /// The move of a file-changing operation.
    pub fn moved(&self) -> Option<&Move> {
        match self {
            Self::Rewind { moved } => Some(moved),
            Self::Undo { moved, .. } | Self::Redo { moved, .. } => moved.as_ref(),
            _ => None,
        }
    }
}

/// How far an operation got.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OpStatus {
    /// Files are being written; if no process holds the workspace, it crashed and must be recovered.
    Applying,
    /// It took effect.
    Done,
    /// It failed, and what it had done was reverted.
    Reverted,
}

impl OpStatus {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applying => "applying",
            Self::Done => "done",
            Self::Reverted => "reverted",
        }
    }

    /// Parses the stable name.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Applying, Self::Done, Self::Reverted].into_iter().find(|status| status.as_str() == text)
    }
}

/// Something stepback itself did.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Operation {
    /// Its id.
    pub id: OpId,
    /// Where.
    pub workspace: WorkspaceId,
    /// Counts up within the workspace. Zero until the store has assigned it.
    pub number: u64,
    /// When.
    pub at: Timestamp,
    /// One line for people.
    pub summary: String,
    /// What it did.
    pub action: Action,
    /// How far it got.
    pub status: OpStatus,
    /// Whether an undo has taken it back.
    pub undone: bool,
    /// While applying: the stored plan to finish or revert it by.
    pub journal: Option<Hash>,
}
