//! Steps and checkpoints: the entries of a session's log.

use serde::{Deserialize, Serialize};

use super::{StepContext, first_half};
use crate::hash::{Hash, ObjectKind};
use crate::ids::{OpId, SessionId, StepId};
use crate::json::ValueRoot;
use crate::time::Timestamp;

/// The kind of a step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepKind {
    /// A task was created.
    TaskCreated,
    /// A task was assigned.
    TaskAssigned,
    /// Work on a task began.
    TaskStarted,
    /// A task is done.
    TaskCompleted,
    /// A task failed or was abandoned.
    TaskFailed,
    /// A tool is about to run. The step's state is the one before the tool's effect.
    ToolStart,
    /// A tool has run.
    ToolEnd,
    /// A request to a model is about to be sent.
    ModelStart,
    /// A model has answered.
    ModelEnd,
    /// Anything else an agent did: a session began or ended, a message was shown, a sub-agent stopped.
    AgentStep,
    /// A decision was made: a permission was granted, a call was denied.
    Decision,
    /// Something other than files changed: the conversation was compacted, the model switched.
    StateChange,
    /// The user entered something.
    UserInput,
    /// Something failed.
    Error,
    /// A state was saved.
    Checkpoint,
    /// The workspace was taken to another state (by a rewind, an undo or a redo).
    Rewind,
    /// A branch was made.
    BranchCreated,
    /// The current branch was changed.
    BranchSwitched,
    /// An agent was stopped at a breakpoint.
    BreakpointHit,
    /// Something could not be recorded.
    Gap,
    /// The agent's reasoning changed: a hypothesis, evidence, a belief, a gap in its knowledge, a check, a note.
    Reasoning,
    /// An agent sent a message to another one.
    Message,
}

impl StepKind {
    /// Every kind.
    pub const ALL: [Self; 22] = [
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
        Self::Message,
    ];

    /// The stable name, as stored and shown.
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
            Self::Message => "message",
        }
    }

    /// Parses the stable name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    /// Whether only stepback itself makes such steps, so that no agent reports them.
    pub fn is_own(self) -> bool {
        matches!(
            self,
            Self::Checkpoint | Self::Rewind | Self::BranchCreated | Self::BranchSwitched | Self::Reasoning
        )
    }
}

/// One entry in a session's log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Step {
    /// Id of the step; see [`Step::id_of`] for those that record an event.
    pub id: StepId,
    /// The session it belongs to.
    pub session: SessionId,
    /// `#1`, `#2`, … within the workspace, whatever session it belongs to. Zero until the store has assigned it.
    pub number: u64,
    /// The step whose state this one grew from. After a rewind this is not the step before it.
    pub parent: Option<StepId>,
    /// The kind of the step.
    pub kind: StepKind,
    /// The time at which it happened.
    pub at: Timestamp,
    /// The state after it.
    pub state: Hash,
    /// One line for display.
    pub summary: String,
    /// Further data, mostly of steps that agents report.
    #[serde(flatten)]
    pub meta: StepMeta,
}

impl Step {
    /// Whether it failed. A gap in the recording is not an error of the agent.
    pub fn is_error(&self) -> bool {
        self.kind != StepKind::Gap && (self.meta.failed || self.kind == StepKind::Error)
    }

    /// The id of the step that records an event of this kind which the agent calls `key`. It is the same for every delivery
    /// of the event. Ids of one session have the same last four bytes, so that a store can keep them together.
    pub fn id_of(session: SessionId, kind: StepKind, key: &str) -> StepId {
        let name = format!("step {session} {} {key}", kind.as_str());
        let mut id = first_half(Hash::of(ObjectKind::Blob, name.as_bytes()));
        id[12..].copy_from_slice(&session.as_bytes()[..4]);
        StepId::from_bytes(id)
    }
}

/// Data of a step besides its place in history; most of it is set only for steps that agents report.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StepMeta {
    /// The model turn it belongs to, counted from 1; 0 before the first turn.
    pub iteration: u64,
    /// The sub-agent that did it; `None` for the main agent.
    pub worker: Option<String>,
    /// The agent's id of the call that the step starts or ends.
    pub call: Option<String>,
    /// Name of the tool or model.
    pub tool: Option<String>,
    /// Whether it failed.
    pub failed: bool,
    /// How long it took, in microseconds.
    pub duration: Option<u64>,
    /// Input, output, error and the rest: a [`crate::json`] value.
    pub detail: Option<ValueRoot>,
    /// The task, and the place in a distributed trace.
    #[serde(flatten)]
    pub context: StepContext,
}

/// What made a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trigger {
    /// The user asked for it.
    Manual,
    /// stepback made it on its own, before changing something.
    Automatic,
    /// A timer made it.
    Scheduled,
}

impl Trigger {
    /// The stable name, as stored and shown.
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

/// What the user can say about a checkpoint, when it is made or later.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Annotation {
    /// A short name that point expressions can refer to.
    pub label: Option<String>,
    /// Free text.
    pub note: Option<String>,
    /// Tags, in the order given.
    pub tags: Vec<String>,
}

impl Annotation {
    /// Whether there is no label, no note and no tag.
    pub fn is_empty(&self) -> bool {
        self.label.is_none() && self.note.is_none() && self.tags.is_empty()
    }

    /// An annotation that is only a label.
    pub fn labelled(label: impl Into<String>) -> Self {
        Self { label: Some(label.into()), ..Self::default() }
    }
}

/// A step as the store returns it: with its annotation, and with what became of its state.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StepRow {
    /// The step.
    pub step: Step,
    /// Label, note and tags.
    pub annotation: Annotation,
    /// What made it a checkpoint; `None` for a step without files of its own.
    pub trigger: Option<Trigger>,
    /// The operation that deleted or pruned it, if any. Such a checkpoint is hidden, and its objects may be freed.
    pub hidden_by: Option<OpId>,
    /// Whether a purge released its state.
    pub purged: bool,
}

impl StepRow {
    /// Whether the step is a checkpoint: its state has files of its own.
    pub fn is_checkpoint(&self) -> bool {
        self.trigger.is_some()
    }
}
