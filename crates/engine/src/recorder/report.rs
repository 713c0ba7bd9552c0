//! A reported event: what the recorder needs to know of an event besides the event itself. Every agent reports in this
//! form, whether through hooks, a proxy, a server or an import.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use stepback_model::event::AgentEvent;
use stepback_model::hash::Hash;
use stepback_model::ids::StepId;
use stepback_model::record::{LaunchCommand, Trigger};
use stepback_model::time::Timestamp;
use stepback_reasoning::ReasoningBoard;
use stepback_reasoning::store::{BoardLocation, WrittenBoard};
use stepback_store::ObjectBatch;

use super::settings::LeftOut;
use super::{NewMessages, TaskChange};
use crate::error::EngineError;

/// An event with its context.
#[derive(Clone, Debug)]
pub struct ReportedEvent {
    /// The event as the agent reported it.
    pub event: AgentEvent,
    /// When the event arrived.
    pub at: Timestamp,
    /// Decides whether the event is one that was recorded before.
    pub source: EventSource,
    /// What the event means for the files.
    pub scan_policy: ScanPolicy,
    /// What is known of the call that the event is about.
    pub call: CallFacts,
    /// What was added to the conversation; `None` if it is not known here.
    pub messages: Option<NewMessages>,
    /// What the event says about its session.
    pub update: SessionUpdate,
    /// Tags for the checkpoint, if the step becomes one.
    pub tags: Vec<String>,
    /// Whether input and output are the bodies of a model call, which a rerun replays.
    pub is_exchange: bool,
    /// What the reporter has already left out.
    pub left_out: LeftOut,
}

impl ReportedEvent {
    /// Returns the report of a live event that says nothing but what is in the event.
    pub fn new(event: AgentEvent, at: Timestamp) -> Self {
        Self {
            event,
            at,
            source: EventSource::Live,
            scan_policy: ScanPolicy::None,
            call: CallFacts::default(),
            messages: None,
            update: SessionUpdate::default(),
            tags: Vec::new(),
            is_exchange: false,
            left_out: LeftOut::default(),
        }
    }
}

/// Where an event comes from, which decides when two events are the same one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventSource {
    /// An agent reported it as it happened. An agent may use the id of a call again for another call.
    Live,
    /// Its key is unique to it: an event with the same key is the same event, delivered again.
    Keyed,
    /// It comes from the agent's own record, in which no event occurs twice.
    Imported,
    /// It is recorded as the step with this id, because the recorded data refers to it.
    Assigned(StepId),
}

/// What a reported event means for the files, and so whether the workspace is scanned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScanPolicy {
    /// The event changes no file: no scan.
    None,
    /// A call that can change something is about to run.
    Before,
    /// A call that can change something has run.
    After,
    /// The event is worth a checkpoint by itself: the conversation is about to be compacted, or a timer expired.
    Checkpoint(Trigger),
    /// The event is a checkpoint, whether or not files have changed: other parts of the state are worth it.
    Save(Trigger),
    /// The event is only recorded if some part of the state differs from that of the last checkpoint; then it is one.
    CheckpointIfChanged,
}

/// What is known of a call, besides its start or end.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CallFacts {
    /// The paths that the call names. The recorder expects them relative to the workspace.
    pub paths: Vec<String>,
    /// What the call can change, even if the workspace is not scanned now.
    pub scope: ChangeScope,
    /// Whether the call runs.
    pub status: CallStatus,
}

/// What a call can change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ChangeScope {
    /// No file.
    #[default]
    Nothing,
    /// Only the paths that it names.
    NamedPaths,
    /// Any file.
    Anything,
}

/// Whether a call runs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum CallStatus {
    /// It runs, or has run.
    #[default]
    Ran,
    /// It was refused and never ran.
    NeverRan,
    /// It began and has not run yet: it waited at a breakpoint, and changes made meanwhile are not attributed to it.
    Waited {
        /// The id of the call.
        call: String,
        /// How long it waited, in microseconds.
        micros: u64,
        /// Whether its input was changed.
        edited: bool,
    },
}

impl CallStatus {
    /// Returns the id of the call that has not run yet.
    pub(crate) fn waiting_call(&self) -> Option<&String> {
        if let Self::Waited { call, .. } = self { Some(call) } else { None }
    }
}

/// What an event says about its session.
#[derive(Clone, Debug, Default)]
pub struct SessionUpdate {
    /// See [`SessionInfo::directory`](stepback_model::record::SessionInfo::directory).
    pub directory: Option<String>,
    /// See [`SessionInfo::transcript`](stepback_model::record::SessionInfo::transcript).
    pub transcript: Option<String>,
    /// See [`SessionInfo::model`](stepback_model::record::SessionInfo::model).
    pub model: Option<String>,
    /// See [`SessionInfo::started`](stepback_model::record::SessionInfo::started).
    pub started: Option<LaunchCommand>,
    /// What has come to an end with the event.
    pub milestone: Option<SessionMilestone>,
    /// The calls that are not running any more; those of them that are still open never ended.
    pub finished_calls: FinishedCalls,
    /// The additional cost, in millionths of a dollar.
    pub cost: u64,
    /// The task that the event's worker begins with or ends, where the kind of the event does not say so.
    pub task: Option<TaskChange>,
    /// The task list as it is now.
    pub tasks: Option<Value>,
    /// The agent's memory as it is now.
    pub memory: Option<Value>,
    /// The names of the tools and variables that the session has, without values.
    pub environment: Option<Value>,
    /// The agent's reasoning board (its [`ReasoningBoard`]) as it is now.
    pub reasoning: Option<Thinking>,
}

/// What has come to an end with an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionMilestone {
    /// The model has given its final answer to a prompt; that answer is a turn of its own.
    Answered,
    /// The session has ended.
    Ended,
}

/// The calls of a session that are not running any more, as an event shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FinishedCalls {
    /// The event shows nothing about other calls.
    #[default]
    Unknown,
    /// All calls of the event's worker that began before: its model turn, or the worker itself, has ended, or the agent runs
    /// the call of this event only when no other call of the same worker is running.
    OfWorker,
    /// All calls of the session.
    All,
}

/// A [`ReasoningBoard`] that is about to be stored with a step.
#[derive(Clone, Debug)]
pub struct Thinking {
    /// The mind to store.
    pub board: ReasoningBoard,
    /// Where the board that it grew from is stored.
    pub before: Option<BoardLocation>,
    /// What was written, for the caller that continues with this board; `None` until it is stored.
    pub written: Arc<Mutex<Option<WrittenBoard>>>,
}

impl Thinking {
    /// Writes the new part of the board and returns its root.
    pub(super) fn store(&self, batch: &dyn ObjectBatch) -> Result<Option<Hash>, EngineError> {
        let written = self.board.store(batch, self.before.as_ref())?;
        let root = written.place.root;
        // No code panics while holding this lock.
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) = Some(written);
        Ok(root)
    }
}
