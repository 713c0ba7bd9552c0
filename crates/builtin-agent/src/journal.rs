//! Records what the built-in agent does as steps of its session.

use std::time::Instant;

use serde_json::{Value, json};
use stepback_agents::breakpoints::{GatedCall, StopDecision};
use stepback_agents::payload::summary_line;
use stepback_agents::record;
use stepback_engine::control::{BreakSide, Control};
use stepback_engine::recorder::{
    CallFacts, ChangeScope, CheckpointSchedule, RecordedStep, ReportedEvent, ScanPolicy, SessionUpdate,
};
use stepback_engine::{EngineError, Workspace};
use stepback_model::event::AgentEvent;
use stepback_model::record::{Session, StepKind};
use stepback_model::time::Timestamp;

use crate::NAME;
use crate::conversation::Dialogue;
use crate::options::ExitReason;

/// Why the agent stops.
#[derive(Debug)]
pub enum StopRequest {
    /// The run has ended.
    Over(ExitReason),
    /// Recording failed.
    Engine(EngineError),
}

impl From<EngineError> for StopRequest {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

/// What is recorded with a step, besides the event.
#[derive(Default)]
pub struct StepExtras<'a> {
    /// Whether the files are scanned, and when; `None` for no scan.
    pub effect: Option<ScanPolicy>,
    /// The conversation, unless it is a worker's: a session has only one.
    pub dialogue: Option<&'a Dialogue>,
    /// Paths that the call names.
    pub paths: Vec<String>,
    /// What the call can change, even if the files are not scanned.
    pub scope: ChangeScope,
    /// What the step says about the session.
    pub update: SessionUpdate,
}

/// Records the steps of one session.
pub struct Journal<'a> {
    /// The workspace the agent runs in.
    pub workspace: &'a Workspace,
    /// The agent's id of the session.
    pub session: String,
    /// How many steps were recorded so far.
    pub steps: u64,
    /// The kind of step and the number of steps after which the run ends; `None` for no limit.
    pub limits: (Option<StepKind>, Option<u64>),
    /// When checkpoints are made by themselves.
    pub schedule: CheckpointSchedule,
    /// The reason to end, once a limit was reached.
    pub reached: Option<ExitReason>,
}

impl Journal<'_> {
    /// Returns the current time.
    pub fn now(&self) -> Timestamp {
        self.workspace.engine.env.now()
    }

    /// Returns a new event of this session.
    pub fn event(&self, kind: StepKind, summary: &str) -> AgentEvent {
        AgentEvent::new(NAME, &self.session, kind, summary_line(summary))
    }

    /// Records an event, with secrets redacted.
    pub fn record(&mut self, event: &AgentEvent, with: StepExtras<'_>) -> Result<RecordedStep, EngineError> {
        let kind = event.kind;
        let mut event = event.clone();
        record::redact_event(&mut event);
        let lock = self.workspace.lock_recording()?;
        // Notes that hooks of other agents left come first, so that steps are in order.
        record::record_inbox_locked(self.workspace, &lock)?;
        let mut report = ReportedEvent {
            scan_policy: with.effect.unwrap_or(ScanPolicy::None),
            call: CallFacts { paths: with.paths, scope: with.scope, ..CallFacts::default() },
            is_exchange: matches!(kind, StepKind::ModelStart | StepKind::ModelEnd),
            update: with.update,
            ..ReportedEvent::new(event, self.now())
        };
        let step = self.workspace.open_step(&lock, &report)?;
        if let (Some(dialogue), Some(conversation)) = (with.dialogue, step.conversation()) {
            let call = report.event.call.as_deref().filter(|_| kind == StepKind::ToolStart);
            report.messages = Some(dialogue.new_messages(conversation.cursor(), call));
        }
        let recorded = step.record(&report)?;
        self.workspace.checkpoint_if_due(&lock, &self.schedule, &report)?;
        drop(lock);
        self.steps += 1;
        let (until, most) = self.limits;
        if self.reached.is_none() && until == Some(kind) {
            self.reached = Some(ExitReason::Until);
        } else if self.reached.is_none() && most.is_some_and(|most| self.steps >= most) {
            self.reached = Some(ExitReason::MaxSteps);
        }
        Ok(recorded)
    }

    /// Stops at a call if a breakpoint or pause applies; `None` if neither does.
    pub fn stop_if_wanted(
        &self,
        event: &AgentEvent,
        paths: &[String],
        recorded: &RecordedStep,
        patience: std::time::Duration,
        waits: &dyn Fn() -> bool,
    ) -> Result<Option<StopDecision>, EngineError> {
        let Some(control) = self.control()? else { return Ok(None) };
        let side = if event.kind == StepKind::ToolStart { BreakSide::Start } else { BreakSide::End };
        let mut event = event.clone();
        // A stop is written to a file and shown to the user.
        record::redact_event(&mut event);
        self.workspace.engine.recorder.redact.redact_event(&mut event);
        let passing = GatedCall {
            workspace: self.workspace,
            event: &event,
            paths,
            recorded,
            answer_timeout: patience,
            env: &*self.workspace.engine.env,
            keep_waiting: waits,
        };
        let mut missed = None;
        let verdict = passing
            .wait_for_decision(&control, side, &mut |error| missed = Some(error))
            .map_err(control_files)?;
        match missed {
            Some(error) => Err(error),
            None => Ok(verdict),
        }
    }

    /// Returns the messages that the user left for the agent.
    pub fn take_said(&self) -> Result<Vec<String>, EngineError> {
        let Some(control) = self.control()? else { return Ok(Vec::new()) };
        let session = Session::id_of(self.workspace.record.id, NAME, &self.session);
        let said = control.take_messages(session).map_err(control_files)?;
        if !said.is_empty() {
            control.disarm_if_empty();
        }
        Ok(said)
    }

    /// Returns the control files of the workspace, if there may be breakpoints, pauses or messages.
    fn control(&self) -> Result<Option<Control>, EngineError> {
        let dir = self.workspace.cache_dir()?;
        Ok(dir.map(|dir| Control::new(&dir)).filter(Control::is_armed))
    }
}

fn control_files(error: std::io::Error) -> EngineError {
    EngineError::Io { what: "cannot use the control files".into(), error }
}

/// The task list in the session's state.
#[derive(Clone, Debug, Default)]
pub struct Tasks(Vec<Value>);

impl Tasks {
    /// Sets the status of a task; an unknown task is added.
    pub fn set(&mut self, id: &str, task: &str, worker: &str, status: &str) -> Value {
        let entry = json!({ "id": id, "task": task, "worker": worker, "status": status });
        match self.0.iter_mut().find(|known| known["id"] == id) {
            Some(known) => *known = entry,
            None => self.0.push(entry),
        }
        Value::Array(self.0.clone())
    }
}

/// Returns when a run has to end.
pub fn deadline(timeout: Option<std::time::Duration>) -> Option<Instant> {
    timeout.and_then(|timeout| Instant::now().checked_add(timeout))
}
