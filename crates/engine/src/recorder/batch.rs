//! Batches: light steps of any number of sessions and workspaces, recorded by one commit.
//!
//! Waiting for the disk is the main cost of an event. A caller with many events (a server that many agents report to, or an
//! inbox that is read) therefore waits once for the whole batch. Each session is read once and each object is written once; an
//! event finds the ones before it both in the batch and in the store.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use stepback_model::ids::{SessionId, StepId};
use stepback_model::record::{Annotation, Session, Step};
use stepback_store::Mutation;
use stepback_store::port::{BatchAnswers, Questions};

use super::detail_pages::{PageRef, Pages};
use super::step_writer::{ObjectCache, PendingStep, RecordingBatch};
use super::{RecordLock, RecordedStep, ReportedEvent, ScanPolicy, StepSlot, set_session, so_far};
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
    pub reports: &'a [ReportedEvent<'a>],
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
    pub fn record_together(
        &self,
        all: &[WorkspaceEvents<'_>],
    ) -> Result<Vec<Vec<RecordedStep>>, EngineError> {
        if all.iter().flat_map(|some| some.reports).any(|report| report.effect != ScanPolicy::None) {
            return Err(EngineError::Input(
                "only events that mean nothing for the files are recorded together".into(),
            ));
        }
        let mut basis = std::iter::repeat_n(ReadMode::Compared, ATTEMPTS - 1);
        retry("record the events", is_race_or_exists, || {
            self.try_record_together(all, basis.next().unwrap_or(ReadMode::Uncompared))
        })
    }

    fn try_record_together(
        &self,
        all: &[WorkspaceEvents<'_>],
        basis: ReadMode,
    ) -> Result<Vec<Vec<RecordedStep>>, EngineError> {
        let objects = ObjectCache::new(self.store());
        let sessions: Vec<Vec<SessionId>> = all.iter().map(session_ids).collect();
        let (mut coming, looked) = self.look_ahead(all, &sessions)?;
        let batch = match basis {
            ReadMode::Compared => self.store.begin_on(&looked)?,
            ReadMode::Uncompared => self.store.begin_since(looked.epoch)?,
        };
        let pages = RefCell::new(Pages::default());
        let arriving = RecordingBatch { known: &objects, batch: &*batch, pages: Some(&pages) };
        let heads = looked.references;
        for ((WorkspaceEvents { workspace, reports, .. }, sessions), head) in
            all.iter().zip(&sessions).zip(heads)
        {
            let mut own = Vec::with_capacity(reports.len());
            for (report, session) in reports.iter().zip(sessions) {
                own.push(coming.add(workspace, &arriving, (*session, report), head)?);
            }
            coming.all.push(own);
        }
        let PendingBatch { sessions, mut steps, slips, all: mut places, .. } = coming;
        if !steps.is_empty() {
            let pages = pages.into_inner().store(&*batch)?;
            for (at, slip) in slips {
                steps[at].meta.detail = pages.place(slip);
            }
            let touched = sessions.into_iter().filter(|known| known.touched);
            let mut mutations: Vec<Mutation> =
                touched.filter_map(|known| Some(set_session(known.session?, known.is_new))).collect();
            mutations.extend(steps.into_iter().map(|step| Mutation::AppendStep {
                step,
                annotation: Annotation::default(),
                trigger: None,
            }));
            let receipt = self.store.commit(Some(batch.finish()?), &mutations)?;
            for (recorded, new) in places.iter_mut().flatten() {
                if let Some(number) = new.and_then(|at| receipt.steps.get(at)) {
                    recorded.number = *number;
                }
            }
        }
        Ok(places.into_iter().map(|own| own.into_iter().map(|(recorded, _)| recorded).collect()).collect())
    }
}

/// Returns the session id of each event; computed once for consecutive events of the same session.
fn session_ids(WorkspaceEvents { workspace, reports, .. }: &WorkspaceEvents<'_>) -> Vec<SessionId> {
    let mut ids: Vec<SessionId> = Vec::with_capacity(reports.len());
    for (at, report) in reports.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| &reports[before].event);
        let same = before
            .filter(|before| before.session == report.event.session && before.agent == report.event.agent);
        ids.push(match (same, ids.last()) {
            (Some(_), Some(id)) => *id,
            _ => workspace.session_id(report),
        });
    }
    ids
}

impl Engine {
    /// Reads in one query what must be known before recording: which of the steps are already stored, the sessions, and the
    /// heads of the workspaces.
    fn look_ahead(
        &self,
        all: &[WorkspaceEvents<'_>],
        sessions: &[Vec<SessionId>],
    ) -> Result<(PendingBatch, BatchAnswers), EngineError> {
        let (mut steps, mut met) = (Vec::new(), Vec::new());
        let mut coming = PendingBatch::default();
        for (WorkspaceEvents { reports, .. }, sessions) in all.iter().zip(sessions) {
            for (report, session) in reports.iter().zip(sessions) {
                let key = report.event.key.as_ref();
                steps.extend(key.map(|key| Step::id_of(*session, report.event.kind, key)));
                if let Entry::Vacant(new) = coming.session_at.entry(*session) {
                    new.insert(met.len());
                    met.push(*session);
                }
            }
        }
        let references: Vec<String> = all.iter().map(|some| some.workspace.head_name()).collect();
        let asked = Questions { steps: &steps, references: &references, sessions: &met };
        let mut looked = self.store.look(&asked)?;
        let known = std::mem::take(&mut looked.sessions).into_iter();
        coming.sessions =
            known.map(|session| Met { is_new: session.is_none(), session, touched: false }).collect();
        coming.delivered = steps.into_iter().map(|step| (step, looked.stored.contains(&step))).collect();
        Ok((coming, looked))
    }
}

/// A session that events of the batch belong to; `session` is `None` until a new one is created.
struct Met {
    session: Option<Session>,
    is_new: bool,
    /// Whether one of the new steps belongs to it.
    touched: bool,
}

/// The batch that is being built.
#[derive(Default)]
struct PendingBatch {
    /// The sessions of the batch, in order of first use.
    sessions: Vec<Met>,
    session_at: HashMap<SessionId, usize>,
    steps: Vec<Step>,
    /// For steps whose detail is on a page: the index of the step and where its detail will be.
    slips: Vec<(usize, PageRef)>,
    step_at: HashMap<StepId, usize>,
    /// For each step id that an event of the batch would get: whether it is already stored.
    delivered: HashMap<StepId, bool>,
    /// For each event, what is known of its step, and the index in `steps` if the step is part of this batch.
    all: Vec<Vec<(RecordedStep, Option<usize>)>>,
}

impl PendingBatch {
    fn add(
        &mut self,
        workspace: &Workspace,
        arriving: &RecordingBatch<'_>,
        (id, report): (SessionId, &ReportedEvent<'_>),
        head: Option<StepId>,
    ) -> Result<(RecordedStep, Option<usize>), EngineError> {
        // `look_ahead` entered every session.
        let met = &mut self.sessions[self.session_at[&id]];
        let steps = &self.steps;
        let find = |id: StepId| self.step_at.get(&id).map(|at| (*at, &steps[*at]));
        let stored = |id: StepId| match self.delivered.get(&id) {
            Some(false) => Ok(None),
            _ => Ok(workspace.store().step(id)?),
        };
        let step = match workspace.place_for(met.session.as_ref(), report, find, stored)? {
            StepSlot::New(step) => step,
            StepSlot::Taken(recorded, new) => return Ok((recorded, new)),
        };
        met.touched = true;
        let session = met.session.get_or_insert_with(|| workspace.new_session(report));
        let begun = PendingStep::new(arriving.known, report, session, step)?;
        let (record, slip) = begun.light(arriving, session, head)?;
        let recorded = so_far(&record);
        self.slips.extend(slip.map(|slip| (self.steps.len(), slip)));
        self.step_at.insert(step, self.steps.len());
        self.steps.push(record);
        Ok((recorded, Some(self.steps.len() - 1)))
    }
}
