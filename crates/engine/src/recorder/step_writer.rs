//! Writes the objects of a step: the new messages of the conversation, the slots that the event sets, and the step's own
//! detail.

use std::cell::RefCell;
use std::collections::HashMap;

use serde_json::{Value, json};
use stepback_model::conversation;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::StepId;
use stepback_model::json::{self, JsonError, ValueRoot};
use stepback_model::object::{ObjectError, ObjectSink, ObjectSource};
use stepback_model::record::{Session, SessionInfo, Step, StepKind, StepMeta};
use stepback_model::state::WorkspaceState;
use stepback_store::{ObjectBatch, Store};

use super::detail_pages::{PageRef, Pages};
use super::{CallOrigin, NewMessages, ReportedEvent};
use crate::authorship::Authors;
use crate::calls;
use crate::error::EngineError;
use crate::workspace::StoreSource;

/// How many messages back the search for the turn that requested a call goes.
const TAIL: usize = 256;
/// How many stored messages each attempt of that search reads: the turn is usually among the last few.
const STORED: [usize; 3] = [0, 16, TAIL];

/// What was read of the conversation, before anything is written.
#[derive(Default)]
struct TranscriptDelta {
    fresh: Option<NewMessages>,
    /// How many messages come before the turn that requested the call.
    before_turn: Option<u64>,
    /// The agent's id of that turn.
    turn: Option<String>,
}

/// Reads the new messages of the conversation and finds the turn that requested the call.
fn listen(
    objects: &ObjectCache<'_>,
    report: &ReportedEvent<'_>,
    info: &SessionInfo,
) -> Result<TranscriptDelta, EngineError> {
    let Some(source) = report.conversation else { return Ok(TranscriptDelta::default()) };
    let fresh = source.fresh(info.cursor.as_ref());
    let mut heard = TranscriptDelta { fresh, ..TranscriptDelta::default() };
    let (StepKind::ToolStart, Some(call)) = (report.event.kind, &report.event.call) else {
        return Ok(heard);
    };
    let count = conversation::len(objects, info.tip)?;
    let (kept, lines) = match &heard.fresh {
        Some(fresh) => (fresh.keep.min(count), fresh.lines.as_slice()),
        None => (count, [].as_slice()),
    };
    let tip = if kept < count { conversation::shorten(objects, info.tip, kept)? } else { info.tip };
    let most = TAIL.saturating_sub(lines.len());
    for some in STORED {
        let older = conversation::tail(objects, tip, some.min(most))?;
        let first = kept - older.len() as u64;
        let mut texts: Vec<&str> = older.iter().map(|(_, message)| message.text.as_str()).collect();
        texts.extend(lines.iter().map(String::as_str));
        let CallOrigin { turn, settled } = source.turn(&texts, call);
        heard.before_turn = turn.as_ref().map(|turn| first + turn.before as u64);
        heard.turn = turn.and_then(|turn| turn.id);
        if settled || first == 0 || some >= most {
            break;
        }
    }
    Ok(heard)
}

/// A step that is not committed yet, with the event it records.
pub(super) struct PendingStep<'a> {
    report: &'a ReportedEvent<'a>,
    step: StepId,
    heard: TranscriptDelta,
    /// Whether the event begins a turn.
    turns: bool,
    /// The other step of the call, where the session does not have it open.
    counterpart: Option<StepId>,
}

impl<'a> PendingStep<'a> {
    /// Updates the session with what the event and the conversation tell about it.
    pub fn new(
        objects: &ObjectCache<'_>,
        report: &'a ReportedEvent<'a>,
        session: &mut Session,
        step: StepId,
    ) -> Result<Self, EngineError> {
        learn(&mut session.info, report);
        calls::note_wait(&mut session.info, report);
        let heard = listen(objects, report, &session.info)?;
        let turns = calls::settle(&mut session.info, report, heard.turn.as_deref());
        Ok(Self { report, step, heard, turns, counterpart: None })
    }

    /// Sets the other step of the event's call.
    pub fn with_counterpart(self, counterpart: Option<StepId>) -> Self {
        Self { counterpart, ..self }
    }

    /// Writes everything but files: messages, slots and the step's detail.
    pub fn objects(
        &self,
        arriving: &RecordingBatch<'_>,
        session: &mut Session,
        state: &mut WorkspaceState,
        authors: Option<&Authors>,
    ) -> Result<Option<Detail>, EngineError> {
        let info = &mut session.info;
        if let Some(fresh) = &self.heard.fresh {
            let count = conversation::len(arriving, info.tip)?;
            let keep = fresh.keep.min(count);
            let tip = if keep < count { conversation::shorten(arriving, info.tip, keep)? } else { info.tip };
            info.tip = conversation::append(arriving, tip, keep, fresh.lines.iter().map(String::as_str))?;
            info.cursor = Some(fresh.cursor.clone());
        }
        // Going back to before a call means going back to before the model requested it.
        state.conversation = match self.heard.before_turn {
            Some(keep) => conversation::shorten(arriving, info.tip, keep)?,
            None => info.tip,
        };
        if let Some(tasks) = &self.report.learned.tasks {
            info.slots.task = Some(store_json(arriving.batch, tasks)?);
        }
        if let Some(memory) = &self.report.learned.memory {
            info.slots.memory = Some(store_json(arriving.batch, memory)?);
        }
        if let Some(environment) = &self.report.learned.environment {
            info.slots.env = Some(store_json(arriving.batch, environment)?);
        }
        if let Some(thinking) = &self.report.learned.reasoning {
            info.slots.reasoning = thinking.store(arriving.batch)?;
        }
        state.memory = info.slots.memory;
        state.task = info.slots.task;
        state.env = info.slots.env;
        state.reasoning = info.slots.reasoning;
        self.detail(arriving, session, authors)
    }

    /// Writes the step's detail: the fields of the event that are not part of the step's row.
    fn detail(
        &self,
        arriving: &RecordingBatch<'_>,
        session: &Session,
        authors: Option<&Authors>,
    ) -> Result<Option<Detail>, EngineError> {
        let event = &self.report.event;
        let error = event.error.as_ref().map(|error| json!(error));
        let authors = authors.map(|authors| json!(authors));
        // The end of a call refers to its start.
        let open = &session.info.open;
        let late = self.counterpart.filter(|_| event.kind == StepKind::ToolEnd);
        let start = calls::ending(open, self.report).map(|at| open[at].step).or(late).map(|step| json!(step));
        let prompt = session.info.prompt.map(|prompt| json!(prompt));
        let all = [
            ("input", &event.input),
            ("output", &event.output),
            ("error", &error),
            ("metadata", &event.metadata),
            ("raw", &event.raw),
            ("authors", &authors),
            ("start", &start),
            ("prompt", &prompt),
        ];
        let fields: Vec<(&str, &Value)> =
            all.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?))).collect();
        if fields.is_empty() {
            return Ok(None);
        }
        if let Some(pages) = arriving.pages
            && let Some(slip) = pages.borrow_mut().add(arriving.batch, session.id, &fields)?
        {
            return Ok(Some(Detail::OnPage(slip)));
        }
        Ok(Some(Detail::Stored(json::store_fields(arriving.batch, &fields).map_err(unstorable)?.into())))
    }

    /// Returns the step; everything it refers to must be written. Updates the session's counters. `looked` says whether the
    /// workspace was scanned for it.
    pub fn step(
        self,
        session: &mut Session,
        state: Hash,
        detail: Option<ValueRoot>,
        parent: Option<StepId>,
        looked: bool,
    ) -> Step {
        let Self { report, step, heard, turns, counterpart } = self;
        let event = &report.event;
        let is_over = event.kind == StepKind::ToolStart && counterpart.is_some();
        calls::advance(&mut session.info, report, step, (turns, heard.turn), is_over);
        if let (StepKind::ToolEnd, Some(start)) = (event.kind, counterpart) {
            calls::note_late_end(&mut session.info, start);
        }
        if looked {
            session.info.looked = session.info.iteration;
        }
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
                duration: calls::duration(&session.info, report),
                detail,
            },
        };
        calls::close(&mut session.info, report, looked);
        record
    }

    /// Writes a step for which the workspace was not scanned. If its detail went on a page, the step does not refer to it yet.
    pub fn light(
        self,
        arriving: &RecordingBatch<'_>,
        session: &mut Session,
        parent: Option<StepId>,
    ) -> Result<(Step, Option<PageRef>), EngineError> {
        let mut state = WorkspaceState::default();
        let (detail, slip) = match self.objects(arriving, session, &mut state, None)? {
            Some(Detail::Stored(root)) => (Some(root), None),
            Some(Detail::OnPage(slip)) => (None, Some(slip)),
            None => (None, None),
        };
        let hash = arriving.state(&state)?;
        Ok((self.step(session, hash, detail, parent, false), slip))
    }
}

/// Where the detail of a step went.
pub(super) enum Detail {
    /// Stored as an object of its own.
    Stored(ValueRoot),
    /// On a page that is stored later.
    OnPage(PageRef),
}

impl Detail {
    /// Returns where the detail is stored; `None` if it is on a page.
    pub fn stored(self) -> Option<ValueRoot> {
        if let Self::Stored(root) = self { Some(root) } else { None }
    }
}

/// Updates the session with what the event tells about it.
fn learn(info: &mut SessionInfo, report: &ReportedEvent<'_>) {
    let learned = &report.learned;
    let keep = |slot: &mut Option<String>, value: &Option<String>| {
        if value.is_some() {
            slot.clone_from(value);
        }
    };
    keep(&mut info.directory, &learned.directory);
    keep(&mut info.transcript, &learned.transcript);
    keep(&mut info.model, &learned.model);
    if learned.started.is_some() {
        info.started.clone_from(&learned.started);
    }
    info.cost += learned.cost;
    info.seen_at = Some(info.seen_at.map_or(report.at, |seen| seen.max(report.at)));
    if learned.ended {
        info.ended_at = Some(report.at);
    } else if !learned.quiet
        && !matches!(
            report.event.kind,
            StepKind::ModelStart | StepKind::ModelEnd | StepKind::Reasoning | StepKind::Checkpoint
        )
    {
        // Opening a session does not resume it: Claude Code opens a session that it only forks. Neither does a model that
        // answers late, nor a note about a session that has ended.
        info.ended_at = None;
    }
    if info.title.is_none() && report.event.kind == StepKind::UserInput {
        info.title = Some(report.event.summary.clone());
    }
}

fn store_json(batch: &dyn ObjectBatch, value: &Value) -> Result<Hash, EngineError> {
    json::store(batch, value, None).map_err(unstorable)
}

pub(super) fn unstorable(error: JsonError) -> EngineError {
    match error {
        JsonError::Object(error) => error.into(),
        impossible => EngineError::Input(impossible.to_string()),
    }
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
    pub known: &'a ObjectCache<'a>,
    /// The batch that objects are written to.
    pub batch: &'a dyn ObjectBatch,
    /// The pages for small details, if a batch of steps is recorded; `None` for a single step.
    pub pages: Option<&'a RefCell<Pages>>,
}

impl RecordingBatch<'_> {
    /// Writes a state, unless it is the one that was written last.
    fn state(&self, state: &WorkspaceState) -> Result<Hash, EngineError> {
        let mut last = self.known.state.borrow_mut();
        if let Some((_, hash)) = last.as_ref().filter(|(known, _)| known == state) {
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
        self.known.messages.borrow_mut().insert(hash, bytes.to_vec());
        Ok(hash)
    }
}

impl ObjectSource for RecordingBatch<'_> {
    fn read(&self, kind: ObjectKind, hash: Hash) -> Result<Vec<u8>, ObjectError> {
        self.known.read(kind, hash)
    }
}
