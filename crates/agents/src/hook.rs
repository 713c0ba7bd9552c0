//! `stepback hook AGENT`: handles one event that an agent reports through its hooks, and answers it.
//!
//! The steps are: parse the payload, redact secrets, find the workspace. If the event changes nothing and no breakpoint,
//! pause or rerun policy applies, it is appended to the inbox and the process ends. Otherwise the store is opened, the inbox
//! is recorded, the event is recorded (with a scan of the files if it needs one), and breakpoints are checked.
//!
//! Recording never breaks the agent: a failure leaves a gap in the record and the agent gets no answer, unless the user
//! configured strict mode.

use std::cell::Cell;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use stepback_engine::control::{BreakSide, Control};
use stepback_engine::recorder::settings::RecorderSettings;
use stepback_engine::recorder::{
    CheckpointSchedule, RecordLock, RecordedStep, ReportedEvent, ScanPolicy, SessionMilestone, SessionUpdate,
};
use stepback_engine::{Engine, EngineError, Workspace, workspace_index};
use stepback_model::env::Env;
use stepback_model::event::AgentEvent;
use stepback_model::record::{LaunchCommand, Session, StepKind, Trigger};
use stepback_store::StoreError;

use crate::agent::Agent;
use crate::answer::HookAnswer;
use crate::breakpoints::{GatedCall, StopDecision};
use crate::inbox::{self, InboxNote};
use crate::payload::{self, HookEvent, HookPoint};
use crate::policy::{self, Policy};
use crate::record;
use crate::turn_counter::TurnCounter;

/// Largest payload that is read, in bytes; a larger one leaves a gap.
pub const MAX_PAYLOAD_BYTES: usize = 64 << 20;

/// File in the workspace's cache directory whose modification time is that of the last scheduled checkpoint.
const LAST_SCAN_FILE: &str = "looked";

/// Opens the store on demand: most events do not need it.
pub type WithEngine<'a> =
    &'a dyn Fn(&mut dyn FnMut(&Engine) -> Result<(), EngineError>) -> Result<(), EngineError>;

/// When a hook says how to take back what the agent changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UndoHints {
    /// Never.
    Off,
    /// When the agent has finished a prompt that changed something.
    PerPrompt,
    /// After each call that changed something as well.
    PerChange,
}

/// The context of one hook process.
pub struct Hook<'a> {
    /// The agent that started the hook.
    pub agent: Agent,
    /// The directory of the store.
    pub store: &'a Path,
    /// The current directory of the process.
    pub directory: &'a Path,
    /// Source of time and ids.
    pub env: &'a dyn Env,
    /// Opens the store and runs a function with the engine.
    pub with_engine: WithEngine<'a>,
    /// Returns the root of a new workspace for a directory outside of any; `None` if that root would be too broad.
    pub new_root: &'a dyn Fn(&Path) -> Option<PathBuf>,
    /// Path of the agent's transcript, used if its events do not name one.
    pub transcript: Option<&'a Path>,
    /// How long to wait at a breakpoint before the call is refused.
    pub answer_timeout: Duration,
    /// Whether a failure to record blocks the agent instead of leaving a gap.
    pub strict: bool,
    /// When checkpoints are made by themselves.
    pub schedule: CheckpointSchedule,
    /// Whether files are scanned before and after calls that can change something.
    pub scan_around_calls: bool,
    /// When to tell the user how to take back what the agent changed.
    pub undo_hints: UndoHints,
    /// Whether the list of changes is cleared when the agent has committed to git.
    pub clear_changes_on_commit: bool,
    /// Whether a proxy records this agent's model calls, with more detail than the agent's events have.
    pub has_proxy: bool,
    /// What calls may do, if this is a rerun.
    pub policy: Option<&'a Policy>,
    /// What is recorded of events; the engine has the same.
    pub recorder: &'a RecorderSettings,
    /// What is wrong with the settings, so that defaults are used instead.
    pub settings_problem: Option<&'a str>,
    /// Finds out how the agent was started, as far as its processes show it.
    pub find_launch_command: &'a dyn Fn() -> Option<LaunchCommand>,
    /// Returns the names of the environment variables that the agent has, never their values.
    pub variable_names: &'a dyn Fn() -> Vec<String>,
}

/// What the hook process prints.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct HookOutput {
    /// Answer for the agent, printed to it; `None` to print nothing.
    pub answer: Option<String>,
    /// Error message for the agent's log.
    pub error: Option<String>,
}

impl Hook<'_> {
    /// Handles one event.
    pub fn handle(&self, payload: &[u8]) -> HookOutput {
        let mut value = match parse_json(payload) {
            Ok(value) => value,
            Err(what) => {
                let (name, gate) = guess_event(payload);
                return self.report_failure(None, gate, &name, &what, None);
            }
        };
        stepback_redact::redact_value(&mut value);
        self.recorder.redact.redact_value(&mut value);
        if let (Some(path), Some(fields)) = (self.transcript, value.as_object_mut()) {
            fields.entry("transcript_path").or_insert_with(|| path.to_string_lossy().into());
        }
        let mut event = match payload::read(self.agent, &value) {
            Ok(event)
                if !self.scan_around_calls
                    && matches!(event.scan_policy, ScanPolicy::Before | ScanPolicy::After) =>
            {
                HookEvent { scan_policy: ScanPolicy::None, ..event }
            }
            Ok(event) => event,
            Err(error) => {
                let name = value.get("hook_event_name").and_then(Value::as_str).unwrap_or_default();
                return self.report_failure(
                    None,
                    payload::hook_point_by_name(name),
                    name,
                    &error.to_string(),
                    Some(&value),
                );
            }
        };
        let is_recorded_by_proxy =
            matches!(event.event.kind, StepKind::ModelStart | StepKind::ModelEnd) && self.has_proxy;
        if event.is_ignored || is_recorded_by_proxy {
            return HookOutput::default();
        }
        event.left_out = self.recorder.limit(&mut event.event, false);
        let directory = event.cwd.clone().unwrap_or_else(|| self.directory.to_path_buf());
        let directory = directory.canonicalize().unwrap_or(directory);
        let known = workspace_index::find(self.store, &directory);
        if let Some((_, dir)) = &known {
            self.report_settings_problem(dir, event.point);
        }
        if let Some((_, dir)) = &known
            && self.can_defer(&event, dir)
        {
            let note = self.build_note(&event, Some(payload::payload_for_inbox(value, &event)), None);
            return match inbox::append_note(dir, &note) {
                Ok(()) => {
                    self.count_call(&event, dir);
                    HookOutput::default()
                }
                Err(error) => {
                    let what = format!("cannot write to the inbox: {error}");
                    self.report_failure(Some(dir), event.point, &event.name, &what, None)
                }
            };
        }
        self.add_environment(&mut event);
        let dir = known.as_ref().map(|(_, dir)| dir.as_path());
        let root = match known.as_ref().map(|(root, _)| root.clone()).or_else(|| (self.new_root)(&directory))
        {
            Some(root) => root,
            None => {
                let what =
                    format!("{} is too broad to be a workspace; nothing is recorded", directory.display());
                return HookOutput {
                    answer: self.strict_refusal(event.point, &event.name, &what),
                    error: Some(what),
                };
            }
        };
        let mut answer = HookAnswer::default();
        let is_recorded = Cell::new(false);
        let done = (self.with_engine)(&mut |engine| {
            let workspace = engine.open_workspace_root(&root)?;
            answer = self.record_event(&workspace, &event, &is_recorded)?;
            Ok(())
        });
        match done {
            Ok(()) => HookOutput { answer: answer.render(self.agent, &event.name, event.point), error: None },
            Err(error) => {
                // The event is recorded later, from the inbox, without a scan of the files.
                let missed = (!is_recorded.get()).then_some(&value);
                let reserved = match (&error, dir) {
                    (EngineError::Store(StoreError::Server { .. }), None) => {
                        workspace_index::reserve(self.store, &root, self.env.fresh_id()).ok()
                    }
                    _ => None,
                };
                let dir = dir.or(reserved.as_deref());
                self.report_failure(dir, event.point, &event.name, &error.to_string(), missed)
            }
        }
    }

    /// Adds how the agent was started, and the names of its environment variables.
    fn add_environment(&self, event: &mut HookEvent) {
        // A proxy records more about the launch. Without one, these events are enough to record it.
        if !self.has_proxy && (event.scan_policy == ScanPolicy::Before || event.point == HookPoint::Done) {
            event.update.started = (self.find_launch_command)();
        }
        if event.update.environment.is_none() && event.scan_policy != ScanPolicy::None {
            let variables = (self.variable_names)();
            event.update.environment = (!variables.is_empty()).then(|| json!({ "variables": variables }));
        }
    }

    /// Leaves a gap if the settings cannot be used: once for each prompt, often enough to be seen and not at every call.
    fn report_settings_problem(&self, dir: &Path, point: HookPoint) {
        if let (Some(problem), HookPoint::Prompt) = (self.settings_problem, point) {
            self.leave_gap(dir, "the settings of stepback", problem, None);
        }
    }

    /// Whether the event can wait in the inbox until another process opens the store.
    fn can_defer(&self, event: &HookEvent, dir: &Path) -> bool {
        event.scan_policy == ScanPolicy::None
            && event.point != HookPoint::Done
            && event.update.milestone != Some(SessionMilestone::Ended)
            && !Control::new(dir).is_armed()
            && !self.policy.is_some_and(|policy| policy.has_recorded_reply(&event.event, event.point, dir))
            && !self.may_be_due(event, dir)
    }

    /// Counts a call that waits in the inbox. If that fails, a checkpoint comes later than it should.
    fn count_call(&self, event: &HookEvent, dir: &Path) {
        if event.event.kind == StepKind::ToolStart && self.schedule.iterations.is_some() {
            let _ = TurnCounter::new(dir, &event.event.session).add();
        }
    }

    /// Whether a checkpoint may be due at this event, as far as files tell.
    fn may_be_due(&self, event: &HookEvent, dir: &Path) -> bool {
        let turns = || TurnCounter::new(dir, &event.event.session).most();
        let turns = self.schedule.iterations.map_or(0, |_| turns());
        self.schedule.may_be_due(event.event.kind, turns, minutes_since_checkpoint(dir))
    }

    /// Makes a checkpoint if one is due after an event that was just recorded, and notes how far it is to the next one.
    fn keep_schedule(
        &self,
        workspace: &Workspace,
        lock: &RecordLock,
        event: &HookEvent,
    ) -> Result<(), EngineError> {
        let AgentEvent { agent, session, kind, worker, at, .. } = &event.event;
        let at = at.unwrap_or_else(|| self.env.now());
        let known = AgentEvent { worker: worker.clone(), ..AgentEvent::new(agent, session, *kind, "") };
        let update = SessionUpdate { milestone: event.update.milestone, ..SessionUpdate::default() };
        let report = ReportedEvent { update, ..ReportedEvent::new(known, at) };
        let (begun, checkpoint) = workspace.checkpoint_if_due(lock, &self.schedule, &report)?;
        let Some(dir) = workspace.cache_dir()? else { return Ok(()) };
        let counter = TurnCounter::new(&dir, session);
        if event.update.milestone == Some(SessionMilestone::Ended) {
            counter.remove();
        } else if self.schedule.iterations.is_some() {
            // Without it, the next calls open the store although nothing is due, or one comes late.
            let _ = counter.set(begun);
        }
        let minutes = minutes_since_checkpoint(&dir);
        if checkpoint.is_some() || self.schedule.may_be_due(*kind, 0, minutes) {
            // Without this, every later event would open the store until a file changes.
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o600);
            let file = options.open(dir.join(LAST_SCAN_FILE));
            let _ = file.and_then(|file| file.set_modified(SystemTime::now()));
        }
        Ok(())
    }

    fn build_note(&self, event: &HookEvent, payload: Option<Value>, gap: Option<String>) -> InboxNote {
        // A transcript that does not exist yet has no lines for this event, however long it is when the note is recorded.
        let transcript =
            event.transcript.as_ref().map(|path| std::fs::metadata(path).map_or(0, |file| file.len()));
        InboxNote {
            payload,
            transcript_len: transcript,
            gap,
            left_out: event.left_out.clone(),
            ..InboxNote::new(self.env.now(), self.agent.name())
        }
    }

    fn record_event(
        &self,
        workspace: &Workspace,
        event: &HookEvent,
        is_recorded: &Cell<bool>,
    ) -> Result<HookAnswer, EngineError> {
        let lock = workspace.lock_recording()?;
        record::record_inbox_locked(workspace, &lock)?;
        let mut event = event.clone();
        if event.scan_policy == ScanPolicy::None {
            event.scan_policy =
                self.reason_to_scan(workspace, &event)?.map_or(ScanPolicy::None, ScanPolicy::Checkpoint);
        }
        let recorded = record::record_hook_event(workspace, &lock, &event, self.env.now(), None)?;
        is_recorded.set(true);
        self.keep_schedule(workspace, &lock, &event)?;
        drop(lock);
        let repeated = self.repeat_recorded_reply(workspace, &event)?;
        if event.point == HookPoint::Before && repeated.refusal_reason(self.agent).is_some() {
            return Ok(repeated);
        }
        if let Some(answer) = self.refuse_forbidden_call(workspace, &event)? {
            return Ok(answer);
        }
        let mut answer = match repeated == HookAnswer::default() {
            true => self.apply_controls(workspace, &event, &recorded)?,
            false => repeated,
        };
        if self.clear_changes_on_commit && recorded.is_checkpoint {
            workspace.clear_changes_after_commit(recorded.id)?;
        }
        match (self.undo_hints, event.point) {
            (UndoHints::PerPrompt | UndoHints::PerChange, HookPoint::Done) => {
                answer.note = record::describe_undo(workspace, &recorded)?;
            }
            (UndoHints::PerChange, HookPoint::After) if recorded.is_checkpoint => {
                answer.note = record::describe_undo_of_call(workspace, &recorded, &event.event)?;
            }
            _ => {}
        }
        Ok(answer)
    }

    /// Returns why to scan the files at an event that changes none; `None` for no scan.
    fn reason_to_scan(
        &self,
        workspace: &Workspace,
        event: &HookEvent,
    ) -> Result<Option<Trigger>, EngineError> {
        // There was no scan yet: without one, there would be nothing to rewind to.
        if workspace.head_id()?.is_none() {
            return Ok(Some(Trigger::Automatic));
        }
        let id = Session::id_of(workspace.record.id, &event.event.agent, &event.event.session);
        if event.point != HookPoint::Done && event.update.milestone != Some(SessionMilestone::Ended) {
            return Ok(None);
        }
        // The agent is done, and one of its calls has not ended: its changes are on disk now, and later changes are not its own.
        let session = workspace.store().session(id)?;
        let is_open = session.is_some_and(|session| session.info.open.iter().any(|open| open.changes));
        Ok(is_open.then_some(Trigger::Automatic))
    }

    /// In a rerun, returns what the user decided and said at this point when the session was recorded.
    fn repeat_recorded_reply(
        &self,
        workspace: &Workspace,
        event: &HookEvent,
    ) -> Result<HookAnswer, EngineError> {
        let Some(policy) = self.policy else { return Ok(HookAnswer::default()) };
        let answer = policy.repeat_reply(workspace, &event.event, event.point, self.env.now())?;
        if let (Some(reason), HookPoint::Before) = (answer.refusal_reason(self.agent), event.point) {
            record::record_refusal(workspace, &event.event, &reason, self.env.now())?;
        }
        Ok(answer)
    }

    /// Refuses a call that the policy of a rerun forbids.
    fn refuse_forbidden_call(
        &self,
        workspace: &Workspace,
        event: &HookEvent,
    ) -> Result<Option<HookAnswer>, EngineError> {
        let Some(policy) = self.policy.filter(|_| event.point == HookPoint::Before) else { return Ok(None) };
        let paths = record::relative_call_paths(workspace, event);
        let tool = event.event.tool.as_deref().unwrap_or_default();
        let changes = event.scan_policy == ScanPolicy::Before;
        let reason = match policy.refusal_reason(self.agent, tool, &paths) {
            None if changes && policy.tools == policy::ToolHandling::Recorded => {
                let input = event.event.input.clone().unwrap_or_default();
                policy::apply_recorded_call(policy, workspace, tool, &input)?
            }
            None => return Ok(None),
            Some(reason) => reason,
        };
        record::record_refusal(workspace, &event.event, &reason, self.env.now())?;
        Ok(Some(HookAnswer { deny: Some(reason), ..HookAnswer::default() }))
    }

    /// Stops here if a breakpoint or pause applies, and delivers messages that the user left for the agent.
    fn apply_controls(
        &self,
        workspace: &Workspace,
        event: &HookEvent,
        recorded: &RecordedStep,
    ) -> Result<HookAnswer, EngineError> {
        let mut answer = HookAnswer::default();
        let Some(dir) = workspace.cache_dir()? else { return Ok(answer) };
        let control = Control::new(&dir);
        if !control.is_armed() {
            return Ok(answer);
        }
        let io =
            |error: std::io::Error| EngineError::Io { what: "cannot use the control files".into(), error };
        let side = match event.event.kind {
            StepKind::ToolStart => Some(BreakSide::Start),
            StepKind::ToolEnd | StepKind::Error => Some(BreakSide::End),
            _ => None,
        };
        if let Some(side) = side {
            let passing = GatedCall {
                workspace,
                event: &event.event,
                paths: &record::relative_call_paths(workspace, event),
                recorded,
                answer_timeout: self.answer_timeout,
                env: self.env,
                keep_waiting: &|| true,
            };
            let mut missed = |error: EngineError| self.leave_gap(&dir, &event.name, &error.to_string(), None);
            let verdict = passing.wait_for_decision(&control, side, &mut missed).map_err(io)?;
            match verdict {
                None | Some(StopDecision::Proceed) => {}
                Some(StopDecision::Refused(reason)) => answer.deny = Some(reason),
                Some(StopDecision::Edited(input)) => answer.input = Some(input),
            }
            if let (Some(reason), BreakSide::Start) = (answer.refusal_reason(self.agent), side)
                && let Err(error) = record::record_refusal(workspace, &event.event, &reason, self.env.now())
            {
                missed(error);
            }
        }
        if HookAnswer::can_deliver_message(self.agent, event.point) {
            let messages = control.take_messages(recorded.session).map_err(io)?;
            if !messages.is_empty() {
                answer.context = Some(messages.join("\n\n"));
                control.disarm_if_empty();
                for text in &messages {
                    if let Err(error) = record::record_message(workspace, &event.event, text, self.env.now())
                    {
                        self.leave_gap(&dir, &event.name, &error.to_string(), None);
                    }
                }
            }
        }
        Ok(answer)
    }

    /// Leaves a gap in the record; in strict mode, also refuses the call that was about to run.
    fn report_failure(
        &self,
        dir: Option<&Path>,
        point: HookPoint,
        event: &str,
        what: &str,
        payload: Option<&Value>,
    ) -> HookOutput {
        let dir = dir
            .map(Path::to_path_buf)
            .or_else(|| workspace_index::find(self.store, self.directory).map(|(_, dir)| dir));
        if let Some(dir) = dir {
            self.leave_gap(&dir, event, what, payload);
        }
        HookOutput { answer: self.strict_refusal(point, event, what), error: Some(what.to_string()) }
    }

    /// Notes in the inbox that something is missing from the record; `payload` is what was not recorded.
    fn leave_gap(&self, dir: &Path, event: &str, what: &str, payload: Option<&Value>) {
        let gap = format!("{event}: {what}");
        let note = InboxNote {
            payload: payload.cloned().map(payload::clip_long_texts),
            gap: Some(stepback_redact::redact(gap.trim_start_matches(": ")).into_owned()),
            ..InboxNote::new(self.env.now(), self.agent.name())
        };
        // If this fails too, there is nothing left to try.
        let _ = inbox::append_note(dir, &note);
    }

    /// The answer to an agent whose call could not be recorded: `None`, or a refusal in strict mode.
    fn strict_refusal(&self, point: HookPoint, event: &str, what: &str) -> Option<String> {
        if !self.strict || point != HookPoint::Before {
            return None;
        }
        let reason = format!("stepback could not save a checkpoint first, and --strict is set: {what}");
        HookAnswer { deny: Some(reason), ..HookAnswer::default() }.render(self.agent, event, point)
    }
}

/// Returns how many minutes ago the last checkpoint was made, as far as files tell; 0 if that is unknown.
fn minutes_since_checkpoint(dir: &Path) -> u64 {
    // The stat cache is written by scans that found a change, the other file when a scheduled checkpoint is made.
    let modified = |name: &str| std::fs::metadata(dir.join(name)).and_then(|file| file.modified()).ok();
    let last = modified("statcache").max(modified(LAST_SCAN_FILE));
    let age = last.and_then(|last| last.elapsed().ok());
    age.map_or(0, |age| age.as_secs() / 60)
}

/// Guesses the event name and hook point of a payload that does not parse.
fn guess_event(payload: &[u8]) -> (String, HookPoint) {
    /// How many bytes are searched: agents put the event name before any long field.
    const SEARCHED: usize = 1 << 20;
    let text = String::from_utf8_lossy(&payload[..payload.len().min(SEARCHED)]);
    let name = text.split_once("\"hook_event_name\"").and_then(|(_, rest)| {
        let rest = rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
        Some(rest.split('"').next().unwrap_or_default().chars().take(100).collect::<String>())
    });
    let name = name.unwrap_or_default();
    let gate = payload::hook_point_by_name(&name);
    (name, gate)
}

fn parse_json(payload: &[u8]) -> Result<Value, String> {
    if payload.len() > MAX_PAYLOAD_BYTES {
        return Err(format!("the payload has more than {} MiB", MAX_PAYLOAD_BYTES >> 20));
    }
    serde_json::from_slice(payload).map_err(|error| format!("the payload is not JSON: {error}"))
}
