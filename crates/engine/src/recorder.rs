//! Turns the events that an agent reports into steps: decides when the workspace is scanned, who changed what, and how far the
//! conversation had come.
//!
//! The workspace is scanned twice for every call that can change something: before it runs, which is the checkpoint to go back
//! to, and after it has run, which shows what it did. Calls that run at the same time, or that began and never ended, make no
//! difference to that. Every other event becomes a light step: it holds the conversation, and its files are those of its
//! parent step.
//!
//! A caller hands over a [`ReportedEvent`]; a `PendingStep` writes its objects, and one commit adds the [`Step`] and the
//! session. The recorder never asks the caller for anything meanwhile. A caller that has to know how far a conversation is
//! recorded opens the step first ([`Workspace::open_step`], or [`Workspace::open_batch`] for several events).

mod batch;
mod conversation;
mod detail_pages;
mod report;
mod schedule;
pub mod settings;
mod step_writer;
mod task_context;

use std::fs::File;
use std::time::Duration;

use stepback_model::hash::Hash;
use stepback_model::ids::{SessionId, StepId};
use stepback_model::record::StepRow;
use stepback_model::record::{Annotation, OpenCall, Session, SessionInfo, Step, StepKind, Trigger};
use stepback_model::state::WorkspaceState;
use stepback_model::time::Timestamp;
use stepback_store::{Mutation, ObjectBatch};

pub use self::batch::{OpenBatch, WorkspaceEvents};
pub use self::conversation::{ModelTurn, NewMessages, RecordedConversation};
pub use self::report::{
    CallFacts, CallStatus, ChangeScope, EventSource, FinishedCalls, ReportedEvent, ScanPolicy,
    SessionMilestone, SessionUpdate, Thinking,
};
pub use self::schedule::CheckpointSchedule;
use self::settings::CapturedPart;
use self::settings::sampling::Admission;
use self::step_writer::{DetailLocation, ObjectCache, PendingStep, RecordingBatch, ScanResult, SkippedParts};
pub use self::task_context::TaskChange;
use crate::authorship::Authors;
use crate::calls;
use crate::error::EngineError;
use crate::retry::{is_race_or_exists, retry};
use crate::workspace::{ScanMode, Workspace, wait_for_lock};

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
    pub is_checkpoint: bool,
}

/// A lock held while steps of a workspace are recorded, so that one process at a time decides which calls are open and who
/// changed what.
pub struct RecordLock {
    _file: Option<File>,
}

impl Workspace {
    /// Waits until no other process records steps of this workspace, and takes the lock.
    pub fn lock_recording(&self) -> Result<RecordLock, EngineError> {
        self.lock_recording_with_timeout(self.lock_timeout())
    }

    /// Like [`Self::lock_recording`], but waits at most for `patience`.
    pub fn lock_recording_with_timeout(&self, patience: Duration) -> Result<RecordLock, EngineError> {
        let file = match self.local_dir()? {
            Some(dir) => Some(wait_for_lock(&dir.join("record.lock"), File::try_lock, &self.root, patience)?),
            None => None,
        };
        Ok(RecordLock { _file: file })
    }

    /// Records an event. An event that was already recorded is not recorded again.
    pub fn record(&self, lock: &RecordLock, report: &ReportedEvent) -> Result<RecordedStep, EngineError> {
        self.open_step(lock, report)?.record(report)
    }

    /// Records events that need no scan, in their order and in one commit, all or none: a single wait for the disk is what
    /// makes a large batch cheap.
    pub fn record_batch(
        &self,
        lock: &RecordLock,
        reports: &[ReportedEvent],
    ) -> Result<Vec<RecordedStep>, EngineError> {
        let events = [WorkspaceEvents { workspace: self, lock, reports }];
        Ok(self.engine.record_workspaces(&events)?.pop().unwrap_or_default())
    }

    /// Finds the step for an event. The messages of `report` do not matter yet.
    pub fn open_step(&self, _lock: &RecordLock, report: &ReportedEvent) -> Result<OpenStep<'_>, EngineError> {
        self.find_step(report)
    }

    fn find_step(&self, report: &ReportedEvent) -> Result<OpenStep<'_>, EngineError> {
        let session = self.store().session(self.session_id_for(report))?;
        let stored = |id| Ok(self.store().step(id)?);
        let slot = self.find_step_slot(session.as_ref(), report, |_| None, stored)?;
        Ok(OpenStep { workspace: self, objects: ObjectCache::new(self.store()), session, slot })
    }

    fn session_id_for(&self, report: &ReportedEvent) -> SessionId {
        Session::id_of(self.record.id, &report.event.agent, &report.event.session)
    }

    fn new_session(&self, report: &ReportedEvent) -> Session {
        Session {
            id: self.session_id_for(report),
            workspace: self.record.id,
            agent: report.event.agent.clone(),
            started_at: report.at,
            info: SessionInfo {
                external: Some(report.event.session.clone()),
                imported: report.source == EventSource::Imported,
                ..SessionInfo::default()
            },
        }
    }

    /// Returns the step for an event: a new one, or the one that already recorded it. `arriving` looks among the steps of the
    /// batch that is being recorded, `stored` in the store.
    fn find_step_slot<'s>(
        &self,
        known_session: Option<&Session>,
        report: &ReportedEvent,
        arriving: impl Fn(StepId) -> Option<(usize, &'s Step)>,
        stored: impl Fn(StepId) -> Result<Option<StepRow>, EngineError>,
    ) -> Result<StepSlot, EngineError> {
        let Some(key) = &report.event.key else {
            return Ok(StepSlot::New(match report.source {
                EventSource::Assigned(step) => step,
                _ => StepId::from_bytes(self.engine.env.fresh_id()),
            }));
        };
        let session = known_session.map_or_else(|| self.session_id_for(report), |session| session.id);
        let open: Option<&[OpenCall]> = known_session.map(|session| session.info.open.as_slice());
        for attempt in 0.. {
            let id = match attempt {
                0 => Step::id_of(session, report.event.kind, key),
                _ => Step::id_of(session, report.event.kind, &format!("{key} again {attempt}")),
            };
            let (slot, at) = match arriving(id) {
                Some((at, step)) => (StepSlot::Taken(uncommitted_step(step), Some(at)), step.at),
                None => match stored(id)? {
                    Some(stored) => {
                        let step = &stored.step;
                        (StepSlot::Taken(uncommitted_step(step), None), step.at)
                    }
                    None => return Ok(StepSlot::New(id)),
                },
            };
            // The same time means the same report: a note that is read again after a crash.
            let is_same =
                matches!(report.source, EventSource::Keyed | EventSource::Imported) || at == report.at;
            if is_same || !calls::is_reused_call_id(open, report) {
                return Ok(slot);
            }
        }
        unreachable!("every name is taken at most once")
    }

    /// Returns the head of the workspace and its state; the state is `None` if it was purged, both if nothing is recorded.
    fn head_state(&self) -> Result<(Option<StepId>, Option<WorkspaceState>), EngineError> {
        let Some(id) = self.head_id()? else { return Ok((None, None)) };
        let state = match self.store().step(id)? {
            Some(head) if !head.purged => Some(self.load_state(&head)?),
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
        let authors = self.collect_active_authors(self.engine.env.now())?;
        if authors.calls.is_empty() {
            return Ok(None);
        }
        let detail = serde_json::json!({ "authors": authors });
        let stored = stepback_model::json::store(batch, &detail, None);
        Ok(Some(stored?))
    }

    /// Returns the calls that may be changing files at `now`.
    pub(crate) fn collect_active_authors(&self, now: Timestamp) -> Result<Authors, EngineError> {
        let mut calls = Vec::new();
        for session in self.store().working_sessions(self.record.id)? {
            if session.info.ended_at.is_none() {
                calls.extend(calls::active_calls(&session, now));
            }
        }
        Ok(calls::collect_authors(calls))
    }

    /// Returns the other step of the call that `report` starts or ends, where the session does not have the call open: the
    /// start of a call that ends after it was abandoned, or the end of a call whose start arrives late.
    fn find_counterpart(
        &self,
        session: &Session,
        report: &ReportedEvent,
        step: StepId,
    ) -> Result<Option<StepId>, EngineError> {
        let Some(key) = &report.event.key else { return Ok(None) };
        let other_end = match report.event.kind {
            StepKind::ToolEnd if calls::find_ending_call(&session.info.open, report).is_none() => {
                StepKind::ToolStart
            }
            StepKind::ToolStart if step == Step::id_of(session.id, StepKind::ToolStart, key) => {
                StepKind::ToolEnd
            }
            _ => return Ok(None),
        };
        let id = Step::id_of(session.id, other_end, key);
        Ok(self.store().step(id)?.map(|_| id))
    }

    /// Returns the calls that were running between the last scan and this one. `step` is the step that is recorded now,
    /// `start` the start of the call it ends if that call is not open any more.
    fn collect_step_authors(
        &self,
        session: &Session,
        report: &ReportedEvent,
        (step, start): (StepId, Option<StepId>),
    ) -> Result<Authors, EngineError> {
        let mut calls = Vec::new();
        for other_session in self.store().working_sessions(self.record.id)? {
            if other_session.id != session.id && other_session.info.ended_at.is_none() {
                calls.extend(calls::active_calls(&other_session, report.at));
            }
        }
        // A call did not make the changes from before it began; earlier calls of the same session may have.
        let mut own_session = session.clone();
        own_session.info.open.retain(|open| Some(&open.call) != report.call.status.waiting_call());
        calls.extend(calls::active_calls(&own_session, report.at));
        calls.extend(calls::find_unexpected_end(session, report, start, step));
        Ok(calls::collect_authors(calls))
    }
}

/// The step of an event that is about to be recorded. Between opening it and recording it, the caller reads what is new in
/// the conversation.
pub struct OpenStep<'w> {
    workspace: &'w Workspace,
    objects: ObjectCache<'w>,
    /// `None` if the event is the first of its session.
    session: Option<Session>,
    slot: StepSlot,
}

impl OpenStep<'_> {
    /// Returns the conversation that the event continues; `None` if the event is already recorded.
    pub fn conversation(&self) -> Option<RecordedConversation<'_>> {
        let info = self.session.as_ref().map(|session| &session.info);
        let is_kept = self.workspace.engine.recorder.captures(CapturedPart::Conversation);
        let conversation = RecordedConversation { objects: &self.objects, info, is_kept };
        matches!(self.slot, StepSlot::New(_)).then_some(conversation)
    }

    /// Records the event, which must be the one that the step was opened for.
    pub fn record(self, report: &ReportedEvent) -> Result<RecordedStep, EngineError> {
        let workspace = self.workspace;
        let shaped = workspace.engine.recorder.shape(report);
        let report = &*shaped;
        let mut first = Some(self);
        retry("record the event", is_race_or_exists, || {
            first.take().map_or_else(|| workspace.find_step(report), Ok)?.try_record(report)
        })
    }

    fn try_record(self, report: &ReportedEvent) -> Result<RecordedStep, EngineError> {
        let Self { workspace, objects, session: known, slot } = self;
        let step = match slot {
            StepSlot::New(step) => step,
            StepSlot::Taken(recorded, _) => return Ok(recorded),
        };
        let is_new = known.is_none();
        let mut session = known.unwrap_or_else(|| workspace.new_session(report));
        let settings = &workspace.engine.recorder;
        let admission = settings.admit(&mut session.info.skipped, report);
        let counterpart = workspace.find_counterpart(&session, report, step)?;
        let pending = PendingStep::new(report, &mut session, step, settings).with_counterpart(counterpart);
        if admission == Admission::Skip {
            let batch = workspace.store().begin()?;
            let arriving = RecordingBatch { cache: &objects, batch: &*batch, pages: None };
            pending.skip(&arriving, &mut session, SkippedParts::NotWritten)?;
            let skipped = unrecorded_step(step, &session);
            let batch = batch.finish()?;
            workspace.store().commit(Some(batch), &[session_mutation(session, is_new)])?;
            return Ok(skipped);
        }
        let mut set_head = None;
        let (record, present, batch) = if report.scan_policy != ScanPolicy::None {
            let _lock = workspace.lock_shared()?;
            let (head, head_state) = workspace.head_state()?;
            let mut written = None;
            let is_saved = matches!(report.scan_policy, ScanPolicy::Save(_));
            let mut present = workspace.scan_present_with(ScanMode::Hinted, &mut |batch, state| {
                let unchanged = head_state
                    .as_ref()
                    .is_some_and(|head| head.files == state.files && head.git == state.git);
                let authors = match unchanged {
                    true => None,
                    false => Some(workspace.collect_step_authors(&session, report, (step, counterpart))?),
                };
                let arriving = RecordingBatch { cache: &objects, batch, pages: None };
                let detail = pending.write_objects(&arriving, &mut session, state, authors.as_ref())?;
                let is_same = match report.scan_policy {
                    ScanPolicy::CheckpointIfChanged => head_state.as_ref() == Some(&*state),
                    _ => unchanged && !is_saved,
                };
                if is_same {
                    (state.files, state.git) = (None, None);
                }
                written = Some((detail, !is_same));
                Ok(())
            })?;
            let (detail, changed) = written.unwrap_or((None, false));
            let detail = detail.and_then(DetailLocation::into_stored);
            if !changed && report.scan_policy == ScanPolicy::CheckpointIfChanged {
                return Ok(RecordedStep { iteration: 0, ..unrecorded_step(step, &session) });
            }
            if !changed && admission == Admission::IfChanged {
                let batch = workspace.store().begin()?;
                let arriving = RecordingBatch { cache: &objects, batch: &*batch, pages: None };
                pending.skip(&arriving, &mut session, SkippedParts::Written)?;
                let skipped = unrecorded_step(step, &session);
                workspace.store().commit(present.batch.take(), &[session_mutation(session, is_new)])?;
                return Ok(skipped);
            }
            if changed {
                set_head = Some(Mutation::SetRef { name: workspace.head_ref(), expected: head, value: step });
            }
            let batch = present.batch.take();
            let scan = if changed { ScanResult::Checkpoint } else { ScanResult::Unchanged };
            let record = pending.into_step(&mut session, present.hash, detail, head, scan);
            (record, Some(present), batch)
        } else {
            let batch = workspace.store().begin()?;
            let arriving = RecordingBatch { cache: &objects, batch: &*batch, pages: None };
            let (record, _) = pending.write_light_step(&arriving, &mut session, workspace.head_id()?)?;
            (record, None, Some(batch.finish()?))
        };
        let is_checkpoint = set_head.is_some();
        let mut recorded = RecordedStep { is_checkpoint, ..uncommitted_step(&record) };
        let trigger = is_checkpoint.then_some(match report.scan_policy {
            ScanPolicy::Checkpoint(trigger) | ScanPolicy::Save(trigger) => trigger,
            _ => Trigger::Automatic,
        });
        let mut mutations = vec![session_mutation(session, is_new)];
        mutations.extend(set_head);
        let annotation = match is_checkpoint {
            true => Annotation { tags: report.tags.clone(), ..Annotation::default() },
            false => Annotation::default(),
        };
        mutations.push(Mutation::AppendStep { step: record, annotation, trigger });
        let receipt = workspace.store().commit(batch, &mutations)?;
        if let Some(mut present) = present {
            present.save_stat_cache();
        }
        recorded.number = receipt.steps.first().copied().unwrap_or_default();
        Ok(recorded)
    }
}

enum StepSlot {
    New(StepId),
    /// The event is already recorded: what is known of its step, and the step's index in the batch if it is part of it.
    Taken(RecordedStep, Option<usize>),
}

fn session_mutation(session: Session, is_new: bool) -> Mutation {
    match is_new {
        true => Mutation::AddSession(session),
        false => Mutation::SetSessionInfo { session: session.id, info: Box::new(session.info) },
    }
}

/// Returns what is known of an event that did not become a step.
fn unrecorded_step(id: StepId, session: &Session) -> RecordedStep {
    let iteration = session.info.iteration;
    RecordedStep { id, number: 0, session: session.id, iteration, is_checkpoint: false }
}

/// Returns what is known of a step before it is committed; its number is 0 until then.
fn uncommitted_step(step: &Step) -> RecordedStep {
    RecordedStep {
        id: step.id,
        number: step.number,
        session: step.session,
        iteration: step.meta.iteration,
        is_checkpoint: false,
    }
}
