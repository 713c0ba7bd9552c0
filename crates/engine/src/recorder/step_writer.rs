//! Writes the objects of a step: the new messages of the conversation, the slots that the event sets, and the step's own
//! detail.

use std::cell::RefCell;
use std::collections::HashMap;

use serde_json::{Value, json};
use stepback_model::conversation;
use stepback_model::event::AgentEvent;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::StepId;
use stepback_model::json::{self, ValueRoot};
use stepback_model::object::{ObjectError, ObjectSink, ObjectSource};
use stepback_model::record::{Session, SessionInfo, Step, StepKind, StepMeta};
use stepback_model::state::WorkspaceState;
use stepback_store::{ObjectBatch, Store};

use super::detail_pages::{DetailPages, PageRef};
use super::settings::sampling::count_skipped;
use super::settings::{CapturedPart, RecorderSettings};
use super::task_context::context_of;
use super::{FinishedCalls, ModelTurn, NewMessages, ReportedEvent, SessionMilestone};
use crate::authorship::Authors;
use crate::calls;
use crate::error::EngineError;
use crate::moves::part_steps::TAKE_BACK_TOOL;
use crate::workspace::StoreSource;

/// More tokens than a model reads or writes in one call.
const MAX_REPORTED_TOKENS: u64 = 1_000_000_000;

/// A step that is not committed yet, with the event it records.
pub(super) struct PendingStep<'a> {
    report: &'a ReportedEvent,
    step: StepId,
    /// What was added to the conversation, unless it was recorded meanwhile.
    messages: Option<&'a NewMessages>,
    /// Whether the event begins a turn.
    begins_turn: bool,
    /// The other step of the call, where the session does not have it open.
    counterpart: Option<StepId>,
}

impl<'a> PendingStep<'a> {
    /// Updates the session with what the event says about it.
    pub fn new(
        report: &'a ReportedEvent,
        session: &mut Session,
        step: StepId,
        settings: &RecorderSettings,
    ) -> Self {
        settings.forget_left_out(&mut session.info);
        update_session(&mut session.info, report);
        calls::add_wait_time(&mut session.info, report);
        let is_kept = settings.captures(CapturedPart::Conversation);
        let messages = report.messages.as_ref();
        let messages = messages.filter(|messages| messages.can_append_to(&session.info, is_kept));
        let turn = messages.and_then(|messages| messages.turn.as_ref());
        let turn_id = turn.and_then(|turn| turn.id.as_deref());
        let begins_turn = calls::abandon_finished_calls(&mut session.info, report, turn_id);
        Self { report, step, messages, begins_turn, counterpart: None }
    }

    /// Returns the turn that requested the call of the event.
    fn turn(&self) -> Option<&'a ModelTurn> {
        self.messages?.turn.as_ref()
    }

    /// Sets the other step of the event's call.
    pub fn with_counterpart(self, counterpart: Option<StepId>) -> Self {
        Self { counterpart, ..self }
    }

    /// Writes everything but files: messages, slots and the step's detail.
    pub fn write_objects(
        &self,
        arriving: &RecordingBatch<'_>,
        session: &mut Session,
        state: &mut WorkspaceState,
        authors: Option<&Authors>,
    ) -> Result<Option<DetailLocation>, EngineError> {
        self.write_state_parts(arriving, session, state)?;
        self.write_detail(arriving, session, authors)
    }

    /// Writes the parts of the state that do not come from the workspace.
    fn write_state_parts(
        &self,
        arriving: &RecordingBatch<'_>,
        session: &mut Session,
        state: &mut WorkspaceState,
    ) -> Result<(), EngineError> {
        let info = &mut session.info;
        if let Some(messages) = self.messages {
            info.tip = messages.append_to(arriving, info.tip)?;
            if messages.cursor.is_some() {
                info.cursor.clone_from(&messages.cursor);
            }
        }
        // Going back to before a call means going back to before the model requested it.
        state.conversation = match self.turn() {
            Some(turn) => conversation::shorten(arriving, info.tip, turn.before)?,
            None => info.tip,
        };
        if let Some(tasks) = &self.report.update.tasks {
            info.slots.task = Some(store_json(arriving.batch, tasks)?);
        }
        if let Some(memory) = &self.report.update.memory {
            info.slots.memory = Some(store_json(arriving.batch, memory)?);
        }
        if let Some(environment) = &self.report.update.environment {
            info.slots.env = Some(store_json(arriving.batch, environment)?);
        }
        if let Some(thinking) = &self.report.update.reasoning {
            info.slots.reasoning = thinking.store(arriving.batch)?;
        }
        state.memory = info.slots.memory;
        state.task = info.slots.task;
        state.env = info.slots.env;
        state.reasoning = info.slots.reasoning;
        Ok(())
    }

    /// Writes the step's detail: the fields of the event that are not part of the step's row.
    fn write_detail(
        &self,
        arriving: &RecordingBatch<'_>,
        session: &Session,
        authors: Option<&Authors>,
    ) -> Result<Option<DetailLocation>, EngineError> {
        let event = &self.report.event;
        let error = event.error.as_ref().map(|error| json!(error));
        let authors = authors.map(|authors| json!(authors));
        // The end of a call refers to its start.
        let open = &session.info.open;
        let late = self.counterpart.filter(|_| event.kind == StepKind::ToolEnd);
        let start = calls::find_ending_call(open, self.report)
            .filter(|index| !open[*index].unrecorded)
            .map(|index| open[index].step)
            .or(late)
            .map(|step| json!(step));
        let prompt = session.info.prompt.map(|prompt| json!(prompt));
        let message = event.message.as_ref().map(|message| json!(message));
        let (truncated, not_recorded) =
            (self.report.left_out.truncated(), self.report.left_out.not_recorded());
        let skipped = &session.info.skipped.pending;
        let skipped = (!skipped.is_empty()).then(|| json!(skipped));
        let candidates = [
            ("input", &event.input),
            ("output", &event.output),
            ("message", &message),
            ("error", &error),
            ("metadata", &event.metadata),
            ("raw", &event.raw),
            ("authors", &authors),
            ("start", &start),
            ("prompt", &prompt),
            ("truncated", &truncated),
            ("not_recorded", &not_recorded),
            ("skipped", &skipped),
        ];
        let fields: Vec<(&str, &Value)> =
            candidates.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?))).collect();
        if fields.is_empty() {
            return Ok(None);
        }
        if let Some(pages) = arriving.pages
            && let Some(slip) = pages.borrow_mut().add(arriving.batch, session.id, &fields)?
        {
            return Ok(Some(DetailLocation::OnPage(slip)));
        }
        Ok(Some(DetailLocation::Stored(json::store_fields(arriving.batch, &fields)?.into())))
    }

    /// Returns the step; everything it refers to must be written. Updates the session's counters.
    pub fn into_step(
        self,
        session: &mut Session,
        state: Hash,
        detail: Option<ValueRoot>,
        parent: Option<StepId>,
        scan: ScanResult,
    ) -> Step {
        let turn = (self.begins_turn, self.turn().and_then(|turn| turn.id.clone()));
        let Self { report, step, counterpart, .. } = self;
        let event = &report.event;
        let is_over = event.kind == StepKind::ToolStart && counterpart.is_some();
        calls::advance_session(&mut session.info, report, step, turn, is_over);
        if let (StepKind::ToolEnd, Some(start)) = (event.kind, counterpart) {
            calls::record_late_end(&mut session.info, start);
        }
        if scan == ScanResult::Checkpoint {
            let goes_on = matches!(event.kind, StepKind::ToolStart | StepKind::Checkpoint)
                && session.info.open.iter().any(|open| !open.ended);
            session.info.looked = session.info.iteration.saturating_sub(u64::from(goes_on));
        }
        session.info.skipped.pending.clear();
        let context = context_of(&mut session.info, report);
        let record = Step {
            id: step,
            session: session.id,
            number: 0,
            parent,
            kind: event.kind,
            at: report.at,
            state,
            summary: event.summary.clone(),
            meta: StepMeta {
                iteration: session.info.iteration,
                worker: event.worker.clone(),
                call: event.call.clone(),
                tool: event.tool.clone(),
                failed: event.error.is_some(),
                duration: calls::call_duration(&session.info, report),
                detail,
                context,
            },
        };
        calls::close_call(&mut session.info, report, scan != ScanResult::NotScanned);
        record
    }

    /// Updates the session with an event that does not become a step: every later state is as if it had.
    pub fn skip(
        self,
        arriving: &RecordingBatch<'_>,
        session: &mut Session,
        parts: SkippedParts,
    ) -> Result<(), EngineError> {
        if parts == SkippedParts::NotWritten {
            self.write_state_parts(arriving, session, &mut WorkspaceState::default())?;
        }
        let turn = (self.begins_turn, self.turn().and_then(|turn| turn.id.clone()));
        let Self { report, step, .. } = self;
        let info = &mut session.info;
        calls::advance_session(info, report, step, turn, false);
        info.open.iter_mut().filter(|open| open.step == step).for_each(|open| open.unrecorded = true);
        if info.prompt == Some(step) {
            info.prompt = None;
        }
        context_of(info, report);
        calls::close_call(info, report, false);
        count_skipped(&mut info.skipped, report.event.kind);
        Ok(())
    }

    /// Writes a step for which the workspace was not scanned. If its detail went on a page, the step does not refer to it yet.
    pub fn write_light_step(
        self,
        arriving: &RecordingBatch<'_>,
        session: &mut Session,
        parent: Option<StepId>,
    ) -> Result<(Step, Option<PageRef>), EngineError> {
        let mut state = WorkspaceState::default();
        let (detail, slip) = match self.write_objects(arriving, session, &mut state, None)? {
            Some(DetailLocation::Stored(root)) => (Some(root), None),
            Some(DetailLocation::OnPage(slip)) => (None, Some(slip)),
            None => (None, None),
        };
        let hash = arriving.write_state(&state)?;
        Ok((self.into_step(session, hash, detail, parent, ScanResult::NotScanned), slip))
    }
}

/// What a scan of the workspace for a step has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ScanResult {
    /// There was none.
    NotScanned,
    /// The step is no checkpoint.
    Unchanged,
    /// The step is a checkpoint.
    Checkpoint,
}

/// Whether the parts of the state that an event sets are written already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SkippedParts {
    /// Not yet.
    NotWritten,
    /// While the workspace was scanned.
    Written,
}

/// Where the detail of a step went.
pub(super) enum DetailLocation {
    /// Stored as an object of its own.
    Stored(ValueRoot),
    /// On a page that is stored later.
    OnPage(PageRef),
}

impl DetailLocation {
    /// Returns where the detail is stored; `None` if it is on a page.
    pub fn into_stored(self) -> Option<ValueRoot> {
        if let Self::Stored(root) = self { Some(root) } else { None }
    }
}

/// Updates the session with what the event tells about it.
fn update_session(info: &mut SessionInfo, report: &ReportedEvent) {
    let update = &report.update;
    let keep = |slot: &mut Option<String>, value: &Option<String>| {
        if value.is_some() {
            slot.clone_from(value);
        }
    };
    keep(&mut info.directory, &update.directory);
    keep(&mut info.transcript, &update.transcript);
    keep(&mut info.model, &update.model);
    if update.started.is_some() {
        info.started.clone_from(&update.started);
    }
    info.add_spending(report.at, update.cost, reported_tokens(&report.event));
    info.seen_at = Some(info.seen_at.map_or(report.at, |last_seen| last_seen.max(report.at)));
    if update.milestone == Some(SessionMilestone::Ended) {
        info.ended_at = Some(report.at);
    } else if update.finished_calls != FinishedCalls::All
        && !is_taken_back(&report.event)
        && !matches!(
            report.event.kind,
            StepKind::ModelStart | StepKind::ModelEnd | StepKind::Reasoning | StepKind::Checkpoint
        )
    {
        // Opening a session does not resume it: Claude Code opens a session that it only forks. Neither does a model that
        // answers late, nor a note about a session that has ended.
        info.ended_at = None;
    }
    let is_told = !report.left_out.parts.contains(&CapturedPart::Conversation);
    if info.title.is_none() && is_told && report.event.kind == StepKind::UserInput {
        info.title = Some(report.event.summary.clone());
    }
}

/// Returns the tokens that an answer reports, read and written; those of an answer from a recording were not used.
fn reported_tokens(event: &AgentEvent) -> u64 {
    let metadata = event.metadata.as_ref().filter(|_| event.kind == StepKind::ModelEnd);
    let Some(metadata) = metadata.filter(|metadata| metadata["replayed"] != true) else { return 0 };
    let counts =
        ["usage", "tokens"].into_iter().find_map(|name| metadata.get(name).filter(|it| it.is_object()));
    let Some(counts) = counts else { return 0 };
    let names = ["/input", "/output", "/cache_read", "/cache_write", "/cache/read", "/cache/write"];
    let counts = names.iter().filter_map(|name| counts.pointer(name)?.as_u64());
    // Larger counts are mistakes.
    counts.filter(|count| *count <= MAX_REPORTED_TOKENS).fold(0, u64::saturating_add)
}

/// Whether the user took a part of the session back, which the agent has no part in.
fn is_taken_back(event: &AgentEvent) -> bool {
    event.kind == StepKind::StateChange && event.tool.as_deref() == Some(TAKE_BACK_TOOL)
}

fn store_json(batch: &dyn ObjectBatch, value: &Value) -> Result<Hash, EngineError> {
    Ok(json::store(batch, value, None)?)
}

/// A cache of messages that were read, or that are about to be stored, so that each is looked up only once.
pub(super) struct ObjectCache<'a> {
    store: &'a dyn Store,
    messages: RefCell<HashMap<Hash, Vec<u8>>>,
    /// The state that was written last: consecutive light steps often have the same one.
    state: RefCell<Option<(WorkspaceState, Hash)>>,
}

impl<'a> ObjectCache<'a> {
    /// Creates an empty cache.
    pub fn new(store: &'a dyn Store) -> Self {
        Self { store, messages: RefCell::default(), state: RefCell::default() }
    }
}

impl ObjectSource for ObjectCache<'_> {
    fn read(&self, kind: ObjectKind, hash: Hash) -> Result<Vec<u8>, ObjectError> {
        if let Some(bytes) = self.messages.borrow().get(&hash) {
            return Ok(bytes.clone());
        }
        let bytes = StoreSource(self.store).read(kind, hash)?;
        self.messages.borrow_mut().insert(hash, bytes.clone());
        Ok(bytes)
    }
}

/// A batch whose messages are readable before they are in the store.
pub(super) struct RecordingBatch<'a> {
    /// The messages that were read or written so far.
    pub cache: &'a ObjectCache<'a>,
    /// The batch that objects are written to.
    pub batch: &'a dyn ObjectBatch,
    /// The pages for small details, if a batch of steps is recorded; `None` for a single step.
    pub pages: Option<&'a RefCell<DetailPages>>,
}

impl RecordingBatch<'_> {
    /// Writes a state, unless it is the one that was written last.
    fn write_state(&self, state: &WorkspaceState) -> Result<Hash, EngineError> {
        let mut last = self.cache.state.borrow_mut();
        if let Some((_, hash)) = last.as_ref().filter(|(last_state, _)| last_state == state) {
            return Ok(*hash);
        }
        let hash = self.batch.write(ObjectKind::State, &state.encode(), None)?;
        *last = Some((*state, hash));
        Ok(hash)
    }
}

impl ObjectSink for RecordingBatch<'_> {
    fn write(&self, kind: ObjectKind, bytes: &[u8], similar_to: Option<Hash>) -> Result<Hash, ObjectError> {
        let hash = self.batch.write(kind, bytes, similar_to)?;
        self.cache.messages.borrow_mut().insert(hash, bytes.to_vec());
        Ok(hash)
    }
}

impl ObjectSource for RecordingBatch<'_> {
    fn read(&self, kind: ObjectKind, hash: Hash) -> Result<Vec<u8>, ObjectError> {
        self.cache.read(kind, hash)
    }
}
