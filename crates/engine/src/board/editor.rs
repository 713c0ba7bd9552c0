//! Changes a board: each mutation is recorded as one step.

use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use serde_json::{Value, json};
use stepback_model::event::AgentEvent;
use stepback_model::hash::Hash;
use stepback_model::ids::{SessionId, StepId};
use stepback_model::record::{Session, StepKind};
use stepback_model::time::Timestamp;
use stepback_reasoning::store::BoardLocation;
use stepback_reasoning::{BoardMutation, ItemOrigin, MutationEffect, ReasoningBoard};
use stepback_store::StoreError;

use super::at_point::{BoardAtPoint, BoardMoment};
use crate::error::EngineError;
use crate::recorder::settings::{CapturedPart, RedactionPatterns};
use crate::recorder::{EventSource, RecordLock, RecordedStep, ReportedEvent, ScanPolicy, Thinking};
use crate::session::last_event_time;
use crate::workspace::Workspace;

/// After this time without an event of a session, its next change causes a scan of the files. In microseconds.
const RESCAN_AFTER_MICROS: i64 = 5 * 60 * 1_000_000;

/// A session whose board is read and changed. It caches the last board, so that continuing costs only a check that the cached
/// board is still the present one.
pub struct BoardEditor<'w> {
    pub(super) workspace: &'w Workspace,
    session: SessionId,
    cached: Option<CachedBoard>,
}

struct CachedBoard {
    root: Option<Hash>,
    board: ReasoningBoard,
    place: Option<BoardLocation>,
}

/// The effect of a change, and where it is recorded.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct BoardEdit {
    /// The effect of the change on the board.
    #[serde(flatten)]
    pub effect: MutationEffect,
    /// The number of the step that records it.
    pub step: u64,
    /// The id of that step.
    pub id: StepId,
    /// The session whose board was changed.
    pub session: SessionId,
    /// The number of the checkpoint that was made before it; `None` if none was due, or if nothing had changed since the
    /// last one.
    pub checkpoint: Option<u64>,
    /// The number of the checkpoint that was made after it; `None` if none was due.
    pub checkpoint_after: Option<u64>,
}

/// A board that is about to be recorded.
pub(super) struct NextBoard<'a> {
    pub board: ReasoningBoard,
    pub noun: &'a str,
    pub summary: String,
    pub input: Value,
    pub output: Value,
    /// Why it is worth a checkpoint; empty if it is not. These become the tags of the checkpoint.
    pub causes: Vec<&'static str>,
}

/// A board that was recorded.
pub(super) struct RecordedBoard {
    /// The step of the change.
    pub step: RecordedStep,
    /// The number of the checkpoint before it, if one was made.
    pub before: Option<u64>,
    /// The number of the checkpoint after it, if one was made.
    pub after: Option<u64>,
}

impl<'w> BoardEditor<'w> {
    /// Creates an editor for the board of a session. Nothing is read yet.
    pub fn new(workspace: &'w Workspace, session: &Session) -> Self {
        Self { workspace, session: session.id, cached: None }
    }

    /// The workspace that the session belongs to.
    pub fn workspace(&self) -> &'w Workspace {
        self.workspace
    }

    /// Returns the session as it is now.
    pub fn session(&self) -> Result<Session, EngineError> {
        let missing = || StoreError::Corrupt { what: format!("session {} no longer exists", self.session) };
        Ok(self.workspace.store().session(self.session)?.ok_or_else(missing)?)
    }

    /// Returns the board as it is now.
    pub fn board(&mut self) -> Result<ReasoningBoard, EngineError> {
        let session = self.session()?;
        Ok(self.current_board(&session)?.0)
    }

    /// Returns the board at a moment.
    pub fn board_at(&self, moment: &BoardMoment) -> Result<BoardAtPoint, EngineError> {
        self.workspace.board_at(&self.session()?, moment)
    }

    /// Returns the board as `session` has it now, and where it is stored.
    pub(super) fn current_board(
        &mut self,
        session: &Session,
    ) -> Result<(ReasoningBoard, Option<BoardLocation>), EngineError> {
        let root = session.info.slots.reasoning;
        if let Some(cached) = self.cached.as_ref().filter(|cached| cached.root == root) {
            return Ok((cached.board.clone(), cached.place.clone()));
        }
        // A forked session continues with the board that its parent session had at the fork.
        let (board, location) = match (root, session.info.forked_from) {
            (None, Some(_)) => {
                let past_board = self.workspace.board_at(session, &BoardMoment::Now)?;
                (past_board.board, past_board.place)
            }
            _ => self.workspace.load_board(root)?,
        };
        self.cached = Some(CachedBoard { root, board: board.clone(), place: location.clone() });
        Ok((board, location))
    }

    /// Applies a change and records it. If the change is refused, nothing changes.
    pub fn apply(&mut self, mutation: &BoardMutation) -> Result<BoardEdit, EngineError> {
        let mutation = redact_mutation(mutation, &self.workspace.engine.recorder.redact)?;
        let lock = self.workspace.lock_recording()?;
        let session = self.session()?;
        let (mut board, location) = self.current_board(&session)?;
        let origin = self.new_origin(&session);
        let effect = board.apply(&mutation, &origin)?;
        let next = NextBoard {
            board,
            noun: mutation.noun(),
            summary: effect.messages.first().cloned().unwrap_or_default(),
            input: json!(mutation),
            output: json!({ "item": effect.item, "said": effect.messages }),
            causes: effect.causes.iter().map(|cause| cause.as_str()).collect(),
        };
        let RecordedBoard { step, before, after } = self.record(&lock, &session, location, origin, next)?;
        Ok(BoardEdit {
            effect,
            step: step.number,
            id: step.id,
            session: session.id,
            checkpoint: before,
            checkpoint_after: after,
        })
    }

    /// Returns the origin of a change that is made now: its time, a new step id, and the call that is running.
    pub(super) fn new_origin(&self, session: &Session) -> ItemOrigin {
        let during =
            session.info.open.iter().rev().find(|open| !open.ended && !open.unrecorded).map(|open| open.step);
        let step = StepId::from_bytes(self.workspace.engine.env.fresh_id());
        ItemOrigin { at: self.workspace.engine.env.now(), step, during }
    }

    /// Records a new board, with checkpoints before and after it if they are due.
    pub(super) fn record(
        &mut self,
        lock: &RecordLock,
        session: &Session,
        previous_location: Option<BoardLocation>,
        origin: ItemOrigin,
        next: NextBoard<'_>,
    ) -> Result<RecordedBoard, EngineError> {
        if !self.workspace.engine.recorder.captures(CapturedPart::Reasoning) {
            return Err(EngineError::NotCaptured { part: CapturedPart::Reasoning.as_str() });
        }
        let before = self.create_checkpoint_before(lock, session, &origin, &next)?;
        let summary = format!("after: {}", next.summary);
        let written_slot = Arc::new(Mutex::new(None));
        let mut report = self.build_report(session, StepKind::Reasoning, next.summary, origin.at);
        report.event.tool = Some(next.noun.to_owned());
        report.event.input = Some(next.input);
        report.event.output = Some(next.output);
        report.event.metadata = origin.during.map(|during| json!({ "during": during }));
        report.source = EventSource::Assigned(origin.step);
        report.update.reasoning = Some(Thinking {
            board: next.board.clone(),
            before: previous_location,
            written: Arc::clone(&written_slot),
        });
        let recorded = self.workspace.record(lock, &report)?;
        // No code panics while holding this lock.
        let written = written_slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.cached = written.map(|written_board| {
            next.board.committed(&written_board);
            CachedBoard {
                root: written_board.place.root,
                board: next.board,
                place: Some(written_board.place),
            }
        });
        // A checkpoint of its own: when pruning takes it, the step that has the board stays.
        let after = match next.causes.is_empty() {
            true => None,
            false => self.create_checkpoint(lock, session, origin.at, (summary, tags(&next.causes)))?,
        };
        Ok(RecordedBoard { step: recorded, before, after })
    }

    /// Makes a checkpoint before the board changes, and returns its number. It is due if the board change has a cause for
    /// one, or if the session was silent for [`RESCAN_AFTER_MICROS`]; it is made only if something has changed since the last
    /// checkpoint, and never for a workspace on another machine, whose files are not here.
    fn create_checkpoint_before(
        &self,
        lock: &RecordLock,
        session: &Session,
        origin: &ItemOrigin,
        next: &NextBoard<'_>,
    ) -> Result<Option<u64>, EngineError> {
        let was_silent = origin.at.as_micros() - last_event_time(session).as_micros() > RESCAN_AFTER_MICROS;
        if next.causes.is_empty() && !was_silent {
            return Ok(None);
        }
        let tags = if next.causes.is_empty() { vec!["time-passed".to_owned()] } else { tags(&next.causes) };
        self.create_checkpoint(lock, session, origin.at, (format!("before: {}", next.summary), tags))
    }

    /// Makes a checkpoint with a description and tags, if something has changed since the last one. Returns its number.
    fn create_checkpoint(
        &self,
        lock: &RecordLock,
        session: &Session,
        at: Timestamp,
        (summary, tags): (String, Vec<String>),
    ) -> Result<Option<u64>, EngineError> {
        if self.workspace.record.remote_name().is_some() {
            return Ok(None);
        }
        let mut report = self.build_report(session, StepKind::Checkpoint, summary, at);
        report.scan_policy = ScanPolicy::CheckpointIfChanged;
        report.tags = tags;
        let recorded = self.workspace.record(lock, &report)?;
        Ok(recorded.is_checkpoint.then_some(recorded.number))
    }

    fn build_report(
        &self,
        session: &Session,
        kind: StepKind,
        summary: String,
        at: Timestamp,
    ) -> ReportedEvent {
        let external = session.info.external.as_deref().unwrap_or_default();
        ReportedEvent::new(AgentEvent::new(&session.agent, external, kind, summary), at)
    }
}

/// The tags of a checkpoint that has these causes.
fn tags(causes: &[&str]) -> Vec<String> {
    causes.iter().map(ToString::to_string).collect()
}

/// Returns the change with secrets removed from its texts.
fn redact_mutation(
    mutation: &BoardMutation,
    patterns: &RedactionPatterns,
) -> Result<BoardMutation, EngineError> {
    let original = json!(mutation);
    let mut document = original.clone();
    stepback_redact::redact_value(&mut document);
    patterns.redact_value(&mut document);
    // If nothing was redacted, keep the original: a value that JSON cannot represent (NaN, say) must be refused for what it
    // is.
    if document == original {
        return Ok(mutation.clone());
    }
    serde_json::from_value(document).map_err(EngineError::InvalidWhenRedacted)
}
