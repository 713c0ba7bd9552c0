//! Turns the events that an agent reports into steps: decides when the workspace is scanned, who changed what, and how far the
//! conversation had come.
//!
//! The workspace is scanned twice for every call that can change something: before it runs, which is the checkpoint to go back
//! to, and after it has run, which shows what it did. Calls that run at the same time, or that began and never ended, make no
//! difference to that. Every other event becomes a light step: it holds the conversation, and its files are those of its
//! parent step.

mod batch;
mod detail_pages;
mod step_writer;

use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use stepback_model::event::AgentEvent;
use stepback_model::hash::Hash;
use stepback_model::ids::{SessionId, StepId};
use stepback_model::record::StepRow;
use stepback_model::record::{
    Annotation, LaunchCommand, OpenCall, Session, SessionInfo, Step, StepKind, Trigger,
};
use stepback_model::state::WorkspaceState;
use stepback_model::time::Timestamp;
use stepback_reasoning::ReasoningBoard;
use stepback_reasoning::store::{BoardLocation, WrittenBoard};
use stepback_store::{Mutation, ObjectBatch};

pub use self::batch::WorkspaceEvents;
use self::step_writer::{Detail, ObjectCache, PendingStep, RecordingBatch};
use crate::authorship::Authors;
use crate::calls;
use crate::error::EngineError;
use crate::retry::{is_race_or_exists, retry};
use crate::workspace::{ScanMode, Workspace, wait_for};

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
    Keep(Trigger),
}

/// New messages of a conversation.
#[derive(Clone, Debug)]
pub struct NewMessages {
    /// How many of the messages known so far are still part of the conversation.
    pub keep: u64,
    /// The messages after those, one line each.
    pub lines: Vec<String>,
    /// Where to continue reading next time.
    pub cursor: Value,
}

/// The model turn that requested a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModelTurn {
    /// How many of the given messages come before the turn.
    pub before: usize,
    /// The agent's id of the turn.
    pub id: Option<String>,
}

/// The turn that requested a call, as far as the messages given show it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallOrigin {
    /// The turn that requested the call; `None` if it is not among the messages given.
    pub turn: Option<ModelTurn>,
    /// Whether the answer is final: earlier messages would not change it.
    pub settled: bool,
}

/// A source of the conversation of a session. Only implementations of this trait know the agents' formats.
pub trait ConversationSource: Sync {
    /// Returns the messages since `cursor`; `None` if nothing can be read.
    fn fresh(&self, cursor: Option<&Value>) -> Option<NewMessages>;
    /// Finds the turn that requested `call` in `tail`, the last messages.
    fn turn(&self, tail: &[&str], call: &str) -> CallOrigin;
}

/// A reported event with its context.
pub struct ReportedEvent<'a> {
    /// The event as the agent reported it.
    pub event: AgentEvent,
    /// What the event means for the files.
    pub effect: ScanPolicy,
    /// When the event arrived.
    pub at: Timestamp,
    /// The conversation as it was at the event.
    pub conversation: Option<&'a dyn ConversationSource>,
    /// The paths that the call names, relative to the workspace.
    pub paths: Vec<String>,
    /// What the event tells about its session.
    pub learned: SessionUpdate,
}

/// What an event tells about its session, besides the event itself.
#[derive(Clone, Debug, Default)]
pub struct SessionUpdate {
    /// See [`SessionInfo::directory`].
    pub directory: Option<String>,
    /// See [`SessionInfo::transcript`].
    pub transcript: Option<String>,
    /// See [`SessionInfo::model`].
    pub model: Option<String>,
    /// See [`SessionInfo::started`].
    pub started: Option<LaunchCommand>,
    /// The session has ended.
    pub ended: bool,
    /// The event comes from the agent's own record, in which no event occurs twice.
    pub imported: bool,
    /// The event's key is unique to it: an event with the same key is the same event, delivered again.
    pub once: bool,
    /// No call of the session is running: calls that are still open never ended.
    pub quiet: bool,
    /// No call of the event's worker is running: its model turn, or the worker itself, has ended.
    pub turn_over: bool,
    /// The agent runs this call only when no other call of the same worker is running.
    pub one_by_one: bool,
    /// The call can change something, even if the workspace is not scanned now.
    pub can_change: bool,
    /// The call changes nothing but the paths it names.
    pub only_named: bool,
    /// The call was refused and never ran.
    pub never_ran: bool,
    /// The model has given its final answer to a prompt; that answer is a turn of its own.
    pub answered: bool,
    /// A call that began and has not run yet: it waits at a breakpoint, and changes made meanwhile are not attributed to it.
    pub waiting: Option<String>,
    /// How long the call has waited, in microseconds.
    pub waited: u64,
    /// The input of the waiting call was changed.
    pub edited: bool,
    /// The additional cost of the session, in millionths of a dollar.
    pub cost: u64,
    /// The task list as it is now.
    pub tasks: Option<Value>,
    /// The agent's memory as it is now.
    pub memory: Option<Value>,
    /// The names of the tools and variables that the session has, without values.
    pub environment: Option<Value>,
    /// The agent's reasoning board (its [`ReasoningBoard`]) as it is now.
    pub reasoning: Option<Thinking>,
    /// The id that the step must have, because the recorded data refers to it.
    pub step: Option<StepId>,
    /// Record nothing if the files and git are unchanged.
    pub if_changed: bool,
    /// Tags for the checkpoint, if the step becomes one.
    pub tags: Vec<String>,
}

/// A [`ReasoningBoard`] that is about to be stored with a step.
#[derive(Clone, Debug)]
pub struct Thinking {
    /// The mind to store.
    pub mind: ReasoningBoard,
    /// Where the mind that it grew from is stored.
    pub before: Option<BoardLocation>,
    /// What was written, for the caller that continues with this mind; `None` until it is stored.
    pub written: Arc<Mutex<Option<WrittenBoard>>>,
}

impl Thinking {
    /// Writes the new part of the mind and returns its root.
    fn store(&self, batch: &dyn ObjectBatch) -> Result<Option<Hash>, EngineError> {
        let written = self.mind.store(batch, self.before.as_ref())?;
        let root = written.place.root;
        // No code panics while holding this lock.
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) = Some(written);
        Ok(root)
    }
}

/// A recorded step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordedStep {
    /// The id of the step.
    pub id: StepId,
    /// The number of the step; 0 if nothing was recorded.
    pub number: u64,
    /// The session that the step belongs to.
    pub session: SessionId,
    /// The number of the model turn it belongs to.
    pub iteration: u64,
    /// Whether files or git had changed, so that the step is a checkpoint of its own.
    pub kept: bool,
}

/// A lock held while steps of a workspace are recorded, so that one process at a time decides which calls are open and who
/// changed what.
pub struct RecordLock {
    _file: Option<File>,
}

impl Workspace {
    /// Waits until no other process records steps of this workspace, and takes the lock.
    pub fn lock_recording(&self) -> Result<RecordLock, EngineError> {
        self.lock_recording_within(self.patience())
    }

    /// Like [`Self::lock_recording`], but waits at most for `patience`.
    pub fn lock_recording_within(&self, patience: Duration) -> Result<RecordLock, EngineError> {
        let file = match self.local_dir()? {
            Some(dir) => Some(wait_for(&dir.join("record.lock"), File::try_lock, &self.root, patience)?),
            None => None,
        };
        Ok(RecordLock { _file: file })
    }

    /// Records an event. An event that was already recorded is not recorded again.
    pub fn record(
        &self,
        _lock: &RecordLock,
        report: &ReportedEvent<'_>,
    ) -> Result<RecordedStep, EngineError> {
        retry("record the event", is_race_or_exists, || self.try_record(report))
    }

    /// Records events in their order. If none of them needs a scan, they are recorded in one commit, all or none: a single
    /// wait for the disk is what makes a large batch cheap.
    pub fn record_all(
        &self,
        lock: &RecordLock,
        reports: &[ReportedEvent<'_>],
    ) -> Result<Vec<RecordedStep>, EngineError> {
        if reports.iter().any(|report| report.effect != ScanPolicy::None) {
            return reports.iter().map(|report| self.record(lock, report)).collect();
        }
        let all = [WorkspaceEvents { workspace: self, lock, reports }];
        Ok(self.engine.record_together(&all)?.pop().unwrap_or_default())
    }

    fn try_record(&self, report: &ReportedEvent<'_>) -> Result<RecordedStep, EngineError> {
        let known = self.store().session(self.session_id(report))?;
        let stored = |id| Ok(self.store().step(id)?);
        let step = match self.place_for(known.as_ref(), report, |_| None, stored)? {
            StepSlot::New(step) => step,
            StepSlot::Taken(recorded, _) => return Ok(recorded),
        };
        let is_new = known.is_none();
        let mut session = known.unwrap_or_else(|| self.new_session(report));
        let objects = ObjectCache::new(self.store());
        let counterpart = self.counterpart(&session, report, step)?;
        let begun = PendingStep::new(&objects, report, &mut session, step)?.with_counterpart(counterpart);
        let mut set_head = None;
        let (record, present, batch) = if report.effect != ScanPolicy::None {
            let _lock = self.lock_shared()?;
            let (head, before) = self.head_state()?;
            let mut written = None;
            let mut present = self.present_with(ScanMode::Hinted, &mut |batch, state| {
                let unchanged =
                    before.as_ref().is_some_and(|head| head.files == state.files && head.git == state.git);
                let authors = match unchanged {
                    true => None,
                    false => Some(self.authors(&session, report, (step, counterpart))?),
                };
                let arriving = RecordingBatch { known: &objects, batch, pages: None };
                let detail = begun.objects(&arriving, &mut session, state, authors.as_ref())?;
                if unchanged {
                    (state.files, state.git) = (None, None);
                }
                written = Some((detail, !unchanged));
                Ok(())
            })?;
            let (detail, changed) = written.unwrap_or((None, false));
            let detail = detail.and_then(Detail::stored);
            if !changed && report.learned.if_changed {
                return Ok(RecordedStep {
                    id: step,
                    number: 0,
                    session: session.id,
                    iteration: 0,
                    kept: false,
                });
            }
            if changed {
                set_head = Some(Mutation::SetRef { name: self.head_name(), expected: head, value: step });
            }
            let batch = present.batch.take();
            let record = begun.step(&mut session, present.hash, detail, head, true);
            (record, Some(present), batch)
        } else {
            let batch = self.store().begin()?;
            let arriving = RecordingBatch { known: &objects, batch: &*batch, pages: None };
            let (record, _) = begun.light(&arriving, &mut session, self.head_id()?)?;
            (record, None, Some(batch.finish()?))
        };
        let kept = set_head.is_some();
        let mut recorded = RecordedStep { kept, ..so_far(&record) };
        let trigger = kept.then_some(match report.effect {
            ScanPolicy::Keep(trigger) => trigger,
            _ => Trigger::Automatic,
        });
        let mut mutations = vec![set_session(session, is_new)];
        mutations.extend(set_head);
        let annotation = match kept {
            true => Annotation { tags: report.learned.tags.clone(), ..Annotation::default() },
            false => Annotation::default(),
        };
        mutations.push(Mutation::AppendStep { step: record, annotation, trigger });
        let receipt = self.store().commit(batch, &mutations)?;
        if let Some(mut present) = present {
            present.remember();
        }
        recorded.number = receipt.steps.first().copied().unwrap_or_default();
        Ok(recorded)
    }

    fn session_id(&self, report: &ReportedEvent<'_>) -> SessionId {
        Session::id_of(self.record.id, &report.event.agent, &report.event.session)
    }

    fn new_session(&self, report: &ReportedEvent<'_>) -> Session {
        Session {
            id: self.session_id(report),
            workspace: self.record.id,
            agent: report.event.agent.clone(),
            started_at: report.at,
            info: SessionInfo {
                external: Some(report.event.session.clone()),
                imported: report.learned.imported,
                ..SessionInfo::default()
            },
        }
    }

    /// Returns the step for an event: a new one, or the one that already recorded it. `arriving` looks among the steps of the
    /// batch that is being recorded, `stored` in the store.
    fn place_for<'s>(
        &self,
        known: Option<&Session>,
        report: &ReportedEvent<'_>,
        arriving: impl Fn(StepId) -> Option<(usize, &'s Step)>,
        stored: impl Fn(StepId) -> Result<Option<StepRow>, EngineError>,
    ) -> Result<StepSlot, EngineError> {
        let Some(key) = &report.event.key else {
            let fresh = || StepId::from_bytes(self.engine.env.fresh_id());
            return Ok(StepSlot::New(report.learned.step.unwrap_or_else(fresh)));
        };
        let session = known.map_or_else(|| self.session_id(report), |session| session.id);
        let open: Option<&[OpenCall]> = known.map(|session| session.info.open.as_slice());
        for attempt in 0.. {
            let id = match attempt {
                0 => Step::id_of(session, report.event.kind, key),
                _ => Step::id_of(session, report.event.kind, &format!("{key} again {attempt}")),
            };
            let (taken, at) = match arriving(id) {
                Some((at, step)) => (StepSlot::Taken(so_far(step), Some(at)), step.at),
                None => match stored(id)? {
                    Some(stored) => {
                        let step = &stored.step;
                        (StepSlot::Taken(so_far(step), None), step.at)
                    }
                    None => return Ok(StepSlot::New(id)),
                },
            };
            // The same time means the same report: a note that is read again after a crash.
            let is_same = report.learned.imported || report.learned.once || at == report.at;
            if is_same || !calls::is_another(open, report) {
                return Ok(taken);
            }
        }
        unreachable!("every name is taken at most once")
    }

    /// Returns the head of the workspace and its state; the state is `None` if it was purged, both if nothing is recorded.
    fn head_state(&self) -> Result<(Option<StepId>, Option<WorkspaceState>), EngineError> {
        let Some(id) = self.head_id()? else { return Ok((None, None)) };
        let state = match self.store().step(id)? {
            Some(head) if !head.purged => Some(self.state_of(&head)?),
            _ => None,
        };
        Ok((Some(id), state))
    }

    /// Writes which calls are running, for a step of the user that finds files or git changed since the head.
    pub(crate) fn store_authors(
        &self,
        batch: &dyn ObjectBatch,
        present: &WorkspaceState,
    ) -> Result<Option<Hash>, EngineError> {
        if self.store().working_sessions(self.record.id)?.is_empty() {
            return Ok(None);
        }
        let (_, head) = self.head_state()?;
        if head.is_some_and(|head| head.files == present.files && head.git == present.git) {
            return Ok(None);
        }
        let authors = self.at_work_now(self.engine.env.now())?;
        if authors.calls.is_empty() {
            return Ok(None);
        }
        let detail = serde_json::json!({ "authors": authors });
        let stored = stepback_model::json::store(batch, &detail, None);
        stored.map(Some).map_err(step_writer::unstorable)
    }

    /// Returns the calls that may be changing files at `now`.
    pub(crate) fn at_work_now(&self, now: Timestamp) -> Result<Authors, EngineError> {
        let mut calls = Vec::new();
        for session in self.store().working_sessions(self.record.id)? {
            if session.info.ended_at.is_none() {
                calls.extend(calls::at_work(&session, now));
            }
        }
        Ok(calls::gathered(calls))
    }

    /// Returns the other step of the call that `report` starts or ends, where the session does not have the call open: the
    /// start of a call that ends after it was abandoned, or the end of a call whose start arrives late.
    fn counterpart(
        &self,
        session: &Session,
        report: &ReportedEvent<'_>,
        step: StepId,
    ) -> Result<Option<StepId>, EngineError> {
        let Some(key) = &report.event.key else { return Ok(None) };
        let other = match report.event.kind {
            StepKind::ToolEnd if calls::ending(&session.info.open, report).is_none() => StepKind::ToolStart,
            StepKind::ToolStart if step == Step::id_of(session.id, StepKind::ToolStart, key) => {
                StepKind::ToolEnd
            }
            _ => return Ok(None),
        };
        let id = Step::id_of(session.id, other, key);
        Ok(self.store().step(id)?.map(|_| id))
    }

    /// Returns the calls that were running between the last scan and this one. `step` is the step that is recorded now,
    /// `start` the start of the call it ends if that call is not open any more.
    fn authors(
        &self,
        session: &Session,
        report: &ReportedEvent<'_>,
        (step, start): (StepId, Option<StepId>),
    ) -> Result<Authors, EngineError> {
        let mut calls = Vec::new();
        for other in self.store().working_sessions(self.record.id)? {
            if other.id != session.id && other.info.ended_at.is_none() {
                calls.extend(calls::at_work(&other, report.at));
            }
        }
        // A call did not make the changes from before it began; earlier calls of the same session may have.
        let mut own = session.clone();
        own.info.open.retain(|open| Some(&open.call) != report.learned.waiting.as_ref());
        calls.extend(calls::at_work(&own, report.at));
        calls.extend(calls::ended_unexpectedly(session, report, start, step));
        Ok(calls::gathered(calls))
    }
}

enum StepSlot {
    New(StepId),
    /// The event is already recorded: what is known of its step, and the step's index in the batch if it is part of it.
    Taken(RecordedStep, Option<usize>),
}

fn set_session(session: Session, is_new: bool) -> Mutation {
    match is_new {
        true => Mutation::AddSession(session),
        false => Mutation::SetSessionInfo { session: session.id, info: Box::new(session.info) },
    }
}

/// Returns what is known of a step before it is committed; its number is 0 until then.
fn so_far(step: &Step) -> RecordedStep {
    RecordedStep {
        id: step.id,
        number: step.number,
        session: step.session,
        iteration: step.meta.iteration,
        kept: false,
    }
}
