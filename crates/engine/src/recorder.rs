//! From what an agent reports to steps: when the workspace is scanned, who changed what, and how the conversation stands.
//!
//! The workspace is scanned twice for every call that can change something: before it runs, which is the checkpoint to go back
//! to, and after it has run, which shows what it did. Other calls that run at the same time, or that began and never ended,
//! make no difference to that. Everything else is a light step: it has the conversation, and its files are those of the step
//! it grew from.

mod batch;
mod detail_pages;
mod step_writer;

use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use stepback_mind::Mind;
use stepback_mind::store::{Place, Written};
use stepback_model::event::Event;
use stepback_model::hash::Hash;
use stepback_model::ids::{SessionId, StepId};
use stepback_model::record::{
    Annotation, LaunchCommand, OpenCall, Session, SessionInfo, Step, StepKind, Trigger,
};
use stepback_model::state::State;
use stepback_model::time::Timestamp;
use stepback_store::port::StoredCheckpoint;
use stepback_store::{Mutation, ObjectBatch, StoreError};

pub use self::batch::WorkspaceEvents;
use self::step_writer::{Detail, ObjectCache, PendingStep, RecordingBatch};
use crate::authorship::Authors;
use crate::calls;
use crate::error::EngineError;
use crate::workspace::{ScanMode, Workspace, wait_for};

/// How often a commit is tried when others commit at the same time.
const ATTEMPTS: usize = 50;

/// What a reported event means for the files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScanPolicy {
    /// Nothing changes.
    None,
    /// A call that can change something is about to run.
    Before,
    /// A call that can change something has run.
    After,
    /// Worth a checkpoint by itself: the conversation is about to be compacted, a timer ran out.
    Keep(Trigger),
}

/// New messages of a conversation.
#[derive(Clone, Debug)]
pub struct NewMessages {
    /// How many of the messages known so far still count.
    pub keep: u64,
    /// The messages after those.
    pub lines: Vec<String>,
    /// Where to go on reading, for the next time.
    pub cursor: Value,
}

/// The turn that asked for a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Turn {
    /// How many of the given messages came before it.
    pub before: usize,
    /// The agent's id of it.
    pub id: Option<String>,
}

/// Who asked for a call, as far as the last messages tell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallOrigin {
    /// The turn that did.
    pub turn: Option<Turn>,
    /// Messages further back would not change that.
    pub settled: bool,
}

/// Where the conversation of a session is read. The agents' formats are known only to whoever implements this.
pub trait Conversation: Sync {
    /// What came since `cursor`; `None` if nothing can be read.
    fn fresh(&self, cursor: Option<&Value>) -> Option<NewMessages>;
    /// The turn that asked for `call`, among the last messages.
    fn turn(&self, tail: &[&str], call: &str) -> CallOrigin;
}

/// One reported event and what goes with it.
pub struct ReportedEvent<'a> {
    /// What happened.
    pub event: Event,
    /// What it means for the files.
    pub effect: ScanPolicy,
    /// When it arrived.
    pub at: Timestamp,
    /// The conversation as it was then.
    pub conversation: Option<&'a dyn Conversation>,
    /// Paths that the call names, relative to the workspace.
    pub paths: Vec<String>,
    /// What else is now known about the session.
    pub learned: SessionUpdate,
}

/// What an event tells about its session.
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
    /// The session is over.
    pub ended: bool,
    /// It comes from the agent's own record, in which nothing happens twice.
    pub imported: bool,
    /// The key is the event's own: whatever comes with it again is the same event, delivered again.
    pub once: bool,
    /// No call of the session is running: calls still open never ended.
    pub quiet: bool,
    /// No call of the event's worker is running: its model turn, or the worker itself, is over.
    pub turn_over: bool,
    /// The agent runs this call only when no other call of the same worker is running.
    pub one_by_one: bool,
    /// The call can change something, even if the workspace is not scanned now.
    pub can_change: bool,
    /// The call changes nothing but the paths it names.
    pub only_named: bool,
    /// The call was refused and never ran.
    pub never_ran: bool,
    /// The model has said its last word about a prompt, which is a turn of its own.
    pub answered: bool,
    /// A call that began and has not run yet: it waits at a breakpoint, and what changes meanwhile is not its doing.
    pub waiting: Option<String>,
    /// How long it has waited, in microseconds.
    pub waited: u64,
    /// The input of the waiting call was changed.
    pub edited: bool,
    /// What the session has cost more, in millionths of a dollar.
    pub cost: u64,
    /// The task list as it is now.
    pub tasks: Option<Value>,
    /// The agent's memory as it is now.
    pub memory: Option<Value>,
    /// Names of tools and variables that the session has, no values.
    pub environment: Option<Value>,
    /// What the agent thinks as of now.
    pub reasoning: Option<Thinking>,
    /// The id that its step shall have, because what is recorded names it.
    pub step: Option<StepId>,
    /// Nothing is recorded if files are as they were.
    pub if_changed: bool,
    /// Tags of the checkpoint, if it becomes one.
    pub tags: Vec<String>,
}

/// A mind on its way into the store.
#[derive(Clone, Debug)]
pub struct Thinking {
    /// The mind.
    pub mind: Mind,
    /// Where the one it grew from is.
    pub before: Option<Place>,
    /// What was written of it, for whoever goes on with it.
    pub written: Arc<Mutex<Option<Written>>>,
}

impl Thinking {
    /// Writes what is new of it.
    fn store(&self, batch: &dyn ObjectBatch) -> Result<Option<Hash>, EngineError> {
        let written = self.mind.store(batch, self.before.as_ref())?;
        let root = written.place.root;
        // Nobody panics while holding it.
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) = Some(written);
        Ok(root)
    }
}

/// A recorded step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordedStep {
    /// Its id.
    pub id: StepId,
    /// Its number.
    pub number: u64,
    /// The session.
    pub session: SessionId,
    /// The model turn it belongs to.
    pub iteration: u64,
    /// Whether files or git had changed, so that the step is a checkpoint of its own.
    pub kept: bool,
}

/// Held while steps of a workspace are recorded, so that what is open and who did what is known to one process at a time.
pub struct RecordLock {
    _file: Option<File>,
}

impl Workspace<'_> {
    /// Waits until nobody else records steps of this workspace.
    pub fn lock_recording(&self) -> Result<RecordLock, EngineError> {
        self.lock_recording_within(self.patience())
    }

    /// Like [`Self::lock_recording`], for somebody who waits at most for `patience`.
    pub fn lock_recording_within(&self, patience: Duration) -> Result<RecordLock, EngineError> {
        let file = match self.local_dir()? {
            Some(dir) => Some(wait_for(&dir.join("record.lock"), File::try_lock, &self.root, patience)?),
            None => None,
        };
        Ok(RecordLock { _file: file })
    }

    /// Records an event. The same event reported again is not recorded again.
    pub fn record(
        &self,
        _lock: &RecordLock,
        report: &ReportedEvent<'_>,
    ) -> Result<RecordedStep, EngineError> {
        until_committed(|| self.try_record(report))
    }

    /// Records events in their order. If none of them means anything for the files, they take one commit together, and all are
    /// recorded or none: waiting for the disk once is what makes many of them cheap.
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

    /// Where an event belongs in the record: at a new step, or at the one that recorded it already, which may be one of those
    /// that are on their way into it, where `arriving` finds it, or one that is `stored`.
    fn place_for<'s>(
        &self,
        known: Option<&Session>,
        report: &ReportedEvent<'_>,
        arriving: impl Fn(StepId) -> Option<(usize, &'s Step)>,
        stored: impl Fn(StepId) -> Result<Option<StoredCheckpoint>, EngineError>,
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
                        let step = &stored.checkpoint.step;
                        (StepSlot::Taken(so_far(step), None), step.at)
                    }
                    None => return Ok(StepSlot::New(id)),
                },
            };
            // The very same moment is the very same report: a note that is taken in once more after a crash.
            let is_same = report.learned.imported || report.learned.once || at == report.at;
            if is_same || !calls::is_another(open, report) {
                return Ok(taken);
            }
        }
        unreachable!("every name is taken at most once")
    }

    /// The step the workspace stands at, and its state, as far as there are such.
    fn head_state(&self) -> Result<(Option<StepId>, Option<State>), EngineError> {
        let Some(id) = self.head_id()? else { return Ok((None, None)) };
        let state = match self.store().step(id)? {
            Some(head) if !head.purged => Some(self.state_of(&head)?),
            _ => None,
        };
        Ok((Some(id), state))
    }

    /// Writes which calls are running, for a step of the person that finds files or git changed since the head.
    pub(crate) fn store_authors(
        &self,
        batch: &dyn ObjectBatch,
        present: &State,
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

    /// Who may be changing something right now.
    pub(crate) fn at_work_now(&self, now: Timestamp) -> Result<Authors, EngineError> {
        let mut calls = Vec::new();
        for session in self.store().working_sessions(self.record.id)? {
            if session.info.ended_at.is_none() {
                calls.extend(calls::at_work(&session, now));
            }
        }
        Ok(calls::gathered(calls))
    }

    /// The other step of the call that starts or ends with `report` where the session does not have it open: the start of one
    /// that ends after it was abandoned, or the end of one whose start arrives after it.
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

    /// Who was at work between the last scan and this one. `ending` is the step that is recorded now, and the start of the call
    /// it ends if that is not open any more.
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
        // What changed before a call began is not its doing; earlier calls of the same session may have.
        let mut own = session.clone();
        own.info.open.retain(|open| Some(&open.call) != report.learned.waiting.as_ref());
        calls.extend(calls::at_work(&own, report.at));
        calls.extend(calls::ended_unexpectedly(session, report, start, step));
        Ok(calls::gathered(calls))
    }
}

enum StepSlot {
    New(StepId),
    /// What is known of the step that is there, and which of the arriving ones it is.
    Taken(RecordedStep, Option<usize>),
}

/// Tries again when others committed at the same time.
fn until_committed<T>(mut attempt: impl FnMut() -> Result<T, EngineError>) -> Result<T, EngineError> {
    for _ in 0..ATTEMPTS {
        match attempt() {
            // What exists was recorded by somebody on another machine, who knows nothing of our locks.
            Err(EngineError::Store(
                StoreError::Collected | StoreError::Moved { .. } | StoreError::Exists { .. },
            )) => {}
            other => return other,
        }
    }
    Err(StoreError::Locked.into())
}

fn set_session(session: Session, is_new: bool) -> Mutation {
    match is_new {
        true => Mutation::AddSession(session),
        false => Mutation::SetSessionInfo { session: session.id, info: Box::new(session.info) },
    }
}

/// What is known of a step; its number, if it has one.
fn so_far(step: &Step) -> RecordedStep {
    RecordedStep {
        id: step.id,
        number: step.number,
        session: step.session,
        iteration: step.facts.iteration,
        kept: false,
    }
}
