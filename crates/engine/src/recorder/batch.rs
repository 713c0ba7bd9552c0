//! Batches: light steps of any number of sessions and workspaces, recorded by one commit.
//!
//! Waiting for the disk is the main cost of an event. A caller with many events (a server that many agents report to, or an
//! inbox that is read) therefore waits once for the whole batch. Each session is read once and each object is written once; an
//! event finds the ones before it both in the batch and in the store.
//!
//! [`Engine::record_together`] records events whose messages are known. A caller that reads conversations uses an
//! [`OpenBatch`]: each event's conversation continues the one of the events before it in the batch.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use stepback_model::ids::{SessionId, StepId};
use stepback_model::record::{Annotation, Session, Step};
use stepback_store::port::Questions;
use stepback_store::{Mutation, ObjectBatch, Store};

use super::detail_pages::{DetailPages, PageRef};
use super::settings::CapturedPart;
use super::settings::sampling::Admission;
use super::step_writer::{ObjectCache, PendingStep, RecordingBatch, SkippedParts};
use super::{
    RecordLock, RecordedConversation, RecordedStep, ReportedEvent, ScanPolicy, StepSlot, session_mutation,
    uncommitted_step, unrecorded_step,
};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::retry::{ATTEMPTS, is_race_or_exists, retry};
use crate::workspace::Workspace;

/// Events of one workspace, in their order. None of them may need a scan.
pub struct WorkspaceEvents<'a> {
    /// The workspace in which the events happened.
    pub workspace: &'a Workspace,
    /// Proof that no other process records steps of that workspace meanwhile.
    pub lock: &'a RecordLock,
    /// The events, oldest first.
    pub reports: &'a [ReportedEvent],
}

/// Whether a commit fails if what the batch builds on has changed since it was read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadMode {
    /// It fails.
    Compared,
    /// It does not, so that a process that lost the race many times still makes progress.
    Uncompared,
}

impl Engine {
    /// Records events of several workspaces by one commit: all of them or none.
    pub fn record_workspaces(
        &self,
        groups: &[WorkspaceEvents<'_>],
    ) -> Result<Vec<Vec<RecordedStep>>, EngineError> {
        self.commit_with_retry(None, groups)
    }

    /// Commits `first`, to which all events were added, or a new batch. If another process committed meanwhile, the events
    /// are added to a new one.
    fn commit_with_retry(
        &self,
        mut first: Option<BatchWriter<'_>>,
        groups: &[WorkspaceEvents<'_>],
    ) -> Result<Vec<Vec<RecordedStep>>, EngineError> {
        let mut modes = std::iter::repeat_n(ReadMode::Compared, ATTEMPTS - 1);
        retry("record the events", is_race_or_exists, || {
            let mode = modes.next().unwrap_or(ReadMode::Uncompared);
            if let Some(writer) = first.take() {
                return writer.commit();
            }
            let mut writer = self.begin_batch(groups, mode)?;
            for (index, WorkspaceEvents { workspace, reports, .. }) in groups.iter().enumerate() {
                for report in *reports {
                    writer.add(index, workspace, report, None)?;
                }
            }
            writer.commit()
        })
    }

    /// Reads in one query what must be known before recording (which of the steps are already stored, the sessions, and the
    /// heads of the workspaces), and begins a batch that builds on it.
    fn begin_batch(
        &self,
        groups: &[WorkspaceEvents<'_>],
        mode: ReadMode,
    ) -> Result<BatchWriter<'_>, EngineError> {
        if groups.iter().flat_map(|group| group.reports).any(|report| report.scan_policy != ScanPolicy::None)
        {
            return Err(EngineError::ScanInBatch);
        }
        let session_ids: Vec<Vec<SessionId>> = groups.iter().map(session_ids).collect();
        let (mut steps, mut unique, mut session_at) = (Vec::new(), Vec::new(), HashMap::new());
        for (WorkspaceEvents { reports, .. }, ids) in groups.iter().zip(&session_ids) {
            for (report, session) in reports.iter().zip(ids) {
                let key = report.event.key.as_ref();
                steps.extend(key.map(|key| Step::id_of(*session, report.event.kind, key)));
                if let Entry::Vacant(new) = session_at.entry(*session) {
                    new.insert(unique.len());
                    unique.push(*session);
                }
            }
        }
        let references: Vec<String> = groups.iter().map(|group| group.workspace.head_ref()).collect();
        let questions = Questions { steps: &steps, references: &references, sessions: &unique };
        let mut results = self.store.look(&questions)?;
        let sessions = std::mem::take(&mut results.sessions).into_iter();
        let sessions = sessions
            .map(|session| BatchSession { is_new: session.is_none(), session, is_changed: false })
            .collect();
        let batch = match mode {
            ReadMode::Compared => self.store.begin_on(&results)?,
            ReadMode::Uncompared => self.store.begin_since(results.epoch)?,
        };
        Ok(BatchWriter {
            store: self.store(),
            objects: ObjectCache::new(self.store()),
            batch,
            pages: RefCell::default(),
            session_ids,
            heads: results.references,
            sessions,
            session_index: session_at,
            steps: Vec::new(),
            page_refs: Vec::new(),
            step_index: HashMap::new(),
            already_stored: steps.into_iter().map(|step| (step, results.stored.contains(&step))).collect(),
            recorded: groups.iter().map(|group| Vec::with_capacity(group.reports.len())).collect(),
        })
    }
}

/// Returns the session id of each event; computed once for consecutive events of the same session.
fn session_ids(WorkspaceEvents { workspace, reports, .. }: &WorkspaceEvents<'_>) -> Vec<SessionId> {
    let mut ids: Vec<SessionId> = Vec::with_capacity(reports.len());
    for (index, report) in reports.iter().enumerate() {
        let previous = index.checked_sub(1).map(|previous| &reports[previous].event);
        let same_session = previous.filter(|previous| {
            previous.session == report.event.session && previous.agent == report.event.agent
        });
        ids.push(match (same_session, ids.last()) {
            (Some(_), Some(id)) => *id,
            _ => workspace.session_id_for(report),
        });
    }
    ids
}

/// Events of one workspace that are about to be recorded by one commit. They are added in their order; before each, the
/// caller reads what is new in its conversation.
pub struct OpenBatch<'w> {
    workspace: &'w Workspace,
    lock: &'w RecordLock,
    writer: BatchWriter<'w>,
    reports: Vec<ReportedEvent>,
    /// The place of the next event, if it was looked up already.
    next: Option<StepSlot>,
}

impl Workspace {
    /// Opens a batch for these events. Their messages do not matter yet.
    pub fn open_batch<'w>(
        &'w self,
        lock: &'w RecordLock,
        reports: &[ReportedEvent],
    ) -> Result<OpenBatch<'w>, EngineError> {
        let groups = [WorkspaceEvents { workspace: self, lock, reports }];
        let writer = self.engine.begin_batch(&groups, ReadMode::Compared)?;
        Ok(OpenBatch {
            workspace: self,
            lock,
            writer,
            reports: Vec::with_capacity(reports.len()),
            next: None,
        })
    }
}

impl OpenBatch<'_> {
    /// Returns the conversation that the next event continues; `None` if the event is already recorded.
    pub fn conversation(
        &mut self,
        next: &ReportedEvent,
    ) -> Result<Option<RecordedConversation<'_>>, EngineError> {
        let id = self.writer.session_ids[0][self.reports.len()];
        let slot = self.next.insert(self.writer.find_slot(self.workspace, id, next)?);
        let info = self.writer.session(id).map(|session| &session.info);
        let is_kept = self.workspace.engine.recorder.captures(CapturedPart::Conversation);
        let conversation = RecordedConversation { objects: &self.writer.objects, info, is_kept };
        Ok(matches!(slot, StepSlot::New(_)).then_some(conversation))
    }

    /// Adds the next event.
    pub fn add(&mut self, report: ReportedEvent) -> Result<(), EngineError> {
        self.writer.add(0, self.workspace, &report, self.next.take())?;
        self.reports.push(report);
        Ok(())
    }

    /// Records the events that were added, all or none.
    pub fn commit(self) -> Result<Vec<RecordedStep>, EngineError> {
        let Self { workspace, lock, writer, reports, .. } = self;
        let groups = [WorkspaceEvents { workspace, lock, reports: &reports }];
        Ok(workspace.engine.commit_with_retry(Some(writer), &groups)?.pop().unwrap_or_default())
    }
}

/// A session that events of the batch belong to.
struct BatchSession {
    /// `None` until a new one is created.
    session: Option<Session>,
    is_new: bool,
    /// Whether an event of the batch belongs to it that was not recorded before.
    is_changed: bool,
}

/// A batch that is being written.
struct BatchWriter<'e> {
    store: &'e dyn Store,
    objects: ObjectCache<'e>,
    batch: Box<dyn ObjectBatch + 'e>,
    pages: RefCell<DetailPages>,
    /// The session of each event, by workspace.
    session_ids: Vec<Vec<SessionId>>,
    /// The head of each workspace.
    heads: Vec<Option<StepId>>,
    /// The sessions of the batch, in order of first use.
    sessions: Vec<BatchSession>,
    session_index: HashMap<SessionId, usize>,
    steps: Vec<Step>,
    /// For steps whose detail is on a page: the index of the step and where its detail will be.
    page_refs: Vec<(usize, PageRef)>,
    step_index: HashMap<StepId, usize>,
    /// For each step id that an event of the batch would get: whether it is already stored.
    already_stored: HashMap<StepId, bool>,
    /// For each event that was added, by workspace: what is known of its step, and the index in `steps` if the step is part
    /// of this batch.
    recorded: Vec<Vec<(RecordedStep, Option<usize>)>>,
}

impl BatchWriter<'_> {
    /// Returns a session as the events that were added leave it; `None` if it has no events yet.
    fn session(&self, id: SessionId) -> Option<&Session> {
        // `begin_batch` entered every session.
        self.sessions[self.session_index[&id]].session.as_ref()
    }

    fn find_slot(
        &self,
        workspace: &Workspace,
        session: SessionId,
        report: &ReportedEvent,
    ) -> Result<StepSlot, EngineError> {
        let find_added = |id: StepId| self.step_index.get(&id).map(|index| (*index, &self.steps[*index]));
        let stored = |id: StepId| match self.already_stored.get(&id) {
            Some(false) => Ok(None),
            _ => Ok(workspace.store().step(id)?),
        };
        workspace.find_step_slot(self.session(session), report, find_added, stored)
    }

    /// Adds the next event of the workspace with the index `workspace_index`; `slot` is its place, if it was looked up already.
    fn add(
        &mut self,
        workspace_index: usize,
        workspace: &Workspace,
        report: &ReportedEvent,
        slot: Option<StepSlot>,
    ) -> Result<(), EngineError> {
        let id = self.session_ids[workspace_index][self.recorded[workspace_index].len()];
        let step = match slot.map_or_else(|| self.find_slot(workspace, id, report), Ok)? {
            StepSlot::New(step) => step,
            StepSlot::Taken(recorded, new) => {
                self.recorded[workspace_index].push((recorded, new));
                return Ok(());
            }
        };
        let entry = &mut self.sessions[self.session_index[&id]];
        entry.is_changed = true;
        let session = entry.session.get_or_insert_with(|| workspace.new_session(report));
        let settings = &workspace.engine.recorder;
        let shaped = settings.shape(report);
        let report = &*shaped;
        let admission = settings.admit(&mut session.info.skipped, report);
        let pending = PendingStep::new(report, session, step, settings);
        let arriving = RecordingBatch { cache: &self.objects, batch: &*self.batch, pages: Some(&self.pages) };
        if admission == Admission::Skip {
            pending.skip(&arriving, session, SkippedParts::NotWritten)?;
            self.recorded[workspace_index].push((unrecorded_step(step, session), None));
            return Ok(());
        }
        let (record, slip) = pending.write_light_step(&arriving, session, self.heads[workspace_index])?;
        let index = self.steps.len();
        self.recorded[workspace_index].push((uncommitted_step(&record), Some(index)));
        self.page_refs.extend(slip.map(|slip| (index, slip)));
        self.step_index.insert(step, index);
        self.steps.push(record);
        Ok(())
    }

    /// Commits the new steps and returns all of them, by workspace.
    fn commit(self) -> Result<Vec<Vec<RecordedStep>>, EngineError> {
        let Self { store, batch, pages, sessions, mut steps, page_refs: slips, mut recorded, .. } = self;
        if sessions.iter().any(|entry| entry.is_changed) {
            let pages = pages.into_inner().store(&*batch)?;
            for (step_position, page_ref) in slips {
                steps[step_position].meta.detail = pages.locate(page_ref);
            }
            let changed = sessions.into_iter().filter(|entry| entry.is_changed);
            let mut mutations: Vec<Mutation> =
                changed.filter_map(|entry| Some(session_mutation(entry.session?, entry.is_new))).collect();
            mutations.extend(steps.into_iter().map(|step| Mutation::AppendStep {
                step,
                annotation: Annotation::default(),
                trigger: None,
            }));
            let receipt = store.commit(Some(batch.finish()?), &mutations)?;
            for (step, new) in recorded.iter_mut().flatten() {
                if let Some(number) = new.and_then(|step_position| receipt.steps.get(step_position)) {
                    step.number = *number;
                }
            }
        }
        Ok(recorded
            .into_iter()
            .map(|recorded_steps| recorded_steps.into_iter().map(|(step, _)| step).collect())
            .collect())
    }
}
