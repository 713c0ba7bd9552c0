//! From what an agent reports to steps: which look at the workspace is needed, who changed what, and how the conversation
//! stands.
//!
//! A call that can change something is looked at twice: before it runs, which is the checkpoint to go back to, and after it
//! has run, which shows what it did. Calls that run at once share one look before the first and one after the last, because
//! between them there is no moment at which the workspace stands still. Everything else is a light step: it has the
//! conversation, and its files are those of the step it grew from.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;

use serde_json::{Map, Value, json};
use stepback_model::conversation;
use stepback_model::event::Event;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::{SessionId, StepId};
use stepback_model::object::{ObjectError, ObjectSink, ObjectSource};
use stepback_model::record::{Annotation, Facts, Session, SessionInfo, Step, StepKind, Trigger};
use stepback_model::state::State;
use stepback_model::time::Timestamp;
use stepback_store::{Mutation, ObjectBatch, StoreError};

use crate::authorship::Authors;
use crate::calls::{self, AtWork};
use crate::error::EngineError;
use crate::workspace::{Present, StoreSource, Workspace, wait_for};

/// How many messages back the turn that asked for a call is looked for.
const TAIL: usize = 256;
/// How often a commit is tried when others commit at the same time.
const ATTEMPTS: usize = 50;

/// What a reported event means for the files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
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
pub struct Fresh {
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

/// Where the conversation of a session is read. The agents' formats are known only to whoever implements this.
pub trait Conversation {
    /// What came since `cursor`; `None` if nothing can be read.
    fn fresh(&self, cursor: Option<&Value>) -> Option<Fresh>;
    /// The turn that asked for `call`, among the last messages.
    fn turn(&self, tail: &[&str], call: &str) -> Option<Turn>;
}

/// One reported event and what goes with it.
pub struct Report<'a> {
    /// What happened.
    pub event: Event,
    /// What it means for the files.
    pub effect: Effect,
    /// When it arrived.
    pub at: Timestamp,
    /// The conversation as it was then.
    pub conversation: Option<&'a dyn Conversation>,
    /// Paths that the call names, relative to the workspace.
    pub paths: Vec<String>,
    /// What else is now known about the session.
    pub learned: Learned,
}

/// What an event tells about its session.
#[derive(Clone, Debug, Default)]
pub struct Learned {
    /// See [`SessionInfo::directory`].
    pub directory: Option<String>,
    /// See [`SessionInfo::transcript`].
    pub transcript: Option<String>,
    /// See [`SessionInfo::model`].
    pub model: Option<String>,
    /// The session is over.
    pub ended: bool,
    /// It comes from the agent's own record, in which nothing happens twice.
    pub imported: bool,
    /// Nothing is going on: calls still open never ended.
    pub quiet: bool,
    /// The call was refused and never ran.
    pub never_ran: bool,
    /// The model has said its last word about a prompt, which is a turn of its own.
    pub answered: bool,
    /// A call that began and has not run yet: it waits at a breakpoint, and what changes meanwhile is not its doing.
    pub waiting: Option<String>,
    /// What the session has cost more, in millionths of a dollar.
    pub cost: u64,
    /// The task list as it is now.
    pub tasks: Option<Value>,
    /// Names of tools and variables that the session has, no values.
    pub environment: Option<Value>,
}

/// A recorded step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recorded {
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
        let file = match self.local_dir()? {
            Some(dir) => {
                Some(wait_for(&dir.join("record.lock"), File::try_lock, &self.root, self.patience())?)
            }
            None => None,
        };
        Ok(RecordLock { _file: file })
    }

    /// Records an event. The same event reported again is not recorded again.
    pub fn record(&self, _lock: &RecordLock, report: &Report<'_>) -> Result<Recorded, EngineError> {
        for _ in 0..ATTEMPTS {
            match self.try_record(report) {
                Err(EngineError::Store(StoreError::Collected | StoreError::Moved { .. })) => {}
                other => return other,
            }
        }
        Err(StoreError::Locked.into())
    }

    fn try_record(&self, report: &Report<'_>) -> Result<Recorded, EngineError> {
        let event = &report.event;
        let session = Session::id_of(self.record.id, &event.agent, &event.session);
        let known = self.store().session(session)?;
        let step = match self.place_for(session, known.as_ref(), report)? {
            Place::New(step) => step,
            Place::Taken(there) => {
                return Ok(Recorded {
                    id: there.id,
                    number: there.number,
                    session,
                    iteration: there.facts.iteration,
                    kept: false,
                });
            }
        };
        let is_new = known.is_none();
        let mut session = known.unwrap_or_else(|| Session {
            id: session,
            workspace: self.record.id,
            agent: event.agent.clone(),
            started_at: report.at,
            info: SessionInfo {
                external: Some(event.session.clone()),
                imported: report.learned.imported,
                ..SessionInfo::default()
            },
        });
        learn(&mut session.info, report);
        let heard = self.listen(report, &session.info)?;
        let turns = calls::begins_turn(&session.info, report, heard.turn.as_deref());
        calls::settle(&mut session.info, report, turns);
        let looks = calls::needs_look(&session.info, report);
        let mut writing = Writing { workspace: self, report, session: &mut session, heard, authors: None };
        let (present, state_hash, detail) = if looks {
            let _lock = self.lock_shared()?;
            let mut written = None;
            let head = self.head_state()?;
            let others = self.others_at_work(writing.session.id, report.at)?;
            let mut present = self.present_with(&mut |batch, state| {
                let unchanged =
                    head.as_ref().is_some_and(|head| head.files == state.files && head.git == state.git);
                writing.authors = (!unchanged).then(|| {
                    // What changed before a call began is not its doing; earlier calls of the same session may have.
                    let mut calls = others.clone();
                    let mut own = writing.session.clone();
                    own.info.open.retain(|open| Some(&open.call) != report.learned.waiting.as_ref());
                    calls.extend(calls::at_work(&own, report.at));
                    calls::gathered(calls)
                });
                let detail = writing.objects(batch, state)?;
                if unchanged {
                    (state.files, state.git) = (None, None);
                }
                written = Some((detail, !unchanged));
                Ok(())
            })?;
            let (detail, changed) = written.unwrap_or((None, false));
            let hash = present.hash;
            let batch = present.batch.take();
            (Some((present, changed)), (hash, batch), detail)
        } else {
            let batch = self.store().begin()?;
            let mut state = State::default();
            let detail = writing.objects(&*batch, &mut state)?;
            let hash = batch.write(ObjectKind::State, &state.encode(), None)?;
            (None, (hash, Some(batch.finish()?)), detail)
        };
        let turn = writing.heard.turn;
        let (hash, batch) = state_hash;
        calls::advance(&mut session.info, report, step, turns, turn);
        if present.is_some() {
            session.info.looked = session.info.iteration;
        }
        let kept = present.as_ref().is_some_and(|(_, changed)| *changed);
        let head = self.head_id()?;
        let record = Step {
            id: step,
            session: session.id,
            number: 0,
            parent: head,
            kind: event.kind,
            at: report.at,
            state: hash,
            summary: event.summary.clone(),
            facts: Facts {
                iteration: session.info.iteration,
                worker: event.worker.clone(),
                call: event.call.clone(),
                tool: event.tool.clone(),
                failed: event.error.is_some(),
                duration: event.duration.or_else(|| calls::duration(&session.info, report)),
                detail,
            },
        };
        calls::close(&mut session.info, report, looks);
        let trigger = kept.then_some(match report.effect {
            Effect::Keep(trigger) => trigger,
            _ => Trigger::Automatic,
        });
        let mut mutations = Vec::new();
        match is_new {
            true => mutations.push(Mutation::AddSession(session.clone())),
            false => mutations
                .push(Mutation::SetSessionInfo { session: session.id, info: Box::new(session.info.clone()) }),
        }
        if kept {
            mutations.push(Mutation::SetRef { name: self.head_name(), expected: head, value: step });
        }
        mutations.push(Mutation::AppendStep { step: record, annotation: Annotation::default(), trigger });
        let receipt = self.store().commit(batch, &mutations)?;
        if let Some((mut present, _)) = present {
            Present::remember(&mut present);
        }
        Ok(Recorded {
            id: step,
            number: receipt.steps.first().copied().unwrap_or_default(),
            session: session.id,
            iteration: session.info.iteration,
            kept,
        })
    }

    /// Where an event belongs in the record: at a new step, or at the one that recorded it already.
    fn place_for(
        &self,
        session: SessionId,
        known: Option<&Session>,
        report: &Report<'_>,
    ) -> Result<Place, EngineError> {
        let Some(key) = &report.event.key else {
            return Ok(Place::New(StepId::from_bytes(self.engine.env.fresh_id())));
        };
        for attempt in 0.. {
            let key = if attempt == 0 { key.clone() } else { format!("{key} again {attempt}") };
            let id = Step::id_of(session, report.event.kind, &key);
            let Some(stored) = self.store().step(id)? else { return Ok(Place::New(id)) };
            let is_later = !report.learned.imported
                && calls::is_another(known.map(|session| session.info.open.as_slice()), report);
            if !is_later {
                return Ok(Place::Taken(Box::new(stored.checkpoint.step)));
            }
        }
        unreachable!("every name is taken at most once")
    }

    /// The state the workspace stands at, if there is one.
    fn head_state(&self) -> Result<Option<State>, EngineError> {
        match self.head_id()? {
            None => Ok(None),
            Some(id) => match self.store().step(id)? {
                Some(head) if !head.purged => Ok(Some(self.state_of(&head)?)),
                _ => Ok(None),
            },
        }
    }

    /// Who may be changing something right now.
    pub(crate) fn at_work_now(&self, now: Timestamp) -> Result<Authors, EngineError> {
        let mut calls = Vec::new();
        for session in self.store().sessions(self.record.id)? {
            if session.info.ended_at.is_none() {
                calls.extend(calls::at_work(&session, now));
            }
        }
        Ok(calls::gathered(calls))
    }

    /// Calls of other sessions that have begun and not ended.
    fn others_at_work(&self, session: SessionId, now: Timestamp) -> Result<Vec<AtWork>, EngineError> {
        let mut found = Vec::new();
        for other in self.store().sessions(self.record.id)? {
            if other.id == session || other.info.ended_at.is_some() {
                continue;
            }
            found.extend(calls::at_work(&other, now));
        }
        Ok(found)
    }
}

enum Place {
    New(StepId),
    Taken(Box<Step>),
}

/// What the conversation tells, before anything is written.
#[derive(Default)]
struct Heard {
    fresh: Option<Fresh>,
    /// How many messages there were before the turn that asked for the call.
    before_turn: Option<u64>,
    /// The agent's id of that turn.
    turn: Option<String>,
}

impl Workspace<'_> {
    /// Reads what is new of the conversation, and finds the turn that asked for the call.
    fn listen(&self, report: &Report<'_>, info: &SessionInfo) -> Result<Heard, EngineError> {
        let Some(source) = report.conversation else { return Ok(Heard::default()) };
        let fresh = source.fresh(info.cursor.as_ref());
        let mut heard = Heard { fresh, ..Heard::default() };
        let (StepKind::ToolStart, Some(call)) = (report.event.kind, &report.event.call) else {
            return Ok(heard);
        };
        let objects = StoreSource(self.store());
        let known = conversation::len(&objects, info.tip)?;
        let (kept, lines) = match &heard.fresh {
            Some(fresh) => (fresh.keep.min(known), fresh.lines.as_slice()),
            None => (known, [].as_slice()),
        };
        let tip = if kept < known { conversation::shorten(&objects, info.tip, kept)? } else { info.tip };
        let older = conversation::tail(&objects, tip, TAIL.saturating_sub(lines.len()))?;
        let first = kept - older.len() as u64;
        let mut texts: Vec<&str> = older.iter().map(|(_, message)| message.text.as_str()).collect();
        texts.extend(lines.iter().map(String::as_str));
        if let Some(turn) = source.turn(&texts, call) {
            heard.before_turn = Some(first + turn.before as u64);
            heard.turn = turn.id;
        }
        Ok(heard)
    }
}

struct Writing<'a, 'w> {
    workspace: &'a Workspace<'w>,
    report: &'a Report<'a>,
    session: &'a mut Session,
    heard: Heard,
    authors: Option<Authors>,
}

impl Writing<'_, '_> {
    /// Writes everything but files: messages, slots and the step's detail, whose hash it returns.
    fn objects(&mut self, batch: &dyn ObjectBatch, state: &mut State) -> Result<Option<Hash>, EngineError> {
        let info = &mut self.session.info;
        let arriving = Arriving { workspace: self.workspace, batch, fresh: RefCell::default() };
        if let Some(fresh) = &self.heard.fresh {
            let known = conversation::len(&arriving, info.tip)?;
            let keep = fresh.keep.min(known);
            let tip = if keep < known { conversation::shorten(&arriving, info.tip, keep)? } else { info.tip };
            info.tip = conversation::append(&arriving, tip, keep, fresh.lines.iter().map(String::as_str))?;
            info.cursor = Some(fresh.cursor.clone());
        }
        // The moment before a call is the moment before the model asked for it.
        state.conversation = match self.heard.before_turn {
            Some(keep) => conversation::shorten(&arriving, info.tip, keep)?,
            None => info.tip,
        };
        if let Some(tasks) = &self.report.learned.tasks {
            info.slots.task = Some(store_json(batch, tasks)?);
        }
        if let Some(environment) = &self.report.learned.environment {
            info.slots.env = Some(store_json(batch, environment)?);
        }
        state.memory = info.slots.memory;
        state.task = info.slots.task;
        state.env = info.slots.env;
        state.reasoning = info.slots.reasoning;
        let detail = self.detail();
        let detail = match detail.is_empty() {
            true => None,
            false => Some(store_json(batch, &Value::Object(detail))?),
        };
        Ok(detail)
    }

    fn detail(&self) -> Map<String, Value> {
        let event = &self.report.event;
        let mut detail = Map::new();
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                detail.insert(name.to_string(), value);
            }
        };
        put("input", event.input.clone());
        put("output", event.output.clone());
        put("error", event.error.as_ref().map(|error| json!(error)));
        put("metadata", event.metadata.clone());
        put("raw", event.raw.clone());
        put("authors", self.authors.as_ref().map(|authors| json!(authors)));
        // Pairs the end of a call with its beginning.
        let open = &self.session.info.open;
        put("start", calls::ending(open, self.report).map(|at| json!(open[at].step)));
        put("prompt", self.session.info.prompt.map(|prompt| json!(prompt)));
        detail
    }
}

fn store_json(batch: &dyn ObjectBatch, value: &Value) -> Result<Hash, EngineError> {
    stepback_model::json::store(batch, value, None).map_err(|error| EngineError::Input(error.to_string()))
}

/// Messages on their way into the store, readable before they are there.
struct Arriving<'a, 'w> {
    workspace: &'a Workspace<'w>,
    batch: &'a dyn ObjectBatch,
    fresh: RefCell<HashMap<Hash, Vec<u8>>>,
}

impl ObjectSink for Arriving<'_, '_> {
    fn write(&self, kind: ObjectKind, bytes: &[u8], similar_to: Option<Hash>) -> Result<Hash, ObjectError> {
        let hash = self.batch.write(kind, bytes, similar_to)?;
        self.fresh.borrow_mut().insert(hash, bytes.to_vec());
        Ok(hash)
    }
}

impl ObjectSource for Arriving<'_, '_> {
    fn read(&self, kind: ObjectKind, hash: Hash) -> Result<Vec<u8>, ObjectError> {
        match self.fresh.borrow().get(&hash) {
            Some(bytes) => Ok(bytes.clone()),
            None => StoreSource(self.workspace.store()).read(kind, hash),
        }
    }
}

/// Adds what the event tells about its session.
fn learn(info: &mut SessionInfo, report: &Report<'_>) {
    let learned = &report.learned;
    let keep = |slot: &mut Option<String>, value: &Option<String>| {
        if value.is_some() {
            slot.clone_from(value);
        }
    };
    keep(&mut info.directory, &learned.directory);
    keep(&mut info.transcript, &learned.transcript);
    keep(&mut info.model, &learned.model);
    info.cost += learned.cost;
    info.seen_at = Some(info.seen_at.map_or(report.at, |seen| seen.max(report.at)));
    if learned.ended {
        info.ended_at = Some(report.at);
    } else if !learned.quiet {
        // To be opened is not to go on: Claude Code opens a session that it only forks.
        info.ended_at = None;
    }
    if info.title.is_none() && report.event.kind == StepKind::UserInput {
        info.title = Some(report.event.summary.clone());
    }
}
